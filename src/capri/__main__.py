"""The command `capri`."""

import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from capri.cli import app
    except ImportError as error:
        sys.exit(f'the command line of capri needs {error.name}: pip install "capriors[report]"')
    app()


if __name__ == "__main__":
    main()

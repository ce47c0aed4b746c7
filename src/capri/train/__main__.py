"""``python -m capri.train``: the command ``capri train`` by itself."""

import typer

from capri.train.cli import train

if __name__ == "__main__":
    typer.run(train)

"""The command line: `capri demo | tune | apply | evaluate | compare | …`."""

import sys

import typer

from capri._checks import InputError
from capri.cli.demo import demo

_app = typer.Typer(
    name="capri",
    help="Make classifiers good for the classes and the objective that matter.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
_app.command()(demo)


@_app.callback()
def _root() -> None:
    pass


def app() -> None:
    """Run the command line; an input that cannot be used is one line on stderr and exit code 2."""
    try:
        _app()
    except InputError as error:
        typer.echo(f"capri: {error}", err=True)
        sys.exit(2)

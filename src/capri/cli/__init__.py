"""The command line: `capri demo | tune | apply | evaluate | compare | fold | train | search | … | paper`."""

import sys
from collections.abc import Sequence

import typer

from capri._checks import InputError
from capri.cli import apply, compare, evaluate, fold, tune
from capri.cli.demo import demo
from capri.cli.messages import say
from capri.paper.cli import app as paper
from capri.theory.cli import theory
from capri.train.cli import train
from capri.train.cli_search import pretrain, retrain, search

#: What typer raises for an unknown option or a missing argument; it has no public name of its own.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

#: Which extra brings what a command may miss.
_EXTRAS = {"torch": "train", "lightning": "train", "PIL": "train", "matplotlib": "report", "pandas": "tables"}

_app = typer.Typer(
    name="capri",
    help="Make classifiers good for the classes and the objective that matter.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_app.command()(demo)
for _module, _command in (
    (tune, tune.tune),
    (apply, apply.apply),
    (evaluate, evaluate.evaluate),
    (compare, compare.compare),
    (fold, fold.fold),
):
    _app.command(epilog=_module.EXAMPLES)(_command)

_app.command()(train)
_app.command()(search)
_app.command()(retrain)
_app.command()(pretrain)
_app.command()(theory)
_app.add_typer(paper, name="paper")


@_app.callback()
def _root() -> None:
    pass


def app(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an input that cannot be used is one line on stderr and exit code 2."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _app(given or ["--help"], standalone_mode=False)
    except InputError as error:
        say(error)
        code = 2
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        say(f"this command needs {error.name}, which is not installed: pip install 'capri[{extra}]'")
        code = 2
    except _UsageError as error:
        say(f"{error.format_message().rstrip('.')}. See `capri --help`.")
        code = 2
    sys.exit(code)

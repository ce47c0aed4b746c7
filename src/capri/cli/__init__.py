"""The command line: every command of the library, and those of installed extensions.

An extension is a package with an entry point in the group `capri.commands`: a function becomes a command of the entry
point's name, a `typer.Typer` a group of commands.
"""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any

import typer
from typer.core import TyperGroup

from capri._checks import InputError
from capri._provenance import versions
from capri._stopping import Stopped
from capri.cli import apply, compare, evaluate, export, fold, frontier, report, tune
from capri.cli.demo import demo
from capri.cli.messages import say
from capri.cli.search import pretrain, retrain, search
from capri.cli.stopping import stoppable
from capri.cli.train import train

#: What typer raises for an unknown option or a missing argument; it has no public name of its own.
_UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

#: Which extra brings what a command may miss.
_EXTRAS = {"torch": "train", "lightning": "train", "PIL": "train", "matplotlib": "report", "jinja2": "report",
           "pandas": "tables", "cleanlab": "noise", "dask": "dask", "onnx": "onnx", "skl2onnx": "onnx"}  # fmt: skip


class _Commands(TyperGroup):
    """The one path for errors: what a user can mend is one line on stderr and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            say(error)
            _let_go_of_output()
        except (InputError, FloatingPointError) as error:
            say(error)
        except MemoryError:
            say("there is not enough memory for these data; give fewer samples, or classes.")
        except Stopped as stop:
            say(stop)
            raise
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").split(".")[0])
            if extra is None:
                raise
            say(f'this command needs {error.name}, which is not installed: pip install "capriors[{extra}]"')
        raise typer.Exit(code=2)


def _broken(extension: str, reason: str) -> Callable[[], None]:
    """A command in place of an extension that cannot be loaded; the others work all the same."""

    def command() -> None:
        raise InputError(f"the extension {extension} cannot be loaded ({reason}); install it again, or remove it.")

    command.__doc__ = f"(cannot be loaded: {reason})"
    return command


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"capri {versions()['capri']}")
        raise typer.Exit


#: The whole command line.
commands = typer.Typer(
    name="capri",
    cls=_Commands,
    help="Make classifiers good for the classes and the objective that matter.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@commands.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


commands.command()(demo)
for _module, _command in (
    (tune, tune.tune),
    (apply, apply.apply),
    (evaluate, evaluate.evaluate),
    (report, report.report),
    (compare, compare.compare),
    (frontier, frontier.frontier),
    (fold, fold.fold),
    (export, export.export),
):
    commands.command(epilog=_module.EXAMPLES)(_command)
for _function in (train, search, retrain, pretrain):
    commands.command()(_function)
for _point in sorted(entry_points(group="capri.commands"), key=lambda point: point.name):
    try:
        _extension = _point.load()
    except ImportError as _error:
        _extension = _broken(_point.value, str(_error))
    if isinstance(_extension, typer.Typer):
        commands.add_typer(_extension, name=_point.name)
    else:
        commands.command(name=_point.name)(_extension)


def _let_go_of_output() -> None:
    """What standard output cannot take goes nowhere: else Python tries again as it ends, with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def app(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; it ends the process."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    with suppress(AttributeError, ValueError):  # a terminal of few letters shows the codes of the others
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.stdout is None:
        say("standard output is closed; lead it to a file, or to /dev/null.")
        sys.exit(2)
    try:
        with stoppable():
            code = commands(given or ["--help"], standalone_mode=False)
            sys.stdout.flush()
    except _UsageError as error:
        say(f"{error.format_message().rstrip('.')}. See `capri --help`.")
        code = 2
    except OSError as error:
        say(error)
        _let_go_of_output()
        code = 2
    except SystemExit as ended:
        if ended.code != 1:
            raise
        _let_go_of_output()
        say(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))  # of which rich and typer say nothing
        code = 2
    sys.exit(code)

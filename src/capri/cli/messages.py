"""What the command line says when something is wrong: one line on stderr, in the words of its options."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from capri._checks import InputError, InputWarning

#: Arguments of the library that the command line calls otherwise than by their own name with dashes.
_OPTIONS = {
    ("classes", None): "--class-names",
    ("class_attributes", None): "a column of --class-attributes FILE",
    ("scores", "logits"): "no --proba",
    ("scores", "proba"): "--proba",
}


def option(argument: str, value: str | None) -> str:
    """What the command line calls an argument of the library.

    >>> option("absent", "ignore"), option("class_counts", None)
    ('--absent ignore', '--class-counts')
    """
    plain = f"--{argument.replace('_', '-')}" + ("" if value is None else f" {value}")
    return _OPTIONS.get((argument, value), plain)


def harmless(text: str) -> str:
    r"""Text from a file or a stranger, for a terminal: what it would obey, or could not show, as its code.

    >>> print(harmless("cat\x1b[2J"))
    cat\x1b[2J
    """
    return re.sub(OBEYED, lambda found: repr(found[0])[1:-1], text)


#: Control characters, changes of direction, and halves of characters.
OBEYED = "[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def in_words(message: object) -> str:
    """An error or a warning as one line, in the words of the options."""
    text = message.said(option) if isinstance(message, InputError | InputWarning) else str(message)
    return harmless(" ".join(text.split()))


def say(message: object) -> None:
    """One line on stderr, if that is open."""
    if sys.stderr is not None:  # else it would be printed among the results
        with suppress(OSError):
            print(f"capri: {in_words(message)}", file=sys.stderr)


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Warnings raised inside become one line each afterwards; many of one kind become one, with their number."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    kinds: dict[object, list[str]] = {}
    for warning in caught:
        text = in_words(warning.message)
        kinds.setdefault(text if warning.category is UserWarning else warning.category, []).append(text)
    for first, *others in kinds.values():
        say(f"warning: {first}" + (f" (and {len(others)} more such warnings)" if others else ""))

"""What the command line says when something is wrong: one line on stderr, in the words of its options."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

#: What the library calls an argument, and what the command line calls it.
_OPTIONS = (
    ("weights=… (of the constructor)", "--weights"),
    ("class_attributes={name: …}", "a column of --class-attributes FILE"),
    ('with scores="proba" use parameters="l"', "with --proba use --parameters l"),
    ('For logits use scores="logits"', "For logits leave out --proba"),
    ('pass absent="ignore"', "pass --absent ignore"),
    ("class_counts=…", "--class-counts"),
    ("train_counts=…", "--class-counts"),
    ("weights=…", "--weights"),
    ("groups=…", "--groups"),
)


def say(message: object) -> None:
    """One line on stderr."""
    text = " ".join(str(message).split())
    for argument, option in _OPTIONS:
        text = text.replace(argument, option)
    print(f"capri: {text}", file=sys.stderr)


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Warnings raised inside become one line each afterwards; many of one kind become one, with their number."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield
    kinds: dict[object, list[str]] = {}
    for warning in caught:
        kind = str(warning.message) if warning.category is UserWarning else warning.category
        kinds.setdefault(kind, []).append(str(warning.message))
    for first, *others in kinds.values():
        say(f"warning: {first}" + (f" (and {len(others)} more such warnings)" if others else ""))

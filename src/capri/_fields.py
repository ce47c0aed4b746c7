"""What the fields of an artefact may hold: each by what is expected, in words, and a test of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from capri._checks import InputError, short

Rule: TypeAlias = tuple[str, Callable[[Any], bool]]


def is_number(value: Any) -> bool:
    """A real number that is no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def are_numbers(values: Any) -> bool:
    """A sequence of numbers."""
    return isinstance(values, Sequence) and all(map(is_number, values))


def are_errors(values: Any) -> bool:
    """A list of numbers, None where one is undefined."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return isinstance(listed, list | tuple) and all(v is None or is_number(v) for v in listed)


def are_texts(values: Any) -> bool:
    """A list of texts."""
    return isinstance(values, list | tuple) and all(isinstance(v, str) for v in values)


def is_interval(values: Any) -> bool:
    """Two numbers."""
    return are_numbers(values) and len(values) == 2


TEXT: Rule = ("text", lambda v: isinstance(v, str))
TRUTH: Rule = ("True or False", lambda v: isinstance(v, bool))
MAPPING: Rule = ("a mapping", lambda v: isinstance(v, Mapping))
NUMBER: Rule = ("a number", is_number)
NUMBERS: Rule = ("a number per class", are_numbers)
ERRORS: Rule = ("a number or None per class", are_errors)
FIGURES: Rule = ("a mapping to numbers", lambda v: isinstance(v, Mapping) and all(map(is_number, v.values())))
COLUMNS: Rule = (
    "a mapping to lists of numbers",
    lambda v: isinstance(v, Mapping) and all(map(are_errors, v.values())),
)


def check_fields(thing: Any, rules: Mapping[str, Rule], prefix: str = "") -> None:
    """Refuse a field that does not hold what it should.

    Parameters
    ----------
    thing : object
        What has the fields.
    rules : mapping from fields to rules
        What each may hold.
    prefix : str
        What messages write before the name of a field.
    """
    for name, (expected, holds) in rules.items():
        if not holds(value := getattr(thing, name)):
            raise InputError(f"{prefix}{name} is {short(value)}; it must be {expected}.")

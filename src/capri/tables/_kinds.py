"""What there is in files: archives of arrays, and tables of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

SCORE_PREFIX = "score_"  # how the names of score columns begin


class Archive(Protocol):
    """Named arrays; notes are what .safetensors keep beside them."""

    names: list[str]
    notes: dict[str, str]

    def get(self, name: str) -> NDArray[Any]:
        """One of them."""

    def rows(self, name: str) -> Rows:
        """One of them that is read slice by slice, where the format allows that."""


class Rows(Protocol):
    """An array (n_rows, …) of which some rows can be read at a time, as NumPy's and memory maps are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As arrays have it."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its entries."""

    def __getitem__(self, rows: slice, /) -> Any:
        """Some rows in a row."""


class Part(NamedTuple):
    """Some rows of a table. numbers: (n, n_columns); labels: (n,), None where none are wanted; place: what messages
    call the i-th of these rows."""

    numbers: NDArray[Any]
    labels: NDArray[Any] | None
    place: Callable[[int], str]


@runtime_checkable
class Table(Protocol):
    """Named columns of equal length. lists: those of them that hold a list of numbers in each row."""

    names: list[str]
    lists: list[str]

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Some columns, side by side, as numbers (n_rows, n_columns)."""

    def texts(self, name: str) -> list[str]:
        """One column as text."""

    def parts(self, names: Sequence[str], label: str | None, most: int) -> Iterator[Part]:
        """The same in parts of at most so many rows, with the column of the labels."""

    def n_rows(self) -> int | None:
        """How many rows there are; None where only reading tells."""

    def state(self) -> object:
        """What differs where the file was written again."""

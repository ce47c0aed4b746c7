"""Matrices (n, K) that are never there as a whole: blocks of rows are made when they are asked for.

Scores of some of the samples, and the model's opinion of all of them, take as much memory as the scores themselves. The
passes over them need a block at a time, and what asks for single entries asks for few.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capri.posthoc._compiled import blocks_of

LARGE = 2**22  # entries from which a matrix is better made in blocks than kept
Ints: TypeAlias = NDArray[np.int64]
Vector: TypeAlias = NDArray[np.float64]


class Blockwise(ABC):
    """What arrays can do that passes over blocks of rows need."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @abstractmethod
    def block(self, rows: Any) -> NDArray[Any]:
        """Some rows: a slice, or their numbers."""

    @abstractmethod
    def at(self, rows: Ints, columns: Any) -> NDArray[Any]:
        """The entries at pairs of row and column."""

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        if isinstance(key, tuple):
            return self.at(*key)
        if isinstance(key, Integral):
            return self.block(np.array([key]))[0]
        return self.block(np.flatnonzero(key) if getattr(key, "dtype", None) == np.dtype(bool) else key)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.block(slice(None)).astype(self.dtype if dtype is None else dtype, copy=False)

    def small_as_array(self) -> Any:
        """An array if that is no burden, else itself."""
        return self.block(slice(None)) if self.size < LARGE else self

    def sum(self, axis: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Row or column sums."""
        parts = [self.block(rows).sum(axis=axis, dtype=dtype) for rows in blocks_of(self)]
        return np.asarray(np.sum(parts, axis=0)) if axis == 0 else np.concatenate(parts)


class Rows(Blockwise):
    """Some rows of a matrix, in order."""

    def __init__(self, matrix: Any, rows: Ints) -> None:
        self.matrix, self.rows = matrix, rows
        self.shape, self.dtype = (len(rows), matrix.shape[1]), matrix.dtype

    @classmethod
    def of(cls, matrix: Any, rows: Ints) -> Rows:
        """Some rows of a matrix that may itself be some of another."""
        return cls(matrix.matrix, matrix.rows[rows]) if isinstance(matrix, Rows) else cls(matrix, rows)

    def block(self, rows: Any) -> NDArray[Any]:
        """Some rows of these."""
        return np.asarray(self.matrix.take(self.rows[rows], axis=0))

    def at(self, rows: Ints, columns: Any) -> NDArray[Any]:
        """The entries at pairs of row and column."""
        return np.asarray(self.matrix[self.rows[rows], columns])


def whole(matrix: Any) -> tuple[NDArray[Any], Ints]:
    """An array, and which of its rows are those of the matrix, for passes that are too many to make blocks for each."""
    return (matrix.matrix, matrix.rows) if isinstance(matrix, Rows) else (matrix, np.arange(len(matrix)))


def some_rows(matrix: Any, chosen: NDArray[np.bool_]) -> Any:
    """The chosen rows of a matrix: a copy of a small one, a view of a large one."""
    if matrix.size < LARGE:
        return matrix[chosen]
    return Rows.of(matrix, np.flatnonzero(chosen))


class Stacked(Blockwise):
    """Matrices one below the other."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self.parts, self.ends = parts, np.cumsum([len(part) for part in parts])
        self.shape, self.dtype = (int(self.ends[-1]), parts[0].shape[1]), parts[0].dtype

    def block(self, rows: Any) -> NDArray[Any]:
        """Some rows."""
        numbers = np.arange(len(self))[rows]
        out = np.empty((len(numbers), self.shape[1]), self.dtype)
        for part, here, there in self._where(numbers):
            out[here] = part[there]
        return out

    def at(self, rows: Ints, columns: Any) -> NDArray[Any]:
        """The entries at pairs of row and column."""
        rows, columns = np.broadcast_arrays(rows, columns)
        out = np.empty(len(rows), self.dtype)
        for part, here, there in self._where(rows):
            out[here] = part[there, columns[here]]
        return out

    def sum(self, axis: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Row or column sums."""
        parts = [part.sum(axis=axis, dtype=dtype) for part in self.parts]
        return np.asarray(np.sum(parts, axis=0)) if axis == 0 else np.concatenate(parts)

    def weighted(self, weight: Vector) -> Stacked:
        """Rows multiplied, where the parts can do that."""
        return Stacked([p.weighted(w) for p, w in zip(self.parts, np.split(weight, self.ends[:-1]), strict=True)])

    def times(self, factor: Vector) -> Stacked:
        """Columns multiplied, where the parts can do that."""
        return Stacked([part.times(factor) for part in self.parts])

    def _where(self, rows: Ints) -> list[tuple[Any, Ints, Ints]]:
        """Each part, which of the rows are its own, and where it has them."""
        owner = np.searchsorted(self.ends, rows, side="right")
        found = []
        for p, part in enumerate(self.parts):
            here = np.flatnonzero(owner == p)
            found.append((part, here, rows[here] - (self.ends[p] - len(part))))
        return found


def stacked(parts: Sequence[Any]) -> Any:
    """Matrices one below the other; as an array if one of them is."""
    if any(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    return Stacked(parts)

"""What a source of row blocks is, and what is checked of every block of every pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from capri._checks import Floats, InputError, Ints, check_matrix
from capri._provenance import data_digest
from capri.classes import Classes
from capri.tables import Part, other_width

T = TypeVar("T")

BLOCK = 2**25  # bytes of a block, about, as doubles
MIXER = 0x9E3779B97F4A7C15  # of digests: odd, and its multiples spread over all 64 bits


class Block(NamedTuple):
    """Some rows of a source.

    Parameters
    ----------
    start : int
        How many rows stand before them.
    scores : array of shape (n, K)
        Finite floats.
    labels : array of shape (n,) or None
        As the source has them; None where it has none.
    place : callable
        What messages call the i-th of these rows.
    """

    start: int
    scores: Floats
    labels: NDArray[Any] | None
    place: Callable[[int], str]


@dataclass(frozen=True, eq=False)
class Cutter:
    """Makes checked blocks of bounded size of the parts of a source, whose rows have `width` scores."""

    title: str
    n_classes: int
    columns: tuple[Any, ...] | None
    rows: int
    width: int
    order: NDArray[np.int64] | None

    def cut(self, part: Part, start: int) -> Iterator[tuple[Block, Digest]]:
        """Blocks of one part, before which `start` rows stand, with digests of the rows as the source has them."""
        if part.labels is not None and len(part.labels) != len(part.numbers):
            there, rows = len(part.labels), len(part.numbers)
            raise InputError(f"{part.place(0)}: {there} labels for {rows} rows; give one label per row.")
        for first in range(0, len(part.numbers), self.rows):
            place = part.place if first == 0 else _after(part.place, first)
            here = slice(first, first + self.rows)
            labels = None if part.labels is None else part.labels[here]
            raw = np.asarray(part.numbers[here])
            block = Block(start + first, self._checked(raw, place), labels, place)
            yield block, Digest.of(raw if raw.dtype.kind in "fiu" else block.scores, labels, block.start)

    def _checked(self, scores: NDArray[Any], place: Callable[[int], str]) -> Floats:
        if scores.ndim != 2 or scores.shape[1] != self.width:
            raise other_width(place(0), scores.shape[-1] if scores.ndim == 2 else 1, self.width)
        ordered = scores if self.order is None else scores[:, self.order]
        try:
            return check_matrix(ordered, self.title, "n_samples", "n_classes")
        except InputError:
            _refuse(ordered, place, self.columns)
            raise


class Source(ABC):
    """Rows of scores and labels, in blocks of bounded size, that can be passed over again.

    Parameters
    ----------
    title : str
        What messages call it.
    n_classes : int
        K, the number of scores in a row.
    n_samples : int, optional
        N, where that is known before a pass.
    columns : sequence of labels, optional
        The names of the score columns, where they have names.
    labelled : bool
        Whether there are labels.
    rows : int, optional
        The most rows of a block; by default as many as take 32 MiB as doubles.

    Notes
    -----
    Another kind of source is a class with a method `parts`, which yields rows in their order. Whatever iterates over a
    source gets them checked.
    Sources are data, not code: nothing that a file holds is executed.
    """

    def __init__(
        self,
        title: str,
        n_classes: int,
        n_samples: int | None = None,
        columns: Sequence[Any] | None = None,
        labelled: bool = True,
        rows: int | None = None,
    ) -> None:
        if n_classes < 2:
            raise InputError(f"{title} has {n_classes} score column(s); a classifier needs at least 2, one per class.")
        self.title, self.n_classes, self.n_samples = title, n_classes, n_samples
        self.columns = None if columns is None else tuple(columns)
        self.labelled, self._passes = labelled, [0]  # which copies in another order share
        self.rows = max(1, BLOCK // (8 * n_classes)) if rows is None else rows
        self._width = n_classes
        self._order: NDArray[np.int64] | None = None
        self._seen: Digest | None = None
        self._state: object = None

    # -- what kinds of sources say ------------------------------------------------------------------------------------

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """One pass over scores and labels, in their order, as they are."""

    def label_parts(self) -> Iterator[Part]:
        """One pass over the labels; cheaper where a source can leave out the scores."""
        return self.parts()

    def state(self) -> object:
        """What tells, without a pass, that the data are others than before."""
        return None

    # -- passes -------------------------------------------------------------------------------------------------------

    def in_order(self, order: Sequence[int]) -> Self:
        """The same rows with their columns in another order.

        Parameters
        ----------
        order : sequence of int
            Where the first, second, … column stands.

        Returns
        -------
        Source
        """
        columns, other = np.asarray(order, dtype=np.int64), copy(self)
        other._order = columns if self._order is None else self._order[columns]
        other.n_classes = len(columns)
        other.columns = None if self.columns is None else tuple(self.columns[k] for k in columns.tolist())
        return other

    def arranged(self, classes: Classes) -> Self:
        """The same rows with their columns in the order of the classes, by name; as they are where they have no names.

        Parameters
        ----------
        classes : Classes

        Returns
        -------
        Source
        """
        if self.columns is None:
            return self
        return self.in_order(classes.positions(self.columns, f"the columns of {self.title}"))

    def __iter__(self) -> Iterator[Block]:
        """A pass: blocks in their order, checked, and at the end whether they are those of the pass before."""
        self.check_state()
        self._passes[0] += 1
        start, digest, cutter = 0, Digest(), self.cutter
        for part in self.parts():
            for block, seen in cutter.cut(part, start):
                yield block
                digest += seen
                start = block.start + len(block.scores)
        self.finish(digest)

    @property
    def passes(self) -> int:
        """How often the scores were passed over."""
        return self._passes[0]

    @property
    def cutter(self) -> Cutter:
        """What makes blocks of parts; other processes can have it."""
        return Cutter(self.title, self.n_classes, self.columns, self.rows, self._width, self._order)

    def check_state(self) -> None:
        """Stop where the data are others than when the first pass began."""
        state = self.state()
        if self._state is not None and state != self._state:
            raise self._changed()
        self._state = state

    def finish(self, digest: Digest) -> None:
        """Stop where a pass saw other rows than the one before it."""
        if digest.n_samples == 0:
            raise InputError(f"{self.title} is empty: 0 sample(s), while a minimum of 1 is required.")
        if self._seen is not None and digest != self._seen:
            raise self._changed()
        self.check_state()
        self._seen, self.n_samples = digest, digest.n_samples

    def _changed(self) -> InputError:
        return InputError(
            f"{self.title} changed while it was read: a later pass found other rows than the one before. Begin again "
            "when nothing writes there."
        )

    @property
    def digest(self) -> str:
        """Of the scores, after a pass: equal for equal rows, however they are cut into blocks."""
        if self._seen is None:
            for _ in self:
                pass
        assert self._seen is not None
        return f"{self._seen.scores:016x}"

    def digest_with(self, columns: Ints) -> str:
        """Of the scores and the column (N,) of each row's label.

        Parameters
        ----------
        columns : ndarray of shape (N,)

        Returns
        -------
        str
        """
        return f"{self.digest}-{data_digest(np.asarray(columns, np.int64))}"

    def count(self) -> int:
        """N, by a pass over the labels where nothing else tells."""
        if self.n_samples is None:
            self.n_samples = sum(len(part.numbers) for part in self.label_parts())
        return self.n_samples

    # -- what is computed of all blocks -------------------------------------------------------------------------------

    def mapped(self, measure: Callable[[Block], T], on_block: Callable[[int], None] = lambda n: None) -> Iterator[T]:
        """What a function makes of each block, in the order of the blocks.

        Parameters
        ----------
        measure : callable
            From a block to anything. It may run in another process.
        on_block : callable
            Told after each block how many rows there were.

        Yields
        ------
        whatever `measure` returns
        """
        for block in self:
            yield measure(block)
            on_block(len(block.scores))

    def reduced(
        self,
        measure: Callable[[Block], T],
        add: Callable[[T, T], T],
        on_block: Callable[[int], None] = lambda n: None,
    ) -> T:
        """The sum of what a function makes of each block.

        Parameters
        ----------
        measure : callable
            From a block to a tally. It may run in another process.
        add : callable
            The sum of two tallies; it must be the same in any order and grouping, as sums of whole numbers are.
        on_block : callable
            Told after each block how many rows there were.

        Returns
        -------
        whatever `add` returns
        """
        return added(self.mapped(measure, on_block), add)


def added(tallies: Iterable[T], add: Callable[[T, T], T]) -> T:
    """The sum of tallies, as a tree: each is added to one of as many blocks, so that sums grow as late as they can."""
    waiting: list[tuple[int, T]] = []  # of how many tallies each is the sum
    for tally in tallies:
        waiting.append((1, tally))
        while len(waiting) > 1 and waiting[-1][0] == waiting[-2][0]:
            (n, last), (_, first) = waiting.pop(), waiting.pop()
            waiting.append((2 * n, add(first, last)))
    while len(waiting) > 1:
        (n, last), (m, first) = waiting.pop(), waiting.pop()
        waiting.append((n + m, add(first, last)))
    return waiting[0][1]


class Digest(NamedTuple):
    """What tells rows from others, as a sum over rows, so that it does not depend on how they are cut into blocks.

    scores, labels: sums modulo 2⁶⁴.
    """

    n_samples: int = 0
    scores: int = 0
    labels: int = 0

    @classmethod
    def of(cls, scores: NDArray[Any], labels: NDArray[Any] | None, start: int) -> Digest:
        """Of some rows, before which `start` rows stand."""
        rows = np.arange(start, start + len(scores), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        of_labels = 0 if labels is None else _sum(_label_words(labels), rows)
        return cls(len(scores), _sum(_words(scores), rows), of_labels)

    def __add__(self, other: Digest) -> Digest:  # type: ignore[override]
        mask = 2**64 - 1
        return Digest(
            self.n_samples + other.n_samples, (self.scores + other.scores) & mask, (self.labels + other.labels) & mask
        )


def _sum(words: NDArray[np.uint64], rows: NDArray[np.uint64]) -> int:
    """Of each row's words, mixed by their places, times the mixed number of the row."""
    factors = (2 * np.arange(words.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(MIXER)
    mixed = words @ (factors ^ (factors >> np.uint64(29)))
    mixed ^= mixed >> np.uint64(32)
    return int((mixed * (rows * np.uint64(MIXER))).sum(dtype=np.uint64))


def _words(scores: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of each row as whole numbers."""
    rows = np.ascontiguousarray(scores)
    width = rows.shape[1] * rows.itemsize
    size = next(size for size in (8, 4, 2, 1) if width % size == 0)
    return rows.view(f"u{size}").astype(np.uint64, copy=False)


def _label_words(labels: NDArray[Any]) -> NDArray[np.uint64]:
    """Labels as whole numbers; of text, of which all lengths must say the same, a number of its own."""
    if labels.dtype.kind in "iufb":
        return labels.astype(np.float64).view(np.uint64)[:, None]
    distinct, inverse = np.unique(labels.astype(str), return_inverse=True)
    numbers = [int.from_bytes(str(label).encode()[-64:], "little") % (2**61 - 1) for label in distinct.tolist()]
    return np.array(numbers, dtype=np.uint64)[inverse.ravel()][:, None]


def _after(place: Callable[[int], str], first: int) -> Callable[[int], str]:
    return lambda i: place(first + i)


def _refuse(scores: NDArray[Any], place: Callable[[int], str], columns: Sequence[Any] | None) -> None:
    """Name the row and the column of the first score that is not finite."""
    if scores.dtype.kind != "f":
        return
    bad = np.argwhere(~np.isfinite(scores))
    if len(bad):
        i, k = bad[0].tolist()
        name = k if columns is None else repr(columns[k])
        more = f" (so are {len(bad) - 1} more scores nearby)" if len(bad) > 1 else ""
        raise InputError(
            f"{place(i)}, column {name}: the score is {scores[i, k]}{more}; scores must be finite numbers. Remove "
            "these rows or clip the values."
        )

"""Sources of what is at hand: arrays, tables in files, and iterables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputTypeError, as_array, short
from capri.blocks.source import Source
from capri.classes import as_labels, column_names
from capri.tables import Part, Rows, Table, one_line


class ArraySource(Source):
    """Of an array (N, K), or of what gives slices of rows as arrays do: memory maps, .npy files, HDF5, zarr.

    Parameters
    ----------
    scores : array-like
        With a shape, and rows by slices.
    labels : array-like of shape (N,), optional
    title : str
    rows : int, optional
        The most rows of a block.
    """

    def __init__(
        self, scores: Rows, labels: ArrayLike | None = None, title: str = "scores", rows: int | None = None
    ) -> None:
        if len(scores.shape) != 2:
            raise InputError(f"{title} must have shape (n_samples, n_classes); got shape {tuple(scores.shape)}.")
        n, k = scores.shape
        super().__init__(title, k, n, column_names(scores), labels is not None, rows)
        self._scores, self._labels = scores, None if labels is None else as_labels(labels, f"the labels of {title}")
        if self._labels is not None and len(self._labels) != n:
            raise InputError(f"{title} has {n} rows, and there are {len(self._labels)} labels; give one per row.")

    def parts(self) -> Iterator[Part]:
        """Slices of the array."""
        for first in range(0, self._scores.shape[0], self.rows):
            yield self._part(as_array(self._slice(first), self.title, "be real numbers"), first)

    def label_parts(self) -> Iterator[Part]:
        """All labels at once."""
        yield self._part(np.empty((self._scores.shape[0], 0)), 0)

    def _slice(self, first: int) -> Any:
        rows: Any = getattr(self._scores, "iloc", self._scores)
        try:
            return rows[first : first + self.rows]
        except (TypeError, ValueError, RuntimeError, LookupError) as error:  # as of sparse matrices, or closed files
            raise InputTypeError(
                f"{self.title} does not give slices of rows ({one_line(error)}); give a dense array, or open it again."
            ) from None

    def _part(self, scores: NDArray[Any], first: int) -> Part:
        labels = None if self._labels is None else self._labels[first : first + len(scores)]
        return Part(scores, labels, lambda i: f"{self.title}, row {first + i}")


class TableSource(Source):
    """Of a file or folder of columns.

    Parameters
    ----------
    table : Table
        As `capri.tables.opened` gives it.
    scores : sequence of str
        The score columns, or the one column that holds lists of scores.
    label : str, optional
        The column of labels.
    title : str
    columns : sequence of labels, optional
        What the score columns are called.
    rows : int, optional
        The most rows of a block.
    """

    def __init__(
        self,
        table: Table,
        scores: Sequence[str],
        label: str | None,
        title: str,
        columns: Sequence[Any] | None = None,
        rows: int | None = None,
    ) -> None:
        k = len(scores)
        if list(scores) and scores[0] in table.lists:
            first = next(table.parts(scores, None, 1), None)
            k = 0 if first is None else first.numbers.shape[1]
        super().__init__(title, k, table.n_rows(), columns, label is not None, rows)
        self._table, self._columns, self._label = table, list(scores), label

    def parts(self) -> Iterator[Part]:
        """As the file is laid out."""
        return self._table.parts(self._columns, self._label, self.rows)

    def label_parts(self) -> Iterator[Part]:
        """The column of the labels alone."""
        return self._table.parts([], self._label, 2**16)

    def state(self) -> object:
        """Which files there are, how large, and when they were written."""
        return self._table.state()


class Relabelled(Source):
    """The rows of a source with other labels in place of its own, and columns that have no names.

    Parameters
    ----------
    source : Source
    labels : mapping
        From each of its labels to another.
    """

    def __init__(self, source: Source, labels: Mapping[Any, Any]) -> None:
        super().__init__(source.title, source.n_classes, source.n_samples, None, True, source.rows)
        self._source, self._labels = source, dict(labels)

    def parts(self) -> Iterator[Part]:
        """Each with its labels exchanged."""
        return map(self._exchanged, self._source.parts())

    def label_parts(self) -> Iterator[Part]:
        """The labels alone, exchanged."""
        return map(self._exchanged, self._source.label_parts())

    def state(self) -> object:
        """That of the source."""
        return self._source.state()

    def _exchanged(self, part: Part) -> Part:
        assert part.labels is not None
        distinct, first, inverse = np.unique(part.labels, return_index=True, return_inverse=True)
        for label, i in zip(distinct.tolist(), first.tolist(), strict=True):
            if label not in self._labels:
                raise InputError(f"{part.place(i)}: the label is {label!r}, which was not there before.")
        labels = np.array([self._labels[label] for label in distinct.tolist()])[inverse.ravel()]
        return part._replace(labels=labels)


class IterableSource(Source):
    """Of blocks (scores, labels), or of scores alone, that an iterable yields; or of a function that returns one.

    Parameters
    ----------
    blocks : iterable or callable
        An iterator can be passed over once; a list, a data loader, or a function that begins anew, as often as needed.
    title : str
    rows : int, optional
        The most rows of a block.
    """

    def __init__(
        self, blocks: Iterable[Any] | Callable[[], Iterable[Any]], title: str = "blocks", rows: int | None = None
    ) -> None:
        self._blocks = blocks
        self._first: Any = None
        first = next(self._pairs(), None)
        if first is None:
            raise InputError(f"{title} yields nothing; give blocks (scores, labels).")
        super().__init__(title, first[0].shape[-1], None, column_names(first[0]), first[1] is not None, rows)

    def parts(self) -> Iterator[Part]:
        """Each block as it is given."""
        for number, (scores, labels) in enumerate(self._pairs()):
            yield Part(scores, labels, _place(number))

    def _pairs(self) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        given = self._blocks() if callable(self._blocks) else self._blocks
        if iter(given) is given and not callable(self._blocks):
            raise InputError(
                "an iterator can be passed over only once, and several passes are needed; give a list of blocks, or a "
                "function that returns a new iterator each time."
            )
        for number, block in enumerate(given):
            if isinstance(block, tuple | list) and len(block) == 2:
                scores, labels = block
                labels = as_labels(labels, f"the labels of block {number}")
            else:
                scores, labels = block, None
            yield as_array(scores, f"block {number}", "be real numbers, or a pair (scores, labels)"), labels


class Labelled(Source):
    """The scores of a source with labels from elsewhere.

    Parameters
    ----------
    source : Source
        Its own labels, if there are any, are left alone.
    labels : array-like of shape (N,)
    name : str
        What messages call the labels.
    """

    def __init__(self, source: Source, labels: ArrayLike, name: str = "labels") -> None:
        super().__init__(source.title, source.n_classes, None, source.columns, True, source.rows)
        self._scores, self._labels, self.name = source, as_labels(labels, name), name
        if source.count() != len(self._labels):
            raise InputError(
                f"there are {len(self._labels)} labels for {source.count()} samples; give one label per sample."
            )

    def parts(self) -> Iterator[Part]:
        """Each with its share of the labels."""
        first = 0
        for part in self._scores.parts():
            yield part._replace(labels=self._labels[first : first + len(part.numbers)])
            first += len(part.numbers)

    def label_parts(self) -> Iterator[Part]:
        """All labels at once."""
        yield Part(np.empty((len(self._labels), 0)), self._labels, lambda i: f"{self.name}, row {i}")

    def state(self) -> object:
        """That of the scores."""
        return self._scores.state()


def _place(number: int) -> Callable[[int], str]:
    return lambda i: f"block {number}, row {i}"


def refused(thing: Any) -> InputError:
    """What is no source."""
    return InputError(
        f"{short(thing)} is no source of row blocks; give an array, the path of a file or folder, blocks (scores, "
        "labels), or a function that returns such blocks."
    )

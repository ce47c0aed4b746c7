"""Sources on Dask: blocks are measured where they lie, on threads, on processes, or on the cluster of a client.

Which of these is Dask's to say: the active `dask.distributed.Client`, or else threads. A worker that is lost takes
nothing with it, for Dask computes its blocks again elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from capri._checks import InputError, as_array
from capri.blocks.source import Block, Cutter, Digest, Source, added
from capri.classes import as_labels
from capri.tables import Part

T = TypeVar("T")

WINDOW = 64  # chunks that are under way at a time
AT_ONCE = 8  # tallies that are added in one task


class DaskSource(Source):
    """Of a Dask array (N, K).

    Parameters
    ----------
    scores : dask.array.Array
        In chunks of rows.
    labels : dask.array.Array or array-like of shape (N,), optional
    title : str
    rows : int, optional
        The most rows of a block, where chunks are larger.
    """

    def __init__(self, scores: Any, labels: Any = None, title: str = "the Dask array", rows: int | None = None) -> None:
        import dask.array as da

        if not isinstance(scores, da.Array) or scores.ndim != 2:
            raise InputError(
                f"scores are a {type(scores).__name__} of shape {getattr(scores, 'shape', ())}; give a Dask array "
                "(n_samples, n_classes), such as frame[columns].to_dask_array(lengths=True)."
            )
        if np.isnan(scores.shape[0]):
            scores = scores.compute_chunk_sizes()
        super().__init__(title, int(scores.shape[1]), int(scores.shape[0]), None, labels is not None, rows)
        self._scores = scores.rechunk({1: -1})
        heights = self._scores.chunks[0]
        self._starts = [0, *np.cumsum(heights).tolist()]
        self._labels = None
        if labels is not None:
            if not isinstance(labels, da.Array):
                labels = da.from_array(as_labels(labels), chunks=-1)
            labels = labels.compute_chunk_sizes() if np.isnan(labels.shape[0]) else labels
            if labels.shape != (self.n_samples,):
                raise InputError(f"{title} has {self.n_samples} rows, and labels have shape {labels.shape}.")
            self._labels = labels.rechunk((heights,))

    def parts(self) -> Iterator[Part]:
        """The chunks, some at a time."""
        for first, tasks in self._windows(_as_they_are):
            for number, (scores, labels) in enumerate(_computed(tasks), first):
                yield Part(as_array(scores, self.title, "be real numbers"), labels, _Chunk(self.title, number))

    def label_parts(self) -> Iterator[Part]:
        """All labels at once."""
        if self._labels is not None:
            labels = np.asarray(self._labels.compute())
            yield Part(np.empty((len(labels), 0)), labels, lambda i: f"{self.title}, row {i}")

    def state(self) -> object:
        """The names of what is to be computed."""
        return self._scores.name, getattr(self._labels, "name", None)

    def mapped(self, measure: Callable[[Block], T], on_block: Callable[[int], None] = lambda n: None) -> Iterator[T]:
        """As of any source; blocks are measured by the workers, some at a time."""
        self.check_state()
        self._passes[0] += 1
        digest = Digest()
        for _, tasks in self._windows(_Measured(self.cutter, measure)):
            for seen, found in _computed(tasks):
                digest += seen
                yield from found
                on_block(seen.n_samples)
        self.finish(digest)

    def reduced(
        self,
        measure: Callable[[Block], T],
        add: Callable[[T, T], T],
        on_block: Callable[[int], None] = lambda n: None,
    ) -> T:
        """As of any source; tallies are added by the workers, as a tree."""
        from dask import delayed

        self.check_state()
        self._passes[0] += 1
        measured, together = _Measured(self.cutter, measure), _Added(add)

        def windows() -> Iterator[tuple[Digest, T]]:
            for _, tasks in self._windows(measured):
                while True:
                    groups = [tasks[i : i + AT_ONCE] for i in range(0, len(tasks), AT_ONCE)]
                    tasks = [delayed(together, pure=False)(group) for group in groups]
                    if len(tasks) == 1:
                        break
                [(seen, [tally])] = _computed(tasks)
                on_block(seen.n_samples)
                yield seen, tally

        seen, tally = added(windows(), lambda one, other: (one[0] + other[0], add(one[1], other[1])))
        self.finish(seen)
        return tally

    def _windows(self, function: Callable[..., Any]) -> Iterator[tuple[int, list[Any]]]:
        """Tasks for some chunks at a time, with the number of the first of these."""
        from dask import delayed

        task = delayed(function, pure=False)
        scores = self._scores.to_delayed().ravel().tolist()
        labels = [None] * len(scores) if self._labels is None else self._labels.to_delayed().ravel().tolist()
        for first in range(0, len(scores), WINDOW):
            chunks = range(first, min(first + WINDOW, len(scores)))
            yield (
                first,
                [task(scores[c], labels[c], self._starts[c], _Chunk(self.title, c)) for c in chunks],
            )


class _Chunk:
    """What messages call the rows of a chunk."""

    def __init__(self, title: str, number: int) -> None:
        self.title, self.number = title, number

    def __call__(self, i: int) -> str:
        return f"{self.title}, chunk {self.number}, row {i}"


def _as_they_are(scores: Any, labels: Any, start: int, place: Callable[[int], str]) -> tuple[Any, Any]:
    return scores, None if labels is None else np.asarray(labels)


class _Measured:
    """Digest and measures of the blocks of a chunk."""

    def __init__(self, cutter: Cutter, measure: Callable[[Block], Any]) -> None:
        self.cutter, self.measure = cutter, measure
        self.__name__ = "_Measured"

    def __call__(self, scores: Any, labels: Any, start: int, place: Callable[[int], str]) -> tuple[Digest, list[Any]]:
        part = Part(np.asarray(scores), None if labels is None else np.asarray(labels), place)
        digest, found = Digest(), []
        for block, seen in self.cutter.cut(part, start):
            digest += seen
            found.append(self.measure(block))
        return digest, found


class _Added:
    """The sum of several such."""

    def __init__(self, add: Callable[[Any, Any], Any]) -> None:
        self.add = add
        self.__name__ = "_Added"

    def __call__(self, several: list[tuple[Digest, list[Any]]]) -> tuple[Digest, list[Any]]:
        digest = added([seen for seen, _ in several], Digest.__add__)
        return digest, [added([tally for _, found in several for tally in found], self.add)]


def _computed(tasks: list[Any]) -> tuple[Any, ...]:
    import dask

    return tuple(dask.compute(*tasks))

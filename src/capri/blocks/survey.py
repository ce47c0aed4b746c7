"""The labels of all rows: which there are, how often, and where the first of each stands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, Ints
from capri.blocks.source import Source
from capri.classes import Classes, as_labels


@dataclass(frozen=True, eq=False)
class Survey:
    """The labels of a source.

    Parameters
    ----------
    distinct : array of labels
        In the order in which they occur first.
    codes : array of shape (N,)
        Which of them each row has: four bytes for a row.
    places : list of str
        What messages call the first row with each of them.
    """

    distinct: NDArray[Any]
    codes: NDArray[np.int32]
    places: list[str]

    def classes(
        self, n_classes: int, given: Iterable[Any] | None = None, columns: tuple[Any, ...] | None = None
    ) -> Classes:
        """Which label belongs to which column, as `Classes.found` has it of labels in memory.

        Parameters
        ----------
        n_classes : int
            K.
        given : sequence of labels, optional
            The label of each column.
        columns : tuple of labels, optional
            The names of the columns.

        Returns
        -------
        Classes
        """
        try:
            return Classes.found(self.distinct, n_classes, given=given, columns=columns)
        except InputError as error:
            if given is None and columns is None and (stray := self._outside(n_classes)) is not None:
                raise InputError(f"{self.places[stray]}: {error}") from None
            raise

    def encoded(self, classes: Classes) -> Ints:
        """The labels as positions of columns, (N,).

        Parameters
        ----------
        classes : Classes
            Of the columns.

        Returns
        -------
        ndarray of shape (N,)
        """
        return self.placed(classes)[self.codes]

    def placed(self, classes: Classes) -> Ints:
        """The column of each distinct label.

        Parameters
        ----------
        classes : Classes
            Of the columns.

        Returns
        -------
        ndarray
        """
        try:
            return classes.encode(self.distinct)
        except InputError as error:
            known = set(classes.labels.tolist())
            stray = next(c for c, label in enumerate(self.distinct.tolist()) if label not in known)
            raise InputError(f"{self.places[stray]}: {error}") from None

    def _outside(self, n_classes: int) -> int | None:
        """The first label that is no column's number, where labels are numbers."""
        if self.distinct.dtype.kind not in "iuf":
            return None
        outside = np.flatnonzero((self.distinct < 0) | (self.distinct >= n_classes))
        return int(outside[0]) if len(outside) else None


def survey(source: Source) -> Survey:
    """Pass over the labels of a source.

    Parameters
    ----------
    source : Source
        With labels.

    Returns
    -------
    Survey
    """
    if not source.labelled:
        raise InputError(f"{source.title} has no labels, which are needed here; give them.")
    source.check_state()
    index: dict[Any, int] = {}
    places: list[str] = []
    codes: list[NDArray[np.int32]] = []
    for part in source.label_parts():
        if part.labels is None or len(part.labels) != len(part.numbers):
            raise InputError(f"{part.place(0)}: {len(part.numbers)} rows without a label each; give one per row.")
        labels = _labels(part.labels, part.place(0))
        distinct, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        here = distinct.tolist()
        for j in np.argsort(first, kind="stable").tolist():
            if here[j] not in index:
                index[here[j]] = len(index)
                places.append(part.place(int(first[j])))
        if len(index) > source.n_classes:
            raise _too_many(list(index), places, source.n_classes)
        codes.append(np.array([index[label] for label in here], np.int32)[inverse.ravel()])
    if not codes:
        raise InputError(f"{source.title} is empty: 0 sample(s), while a minimum of 1 is required.")
    found = np.concatenate(codes)
    source.n_samples = len(found)
    return Survey(as_labels(list(index)), found, places)


def _labels(labels: NDArray[Any], where: str) -> NDArray[Any]:
    try:
        return as_labels(labels, "the column of labels")
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _too_many(labels: list[Any], places: list[str], n_classes: int) -> InputError:
    """More labels than columns: the first that is no number of a column, or the one too many."""
    stray = n_classes
    if all(isinstance(label, int | float) for label in labels):
        stray = next((c for c, label in enumerate(labels) if not 0 <= label < n_classes or label % 1), n_classes)
    return InputError(
        f"{places[stray]}: the label is {labels[stray]!r}, and there are {n_classes} score columns, one per class; "
        f"labels must be 0 … {n_classes - 1}, or the names of {n_classes} classes."
    )

"""Tallies of decisions: how often each label met each decision, counted block by block, on every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, Ints
from capri.blocks.source import Block, Source

Rule = Callable[[Block], Ints]  # the columns (n,) that are decided for, below 0 for none


class Cells(NamedTuple):
    """Samples by label and decision, those pairs that occur.

    keys: label · K + decision, ascending. counts: how many of each.
    """

    keys: Ints
    counts: Ints

    @classmethod
    def of(cls, labels: Ints, decisions: Ints, n_classes: int) -> Cells:
        """Of some samples; those that are left undecided, below 0, are in none."""
        if len(decisions) and decisions.min() < 0:
            labels, decisions = labels[decisions >= 0], decisions[decisions >= 0]
        return cls(*np.unique(labels * n_classes + decisions, return_counts=True))

    def merged(self, other: Cells) -> Cells:
        """Of these and of others."""
        keys, inverse = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        counts = np.bincount(inverse.ravel(), np.concatenate([self.counts, other.counts]), len(keys))
        return Cells(keys, counts.astype(np.int64))

    def confusion(self, n_classes: int) -> NDArray[np.float64]:
        """As a matrix (K, K)."""
        matrix = np.zeros(n_classes**2)
        matrix[self.keys] = self.counts
        return matrix.reshape(n_classes, n_classes)


def unadjusted(block: Block) -> Ints:
    """The rule of doing nothing: the highest score decides, the lower index where there are two."""
    return np.asarray(block.scores.argmax(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Tally:
    """Measures a block: the cells of each rule.

    columns: the column of each label.
    """

    rules: Sequence[Rule]
    columns: Mapping[Any, int]
    n_classes: int

    def __call__(self, block: Block) -> list[Cells]:
        """The cells of one block."""
        labels = self.encoded(block)
        return [Cells.of(labels, rule(block), self.n_classes) for rule in self.rules]

    def encoded(self, block: Block) -> Ints:
        """The columns of the labels of one block."""
        if block.labels is None:
            raise InputError(f"{block.place(0)}: there are no labels, which are needed here.")
        distinct, first, inverse = np.unique(block.labels, return_index=True, return_inverse=True)
        for label, i in zip(distinct.tolist(), first.tolist(), strict=True):
            if label not in self.columns:
                shown = ", ".join(map(repr, list(self.columns)[:5])) + (", …" if len(self.columns) > 5 else "")
                raise InputError(
                    f"{block.place(i)}: the label is {label!r}, which is not in the class list; classes are {shown}."
                )
        return np.array([self.columns[label] for label in distinct.tolist()], np.int64)[inverse.ravel()]


def all_merged(these: list[Cells], others: list[Cells]) -> list[Cells]:
    """The cells of each rule, of two sets of samples."""
    return [one.merged(other) for one, other in zip(these, others, strict=True)]


def confusions(
    source: Source,
    rules: Sequence[Rule],
    columns: Mapping[Any, int],
    on_block: Callable[[int], None] = lambda n: None,
) -> list[NDArray[np.float64]]:
    """Confusion matrices (K, K) of several rules, in one pass over a source.

    Parameters
    ----------
    source : Source
        With labels.
    rules : sequence of callables
        From a block to the columns (n,) that are decided for.
    columns : mapping
        The column of each label.
    on_block : callable
        Told after each block how many rows there were.

    Returns
    -------
    list of arrays of shape (K, K)
    """
    k = source.n_classes
    cells = source.reduced(Tally(rules, columns, k), all_merged, on_block)
    return [found.confusion(k) for found in cells]

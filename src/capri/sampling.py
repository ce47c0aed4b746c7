"""Seeded draws within classes, so that every part of a split has its share of each class.

`divide` shuffles and cuts, `draw` picks a set. With the same seed they choose different samples. Stored results were
made with the one or the other, so neither may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from capri._checks import InputError, Ints

Seed: TypeAlias = int | np.random.Generator


def shuffled(y: ArrayLike, n_classes: int, seed: Seed) -> Iterator[Ints]:
    """Positions of the samples of each class in turn, in random order; a class is shuffled when it is asked for."""
    labels, rng = np.asarray(y), np.random.default_rng(seed)
    for k in range(n_classes):
        yield rng.permutation(np.flatnonzero(labels == k))


def divide(y: ArrayLike, sizes: ArrayLike, seed: Seed) -> tuple[Ints, Ints]:
    """Positions of sizes[k] samples of each class k, and of all others: class by class, shuffled within.

    >>> drawn, rest = divide([0, 0, 0, 0, 1, 1], sizes=[3, 1], seed=0)
    >>> len(drawn), len(rest)
    (4, 2)
    """
    cuts = np.asarray(sizes).tolist()
    members = list(zip(shuffled(y, len(cuts), seed), cuts, strict=True))
    return np.concatenate([m[:n] for m, n in members]), np.concatenate([m[n:] for m, n in members])


def halves(y: ArrayLike, n_classes: int, seed: Seed) -> tuple[Ints, Ints]:
    """Positions of two halves with equally many samples of each class; of an odd number, one more is in the second."""
    return divide(y, np.bincount(y, minlength=n_classes) // 2, seed)


def draw(y: ArrayLike, sizes: ArrayLike, seed: Seed) -> Ints:
    """Sorted positions of sizes[k] samples of each class k.

    >>> y = np.repeat([0, 1], 50)
    >>> np.bincount(y[draw(y, [50, 5], seed=0)])
    array([50,  5])
    """
    labels, rng = np.asarray(y), np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(labels == k), n, replace=False) for k, n in enumerate(np.asarray(sizes))]
    return np.sort(np.concatenate(chosen))


def share_sizes(counts: ArrayLike, share: float) -> Ints:
    """How many samples of each class make a share of it: at least one and not all, where a class has two or more.

    >>> share_sizes([10, 2, 1], 0.2)
    array([2, 1, 0])
    """
    if not 0 < share < 1:
        raise InputError(f"share is {share}; it must lie between 0 and 1, as in 0.2 for an 80/20 split.")
    n = np.asarray(counts, dtype=np.int64)
    return np.where(n > 1, np.clip(np.rint(share * n), 1, np.maximum(n - 1, 1)), 0).astype(np.int64)


def stratified_folds(y: ArrayLike, folds: int, seed: Seed) -> Ints:
    """A fold for each sample, every class spread as evenly as its size allows.

    A lone sample of its class is in none (−1): it is always fitted and never judged, so that no class goes missing.
    """
    labels, rng = np.asarray(y), np.random.default_rng(seed)
    assignment = np.full(len(labels), -1, np.int64)
    for members in shuffled(labels, int(labels.max()) + 1, rng):
        if len(members) > 1:
            assignment[members] = (np.arange(len(members)) + rng.integers(folds)) % folds
    return assignment

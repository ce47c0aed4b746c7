"""Long-tail profiles (how many samples per class) and seeded draws and splits (which ones).

    exponential   n_k = ⌊n_max · ρ^(−k/(K−1))⌋        CIFAR10-LT: 12,406 and CIFAR100-LT: 10,847 images at ρ = 100
    step          n_max for the first classes, n_max/ρ for the others

All functions return sorted positions into the labels they were given, so that a draw is a set, whatever its order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from capri._checks import InputError, Ints, check_counts, check_labels

ROUNDING = 1e-9  # 500·100^(−1) is 4.999… in floating point


def exponential_counts(n_max: int, n_classes: int, imbalance: float) -> Ints:
    """n_k = ⌊n_max · ρ^(−k/(K−1))⌋, from the most frequent class to the rarest.

    >>> exponential_counts(5000, 10, imbalance=100).sum()
    np.int64(12406)
    """
    _check_profile(n_max, n_classes, imbalance)
    exponents = np.arange(n_classes) / (n_classes - 1)
    return np.floor(n_max * float(imbalance) ** -exponents + ROUNDING).astype(np.int64)


def step_counts(n_max: int, n_classes: int, imbalance: float, share: float = 0.5) -> Ints:
    """n_max for the first `share` of the classes, ⌊n_max/ρ⌋ for the others.

    >>> step_counts(100, 4, imbalance=10)
    array([100, 100,  10,  10])
    """
    _check_profile(n_max, n_classes, imbalance)
    frequent = np.arange(n_classes) < round(share * n_classes)
    return np.where(frequent, n_max, int(n_max / imbalance + ROUNDING)).astype(np.int64)


def long_tail(y: ArrayLike, counts: ArrayLike, seed: int) -> Ints:
    """Positions of `counts[k]` samples of each class k, drawn without replacement.

    >>> y = np.repeat([0, 1], 50)
    >>> np.bincount(y[long_tail(y, [50, 5], seed=0)])
    array([50,  5])
    """
    wanted = check_counts(counts, name="counts").astype(np.int64)
    labels = check_labels(y, len(wanted))
    held = np.bincount(labels, minlength=len(wanted))
    if (wanted == 0).any():
        raise InputError(
            f"counts[{int(np.argmin(wanted))}] is 0: the class would have no training sample; use a milder profile."
        )
    if (short := np.flatnonzero(held < wanted)).size:
        k = int(short[0])
        raise InputError(
            f"class {k} has {held[k]} samples, the profile asks for {wanted[k]}. "
            "Lower data.n_max, or check that all data files are there."
        )
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(np.flatnonzero(labels == k), size=n, replace=False) for k, n in enumerate(wanted)]
    return np.sort(np.concatenate(drawn))


def split_per_class(y: ArrayLike, n_classes: int, fraction: float, seed: int) -> tuple[Ints, Ints]:
    """(train, validation) positions: `fraction` of each class goes to validation.

    A class of two samples or more gives at least one and keeps at least one; a class of one keeps it.

    >>> train, val = split_per_class([0] * 10 + [1] * 2, n_classes=2, fraction=0.2, seed=0)
    >>> len(train), len(val)
    (9, 3)
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction is {fraction}; it must lie between 0 and 1, as in 0.2 for an 80/20 split.")
    labels = check_labels(y, n_classes)
    rng = np.random.default_rng(seed)
    validation = []
    for k in range(n_classes):
        members = np.flatnonzero(labels == k)
        size = min(max(round(fraction * len(members)), 1), len(members) - 1) if len(members) > 1 else 0
        validation.append(rng.choice(members, size=size, replace=False))
    return _complement(np.sort(np.concatenate(validation)), len(labels))


def split_halves(y: ArrayLike, n_classes: int, seed: int) -> tuple[Ints, Ints]:
    """Two halves with equally many samples of each class (up to one).

    >>> first, second = split_halves(np.repeat([0, 1], 10), n_classes=2, seed=0)
    >>> len(first), len(second)
    (10, 10)
    """
    labels = check_labels(y, n_classes)
    rng = np.random.default_rng(seed)
    first = []
    for k in range(n_classes):
        members = rng.permutation(np.flatnonzero(labels == k))
        first.append(members[: len(members) // 2])
    other, half = _complement(np.sort(np.concatenate(first)), len(labels))
    return half, other


def balanced_holdout(y: ArrayLike, n_classes: int, per_class: int, seed: int) -> tuple[Ints, Ints]:
    """(rest, held out): `per_class` samples of each class are held out."""
    labels = check_labels(y, n_classes)
    held = np.bincount(labels, minlength=n_classes)
    if per_class < 1 or held.min() <= per_class:
        k = int(held.argmin())
        raise InputError(
            f"per_class is {per_class}, but class {k} has only {held[k]} samples and must keep one; "
            f"choose 1 … {held[k] - 1}."
        )
    return _complement(long_tail(labels, np.full(n_classes, per_class), seed), len(labels))


def _complement(chosen: Ints, n: int) -> tuple[Ints, Ints]:
    return np.setdiff1d(np.arange(n), chosen), chosen


def _check_profile(n_max: int, n_classes: int, imbalance: float) -> None:
    if n_classes < 2:
        raise InputError(f"n_classes is {n_classes}; a profile needs at least 2.")
    if n_max < 1:
        raise InputError(f"n_max is {n_max}; the most frequent class needs at least 1 sample.")
    if not imbalance >= 1:
        raise InputError(f"imbalance is {imbalance}; ρ = n_max/n_min must be at least 1.")

"""Long-tail profiles (how many samples per class) and seeded draws (which ones).

exponential   n_k = ⌊n_max · ρ^(−k/(K−1))⌋        CIFAR10-LT: 12,406 and CIFAR100-LT: 10,847 images at ρ = 100
step          n_max for the first classes, n_max/ρ for the others
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from capri._checks import InputError, Ints, check_counts, check_labels
from capri.sampling import draw

ROUNDING = 1e-9  # 500·100^(−1) is 4.999… in floating point


def exponential_counts(n_max: int, n_classes: int, imbalance: float) -> Ints:
    """n_k = ⌊n_max · ρ^(−k/(K−1))⌋, from the most frequent class to the rarest.

    Parameters
    ----------
    n_max : int
        Samples of the most frequent class.
    n_classes : int
        K, at least 2.
    imbalance : float
        ρ = n_max/n_min, at least 1.

    Returns
    -------
    ndarray of shape (n_classes,)
        Samples per class.

    Examples
    --------
    >>> exponential_counts(5000, 10, imbalance=100).sum()
    np.int64(12406)
    """
    _check_profile(n_max, n_classes, imbalance)
    exponents = np.arange(n_classes) / (n_classes - 1)
    return np.floor(n_max * float(imbalance) ** -exponents + ROUNDING).astype(np.int64)


def step_counts(n_max: int, n_classes: int, imbalance: float, share: float = 0.5) -> Ints:
    """n_max for the first classes, ⌊n_max/ρ⌋ for the others.

    Parameters
    ----------
    n_max, n_classes, imbalance
        As in `exponential_counts`.
    share : float
        Which share of the classes is frequent.

    Returns
    -------
    ndarray of shape (n_classes,)

    Examples
    --------
    >>> step_counts(100, 4, imbalance=10)
    array([100, 100,  10,  10])
    """
    _check_profile(n_max, n_classes, imbalance)
    frequent = np.arange(n_classes) < round(share * n_classes)
    return np.where(frequent, n_max, int(n_max / imbalance + ROUNDING)).astype(np.int64)


def long_tail(y: ArrayLike, counts: ArrayLike, seed: int) -> Ints:
    """Draw a long tail: `counts[k]` samples of each class k, without replacement.

    Parameters
    ----------
    y : array-like of shape (n,)
        Classes, numbered from 0.
    counts : array-like of shape (K,)
        Samples wanted per class, at least 1 each.
    seed : int
        The same seed gives the same draw.

    Returns
    -------
    ndarray
        Sorted positions in `y`.

    Raises
    ------
    InputError
        Where a class has fewer samples than wanted.

    Examples
    --------
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
    return draw(labels, wanted, seed)


def _check_profile(n_max: int, n_classes: int, imbalance: float) -> None:
    if n_classes < 2:
        raise InputError(f"n_classes is {n_classes}; a profile needs at least 2.")
    if n_max < 1:
        raise InputError(f"n_max is {n_max}; the most frequent class needs at least 1 sample.")
    if not imbalance >= 1:
        raise InputError(f"imbalance is {imbalance}; ρ = n_max/n_min must be at least 1.")

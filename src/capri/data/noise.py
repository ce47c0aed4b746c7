"""Label noise: class k's labels are selected at rate r_k ~ U(0, ½) and redrawn uniformly over the classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, check_labels, check_vector


def draw_noise_rates(n_classes: int, highest: float, seed: int) -> NDArray[np.float64]:
    """A rate of label noise for each class: r_k ~ U(0, highest).

    Parameters
    ----------
    n_classes : int
        K.
    highest : float
        The highest rate, in [0, 1]; the paper has 0.5.
    seed : int
        The same seed gives the same rates.

    Returns
    -------
    ndarray of shape (n_classes,)
    """
    if not 0 <= highest <= 1:
        raise InputError(f"highest is {highest}; a noise rate lies in [0, 1].")
    return np.random.default_rng(seed).uniform(0, highest, n_classes)


def add_label_noise(y: ArrayLike, rates: ArrayLike, seed: int, *, exclude_true: bool = False) -> Ints:
    """Labels with noise: each label is selected with the rate of its class, and drawn again from all K classes.

    Parameters
    ----------
    y : array-like of shape (n,)
        Clean classes, numbered 0 … K − 1.
    rates : array-like of shape (K,)
        r_k, in [0, 1].
    seed : int
        The same seed gives the same noise.
    exclude_true : bool
        Draw among the other K − 1 classes; otherwise the new label may be the old one.

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> add_label_noise([0, 0, 0, 1], rates=[0.0, 1.0], seed=0, exclude_true=True)
    array([0, 0, 0, 0])
    """
    r = check_vector(rates, "rates", low=0, high=1)
    clean = check_labels(y, len(r))
    rng = np.random.default_rng(seed)
    selected = rng.random(len(clean)) < r[clean]
    if exclude_true:
        redrawn = (clean + rng.integers(1, len(r), len(clean))) % len(r)
    else:
        redrawn = rng.integers(0, len(r), len(clean))
    return np.where(selected, redrawn, clean)


def noise_attribute(rates: ArrayLike, *, exclude_true: bool = False) -> NDArray[np.float64]:
    """The attribute `noise` that given rates make: P(y ≠ y_clean | y_clean = k).

    Parameters
    ----------
    rates : array-like of shape (K,)
        r_k, as in `add_label_noise`.
    exclude_true : bool
        As in `add_label_noise`.

    Returns
    -------
    ndarray of shape (K,)
        r_k where the true label is excluded, r_k (1 − 1/K) where it may be drawn again.

    Examples
    --------
    >>> noise_attribute([0.5, 0.1])
    array([0.25, 0.05])
    """
    r = check_vector(rates, "rates", low=0, high=1)
    return r if exclude_true else r * (1 - 1 / len(r))

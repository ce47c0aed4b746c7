"""Label noise: class k's labels are selected at rate r_k ~ U(0, ½) and redrawn uniformly over the classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, check_labels, check_vector


def draw_noise_rates(n_classes: int, highest: float, seed: int) -> NDArray[np.float64]:
    """r_k ~ U(0, highest), (K,); the paper has highest = 0.5."""
    if not 0 <= highest <= 1:
        raise InputError(f"highest is {highest}; a noise rate lies in [0, 1].")
    return np.random.default_rng(seed).uniform(0, highest, n_classes)


def add_label_noise(y: ArrayLike, rates: ArrayLike, seed: int, *, exclude_true: bool = False) -> Ints:
    """Labels with noise, (n,): each is selected with its class's rate and redrawn over all K classes.

    The new label may be the old one; `exclude_true` draws among the other K − 1.

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
    """P(y ≠ y_clean | y_clean = k): r_k (1 − 1/K) where the true label may be redrawn, r_k where not.

    >>> noise_attribute([0.5, 0.1])
    array([0.25, 0.05])
    """
    r = check_vector(rates, "rates", low=0, high=1)
    return r if exclude_true else r * (1 - 1 / len(r))

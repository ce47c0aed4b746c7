"""The finite-size check of `capri_paper.theory.gmm`: draw the mixture, fit the hard-margin SVM, measure the slab.

Only δ = 1 is fitted, because δ shifts the intercept and nothing else. No test set is drawn either: given (w, b), the
class errors of a Gaussian mixture are exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from capri import InputError
from capri_paper.theory._numerics import Array
from capri_paper.theory.gmm import check_settings
from capri_paper.theory.slab import Slab

_VIOLATION = 1e-3  # a fit that leaves a sample this far inside its margin is no hard margin


class Sample(NamedTuple):
    """A draw of the mixture whose mean is μ = R e₁: x of shape (n, d), y in {−1, +1} of shape (n,)."""

    x: Array
    y: NDArray[np.int64]


class Mean(NamedTuple):
    """A mean over seeds and its standard error."""

    value: float
    error: float


def draw(pi: float, s_plus: float, s_minus: float, R: float, dbar: float, *, n: int = 400, seed: int = 0) -> Sample:
    """n samples in dimension round(d̄ n). The class counts are fixed at their expectation, which takes noise out.

    Under one seed, settings of another π or d̄ draw afresh; those of another signal or noise share their Gaussians.
    """
    check_settings(pi, s_plus, s_minus, R, dbar)
    n_plus, d = round(pi * n), round(dbar * n)
    if not 0 < n_plus < n or d < 1:
        raise InputError(
            f"n is {n}: {n_plus} samples of class +1 and {n - n_plus} of class −1 in dimension {d}. "
            "Raise n until both classes and the dimension are at least 1."
        )
    rng = np.random.default_rng([seed, n_plus, d])
    y = np.repeat([1, -1], [n_plus, n - n_plus])
    x = rng.standard_normal((n, d)) * np.where(y > 0, s_plus, s_minus)[:, None]
    x[:, 0] += y * R
    return Sample(x, y)


def hard_margin_svm(sample: Sample) -> tuple[Array, float] | None:
    """(w, b) of min ‖w‖ subject to y (x·w + b) ≥ 1, or None where the sample is not separable."""
    gram = sample.x @ sample.x.T
    svm = SVC(C=1e10, kernel="precomputed", tol=1e-6, max_iter=1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # not separable: the check below says so
        svm.fit(gram, sample.y)
    w = sample.x[svm.support_].T @ svm.dual_coef_[0]
    b = float(svm.intercept_[0])
    separated = np.min(sample.y * (sample.x @ w + b)) > 1 - _VIOLATION
    return (w, b) if separated else None


def measure(
    pi: float,
    s_plus: float,
    s_minus: float,
    R: float,
    dbar: float,
    *,
    n: int = 400,
    seeds: Iterable[int] = range(5),
    weights: tuple[float, float] = (1.0, 1.0),
) -> Slab:
    """The slab of the fitted SVM, one entry per seed; NaN where the draw was not separable.

    >>> from capri_paper.theory import gmm
    >>> setting = dict(pi=0.2, s_plus=1.0, s_minus=1.0, R=2.0, dbar=1.0)
    >>> measured, limit = measure(**setting, n=200), gmm.solve(**setting)
    >>> float(abs(measured.errors(2).risk.mean() - limit.errors(2).risk).round(2))
    0.0
    """
    fits = [_slab_of(hard_margin_svm(draw(pi, s_plus, s_minus, R, dbar, n=n, seed=seed))) for seed in seeds]
    signal, offset, margin = np.array(fits).T
    weight_plus, weight_minus = np.divide(weights, sum(weights))
    return Slab(R * signal, offset, margin, s_plus, s_minus, weight_plus, weight_minus)


def _slab_of(fit: tuple[Array, float] | None) -> tuple[float, float, float]:
    """cos(w, μ), b/‖w‖ and 1/‖w‖; μ points along the first axis."""
    if fit is None:
        return np.nan, np.nan, np.nan
    w, b = fit
    norm = float(np.linalg.norm(w))
    return float(w[0]) / norm, b / norm, 1 / norm


def mean(values: Array) -> Mean:
    """Mean over seeds with its standard error."""
    if len(values) < 2:
        raise InputError(f"values has {len(values)} entry; a standard error takes two: give two seeds or more.")
    return Mean(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))

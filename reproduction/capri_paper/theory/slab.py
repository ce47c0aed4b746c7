"""A linear classifier on the two-variance mixture: its class errors at every margin ratio δ, and the best δ.

δ moves the threshold and nothing else (``docs/theory.md``), so three numbers describe the classifier at every δ.
`gmm` computes them in the limit, `simulation` measures them; what follows is shared.

======  ===========================================================================================================
(E5)    Err₊ = Q((A + β + κ m)/s₊),  Err₋ = Q((A − β − κ m)/s₋),  κ = (δ−1)/(δ+1)
(E6)    t* = [A²(s₊²−s₋²) − 2s₊²s₋²L] / [A(s₊²+s₋²) + 2s₊s₋√(A² + (s₊²−s₋²)L/2)],  L = log(s₊w₋ / s₋w₊)
(E7)    κ* = (t* − β)/m,  δ* = (1 + κ*)/(1 − κ*)
======  ===========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from capri import InputError
from capri_paper.theory._numerics import Array, Bools


class ClassErrors(NamedTuple):
    """Error of each class, and their weighted mean `risk`: the balanced error, where the weights are equal."""

    plus: Array
    minus: Array
    risk: Array


@dataclass(frozen=True)
class Slab:
    """A linear classifier (w, b) of unit functional margin, and the slab |x·w + b| ≤ 1 it leaves free.

    `signal` A = w·μ/‖w‖, `offset` β = b/‖w‖ and `margin` m = 1/‖w‖ belong to δ = 1. Another δ moves the threshold to
    β + κ m: from δ = 0 to ∞ it sweeps the slab from the support plane of class +1 to that of class −1.
    The fields broadcast against each other; weights sum to 1. NaN stands for "no classifier".
    """

    signal: Array
    offset: Array
    margin: Array
    s_plus: Array | float
    s_minus: Array | float
    weight_plus: Array | float = 0.5
    weight_minus: Array | float = 0.5

    def errors(self, delta: ArrayLike) -> ClassErrors:
        """Class errors at margin ratio `delta` ≥ 0; inf is the limit."""
        ratio = np.asarray(delta, dtype=np.float64)
        if np.any(ratio < 0):
            raise InputError(f"delta is {ratio.min():g}; a ratio of margins is 0 or more. For κ, call errors_at.")
        return self.errors_at(kappa_of(ratio))

    def errors_at(self, kappa: ArrayLike) -> ClassErrors:
        """Class errors at κ = (δ−1)/(δ+1), (E5). The slab is −1 ≤ κ ≤ 1."""
        threshold = self.offset + np.asarray(kappa) * self.margin
        plus = ndtr(-(self.signal + threshold) / self.s_plus)
        minus = ndtr(-(self.signal - threshold) / self.s_minus)
        return ClassErrors(plus, minus, self.weight_plus * plus + self.weight_minus * minus)

    @property
    def free_kappa(self) -> Array:
        """κ of the best threshold, wherever it lies; no δ reaches a κ beyond ±1. NaN where no threshold is best."""
        best = best_threshold(self.signal, self.s_plus, self.s_minus, self.weight_plus, self.weight_minus)
        return (best - self.offset) / self.margin

    @property
    def best_kappa(self) -> Array:
        """κ in [−1, 1] of least error. NaN where every κ is equally good, or where there is no classifier.

        As a function of the threshold, the error has at most one minimum (`free_kappa`) and one maximum. So the least
        error lies at the minimum, or else at an end of the slab: the nearer one, unless the maximum lies between.
        """
        free = self.free_kappa
        best = np.clip(np.where(np.isnan(free), 1.0, free), -1.0, 1.0)
        for end in (-1.0, 1.0):
            # The factor keeps rounding from taking an end for better than a minimum a hair away from it.
            better = self.errors_at(end).risk < self.errors_at(best).risk * (1 - 1e-9)
            best = np.where(better, end, best)
        return np.where(np.isnan(self.margin) | self.indifferent, np.nan, best)[()]

    @property
    def indifferent(self) -> Bools:
        """Whether the error is the same at every δ: no signal, equal noise, equal weights."""
        return (self.signal == 0) & (self.s_plus == self.s_minus) & (self.weight_plus == self.weight_minus)

    @property
    def hopeless(self) -> Bools:
        """Whether no δ beats the better constant classifier (whose error is 1/2, where the weights are equal)."""
        least = self.errors_at(np.where(self.indifferent, 0.0, self.best_kappa)).risk
        return least >= np.minimum(self.weight_plus, self.weight_minus) * (1 - 1e-12)


def best_threshold(
    signal: Array,
    s_plus: Array | float,
    s_minus: Array | float,
    weight_plus: Array | float = 0.5,
    weight_minus: Array | float = 0.5,
) -> Array:
    """The t of least w₊ Q((A+t)/s₊) + w₋ Q((A−t)/s₋), (E6); NaN or ±inf where the error has no minimum.

    Setting the derivative to zero leaves a quadratic in t. This is its root that is a minimum, in the form whose
    denominator does not cancel: equal noise and equal weights give exactly 0.
    """
    v_plus, v_minus = s_plus**2, s_minus**2
    log_ratio = np.log(s_plus / s_minus) + np.log(weight_minus / np.asarray(weight_plus))
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(signal**2 + (v_plus - v_minus) * log_ratio / 2)
        return (signal**2 * (v_plus - v_minus) - 2 * v_plus * v_minus * log_ratio) / (
            signal * (v_plus + v_minus) + 2 * s_plus * s_minus * root
        )


def kappa_of(delta: ArrayLike) -> Array:
    """κ = (δ−1)/(δ+1), which maps δ in [0, ∞] to [−1, 1].

    >>> kappa_of([0, 1, 3, np.inf])
    array([-1. , 0. , 0.5, 1. ])
    """
    return 1 - 2 / (1 + np.asarray(delta, dtype=np.float64))


def delta_of(kappa: ArrayLike) -> Array:
    """δ = (1+κ)/(1−κ), the inverse of `kappa_of`; κ ≥ 1 gives inf and κ ≤ −1 gives 0."""
    inside = np.clip(np.asarray(kappa, dtype=np.float64), -1.0, 1.0)
    with np.errstate(divide="ignore"):
        return (1 + inside) / (1 - inside)

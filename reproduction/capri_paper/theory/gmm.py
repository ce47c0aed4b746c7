"""The cost-sensitive SVM on a two-variance Gaussian mixture, exactly, in the limit of high dimension.

Model: y = +1 with probability π, else −1; x | y ~ N(y μ, s_y² I_d), ‖μ‖ = R. **s₊ and s₋ are standard deviations.**
Classifier (CS-SVM): min ‖w‖ subject to x·w + b ≥ δ where y = +1, and −(x·w + b) ≥ 1 where y = −1.
Limit: n, d → ∞ with d/n → d̄. ``docs/theory.md`` derives what is solved here for δ = 1; `slab` does the
rest. With G ~ N(0, 1), ψ₁(h) = E(G+h)₊ and ψ₂(h) = E(G+h)₊²:

======  ============================================================================
(E1)    π ψ₂(h₊) + (1−π) ψ₂(h₋) = d̄ (1 − r²)
(E2)    π ψ₁(h₊)/s₊ = (1−π) ψ₁(h₋)/s₋ =: eᵘ
(E3)    d̄ r = 2 R eᵘ
(E4)    separable iff d̄ > d̄_sep, the share π Φ(h₊) + (1−π) Φ(h₋) of support vectors
        where the margin m = R r + (s₊h₊ + s₋h₋)/2 vanishes
======  ============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from capri import InputError
from capri_paper.theory._numerics import Array, Bools, inverse_log_psi1, log_psi1, rising_root
from capri_paper.theory.slab import ClassErrors, Slab, delta_of


@dataclass(frozen=True)
class Solution:
    """The limit of the CS-SVM, elementwise over the settings. NaN where the data are not separable.

    slab
        The classifier at δ = 1 with its margin slab; the errors at every δ follow from it.
    separable, dbar_sep
        Whether a hard margin exists, and the d̄ above which it does (E4).
    h_plus, h_minus, cosine, support
        The root of (E1)–(E3): standardised thresholds, cosine of w and μ; and the share of support vectors.
    kappa_star, delta_star
        The margin ratio of least error, as κ* in [−1, 1] and as δ* = (1+κ*)/(1−κ*).
    status
        The case: ``finite``; ``infinite`` or ``zero``, where the error falls all the way to an end of the slab and no δ
        attains its infimum; ``undefined``, where δ does not matter; ``not separable``.
    hopeless
        No δ beats the better of the two constant classifiers (error 1/2 where the weights are equal).
    """

    slab: Slab
    separable: Bools
    dbar_sep: Array
    h_plus: Array
    h_minus: Array
    cosine: Array
    support: Array
    kappa_star: Array
    delta_star: Array
    status: NDArray[np.str_]
    hopeless: Bools

    @property
    def q(self) -> Array:
        """Limit of ‖w‖ at δ = 1."""
        return 1 / self.slab.margin

    @property
    def rho(self) -> Array:
        """Limit of w·μ/‖μ‖ at δ = 1."""
        return self.cosine / self.slab.margin

    @property
    def b(self) -> Array:
        """Limit of the intercept at δ = 1."""
        return self.slab.offset / self.slab.margin

    def errors(self, delta: ArrayLike) -> ClassErrors:
        """Class errors at any δ ≥ 0, which broadcasts against the settings."""
        return self.slab.errors(delta)


def solve(
    pi: ArrayLike,
    s_plus: ArrayLike,
    s_minus: ArrayLike,
    R: ArrayLike,
    dbar: ArrayLike,
    *,
    weights: tuple[ArrayLike, ArrayLike] = (1.0, 1.0),
) -> Solution:
    """The asymptotic CS-SVM, for settings that broadcast against each other.

    pi, s_plus, s_minus, R, dbar
        Share of the class y = +1, standard deviation of each class, ‖μ‖, and d/n.
    weights
        (w₊, w₋) of the error w₊ Err₊ + w₋ Err₋ that δ* minimises, scaled to sum to 1. Equal: the balanced error.

    >>> minority = solve(pi=0.1, s_plus=[0.5**0.5, 1.0, 2.0**0.5], s_minus=1, R=2, dbar=1)
    >>> minority.delta_star.round(3)  # the noisier the minority, the more margin it is best given
    array([1.867, 3.726, 7.523])
    >>> minority.errors(delta=1).risk.round(3), minority.errors(minority.delta_star).risk.round(3)
    (array([0.072, 0.205, 0.333]), array([0.041, 0.09 , 0.165]))
    """
    settings = check_settings(pi, s_plus, s_minus, R, dbar)
    shares = _check_weights(weights, settings)
    h_plus, h_minus, cosine = _stationary_point(settings)
    signal = settings.R * cosine
    margin = signal + (settings.s_plus * h_plus + settings.s_minus * h_minus) / 2
    offset = (settings.s_minus * h_minus - settings.s_plus * h_plus) / 2
    separable = margin > 0

    def where_separable(values: Array) -> Array:
        return np.where(separable, values, np.nan)[()]

    slab = Slab(
        signal=where_separable(signal),
        offset=where_separable(offset),
        margin=where_separable(margin),
        s_plus=settings.s_plus,
        s_minus=settings.s_minus,
        weight_plus=shares[0],
        weight_minus=shares[1],
    )
    return Solution(
        slab=slab,
        separable=separable,
        dbar_sep=_separability_threshold(settings),
        h_plus=where_separable(h_plus),
        h_minus=where_separable(h_minus),
        cosine=where_separable(cosine),
        support=where_separable(_support(settings, h_plus, h_minus)),
        kappa_star=slab.best_kappa,
        delta_star=delta_of(slab.best_kappa),
        status=_status(slab),
        hopeless=slab.hopeless,
    )


# --------------------------------------------------------------------------------------------------------------------
# The root of the equations


class Settings(NamedTuple):
    """Settings of the mixture, checked and broadcast to one shape."""

    pi: Array
    s_plus: Array
    s_minus: Array
    R: Array
    dbar: Array


def _thresholds(settings: Settings, u: Array) -> tuple[Array, Array, Array, Array]:
    """h₊ and h₋ of (E2) at the common value eᵘ, and the slopes λ = Φ/ψ₁ there."""
    h_plus = inverse_log_psi1(u + np.log(settings.s_plus / settings.pi))
    h_minus = inverse_log_psi1(u + np.log(settings.s_minus / (1 - settings.pi)))
    return h_plus, h_minus, log_psi1(h_plus)[1], log_psi1(h_minus)[1]


def _stationary_point(settings: Settings) -> tuple[Array, Array, Array]:
    """h₊, h₋ and r = cos(w, μ) that solve (E1)–(E3).

    (E2) and (E3) give h₊, h₋ and r from u. Since ψ₂ = (h + λ) ψ₁, (E1) becomes
    eᵘ [s₊(h₊+λ₊) + s₋(h₋+λ₋)] + 4R²e²ᵘ/d̄ = d̄. Its left side has a logarithm of slope between 1 and 2 in u, convex: from
    the right, Newton's steps descend to the root, at least halving the distance each time.
    """
    _, s_plus, s_minus, R, dbar = settings

    def excess(u: Array) -> tuple[Array, Array]:
        h_plus, h_minus, slope_plus, slope_minus = _thresholds(settings, u)
        signal = 4 * R**2 * np.exp(u) / dbar
        size = s_plus * (h_plus + slope_plus) + s_minus * (h_minus + slope_minus) + signal
        return u + np.log(size / dbar), (2 * s_plus / slope_plus + 2 * s_minus / slope_minus + 2 * signal) / size

    u = rising_root(excess, start=_above_the_root(settings))
    h_plus, h_minus, *_ = _thresholds(settings, u)
    return h_plus, h_minus, 2 * R * np.exp(u) / dbar


def _above_the_root(settings: Settings) -> Array:
    """A u that is not below the root: ψ₂ ≥ ψ₁² in (E1)."""
    pi, s_plus, s_minus, R, dbar = settings
    return np.log(dbar / (s_plus**2 / pi + s_minus**2 / (1 - pi) + 4 * R**2 / dbar)) / 2


def _separability_threshold(settings: Settings) -> Array:
    """d̄ at which the margin of (E1)–(E3) is zero, (E4).

    With m = 0, the signal is A = −(s₊h₊ + s₋h₋)/2, and eliminating d̄ leaves A (s₊λ₊ + s₋λ₋) = 2R²: both factors fall
    as u grows. At A ≥ R the left side is the larger one, because λ ≥ −h; at A ≤ 0 it is the smaller one.
    """
    pi, s_plus, s_minus, R, _ = settings

    def excess(u: Array) -> tuple[Array, Array]:
        h_plus, h_minus, slope_plus, slope_minus = _thresholds(settings, u)
        signal = -(s_plus * h_plus + s_minus * h_minus) / 2
        size = s_plus * slope_plus + s_minus * slope_minus
        d_signal = -(s_plus / slope_plus + s_minus / slope_minus) / 2
        d_size = s_plus * _d_slope(h_plus, slope_plus) + s_minus * _d_slope(h_minus, slope_minus)
        return 2 * R**2 - signal * size, -(d_signal * size + signal * d_size)

    def u_of(plane: Array) -> tuple[Array, Array]:
        """The u at which s₊h₊, and the u at which s₋h₋, equals `plane`."""
        return (
            log_psi1(plane / s_plus)[0] + np.log(pi / s_plus),
            log_psi1(plane / s_minus)[0] + np.log((1 - pi) / s_minus),
        )

    low, high = np.minimum(*u_of(-R)), np.maximum(*u_of(0 * R))
    h_plus, h_minus, *_ = _thresholds(settings, rising_root(excess, high, low, high))
    return _support(settings, h_plus, h_minus)


def _d_slope(h: Array, slope: Array) -> Array:
    """dλ/du on (E2), where dh/du = 1/λ and λ' = 1 − hλ − λ²."""
    return 1 / slope - h - slope


def _support(settings: Settings, h_plus: Array, h_minus: Array) -> Array:
    """The share of samples on their margin: those with G + h > 0."""
    return settings.pi * ndtr(h_plus) + (1 - settings.pi) * ndtr(h_minus)


def _status(slab: Slab) -> NDArray[np.str_]:
    cases = {
        "not separable": np.isnan(slab.margin),
        "undefined": slab.indifferent,
        "infinite": slab.best_kappa == 1,
        "zero": slab.best_kappa == -1,
    }
    return np.select(list(cases.values()), list(cases), default="finite")[()]


# --------------------------------------------------------------------------------------------------------------------
# Checks

_LENGTH = "{} from {:g} to 1e4; rescale R, s_plus and s_minus together: only their ratios matter"
_RATIO = "{} from 1e-10 to 1e10"
# Bounds within which the solver is tested, corners included.
_DOMAIN = {
    "pi": (1e-10, 1 - 1e-10, "a probability strictly between 0 and 1 (1e-10 away from both)"),
    "s_plus": (1e-4, 1e4, _LENGTH.format("a standard deviation", 1e-4)),
    "s_minus": (1e-4, 1e4, _LENGTH.format("a standard deviation", 1e-4)),
    "R": (0.0, 1e4, _LENGTH.format("a norm", 0)),
    "dbar": (1e-10, 1e10, _RATIO.format("a ratio d/n")),
    "weights": (1e-10, 1e10, _RATIO.format("a positive weight")),
}


def check_settings(pi: ArrayLike, s_plus: ArrayLike, s_minus: ArrayLike, R: ArrayLike, dbar: ArrayLike) -> Settings:
    """The settings as floats of one shape, or an `InputError` that says which value is unusable."""
    given = {"pi": pi, "s_plus": s_plus, "s_minus": s_minus, "R": R, "dbar": dbar}
    arrays = {name: _check_numbers(name, value) for name, value in given.items()}
    try:
        return Settings(*np.broadcast_arrays(*arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"shapes do not broadcast: {shapes}; add axes, as in dbar[:, None].") from None


def _check_numbers(name: str, value: ArrayLike) -> Array:
    """Numbers within the domain of the argument `name`."""
    low, high, expected = _DOMAIN[name]
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; give numbers: {expected}.") from None
    outside = ~((low <= array) & (array <= high))  # True for NaN
    if outside.any():
        raise InputError(f"{name} is {array[outside][0]:g}; it must be {expected}.")
    return array


def _check_weights(weights: tuple[ArrayLike, ArrayLike], settings: Settings) -> tuple[Array, Array]:
    """w₊ and w₋ scaled to sum to 1, of the shape of the settings."""
    if not isinstance(weights, tuple | list) or len(weights) != 2:
        raise InputError(f"weights is {weights!r}; give two: (w_plus, w_minus).")
    plus, minus = (_check_numbers("weights", weight) for weight in weights)
    shape = settings.pi.shape
    try:
        return np.broadcast_to(plus / (plus + minus), shape), np.broadcast_to(minus / (plus + minus), shape)
    except ValueError:
        raise InputError(
            f"weights of shapes {plus.shape} and {minus.shape} do not broadcast to the settings' {shape}; "
            "give scalars, or one weight per setting."
        ) from None

"""Numerics under the mixture formulas: moments of the rectified Gaussian, and roots found array-wise.

For G ~ N(0, 1), the moments ψ₁(h) = E(G + h)₊ and ψ₂(h) = E(G + h)₊² carry the whole theory. Both underflow for h far
below zero, so the code works with log ψ₁ and its slope λ = Φ/ψ₁ alone; ψ₂ = (h + λ) ψ₁ follows from them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_FAR = 100.0  # beyond it 1 − x·Mills(x) loses digits to cancellation, and four terms of its series are exact
_MAX_STEPS = 200


def log_psi1(h: Array) -> tuple[Array, Array]:
    """log ψ₁(h) for ψ₁(h) = h Φ(h) + φ(h), and its slope λ(h) = Φ(h)/ψ₁(h). ψ₁ is log-concave: λ falls.

    >>> value, slope = log_psi1(np.array([0.0, -40.0]))
    >>> value.round(6), slope.round(6)
    (array([  -0.918939, -808.298568]), array([ 1.253314, 40.049907]))
    """
    x, y = np.maximum(-h, 0.0), np.maximum(h, 0.0)
    mills, tail = _mills(x)
    # exp(−y²/2) is 0 from y = 39 on; the bound keeps y² from overflowing.
    right = y * ndtr(y) + _phi(np.minimum(y, 40.0))
    value = np.where(h < 0, np.log(tail) - x * x / 2 - np.log(2 * np.pi) / 2, np.log(right))
    return value, np.where(h < 0, mills / tail, ndtr(y) / right)


def inverse_log_psi1(value: Array) -> Array:
    """The h with log ψ₁(h) = value.

    The start lies below the root and log ψ₁ is concave, so Newton's steps climb to the root and never pass it.
    """
    start = np.where(value > 0, np.expm1(np.maximum(value, 0.0)), -np.sqrt(np.maximum(-2 * value, 0.0)))

    def excess(h: Array) -> tuple[Array, Array]:
        at, slope = log_psi1(h)
        return at - value, slope

    return rising_root(excess, start)


def rising_root(
    function: Callable[[Array], tuple[Array, Array]],
    start: Array,
    low: Array | float = -1e300,
    high: Array | float = 1e300,
) -> Array:
    """Root of an increasing function, elementwise over arrays.

    Newton's step, or the middle of the bracket [low, high] where the step would leave it; the bracket shrinks with
    every value seen. `function` returns values and slopes, of the shape of `start`.
    """
    x = start
    for _ in range(_MAX_STEPS):
        value, slope = function(x)
        low, high = np.where(value <= 0, x, low), np.where(value >= 0, x, high)
        newton = x - value / slope
        before, x = x, np.where((low <= newton) & (newton <= high), newton, low + (high - low) / 2)
        # Newton's error is about the square of its last step: well below rounding when the step is 1e-11.
        if np.all(np.abs(x - before) <= 1e-11 * np.maximum(1.0, np.abs(x))):
            return x
    raise ArithmeticError(
        f"no root found in {_MAX_STEPS} steps; this is a defect of capri: please report the settings."
    )


def _phi(x: Array) -> Array:
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _mills(x: Array) -> tuple[Array, Array]:
    """Mills' ratio M(x) = Φ(−x)/φ(x) for x ≥ 0, and 1 − x M(x) = ψ₁(−x)/φ(x)."""
    near = np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2))
    z = 1 / np.maximum(x, _FAR) ** 2
    far = z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z)))
    tail = np.where(x < _FAR, 1 - x * np.where(x < _FAR, near, 0.0), far)
    return near, tail

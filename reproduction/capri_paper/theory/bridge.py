"""From the VS loss to the cost-sensitive SVM: on separable data, gradient descent finds the margin ratio δ = Δ₋/Δ₊.

The binary VS loss of a linear score f = x·w is ω_y log(1 + exp(l_y − Δ_y y f)): the Δ that counts is that of the
sample's own class. Its gradient descent tends in direction to min ‖w‖ subject to Δ_y y x·w ≥ 1, that is y x·w ≥ 1/Δ_y:
a class with small Δ gets a large margin. Scaled so that class −1 has margin 1, class +1 has δ = Δ₋/Δ₊. The paper's
appendix prints the inverse. There is no intercept here: descent would add b² to the ‖w‖² it minimises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from scipy.special import log_expit

from capri import InputError
from capri_paper.theory._numerics import Array


class Pair(NamedTuple):
    """One number for each class."""

    plus: float
    minus: float


EQUAL, NO_OFFSET = Pair(1.0, 1.0), Pair(0.0, 0.0)


def margin_ratio_of_vs(multiplier: Pair) -> float:
    """δ of the CS-SVM that the VS loss with multipliers Δ tends to: δ = Δ₋/Δ₊.

    >>> margin_ratio_of_vs(Pair(plus=0.5, minus=1.0))
    2.0
    """
    return multiplier.minus / multiplier.plus


def margin_ratio(w: Array, x: Array, y: NDArray[np.int64]) -> float:
    """The least margin of class +1 over the least margin of class −1, under the score x·w."""
    margins = y * (x @ w)
    return float(margins[y > 0].min() / margins[y < 0].min())


def vs_descent(
    x: ArrayLike,
    y: ArrayLike,
    multiplier: Pair,
    *,
    offset: Pair = NO_OFFSET,
    weight: Pair = EQUAL,
    steps: int = 20_000,
) -> Array:
    """w after gradient descent from 0 on the mean VS loss; x of shape (n, d), y in {−1, +1}.

    Each step follows the gradient of the log of the loss. Plain steps point the same way but shrink with the loss, and
    would need exp(margin) of them. Where the loss is small its log is smooth with constant max‖Δx‖²: hence the rate.
    """
    samples, labels = _check_sample(x, y)
    rows = _per_sample(multiplier, labels)[:, None] * labels[:, None] * samples
    lift = _per_sample(offset, labels)
    log_weight = np.log(_per_sample(weight, labels))
    rate = 1 / np.max(np.sum(rows**2, axis=1))
    w = np.zeros(samples.shape[1])
    for _ in range(steps):
        z = rows @ w - lift
        log_pull = log_weight + log_expit(-z)  # −∂loss/∂z of each sample
        w += rate * (np.exp(log_pull - np.logaddexp.reduce(log_weight + _log_softplus(-z))) @ rows)
    return w


def cs_svm(x: ArrayLike, y: ArrayLike, delta: float) -> Array:
    """w of the CS-SVM without intercept: min ‖w‖ subject to x·w ≥ δ where y = +1 and −x·w ≥ 1 where y = −1.

    Exact: a least-distance problem, solved as non-negative least squares (Lawson and Hanson 1974, chapter 23).
    """
    samples, labels = _check_sample(x, y)
    wanted = np.where(labels > 0, float(delta), 1.0)
    stacked = np.vstack([(labels[:, None] * samples).T, wanted])
    target = np.append(np.zeros(samples.shape[1]), 1.0)
    dual, distance = nnls(stacked, target)
    residual = target - stacked @ dual
    if distance < 1e-9:
        raise InputError(
            f"x of shape {samples.shape} is not separable without an intercept; use more dimensions or fewer samples."
        )
    return -residual[:-1] / residual[-1]


def _log_softplus(z: Array) -> Array:
    """log log(1 + eᶻ), which is z itself where eᶻ vanishes beside 1."""
    return np.where(z < -35, z, np.log(np.logaddexp(0.0, np.maximum(z, -35.0))))


def _per_sample(pair: Pair, labels: NDArray[np.int64]) -> Array:
    return np.where(labels > 0, pair.plus, pair.minus)


def _check_sample(x: ArrayLike, y: ArrayLike) -> tuple[Array, NDArray[np.int64]]:
    samples, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    if samples.ndim != 2 or labels.shape != samples.shape[:1]:
        raise InputError(
            f"x has shape {samples.shape} and y {labels.shape}; give x of shape (n, d) and one label for each row."
        )
    if set(np.unique(labels).tolist()) != {-1, 1}:
        raise InputError(f"y holds {np.unique(labels).tolist()}; label the classes −1 and +1, and give both.")
    return samples, labels.astype(np.int64)

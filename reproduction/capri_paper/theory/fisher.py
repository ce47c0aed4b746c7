"""Fisher consistency of the weighted loss: the theorem as code.

The weighted error (1/K) Σ_k ω_k Err_k is least under the Bayes rule argmax_k ω_k p(x | k). The theorem: for every
δ ∈ ℝ₊ᴷ, the loss c_y [logsumexp_k(f_k + l_k) − (f_y + l_y)] with c_k = ω_k δ_k/π_k and l_k = log δ_k has its least
expected value at scores whose argmax is that rule. With δ = π/ω the weights are 1 and l = log π − log ω: logit
adjustment, with the test weights beside the frequencies. ``docs/theory.md`` has the proof in three lines.

log_densities: (n_samples, n_classes), log p(x_i | k). priors and test_weights: (n_classes,), up to a common factor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri.extension import Floats, check_scores, check_vector
from capri_paper.theory._numerics import Array


class WeightedLoss(NamedTuple):
    """Cross-entropy on f + offset, each class scaled by its weight; both of shape (n_classes,)."""

    weight: Array
    offset: Array


def bayes_rule(log_densities: ArrayLike, test_weights: ArrayLike) -> NDArray[np.int64]:
    """The rule of least weighted error, argmax_k ω_k p(x | k), as class indices of shape (n_samples,).

    >>> bayes_rule(np.log([[0.5, 0.4], [0.5, 0.1]]), test_weights=[1, 2])
    array([1, 0])
    """
    return np.argmax(_log_value(log_densities, test_weights), axis=1)


def consistent_loss(priors: ArrayLike, test_weights: ArrayLike, delta: ArrayLike | None = None) -> WeightedLoss:
    """The member δ of the consistent family; without δ, the one with equal weights: l = log π − log ω.

    >>> consistent_loss(priors=[0.8, 0.2], test_weights=[1, 1]).offset.round(3)
    array([-0.223, -1.609])
    """
    frequency = check_vector(priors, "priors", low=0, strict=True)
    importance = check_vector(test_weights, "test_weights", len(frequency), low=0, strict=True)
    if delta is None:
        delta = frequency / importance
    margin = check_vector(delta, "delta", len(frequency), low=0, strict=True)
    return WeightedLoss(importance * margin / frequency, np.log(margin))


def expected_loss(scores: ArrayLike, log_densities: ArrayLike, priors: ArrayLike, loss: WeightedLoss) -> Floats:
    """Σ_k π_k p(x | k) ℓ(k, f(x)) at each x, of shape (n_samples,): what the scores at x add to the risk."""
    adjusted = check_scores(scores) + loss.offset
    cross_entropy = np.logaddexp.reduce(adjusted, axis=1, keepdims=True) - adjusted
    joint = np.exp(_log_value(log_densities, priors, "priors"))
    return np.sum(joint * loss.weight * cross_entropy, axis=1)


def optimal_scores(log_densities: ArrayLike, priors: ArrayLike, loss: WeightedLoss) -> Floats:
    """Scores of least expected loss at each x: softmax(f + l)_k ∝ c_k π_k p(x | k), so f = log(c π p) − l."""
    return _log_value(log_densities, priors, "priors") + np.log(loss.weight) - loss.offset


def adjusted_scores(log_posteriors: ArrayLike, priors: ArrayLike, test_weights: ArrayLike) -> Floats:
    """Post-hoc: log P(k | x) − l with l = log π − log ω, the same offset undone after ordinary training."""
    return check_scores(log_posteriors, "log_posteriors") - consistent_loss(priors, test_weights).offset


def regret(scores: ArrayLike, log_densities: ArrayLike, test_weights: ArrayLike) -> Floats:
    """What the argmax of the scores loses to the Bayes rule at each x, in log ω p; 0 where it is a Bayes choice."""
    value = _log_value(log_densities, test_weights)
    chosen = np.argmax(check_scores(scores), axis=1)
    return value.max(axis=1) - np.take_along_axis(value, chosen[:, None], axis=1)[:, 0]


def agreement(scores: ArrayLike, log_densities: ArrayLike, test_weights: ArrayLike) -> float:
    """Share of samples on which the argmax of the scores is a Bayes choice; ties count as agreement."""
    return float(np.mean(regret(scores, log_densities, test_weights) <= 1e-9))


def _log_value(log_densities: ArrayLike, factors: ArrayLike, name: str = "test_weights") -> Floats:
    """log(factor_k p(x | k))."""
    densities = check_scores(log_densities, "log_densities")
    return densities + np.log(check_vector(factors, name, densities.shape[1], low=0, strict=True))

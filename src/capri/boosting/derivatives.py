"""The parametric cross-entropy for trees: what a second-order booster asks of a loss.

With z = Δ∘o + l and p = softmax(z), the loss of a sample of class y is Σ_k t_k (logsumexp(z) − z_k), where its mass

    t_k = (1 − ε_y) ω_y 1[k = y] + ε_y ω_k s_k,      s = softmax(l)

is spread over the classes by label smoothing alone. T = Σ_k t_k; by the scores o:

    gradient        Δ_k (T p_k − t_k)
    Hessian         T Δ_j Δ_k (1[j = k] p_k − p_j p_k)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, Ints
from capri.strategy import Strategy

Floats = NDArray[np.float64]


def masses(strategy: Strategy, labels: Ints) -> Floats:
    """t: how much of each class the loss of each sample asks for, (n_samples, K)."""
    epsilon = strategy.smoothing[labels]
    found = epsilon[:, None] * (strategy.omega * strategy.smoothed_to)
    found[np.arange(len(labels)), labels] += (1 - epsilon) * strategy.omega[labels]
    return np.asarray(found)


def probabilities(strategy: Strategy, scores: Floats) -> Floats:
    """p: the softmax of what the loss compares."""
    return softmax(strategy.loss_scores(scores))


def softmax(z: Floats) -> Floats:
    """Of each row."""
    raised = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def gradients(strategy: Strategy, scores: Floats, labels: Ints, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """The gradient of the loss of each sample by its scores, and the diagonal of the Hessian, (n_samples, K) each."""
    t, p = masses(strategy, labels), probabilities(strategy, scores)
    if weight is not None:
        t *= weight[:, None]
    total = t.sum(axis=1, keepdims=True)
    return strategy.delta * (total * p - t), strategy.delta**2 * total * p * (1 - p)


def hessians(strategy: Strategy, scores: Floats, labels: Ints, weight: Floats | None = None) -> Floats:
    """The whole Hessian of the loss of each sample by its scores, (n_samples, K, K)."""
    p, total = probabilities(strategy, scores), masses(strategy, labels).sum(axis=1)
    if weight is not None:
        total = total * weight
    joint = -p[:, :, None] * p[:, None, :]
    k = np.arange(strategy.n_classes)
    joint[:, k, k] += p
    return np.asarray(total[:, None, None] * np.outer(strategy.delta, strategy.delta) * joint)


def best_constant(strategy: Strategy, labels: Ints, weight: Floats | None = None) -> Floats:
    """The scores that are best where nothing is known of a sample: boosting starts from them.

    Their softmax, once Δ and l are applied, is the mass of each class: Δ_k c_k + l_k = log Σ_i t_ik + constant. The
    constant is free, and chosen so that the scores have mean 0.
    """
    t = masses(strategy, labels)
    mass = t.sum(axis=0) if weight is None else weight @ t
    if (mass <= 0).any():
        k = int(np.flatnonzero(mass <= 0)[0])
        raise InputError(
            f"class {k} has no training sample of positive weight, so its first score would be minus infinity. Leave "
            "the class out, or give it samples."
        )
    # Δ_k c_k = log mass_k − l_k + a with Σ c_k = 0 fixes a.
    wanted = np.log(mass / mass.sum()) - strategy.l
    return np.asarray((wanted - (wanted / strategy.delta).sum() / (1 / strategy.delta).sum()) / strategy.delta)

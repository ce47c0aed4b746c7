"""Folding a policy into a classifier's last layer, so that serving costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from capri._checks import InputError
from capri.policy import Policy


def fold(layer: Any, policy: Policy) -> Any:
    """Put Δ and l into a linear layer's weight and bias, in place: o = W x + b becomes Δ∘(W x + b) − l.

    layer: a torch.nn.Linear (or anything with `weight` (K, n) and `bias` (K,)), a pair of arrays (weight, bias), or a
    fitted scikit-learn linear classifier with `coef_` and `intercept_`. Returns the layer, or the new pair.
    """
    policy.require_posthoc()
    if policy.scores != "logits":
        raise InputError(
            "this policy adjusts probabilities; only logits can be folded into a layer. Use policy.apply instead."
        )
    delta, l = policy.strategy.delta, policy.strategy.l
    if isinstance(layer, tuple):
        weight, bias = (np.asarray(part, dtype=np.float64) for part in layer)
        _check(weight.shape, bias.shape, len(l))
        return weight * delta[:, None], bias * delta - l
    if hasattr(layer, "coef_"):
        _check(layer.coef_.shape, np.shape(layer.intercept_), len(l))
        layer.coef_ = layer.coef_ * delta[:, None]
        layer.intercept_ = layer.intercept_ * delta - l
        return layer
    return _fold_torch(layer, policy)


def _fold_torch(layer: Any, policy: Policy) -> Any:
    import torch

    if getattr(layer, "bias", None) is None:
        raise InputError("the layer has no bias to hold the offsets; build it with bias=True (zeros will do).")
    _check(tuple(layer.weight.shape), tuple(layer.bias.shape), policy.strategy.n_classes)
    with torch.no_grad():
        delta = torch.as_tensor(policy.strategy.delta, dtype=layer.weight.dtype, device=layer.weight.device)
        l = torch.as_tensor(policy.strategy.l, dtype=layer.weight.dtype, device=layer.weight.device)
        layer.weight.mul_(delta[:, None])
        layer.bias.mul_(delta).sub_(l)
    return layer


def _check(weight: tuple[int, ...], bias: tuple[int, ...], n_classes: int) -> None:
    if len(weight) != 2 or weight[0] != n_classes or tuple(bias) != (n_classes,):
        raise InputError(
            f"the layer has weight {weight} and bias {bias}; the policy needs ({n_classes}, n) and ({n_classes},)."
        )

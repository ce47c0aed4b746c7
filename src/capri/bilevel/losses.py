"""The parametric cross-entropy: one loss, of which the named ones are strategies.

    ℓ(y, o) = ω_y · [ logsumexp_k(Δ_k o_k + l_k) − (Δ_y o_y + l_y) ]                 (`capri.strategy` owns the signs)

Cross-entropy, weighted cross-entropy, logit adjustment (balanced softmax), CDT and VS are `Strategy`s of it. The mean
over a batch divides by the number of samples; torch's own `weight=` divides by Σω and passes no gradient on to ω.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from capri._checks import InputError
from capri.bilevel.strategy_map import StrategyTensors
from capri.strategy import NEUTRAL, Strategy

Reduction = Literal["mean", "sum", "none"]


def parametric_cross_entropy(
    logits: Tensor,
    target: Tensor,
    omega: Tensor | None = None,
    l: Tensor | None = None,
    delta: Tensor | None = None,
    smoothing: Tensor | None = None,
) -> Tensor:
    """The loss ℓ of each sample, differentiable in the logits and in the strategy.

    Parameters
    ----------
    logits : Tensor of shape (n, K)
        Half precision is computed in single.
    target : Tensor of shape (n,) or (n, K)
        Class indices, or probabilities q, which give the expected loss Σ_k q_k ℓ(k, o).
    omega, l, delta : Tensor of shape (K,), optional
        Weights, offsets and multipliers; neutral (1, 0, 1) by default.
    smoothing : Tensor of shape (K,), optional
        ε spreads a share of the target of class y: (1 − ε_y)·1_y + ε_y softmax(l) (see `capri.strategy`); 0 by default.

    Returns
    -------
    Tensor of shape (n,)

    Examples
    --------
    >>> o = torch.tensor([[2.0, 0.0]])
    >>> parametric_cross_entropy(o, torch.tensor([1]), l=torch.tensor([0.0, 2.0]))  # the offset levels the two classes
    tensor([0.6931])
    """
    z = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if delta is not None:
        z = z * delta
    if l is not None:
        z = z + l
    soft = target.is_floating_point()
    if smoothing is not None:
        return _smoothed(z, target, omega, l, smoothing)
    if omega is None:
        return F.cross_entropy(z, target.to(z.dtype) if soft else target, reduction="none")
    if not soft:
        return F.cross_entropy(z, target, reduction="none") * omega[target]
    return -(target.to(z.dtype) * omega * F.log_softmax(z, dim=1)).sum(dim=1)


def _smoothed(z: Tensor, target: Tensor, omega: Tensor | None, l: Tensor | None, epsilon: Tensor) -> Tensor:
    """ℓ under q = (1 − ε_y)·1_y + ε_y softmax(l); soft targets average over y."""
    costs = -F.log_softmax(z, dim=1) if omega is None else -omega * F.log_softmax(z, dim=1)
    spread = costs.mean(dim=1) if l is None else (costs * F.softmax(l, dim=0)).sum(dim=1)
    if target.is_floating_point():
        return (target * ((1 - epsilon) * costs + epsilon * spread[:, None])).sum(dim=1)
    e = epsilon[target]
    return (1 - e) * costs.gather(1, target[:, None])[:, 0] + e * spread


class ParametricCrossEntropy(nn.Module):
    """The loss of a `Strategy`, ready for a training loop. Neutral parts of the strategy cost nothing.

    Parameters
    ----------
    strategy : Strategy
        Weights, offsets, multipliers and label smoothing of the classes.
    reduction : {"mean", "sum", "none"}
        What becomes of a batch's losses. The mean divides by the number of samples, not by Σω as torch does.

    Examples
    --------
    >>> loss = ParametricCrossEntropy(Strategy.logit_adjustment([900, 100]))
    >>> loss(torch.zeros(1, 2), torch.tensor([1]))  # -log of the rare class's share
    tensor(2.3026)
    """

    omega: Tensor | None
    l: Tensor | None
    delta: Tensor | None
    smoothing: Tensor | None

    def __init__(self, strategy: Strategy, *, reduction: Reduction = "mean"):
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise InputError(f"reduction is {reduction!r}; it must be 'mean', 'sum' or 'none'.")
        self.strategy, self.reduction = strategy, reduction
        for name, neutral in NEUTRAL.items():
            values = getattr(strategy, name)
            part = None if (values == neutral).all() else torch.as_tensor(values, dtype=torch.float32)
            self.register_buffer(name, part)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss, reduced as asked.

        Parameters
        ----------
        logits : Tensor of shape (n, K)
            Of the network.
        target : Tensor of shape (n,) or (n, K)
            Class indices, or probabilities.

        Returns
        -------
        Tensor
            A scalar, or of shape (n,) where `reduction` is "none".
        """
        losses = parametric_cross_entropy(logits, target, self.omega, self.l, self.delta, self.smoothing)
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def extra_repr(self) -> str:
        """Which parts are at work."""
        parts = [name for name in NEUTRAL if getattr(self, name) is not None]
        return f"{self.strategy.n_classes} classes, {' and '.join(parts) or 'plain cross-entropy'}"


class MovingLoss(nn.Module):
    """The parametric cross-entropy at a strategy that changes during training; the mean over the batch.

    Parameters
    ----------
    start : StrategyTensors
        The strategy to begin with, as `StrategyMap` gives it. Labels are smoothed later only if it smooths any.
    """

    omega: Tensor
    l: Tensor
    delta: Tensor
    smoothing: Tensor

    def __init__(self, start: StrategyTensors):
        super().__init__()
        self.smooths = bool(start.smoothing.any())
        for name, values in start._asdict().items():
            self.register_buffer(name, values.detach().clone())

    def move(self, to: StrategyTensors) -> None:
        """Take the values of another strategy.

        Parameters
        ----------
        to : StrategyTensors
            ω, l, Δ and ε, (K,) each.
        """
        for name, values in to._asdict().items():
            getattr(self, name).copy_(values.detach())

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch; arguments as in `ParametricCrossEntropy.forward`."""
        smoothing = self.smoothing if self.smooths else None
        return parametric_cross_entropy(logits, target, self.omega, self.l, self.delta, smoothing).mean()

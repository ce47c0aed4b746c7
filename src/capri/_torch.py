"""The adjustment as a module of torch (extra `train`), for networks that are served or exported as such."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from capri._checks import InputError
from capri.strategy import Strategy


class AdjustedScores(nn.Module):
    """Δ∘o − l, with o = log max(p, floor) of probabilities; what `Policy.as_module` gives.

    Δ and l are buffers in float64, as in NumPy; `.float()` and the like convert them as those of any module.

    Parameters
    ----------
    strategy : Strategy
        Of which Δ and l count.
    scores : {"logits", "proba"}
        What the module is given.
    floor : float
        The smallest probability.
    thresholds : sequence of float, optional
        Of the classes, where samples may be left undecided.
    """

    delta: Tensor
    l: Tensor
    thresholds: Tensor | None

    def __init__(
        self,
        strategy: Strategy,
        scores: Literal["logits", "proba"],
        floor: float,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer(
            "thresholds", None if thresholds is None else torch.tensor(thresholds, dtype=torch.float64)
        )
        self.scores, self.floor = scores, floor
        self.register_buffer("delta", torch.tensor(strategy.delta))
        self.register_buffer("l", torch.tensor(strategy.l))

    def forward(self, scores: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Adjusted scores (…, K) of scores (…, K); the argmax over the last dimension is the decision.

        With thresholds also which samples are decided at all, (…).
        """
        if scores.shape[-1] != len(self.l):
            raise InputError(
                f"scores have {scores.shape[-1]} columns, the policy {len(self.l)} classes; give one score per class."
            )
        if self.scores == "proba":
            wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
            scores = wide.clamp_min(self.floor).log()
        adjusted = scores * self.delta - self.l
        if self.thresholds is None:
            return adjusted
        best, index = adjusted.max(dim=-1, keepdim=True)
        near = best - adjusted < self.thresholds[index]
        return adjusted, near.sum(dim=-1) <= 1

    def extra_repr(self) -> str:
        """For `repr`."""
        return f"n_classes={len(self.l)}, scores={self.scores!r}"

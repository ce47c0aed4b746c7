"""The adjustment as a module of torch (extra `train`), for networks that are served or exported as such."""

from __future__ import annotations

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
    """

    delta: Tensor
    l: Tensor

    def __init__(self, strategy: Strategy, scores: Literal["logits", "proba"], floor: float) -> None:
        super().__init__()
        self.scores, self.floor = scores, floor
        self.register_buffer("delta", torch.tensor(strategy.delta))
        self.register_buffer("l", torch.tensor(strategy.l))

    def forward(self, scores: Tensor) -> Tensor:
        """Adjusted scores (…, K) of scores (…, K); the argmax over the last dimension is the decision."""
        if scores.shape[-1] != len(self.l):
            raise InputError(
                f"scores have {scores.shape[-1]} columns, the policy {len(self.l)} classes; give one score per class."
            )
        if self.scores == "proba":
            wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
            scores = wide.clamp_min(self.floor).log()
        return scores * self.delta - self.l

    def extra_repr(self) -> str:
        """For `repr`."""
        return f"n_classes={len(self.l)}, scores={self.scores!r}"

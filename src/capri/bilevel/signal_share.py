"""How much of a step is signal: noise that is followed becomes a random walk.

Adam takes steps of one length along each coordinate, whether its gradients agree or cancel. Here the running mean m and
variance v of a coordinate's gradients say whether there is anything to follow. The mean of n gradients that are nothing
but noise has variance v/n; a step keeps the share

    share = max(0, 1 − c² (v/n)/m²)

of its length: 1 where all gradients agree, 0 where the mean is within c of its own standard errors, and there the
coordinate stays where it is. With c = 1 it would be James and Stein's estimate of how much of m² is signal; but
gradients that the mean remembers were followed, too, and c = 1.5 makes up for that. The first step only measures.

What it buys, by 400 steps of Adam at rate 0.02 on noise of spread 1: a coordinate without slope ends 0.15 from its
start in place of 0.39; one whose slope is its distance from the optimum ends 0.08 from it in place of 0.10, from a
start at distance 1; with a third of that slope, 0.29 in place of 0.21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

MEMORY = 0.98  # of the running mean and variance: at most 99 gradients
ERRORS = 1.5  # c: standard errors within which a mean is taken for noise


class SignalShare:
    """Running means and mean squares of gradients, one tensor for each of the parameters."""

    def __init__(self, parameters: Sequence[Tensor]):
        self.steps = 0
        self.means = [torch.zeros_like(p, requires_grad=False) for p in parameters]
        self.squares = [torch.zeros_like(p, requires_grad=False) for p in parameters]

    def update(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Take note of new gradients; returns the share of the step to keep, for each number."""
        self.steps += 1
        for mean, square, g in zip(self.means, self.squares, gradients, strict=True):
            mean.lerp_(g, 1 - MEMORY)
            square.lerp_(g**2, 1 - MEMORY)
        known = 1 - MEMORY**self.steps  # the weight of all gradients so far; the rest is the start at 0
        n = known * (1 + MEMORY) / ((1 - MEMORY) * (1 + MEMORY**self.steps))  # gradients that the mean is worth
        return [_share(m / known, s / known, n) for m, s in zip(self.means, self.squares, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"steps": self.steps, "means": self.means, "squares": self.squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.steps = state["steps"]
        for name in ("means", "squares"):
            for own, kept in zip(getattr(self, name), state[name], strict=True):
                own.copy_(kept)


def _share(mean: Tensor, square: Tensor, n: float) -> Tensor:
    """1 − c² (v/n)/m², where that is positive; v/n = (mean of squares − m²)/(n − 1)."""
    if n <= 1:
        return torch.zeros_like(mean)
    error = ERRORS**2 * (square - mean**2).clamp_min(0) / (n - 1)
    beyond = mean**2 > error
    return torch.where(beyond, 1 - error / torch.where(beyond, mean**2, 1), 0)

"""The three passes over scores that tuning takes, in torch: decisions, intervals of a line, soft margins.

A part of the rows at a time is widened to float64, so that decisions and intervals are those of the compiled passes to
the bit, and memory beyond the scores stays small. What comes back is a number or two per sample, or a few per class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capri._checks import InputError
from capri.posthoc.adjustment import Adjustment, Direction, Vector

AT_ONCE = 2**23  # numbers that are widened: 64 MB of float64


@dataclass(frozen=True, eq=False)
class DeviceScores:
    """Scores (n_samples, K) and labels (n_samples,) on a device.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, K)
        Logits of any floating type.
    y : Tensor of shape (n_samples,)
        Class numbers.
    """

    scores: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or not self.scores.is_floating_point() or self.scores.shape[1] < 2:
            raise InputError(
                f"scores must be floats (n_samples, K); got {self.scores.dtype} of shape {tuple(self.scores.shape)}."
            )
        if self.y.shape != self.scores.shape[:1] or self.y.is_floating_point():
            raise InputError(
                f"y must hold one class number per sample; got {self.y.dtype} of shape {tuple(self.y.shape)} for "
                f"{len(self.scores)} samples."
            )
        if not torch.isfinite(self.scores).all():
            raise InputError("scores hold NaN or infinite entries. Remove these rows or clip the values.")
        object.__setattr__(self, "scores", self.scores.detach())
        object.__setattr__(self, "y", self.y.to(self.scores.device, torch.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """(n_samples, K)."""
        return int(self.scores.shape[0]), int(self.scores.shape[1])

    def decisions(self, adjustment: Adjustment) -> NDArray[np.int64]:
        """argmax_k m_k o_ik − l_k of each sample; the lower index wins a tie."""
        m, l = self._vectors(*adjustment)
        return _gathered([(m * o - l).argmax(dim=1) for o, _ in self._parts()]).astype(np.int64)

    def right_intervals(self, start: Adjustment, direction: Direction) -> tuple[Vector, Vector]:
        """The open interval of t on which each sample is right along a line; empty as (inf, −inf)."""
        m, l, h, g = self._vectors(*start, *direction)
        ends = [_interval(o, y, m, l, h, g) for o, y in self._parts()]
        return _gathered([low for low, _ in ends]), _gathered([high for _, high in ends])

    def soft_margins(self, adjustment: Adjustment, sharpness: float, weight: Tensor) -> tuple[Vector, Vector]:
        """Hits and column sums (K,) of p = softmax(s (m∘o − l)), samples counting by their weights."""
        hits, columns = (self.scores.new_zeros(self.shape[1], dtype=torch.float64) for _ in range(2))
        for p, y, w in self._soft(adjustment, sharpness, weight):
            own = p.gather(1, y[:, None])[:, 0]
            hits.index_add_(0, y, w * own)
            columns += w @ p
        return hits.cpu().numpy(), columns.cpu().numpy()

    def soft_slopes(
        self, adjustment: Adjustment, sharpness: float, weight: Tensor, by_hits: Vector, by_columns: Vector
    ) -> Vector:
        """The derivative by −l of what has these derivatives by hits and column sums, over s."""
        right, decided = self._vectors(by_hits, by_columns)
        slopes = torch.zeros_like(right)
        for p, y, w in self._soft(adjustment, sharpness, weight):
            own = right[y] * p.gather(1, y[:, None])[:, 0]
            mean = p @ decided + own
            slopes += (w[:, None] * p * (decided - mean[:, None])).sum(dim=0)
            slopes.index_add_(0, y, w * own)
        return slopes.cpu().numpy()

    def margins(self, at_most: int) -> Vector:
        """The size of o_y − max_{k≠y} o_k of some samples, evenly spread."""
        step = max(1, self.shape[0] // at_most)
        o, y = self.scores[::step].to(torch.float64), self.y[::step, None]
        own = o.gather(1, y)[:, 0]
        return (own - o.scatter(1, y, -torch.inf).amax(dim=1)).abs().cpu().numpy()

    def _parts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows in float64, a part at a time."""
        rows = max(1, AT_ONCE // self.shape[1])
        for o, y in zip(torch.split(self.scores, rows), torch.split(self.y, rows), strict=True):
            yield o.to(torch.float64), y

    def _soft(
        self, adjustment: Adjustment, sharpness: float, weight: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        m, l = self._vectors(*adjustment)
        first = 0
        for o, y in self._parts():
            yield torch.softmax(sharpness * (m * o - l), dim=1), y, weight[first : first + len(y)]
            first += len(y)

    def _vectors(self, *values: Vector) -> tuple[Tensor, ...]:
        return tuple(torch.as_tensor(v, dtype=torch.float64, device=self.scores.device) for v in values)


def _interval(o: Tensor, y: Tensor, m: Tensor, l: Tensor, h: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """As `_kernels.right_intervals`, operation by operation."""
    label, infinity = y[:, None], torch.inf
    z, slope = m * o - l, h * o - g
    gap, d = z - z.gather(1, label), slope.gather(1, label) - slope
    t = gap / d
    low = t.masked_fill(d <= 0, -infinity).amax(dim=1)
    high = t.masked_fill(d >= 0, infinity).amin(dim=1)
    level = d == 0
    beaten = (level & (gap > 0)).any(dim=1)
    before = torch.arange(o.shape[1], device=o.device) < label  # of equal ones the lower index decides
    never = beaten | (level & (gap == 0) & before).any(dim=1) | (low >= high)
    return low.masked_fill(never, infinity), high.masked_fill(never, -infinity)


def _gathered(parts: list[Tensor]) -> NDArray[np.float64]:
    return torch.cat(parts).cpu().numpy()

"""Several processes that each hold a share of a batch: what becomes of means.

A mean over the joined batch is the sum over processes of n_s/N times the mean over a share. So a share is weighed by
its samples, and whatever is linear in samples (gradients, products with a Hessian, sums by class) is added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Vector = tuple[Tensor, ...]
Total = Callable[[Tensor], Tensor]  # the sum over all processes, in each of them


@dataclass(frozen=True)
class Share:
    """This process's share of a joined batch.

    part: n_s/N, how much a mean over the share counts. add: the sum over all processes; None where there is one.
    """

    part: float = 1.0
    add: Total | None = None

    @classmethod
    def of(cls, samples: int, add: Total | None, device: torch.device) -> Share:
        """Of so many samples here."""
        if add is None:
            return cls()
        return cls(samples / float(add(torch.tensor(float(samples), dtype=torch.float64, device=device))), add)

    def joined(self, values: Vector) -> Vector:
        """What is linear in the mean over the share, for the joined batch. All tensors travel as one."""
        if self.add is None:
            return values
        flat = self.add(torch.cat([self.part * v.flatten() for v in values]))
        cuts = torch.split(flat, [v.numel() for v in values])
        return tuple(cut.view_as(v) for cut, v in zip(cuts, values, strict=True))


ALONE = Share()

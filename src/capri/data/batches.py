"""Batches from memory: arrays that fit stay there as they are (uint8, float16).

No worker processes, no per-image Python. All randomness of an epoch comes from one generator, whose state a checkpoint
can hold. With several processes each draws the same joined batch and takes its share (`Shares`), so that order and
augmentation are those of a single process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from capri._checks import InputError

Batch = tuple[Tensor, Tensor]
Augment = Callable[[int, torch.Generator], Callable[[Tensor, slice], Tensor]]


def image_scaling(mean: Sequence[float], std: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """uint8 (n, h, w, c) to standard float (n, c, h, w), channels last in memory; mean, std: of images in [0, 1]."""
    scale = 1 / (255 * torch.tensor(std))
    shift = -torch.tensor(mean) / torch.tensor(std)
    return lambda images: torch.addcmul(shift, images.float(), scale).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Shares:
    """How `n` samples make batches of `batch_size`, of which this process, `rank` of `world_size`, takes its share.

    Shares differ by one sample at most and are never empty: a last batch with fewer samples than processes joins the
    one before it.
    """

    n: int
    batch_size: int
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        for name, size in (("batch_size", self.batch_size), ("the number of samples", self.n)):
            if size < self.world_size:
                raise InputError(
                    f"{name} is {size} for {self.world_size} process(es); give at least one sample to each."
                )

    @property
    def mine(self) -> slice:
        """Of a joined batch, the samples of this process."""
        return slice(self.rank, None, self.world_size)

    def __len__(self) -> int:
        full, rest = divmod(self.n, self.batch_size)
        return full + (rest >= self.world_size or full == 0)

    def joined(self, order: Tensor) -> tuple[Tensor, ...]:
        """The positions `order` (n,), cut into the batches of all processes together."""
        return order.tensor_split([i * self.batch_size for i in range(1, len(self))])


class ArrayBatches:
    """Batches (x, y) of arrays in memory; iterate once per epoch.

    x: (n, …), y: (n,). generator: shuffles and augments where given; without it the order is as it is.
    prepare: from a stored batch to what the model takes. batch_size: of all processes together.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        batch_size: int,
        *,
        prepare: Callable[[Tensor], Tensor] = Tensor.float,
        generator: torch.Generator | None = None,
        augment: Augment | None = None,
        rank: int = 0,
        world_size: int = 1,
    ):
        if augment is not None and generator is None:
            raise InputError("augment needs a generator to draw from; give generator=torch.Generator().")
        self.x, self.y = x, y
        self.prepare, self.generator, self.augment = prepare, generator, augment
        self.shares = Shares(len(y), batch_size, rank, world_size)

    def __len__(self) -> int:
        return len(self.shares)

    def __iter__(self) -> Iterator[Batch]:
        # A generator function: nothing is drawn before the first batch is asked for, so that a state restored
        # after the iterator was made still counts.
        n, mine = len(self.y), self.shares.mine
        order = torch.arange(n) if self.generator is None else torch.randperm(n, generator=self.generator)
        for batch in self.shares.joined(order):
            x = self.x[batch[mine]]
            if self.augment is not None and self.generator is not None:
                x = self.augment(len(batch), self.generator)(x, mine)
            yield self.prepare(x), self.y[batch[mine]]

"""Lightning DataModules: in memory (CIFAR, features) and from image files (ImageNet-LT)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import lightning as L
import torch
from torch import Tensor

from capri.data.batches import ArrayBatches, Augment, Batch
from capri.data.images import CROP, ImageBatches, ImageFiles
from capri.data.splits import Part, Splits

EVALUATION_BATCH = 500  # no gradients are kept, so evaluation takes larger batches


class SplitsDataModule(L.LightningDataModule):
    """Batches of the three parts of an experiment; `generator` holds all randomness of order and augmentation."""

    def __init__(self, splits: Splits, batch_size: int, seed: int):
        super().__init__()
        self.splits, self.batch_size = splits, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def train_dataloader(self) -> Iterable[Batch]:
        """Shuffled, augmented batches; each process gets its share of the joined batch."""
        return self.batches(self.splits.train, training=True, **self._process())

    def val_dataloader(self) -> Iterable[Batch]:
        """Validation in order, unaugmented; each process gets its share."""
        return self.batches(self.splits.val, **self._process())

    def test_dataloader(self) -> Iterable[Batch]:
        """Test in order, unaugmented; each process gets its share."""
        return self.batches(self.splits.test, **self._process())

    def batches(self, part: Part, *, training: bool = False, rank: int = 0, world_size: int = 1) -> Iterable[Batch]:
        """Batches of a part, or a process's share of them."""
        raise NotImplementedError

    def _process(self) -> dict[str, int]:
        """Which process this is, of how many."""
        if self.trainer is None:
            return {}
        return {"rank": self.trainer.global_rank, "world_size": self.trainer.world_size}


class ArrayDataModule(SplitsDataModule):
    """Arrays in memory, as they were stored."""

    def __init__(
        self,
        splits: Splits,
        batch_size: int,
        seed: int,
        *,
        prepare: Callable[[Tensor], Tensor] = Tensor.float,
        augment: Augment | None = None,
    ):
        super().__init__(splits, batch_size, seed)
        self.prepare, self.augment = prepare, augment

    def batches(self, part: Part, *, training: bool = False, rank: int = 0, world_size: int = 1) -> ArrayBatches:
        """Batches of a part, or a process's share of them."""
        return ArrayBatches(
            torch.from_numpy(part.x),
            torch.from_numpy(part.y),
            self.batch_size if training else EVALUATION_BATCH,
            prepare=self.prepare,
            generator=self.generator if training else None,
            augment=self.augment if training else None,
            rank=rank,
            world_size=world_size,
        )


class ImageDataModule(SplitsDataModule):
    """Image files through worker processes."""

    def __init__(
        self,
        splits: Splits,
        batch_size: int,
        seed: int,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        size: int = CROP,
        augment: bool = True,
        workers: int = 0,
    ):
        super().__init__(splits, batch_size, seed)
        self.mean, self.std, self.size, self.augment, self.workers = mean, std, size, augment, workers

    def batches(self, part: Part, *, training: bool = False, rank: int = 0, world_size: int = 1) -> ImageBatches:
        """Batches of a part, or a process's share of them."""
        return ImageBatches(
            ImageFiles(part.x.tolist(), part.y, self.mean, self.std, self.size),
            self.batch_size,
            generator=self.generator if training else None,
            augment=self.augment,
            workers=self.workers,
            rank=rank,
            world_size=world_size,
        )

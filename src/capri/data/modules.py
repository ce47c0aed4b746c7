"""Lightning DataModules: in memory (CIFAR, features) and from image files (ImageNet-LT)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

import lightning as L
import torch
from torch import Tensor

from capri.data.batches import ArrayBatches, Augment, Batch
from capri.data.images import CROP, ImageBatches, ImageFiles
from capri.data.splits import Part, Splits

Process = tuple[int, int]  # its rank, and the number of processes
ALONE: Process = (0, 1)
EVALUATION_BATCH = 500  # no gradients are kept, so evaluation takes larger batches


class SplitsDataModule(L.LightningDataModule, ABC):
    """Batches of the three parts of an experiment; `generator` holds all randomness of order and augmentation."""

    def __init__(self, splits: Splits, batch_size: int, seed: int):
        super().__init__()
        self.splits, self.batch_size = splits, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def train_dataloader(self) -> Iterable[Batch]:
        """Shuffled, augmented batches; each process gets its share of the joined batch."""
        return self.batches(self.splits.train, training=True, process=self._process())

    def val_dataloader(self) -> Iterable[Batch]:
        """Validation in order, unaugmented; each process gets its share."""
        return self.batches(self.splits.val, process=self._process())

    def test_dataloader(self) -> Iterable[Batch]:
        """Test in order, unaugmented; each process gets its share."""
        return self.batches(self.splits.test, process=self._process())

    @abstractmethod
    def batches(self, part: Part, *, training: bool = False, process: Process = ALONE) -> Iterable[Batch]:
        """Batches of a part: the whole of it, or the share of `process`."""

    def _process(self) -> Process:
        return ALONE if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)


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

    def batches(self, part: Part, *, training: bool = False, process: Process = ALONE) -> ArrayBatches:
        """Batches of a part: the whole of it, or the share of `process`."""
        rank, world_size = process
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

    def batches(self, part: Part, *, training: bool = False, process: Process = ALONE) -> ImageBatches:
        """Batches of a part: the whole of it, or the share of `process`."""
        rank, world_size = process
        return ImageBatches(
            ImageFiles(part.x.tolist(), part.y, self.mean, self.std, self.size),
            self.batch_size,
            generator=self.generator if training else None,
            augment=self.augment,
            workers=self.workers,
            rank=rank,
            world_size=world_size,
        )

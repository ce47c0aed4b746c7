"""Batches from image files: worker processes decode, crop and scale; a damaged file is an error that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from capri._checks import InputError, Ints
from capri.data.batches import Batch, Shares

CROP, RESIZE = 224, 256
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)  # of random crops, as is usual for ImageNet


def decode(path: str | Path) -> Any:
    """An RGB image."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise InputError(f"{path} is not there; unpack the images as the list file names them.") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise InputError(f"{path} cannot be decoded ({error}); get the image again or drop its line.") from None


def random_box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """A crop (left, top, right, bottom) of random area and aspect; the largest square where ten draws do not fit."""
    for _ in range(10):
        area = width * height * rng.uniform(*AREA)
        aspect = np.exp(rng.uniform(*np.log(ASPECT)))
        w, h = round(float(np.sqrt(area * aspect))), round(float(np.sqrt(area / aspect)))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
            return left, top, left + w, top + h
    return centre_box(width, height, min(width, height))


def centre_box(width: int, height: int, side: int) -> tuple[int, int, int, int]:
    """The centred square of this side."""
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def training_view(image: Any, rng: np.random.Generator, size: int = CROP) -> NDArray[np.uint8]:
    """Random crop and mirror, (size, size, 3)."""
    from PIL import Image

    width, height = image.size
    box = random_box(width, height, rng)
    view = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
    return view[:, ::-1] if rng.random() < 0.5 else view


def evaluation_view(image: Any, size: int = CROP) -> NDArray[np.uint8]:
    """The centre: short side to size·256/224, then a square, (size, size, 3)."""
    from PIL import Image

    side = min(image.size) * CROP / RESIZE
    width, height = image.size
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


class ImageFiles(Dataset[tuple[Tensor, int]]):
    """Image files as tensors (3, size, size). Each sample's randomness depends on `seed` and its position alone."""

    def __init__(self, paths: Sequence[str], y: Ints, mean: Sequence[float], std: Sequence[float], size: int = CROP):
        self.paths, self.y, self.size = paths, y, size
        self.mean, self.std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
        self.seed: int | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        image = decode(self.paths[i])
        if self.seed is None:
            view = evaluation_view(image, self.size)
        else:
            view = training_view(image, np.random.default_rng([self.seed, i]), self.size)
        tensor = torch.from_numpy(np.array(view)).permute(2, 0, 1).float() / 255
        return (tensor - self.mean) / self.std, int(self.y[i])


class ImageBatches:
    """Batches of image files through worker processes; with a generator, shuffled and (`augment`) augmented."""

    def __init__(
        self,
        files: ImageFiles,
        batch_size: int,
        *,
        generator: torch.Generator | None = None,
        augment: bool = True,
        workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        self.files, self.generator, self.augment, self.workers = files, generator, augment, workers
        self.shares = Shares(len(files), batch_size, rank, world_size)

    def __len__(self) -> int:
        return len(self.shares)

    def __iter__(self) -> Iterator[Batch]:
        order, self.files.seed = torch.arange(len(self.files)), None
        if self.generator is not None:
            order = torch.randperm(len(order), generator=self.generator)
            seed = int(torch.randint(2**31, (), generator=self.generator))
            self.files.seed = seed if self.augment else None
        batches = [batch[self.shares.mine].tolist() for batch in self.shares.joined(order)]
        loader: DataLoader[tuple[Tensor, int]] = DataLoader(
            self.files,
            batch_sampler=batches,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(0),  # so that workers draw nothing from the global state
        )
        try:
            for x, y in loader:
                yield x.contiguous(memory_format=torch.channels_last), y
        except InputError as error:  # a worker's comes wrapped in its traceback
            raise InputError(str(error).rpartition("InputError: ")[2].strip()) from None

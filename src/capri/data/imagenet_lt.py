"""ImageNet-LT (Liu et al. 2019): 1,000 classes, 115,846 training images, 1,280 … 5 per class.

The published list files name one image and its class per line; images stay in ImageNet's own folders:

    root/ImageNet_LT_train.txt      train/n01440764/n01440764_190.JPEG 0
    root/ImageNet_LT_val.txt        val/ILSVRC2012_val_00000293.JPEG 0
    root/ImageNet_LT_test.txt
    root/train/n01440764/*.JPEG  root/val/*.JPEG
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from capri._checks import InputError, Ints
from capri.data.splits import Part

N_CLASSES = 1000
N_TRAIN = 115_846
LISTS = {"train": "ImageNet_LT_train.txt", "val": "ImageNet_LT_val.txt", "test": "ImageNet_LT_test.txt"}
URL = "https://liuziwei7.github.io/projects/LongTail.html"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet_lt_counts() -> Ints:
    """Training images per class of ImageNet-LT, as published.

    Returns
    -------
    ndarray of shape (1000,)
    """
    return np.array(json.loads(files("capri.data").joinpath("imagenet_lt_counts.json").read_text()), dtype=np.int64)


def read_list(path: str | Path, root: str | Path, n_classes: int = N_CLASSES) -> Part:
    """Image paths (n,) and labels (n,) of a list file; paths are relative to `root`."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} is not there; the lists of ImageNet-LT are linked from {URL}.")
    paths, labels = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdigit():
            raise InputError(f"{file}, line {number}: {line!r} must read 'path/to/image.JPEG label'.")
        paths.append(str(Path(root) / name))
        labels.append(int(label))
    if not paths:
        raise InputError(f"{file} is empty; get it again from {URL}.")
    return Part.of(np.array(paths), labels, n_classes, str(file))


def load_imagenet_lt(root: str | Path, n_classes: int = N_CLASSES) -> tuple[Part, Part, Part, tuple[str, ...]]:
    """(train, test, validation, class names), with image paths in place of images.

    `n_classes` below 1,000 serves trial trees.
    """
    folder = Path(root)
    _refuse_missing(folder, [name for name in LISTS.values() if not (folder / name).is_file()])
    parts = {split: read_list(folder / name, folder, n_classes) for split, name in LISTS.items()}
    for part in parts.values():
        _refuse_missing(folder, missing_files(part.x.tolist()))
    return parts["train"], parts["test"], parts["val"], tuple(map(str, range(n_classes)))


def missing_files(paths: Sequence[str]) -> list[str]:
    """Those that are not there; each folder is listed once."""
    folders = {Path(path).parent for path in paths}
    held = {str(file) for folder in folders if folder.is_dir() for file in folder.iterdir()}
    return [path for path in paths if path not in held]


def _refuse_missing(folder: Path, missing: Sequence[str]) -> None:
    if not missing:
        return
    more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
    raise InputError(
        f"ImageNet-LT is not complete below {folder}: missing {', '.join(missing[:3])}{more}. The lists are linked "
        f"from {URL}; the images are ImageNet's (ILSVRC 2012, https://image-net.org): unpack them as "
        f"{folder}/train/<wnid>/*.JPEG and {folder}/val/*.JPEG. The folder is set by data.root."
    )

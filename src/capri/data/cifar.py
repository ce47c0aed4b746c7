"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) in their two original formats: binary records and Python pickles.

Pickles are read by an unpickler that can make arrays, strings and numbers and nothing else: a data file is never code.
"""

from __future__ import annotations

import codecs
import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError
from capri.data.splits import Part

PIXELS = 3 * 32 * 32
URL = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class CifarRelease:
    """The files of a release and what is in them. mean, std: per channel, of the training images in [0, 1]."""

    n_classes: int
    label_bytes: int
    folders: dict[str, str]
    train: dict[str, tuple[str, ...]]
    test: dict[str, tuple[str, ...]]
    names: dict[str, str]
    label_key: bytes
    names_key: bytes
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


RELEASES = {
    "cifar10": CifarRelease(
        n_classes=10,
        label_bytes=1,
        folders={"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
        train={
            "binary": tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
            "python": tuple(f"data_batch_{i}" for i in range(1, 6)),
        },
        test={"binary": ("test_batch.bin",), "python": ("test_batch",)},
        names={"binary": "batches.meta.txt", "python": "batches.meta"},
        label_key=b"labels",
        names_key=b"label_names",
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    "cifar100": CifarRelease(
        n_classes=100,
        label_bytes=2,  # coarse, then fine: the last byte is the label we use
        folders={"binary": "cifar-100-binary", "python": "cifar-100-python"},
        train={"binary": ("train.bin",), "python": ("train",)},
        test={"binary": ("test.bin",), "python": ("test",)},
        names={"binary": "fine_label_names.txt", "python": "meta"},
        label_key=b"fine_labels",
        names_key=b"fine_label_names",
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
}

#: Published digests, checked on request.
MD5 = {
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
    "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
    "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
    "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
    "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
    "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}


def load_cifar(name: str, root: str | Path, *, verify: bool = False) -> tuple[Part, Part, tuple[str, ...]]:
    """(train, test, class names) of "cifar10" or "cifar100" below `root`; images are (n, 32, 32, 3) uint8.

    The binary release is preferred where both are there. verify: compare each file with its published digest.
    """
    if name not in RELEASES:
        raise InputError(f"name is {name!r}; it must be one of {', '.join(RELEASES)}.")
    release = RELEASES[name]
    form = _form(name, release, Path(root))
    folder = Path(root) / release.folders[form]
    read = read_binary if form == "binary" else read_pickle
    parts = []
    for title, files in (("train", release.train[form]), ("test", release.test[form])):
        pieces = []
        for file in files:
            if verify:
                _check_digest(folder / file)
            pieces.append(read(folder / file, release))
        images, labels = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        parts.append(Part.of(images, labels, release.n_classes, f"{name} {title}"))
    return parts[0], parts[1], _class_names(folder / release.names[form], release)


def read_binary(path: Path, release: CifarRelease) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and labels (n,) of a binary file: label byte(s) and 3,072 channel-major bytes each."""
    content = np.fromfile(path, dtype=np.uint8)
    record = release.label_bytes + PIXELS
    if content.size == 0 or content.size % record:
        raise InputError(
            f"{path} has {content.size} bytes, not a multiple of {record}: the file is truncated or not "
            f"this release. Get it again from {URL}."
        )
    rows = content.reshape(-1, record)
    labels = rows[:, release.label_bytes - 1].astype(np.int64)
    _check_range(labels, release, path)
    return _images(rows[:, release.label_bytes :]), labels


def read_pickle(path: Path, release: CifarRelease) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of a Python batch file."""
    content = safe_unpickle(path)
    data, labels = content.get(b"data"), content.get(release.label_key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PIXELS:
        raise InputError(f"{path}: 'data' must be a uint8 array of {PIXELS} columns; the file is not this release.")
    if not isinstance(labels, list) or not all(isinstance(k, int) for k in labels):
        raise InputError(f"{path}: {release.label_key.decode()!r} must be a list of integers.")
    if len(labels) != len(data):
        raise InputError(f"{path} has {len(labels)} labels for {len(data)} images; get it again from {URL}.")
    array = np.array(labels, dtype=np.int64)
    _check_range(array, release, path)
    return _images(data), array


class _ArraysOnly(pickle.Unpickler):
    """Knows how to rebuild a NumPy array and a byte string; refuses every other name."""

    _reconstruct: Any = np.empty(0).__reduce__()[0]
    _allowed: Mapping[tuple[str, str], Any] = {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """The few names that arrays and strings need."""
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is neither array nor string") from None


def safe_unpickle(path: Path) -> dict[bytes, Any]:
    """A pickled dictionary of arrays, strings and numbers; anything else in it is an error, and never runs."""
    try:
        with path.open("rb") as stream:
            content = _ArraysOnly(stream, encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise InputError(f"{path} cannot be read: {error or 'it ends too early'}. Get it again from {URL}.") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds {type(content).__name__}, not a dictionary; the file is not this release.")
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


def _images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _check_range(labels: NDArray[np.int64], release: CifarRelease, path: Path) -> None:
    if labels.min(initial=0) < 0 or labels.max(initial=0) >= release.n_classes:
        raise InputError(
            f"{path} holds label {labels.max()}, outside 0 … {release.n_classes - 1}: "
            "the file is damaged or of another release."
        )


def _check_digest(path: Path) -> None:
    expected = MD5["/".join(path.parts[-2:])]
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if found != expected:
        raise InputError(f"{path} has md5 {found}, the published one is {expected}. Get it again from {URL}.")


def _class_names(path: Path, release: CifarRelease) -> tuple[str, ...]:
    if not path.exists():
        return tuple(str(k) for k in range(release.n_classes))
    names: Sequence[Any]
    if path.suffix == ".txt":
        names = path.read_text(encoding="utf-8").split()
    else:
        names = safe_unpickle(path).get(release.names_key, [])
    if len(names) != release.n_classes:
        raise InputError(f"{path} names {len(names)} classes; this release has {release.n_classes}.")
    return tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)


def _form(name: str, release: CifarRelease, root: Path) -> str:
    """The format that is complete below `root`."""
    missing = {}
    for form, folder in release.folders.items():
        files = [*release.train[form], *release.test[form]]
        missing[form] = [f"{folder}/{file}" for file in files if not (root / folder / file).is_file()]
        if not missing[form]:
            return form
    form = min(missing, key=lambda f: len(missing[f]))
    raise InputError(
        f"{name} is not complete below {root}: missing {', '.join(missing[form])}. Download the "
        f"{form} version from {URL} and unpack it there, so that {root / release.folders[form]} holds its files; "
        f"the folder is set by data.root."
    )

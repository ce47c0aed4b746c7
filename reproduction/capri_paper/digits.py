"""Handwritten digits from scikit-learn, written as the files of other data, for runs that take seconds."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from capri.data.cifar import RELEASES
from capri.extension import write_atomically

N_IMAGES = 300  # of them 50 to test on: a ResNet-32 takes a second for so many


def write_digits(folder: Path) -> None:
    """As a feature file, ``digits.npz``, and as CIFAR-10's binary files, unless they are there."""
    if (folder / "digits.npz").exists():
        return
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    release, pixels = RELEASES["cifar10"], np.kron(x.reshape(-1, 8, 8) * 15, np.ones((1, 4, 4))).reshape(-1, 1024)
    records = np.column_stack([y, pixels, pixels, pixels]).astype(np.uint8)[:N_IMAGES]
    files = [*release.train["binary"], *release.test["binary"]]
    for name, part in zip(files, np.array_split(records, len(files)), strict=True):
        write_atomically(folder / release.folders["binary"] / name, part.tobytes())
    test = np.arange(len(y)) % 3 == 2
    buffer = io.BytesIO()
    np.savez(buffer, x_train=x[~test] / 16, y_train=y[~test], x_test=x[test] / 16, y_test=y[test])
    write_atomically(folder / "digits.npz", buffer.getvalue())

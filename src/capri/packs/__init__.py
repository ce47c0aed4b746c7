"""Real scores that come with the package, to try things on: logits of networks that our own `capri train` made.

Each pack is the ``logits.npz`` of a training run, unchanged: logits of all test images in half precision, their labels,
class names, training counts, norms of the last layer, and a card of how it was made (`docs/model_card.md`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri import sampling
from capri._checks import InputError


@dataclass(frozen=True, eq=False)
class Pack:
    """Real scores to try things on.

    Parameters
    ----------
    logits : ndarray of shape (n, K)
        In the official order of the test images.
    y : ndarray of shape (n,)
        Their classes.
    train_counts : ndarray of shape (K,)
        Training images per class.
    class_names : tuple of str
        Names of the K classes.
    last_layer_norms : ndarray of shape (K,)
        Norm of each class's row in the network's last layer.
    card : mapping
        How the scores were made: settings, seeds, commit.
    """

    logits: NDArray[np.float32]
    y: NDArray[np.int64]
    train_counts: NDArray[np.int64]
    class_names: tuple[str, ...]
    last_layer_norms: NDArray[np.float64]
    card: Mapping[str, Any]

    def halves(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Two balanced halves, to tune on and to test on: half of each class.

        Parameters
        ----------
        seed : int
            The same seed gives the same halves.

        Returns
        -------
        (ndarray, ndarray)
            Positions of the samples.
        """
        return sampling.halves(self.y, len(self.class_names), seed)


def names() -> list[str]:
    """The packs that there are.

    Returns
    -------
    list of str
    """
    return sorted(f.name.removesuffix(".npz") for f in resources.files(__name__).iterdir() if f.name.endswith(".npz"))


@cache
def load(name: str) -> Pack:
    """A pack by name, read once.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Pack

    Examples
    --------
    >>> load("cifar10-lt").logits.shape
    (10000, 10)
    """
    if name not in names():
        raise InputError(f"there is no pack {name!r}; there are {', '.join(names())}.")
    with (resources.files(__name__) / f"{name}.npz").open("rb") as stream, np.load(stream) as file:
        order = np.argsort(np.concatenate([file["val_index"], file["test_index"]]), kind="stable")
        return Pack(
            np.concatenate([file["val_logits"], file["test_logits"]])[order].astype(np.float32),
            np.concatenate([file["val_y"], file["test_y"]])[order].astype(np.int64),
            file["train_counts"],
            tuple(map(str, file["class_names"])),
            file["last_layer_norms"],
            json.loads(str(file["card"])),
        )

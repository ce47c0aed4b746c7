"""Real scores that come with the package, to try things on: logits of networks that our own `capri train` made.

Each pack is the ``logits.npz`` of a training run, unchanged: logits of all test images in half precision, their labels,
class names, training counts, norms of the last layer, and a card of how it was made (`docs/model_card.md`).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri import sampling
from capri._arrays import Npz
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


#: SHA-256 of each pack's file.
DIGESTS: Mapping[str, str] = {
    "cifar10-lt": "31b77a313504df7eecb6122f7c7eac870cf1c3d9221e5c56df11d0f80b8bdce8",
    "cifar100-lt": "606818a252c53f6b253d7591a4c750720598a5c260c95463d6b0e3246ab8b0d1",
}


def names() -> list[str]:
    """The packs that there are.

    Returns
    -------
    list of str
    """
    return sorted(DIGESTS)


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
    content = (resources.files(__name__) / f"{name}.npz").read_bytes()
    if hashlib.sha256(content).hexdigest() != DIGESTS[name]:
        raise InputError(f"the pack {name!r} is damaged: its SHA-256 is not {DIGESTS[name]}; install capriors again.")
    file = Npz(io.BytesIO(content))

    def both(key: str) -> NDArray[Any]:
        return np.concatenate([file.get(f"val_{key}"), file.get(f"test_{key}")])

    order = np.argsort(both("index"), kind="stable")
    return Pack(
        both("logits")[order].astype(np.float32),
        both("y")[order].astype(np.int64),
        file.get("train_counts"),
        tuple(map(str, file.get("class_names"))),
        file.get("last_layer_norms"),
        json.loads(str(file.get("card"))),
    )

"""Class shares of the world: how often each class will occur where the classifier is used.

A validation set may be balanced by design, or drawn years ago. Class errors do not depend on its shares; the plain
error, F1, precision and costs do. Samples are therefore weighted, class by class, so that the classes have the shares
of the world. This module says what these are, and scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_counts
from capri.classes import Classes

Vector: TypeAlias = NDArray[np.float64]
TargetShares: TypeAlias = Literal["train", "validation"] | ArrayLike | Mapping[Any, float] | None


def target_shares(wanted: TargetShares, classes: Classes, class_counts: Vector | None) -> Vector | None:
    """Shares (K,) on any scale; None for those of the samples ("validation", or where nothing is wanted)."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        if wanted not in ("train", "validation"):
            raise InputError(f"target_shares is {wanted!r}; it must be 'train', 'validation', or one share per class.")
        if wanted == "train" and class_counts is None:
            raise InputError(
                "target_shares is 'train', and the training counts are unknown; give {argument}.",
                argument="class_counts",
            )
        if wanted == "validation" or class_counts is None:
            return None
        shares = class_counts
    else:
        shares = check_counts(classes.align(wanted, "target_shares"), len(classes), name="target_shares")
    if shares.min() == 0:
        k = int(shares.argmin())
        raise InputError(
            f"target_shares of class {classes.names[k]!r} is 0: a class that never occurs has no error. Drop the "
            "class, or give it a small share."
        )
    return shares


def in_shares(mass: NDArray[Any], totals: Vector, shares: Vector | None, classes: Any = slice(None)) -> NDArray[Any]:
    """Masses scaled class by class, so that the class totals have the given shares and the same sum.

    mass: (n,) of samples of the given classes, or (n, K). Classes without mass keep none.

    >>> in_shares(np.ones(3), np.array([2.0, 1.0]), np.array([1.0, 1.0]), np.array([0, 0, 1]))
    array([0.75, 0.75, 1.5 ])
    """
    if shares is None:
        return mass
    wanted = np.where(totals > 0, shares, 0.0)
    factor = np.divide(wanted * (totals.sum() / wanted.sum()), totals, out=np.zeros(len(totals)), where=totals > 0)
    return np.asarray(mass * factor[classes].astype(mass.dtype))

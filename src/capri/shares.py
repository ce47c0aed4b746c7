"""Class shares of the world: how often each class will occur where the classifier is used.

A validation set may be balanced by design, or drawn years ago. Class errors do not depend on its shares; the plain
error, F1, precision and costs do. Samples are therefore weighted, class by class, so that the classes have the shares
of the world. This module says what these are, scales, and says what other shares mean for a decision that is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_counts
from capri.classes import Classes
from capri.forms import ClassContext, ErrorEvaluator, Evaluator, exact_importance
from capri.objectives import Objective

Vector: TypeAlias = NDArray[np.float64]
PROBES, SAME = 5, 1e-12  # class errors by which two objectives are told apart, and rounding
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
        return class_shares(wanted, classes, "target_shares")
    return _positive(shares, classes, "target_shares")


def class_shares(given: ArrayLike | Mapping[Any, float], classes: Classes, name: str) -> Vector:
    """Shares (K,) on any scale, aligned by label; all above 0."""
    return _positive(check_counts(classes.align(given, name), len(classes), name=name), classes, name)


def _positive(shares: Vector, classes: Classes, name: str) -> Vector:
    if shares.min() == 0:
        k = int(shares.argmin())
        raise InputError(
            f"{name} of class {classes.names[k]!r} is 0: a class that never occurs has no error. Drop the "
            "class, or give it a small share."
        )
    return shares


def in_shares(mass: NDArray[Any], totals: Vector, shares: Vector | None, classes: Any = slice(None)) -> NDArray[Any]:
    """Masses scaled class by class, so that the class totals have the given shares and the same sum.

    mass: (n,) of samples of the given classes, or (n, K). Classes without mass keep none.

    >>> in_shares(np.ones(3), np.array([2.0, 1.0]), np.array([1.0, 1.0]), np.array([0, 0, 1]))
    array([0.75, 0.75, 1.5 ])
    """
    return mass if shares is None else np.asarray(mass * share_factors(totals, shares)[classes].astype(mass.dtype))


def share_factors(totals: Vector, shares: Vector) -> Vector:
    """By what masses of each class are multiplied, so that the totals have the given shares and the same sum."""
    wanted = np.where(totals > 0, shares, 0.0)
    return np.divide(wanted * (totals.sum() / wanted.sum()), totals, out=np.zeros(len(totals)), where=totals > 0)


def share_correction(
    objective: Objective, kept: Sequence[Objective], context: ClassContext, old: Vector, new: Vector
) -> Vector:
    """What other class shares add to the adjusted scores (K,) of a calibrated model, up to a constant.

    For Σ_k c_k Err_k it decides best by argmax log p(x|k) + log c_k, so the answer is log c(new) − log c(old): of the
    plain error, where c are the shares, log(new / old), and of class errors alone nothing.

    kept: what constraints limit. Where there is no such closed form, as for F1, an `InputError` says so.
    """
    k, before, after = len(old), context.with_totals(old), context.with_totals(new)
    for limited in kept:
        if not _alike(limited.on(before), limited.on(after), k):
            raise _tune_again(f"the constraint on {limited.name!r}")
    one, other = objective.on(before), objective.on(after)
    if _alike(one, other, k):
        return np.zeros(k)
    c, d = exact_importance(one, before), exact_importance(other, after)
    if c is None or d is None:
        raise _tune_again(f"the objective {objective.name!r}")
    return np.asarray(np.log(d) - np.log(c))


def _alike(one: Evaluator, other: Evaluator, n_classes: int) -> bool:
    """Is it the same function of class errors under both shares? Told by errors without pattern."""
    if not (isinstance(one, ErrorEvaluator) and isinstance(other, ErrorEvaluator)):
        return False
    probes = np.random.default_rng(0).random((PROBES, n_classes))
    return all(abs(one(errors) - other(errors)) < SAME for errors in probes)


def _tune_again(what: str) -> InputError:
    return InputError(
        f"{what} depends on the class shares in a way that has no closed form; tune again on the validation scores, "
        "with target_shares= (capri tune --target-shares)."
    )

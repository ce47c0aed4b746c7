"""Class errors and the confusion matrix: what objectives are functions of.

    Err_k = P[ŷ ≠ y | y = k]                                                   (Problem Setup)

Hard errors come from predictions, soft ones (for gradients) from softmax probabilities. A class without samples has an
undefined error (NaN); `resolve_absent` is the one place that decides what that means.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import (
    AbsentClassWarning,
    InputError,
    Ints,
    check_labels,
    check_names,
    check_sample_weight,
    check_scores,
)

Absent = Literal["error", "ignore"]
THIN = 5  # with fewer samples than this, the error of a class is a rough guess


def predict(scores: ArrayLike) -> Ints:
    """The class of the highest score; the lower index wins a tie, as `argmax` does."""
    return check_scores(scores).argmax(axis=1)


def class_totals(y: ArrayLike, n_classes: int, sample_weight: ArrayLike | None = None) -> NDArray[np.float64]:
    """Number (or total weight) of samples of each class."""
    labels = check_labels(y, n_classes)
    weight = check_sample_weight(sample_weight, len(labels))
    return np.bincount(labels, weights=weight, minlength=n_classes).astype(np.float64)


def confusion_matrix(
    y: ArrayLike, predictions: ArrayLike, n_classes: int, sample_weight: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Samples of class i predicted as class j, at [i, j].

    >>> confusion_matrix([0, 0, 1], [0, 1, 1], n_classes=2)
    array([[1., 1.],
           [0., 1.]])
    """
    labels = check_labels(y, n_classes)
    predicted = check_labels(predictions, n_classes, len(labels), name="predictions")
    weight = check_sample_weight(sample_weight, len(labels))
    cells = np.bincount(labels * n_classes + predicted, weights=weight, minlength=n_classes * n_classes)
    return cells.reshape(n_classes, n_classes).astype(np.float64)


def class_errors(
    y: ArrayLike, predictions: ArrayLike, n_classes: int, sample_weight: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Err_k for each class: the share of its samples that are predicted as something else.

    Parameters
    ----------
    y, predictions : array-like of shape (n_samples,)
        True and predicted classes, numbered 0 … n_classes − 1. `capri.evaluate` takes labels of any kind.
    n_classes : int
        How many classes there are.
    sample_weight : array-like of shape (n_samples,), optional
        How much each sample counts; 1 by default.

    Returns
    -------
    ndarray of shape (n_classes,)
        The class errors; NaN for a class without samples.

    Examples
    --------
    >>> class_errors([0, 0, 1, 1], [0, 1, 1, 1], n_classes=2)
    array([0.5, 0. ])
    """
    return errors_of(confusion_matrix(y, predictions, n_classes, sample_weight))


def errors_of(confusion: NDArray[np.float64]) -> NDArray[np.float64]:
    """The class errors (K,) of a confusion matrix, NaN for a class without samples."""
    totals = confusion.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(totals > 0, 1 - np.diag(confusion) / totals, np.nan)


def soft_class_errors(scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NDArray[np.float64]:
    """Differentiable twin of `class_errors`: the mean of 1 − softmax(scores)_y over the samples of each class."""
    probabilities = softmax(check_scores(scores))
    n_classes = probabilities.shape[1]
    labels = check_labels(y, n_classes, len(probabilities))
    weight = check_sample_weight(sample_weight, len(labels))
    wrong = 1 - probabilities[np.arange(len(labels)), labels]
    totals = np.bincount(labels, weights=weight, minlength=n_classes)
    sums = np.bincount(labels, weights=wrong if weight is None else wrong * weight, minlength=n_classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(totals > 0, sums / totals, np.nan)


def softmax(scores: ArrayLike) -> NDArray[np.float64]:
    """Rows of probabilities from rows of scores, without overflow."""
    z = np.asarray(scores, dtype=np.float64)
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def resolve_absent(
    totals: ArrayLike, absent: Absent = "error", class_names: Sequence[str] | None = None
) -> NDArray[np.bool_]:
    """Which classes count. A class with no sample is an error, or with `absent="ignore"` left out with a warning.

    >>> resolve_absent([3, 2])
    array([ True,  True])
    """
    present = np.asarray(totals) > 0
    if not isinstance(absent, str) or absent not in ("error", "ignore"):
        raise InputError(f"absent is {absent!r}; it must be 'error' or 'ignore'.")
    if class_names is not None:
        class_names = check_names(class_names, len(present))
    if present.all():
        return present
    names = [str(k) if class_names is None else f"{class_names[k]!r} ({k})" for k in np.flatnonzero(~present).tolist()]
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    if not present.any():
        raise InputError("no class has any sample (or all sample weights are zero); the class errors are undefined.")
    one = len(names) == 1
    said = f"class {shown} has no sample here" if one else f"classes {shown} have no sample here"
    if absent == "error":
        raise InputError(
            f"{said}, so {'its error is' if one else 'their errors are'} undefined. Add samples, or pass {{argument}} "
            "to leave such classes out of the objective.",
            argument="absent",
            value="ignore",
        )
    warnings.warn(f"{said} and {'is' if one else 'are'} left out of the objective.", AbsentClassWarning, stacklevel=3)
    return present

"""Evaluation: objectives of predictions, of confusion matrices, and as scikit-learn scorers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri.errors import Absent, confusion_matrix, resolve_absent
from capri.forms import ClassContext, on_confusion
from capri.objectives import ObjectiveLike, as_objective

STANDARD = ("plain", "balanced", "worst", "cvar:0.2", "quantile:0.2", "sdev")


def evaluate(
    y: ArrayLike,
    predictions: ArrayLike,
    n_classes: int,
    objectives: Sequence[ObjectiveLike] = STANDARD,
    *,
    sample_weight: ArrayLike | None = None,
    absent: Absent = "error",
    class_names: Sequence[str] | None = None,
    **context: Any,
) -> dict[str, float]:
    """Objectives of some predictions, by name. `context` holds weights, groups, train_counts where an objective asks.

    >>> evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, ["balanced", "sdev"])
    {'balanced': 0.25, 'sdev': 0.25}
    """
    confusion = confusion_matrix(y, predictions, n_classes, sample_weight)
    return evaluate_confusion(confusion, objectives, absent=absent, class_names=class_names, **context)


def evaluate_confusion(
    confusion: NDArray[np.float64],
    objectives: Sequence[ObjectiveLike] = STANDARD,
    *,
    absent: Absent = "error",
    class_names: Sequence[str] | None = None,
    **context: Any,
) -> dict[str, float]:
    """Objectives of a confusion matrix (rows are true classes), by name."""
    totals = confusion.sum(axis=1)
    resolve_absent(totals, absent, class_names)
    classes = ClassContext.of(totals, class_names=class_names, **context)
    return {o.name: on_confusion(o.on(classes), confusion) for o in map(as_objective, objectives)}


def make_scorer(objective: ObjectiveLike, *, absent: Absent = "error", **context: Any) -> Callable[..., float]:
    """A scikit-learn scorer: minus the objective of ``estimator.predict``, so that greater is better.

    >>> from sklearn.dummy import DummyClassifier
    >>> model = DummyClassifier(strategy="constant", constant=0).fit([[0], [1]], [0, 1])
    >>> make_scorer("balanced")(model, [[0], [1]], [0, 1])
    -0.5
    """
    parsed = as_objective(objective)

    def scorer(estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        classes = np.asarray(estimator.classes_)
        index: Mapping[Any, int] = {c: k for k, c in enumerate(classes.tolist())}
        labels = _encode(np.asarray(y), index, "y")
        predicted = _encode(np.asarray(estimator.predict(X)), index, "predictions")
        values = evaluate(
            labels, predicted, len(classes), [parsed], sample_weight=sample_weight, absent=absent, **context
        )
        return -values[parsed.name]

    return scorer


def _encode(values: NDArray[Any], index: Mapping[Any, int], name: str) -> NDArray[np.int64]:
    unknown = set(values.tolist()) - set(index)
    if unknown:
        raise InputError(f"{name} holds {sorted(map(str, unknown))[0]!r}, which the model does not know.")
    return np.array([index[v] for v in values.tolist()], dtype=np.int64)

"""`ClassErrorMetric`: an objective on class errors, watched while trees grow."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import AbsentClassWarning, check_labels, check_sample_weight, check_scores
from capri.errors import confusion_matrix
from capri.evaluation import evaluate_confusion
from capri.objectives import ObjectiveLike, as_objective


@dataclass(frozen=True)
class ClassErrorMetric:
    """An objective on class errors as a metric of gradient boosting, lower is better.

    A sample is decided by its highest raw score. Classes without samples among those that are watched are left out.

    Parameters
    ----------
    objective : name, Objective, or function of class errors
        See `capri.objective_names`.
    class_counts, weights, groups : per class, optional
        What the objective may ask for.
    class_names : sequence of str, optional
        For objectives of one class, such as ``err[lynx]``.

    Examples
    --------
    >>> ClassErrorMetric("balanced").value([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [0.0, 1.0]], [0, 0, 1, 1])
    0.25
    """

    objective: ObjectiveLike = "balanced"
    class_counts: ArrayLike | None = None
    weights: ArrayLike | None = None
    groups: ArrayLike | None = None
    class_names: Sequence[str] | None = field(default=None)

    def value(self, scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The objective of decisions by raw scores.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
        y : array-like of shape (n_samples,)
            Class numbers from 0.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        values = check_scores(scores)
        k = values.shape[1]
        labels = check_labels(y, k, len(values))
        weight = check_sample_weight(sample_weight, len(values))
        confusion = confusion_matrix(labels, values.argmax(axis=1), k, weight)
        known: dict[str, Any] = {name: getattr(self, name) for name in ("class_counts", "weights", "groups")}
        known["class_names"] = self.class_names
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AbsentClassWarning)  # at every round
            [figure] = evaluate_confusion(confusion, [self.objective], absent="ignore", **known).values()
        return float(figure)

    @property
    def name(self) -> str:
        """The objective's name without blanks and colons, which XGBoost's log cannot hold."""
        return "".join(as_objective(self.objective).name.split()).replace(":", "@")

    def xgboost(self, margins: NDArray[Any], data: Any) -> tuple[str, float]:
        """For ``xgboost.train(…, custom_metric=metric.xgboost)`` beside a custom objective.

        Parameters
        ----------
        margins : array of shape (n_samples, K)
        data : xgboost.DMatrix

        Returns
        -------
        tuple of the name and the value
        """
        weight = data.get_weight()
        return self.name, self.value(margins, data.get_label(), weight if len(weight) else None)

    def lightgbm(self, scores: NDArray[Any], data: Any) -> tuple[str, float, bool]:
        """For ``lightgbm.train(…, feval=metric.lightgbm)``.

        Parameters
        ----------
        scores : array of shape (n_samples, K)
        data : lightgbm.Dataset

        Returns
        -------
        tuple of the name, the value, and whether more is better
        """
        return self.name, self.value(scores, data.get_label(), data.get_weight()), False

    def xgboost_sklearn(self, y: NDArray[Any], margins: NDArray[Any], sample_weight: Any = None) -> float:
        """For ``XGBClassifier(eval_metric=metric.xgboost_sklearn)``.

        Parameters
        ----------
        y : array of shape (n_samples,)
        margins : array of shape (n_samples, K)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return self.value(margins, y, sample_weight)

    def lightgbm_sklearn(
        self, y: NDArray[Any], scores: NDArray[Any], sample_weight: Any = None
    ) -> tuple[str, float, bool]:
        """For ``LGBMClassifier.fit(…, eval_metric=metric.lightgbm_sklearn)``.

        Parameters
        ----------
        y : array of shape (n_samples,)
        scores : array of shape (n_samples, K)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        tuple of the name, the value, and whether more is better
        """
        return self.name, self.value(scores, y, sample_weight), False

    def catboost(self) -> Any:
        """For ``CatBoostClassifier(eval_metric=metric.catboost())``.

        Returns
        -------
        object
            With the methods that CatBoost calls.
        """
        return _CatBoostMetric(self)


class _CatBoostMetric:
    """CatBoost's way to ask: scores come class by class, two classes as one margin."""

    no_jit = True

    def __init__(self, metric: ClassErrorMetric) -> None:
        self._metric = metric

    def is_max_optimal(self) -> bool:
        return False

    def evaluate(self, scores: Any, y: Any, weight: Any) -> tuple[float, float]:
        of_classes = np.column_stack(scores if len(scores) > 1 else [np.zeros(len(y)), scores[0]])
        return self._metric.value(of_classes, y, weight), 1.0

    def get_final_error(self, error: float, weight: float) -> float:
        return error / weight

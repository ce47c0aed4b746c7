"""`CAPClassifierCV`: any scikit-learn classifier, tuned for the objective that matters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils import get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from capri._checks import InputError
from capri.constraints import ConstraintLike
from capri.evaluation import STANDARD, evaluate
from capri.objectives import ObjectiveLike, as_objective
from capri.posthoc.adjuster import LogitAdjuster
from capri.posthoc.methods import Pooling
from capri.posthoc.pooling import FOLDS, stratified_folds


def _wrapped_has(name: str) -> Any:
    return available_if(lambda self: hasattr(getattr(self, "estimator_", self.estimator), name))


class CAPClassifierCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Wrap a classifier and tune its decisions for an objective on class errors.

    The multi-class counterpart of scikit-learn's TunedThresholdClassifierCV: out-of-fold scores (or, for a fitted
    model, its scores on the data given) are adjusted by a `LogitAdjuster`, then the model is refitted on all data.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba` or `decision_function`.
    objective, method, attributes, pooling, constraints, weights, groups
        As in `LogitAdjuster`.
    response_method : {"auto", "predict_proba", "decision_function"}
        "auto" takes the first of these that exists.
    cv : int, splitter, iterable or "prefit", default 5
        A FrozenEstimator is "prefit" too.
    refit : bool
        Fit the model on all data after tuning; False keeps the model of the last fold (one split only).
    store_cv_results : bool
        Keep `cv_results_`: for each fold, objectives before and after, tuned without that fold.
    n_jobs, random_state
        As usual.

    Attributes
    ----------
    estimator_ : classifier
        The fitted model.
    adjuster_ : LogitAdjuster
        Fitted on the model's scores.
    policy_ : Policy
        The adjuster's.
    classes_ : array
        Labels.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_classification(600, n_classes=3, n_informative=5, weights=[0.8, 0.15, 0.05], random_state=0)
    >>> model = CAPClassifierCV(LogisticRegression(), objective="balanced").fit(X, y)
    >>> model.validation_.after["balanced"] < model.validation_.before["balanced"]
    True
    """

    def __init__(
        self,
        estimator: Any,
        objective: ObjectiveLike = "balanced",
        *,
        method: str = "cap",
        attributes: Literal["auto"] | Sequence[str] = "auto",
        pooling: Pooling = "auto",
        constraints: Sequence[ConstraintLike] | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        response_method: Literal["auto", "predict_proba", "decision_function"] = "auto",
        cv: Any = 5,
        refit: bool = True,
        store_cv_results: bool = False,
        n_jobs: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.method = method
        self.attributes = attributes
        self.pooling = pooling
        self.constraints = constraints
        self.weights = weights
        self.groups = groups
        self.response_method = response_method
        self.cv = cv
        self.refit = refit
        self.store_cv_results = store_cv_results
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        class_counts: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the model, tune its decisions. class_counts: training samples per class, for a model fitted elsewhere."""
        X, y = indexable(X, y)
        targets = column_or_1d(y, warn=True)
        check_classification_targets(targets)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight is not None:
            fit_params = {**fit_params, "sample_weight": weight}
        if self._is_prefit():
            self.estimator_ = self.estimator
            check_is_fitted(self.estimator_)
            self.classes_ = np.asarray(self.estimator_.classes_)
            kind = self._kind(self.estimator_)
            scores, rows = _scores(self.estimator_, X, kind, self.classes_), np.arange(len(targets))
            folds = np.zeros(len(targets), np.int64)
        else:
            self.classes_ = np.unique(targets)
            if len(self.classes_) < 2:
                held = f"1 class only ({self.classes_[0]!r})" if len(self.classes_) else "no sample"
                raise InputError(f"y holds {held}; a classifier needs two or more classes.")
            class_counts = (
                np.bincount(np.searchsorted(self.classes_, targets)) if class_counts is None else class_counts
            )
            kind, scores, rows, folds = self._out_of_fold(X, targets, fit_params)
        tuning_weight = None if weight is None else weight[rows]
        self.adjuster_ = self._adjuster(kind).fit(scores, targets[rows], class_counts, tuning_weight)
        self.policy_, self.validation_ = self.adjuster_.policy_, self.adjuster_.validation_
        if self.store_cv_results:
            self.cv_results_ = self._nested(kind, scores, targets[rows], folds, class_counts, tuning_weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    # -- use ---------------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels by the tuned decision."""
        check_is_fitted(self)
        scores = _scores(self.estimator_, X, self._kind(self.estimator_), self.classes_)
        return np.asarray(self.adjuster_.predict(scores))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Adjusted scores (n_samples, K); for two classes their difference, (n_samples,)."""
        check_is_fitted(self)
        return self.adjuster_.decision_function(_scores(self.estimator_, X, self._kind(self.estimator_), self.classes_))

    @_wrapped_has("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The wrapped model's own probabilities: tuning changes decisions, not beliefs."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    @_wrapped_has("predict_log_proba")
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The wrapped model's own log-probabilities."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_log_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        wrapped = get_tags(self.estimator)
        tags.input_tags.sparse = wrapped.input_tags.sparse
        tags.input_tags.allow_nan = wrapped.input_tags.allow_nan
        tags.classifier_tags.multi_label = False
        return tags

    # -- the parts of fit --------------------------------------------------------------------------------------------

    def _is_prefit(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (isinstance(self.cv, str) and self.cv == "prefit")

    def _kind(self, model: Any) -> str:
        if self.response_method != "auto":
            return self.response_method
        for name in ("predict_proba", "decision_function"):
            if hasattr(model, name):
                return name
        raise InputError(
            f"{type(model).__name__} has neither predict_proba nor decision_function, so it gives no scores."
        )

    def _adjuster(self, kind: str) -> LogitAdjuster:
        return LogitAdjuster(
            self.objective,
            method=self.method,
            attributes=self.attributes,
            pooling=self.pooling,
            constraints=self.constraints,
            scores="proba" if kind == "predict_proba" else "logits",
            classes=self.classes_.tolist(),
            weights=self.weights,
            groups=self.groups,
            absent="ignore",
            random_state=self.random_state,
        )

    def _out_of_fold(
        self, X: Any, y: NDArray[Any], fit_params: dict[str, Any]
    ) -> tuple[str, NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Scores of samples by models that have not seen them; which samples, and the fold of each."""
        splits = list(check_cv(self.cv, y, classifier=True).split(X, y))
        if not self.refit and len(splits) != 1:
            raise InputError(f"refit=False keeps the model of a single split; cv has {len(splits)}. Use refit=True.")
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_on)(clone(self.estimator), X, y, train, fit_params) for train, _ in splits
        )
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params) if self.refit else models[-1]
        kind = self._kind(self.estimator_)
        scores = [
            _scores(model, _safe_indexing(X, test), kind, self.classes_)
            for model, (_, test) in zip(models, splits, strict=True)
        ]
        rows = np.concatenate([test for _, test in splits])
        folds = np.concatenate([np.full(len(test), f) for f, (_, test) in enumerate(splits)])
        return kind, np.concatenate(scores), rows, folds

    def _nested(
        self,
        kind: str,
        scores: NDArray[np.float64],
        y: NDArray[Any],
        folds: NDArray[np.int64],
        counts: ArrayLike | None,
        weight: NDArray[np.float64] | None,
    ) -> dict[str, NDArray[np.float64]]:
        labels = np.searchsorted(self.classes_, y)
        if not folds.any():  # one split: its samples are divided
            folds = stratified_folds(labels, FOLDS, self.random_state)
        objective = as_objective(self.objective)
        wanted = {n: n for n in STANDARD} | {objective.name: objective}
        rows: dict[str, list[float]] = {f"{when}_{n}": [] for n in wanted for when in ("before", "after")}
        for fold in np.unique(folds[folds >= 0]):
            held = folds == fold
            fitting, judging = (None if weight is None else weight[part] for part in (~held, held))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                adjuster = self._adjuster(kind).fit(scores[~held], y[~held], counts, fitting)
                for when, values in (("before", scores[held]), ("after", adjuster.transform(scores[held]))):
                    figures = evaluate(
                        labels[held],
                        values.argmax(axis=1),
                        len(self.classes_),
                        list(wanted.values()),
                        sample_weight=judging,
                        absent="ignore",
                        class_names=self.adjuster_.policy_.class_names,
                        weights=self.weights,
                        groups=self.groups,
                        train_counts=counts,
                    )
                    for name, figure in figures.items():
                        rows[f"{when}_{name}"].append(figure)
        return {name: np.array(values) for name, values in rows.items()}


def _fit_on(model: Any, X: Any, y: NDArray[Any], train: NDArray[np.int64], fit_params: dict[str, Any]) -> Any:
    params = {k: v[train] if isinstance(v, np.ndarray) and len(v) == len(y) else v for k, v in fit_params.items()}
    return model.fit(_safe_indexing(X, train), y[train], **params)


def _scores(model: Any, X: Any, kind: str, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Scores (n_samples, K) in the order of `classes`; classes that the model has not met get its lowest score."""
    response = np.asarray(getattr(model, kind)(X), dtype=np.float64)
    if response.ndim == 1:  # two classes, one margin
        response = np.column_stack([np.zeros(len(response)), response])
    known = np.asarray(model.classes_)
    if np.array_equal(known, classes):
        return response
    aligned = np.zeros((len(response), len(classes)))
    if kind != "predict_proba":  # far below the row's own scores, whatever other rows hold
        aligned += (response.min(axis=1) - 10 * (np.ptp(response, axis=1) + 1))[:, None]
    aligned[:, np.searchsorted(classes, known)] = response
    return aligned

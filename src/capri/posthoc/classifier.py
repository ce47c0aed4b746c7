"""`CAPClassifierCV`: any scikit-learn classifier, tuned for the objective that matters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, _fit_context, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedShuffleSplit, check_cv
from sklearn.utils import Bunch, get_tags, indexable
from sklearn.utils._indexing import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
)

from capri._checks import InputError, InputWarning
from capri.attributes import Attributes
from capri.constraints import ConstraintLike
from capri.dictionary import BASIS, BasisFunction, Scaling
from capri.errors import Absent
from capri.evaluation import STANDARD, evaluate
from capri.objectives import ObjectiveLike, as_objective
from capri.page import Report
from capri.policy import FLOOR
from capri.posthoc.abstention import refuse_score
from capri.posthoc.adjuster import BORROW, LogitAdjuster
from capri.posthoc.heldout import FOLDS
from capri.posthoc.methods import Parameters, Pooling
from capri.posthoc.tradeoff import Frontier
from capri.sampling import stratified_folds
from capri.shares import TargetShares

#: What the wrapper hands on to the adjuster as it is.
TUNING = (
    "objective", "method", "attributes", "parameters", "pooling", "constraints", "weights", "groups", "absent", "basis",
    "scaling", "floor", "borrow", "target_shares", "guarantee", "reject", "min_coverage", "bootstrap",
)  # fmt: skip


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
    objective, method, attributes, parameters, pooling, constraints, weights, groups, basis, scaling, floor, borrow
        As in `LogitAdjuster`.
    target_shares, guarantee, reject, min_coverage, bootstrap
        As in `LogitAdjuster`. A guarantee is about the model whose scores are tested: one that is fitted already, or
        that of a single split with ``refit=False``.
    absent : {"error", "ignore"}, default "ignore"
        As in `LogitAdjuster`; classes can be absent where `cv` judges only some of the samples.
    response_method : {"auto", "predict_proba", "decision_function"}, default "auto"
        Which scores to tune; "auto" takes the first of these that exists.
    cv : int, float, splitter, iterable of splits or "prefit", default 5
        A number between 0 and 1 is the share of the samples that one split tunes on. A FrozenEstimator is "prefit",
        too.
    refit : bool, default True
        Fit the model on all data after tuning; False keeps the model of the one split.
    store_cv_results : bool, default False
        Keep `cv_results_`: for each fold, objectives before and after, tuned without that fold.
    n_jobs : int, optional
        Processes that fit the folds' models.
    random_state : int, default 0
        Seed of the tuning.

    Attributes
    ----------
    estimator_ : classifier
        The fitted model.
    adjuster_ : LogitAdjuster
        What tunes its scores.
    policy_, validation_, promise_, abstention_
        The adjuster's.
    classes_ : array of shape (K,)
        Labels.

    Notes
    -----
    `sample_weight` reaches the model, if its `fit` takes weights, and the tuning; `groups` reach the splitter. With
    scikit-learn's metadata routing enabled both go where they are requested, and so does any other metadata.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_classification(600, n_classes=3, n_informative=5, weights=[0.8, 0.15, 0.05], random_state=0)
    >>> model = CAPClassifierCV(LogisticRegression(), objective="balanced").fit(X, y)
    >>> model.validation_.after["balanced"] < model.validation_.before["balanced"]
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods("fit")],
        **{name: LogitAdjuster._parameter_constraints[name] for name in TUNING},
        "response_method": [StrOptions({"auto", "predict_proba", "decision_function"})],
        "cv": ["cv_object", StrOptions({"prefit"}), Interval(RealNotInt, 0, 1, closed="neither")],
        "refit": ["boolean"],
        "store_cv_results": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": LogitAdjuster._parameter_constraints["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        objective: ObjectiveLike = "balanced",
        *,
        method: str = "cap",
        attributes: Literal["auto"] | Sequence[str] = "auto",
        parameters: Parameters = "l",
        pooling: Pooling = "auto",
        constraints: Sequence[ConstraintLike] | None = None,
        weights: ArrayLike | Mapping[Any, float] | None = None,
        groups: ArrayLike | Mapping[Any, Any] | None = None,
        absent: Absent = "ignore",
        basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS),
        scaling: Scaling = "whiten",
        floor: float = FLOOR,
        borrow: float = BORROW,
        target_shares: TargetShares = None,
        guarantee: float | None = None,
        reject: float | str | None = None,
        min_coverage: float = 0.5,
        bootstrap: int = 200,
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
        self.parameters = parameters
        self.pooling = pooling
        self.constraints = constraints
        self.weights = weights
        self.groups = groups
        self.absent = absent
        self.basis = basis
        self.scaling = scaling
        self.floor = floor
        self.borrow = borrow
        self.target_shares = target_shares
        self.guarantee = guarantee
        self.reject = reject
        self.min_coverage = min_coverage
        self.bootstrap = bootstrap
        self.response_method = response_method
        self.cv = cv
        self.refit = refit
        self.store_cv_results = store_cv_results
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        class_attributes: Mapping[str, Any] | Attributes | None = None,
        **params: Any,
    ) -> Self:
        """Fit the model and tune its decisions.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
            As the model takes it.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            For the model and for the class errors.
        class_counts : per class, optional
            Training samples, for a model that was fitted elsewhere; by default those of `y`.
        class_attributes : mapping, DataFrame or Attributes, optional
            As in `LogitAdjuster.fit`.
        **params
            `groups` for the splitter, and with metadata routing what else is requested.

        Returns
        -------
        CAPClassifierCV
            Itself.
        """
        X, y = indexable(X, y)
        targets = column_or_1d(y, warn=True)
        check_classification_targets(targets)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        if self.guarantee is not None and self.refit and not self._is_prefit():
            raise InputError(
                "guarantee is about the model whose scores are tested, and refit=True trains another one: use a single "
                "split, such as cv=0.3, with refit=False, or give a model that is fitted."
            )
        routed = self._route(weight, params)
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
            if class_counts is None:
                class_counts = np.bincount(np.searchsorted(self.classes_, targets))
            kind, scores, rows, folds = self._out_of_fold(X, targets, routed)
        known = {"class_counts": class_counts, "class_attributes": class_attributes}
        tuning_weight = None if weight is None else weight[rows]
        self.adjuster_ = self._adjuster(kind).fit(scores, targets[rows], tuning_weight, **known)
        for name in ("policy_", "validation_", "promise_", "abstention_"):
            setattr(self, name, getattr(self.adjuster_, name))
        if self.store_cv_results:
            self.cv_results_ = self._nested(kind, scores, targets[rows], rows, folds, tuning_weight, known)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Where metadata of `fit` may go: to this estimator, the wrapped one and the splitter."""
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
        router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def _route(self, weight: NDArray[np.float64] | None, params: dict[str, Any]) -> Bunch:
        """What the model's `fit` and the splitter get."""
        if _routing_enabled():
            given = {} if weight is None else {"sample_weight": weight}
            return process_routing(self, "fit", **given, **params)
        _raise_for_params(params, self, "fit", allow=["groups"])
        weighted = weight is not None and has_fit_parameter(self.estimator, "sample_weight")
        if weight is not None and not weighted:
            warnings.warn(
                f"{type(self.estimator).__name__}.fit takes no sample_weight: the weights count in tuning, not in the "
                "model. Enable scikit-learn's metadata routing to send them through a pipeline.",
                InputWarning,
                stacklevel=3,
            )
        groups = {"groups": params["groups"]} if params.get("groups") is not None else {}
        return Bunch(estimator=Bunch(fit={"sample_weight": weight} if weighted else {}), splitter=Bunch(split=groups))

    # -- use ---------------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels by the tuned decision.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
            As the model takes it.

        Returns
        -------
        array of shape (n_samples,)
        """
        scores = self.scores(X)
        return np.asarray(self.adjuster_.predict(scores))

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy, as of any classifier; refused where samples may be left undecided.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
            As the model takes it.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        refuse_score(self.reject)
        return float(super().score(X, y, sample_weight))

    def scores(self, X: Any) -> NDArray[np.float64]:
        """What the wrapped model gives, before any adjustment.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
            As the model takes it.

        Returns
        -------
        array of shape (n_samples, K)
            Probabilities or decision values, in the order of `classes_`.
        """
        check_is_fitted(self)
        return _scores(self.estimator_, X, self._kind(self.estimator_), self.classes_)

    @property
    def report_(self) -> Report:
        """What tuning changed, as a page that shows itself in notebooks; ``report_.save("report.html")`` keeps it."""
        return self.report()

    def report(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        frontier: Frontier | None = None,
    ) -> Report:
        """The page of `report_`, with test samples and other trade-offs where they are given.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features), optional
            Samples that neither training nor tuning has seen.
        y : array-like of shape (n_samples,), optional
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
        frontier : Frontier, optional
            As in `LogitAdjuster.report`.

        Returns
        -------
        Report
        """
        check_is_fitted(self)
        scores = None if X is None else self.scores(X)
        return self.adjuster_.report(scores, y, sample_weight, frontier=frontier)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Adjusted scores of X, as `predict` takes it; for two classes the second's less the first's."""
        scores = self.scores(X)
        return self.adjuster_.decision_function(scores)

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
            **{name: getattr(self, name) for name in TUNING},
            scores="proba" if kind == "predict_proba" else "logits",
            classes=self.classes_.tolist(),
            random_state=self.random_state,
        )

    def _out_of_fold(
        self, X: Any, y: NDArray[Any], routed: Bunch
    ) -> tuple[str, NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """Scores of samples by models that have not seen them; which samples, and the fold of each."""
        cv = self.cv
        if isinstance(cv, float):
            cv = StratifiedShuffleSplit(1, test_size=cv, random_state=self.random_state)
        splits = list(
            check_cv(cv, y, classifier=True).split(X, y, **routed.splitter.split)
        )  # asked once: it may be random
        if not self.refit and len(splits) != 1:
            raise InputError(f"refit=False keeps the model of a single split; cv has {len(splits)}. Use refit=True.")
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_on)(clone(self.estimator), X, y, train, routed.estimator.fit) for train, _ in splits
        )
        self.estimator_ = clone(self.estimator).fit(X, y, **routed.estimator.fit) if self.refit else models[-1]
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
        samples: NDArray[np.int64],
        folds: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        known: Mapping[str, Any],
    ) -> dict[str, NDArray[np.float64]]:
        if not folds.any():  # one split: its samples are divided
            folds = stratified_folds(np.searchsorted(self.classes_, y), FOLDS, self.random_state)
        objective = as_objective(self.objective)
        wanted = {n: n for n in STANDARD} | {objective.name: objective}
        rows: dict[str, list[float]] = {f"{when}_{n}": [] for n in wanted for when in ("before", "after")}
        for fold in np.unique(folds[folds >= 0]):
            held = folds == fold
            rest = ~np.isin(samples, samples[held])  # a sample that is judged here may be in other folds, too
            fitting, judging = (None if weight is None else weight[part] for part in (rest, held))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                adjuster = self._adjuster(kind).set_params(bootstrap=0).fit(scores[rest], y[rest], fitting, **known)
                for when, values in (("before", scores[held]), ("after", adjuster.transform(scores[held]))):
                    figures = evaluate(
                        y[held],
                        self.classes_[values.argmax(axis=1)],
                        self.classes_,
                        list(wanted.values()),
                        sample_weight=judging,
                        absent="ignore",
                        weights=self.weights,
                        groups=self.groups,
                        class_counts=known["class_counts"],
                    )
                    for name, figure in figures.items():
                        rows[f"{when}_{name}"].append(figure)
        return {name: np.array(values) for name, values in rows.items()}


def _fit_on(model: Any, X: Any, y: NDArray[Any], train: NDArray[np.int64], fit_params: dict[str, Any]) -> Any:
    return model.fit(_safe_indexing(X, train), y[train], **_check_method_params(X, fit_params, indices=train))


def _scores(model: Any, X: Any, kind: str, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Scores (n_samples, K) in the order of `classes`; classes that the model has not met get its lowest score."""
    response = np.asarray(getattr(model, kind)(X), dtype=np.float64)
    if response.ndim == 1:  # two classes, one margin
        response = np.column_stack([np.zeros(len(response)), response])
    known, last = np.asarray(model.classes_), model[-1] if hasattr(model, "steps") else model
    pairwise = kind == "decision_function" and getattr(last, "decision_function_shape", None) == "ovo"
    if pairwise or response.shape[1] != len(known):
        raise InputError(
            f"{type(last).__name__}.{kind} gives {response.shape[1]} scores for {len(known)} classes; tuning needs one "
            'score per class. For pairwise margins set decision_function_shape="ovr".'
        )
    if np.array_equal(known, classes):
        return response
    aligned = np.zeros((len(response), len(classes)))
    if kind != "predict_proba":  # far below the row's own scores, whatever other rows hold
        aligned += (response.min(axis=1) - 10 * (np.ptp(response, axis=1) + 1))[:, None]
    aligned[:, np.searchsorted(classes, known)] = response
    return aligned

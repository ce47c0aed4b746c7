"""`CAPBoostingClassifier`: boosted trees that are trained for the classes that matter."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, _fit_context, clone
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from capri._checks import InputError, check_sample_weight
from capri.boosting.derivatives import best_constant, softmax
from capri.boosting.libraries import Samples, library_of
from capri.boosting.loss import TreeLoss
from capri.boosting.metric import ClassErrorMetric
from capri.classes import Classes
from capri.objectives import ObjectiveLike
from capri.policy import Policy
from capri.posthoc import CAPClassifierCV, LogitAdjuster
from capri.strategy import Strategy


class Numbered(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is given class numbers, behind labels of any kind: XGBoost takes no others.

    Parameters
    ----------
    estimator : classifier
        With `predict_proba`.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """As any classifier's."""
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.estimator_ = clone(self.estimator).fit(X, codes, sample_weight=sample_weight)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The classifier's own."""
        return np.asarray(self.estimator_.predict_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        wrapped = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = wrapped.sparse, wrapped.allow_nan
        return tags


class CAPBoostingClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Boosted trees with a loss of their own for each class.

    By default post-hoc → retrain: the plain trees' scores are tuned for the objective, and what that finds becomes the
    loss of new trees. Their highest score decides; nothing is adjusted afterwards.

    Offsets alone would change nothing: trees that start from the best constant grow as those of the plain loss do, and
    come to their decisions after post-hoc adjustment. So a share of the offsets' work is given to weights, which have
    the same ideal decisions and grow other trees (`Strategy.reweighted`).

    Parameters
    ----------
    estimator : XGBClassifier, LGBMClassifier or CatBoostClassifier
        All settings are kept, but for the loss and the metric.
    objective : name, Objective, or function of class errors, default "balanced"
        What tuning seeks, and what is watched on `eval_set`.
    strategy : "posthoc", Strategy or Policy, default "posthoc"
        The loss: by tuning, or as given. A policy for the post-hoc side is `transferred`.
    weighting : float, default 0.5
        That share, from 0 to 1, where the loss comes of post-hoc tuning; a strategy that is given is taken as it is.
    cv : int, float or splitter, default 5
        As in `CAPClassifierCV`: whose scores tuning sees. With an `eval_set` those are tuned on instead.
    random_state : int, default 0
        Seed of the tuning.

    Attributes
    ----------
    estimator_ : classifier
        The trained trees, as their library has them; they see class numbers, and do not know `start_`.
    strategy_ : Strategy
        The loss.
    start_ : array of shape (K,)
        The scores that the trees start from.
    tuned_ : CAPClassifierCV or LogitAdjuster
        What was tuned, if anything was.
    classes_ : array of shape (K,)
        Labels.

    Examples
    --------
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(600, n_classes=3, n_informative=5, weights=[0.8, 0.15, 0.05], random_state=0)
    >>> model = CAPBoostingClassifier(LGBMClassifier(n_estimators=20, verbose=-1), "balanced", cv=3).fit(X, y)
    >>> model.predict_proba(X).shape
    (600, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "objective": CAPClassifierCV._parameter_constraints["objective"],
        "strategy": [StrOptions({"posthoc"}), Strategy, Policy],
        "weighting": [Interval(Real, 0, 1, closed="both")],
        "cv": CAPClassifierCV._parameter_constraints["cv"],
        "random_state": CAPClassifierCV._parameter_constraints["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        objective: ObjectiveLike = "balanced",
        *,
        strategy: Any = "posthoc",
        weighting: float = 0.5,
        cv: Any = 5,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.objective = objective
        self.strategy = strategy
        self.weighting = weighting
        self.cv = cv
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        eval_set: tuple[Any, ArrayLike] | None = None,
    ) -> Self:
        """Grow the trees.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)
            As the library takes it.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
        eval_set : tuple of X and y, optional
            Other samples: the objective on them ends the growth, where the estimator's settings say so
            (`early_stopping_rounds`), and tuning happens on them.

        Returns
        -------
        CAPBoostingClassifier
            Itself.
        """
        library = library_of(self.estimator)
        targets = column_or_1d(y, warn=True)
        check_classification_targets(targets)
        self.classes_ = np.unique(targets)
        if len(self.classes_) < 2:
            raise InputError("y holds one class only; a classifier needs two or more classes.")
        classes = Classes.of(self.classes_)
        seen = Samples(X, classes.encode(targets), check_sample_weight(sample_weight, len(targets)))
        watched = None if eval_set is None else _watched(eval_set, classes)
        strategy = self._strategy(seen, watched)
        if strategy.n_classes != len(classes):
            raise InputError(f"strategy is for {strategy.n_classes} classes; y holds {len(classes)}.")
        self.strategy_ = _scaled(strategy, seen)
        metric = ClassErrorMetric(self.objective, class_counts=np.bincount(seen.labels), class_names=classes.names)
        self.start_ = best_constant(self.strategy_, seen.labels, seen.weight)
        self.estimator_ = library.grow(self.estimator, TreeLoss(self.strategy_), metric, self.start_, seen, watched)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The trees' scores, of which the highest decides; for two classes the second's less the first's.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, K), or (n_samples,) for two classes
        """
        scores = self._scores(X)
        return scores if scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """Labels.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples,)
        """
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the scores: probabilities in the world that the loss aims at, not in the training data's.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (n_samples, n_features)

        Returns
        -------
        array of shape (n_samples, K)
        """
        return softmax(self._scores(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        wrapped = get_tags(self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = wrapped.sparse, wrapped.allow_nan
        return tags

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        return library_of(self.estimator).scores(self.estimator_, X) + self.start_

    def _strategy(self, seen: Samples, watched: Samples | None) -> Strategy:
        """The loss: as given, or found on scores of the plain trees."""
        given = self.strategy
        if isinstance(given, Policy):
            order = Classes.of(given.classes).positions(self.classes_.tolist(), "strategy")
            columns = np.argsort(order)  # of the policy, by our classes
            mine = Strategy(*(getattr(given.strategy, p)[columns] for p in ("omega", "l", "delta", "smoothing")))
            return mine.transferred().reweighted(self.weighting) if given.side == "posthoc" else mine
        if isinstance(given, Strategy):
            return given
        how: dict[str, Any] = {"bootstrap": 0, "random_state": self.random_state}
        if watched is None:
            self.tuned_ = CAPClassifierCV(Numbered(self.estimator), self.objective, cv=self.cv, **how)
            self.tuned_.fit(seen.X, self.classes_[seen.labels], seen.weight)
        else:
            plain = library_of(self.estimator).grow_plainly(self.estimator, seen, watched)
            self.tuned_ = LogitAdjuster(self.objective, scores="proba", absent="ignore", classes=self.classes_, **how)
            known = self.classes_[watched.labels]
            self.tuned_.fit(plain.predict_proba(watched.X), known, class_counts=np.bincount(seen.labels))
        return self.tuned_.policy_.strategy.transferred().reweighted(self.weighting)


def _scaled(strategy: Strategy, seen: Samples) -> Strategy:
    """Weights of mean 1 over the training samples, so that the library's regularisation keeps its measure."""
    mean = float(np.average(strategy.omega[seen.labels], weights=seen.weight))
    return replace(strategy, omega=strategy.omega / mean) if mean > 0 else strategy


def _watched(eval_set: Any, classes: Classes) -> Samples:
    """The samples of `eval_set`; a list that holds one pair will do, as the libraries have it."""
    pair = eval_set[0] if isinstance(eval_set, list) and len(eval_set) == 1 else eval_set
    if not isinstance(pair, tuple | list) or len(pair) != 2 or isinstance(pair[0], tuple):
        raise InputError("eval_set must be one pair (X, y).")
    X, y = pair
    return Samples(X, classes.encode(column_or_1d(y, warn=True), "the y of eval_set"))

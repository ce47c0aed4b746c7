"""`LogitAdjuster`: the estimator that turns scores and labels into a policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from capri._checks import InputError, check_counts, check_scores, check_vector
from capri._provenance import data_digest
from capri.attributes import frequency, importance
from capri.constraints import ConstraintLike, as_constraint
from capri.dictionary import BASIS, BasisFunction, Scaling
from capri.errors import Absent
from capri.forms import Evaluator, Form
from capri.objectives import ObjectiveLike
from capri.policy import Policy, ScoreKind, to_logits
from capri.posthoc.methods import Parameters, Pooling, Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.trust import validate, warn_if_degenerate, warn_if_thin
from capri.strategy import Strategy

#: The spread alone is best when all classes are equally bad: it is tuned under this constraint unless told otherwise.
SPREAD_GUARD = "balanced <= baseline"
NEARLY_BALANCED = 1.5  # largest over smallest class: below it, labels say nothing of training frequencies


class FrequencyWarning(UserWarning):
    """Training frequencies are unknown or guessed."""


class LogitAdjuster(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Tune a trained classifier's scores for the objective that matters.

    Parameters
    ----------
    objective : name, Objective or function of the class errors, default "balanced"
        What to lower: "balanced", "weighted", "sdev", "cvar:0.2", "quantile:0.2", "worst", "macro_f1", "mix:0.5",
        sums such as "0.5*balanced+0.5*cvar:0.2", …; see `capri.objective_names()`.
    method : {"cap", "plain", "la", "cdt", "vs"}, default "cap"
        How class settings are generated; see `capri.posthoc.methods`.
    attributes : "auto" or names, default "auto"
        Class attributes of "cap": "freq", "diff", "weights", or columns handed to `fit` as `class_attributes`. "auto"
        takes all that are known.
    parameters : {"l", "delta", "both"}, default "l"
        What "cap" tunes: offsets, multipliers (within 1/5 … 5, logits only), or both.
    pooling : "auto", None or a positive number, default "auto"
        How far a class may deviate from what its attributes say: chosen by cross-validation, not at all, or with the
        given penalty λ.
    constraints : sequence of "objective <= bound", or None
        Such as "plain <= baseline + 0.01", "err[3] <= 0.2". None means none, except that "sdev" alone is tuned under
        "balanced <= baseline"; pass () to do without.
    scores : {"logits", "proba"}, default "logits"
        What the scores are; probabilities become log max(p, floor).
    classes : labels in the order of the score columns, optional
        Needed where the labels are not 0 … K − 1 and not in sorted order.
    weights, groups : per class, optional
        Test-time importance for "weighted"; group labels for "worst_group".
    absent : {"error", "ignore"}
        What to do about classes without validation samples.
    basis, scaling : of the dictionary
        See `capri.build_dictionary`.
    floor : float
        The smallest probability.
    bootstrap : int
        Resamples behind the interval of the improvement.
    random_state : int
        Seed.

    Attributes
    ----------
    policy_ : Policy
        The artefact to save and ship.
    strategy_ : Strategy
        ω, l and Δ of each class.
    validation_ : Validation
        Figures before and after.
    classes_ : array
        Labels by column.
    reason_ : str
        How the search ended.
    path_ : dict
        Cross-validated values of the poolings that were tried.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 200)
    >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    >>> adjuster = LogitAdjuster(objective="cvar:0.34").fit(logits, y, class_counts=[900, 90, 10])
    >>> round(adjuster.validation_.before["cvar:0.34"], 2), round(adjuster.validation_.after["cvar:0.34"], 2)
    (0.74, 0.16)
    """

    def __init__(
        self,
        objective: ObjectiveLike = "balanced",
        *,
        method: str = "cap",
        attributes: Literal["auto"] | Sequence[str] = "auto",
        parameters: Parameters = "l",
        pooling: Pooling = "auto",
        constraints: Sequence[ConstraintLike] | None = None,
        scores: ScoreKind = "logits",
        classes: Sequence[Any] | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        absent: Absent = "error",
        basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS),
        scaling: Scaling = "whiten",
        floor: float = 1e-6,
        bootstrap: int = 200,
        random_state: int = 0,
    ) -> None:
        self.objective = objective
        self.method = method
        self.attributes = attributes
        self.parameters = parameters
        self.pooling = pooling
        self.constraints = constraints
        self.scores = scores
        self.classes = classes
        self.weights = weights
        self.groups = groups
        self.absent = absent
        self.basis = basis
        self.scaling = scaling
        self.floor = floor
        self.bootstrap = bootstrap
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        class_counts: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        class_attributes: Mapping[str, ArrayLike] | None = None,
        on_progress: Callable[[], None] = lambda: None,
    ) -> Self:
        """Tune on validation scores X (n_samples, K) with labels y.

        class_counts: training samples per class, in the order of the columns. class_attributes: further columns by
        name, one number per class. on_progress: called after each cross-validation fold of pooling.
        """
        if self.parameters not in ("l", "delta", "both"):
            raise InputError(f"parameters is {self.parameters!r}; it must be 'l', 'delta' or 'both'.")
        if self.scores == "proba" and (self.parameters != "l" or self.method in ("cdt", "vs")):
            raise InputError('multipliers act on logits only; with scores="proba" use parameters="l".')
        given = check_scores(X)
        self.classes_, labels = _encode(y, self.classes, given.shape[1])
        self.n_features_in_ = given.shape[1]
        problem = self._pose(to_logits(given, self.scores, self.floor), labels, class_counts, sample_weight)
        warn_if_thin(problem)
        known = self._known_attributes(problem, class_counts, class_attributes)
        task = Task(
            problem,
            {name: v for name, v in known.items() if self._wants(name)},
            measure_diff=self._wants("diff") and "diff" not in known,
            basis=self.basis,
            scaling=self.scaling,
            parameters=self.parameters,
            pooling=self.pooling,
            seed=self.random_state,
            on_progress=on_progress,
        )
        tuned, _ = tune(task, self.method)
        warn_if_degenerate(problem, tuned.m, tuned.l)
        self.strategy_ = Strategy.of(problem.n_classes, l=tuned.l, delta=tuned.m)
        self.reason_, self.path_ = tuned.reason, dict(tuned.path)
        self.validation_ = validate(problem, tuned.m, tuned.l, resamples=self.bootstrap, seed=self.random_state)
        if not self.validation_.feasible:
            warnings.warn(
                "no adjustment meets the constraints "
                f"({', '.join(map(str, problem.constraints))}); the one that violates them least was kept.",
                stacklevel=2,
            )
        self.policy_ = self._policy(problem, task, tuned.weights, given, labels)
        return self

    # -- use ---------------------------------------------------------------------------------------------------------

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Adjusted scores Δ∘o − l, (n_samples, K)."""
        check_is_fitted(self)
        scores = np.asarray(X)
        if scores.ndim == 2 and scores.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {scores.shape[1]} features, but LogitAdjuster is expecting {self.n_features_in_} features as "
                "input: one score per class, in the order of classes_."
            )
        return self.policy_.apply(scores)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """The same as `transform`; for two classes the difference of their scores, (n_samples,)."""
        scores = self.transform(X)
        return np.asarray(scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The label of the highest adjusted score."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.transform(X).argmax(axis=1)])

    # -- the parts of fit --------------------------------------------------------------------------------------------

    def _pose(
        self, logits: NDArray[Any], labels: NDArray[np.int64], class_counts: ArrayLike | None, sample_weight: Any
    ) -> Problem:
        problem = Problem(
            logits,
            labels,
            self.objective,
            constraints=self.constraints or (),
            sample_weight=sample_weight,
            absent=self.absent,
            class_names=[str(c) for c in self.classes_],
            weights=self.weights,
            groups=self.groups,
            train_counts=class_counts,
        )
        if self.constraints is None and _is_spread(problem.objective):
            problem.constraints = [as_constraint(SPREAD_GUARD)]
        return problem

    def _wants(self, name: str) -> bool:
        return self.attributes == "auto" or name in self.attributes or (name == "freq" and self.method != "cap")

    def _known_attributes(
        self, problem: Problem, class_counts: ArrayLike | None, extra: Mapping[str, ArrayLike] | None
    ) -> dict[str, NDArray[np.float64]]:
        known: dict[str, NDArray[np.float64]] = {}
        counts = self._counts(problem, class_counts)
        if counts is not None:
            known["freq"] = frequency(counts)
        if self.weights is not None:
            known["weights"] = importance(check_counts(self.weights, problem.n_classes, name="weights"))
        for name, column in (extra or {}).items():
            known[name] = check_vector(column, name, problem.n_classes)
        missing = () if self.attributes == "auto" else set(self.attributes) - set(known) - {"diff"}
        if missing:
            name = sorted(missing)[0]
            how = {"freq": "class_counts=…", "weights": "weights=… (of the constructor)"}
            remedy = how.get(name, "class_attributes={name: …}")
            raise InputError(f"attribute {name!r} is unknown; give it as {remedy}.")
        return known

    def _counts(self, problem: Problem, class_counts: ArrayLike | None) -> NDArray[np.float64] | None:
        """Training counts: as given; else those of the labels, unless these are balanced by design."""
        if class_counts is not None:
            return check_counts(class_counts, problem.n_classes)
        if self.method == "plain" or (self.attributes != "auto" and "freq" not in self.attributes):
            return None
        counts = np.maximum(np.bincount(problem.y, minlength=problem.n_classes).astype(np.float64), 0.5)
        if counts.max() >= NEARLY_BALANCED * counts.min():
            return counts
        warnings.warn(
            "class_counts is not given and the labels are nearly balanced, so training frequencies are unknown; "
            "the attribute 'freq' is left out. Give class_counts=… of the training data.",
            FrequencyWarning,
            stacklevel=4,
        )
        return None

    def _policy(
        self,
        problem: Problem,
        task: Task,
        weights: Mapping[str, NDArray[np.float64]],
        given: NDArray[Any],
        labels: NDArray[np.int64],
    ) -> Policy:
        table = task.attributes(problem) if task.known or task.measure_diff else None
        return Policy(
            strategy=self.strategy_,
            objective=problem.objective_spec.name,
            class_names=tuple(str(c) for c in self.classes_),
            scores=self.scores,
            floor=self.floor,
            method=self.method,
            constraints=tuple(map(str, problem.constraints)),
            attributes={} if table is None else {name: table[name].tolist() for name in table.names},
            dictionary={"basis": list(self.basis), "scaling": self.scaling} if self.method == "cap" else {},
            weights={name: w.tolist() for name, w in weights.items()},
            validation=self.validation_.as_dict() | {"reason": self.reason_},
            data={"digest": data_digest(given, labels), "n_samples": problem.n_samples},
            seed=self.random_state,
        )


def _is_spread(objective: Evaluator) -> bool:
    """Is the objective the spread of the errors and nothing else?"""
    return (
        isinstance(objective, Form) and objective.deviation > 0 and not objective.linear.any() and not objective.ranked
    )


def _encode(y: ArrayLike, classes: Sequence[Any] | None, n_columns: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The label of each column, and labels as column indices."""
    if y is None:
        raise InputError("LogitAdjuster requires y to be passed, but the target y is None; give one label per sample.")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    if labels.ndim != 1:
        raise InputError(f"y must be one-dimensional; got shape {labels.shape}.")
    if np.issubdtype(labels.dtype, np.floating) and (labels != np.floor(labels)).any():
        raise InputError("Unknown label type: y holds continuous numbers; give one class label per sample.")
    if classes is not None:
        order = np.asarray(classes)
    elif np.issubdtype(labels.dtype, np.integer) and labels.size and labels.min() >= 0 and labels.max() < n_columns:
        order = np.arange(n_columns)
    else:
        order = np.unique(labels)
    if len(order) != n_columns:
        raise InputError(
            f"there are {len(order)} classes but {n_columns} score columns; "
            "give classes=… with one label per column, in the order of the columns."
        )
    index = {label: k for k, label in enumerate(order.tolist())}
    if len(index) != len(order):
        raise InputError("classes holds a label twice; each column needs its own.")
    unknown = [label for label in dict.fromkeys(labels.tolist()) if label not in index]
    if unknown:
        raise InputError(f"y holds {unknown[0]!r}, which is not in the class list; classes are {order[:5].tolist()} ….")
    return order, np.array([index[label] for label in labels.tolist()], dtype=np.int64)

"""`LogitAdjuster`: the estimator that turns scores and labels into a policy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, _fit_context, clone
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, column_or_1d

from capri._checks import InputError, InputWarning, Ints, as_array, check_counts, check_scores, short
from capri._provenance import data_digest
from capri.attributes import UNKNOWN_FREQUENCIES, Attributes, counts_in, frequency
from capri.blocks.opening import as_source
from capri.blocks.source import Source
from capri.classes import Classes, all_columns, as_labels, column_names
from capri.constraints import ConstraintLike, as_constraint
from capri.dictionary import BASIS, BasisFunction, Scaling
from capri.errors import Absent, softmax
from capri.evidence import Evidence, gather, own_columns
from capri.forms import ClassContext, exact_importance, is_spread
from capri.objectives import Objective, ObjectiveLike, as_objective
from capri.page import Report
from capri.policy import FLOOR, Policy, ScoreKind, to_logits
from capri.posthoc.abstention import Abstention, Asked, Rule, as_asked, refuse_score, together, told
from capri.posthoc.account import account, check_unseen, pose, shares_asked
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.heldout import TUNED, UNADJUSTED, Gain, Judged, gained, judge, ladder
from capri.posthoc.methods import METHODS, Parameters, Pooling, Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.promise import (
    Promise,
    PromiseWarning,
    divided,
    learn_then_test,
    promised,
    refuse_other_shares,
    requirements,
    stricter,
)
from capri.posthoc.search import Found
from capri.posthoc.streaming import prepare, verify
from capri.posthoc.tradeoff import Frontier
from capri.posthoc.trust import validate, warn_if_degenerate, warn_if_thin
from capri.posthoc.views import by_judged, by_policy
from capri.shares import TargetShares, target_shares
from capri.validation import Validation

#: The spread alone is best when all classes are equally bad: it is tuned under this constraint unless told otherwise.
SPREAD_GUARD = "balanced <= baseline"
LARGEST = float(np.finfo(np.float64).max)  # whole numbers may be larger
BRIEF = 4  # how many times fewer draws each simpler rung gets, where drawing a confusion matrix costs time
BORROW = 20.0  # labels that the model's own opinion is worth; reproduction/benchmarks/outofsample.py compares


class _Seen(NamedTuple):
    """What a report tells of: the samples that tuned, and their decisions out of fold."""

    problem: Problem
    judged: Judged | None


class FrequencyWarning(InputWarning):
    """Training frequencies are unknown or guessed."""


def _silent() -> None:
    pass


def _unheard(rows: int) -> None:
    pass


class LogitAdjuster(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Tune a trained classifier's scores for the objective that matters.

    Parameters
    ----------
    objective : name, Objective or function, default "balanced"
        What to lower: "balanced", "weighted", "sdev", "cvar:0.2", "quantile:0.2", "worst", "macro_f1", "mix:0.5",
        sums such as "0.5*balanced+0.5*cvar:0.2", …; see `capri.objective_names()`. Functions of the class errors and
        scikit-learn's metrics and scorers will do, too.
    method : {"cap", "plain", "la", "cdt", "vs"}, default "cap"
        How class settings are generated; see `capri.posthoc.methods`.
    attributes : "auto" or sequence of names, default "auto"
        Class attributes of "cap": "freq", "diff", "weights", "norm", "noise", or columns handed to `fit` as
        `class_attributes`. "auto" takes all that are known; noise that is named and not given is estimated.
    parameters : {"l", "delta", "both"}, default "l"
        What "cap" tunes: offsets, multipliers (within 1/5 … 5, logits only), or both.
    pooling : "auto", None or a positive number, default "auto"
        How far a class may deviate from what its attributes say: as its samples allow, not at all, or with the
        given penalty λ.
    constraints : sequence of "objective <= bound" or "quality >= bound", or None
        Such as "plain <= baseline + 0.01", "precision[3] >= 0.9". None means none, except that "sdev" alone is tuned
        under "balanced <= baseline"; pass () to do without.
    scores : {"logits", "proba"}, default "logits"
        What the scores are; probabilities become log max(p, floor).
    classes : sequence of labels, optional
        The label of each score column, in the order of the columns. Needed where neither the labels nor the names of
        the columns say it.
    weights, groups : per class, optional
        Test-time importance for "weighted"; group labels for "worst_group". A mapping or a pandas Series is aligned by
        label.
    absent : {"error", "ignore"}, default "error"
        What to do about classes without validation samples. Those that are ignored take their offset from their
        frequency, by the line through the other classes' offsets.
    basis, scaling
        Of the dictionary; see `capri.build_dictionary`.
    floor : float, default 1e-6
        The smallest probability.
    borrow : float, default 20
        How many labels of a class the model's own opinion, its calibrated probabilities, is worth. With few labels it
        knows more of class errors than they do; with many, they outweigh it. 0 goes by the labels alone, and then
        never ends worse on them than without tuning. Multipliers are always tuned on labels alone.
    target_shares : {"train", "validation"} or per class, optional
        The class shares where the classifier will be used, for what depends on them: the plain error, F1, costs, and
        constraints on these. By default those of the training counts, where these are given and samples have no
        weights of their own, else those of the validation samples.
    guarantee : float, optional
        A confidence such as 0.95 with which the constraints, floors on recall, precision, F1 and accuracy, shall hold
        on future samples. Half of the samples then tune, and the others test (`capri.posthoc.promise`).
    reject : share, "cost:…", "until …" or None
        Leave samples undecided where the decision is least sure for its class: at most a share of them (0.1), as many
        as pay where each costs a share of an error ("cost:0.3"), or as few as it takes to keep a constraint among what
        is decided ("until precision[*] >= 0.9"). `predict` then gives None for them.
    min_coverage : float, default 0.5
        The share of each class that is decided at least, so that no class is rejected away.
    bootstrap : int, default 200
        Draws behind the improvement out of fold and its interval; 0 leaves both out, and with them the repeated tuning.
    random_state : int, default 0
        Seed of folds, resamples and random directions.

    Attributes
    ----------
    policy_ : Policy
        The artefact to save and ship.
    strategy_ : Strategy
        ω, l and Δ.
    validation_ : Validation
        Figures before and after, on the samples that tuned.
    classes_ : array of shape (K,)
        Labels by column.
    reason_ : str
        How the search ended.
    promise_ : Promise or None
        With `guarantee`: what is promised, and on what grounds. Where that is not what was asked, the nearest that is,
        and how many more samples would do.
    abstention_ : Abstention or None
        With `reject`: what is left undecided, and of which classes.
    path_ : dict
        What to expect of each rung of the ladder on other samples: improvements out of fold by "τ = 1", "calibrated",
        "LA, tuned" and "tuned"; `validation_.ladder` adds their intervals. Empty with ``bootstrap=0``.

    References
    ----------
    Zhang et al., "Class-attribute Priors: Adapting Optimization to Heterogeneity and Fairness Objective", AAAI 2024.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 200)
    >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    >>> adjuster = LogitAdjuster(objective="cvar:0.34").fit(logits, y, class_counts=[900, 90, 10])
    >>> round(adjuster.validation_.before["cvar:0.34"], 2), round(adjuster.validation_.after["cvar:0.34"], 2)
    (0.74, 0.15)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "objective": [str, Objective, callable],
        "method": [StrOptions(set(METHODS))],
        "attributes": [StrOptions({"auto"}), "array-like"],
        "parameters": [StrOptions({"l", "delta", "both"})],
        "pooling": [StrOptions({"auto"}), Interval(Real, 0, LARGEST, closed="right"), None],
        "constraints": ["array-like", None],
        "scores": [StrOptions({"logits", "proba"})],
        "classes": ["array-like", None],
        "weights": ["array-like", Mapping, None],
        "groups": ["array-like", Mapping, None],
        "absent": [StrOptions({"error", "ignore"})],
        "basis": ["array-like", Mapping],
        "scaling": [StrOptions({"whiten", "ordered", "standardize", "raw"})],
        "floor": [Interval(Real, 0, 1, closed="neither")],
        "borrow": [Interval(Real, 0, LARGEST, closed="both")],
        "target_shares": [StrOptions({"train", "validation"}), "array-like", Mapping, None],
        "guarantee": [Interval(Real, 0, 1, closed="neither"), None],
        "reject": [str, Real, None],
        "min_coverage": [Interval(Real, 0, 1, closed="left")],
        "bootstrap": [Interval(Integral, 0, None, closed="left")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    }
    __metadata_request__fit: ClassVar[dict[str, Any]] = dict.fromkeys(("memory", "on_progress", "on_rows"), UNUSED)

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
        classes: Iterable[Any] | None = None,
        weights: ArrayLike | Mapping[Any, float] | None = None,
        groups: ArrayLike | Mapping[Any, Any] | None = None,
        absent: Absent = "error",
        basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS),
        scaling: Scaling = "whiten",
        floor: float = FLOOR,
        borrow: float = BORROW,
        target_shares: TargetShares = None,
        guarantee: float | None = None,
        reject: float | str | None = None,
        min_coverage: float = 0.5,
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
        self.borrow = borrow
        self.target_shares = target_shares
        self.guarantee = guarantee
        self.reject = reject
        self.min_coverage = min_coverage
        self.bootstrap = bootstrap
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike | Source,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        class_attributes: Mapping[str, Any] | Attributes | None = None,
        X_unlabelled: ArrayLike | None = None,
        memory: str | float | None = None,
        on_progress: Callable[[], None] = _silent,
        on_rows: Callable[[int], None] = _unheard,
    ) -> Self:
        """Tune on validation scores.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, K), or Source
            Scores, one column per class. Columns that are named after the classes may stand in any order. Or a source
            of row blocks (`capri.blocks.as_source`), which has the labels as well and need not fit into memory.
        y : array-like of shape (n_samples,)
            Labels; not beside a source.
        sample_weight : array-like of shape (n_samples,), optional
            Not beside a source, where each row counts once.
        class_counts : per class, optional
            Training samples: a list in the order of the columns, or a mapping or pandas Series by label.
        class_attributes : mapping, DataFrame or Attributes, optional
            Further attributes by name, one number per class each; "norm", "noise" and "diff" among them are those that
            capri knows by name.
        X_unlabelled : array-like or DataFrame of shape (n_unlabelled, K), optional
            Scores of further samples whose labels nobody knows, such as those that are to be decided. They steady the
            model's own opinion of its errors, which counts where labels are few. Where it does not count they do
            nothing: with ``borrow=0``, and where multipliers are tuned.
        memory : str or number, optional
            What tuning may take, such as "2GB", where X is a source. If all rows do not fit, a sample of them tunes,
            equally many of each class, and the figures in `validation_` are counted on every row; the sample's size and
            what it leaves open are in ``policy_.data["sample"]``. By default all rows are read into memory.
        on_progress : callable
            Called after each fold that is judged.
        on_rows : callable
            Called with the number of rows after each block of a source that is read.

        Returns
        -------
        LogitAdjuster
            Itself.
        """
        self.promise_: Promise | None = None
        self.abstention_: Abstention | None = None
        asked = None if self.reject is None else as_asked(self.reject)
        if asked is not None and (self.guarantee is not None or isinstance(X, Source) or memory is not None):
            raise InputError(
                "{argument} needs scores in memory, and cannot be given beside guarantee= yet.", argument="reject"
            )
        if asked is not None and self.constraints is not None and len(self.constraints):
            raise InputError(
                "{argument} cannot be given beside constraints=: of which samples should these hold? What shall hold "
                "among the decided ones is reject='until …'.",
                argument="reject",
            )
        if self.guarantee is not None:
            if isinstance(X, Source) or memory is not None or sample_weight is not None:
                raise InputError(
                    "{argument} needs scores in memory, each sample counting once: neither sample_weight nor a source "
                    "of row blocks.",
                    argument="guarantee",
                )
            known = {"class_counts": class_counts, "class_attributes": class_attributes, "X_unlabelled": X_unlabelled}
            return self._fit_promising(X, y, known, on_progress)
        if isinstance(X, Source) or memory is not None:
            known = {"class_counts": class_counts, "class_attributes": class_attributes, "X_unlabelled": X_unlabelled}
            return self._fit_source(as_source(X, y), sample_weight, known, memory, on_progress, on_rows)
        labels: Any = y
        task, classes, given = self._question(X, labels, sample_weight, class_counts, class_attributes, X_unlabelled)
        problem = task.problem
        found, rule = tune(task, self.method), None
        if asked is not None:
            found, rule = together(task, self.method, found, asked, self.min_coverage)
        warn_if_degenerate(problem, found.adjustment)
        judged = judge(task, partial(ladder, method=self.method), on_fold=on_progress) if self.bootstrap else None
        gains = {} if judged is None else self._gains(problem, judged)
        validation = validate(problem, found.adjustment, feasible=found.worth.feasible, gains=gains)
        self.path_ = {rung: gain.mean for rung, gain in gains.items()}
        self.strategy_, self.reason_, self.validation_ = found.adjustment.strategy(), found.reason, validation
        self.policy_ = self._policy(task, found, validation, classes, given, self.path_)
        if asked is not None and rule is not None:
            self._leave_undecided(problem, found.adjustment, rule, asked)
        self._seen = _Seen(problem, None if judged is None else judged.without_posterior())
        if not self.validation_.feasible:
            warnings.warn(
                "no adjustment meets the constraints "
                f"({', '.join(map(str, problem.constraints))}); the one that violates them least was kept.",
                stacklevel=2,
            )
        return self

    @classmethod
    def from_counts(
        cls,
        class_counts: ArrayLike | Mapping[Any, float],
        objective: ObjectiveLike = "balanced",
        *,
        scores: ScoreKind = "logits",
        classes: Iterable[Any] | None = None,
        weights: ArrayLike | Mapping[Any, float] | None = None,
        floor: float = FLOOR,
    ) -> Self:
        """Without any validation set: the closed form l = log π − log c of a calibrated model, for Σ_k c_k Err_k.

        For the balanced error that is logit adjustment with τ = 1. It takes the model's probabilities at their word;
        margins of support vector machines and the like need validation samples, which tell their scale.

        Parameters
        ----------
        class_counts : per class
            Training samples: a list in the order of the columns, or a mapping or pandas Series by label.
        objective : name, Objective or function
            "balanced", "weighted", "plain", a sum of such, or `expected_cost` where confusing a class costs the same
            whatever it is taken for. Other objectives need validation samples.
        scores, classes, weights, floor
            As in `LogitAdjuster`. By default classes are the labels of a mapping or Series, or numbered from 0.

        Returns
        -------
        LogitAdjuster
            Fitted, without `validation_`.

        Examples
        --------
        >>> adjuster = LogitAdjuster.from_counts({"cat": 900, "dog": 90, "lynx": 10}, scores="proba")
        >>> adjuster.predict([[0.9, 0.05, 0.05], [0.95, 0.04, 0.01]])
        array(['lynx', 'cat'], dtype='<U4')
        """
        labels = _labels_of(class_counts) if classes is None else classes
        names = Classes.of(labels)
        counts = check_counts(names.align(class_counts, "class_counts"), len(names), name="class_counts")
        known = ClassContext.of(counts, class_names=names.names, weights=names.align(weights, "weights"))
        wanted = as_objective(objective)
        c = exact_importance(wanted.on(known), known)
        if c is None:
            raise InputError(
                f"objective {wanted.name!r} has no closed form; give validation scores to `fit`, or tune for "
                "'balanced', 'weighted', or costs that depend on the true class alone."
            )
        adjuster = cls(objective, method="la", scores=scores, classes=classes, weights=weights, floor=floor)
        found = Adjustment.offsets(np.log(frequency(counts)) - np.log(c)).centred()
        adjuster.classes_, adjuster.n_features_in_ = names.labels, len(names)
        adjuster.strategy_, adjuster.path_ = found.strategy(), {}
        adjuster.reason_ = "closed form from class counts (τ = 1)"
        adjuster.policy_ = Policy(
            strategy=adjuster.strategy_,
            objective=wanted.name,
            classes=tuple(names.labels.tolist()),
            scores=scores,
            floor=floor,
            method="la",
            reason=adjuster.reason_,
            attributes={"freq": frequency(counts).tolist()},
        )
        return adjuster

    # -- use ---------------------------------------------------------------------------------------------------------

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Adjusted scores Δ∘o − l.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, K)
            Scores; columns that are named as in `fit`, or after the classes, may stand in any order.

        Returns
        -------
        array of shape (n_samples, K)
            In the order of `classes_`; the largest decides.
        """
        check_is_fitted(self)
        scores = as_array(self._arranged(X), "X", "be real numbers")
        if scores.ndim == 2 and scores.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {scores.shape[1]} features, but LogitAdjuster is expecting {self.n_features_in_} features as "
                "input: one score per class, in the order of classes_."
            )
        return self.policy_.apply(scores)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """The scores of `transform`; for two classes the second's less the first's, (n_samples,)."""
        scores = self.transform(X)
        return np.asarray(scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def predict(self, X: ArrayLike | Source) -> NDArray[Any]:
        """The label of the highest of the scores of `transform`, (n_samples,), of the type that `fit` was given.

        X may be a source of row blocks (`capri.blocks`), too.
        """
        check_is_fitted(self)
        if isinstance(X, Source):
            return self.policy_.predict(X)
        return self._labelled(self.transform(X))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy, as of any classifier; refused where samples may be left undecided.

        Parameters
        ----------
        X : array-like of shape (n_samples, K)
            Scores.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        refuse_score(self.reject)
        return float(super().score(X, y, sample_weight))

    def _labelled(self, adjusted: NDArray[np.float64]) -> NDArray[Any]:
        """The labels of adjusted scores, of the type that `fit` was given; None where the policy leaves them open."""
        columns = self.policy_.columns(adjusted)
        if self.policy_.thresholds is None:
            return np.asarray(self.classes_[columns])
        found = np.full(len(columns), None, dtype=object)
        found[columns >= 0] = self.classes_[columns[columns >= 0]]
        return found

    @property
    def report_(self) -> Report:
        """What tuning changed, as a page that shows itself in notebooks; ``report_.save("report.html")`` keeps it."""
        try:
            return self.report()
        except InputError as error:  # of a closed form; `dir` and `hasattr` ask for what is there
            raise AttributeError(str(error)) from None

    def report(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        frontier: Frontier | None = None,
    ) -> Report:
        """The page of `report_`, with test samples and other trade-offs where they are given.

        Class errors are of the test samples or else out of fold. The samples that tuned are not pickled: an adjuster
        from a pickle reports what its policy says of them.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, K), optional
            Scores of samples that neither training nor tuning has seen; they speak first.
        y : array-like of shape (n_samples,), optional
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
        frontier : Frontier, optional
            What `capri.frontier` found for the same classes; the page gets a slider along it.

        Returns
        -------
        Report
        """
        check_is_fitted(self)
        if X is None and (y is not None or sample_weight is not None):
            raise InputError("X is None; give the scores that y and sample_weight belong to, or none of them.")
        if not (frontier is None or isinstance(frontier, Frontier)):
            raise InputError(f"frontier is {short(frontier)}; give what capri.frontier found, or Frontier.load reads.")
        seen, decided = getattr(self, "_seen", None), []
        counts = None if seen is None else seen.problem.context.class_counts
        if X is not None:
            decided.append(by_policy("test", self.policy_, self._unseen(X, y, sample_weight, seen, frontier)))
        if seen is not None:
            decided.append(by_policy("in sample", self.policy_, seen.problem))
            decided += [] if seen.judged is None else [by_judged(seen.problem, seen.judged)]
        return Report(account(self.policy_, decided, class_counts=counts, curve=frontier))

    def _unseen(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, seen: _Seen | None, curve: Frontier | None
    ) -> Problem:
        """The question of the samples that tuned, asked of others."""
        scores, classes = check_scores(self._arranged(X)), Classes.of(self.classes_)
        labels = classes.encode(y)
        check_unseen(self.policy_, scores, labels, curve=curve)
        if seen is None:
            known = {"shares": shares_asked(self.policy_), "weights": self.policy_.attributes.get("weights")}
            return pose(self.policy_, scores, labels, sample_weight=sample_weight, absent=self.absent, **known)
        context = {name: getattr(seen.problem.context, name) for name in ("weights", "groups", "class_counts")}
        return Problem(
            to_logits(scores, self.scores, self.floor),
            labels,
            seen.problem.objective_spec,
            constraints=seen.problem.constraints,
            sample_weight=sample_weight,
            shares=seen.problem.shares,
            absent=self.absent,
            class_names=classes.names,
            **context,
        )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_seen", None)
        return state

    def _arranged(self, X: Any, name: str = "X") -> Any:
        """Columns in the order of the classes, by the names that they had in `fit`, or by those of the classes."""
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is not None and all_columns(X) is not None:
            return Classes.of(fitted).columns_of(X, name)
        return X if column_names(X) is None else Classes.of(self.classes_).arrange(X, name)

    # -- the parts of fit --------------------------------------------------------------------------------------------

    def _fit_source(
        self,
        source: Source,
        sample_weight: Any,
        known: dict[str, Any],
        memory: str | float | None,
        on_progress: Callable[[], None],
        on_rows: Callable[[int], None],
    ) -> Self:
        """Tune on the rows of a source, or on as many as the budget allows; then all of them are counted."""
        if sample_weight is not None:
            raise InputError("sample_weight cannot be given beside a source of row blocks, where each row counts once.")
        given = prepare(source, self.classes, memory, self.random_state, on_rows)
        if given.rows.chosen is None:
            return self.fit(given.scores, given.labels, **known, on_progress=on_progress)
        counts = given.classes.align(known["class_counts"], "class_counts")
        shares = self._shares(given.classes, None if counts is None else check_counts(counts), None)
        if shares is None:
            shares = np.maximum(given.counts, 1)  # those of all rows; classes that are absent have no say
        if counts is None:
            counts = counts_in(given.rows.labels, len(given.classes))
        tuned = clone(self).set_params(target_shares=shares)
        tuned.fit(given.scores, given.labels, **known | {"class_counts": counts}, on_progress=on_progress)
        tuned.policy_ = verify(source, given, tuned.policy_, tuned._seen.problem, on_rows)
        tuned.validation_, tuned.reason_ = tuned.policy_.validation, tuned.policy_.reason
        self._take(tuned)
        if not self.validation_.feasible:
            warnings.warn(
                "on all rows, the constraints are not met: the sample that tuned met them by chance.", stacklevel=3
            )
        return self

    def _fit_promising(self, X: Any, y: Any, known: dict[str, Any], on_progress: Callable[[], None]) -> Self:
        """Tune a path of policies on some of the samples, and keep the best of those that the others prove."""
        asked, confidence = [as_constraint(c) for c in self.constraints or ()], float(self.guarantee or 0)
        classes, scores, labels = self._align(X, y)
        seen = np.bincount(labels, minlength=len(classes)).astype(np.float64)
        groups = classes.align(self.groups, "groups")
        needed = requirements(asked, ClassContext.of(seen, class_names=classes.names, groups=groups))
        counts = classes.align(known["class_counts"], "class_counts")
        shares = self._shares(classes, None if counts is None else check_counts(counts, len(classes)), None)
        refuse_other_shares(needed, seen, shares)
        if (further := known["X_unlabelled"]) is not None:
            known = known | {"X_unlabelled": np.asarray(self._arranged(further, "X_unlabelled"))}
        tuning, testing = divided(needed, labels, len(classes), self.random_state)
        how: dict[str, Any] = {"guarantee": None, "classes": classes.labels, "absent": "ignore"}

        def tuned(constraints: Sequence[ConstraintLike], **more: Any) -> LogitAdjuster:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said of what is promised
                adjuster = clone(self).set_params(**how, constraints=constraints, **more)
                return adjuster.fit(scores[tuning], classes.labels[labels[tuning]], **known, on_progress=on_progress)

        def decide(adjuster: LogitAdjuster) -> Ints:
            return np.asarray(adjuster.transform(scores).argmax(axis=1))

        path = [tuned(level, bootstrap=0) for level in stricter(asked, needed, labels[tuning])]
        question = self._pose(to_logits(scores, self.scores, self.floor), labels, classes, counts, None, shares)
        found = learn_then_test(
            needed,
            labels,
            [decide(adjuster) for adjuster in path],
            [question.worth(Adjustment(adjuster.strategy_.delta, adjuster.strategy_.l)).value for adjuster in path],
            tuning,
            testing,
            confidence,
        )
        kept_constraints = path[found.best].constraints or ()
        self._take(tuned(kept_constraints, bootstrap=self.bootstrap))
        self.promise_ = promised(needed, asked, found, seen, classes.names)
        self.validation_ = replace(self.validation_, limits=self.promise_.limits, feasible=True)  # of what is promised
        every = {"digest": data_digest(scores, labels), "n_samples": len(labels)}
        self.policy_ = replace(
            self.policy_,
            constraints=self.promise_.nearest,
            validation=self.validation_,
            data={**self.policy_.data, "promise": self.promise_.as_json() | every},
        )
        kept = [as_constraint(c) for c in self.promise_.nearest]  # what reports hold figures against
        self._seen = self._seen._replace(problem=self._seen.problem.derived(constraints=kept))
        if not self.promise_.held:
            warnings.warn(PromiseWarning(self.promise_.headline), stacklevel=4)
        return self

    def _leave_undecided(self, problem: Problem, adjustment: Adjustment, rule: Rule, asked: Asked) -> None:
        """Thresholds for the policy, and what is said of them."""
        self.abstention_ = told(problem, adjustment, rule, asked, self.min_coverage)
        self.policy_ = replace(
            self.policy_,
            thresholds=tuple(rule.thresholds.tolist()),
            data={**self.policy_.data, "abstention": self.abstention_.as_json()},
        )
        if not self.abstention_.met:
            warnings.warn(str(self.abstention_), stacklevel=3)

    def _take(self, other: LogitAdjuster) -> None:
        """What another one has found."""
        for name in vars(other).keys() - self.get_params().keys():
            setattr(self, name, getattr(other, name))

    def _question(
        self, X: Any, y: ArrayLike, sample_weight: Any, class_counts: Any, class_attributes: Any, X_unlabelled: Any
    ) -> tuple[Task, Classes, NDArray[Any]]:
        """What a method is asked, the classes, and the scores in their order."""
        if self.scores == "proba" and (self.parameters != "l" or self.method in ("cdt", "vs")):
            raise InputError(
                "multipliers act on logits only; with probabilities use {argument}.", argument="parameters", value="l"
            )
        classes, scores, labels = self._align(X, y)
        counts = classes.align(class_counts, "class_counts")
        counts = None if counts is None else check_counts(counts, len(classes))
        shares = self._shares(classes, counts, sample_weight)
        problem = self._pose(to_logits(scores, self.scores, self.floor), labels, classes, counts, sample_weight, shares)
        warn_if_thin(problem)
        task = Task(
            problem,
            self._evidence(problem, classes, counts, class_attributes),
            wanted=self.attributes,
            basis=self.basis,
            scaling=self.scaling,
            parameters=self.parameters,
            pooling=self.pooling,
            borrow=self.borrow,
            unlabelled=self._unlabelled(X_unlabelled),
            seed=self.random_state,
        )
        return task, classes, scores

    def _align(self, X: Any, y: ArrayLike) -> tuple[Classes, NDArray[Any], Ints]:
        """The classes, scores in their order, and labels as positions."""
        columns, given, labels = column_names(X), check_scores(X), as_labels(y)
        if np.ndim(np.asarray(y)) == 2:
            column_or_1d(np.asarray(y), warn=True)
        if len(distinct := set(labels.tolist())) == 1:
            raise InputError(f"y holds 1 class only ({distinct.pop()!r}); tuning needs samples of two or more.")
        named = columns if self.classes is None else None
        classes = Classes.found(labels, given.shape[1], given=self.classes, columns=named)
        arranged = given if columns is None else np.asarray(classes.arrange(X, "X", strict=False))
        encoded = classes.encode(labels)
        if len(encoded) != len(arranged):
            raise InputError(f"y has {len(encoded)} labels for {len(arranged)} samples; give one label per sample.")
        self.classes_, self.n_features_in_ = classes.labels, given.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        if columns is not None:
            by_class = set(map(str, columns)) == set(classes.names)
            self.feature_names_in_ = np.array(classes.names if by_class else columns, dtype=object)
        return classes, arranged, encoded

    def _unlabelled(self, X: Any) -> NDArray[Any] | None:
        """Logits without labels, in the order of the classes."""
        if X is None:
            return None
        scores = check_scores(self._arranged(X, "X_unlabelled"), name="X_unlabelled")
        if scores.shape[1] != self.n_features_in_:
            raise InputError(f"X_unlabelled has {scores.shape[1]} columns, and X has {self.n_features_in_}.")
        return np.asarray(to_logits(scores, self.scores, self.floor))

    def _shares(
        self, classes: Classes, counts: NDArray[np.float64] | None, sample_weight: ArrayLike | None
    ) -> NDArray[np.float64] | None:
        """Class shares of the world; None for those of the validation samples."""
        usable = counts is not None and counts.min() > 0 and sample_weight is None
        default: TargetShares = "train" if usable else "validation"
        return target_shares(default if self.target_shares is None else self.target_shares, classes, counts)

    def _pose(
        self,
        logits: NDArray[Any],
        labels: Ints,
        classes: Classes,
        counts: NDArray[np.float64] | None,
        sample_weight: ArrayLike | None,
        shares: NDArray[np.float64] | None,
    ) -> Problem:
        problem = Problem(
            logits,
            labels,
            self.objective,
            constraints=self.constraints if self.constraints is not None else (),
            sample_weight=sample_weight,
            shares=shares,
            absent=self.absent,
            class_names=classes.names,
            weights=classes.align(self.weights, "weights"),
            groups=classes.align(self.groups, "groups"),
            class_counts=counts,
        )
        if self.constraints is None and is_spread(problem.objective):
            problem = problem.derived(constraints=[as_constraint(SPREAD_GUARD)])
        return problem

    def _evidence(
        self, problem: Problem, classes: Classes, counts: NDArray[np.float64] | None, class_attributes: Any
    ) -> Evidence:
        """What attributes can be made of. Unbalanced labels stand in for training counts; balanced ones say nothing."""
        needed = self.method != "plain" and (self.attributes == "auto" or "freq" in self.attributes)
        if counts is None and (needed or self.method not in ("cap", "plain")):
            counts = counts_in(problem.y, problem.n_classes)
            if counts is None:
                warnings.warn(
                    FrequencyWarning(
                        f"the labels are nearly balanced, so {UNKNOWN_FREQUENCIES} of the training data. The attribute "
                        "'freq' is left out.",
                        argument="class_counts",
                    ),
                    stacklevel=5,
                )
        own = own_columns(class_attributes, classes)
        estimate = self.attributes != "auto" and "noise" in self.attributes and "noise" not in own
        return Evidence(
            class_counts=counts,
            weights=problem.context.weights,
            judged=(problem.y, softmax(problem.scores)) if estimate else None,
            own=own,
        )

    def _table(self, task: Task) -> Attributes | None:
        """The attributes that the method goes by, for the policy; weights are kept for whoever evaluates it."""
        if self.method == "cap":
            return task.attributes(task.informed.problem)
        named = [*(["freq"] if self.method != "plain" else []), *(["weights"] if self.weights is not None else [])]
        return gather(task.evidence, named, task.problem.context.class_names) if named else None

    def _gains(self, problem: Problem, judged: Judged) -> dict[str, Gain]:
        """What each rung of the ladder gains out of fold."""
        gains = {}
        for rung in judged.decisions:
            brief = problem.on_confusion and rung != TUNED
            draws = 1 + self.bootstrap // BRIEF if brief else self.bootstrap
            if rung != UNADJUSTED:
                gains[rung] = gained(problem, judged, rung, draws=draws, seed=self.random_state)
        return gains

    def _policy(
        self,
        task: Task,
        found: Found,
        validation: Validation,
        classes: Classes,
        given: NDArray[Any],
        path: Mapping[str, float] | None = None,
    ) -> Policy:
        """What was found, with all that is known of how."""
        problem, table = task.problem, self._table(task)
        return Policy(
            strategy=found.adjustment.strategy(),
            objective=problem.objective_spec.name,
            classes=tuple(classes.labels.tolist()),
            scores=self.scores,
            floor=self.floor,
            method=self.method,
            reason=found.reason,
            constraints=tuple(map(str, problem.constraints)),
            attributes={} if table is None else {name: table[name].tolist() for name in table.names},
            dictionary={"basis": list(self.basis), "scaling": self.scaling} if self.method == "cap" else {},
            weights={name: w.tolist() for name, w in found.weights.items()},
            validation=validation,
            data={
                "digest": data_digest(given, problem.y),
                "n_samples": problem.n_samples,
                "target_shares": None if problem.shares is None else (problem.shares / problem.shares.sum()).tolist(),
                "borrow": self.borrow,
                **({} if task.temperature is None else {"temperature": task.temperature}),
                **_of_screening(problem, task.informed.problem),
                **({} if task.unlabelled is None else _of_unlabelled(task.unlabelled)),
                "path": {} if path is None else path,
            },
            seed=self.random_state,
        )


def _labels_of(class_counts: Any) -> Iterable[Any]:
    """The labels that counts carry, or numbers from 0."""
    if isinstance(class_counts, Mapping):
        return list(class_counts)
    if not hasattr(class_counts, "__len__") or getattr(class_counts, "ndim", 1) == 0:
        raise InputError(f"class_counts is {class_counts!r}; it must hold one number per class.")
    named = hasattr(class_counts, "to_numpy")  # a pandas Series, unlike a list, has labels for an index
    return list(class_counts.index) if named else range(len(class_counts))


def _of_unlabelled(scores: NDArray[Any]) -> dict[str, Any]:
    """For the policy: which scores without labels took part."""
    return {"unlabelled": {"digest": data_digest(scores), "n_samples": len(scores)}}


def _of_screening(*problems: Problem) -> dict[str, Any]:
    """For the policy: which share of the scores the search could not do without, where it was screened."""
    left = [problem.remainder.share for problem in problems if problem.remainder is not None]
    return {"screened": {"left": float(max(left))}} if left else {}

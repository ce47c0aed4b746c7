"""Studies: methods × splits × objectives, each method tuned on one part of a split and judged on the other.

    source(seed, objective)  →  Split  --Method-->  Strategy  --judge-->  Outcome;      all of them: a Study

A method is a function of a split and an objective that returns a strategy; `METHODS` has them by name. To add one to
every comparison, enter it there.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputWarning, Ints
from capri.attributes import UNKNOWN_FREQUENCIES, Vector, counts_in
from capri.errors import Absent, class_errors
from capri.evaluation import evaluate
from capri.objectives import ObjectiveLike, as_objective
from capri.policy import FLOOR, ScoreKind, to_logits
from capri.sampling import divide, share_sizes
from capri.strategy import Strategy

# -- splits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Split:
    """Scores of one model on validation and test samples, and what is known of the classes.

    val_scores, test_scores: (n, K). val_y, test_y: (n,), positions in class_names. train_counts, weights, groups: per
    class, where known. kind: what the scores are. absent: what to do about a class without samples. seed: of tuning.
    shares: of the classes in the world, where they are not those of the samples.
    """

    val_scores: NDArray[Any]
    val_y: Ints
    test_scores: NDArray[Any]
    test_y: Ints
    class_names: tuple[str, ...]
    train_counts: Vector | None = None
    weights: ArrayLike | None = None
    groups: ArrayLike | None = None
    kind: ScoreKind = "logits"
    absent: Absent = "error"
    seed: int = 0
    shares: ArrayLike | None = None

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def counts(self) -> Vector:
        """Training samples per class: as given, or as the validation labels tell; an error where neither does."""
        counts = counts_in(self.val_y, self.n_classes) if self.train_counts is None else self.train_counts
        if counts is None:
            raise InputError(f"{UNKNOWN_FREQUENCIES} of the training data.", argument="class_counts")
        return counts

    def predict(self, strategy: Strategy, scores: NDArray[Any]) -> Ints:
        """Classes of adjusted scores."""
        return strategy.adjust(to_logits(scores, self.kind, FLOOR)).argmax(axis=1)

    def evaluate(self, y: Ints, predictions: Ints, objectives: Sequence[ObjectiveLike]) -> dict[str, float]:
        """Objectives of predictions, with all that is known of the classes."""
        known = {"weights": self.weights, "groups": self.groups, "class_counts": self.train_counts}
        known["target_shares"] = self.shares
        names = self.class_names
        return evaluate(y, predictions, len(names), objectives, absent=self.absent, class_names=names, **known)


def hold_out(
    scores: NDArray[Any], y: Ints, class_names: tuple[str, ...], share: float, seed: int, **known: Any
) -> Split:
    """Hold a share of each class out for test; every class that can be is in both parts. known: fields of `Split`."""
    counts = np.bincount(y, minlength=len(class_names))
    if known.get("absent", "error") == "error" and counts.min() < 2:
        k = int(np.flatnonzero(counts < 2)[0])
        raise InputError(
            f"class {class_names[k]!r} has {counts[k]} samples; comparing needs 2 or more, one to tune on and one to "
            "test on. Add samples, or pass {argument} to leave such classes out of the objective.",
            argument="absent",
            value="ignore",
        )
    test, val = map(np.sort, divide(y, share_sizes(counts, share), seed))
    return Split(scores[val], y[val], scores[test], y[test], class_names, seed=seed, **known)


# -- methods ----------------------------------------------------------------------------------------------------------

Method: TypeAlias = Callable[[Split, Any], Strategy]  # and what to tune for: a name or an Objective


def unadjusted(split: Split, objective: str) -> Strategy:
    """The model as it was trained."""
    return Strategy.of(split.n_classes)


def logit_adjustment(split: Split, objective: str) -> Strategy:
    """Logit adjustment with τ = 1: subtract log π, without looking at any validation score."""
    return Strategy.logit_adjustment(split.counts, tau=1.0)


def tuned(**settings: Any) -> Method:
    """Tuned on the validation scores for the objective.

    settings: of `LogitAdjuster`; what is not among them is as the split says, or by default.
    """

    def method(split: Split, objective: str) -> Strategy:
        from capri.posthoc import LogitAdjuster

        known = {
            "objective": objective,
            "scores": split.kind,
            "classes": split.class_names,
            "weights": split.weights,
            "groups": split.groups,
            "absent": split.absent,
            "target_shares": "validation" if split.shares is None else split.shares,
            "bootstrap": 0,  # the interval is not used: test samples are the judge
            "random_state": split.seed,
        }
        adjuster = LogitAdjuster(**{**known, **settings})
        labels = np.asarray(split.class_names)[split.val_y]
        return adjuster.fit(split.val_scores, labels, class_counts=split.train_counts).strategy_

    return method


#: Settings of `LogitAdjuster` by the name of a method that tunes: the default, and others on labels alone.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "la": {"method": "la", "borrow": 0},
    "cdt": {"method": "cdt", "borrow": 0},
    "vs": {"method": "vs", "borrow": 0},
    "plain": {"method": "plain", "borrow": 0},
    "cap": {"method": "cap", "pooling": None, "borrow": 0},
    "cap-pooled": {"method": "cap", "pooling": "auto", "borrow": 20.0},
}
METHODS: Mapping[str, Method] = {
    "unadjusted": unadjusted,
    "la1": logit_adjustment,
    **{name: tuned(**settings) for name, settings in SETTINGS.items()},
}
NEED_FREQUENCIES = ("la1", "la", "cdt", "vs")


def possible_methods(names: Sequence[str], y: Ints, n_classes: int, train_counts: Vector | None) -> list[str]:
    """Without the methods that need training frequencies, where these are unknown, with a warning that names them."""
    if train_counts is not None or counts_in(y, n_classes) is not None:
        return list(names)
    dropped = [name for name in names if name in NEED_FREQUENCIES]
    if dropped:
        said = InputWarning(f"{', '.join(dropped)} left out: {UNKNOWN_FREQUENCIES}.", argument="class_counts")
        warnings.warn(said, stacklevel=2)
    return [name for name in names if name not in dropped]


# -- judging ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Outcome:
    """One method for one objective on one split.

    validation: the objective where it was tuned. test: the objective and others beside it, by name, on test samples;
    class_errors: theirs by class, (K,).
    """

    strategy: Strategy
    validation: float
    test: Mapping[str, float]
    class_errors: Vector


def judge(split: Split, objective: ObjectiveLike, method: Method, beside: Sequence[str] = ("balanced",)) -> Outcome:
    """Let a method choose a strategy on validation samples, and judge it on test samples."""
    strategy = method(split, objective)
    goal = as_objective(objective)
    others = [name for name in dict.fromkeys(beside) if name != goal.name]
    seen, unseen = (split.predict(strategy, scores) for scores in (split.val_scores, split.test_scores))
    return Outcome(
        strategy,
        split.evaluate(split.val_y, seen, [goal])[goal.name],
        split.evaluate(split.test_y, unseen, [goal, *others]),
        class_errors(split.test_y, unseen, split.n_classes),
    )


Table: TypeAlias = Mapping[str, Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Study:
    """Tables by method and objective, a row per split: of the objective and the balanced error on test, (n_splits,);
    of the objective on validation; of class errors on test, (n_splits, K).
    """

    values: Table
    validation: Table
    balanced: Table
    class_errors: Table

    def difference(self, method: str, other: str, objective: str) -> Vector:
        """Test values of one method less those of another, split by split."""
        return self.values[method][objective] - self.values[other][objective]

    def best(self, objective: str) -> set[str]:
        """The methods with the lowest mean on test; several, if they tie."""
        means = {name: row[objective].mean() for name, row in self.values.items()}
        return {name for name, mean in means.items() if mean <= min(means.values()) + 1e-12}


def run(
    source: Callable[[int, str], Split],
    seeds: Iterable[int],
    methods: Mapping[str, Method],
    objectives: Sequence[str],
    *,
    jobs: int = 1,
    on_step: Callable[[], None] = lambda: None,
) -> Study:
    """All methods for all objectives on all splits.

    Parameters
    ----------
    source : callable
        ``source(seed, objective)`` is the split of a seed, with what methods may know when they tune for the objective
        (weights, for instance, may be known for "weighted" alone).
    seeds : iterable of int
        One per split.
    methods : mapping from names to methods
        The names are those that they have in the study.
    objectives : sequence of str
        Names of objectives.
    jobs : int
        Processes; −1 is as many as there are cores.
    on_step : callable
        Called once per split and objective.

    Returns
    -------
    Study
    """
    from joblib import Parallel, delayed

    tasks = [(seed, objective) for seed in seeds for objective in objectives]
    calls = (delayed(_judge_all)(source, seed, objective, methods) for seed, objective in tasks)
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for (_, objective), outcomes in zip(tasks, Parallel(n_jobs=jobs, return_as="generator")(calls), strict=True):
        for name, outcome in outcomes.items():
            found[name, objective].append(outcome)
        on_step()

    def table(of: Callable[[Outcome, str], float | Vector]) -> Table:
        return {m: {o: np.array([of(outcome, o) for outcome in found[m, o]]) for o in objectives} for m in methods}

    return Study(
        values=table(lambda outcome, objective: outcome.test[as_objective(objective).name]),
        validation=table(lambda outcome, _: outcome.validation),
        balanced=table(lambda outcome, _: outcome.test["balanced"]),
        class_errors=table(lambda outcome, _: outcome.class_errors),
    )


def _judge_all(
    source: Callable[[int, str], Split], seed: int, objective: str, methods: Mapping[str, Method]
) -> dict[str, Outcome]:
    split = source(seed, objective)
    return {name: judge(split, objective, method) for name, method in methods.items()}


# -- mean ± deviation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (None of a single number) of n numbers.

    >>> Spread.of([0.1, 0.2, 0.3]).text()
    '20.0 ± 10.0'
    >>> Spread.of([0.125]).text(digits=2, signed=True)
    '+12.50'
    """

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: ArrayLike) -> Spread:
        """Of numbers over splits or seeds."""
        given = np.asarray(values, dtype=np.float64)
        return cls(float(given.mean()), float(given.std(ddof=1)) if len(given) > 1 else None, len(given))

    def of_mean(self) -> Spread:
        """The mean with its standard error as deviation."""
        return replace(self, deviation=None if self.deviation is None else self.deviation / math.sqrt(self.n))

    def text(self, digits: int = 1, *, signed: bool = False, scale: float = 100.0) -> str:
        """Mean ± deviation, in percent unless scaled otherwise."""
        spread = "" if self.deviation is None else f" ± {scale * self.deviation:.{digits}f}"
        return f"{scale * self.mean:{'+' if signed else ''}.{digits}f}{spread}"

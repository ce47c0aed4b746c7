"""`frontier`: the whole curve of what one objective costs in another, each point a policy, with held-out figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from capri._checks import InputError, check_scores, short
from capri._lazy import once
from capri.attributes import Attributes
from capri.classes import Classes, as_labels
from capri.errors import resolve_absent
from capri.forms import on_confusion
from capri.objectives import Objective, ObjectiveLike, as_objective
from capri.policy import Policy, to_logits
from capri.posthoc.adjuster import LogitAdjuster
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.curve import Answer, follow, priced
from capri.posthoc.heldout import TUNED, UNADJUSTED, Gain, Judged, decided, gained, judge
from capri.posthoc.methods import Task, believing, tune
from capri.posthoc.problem import ROUNDING, Problem
from capri.posthoc.search import Found
from capri.posthoc.tradeoff import GIVEN, OUT_OF_FOLD, Frontier, Point
from capri.posthoc.trust import validate

POINTS = 11  # of a frontier, at most, unless told otherwise
MOST = 1000  # points
LA, CHOSEN = "τ = 1", "chosen"  # landmarks beside the unadjusted scores
BRIEF = 4  # how many times fewer draws a point has than the one answer of `LogitAdjuster`


def _silent() -> None:
    pass


def frontier(
    X: ArrayLike,
    y: ArrayLike,
    of: ObjectiveLike | None = None,
    against: ObjectiveLike = "plain",
    *,
    points: int | Sequence[float] = POINTS,
    adjuster: LogitAdjuster | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    sample_weight: ArrayLike | None = None,
    class_counts: ArrayLike | Mapping[Any, float] | None = None,
    class_attributes: Mapping[str, Any] | Attributes | None = None,
    X_unlabelled: ArrayLike | None = None,
    on_progress: Callable[[], None] = _silent,
    **settings: Any,
) -> Frontier:
    """The best that one objective can be for each price in another.

    What is lowered is `of`, under a bound on `against` that goes from the least there is to what the best `of` costs.
    Each point is tuned as `LogitAdjuster` tunes: with its method, its pooling and its constraints, so that it is as
    honest as its answer; and what it is worth is judged on samples that did not tune it.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_samples, K)
        Scores, one column per class.
    y : array-like of shape (n_samples,)
        Labels.
    of : name, Objective or function, optional
        What is lowered; by default the objective of the adjuster.
    against : name, Objective or function, default "plain"
        What that is paid in. Constraints on it give way to the bounds of the points.
    points : int or sequence of float
        How many at most, or the bounds on `against` themselves. Those that are no better than cheaper ones are left
        out.
    adjuster : LogitAdjuster, optional
        Whose settings hold; it need not be fitted. What it chooses by itself is marked as "chosen".
    held_out : (X, y), optional
        Samples to judge by. Without them points are judged out of fold: without each fold in turn a frontier is made,
        at the same bounds, and decides it.
    sample_weight, class_counts, class_attributes, X_unlabelled
        As in `LogitAdjuster.fit`.
    on_progress : callable
        Called when the curve is there, and after each fold that is judged.
    **settings
        Of `LogitAdjuster`, over those of the adjuster: `method`, `constraints`, `scores`, `weights`, …. With
        ``bootstrap=0`` there are no intervals, and nothing is judged out of fold. `reject` and `guarantee`
        play no part.

    Returns
    -------
    Frontier

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 2], 100)
    >>> logits = rng.normal(size=(300, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    >>> curve = frontier(logits, y, of="worst", against="err[0]", class_counts=[900, 90, 10], points=5)
    >>> bool((np.diff(curve.prices) >= 0).all() and (np.diff(curve.values) <= 0).all())
    True
    """
    if not (adjuster is None or isinstance(adjuster, LogitAdjuster)):
        raise InputError(
            f"adjuster is {short(adjuster)}; give a LogitAdjuster, such as adjuster_ of a CAPClassifierCV."
        )
    own = (LogitAdjuster() if adjuster is None else clone(adjuster)).set_params(**settings)
    asked = own if of is None else clone(own).set_params(objective=of)
    own = asked if adjuster is None else own
    given = (X, y, sample_weight, class_counts, class_attributes, X_unlabelled)
    for estimator in (own, asked):
        estimator._validate_params()
    task, classes, scores = asked._question(*given)
    trade = _Trade(task, asked.method, _price(against, task.problem), _own(own, asked, task, given))
    chosen = trade.chosen(task)
    answers = trade.answers(_checked(points), chosen)
    found = trade.named(task, chosen, answers)
    on_progress()
    bench = None
    if held_out is not None:
        there = _samples(asked, task.problem, classes, held_out)
        bench = _Bench(there, decided(task, found, there), trade.against, asked.bootstrap, asked.random_state)
    elif asked.bootstrap:
        judged = judge(task, lambda fold: trade.repeated(fold, list(answers)), on_fold=on_progress)
        if judged is not None:
            bench = _Bench(task.problem, judged, trade.against, asked.bootstrap, asked.random_state, folded=True)
    figures = {name: trade.point(adjustment, bench, name) for name, adjustment in found.items()}
    on_curve = [figures[str(bound)] for bound in answers]
    policies = trade.policies(answers, on_curve, bench, lambda *parts: asked._policy(*parts, classes, scores))
    return Frontier(
        of=task.problem.objective_spec.name,
        against=trade.against.name,
        points=tuple(on_curve),
        bounds=tuple(answers),
        policies=policies,
        landmarks={name: figures[name] for name in (UNADJUSTED, LA, CHOSEN) if name in figures},
        held_out=None if bench is None else OUT_OF_FOLD if bench.folded else GIVEN,
    )


# -- what is given ----------------------------------------------------------------------------------------------------


def _price(against: ObjectiveLike, problem: Problem) -> Objective:
    """What is paid in."""
    price = as_objective(against)
    if price.name == problem.objective_spec.name:
        raise InputError(f"of and against are both {price.name!r}; a frontier needs two different objectives.")
    price.on(problem.context)  # what it needs to know of the classes is missed here
    return price


def _own(own: LogitAdjuster, asked: LogitAdjuster, task: Task, given: tuple[Any, ...]) -> Problem:
    """What the adjuster itself is asked of the samples."""
    if own is asked:
        return task.problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say has been said
        return own._question(*given)[0].problem


def _checked(points: int | Sequence[float]) -> int | Sequence[float]:
    """A number of points, or bounds."""
    if isinstance(points, bool) or not isinstance(points, int | np.integer):
        try:
            bounds = np.asarray(points)
        except ValueError:  # of rows of different lengths
            bounds = np.array(None)
        if bounds.ndim != 1 or len(bounds) == 0 or bounds.dtype.kind not in "iuf" or np.isnan(bounds).any():
            raise InputError(f"points is {short(points)}; it must be a whole number, or a list of bounds on `against`.")
        return np.unique(bounds.astype(np.float64)).tolist()
    if points < 2:
        raise InputError(f"points is {points}; a frontier has two ends, so ask for 2 or more.")
    if points > MOST:
        raise InputError(f"points is {points}; a frontier has at most {MOST:,}.")
    return int(points)


def _samples(
    adjuster: LogitAdjuster, problem: Problem, classes: Classes, held_out: tuple[ArrayLike, ArrayLike]
) -> Problem:
    """The same question of held-out samples."""
    if not isinstance(held_out, tuple) or len(held_out) != 2:
        raise InputError(f"held_out is {short(held_out)}; it must be a pair (X, y) of scores and labels.")
    X, y = held_out
    scores = check_scores(adjuster._arranged(X, "held_out"), name="held_out")
    labels = classes.encode(as_labels(y, "held_out"), "held_out")
    if scores.shape != (len(labels), problem.n_classes):
        raise InputError(
            f"held_out holds scores of shape {scores.shape} for {len(labels)} labels of {problem.n_classes} classes; "
            "give one row per label and one column per class."
        )
    resolve_absent(np.bincount(labels, minlength=problem.n_classes), adjuster.absent, classes.names)
    logits = np.ascontiguousarray(to_logits(scores, adjuster.scores, adjuster.floor), problem.scores.dtype)
    if np.array_equal(labels, problem.y) and np.array_equal(logits, problem.scores):
        raise InputError("held_out holds the samples that tune, so they are no test of the curve; give others.")
    return problem.derived(scores=logits, y=labels, given=np.ones(len(labels)), constraints=[])


# -- the question, its answers and their figures ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Trade:
    """A question with a price. own: what the adjuster itself is asked of the same samples."""

    task: Task
    method: str
    against: Objective
    own: Problem

    @once
    def by_labels(self) -> Problem:
        """The question that figures are told by: objective and price on the labels alone."""
        return priced(self.task.problem, self.against, 0.0)

    def chosen(self, task: Task) -> Found:
        """What the adjuster itself chooses on the same samples, or on some of them."""
        task = believing(task, self.method)
        parts = {"objective": self.own.objective_spec, "constraints": self.own.constraints}
        return tune(task.asking(task.problem.derived(beliefs=task.problem.beliefs, **parts)), self.method)

    def follow(self, task: Task, bounds: int | Sequence[float], chosen: Found) -> dict[float, Answer]:
        """The curve on the same samples, or on some of them."""
        free = priced(self.task.problem, self.against)
        same = self.own.objective_spec is free.objective_spec and self.own.constraints == free.constraints
        return follow(task, self.method, self.against, bounds, chosen if same else None)

    def answers(self, points: int | Sequence[float], chosen: Found) -> dict[float, Answer]:
        """One for each point of the curve, by its bound."""
        found = self.follow(self.task, points, chosen)
        kept = {bound: answer for bound, answer in found.items() if answer.found.worth.feasible}
        if not kept:
            asked = [*map(str, priced(self.task.problem, self.against).constraints)]
            asked += [] if isinstance(points, int) else [f"{self.against} <= {max(points):g}"]
            raise InputError(f"no adjustment found meets {', '.join(asked)}; ask for less.")
        if lost := [f"{bound:g}" for bound in found if bound not in kept]:
            said = f"no adjustment found keeps {self.against} to {', '.join(lost)}; these points are left out."
            warnings.warn(said, stacklevel=3)
        return self._undominated(kept)

    def _undominated(self, answers: Mapping[float, Answer]) -> dict[float, Answer]:
        """The longest chain in which each is dearer and better than the one before by what the method goes by, and
        neither cheaper nor worse by the labels."""
        ordered = sorted(answers.items(), key=lambda item: (item[1].price, item[1].value, item[0]))
        seen = [self._value_and_price(answer.found.adjustment) for _, answer in ordered]
        length, before = np.ones(len(ordered), np.int64), [-1] * len(ordered)
        for i, (_, answer) in enumerate(ordered):
            for j, (_, other) in enumerate(ordered[:i]):
                real = answer.price > other.price + ROUNDING and answer.value < other.value - ROUNDING
                shown = seen[i][1] >= seen[j][1] - ROUNDING and seen[i][0] <= seen[j][0] + ROUNDING
                if real and shown and length[j] + 1 > length[i]:
                    length[i], before[i] = length[j] + 1, j
        ends = [(n, -round(a.value, 9), -round(a.price, 9)) for n, (_, a) in zip(length, ordered, strict=True)]
        chain, i = [], max(range(len(ordered)), key=lambda i: (ends[i], i))
        while i >= 0:
            chain.append(ordered[i])
            i = before[i]
        return dict(reversed(chain))

    def named(self, task: Task, chosen: Found, answers: Mapping[float, Answer]) -> dict[str, Adjustment]:
        """All that is judged: no adjustment, logit adjustment as it is, what is chosen, and points by their bounds."""
        marks = {UNADJUSTED: task.problem.neutral}
        if task.usable_line is not None:
            marks[LA] = Adjustment.offsets(task.usable_line)
        marks[CHOSEN] = chosen.adjustment
        return marks | {str(bound): answer.found.adjustment for bound, answer in answers.items()}

    def repeated(self, task: Task, bounds: Sequence[float]) -> dict[str, Adjustment]:
        """All of it on some of the samples."""
        chosen = self.chosen(task)
        return self.named(task, chosen, self.follow(task, bounds, chosen))

    def _value_and_price(self, adjustment: Adjustment) -> tuple[float, float]:
        values = self.by_labels.values(adjustment)
        return values[0], values[-1]

    def point(self, adjustment: Adjustment, bench: _Bench | None, name: str) -> Point:
        """Its figures."""
        seen = self._value_and_price(adjustment)
        if bench is None:
            return Point(*seen)
        (value, of_value), (price, of_price) = bench.level(bench.problem, name), bench.level(bench.priced, name)
        return Point(*seen, value, price, of_value, of_price)

    def policies(
        self,
        answers: Mapping[float, Answer],
        points: Sequence[Point],
        bench: _Bench | None,
        policy_of: Callable[..., Policy],
    ) -> tuple[Policy, ...]:
        """A policy for each answer."""
        policies, task, first = list[Policy](), self.task, None
        for (bound, answer), point in zip(answers.items(), points, strict=True):
            judged = bench is not None and bench.folded
            gains = {TUNED: bench.gain(bench.problem, str(bound))} if bench is not None and judged else {}
            found, asked = answer.found, priced(task.problem, self.against, bound)
            told = validate(task.problem, found.adjustment, feasible=True, gains=gains, beside=[self.against])
            first = policy_of(task, found, told) if first is None else first  # its data are those of all
            policies.append(
                replace(
                    first,
                    strategy=found.adjustment.strategy(),
                    reason=f"on the frontier of {task.problem.objective_spec} against {self.against}: {found.reason}",
                    constraints=tuple(map(str, asked.constraints)),
                    weights={name: w.tolist() for name, w in found.weights.items()},
                    validation=told,
                    data={**first.data, "frontier": {"against": self.against.name, **point.to_dict()}},
                )
            )
        return tuple(policies)


@dataclass(frozen=True, eq=False)
class _Bench:
    """Decisions on samples that did not tune, and what they are worth. folded: are they those of the folds?"""

    problem: Problem
    judged: Judged
    against: Objective
    bootstrap: int
    seed: int
    folded: bool = False

    @once
    def priced(self) -> Problem:
        """The same samples, with the price for an objective."""
        return self.problem.derived(objective=self.against, constraints=[])

    def gain(self, problem: Problem, name: str) -> Gain:
        """By how much the objective falls."""
        return gained(problem, self.judged, name, draws=max(2, self.bootstrap // BRIEF), seed=self.seed)

    def level(self, problem: Problem, name: str) -> tuple[float, tuple[float, float] | None]:
        """The objective on these samples, and the 90 % interval that goes with its change.

        Out of fold it is that of the unadjusted scores less what is gained; on held-out samples, what they show.
        """
        if name == UNADJUSTED:
            return problem.worth(problem.neutral).value, None
        gain = self.gain(problem, name) if self.bootstrap else None
        if self.folded and gain is not None:
            level = problem.worth(problem.neutral).value - gain.mean
        else:
            level = on_confusion(problem.objective, problem.confusion_of(self.judged.decisions[name]))
        if gain is None:
            return level, None
        low, high = gain.interval
        return level, (level + gain.mean - high, level + gain.mean - low)

"""Abstention: the right to say "don't know", class by class, without giving classes up.

A sample that is decided for class k is rejected where its margin, the best adjusted score less the second, is below the
threshold t_k. What is left is judged by

    Err_c = 1 − hits_c / accepted_c,        coverage_c = accepted_c / total_c,

and each class keeps a coverage: rare classes are not simply rejected away. Three things may be asked for:

    a rate    the lowest objective such that no more than this share of the samples is rejected
    a cost    the lowest objective where a rejection counts as this share of an error (Chow)
    until     the fewest rejections such that a constraint holds among what is accepted

The thresholds are searched class by class: the samples decided for a class lie in order of their margin, and cut into
blocks; every number of blocks is tried, exactly, while the other classes stay. Thresholds of classes for which few
samples are decided are drawn towards the one threshold that all classes would share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, short
from capri.constraints import Constraint, as_constraint
from capri.forms import ConfusionFunction, Evaluator, MarginEvaluator
from capri.objectives import EVERY, Objective, of_class
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.methods import Task, believing, tune
from capri.posthoc.problem import Problem, tally
from capri.posthoc.search import Found
from capri.sentences import called, clipped, percent

BLOCKS, EVALUATIONS = (4, 32), 3000  # of margins per class, and of the objective per round
LARGEST = 2e7  # numbers for the blocks of all classes; beyond, all classes share a threshold
ROUNDS = 3  # of all classes
PRICES = 14  # of a rejection that are tried for a rate, each half of the one before
STEADY = 50.0  # samples decided for a class that weigh as much as what all classes share
EVENLY = 0.02  # of the balanced error on top of what is asked, for objectives that do not see most classes
RAISED = (1.0, 1.1, 1.25, 1.5, 2.0)  # times the thresholds that are found, where a constraint is to hold
CAUTIOUS = 2.0  # standard errors by which the floor on coverage is raised
BARRED = 1e6  # the price of what may not be

Mode: TypeAlias = Literal["rate", "cost", "until"]


@dataclass(frozen=True)
class Asked:
    """What is asked for: a mode, and a number or a constraint."""

    mode: Mode
    number: float = 0.0
    constraint: Constraint | None = None

    def __str__(self) -> str:
        if self.mode == "until":
            return f"until {self.constraint}"
        return (
            f"at most {100 * self.number:.3g} %"
            if self.mode == "rate"
            else f"each at the cost of {self.number:g} errors"
        )


def as_asked(reject: Any) -> Asked:
    """A rate between 0 and 1, ``"cost:0.3"``, or ``"until precision[*] >= 0.9"``."""
    if isinstance(reject, Asked):
        return reject
    if isinstance(reject, str):
        text = reject.strip()
        if text.startswith("until "):
            constraint = as_constraint(text.removeprefix("until "))
            if constraint.relative:
                raise InputError(f"reject={reject!r} needs a number, not the baseline.")
            return Asked("until", constraint=constraint)
        match = re.fullmatch(r"(cost:)?\s*([0-9.eE+-]+)", text)
        if match is not None:
            return _numbered("cost" if match[1] else "rate", match[2], reject)
    elif isinstance(reject, int | float | np.floating) and not isinstance(reject, bool):
        return _numbered("rate", reject, reject)
    raise InputError(
        f"reject is {short(reject)}; give a share such as 0.1, a cost such as 'cost:0.3', or a constraint, such as "
        "'until precision[*] >= 0.9'."
    )


def _numbered(mode: Mode, number: Any, given: Any) -> Asked:
    try:
        value = float(number)
    except (ValueError, OverflowError):
        value = np.nan
    if not 0 < value < 1:
        raise InputError(f"reject is {short(given)}; its number must be between 0 and 1.")
    return Asked(mode, value)


# -- the rule ---------------------------------------------------------------------------------------------------------


def margins(adjusted: NDArray[np.float64]) -> tuple[Ints, Vector]:
    """Decisions (n,), and the best adjusted score less the second (n,)."""
    top = adjusted.argmax(axis=1)
    best = np.take_along_axis(adjusted, top[:, None], axis=1)
    gaps = best - adjusted
    np.put_along_axis(gaps, top[:, None], np.inf, axis=1)
    return top, gaps.min(axis=1)


def accepted(adjusted: ArrayLike, thresholds: Vector) -> NDArray[np.bool_]:
    """Which samples are decided at all: those whose margin is not below the threshold of their class."""
    decisions, margin = margins(np.asarray(adjusted))
    return np.asarray(margin >= thresholds[decisions])


# -- what thresholds are worth ----------------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """Samples by decided class, cut into B blocks in order of their margin, the least sure first.

    masses: (K, B, K) of each true class, those by the labels (K, B, K) beside them. edges: (K, B + 1) margins between
    the blocks, the first 0.
    """

    masses: NDArray[np.float64]
    labels: NDArray[np.float64]
    edges: NDArray[np.float64]

    @classmethod
    def of(cls, problem: Problem, decisions: Ints, margin: Vector, n_blocks: int) -> Blocks:
        """Of the samples of a problem."""
        k = problem.n_classes
        masses, labels = np.zeros((k, n_blocks, k)), np.zeros((k, n_blocks, k))
        edges = np.zeros((k, n_blocks + 1))
        beliefs = None if problem.beliefs is None else np.asarray(problem.beliefs)
        for j in range(k):
            rows = np.flatnonzero(decisions == j)
            if not len(rows):
                continue
            rows = rows[np.argsort(margin[rows], kind="stable")]
            cut = np.unique(np.linspace(0, len(rows), min(n_blocks, len(rows)) + 1).astype(int))
            for b, (low, high) in enumerate(pairwise(cut.tolist())):
                part = rows[low:high]
                labels[j, b] = np.bincount(problem.y[part], problem.given[part], minlength=k)
                if beliefs is None:
                    masses[j, b] = np.bincount(problem.y[part], problem.weight[part], minlength=k)
                else:
                    masses[j, b] = beliefs[part].sum(axis=0, dtype=np.float64)
                last, after = margin[rows[high - 1]], margin[rows[min(high, len(rows) - 1)]]
                edges[j, b + 1] = (last + after) / 2 if high < len(rows) else np.nextafter(last, np.inf)
            edges[j, len(cut) :] = edges[j, len(cut) - 1]
        return cls(masses, labels, edges)


class Margins(NamedTuple):
    """Of what is accepted: hits, mass and decisions (K,) each, and the mass by labels (K,)."""

    hits: Vector
    rows: Vector
    columns: Vector
    labels: Vector


class Goal:
    """What is asked for, as a number to lower: of margins of what is accepted."""

    def __init__(self, problem: Problem, asked: Asked, min_coverage: float) -> None:
        self.problem, self.asked = problem, asked
        self.totals = np.where(problem.present, problem.totals, 0.0)
        self.counts = np.bincount(problem.y, problem.given, minlength=problem.n_classes)
        spread = np.sqrt(min_coverage * (1 - min_coverage) / np.maximum(self.counts, 1.0))
        self.floor = np.minimum(min_coverage + CAUTIOUS * spread, (1 + min_coverage) / 2)
        self.price = 0.0
        self._limits = [] if asked.constraint is None else _limits(asked.constraint, problem)

    def rejected(self, at: Margins) -> float:
        """The share that is rejected, by soft labels or by labels, the larger."""
        kept = np.divide(at.labels, self.counts, out=np.ones(len(at.rows)), where=self.counts > 0)
        return float(1 - min(at.rows.sum(), (self.totals * kept).sum()) / self.totals.sum())

    def coverage(self, at: Margins) -> Vector:
        """Of each class, by soft labels and by labels, the lesser; 1 for absent classes."""
        soft = np.divide(at.rows, self.totals, out=np.ones(len(at.rows)), where=self.totals > 0)
        hard = np.divide(at.labels, self.counts, out=np.ones(len(at.rows)), where=self.counts > 0)
        return np.minimum(soft, hard)

    def barred(self, at: Margins) -> float:
        """By how much classes are covered less than they shall be."""
        return float(np.maximum(self.floor - self.coverage(at), 0.0).sum())

    def value(self, at: Margins) -> float:
        """The objective among what is accepted; where a rejection has a cost, with it."""
        return self._of(self.problem.objective_spec, at)

    def violation(self, at: Margins) -> float:
        """By how much the constraint is broken that is to hold in the end."""
        return sum(max(0.0, self._of(objective, at) - limit) for objective, limit in self._limits)

    def __call__(self, at: Margins) -> float:
        """Everything together."""
        forbidden = BARRED * self.barred(at)
        if self.asked.mode == "until":
            return forbidden + BARRED / 1e3 * self.violation(at) + self.rejected(at)
        even = EVENLY * self._error(at).mean()
        return forbidden + self.value(at) + even + self.price * self.rejected(at)

    def _error(self, at: Margins) -> Vector:
        """Class errors (present classes): of the accepted, or with rejections at their cost."""
        here = self.problem.present
        if self.asked.mode == "cost":
            hits = at.hits + (1 - self.asked.number) * (self.totals - at.rows)
            return np.asarray(1 - hits[here] / self.totals[here])
        return np.asarray(
            1 - np.divide(at.hits[here], at.rows[here], out=np.zeros(here.sum()), where=at.rows[here] > 0)
        )

    def _of(self, objective: Objective, at: Margins) -> float:
        rows = self.totals if self.asked.mode == "cost" else at.rows
        evaluator: Evaluator = objective.on(
            self.problem.context.with_totals(np.maximum(rows, 1e-300 * self.problem.present))
        )
        if isinstance(evaluator, MarginEvaluator):
            return evaluator.of_margins(at.hits, rows, at.columns)
        assert not isinstance(evaluator, ConfusionFunction)
        return evaluator(np.clip(self._error(at), 0.0, 1.0))


def _limits(constraint: Constraint, problem: Problem) -> list[tuple[Objective, float]]:
    """Objectives and their limits; a floor for every class is one for each, so that each step towards it shows."""
    name = constraint.objective.name
    match = re.fullmatch(r"(recall|err|precision|f1)\[\*\]", name)
    quality = "recall" if name in ("worst", "min_recall") else match[1] if match else None
    if quality is None or EVERY in problem.context.class_names:
        return [(constraint.objective, constraint.limit(0.0))]
    of = [name for name, here in zip(problem.context.class_names, problem.present, strict=True) if here]
    return [(of_class(quality, name), constraint.limit(0.0)) for name in of]


# -- the search -------------------------------------------------------------------------------------------------------


class Search:
    """Coordinate descent on how many blocks each class rejects."""

    def __init__(self, goal: Goal, blocks: Blocks) -> None:
        self.goal, self.blocks = goal, blocks
        k, b, _ = blocks.masses.shape
        zero = np.zeros((k, 1, k))
        self._gone = np.concatenate([zero, blocks.masses.cumsum(axis=1)], axis=1)  # (K, B + 1, K)
        self._lost = np.concatenate([zero, blocks.labels.cumsum(axis=1)], axis=1)
        self._whole, self._seen = blocks.masses.sum(axis=(0, 1)), blocks.labels.sum(axis=(0, 1))
        self._decided, self.k, self.b = blocks.masses.sum(axis=(1, 2)), k, b

    def margins(self, chosen: Ints) -> Margins:
        """Of what is accepted, where the first blocks of each class are not."""
        every = np.arange(self.k)
        gone = self._gone[every, chosen]
        hits = (self._gone[every, -1] - gone)[every, every]
        columns = self._decided - gone.sum(axis=1)
        return Margins(
            hits, self._whole - gone.sum(axis=0), columns, self._seen - self._lost[every, chosen].sum(axis=0)
        )

    def descend(self, chosen: Ints) -> Ints:
        """Class by class to the best number of blocks, until nothing changes."""
        chosen = chosen.copy()
        for _ in range(ROUNDS):
            before = chosen.copy()
            for j in range(self.k):
                if self._decided[j] > 0:
                    chosen[j] = self._best(chosen, j)
            if (before == chosen).all():
                break
        return chosen

    def _best(self, chosen: Ints, j: int) -> int:
        here, at = chosen[j], self.margins(chosen)
        best, least = here, self.goal(at)
        for b in range(self.b + 1):
            if b == here or (b > 0 and self.blocks.edges[j, b] == self.blocks.edges[j, b - 1]):
                continue
            back, lost = self._gone[j, here] - self._gone[j, b], self._lost[j, here] - self._lost[j, b]
            hits, columns = at.hits.copy(), at.columns.copy()
            hits[j] += back[j]
            columns[j] += back.sum()
            value = self.goal(Margins(hits, at.rows + back, columns, at.labels + lost))
            if value < least - 1e-12:
                best, least = b, value
        return int(best)


class Rule(NamedTuple):
    """Thresholds (K,), and what they come to on the samples that tuned."""

    thresholds: Vector
    value: float
    rejected: float
    barred: float


class Samples:
    """Decisions and margins of a problem's samples at an adjustment; thresholds are judged sample by sample."""

    def __init__(self, problem: Problem, adjustment: Adjustment, goal: Goal) -> None:
        self.problem, self.goal = problem, goal
        self.decisions, self.margin = margins(problem.scores * adjustment.delta - adjustment.l)
        counted = problem.mass(np.arange(problem.n_samples), self.decisions)
        self._hits, self._membership = counted, problem.membership

    def at(self, thresholds: Vector) -> Margins:
        """Of what is accepted."""
        keep, k = self.margin >= thresholds[self.decisions], self.problem.n_classes
        decided = self.decisions[keep]
        return Margins(
            tally(decided, self._hits[keep], k),
            self._membership[keep].sum(axis=0, dtype=np.float64),
            tally(decided, self.problem.weight[keep], k),
            tally(self.problem.y[keep], self.problem.given[keep], k),
        )

    def rule(self, thresholds: Vector) -> Rule:
        """The thresholds with their worth."""
        at = self.at(thresholds)
        barred = self.goal.barred(at)
        violated = self.goal.violation(at) if self.goal.asked.mode == "until" else 0.0
        value = violated if self.goal.asked.mode == "until" else self.goal.value(at)
        return Rule(thresholds, value, self.goal.rejected(at), barred)

    def shared(self, shape: Callable[[float], Vector], fits: Callable[[Margins], bool]) -> Vector:
        """The highest of thresholds that rise with one number, that fits; nothing is rejected where none does."""
        low, high = 0.0, float(self.margin.max()) + 1.0
        if fits(self.at(shape(high))):
            return shape(high)
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(self.at(shape(middle))) else (low, middle)
        return shape(low)


def find(problem: Problem, adjustment: Adjustment, asked: Asked, min_coverage: float) -> Rule:
    """The thresholds for what is asked, at an adjustment.

    A constraint that is to hold in the end holds by the labels; by soft labels as well, if that can be had.
    """
    refuse(problem, asked)
    rules = _candidates(problem, adjustment, asked, min_coverage)
    if asked.mode != "until":
        return min(rules, key=lambda rule: _rank(rule, asked))
    hard = problem.derived()
    if problem.beliefs is not None:
        rules += _candidates(hard, adjustment, asked, min_coverage)
    soft, plain = (Samples(p, adjustment, Goal(p, asked, min_coverage)) for p in (problem, hard))
    raised = [rule.thresholds * factor for rule in rules for factor in RAISED]
    judged = [(plain.rule(thresholds), soft.rule(thresholds)) for thresholds in raised]
    best, _ = min(judged, key=lambda both: (*_rank(both[0], asked)[:3], *_rank(both[1], asked)))
    return best


def _candidates(problem: Problem, adjustment: Adjustment, asked: Asked, min_coverage: float) -> list[Rule]:
    """Nothing rejected, one threshold for all, and thresholds by class."""
    goal = Goal(problem, asked, min_coverage)
    samples, k = Samples(problem, adjustment, goal), problem.n_classes
    candidates = [samples.rule(np.zeros(k)), *_alike(samples, asked)]
    if (k * k * BLOCKS[0]) <= LARGEST:
        room = int(min(max(EVALUATIONS // k, BLOCKS[0]), BLOCKS[1], LARGEST // (k * k)))
        blocks = Blocks.of(problem, samples.decisions, samples.margin, room)
        candidates += _by_class(samples, goal, blocks, asked)
    return candidates


def together(task: Task, method: str, found: Found, asked: Asked, min_coverage: float) -> tuple[Found, Rule]:
    """Offsets and thresholds: at the offsets that were found for all samples, or at those for the accepted ones."""
    problem = believing(task, method).problem
    rule = find(problem, found.adjustment, asked, min_coverage)
    keep = accepted(problem.scores * found.adjustment.delta - found.adjustment.l, rule.thresholds)
    left = problem.subset(keep)
    if keep.all() or not (left.present == problem.present).all():
        return found, rule
    again = tune(task.asking(left), method)
    other = find(problem, again.adjustment, asked, min_coverage)
    if _rank(other, asked) < _rank(rule, asked):
        worth = problem.worth(again.adjustment)  # of all samples, as figures are
        return replace(again, worth=worth, reason=f"{again.reason}, for what is accepted"), other
    return found, rule


def _rank(rule: Rule, asked: Asked) -> tuple[float, ...]:
    """No class given up, then what was asked, then the fewest rejections."""
    over = max(0.0, rule.rejected - asked.number) if asked.mode == "rate" else 0.0
    return round(rule.barred, 12), round(over, 12), round(rule.value, 12), rule.rejected


def _alike(samples: Samples, asked: Asked) -> list[Rule]:
    """One threshold for all classes: what a global rule would do."""
    goal, ones = samples.goal, np.ones(samples.problem.n_classes)
    if asked.mode == "rate":

        def fits(at: Margins) -> bool:
            return goal.rejected(at) <= asked.number + 1e-12 and goal.barred(at) == 0

        return [samples.rule(samples.shared(lambda t: t * ones, fits))]
    grid = np.unique(np.quantile(samples.margin, np.linspace(0, 0.95, 39)))
    return [samples.rule(t * ones) for t in grid]


def _by_class(samples: Samples, goal: Goal, blocks: Blocks, asked: Asked) -> list[Rule]:
    """Thresholds of their own, and the same drawn together."""
    search, none = Search(goal, blocks), np.zeros(samples.problem.n_classes, np.int64)
    if asked.mode != "rate":
        starts = [none]
        found = [search.descend(start) for start in starts]
    else:
        found, chosen = [], none
        for step in range(PRICES):  # from dear to cheap: more and more is rejected
            goal.price = 1.0 / 2**step
            chosen = search.descend(chosen)
            found.append(chosen)
            if goal.rejected(search.margins(chosen)) > asked.number:
                break
        goal.price = 0.0
    decided = np.bincount(samples.decisions, minlength=samples.problem.n_classes)
    rules = []
    for chosen in found[-2:]:
        own = blocks.edges[np.arange(len(chosen)), chosen]
        middle = float(np.average(own, weights=np.maximum(decided, 1e-9)))
        drawn = middle + decided / (decided + STEADY) * (own - middle)
        rules += [_repaired(samples, thresholds, asked) for thresholds in (own, drawn)]
    return rules


def _repaired(samples: Samples, thresholds: Vector, asked: Asked) -> Rule:
    """The thresholds lowered together until no class is given up and no more than a rate rejected, or raised to it."""
    goal = samples.goal

    def fits(at: Margins) -> bool:
        return goal.barred(at) == 0 and (asked.mode != "rate" or goal.rejected(at) <= asked.number + 1e-12)

    if asked.mode != "rate" and fits(samples.at(thresholds)):
        return samples.rule(thresholds)
    span = float(thresholds.max())
    if asked.mode == "rate":  # along t + s, as far down as is needed and as far up as there is room

        def shape(s: float) -> Vector:
            return np.asarray(np.maximum(thresholds + (s - span), 0.0) * (thresholds > 0))
    else:

        def shape(s: float) -> Vector:
            return np.asarray(np.minimum(thresholds, s))

    return samples.rule(samples.shared(shape, fits))


def refuse_score(reject: Any) -> None:
    """Accuracy is of decisions on every sample."""
    if reject is not None:
        raise InputError(
            "accuracy is of decisions on every sample, and reject leaves some undecided; use capri.evaluate, which "
            "judges the others and tells their share."
        )


def refuse(problem: Problem, asked: Asked) -> None:
    """What cannot be judged among what is accepted, or has no errors to compare with a cost."""
    evaluators: Sequence[Evaluator] = [problem.objective]
    names = [problem.objective_spec.name]
    if asked.constraint is not None:
        evaluators = [asked.constraint.objective.on(problem.context)]
        names = [asked.constraint.objective.name]
    for evaluator, name in zip(evaluators, names, strict=True):
        costs = getattr(evaluator, "costs", None)
        if isinstance(evaluator, ConfusionFunction) or (costs is not None and costs.any()):
            raise InputError(f"reject is not known for {name!r}, which needs the whole confusion matrix.")
        if asked.mode == "cost" and isinstance(evaluator, MarginEvaluator):
            raise InputError(
                f"a cost of rejection is compared with errors, and {name!r} is no mean of class errors; give a share."
            )


# -- what is said of it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Abstention:
    """What is rejected, on the samples that tuned.

    Parameters
    ----------
    asked : str
        What for.
    rejected : float
        The share that is rejected, in the class shares of the world.
    coverage : tuple of float or None
        The share of each class that is decided; None for classes without samples.
    min_coverage : float
        What was asked of it.
    objective : str
        What was tuned for.
    before, after : float
        The objective where everything is decided, and among what is accepted.
    met : bool
        Whether what was asked for is kept: the constraint, and the coverage.
    class_names : tuple of str
        Of the classes.
    """

    asked: str
    rejected: float
    coverage: tuple[float | None, ...]
    min_coverage: float
    objective: str
    before: float
    after: float
    met: bool
    class_names: tuple[str, ...]

    def __str__(self) -> str:
        known = [(c, n) for c, n in zip(self.coverage, self.class_names, strict=True) if c is not None]
        least, name = min(known)
        change = f"{called(self.objective)} {percent(self.before)} → {percent(self.after)} % among what is decided"
        said = (
            f"{percent(self.rejected)} % are left undecided ({self.asked}): {change}. Every class is decided in "
            f"{percent(least)} % of its samples or more ({clipped(name)}), where {100 * self.min_coverage:g} % are "
            "asked for."
        )
        if self.met:
            return said
        room = " A lower min_coverage leaves more room." if self.min_coverage else ""
        return f"{said} Nothing was found that keeps what was asked for.{room}"

    def as_json(self) -> dict[str, Any]:
        """For the policy."""
        return {
            "text": str(self),
            "asked": self.asked,
            "rejected": self.rejected,
            "coverage": list(self.coverage),
            "min_coverage": self.min_coverage,
            "met": self.met,
        }


def told(problem: Problem, adjustment: Adjustment, rule: Rule, asked: Asked, min_coverage: float) -> Abstention:
    """What a rule does on the samples of a problem, by their labels."""
    plain = problem.derived() if problem.beliefs is not None else problem
    keep_all, k = Goal(plain, Asked("rate", 0.5), min_coverage), plain.n_classes
    samples = Samples(plain, adjustment, keep_all)
    all_of_it, at = samples.at(np.zeros(k)), samples.at(rule.thresholds)
    limits = Goal(plain, asked, min_coverage)
    coverage = np.where(plain.present, keep_all.coverage(at), np.nan)
    kept = bool(np.nanmin(coverage) >= min_coverage - 1e-12)
    met = kept and (asked.mode != "until" or limits.violation(at) <= 1e-9)
    return Abstention(
        str(asked),
        keep_all.rejected(at),
        tuple(None if np.isnan(c) else float(c) for c in coverage),
        min_coverage,
        plain.objective_spec.name,
        keep_all.value(all_of_it),
        keep_all.value(at),
        met,
        tuple(plain.context.class_names),
    )

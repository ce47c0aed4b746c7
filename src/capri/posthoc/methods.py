"""Methods: ways to choose an adjustment (Δ, l), all configurations of one evaluator.

cap    l = D w, a map of class attributes; with pooling classes may deviate from it, around the calibrated answer
plain  one free offset (or multiplier, or both) per class (the identity as attributes)
la     l = τ log π, one number (logit adjustment, tuned)
cdt    Δ = (π_max / π)^γ, one number (class-dependent temperatures)
vs     both of these, two numbers (vector scaling)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError
from capri._lazy import once
from capri.attributes import Attributes, frequency
from capri.dictionary import BASIS, BasisFunction, Dictionary, Scaling, build_dictionary
from capri.evidence import Evidence, gather
from capri.posthoc.absent import among_present, extend
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.calibration import Calibration, calibrate, importance, soft_labels, spread_opinion
from capri.posthoc.pooling import Prior, best_on_the_way, default_strength, make_feasible, pool
from capri.posthoc.problem import Problem
from capri.posthoc.search import MULTIPLIER_LIMIT, Found, Space, exact_search
from capri.posthoc.smooth import minimise_offsets

Parameters: TypeAlias = Literal["l", "delta", "both"]
Pooling: TypeAlias = Literal["auto"] | float | None

GAMMAS = np.linspace(0.0, 0.6, 25)  # CDT's exponent; (π_max / π)^γ is capped as all multipliers are
METHOD_ROUNDS = 3  # of the exact search in few directions: along a line, or in the columns of D
FREE_ROUNDS, FREE_ITERATIONS = 1, 60  # of the exact and the smooth search with a direction for each class
START_ITERATIONS = 15  # of the smooth search that only finds where the exact one starts


@dataclass(frozen=True, eq=False)
class Task:
    """What a method works on. evidence: what is known of the classes without the scores; wanted: which attributes;
    borrow: how many labels of a class the model's own opinion is worth; unlabelled: (m, K), further logits, without
    labels, for that opinion; start: (K,), the offsets of an answer to a question like this one, to search from."""

    problem: Problem
    evidence: Evidence
    wanted: Literal["auto"] | Sequence[str] = "auto"
    basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS)
    scaling: Scaling = "whiten"
    parameters: Parameters = "l"
    pooling: Pooling = "auto"
    borrow: float = 0.0
    unlabelled: NDArray[Any] | None = None
    seed: int = 0
    start: Vector | None = None

    @once
    def calibration(self) -> Calibration:
        """What the model believes, by the labels; of the classes that have samples."""
        if not self.problem.present.all():
            return self.among_present().calibration
        counts = self.evidence.class_counts
        return calibrate(self.problem, None if counts is None else np.asarray(counts, dtype=np.float64))

    @property
    def temperature(self) -> float | None:
        """By how much the logits are too large, where tuning had to know."""
        found: Calibration | None = self.__dict__.get("calibration")
        return None if found is None else found.temperature

    @once
    def informed(self) -> Task:
        """The same task with soft labels, where the model's opinion may be borrowed and lines of offsets are enough."""
        if not self.borrow or self.parameters != "l" or self.problem.beliefs is not None:
            return self
        problem, here, more = self.problem, self.problem.present, self.unlabelled
        if here.all() and more is None:
            return self._believing(problem, soft_labels(problem, self.calibration, self.borrow))
        among = problem if here.all() else among_present(problem)
        beliefs = np.zeros(problem.scores.shape, problem.scores.dtype)
        rows = np.ix_(here[problem.y], here)
        if more is None:
            beliefs[rows] = np.asarray(soft_labels(among, self.calibration, self.borrow))
        else:
            beyond = np.zeros(more.shape, problem.scores.dtype)
            known = np.ascontiguousarray(more[:, here])
            beliefs[rows], beyond[:, here] = spread_opinion(among, self.calibration, known, self.borrow)
            problem, beliefs = problem.joined(more), np.concatenate([beliefs, beyond])
        return self._believing(problem, beliefs)

    def _believing(self, problem: Problem, beliefs: Any) -> Task:
        return self.asking(problem.believing(beliefs))

    def asking(self, problem: Problem, **parts: Any) -> Task:
        """The same task with another question about the same labels and scores, which are calibrated once."""
        task = replace(self, problem=problem, **parts)
        if "calibration" in self.__dict__:
            task.__dict__["calibration"] = self.calibration
        return task

    def attributes(self, problem: Problem) -> Attributes | None:
        """The attribute table, difficulty measured on these samples; None where nothing is known of the classes."""
        errors, labels = (
            problem.errors(problem.neutral),
            np.bincount(problem.y[problem.given > 0], minlength=problem.n_classes),
        )
        measured = replace(self.evidence, errors=errors, n_samples=labels)
        return gather(measured, self.wanted, problem.context.class_names)

    def dictionary(self, problem: Problem) -> Dictionary:
        """D on these samples; without columns where the attributes are the same for all classes."""
        table = self.attributes(problem)
        if table is None or (table.values == table.values[0]).all():
            return Dictionary(np.zeros((problem.n_classes, 0)), (), self.scaling, np.zeros(0), np.zeros((0, 0)))
        return build_dictionary(table, self.basis, scaling=self.scaling)

    def prior(self) -> Prior:
        """The calibrated answer to the objective, and the directions of D."""
        known = self.calibration
        centre = known.offsets(importance(self.problem))
        return Prior(self.dictionary(self.problem).values, centre, known.scale, known.word)

    def among_present(self) -> Task:
        """The same task of the classes that have samples."""
        here = self.problem.present
        start = None if self.start is None else self.start[here]
        return self.asking(among_present(self.problem), evidence=self.evidence.among(here), start=start)

    @property
    def line(self) -> Vector | None:
        """log π, the line of logit adjustment, where frequencies are known."""
        counts = self.evidence.class_counts
        return None if counts is None else np.log(frequency(counts))

    @property
    def usable_line(self) -> Vector | None:
        """The same, or None where it is not wanted or a class never occurred."""
        counts = self.evidence.class_counts
        wanted = self.wanted == "auto" or "freq" in self.wanted
        return self.line if wanted and counts is not None and np.asarray(counts).min() > 0 else None

    @property
    def log_frequency(self) -> Vector:
        """log π, for methods that need it."""
        if self.line is None:
            raise InputError(
                "this method adjusts by class frequency; give {argument} of the training data.", argument="class_counts"
            )
        return self.line


def believing(task: Task, method: str) -> Task:
    """The task as the method sees it: with soft labels, where these are borrowed and serve it."""
    return task.informed if method in BORROWING else task


def tune(task: Task, method: str = "cap") -> Found:
    """What the method finds, with offsets of mean 0, or no adjustment at all where that is no worse.

    Worth is told by the soft labels where the model's opinion is borrowed, by the labels where it is not, and with the
    penalty where classes are pooled.
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")
    task = believing(task, method)
    problem, choose = task.problem, METHODS[method]
    found = choose(task) if problem.present.all() else _from_present(task, choose)
    adjustment = found.adjustment.centred()
    found = replace(found, adjustment=adjustment, worth=problem.worth(adjustment))
    unadjusted = problem.worth(problem.neutral)
    if found.settled or found.worth.better_than(unadjusted):
        return found
    reason = f"nothing found beats the unadjusted scores ({found.reason})"
    return Found(problem.neutral, unadjusted, reason, found.lines)


def _from_present(task: Task, choose: Callable[[Task], Found]) -> Found:
    """What the method finds among the present classes, extended to absent ones, or the best on the way there.

    Absent classes take samples from the present ones, so that the whole way may be worse than none.
    """
    problem, found = task.problem, choose(task.among_present())
    wanted = extend(found.adjustment, problem.present, task.line)
    worth = problem.worth(wanted)
    if worth.feasible and worth.better_than(problem.worth(problem.neutral)):
        return replace(found, adjustment=wanted)
    partial = best_on_the_way(problem, problem.neutral, wanted)
    reason = f"part of the way, for the sake of absent classes, to {found.reason}"
    return replace(found, adjustment=partial, reason=reason, weights={})


def _cap(task: Task) -> Found:
    if task.parameters == "l" and task.pooling is not None:
        strength = default_strength(task.problem) if task.pooling == "auto" else _strength(task.pooling)
        return pool(task.problem, task.prior(), task.usable_line, strength, task.start)
    problem, columns = task.problem, task.dictionary(task.problem).values
    space = Space.of(
        columns if task.parameters in ("l", "both") else None,
        columns if task.parameters in ("delta", "both") else None,
    )
    start = _start(task, columns, space)
    return exact_search(problem, space, [start], max_rounds=METHOD_ROUNDS, seed=task.seed)


def _start(task: Task, columns: NDArray[np.float64], space: Space) -> Vector:
    """Where offsets may move: what is known to be near, the tuned line of logit adjustment, or the smooth answer."""
    start, m = np.zeros(space.size), space.offsets.shape[1]
    if m == 0:
        return start
    near = task.start
    if near is None and task.usable_line is not None:
        near = _on_line(task, task.usable_line).adjustment.l
    if near is not None:
        start[:m] = np.linalg.lstsq(columns, near - near.mean(), rcond=None)[0]
    else:
        start[:m] = minimise_offsets(task.problem, columns, start[:m], max_iterations=START_ITERATIONS)
    return start


def _strength(pooling: object) -> float:
    if isinstance(pooling, int | float) and not isinstance(pooling, bool) and pooling > 0:
        return float(pooling)
    raise InputError(f"pooling is {pooling!r}; it must be 'auto', None, or a positive λ.")


def _plain(task: Task) -> Found:
    """One free number per class, never worse than what it contains: logit adjustment, the map and pooling."""
    problem, none = task.problem, np.zeros(task.problem.n_classes)
    free = np.eye(problem.n_classes)
    if task.parameters == "delta":
        return exact_search(problem, Space.of(None, free), [none], max_rounds=FREE_ROUNDS, seed=task.seed)
    if task.parameters == "both":
        both = np.append(minimise_offsets(problem, free, none, max_iterations=FREE_ITERATIONS), none)
        return exact_search(problem, Space.of(free, free), [both], max_rounds=FREE_ROUNDS, seed=task.seed)
    contained = [problem.neutral, *(found.adjustment for found in _contained(task))]
    contained += [] if task.start is None else [Adjustment.offsets(task.start)]
    freed = []
    for start in contained:
        l = minimise_offsets(problem, free, start.l, max_iterations=FREE_ITERATIONS)
        freed.append(make_feasible(problem, start, Adjustment.offsets(l)))
    worth, best = min(((problem.worth(a), i) for i, a in enumerate([*contained, *freed])), key=lambda pair: pair)
    found = [*contained, *freed][best]
    return Found(found, worth, "smooth search of one offset per class", weights={"l": found.l})


def _contained(task: Task) -> list[Found]:
    """What other methods find that one free offset per class contains."""
    if task.usable_line is None and task.evidence.class_counts is not None:
        return []  # a class that never occurred has no frequency to go by
    lines = [] if task.usable_line is None else [_on_line(task, task.usable_line)]
    return [*lines, _cap(replace(task, pooling=None)), _cap(replace(task, pooling="auto"))]


def _on_line(task: Task, direction: Vector) -> Found:
    return exact_search(task.problem, Space.of(direction[:, None]), max_rounds=METHOD_ROUNDS, seed=task.seed)


def _la(task: Task) -> Found:
    found = _on_line(task, task.log_frequency)
    return replace(found, reason=f"τ = {found.weights['l'][0]:.4g}")


def _temperatures(task: Task, gamma: float) -> Vector:
    ratio = np.exp(gamma * (task.log_frequency.max() - task.log_frequency))
    return np.minimum(ratio, MULTIPLIER_LIMIT)


def _cdt(task: Task) -> Found:
    choices = {g: Adjustment.multipliers(_temperatures(task, g)) for g in GAMMAS.tolist()}
    worth = {g: task.problem.worth(choice) for g, choice in choices.items()}
    gamma = min(worth, key=lambda g: (worth[g], g))
    return Found(choices[gamma], worth[gamma], f"γ = {gamma:.3g}")


def _vs(task: Task) -> Found:
    """γ on a grid, τ exactly for each: multipliers are a curve in γ, offsets a line in τ."""
    best: Found | None = None
    for gamma in GAMMAS[::2].tolist():
        space = Space.of(task.log_frequency[:, None], base=_temperatures(task, gamma))
        found = exact_search(task.problem, space, max_rounds=METHOD_ROUNDS)
        if best is None or found.worth.better_than(best.worth):
            best = replace(found, reason=f"γ = {gamma:.3g}, τ = {found.weights['l'][0]:.4g}")
    assert best is not None
    return best


BORROWING = ("cap", "plain", "la")  # methods of offsets, which soft labels serve
METHODS: dict[str, Callable[[Task], Found]] = {"cap": _cap, "plain": _plain, "la": _la, "cdt": _cdt, "vs": _vs}

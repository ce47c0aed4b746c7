"""Methods: ways to choose an adjustment (Δ, l), all configurations of one evaluator.

cap    l = D w, a map of class attributes; with pooling each class may deviate from it
plain  one free offset (or multiplier, or both) per class (the identity as attributes)
la     l = τ log π, one number (logit adjustment, tuned)
cdt    Δ = (π_max / π)^γ, one number (class-dependent temperatures)
vs     both of these, two numbers (vector scaling)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from capri._checks import InputError
from capri.attributes import Attributes, frequency
from capri.dictionary import BASIS, BasisFunction, Dictionary, Scaling, build_dictionary
from capri.evidence import Evidence, gather
from capri.posthoc.absent import among_present, extend
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.pooling import Prior, best_on_the_way, make_feasible, pool, pool_automatically
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
    """What a method works on. evidence: what is known of the classes without the scores; wanted: which attributes."""

    problem: Problem
    evidence: Evidence
    wanted: Literal["auto"] | Sequence[str] = "auto"
    basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS)
    scaling: Scaling = "whiten"
    parameters: Parameters = "l"
    pooling: Pooling = "auto"
    seed: int = 0
    on_progress: Callable[[], None] = field(default=lambda: None)

    def attributes(self, problem: Problem) -> Attributes | None:
        """The attribute table, difficulty measured on these samples; None where nothing is known of the classes."""
        measured = replace(self.evidence, errors=problem.errors(problem.neutral), n_samples=problem.totals)
        return gather(measured, self.wanted, problem.context.class_names)

    def dictionary(self, problem: Problem) -> Dictionary:
        """D on these samples; without columns where the attributes are the same for all classes."""
        table = self.attributes(problem)
        if table is None or (table.values == table.values[0]).all():
            return Dictionary(np.zeros((problem.n_classes, 0)), (), self.scaling, np.zeros(0), np.zeros((0, 0)))
        return build_dictionary(table, self.basis, scaling=self.scaling)

    def prior(self, problem: Problem) -> Prior:
        """The prior that D makes, with the line of logit adjustment where frequencies are known and wanted."""
        wanted = self.wanted == "auto" or "freq" in self.wanted
        return Prior(self.dictionary(problem).values, self.line if wanted else None)

    def among_present(self) -> Task:
        """The same task of the classes that have samples."""
        return replace(self, problem=among_present(self.problem), evidence=self.evidence.among(self.problem.present))

    @property
    def line(self) -> Vector | None:
        """log π, the line of logit adjustment, where frequencies are known."""
        counts = self.evidence.class_counts
        return None if counts is None else np.log(frequency(counts))

    @property
    def log_frequency(self) -> Vector:
        """log π, for methods that need it."""
        if self.line is None:
            raise InputError(
                "this method adjusts by class frequency; give {argument} of the training data.", argument="class_counts"
            )
        return self.line


def tune(task: Task, method: str = "cap") -> Found:
    """What the method finds, with offsets of mean 0, or no adjustment at all where that is no worse on validation."""
    if method not in METHODS:
        raise InputError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")
    problem, choose = task.problem, METHODS[method]
    found = choose(task) if problem.present.all() else _from_present(task, choose)
    adjustment = found.adjustment.centred()
    found = replace(found, adjustment=adjustment, worth=problem.worth(adjustment))
    unadjusted = problem.worth(problem.neutral)
    if found.worth.better_than(unadjusted):
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
    problem = task.problem  # two classes have one offset, which nothing but the prior's line can move: no pooling
    if task.parameters == "l" and task.pooling is not None and problem.n_classes > 2 and not problem.on_confusion:
        return _cap_pooled(task)
    prior = task.prior(problem)
    space = Space.of(
        prior.columns if task.parameters in ("l", "both") else None,
        prior.columns if task.parameters in ("delta", "both") else None,
    )
    start = _start(task, prior, space)
    return exact_search(problem, space, [start], max_rounds=METHOD_ROUNDS, seed=task.seed)


def _start(task: Task, prior: Prior, space: Space) -> Vector:
    """Where offsets may move, the tuned line of logit adjustment, or the smooth answer if frequencies are unknown."""
    start, m = np.zeros(space.size), space.offsets.shape[1]
    if m == 0:
        return start
    if prior.line is not None:
        start[:m] = prior.nearest(_on_line(task, prior.line).adjustment.l)
    else:
        start[:m] = minimise_offsets(task.problem, prior.columns, start[:m], max_iterations=START_ITERATIONS)
    return start


def _cap_pooled(task: Task) -> Found:
    if task.pooling == "auto":
        return pool_automatically(task.problem, task.prior, seed=task.seed, on_fold=task.on_progress)
    return pool(task.problem, task.prior(task.problem), _strength(task.pooling))


def _strength(pooling: object) -> float:
    if isinstance(pooling, int | float) and not isinstance(pooling, bool) and pooling > 0:
        return float(pooling)
    raise InputError(f"pooling is {pooling!r}; it must be 'auto', None, or a positive λ.")


def _plain(task: Task) -> Found:
    problem, none = task.problem, np.zeros(task.problem.n_classes)
    free = np.eye(problem.n_classes)
    if task.parameters == "delta":
        return exact_search(problem, Space.of(None, free), [none], max_rounds=FREE_ROUNDS, seed=task.seed)
    l = minimise_offsets(problem, free, none, max_iterations=FREE_ITERATIONS)
    if task.parameters == "both":
        start = np.append(l, none)
        return exact_search(problem, Space.of(free, free), [start], max_rounds=FREE_ROUNDS, seed=task.seed)
    found = make_feasible(problem, problem.neutral, Adjustment.offsets(l))
    return Found(found, problem.worth(found), "smooth search of one offset per class", weights={"l": found.l})


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


METHODS: dict[str, Callable[[Task], Found]] = {"cap": _cap, "plain": _plain, "la": _la, "cdt": _cdt, "vs": _vs}

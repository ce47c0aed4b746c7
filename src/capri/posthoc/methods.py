"""Methods: ways to choose (m, l), all configurations of one evaluator.

cap    l = D w, a map of class attributes; with pooling each class may deviate from it
plain  one free offset (or multiplier, or both) per class (the identity as attributes)
la     l = τ log π, one number (logit adjustment, tuned)
cdt    m = (π_max / π)^γ, one number (class-dependent temperatures)
vs     both of these, two numbers (vector scaling)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np

from capri._checks import InputError
from capri.attributes import Attributes, difficulty
from capri.dictionary import BASIS, BasisFunction, Dictionary, Scaling, build_dictionary
from capri.posthoc.pooling import Prior, default_strength, make_feasible, pool_automatically, pooled
from capri.posthoc.problem import Problem, Vector, Worth
from capri.posthoc.search import MULTIPLIER_LIMIT, Found, Space, exact_search
from capri.posthoc.smooth import minimise_offsets

Parameters: TypeAlias = Literal["l", "delta", "both"]
Pooling: TypeAlias = Literal["auto"] | float | None

GAMMAS = np.linspace(0.0, 0.6, 25)  # CDT's exponent; (π_max / π)^γ is capped as all multipliers are


@dataclass(frozen=True, eq=False)
class Task:
    """What a method works on. known: attributes that do not depend on the scores; measure_diff: add difficulty."""

    problem: Problem
    known: Mapping[str, Vector]
    measure_diff: bool = True
    basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS)
    scaling: Scaling = "whiten"
    parameters: Parameters = "l"
    pooling: Pooling = "auto"
    max_rounds: int = 3
    seed: int = 0
    on_progress: Callable[[], None] = field(default=lambda: None)

    def attributes(self, problem: Problem) -> Attributes:
        """The attribute table, difficulty measured on these samples."""
        columns = dict(self.known)
        if self.measure_diff and "diff" not in columns:  # the user may know it from elsewhere
            columns["diff"] = difficulty(problem.errors(*problem.neutral), problem.totals)
        if not columns:
            raise InputError("no attributes: give class_counts=… for 'freq', or name others.")
        return Attributes.of(class_names=problem.context.class_names, **columns)

    def dictionary(self, problem: Problem) -> Dictionary:
        """D on these samples; without columns where the attributes are the same for all classes."""
        table = self.attributes(problem)
        if (table.values == table.values[0]).all():
            return Dictionary(np.zeros((table.n_classes, 0)), (), self.scaling, np.zeros(0), np.zeros((0, 0)))
        return build_dictionary(table, self.basis, scaling=self.scaling)

    def prior(self, problem: Problem) -> Prior:
        """The prior that D makes, with the line of logit adjustment where frequencies are known."""
        return Prior(self.dictionary(problem).values, np.log(self.known["freq"]) if "freq" in self.known else None)

    @property
    def log_frequency(self) -> Vector:
        """log π, for methods that need it."""
        if "freq" not in self.known:
            raise InputError("this method adjusts by class frequency; give class_counts=… of the training data.")
        return np.log(self.known["freq"])


@dataclass(frozen=True, eq=False)
class Tuned:
    """An adjustment, and how it was found. weights: W by part; path: cross-validated scores where pooling chose."""

    m: Vector
    l: Vector
    reason: str
    lines: int = 0
    weights: Mapping[str, Vector] = field(default_factory=dict)
    path: Mapping[str, float] = field(default_factory=dict)


def tune(task: Task, method: str = "cap") -> tuple[Tuned, Worth]:
    """The method's adjustment, or none at all where that is no worse on validation."""
    if method not in METHODS:
        raise InputError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")
    tuned = METHODS[method](task)
    tuned = replace(tuned, l=tuned.l - tuned.l.mean())  # of all equivalent offsets, those with mean 0
    m, l = task.problem.neutral
    unadjusted, reached = task.problem.worth(m, l), task.problem.worth(tuned.m, tuned.l)
    if reached.better_than(unadjusted):
        return tuned, reached
    return Tuned(m, l, f"nothing found beats the unadjusted scores ({tuned.reason})", tuned.lines), unadjusted


def _cap(task: Task) -> Tuned:
    problem = task.problem  # two classes have one offset, which nothing but the prior's line can move: no pooling
    if task.parameters == "l" and task.pooling is not None and problem.n_classes > 2 and not problem.on_confusion:
        return _cap_pooled(task)
    D = task.dictionary(problem)
    space = Space.of(
        D.values if task.parameters in ("l", "both") else None,
        D.values if task.parameters in ("delta", "both") else None,
    )
    found = exact_search(problem, space, _starts(task, D, space), max_rounds=task.max_rounds, seed=task.seed)
    cut = space.offsets.shape[1]
    weights = {"l": found.w[:cut], "delta": found.w[cut:]}
    return Tuned(found.m, found.l, found.reason, found.lines, {k: w for k, w in weights.items() if len(w)})


def _starts(task: Task, D: Dictionary, space: Space) -> list[Vector]:
    """Where offsets may move, the tuned line of logit adjustment, or the smooth answer if frequencies are unknown."""
    start, m = np.zeros(space.size), D.shape[1]
    if space.offsets.shape[1] == 0:
        return [start]
    if "freq" in task.known:
        tuned = _on_line(task, task.log_frequency)
        start[:m] = np.linalg.lstsq(D.values, tuned.l - tuned.l.mean(), rcond=None)[0]
    else:
        start[:m] = minimise_offsets(task.problem, D.values, start[:m], max_iterations=15)
    return [start]


def _cap_pooled(task: Task) -> Tuned:
    problem, D = task.problem, task.dictionary(task.problem)
    if task.pooling == "auto":
        chosen = pool_automatically(problem, task.prior, seed=task.seed, on_fold=task.on_progress)
        l, reason, path = chosen.l, f"cross-validation chose {chosen.choice}", chosen.scores
    else:
        strength = _strength(task.pooling)
        start = D.values @ minimise_offsets(problem, D.values, np.zeros(D.shape[1]))
        l, path = make_feasible(problem, start, pooled(problem, task.prior(problem), strength, start)), {}
        reason = f"pooled with λ = {strength:g} (λ₀ is {default_strength(problem):.3g})"
    shared = D.project(l)
    w = np.linalg.lstsq(D.values - D.values.mean(axis=0), shared - shared.mean(), rcond=None)[0]
    return Tuned(np.ones(len(l)), l, reason, 0, {"l": w, "residual": l - shared}, path)


def _strength(pooling: object) -> float:
    if isinstance(pooling, int | float) and not isinstance(pooling, bool) and pooling > 0:
        return float(pooling)
    raise InputError(f"pooling is {pooling!r}; it must be 'auto', None, or a positive λ.")


def _plain(task: Task) -> Tuned:
    n, both = task.problem.n_classes, task.parameters == "both"
    l = np.zeros(n)
    if task.parameters != "delta":
        l = minimise_offsets(task.problem, np.eye(n), l, max_iterations=60)
    if task.parameters == "l":
        l = make_feasible(task.problem, np.zeros(n), l)
        return Tuned(np.ones(n), l, "smooth search of one offset per class", 0, {"l": l})
    space = Space.of(np.eye(n) if both else None, np.eye(n))
    start = np.concatenate([l[: n * both], np.zeros(n)])
    found = exact_search(task.problem, space, [start], max_rounds=1, seed=task.seed)
    weights = {"l": found.w[:-n], "delta": found.w[-n:]}
    return Tuned(found.m, found.l, found.reason, found.lines, {k: w for k, w in weights.items() if len(w)})


def _on_line(task: Task, direction: Vector) -> Found:
    return exact_search(task.problem, Space.of(direction[:, None]), max_rounds=task.max_rounds, seed=task.seed)


def _la(task: Task) -> Tuned:
    found = _on_line(task, task.log_frequency)
    return Tuned(found.m, found.l, f"τ = {found.w[0]:.4g}", found.lines, {"l": found.w})


def _temperatures(task: Task, gamma: float) -> Vector:
    ratio = np.exp(gamma * (task.log_frequency.max() - task.log_frequency))
    return np.minimum(ratio, MULTIPLIER_LIMIT)


def _cdt(task: Task) -> Tuned:
    worth = {g: task.problem.worth(_temperatures(task, g), np.zeros(task.problem.n_classes)) for g in GAMMAS.tolist()}
    gamma = min(worth, key=lambda g: (worth[g], g))
    return Tuned(_temperatures(task, gamma), np.zeros(task.problem.n_classes), f"γ = {gamma:.3g}")


def _vs(task: Task) -> Tuned:
    """γ on a grid, τ exactly for each: multipliers are a curve in γ, offsets a line in τ."""
    direction = task.log_frequency
    best: tuple[Worth, float, Tuned] | None = None
    for gamma in GAMMAS[::2].tolist():
        m = _temperatures(task, gamma)
        found = exact_search(task.problem, Space.of(direction[:, None], base=m), max_rounds=3)
        if best is None or found.worth.better_than(best[0]):
            tuned = Tuned(m, found.l, f"γ = {gamma:.3g}, τ = {found.w[0]:.4g}", found.lines)
            best = (found.worth, gamma, tuned)
    assert best is not None
    return best[2]


METHODS: dict[str, Callable[[Task], Tuned]] = {"cap": _cap, "plain": _plain, "la": _la, "cdt": _cdt, "vs": _vs}

"""Partial pooling: a prior in the true sense.

    l = l₀ + D w + r,    minimise  R(l) + mean(λ₀ (a (l − l₀))² + λ (a r)²),     r = (I − P)(l − l₀),

P the projection on span(1, D). l₀ is the answer of the calibrated model (`capri.posthoc.calibration`), which needs no
tuning on the objective; a is its scale, so that deviations are counted in nats. Classes deviate from l₀ together, by
what their attributes say, at little cost (λ₀), and each by itself at a greater one (λ). Both fall with the number of
validation samples: with few, the answer is the calibrated one; with many, every class has its own offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri.forms import ErrorFunction, Form
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.calibration import labels_per_class
from capri.posthoc.line import choose, settle, trace
from capri.posthoc.problem import Problem, Worth, tally
from capri.posthoc.search import Found, Space, exact_search
from capri.posthoc.smooth import minimise_offsets

UNIT = 200.0  # λ times the square of samples per class
RARE = 5.0  # labels added to each class before their harmonic mean is taken, which is near that of the rare ones
SURE = 5.0  # λ times samples per class that comes on top for sums of class errors
SHARED = 1 / 40  # λ₀ / λ of few classes
TOGETHER = 1 / 4  # the same times K of many: what classes share is told by the samples of all of them
FEW = 20  # classes, each of which the exact lines at the end can take by itself
CARE = 2.0  # times the penalty where lines are exact: steps of the objective fit the noise of the sample
CAUTION = 0.65  # standard errors by which limits are lowered
OPINION = 15.0  # labels of a class that the model's opinion is worth where limits are concerned


def default_strength(problem: Problem) -> float:
    """λ: the fewer samples speak for a class, the closer it stays to the prior. Rare classes set the pace.

    For a sum of class errors the calibrated answer is the best there is if calibration holds, so it is trusted longer.
    reproduction/benchmarks/outofsample.py compares.
    """
    labels = labels_per_class(problem)[problem.present]
    samples = float(1 / np.mean(1 / (labels + RARE)) - RARE)
    linear = isinstance(problem.objective, Form) and problem.objective.is_linear
    return UNIT / samples**2 + (SURE / samples if linear else 0.0)


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known before tuning: l₀, the scale a of deviations from it, and the columns of D.

    word: how far the model was taken at its word.
    """

    columns: NDArray[np.float64]
    centre: Vector
    scale: float
    word: float = 0.0

    def penalty(self, strength: float) -> NDArray[np.float64]:
        """The matrix A with ‖A (l − l₀)‖² the penalty above; common shifts cost nothing."""
        k = len(self.centre)
        common = np.eye(k) - 1 / k
        basis = np.column_stack([np.ones(k), self.columns])
        own = np.eye(k) - basis @ np.linalg.pinv(basis)
        return np.vstack([np.sqrt(min(SHARED, TOGETHER / k)) * common, own]) * (np.sqrt(strength / k) * self.scale)


def weights(columns: NDArray[np.float64], l: Vector) -> dict[str, Vector]:
    """w and r of l = D w + r, up to a common shift."""
    basis = np.column_stack([np.ones(len(columns)), columns])
    w = np.linalg.lstsq(basis, l, rcond=None)[0]
    return {"l": w[1:], "residual": l - basis @ w}


def pool(problem: Problem, prior: Prior, line: Vector | None, strength: float) -> Found:
    """The offsets of a given λ, within the constraints; by soft labels never worse than none, the penalty included.

    A limit that holds on these samples holds on others with even odds. So where the model's opinion counts, limits are
    lowered by part of a standard error (`CAUTION`) of what is limited, as far as the unadjusted scores can keep them.
    """
    penalty = prior.penalty(strength)
    found = _pool(Penalised(problem, penalty, prior.centre), prior, line)
    if problem.constraints and problem.beliefs is not None:
        caution = [CAUTION * e for e in limit_errors(problem, found)]
        if max(caution) > 0:
            strict = problem.derived(beliefs=problem.beliefs, caution=caution)
            found = _pool(Penalised(strict, penalty, prior.centre), prior, line)
    known = f"T = {1 / prior.scale:.3g}, {prior.word:.0%} at its word, λ = {strength:.3g}"
    reason = f"pooled around the calibrated answer ({known})"
    judge, settled = Penalised(problem, penalty, prior.centre), problem.beliefs is not None
    if settled and judge.worth(problem.neutral.l).better_than(judge.worth(found.l)):
        reason = f"nothing found beats the unadjusted scores ({reason})"
        return Found(problem.neutral, problem.worth(problem.neutral), reason, settled=True)
    return Found(found, problem.worth(found), reason, weights=weights(prior.columns, found.l), settled=settled)


class Penalised(NamedTuple):
    """The objective plus ‖penalty (l − centre)‖²: what pooling goes by."""

    problem: Problem
    penalty: NDArray[np.float64]
    centre: Vector

    def worth(self, l: Vector) -> Worth:
        """Violation, and objective plus penalty, of offsets."""
        violation, value = self.problem.worth(Adjustment.offsets(l))
        return Worth(violation, value + float(np.sum((self.penalty @ (l - self.centre)) ** 2)))

    def smooth_minimum(self) -> Vector:
        """By the smooth twin of the objective, from the centre."""
        free = np.eye(self.problem.n_classes)
        return minimise_offsets(self.problem, free, self.centre, penalty=self.penalty, centre=self.centre)

    def step(self, l: Vector, g: Vector) -> Vector:
        """From l to the best point along g, by an exact line; the penalty is a parabola along it."""
        traced = trace(self.problem, Adjustment.offsets(l), Direction(np.zeros(len(l)), g))
        edges, rest, slope = traced.breakpoints, self.penalty @ (l - self.centre), self.penalty @ g
        if len(edges) == 0:
            return l
        t = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
        charge = rest @ rest + 2 * t * (rest @ slope) + t**2 * (slope @ slope)
        best, _ = choose(traced._replace(values=traced.values + charge))
        there = l + best * g
        return there if self.worth(there).better_than(self.worth(l)) else l


def _pool(goal: Penalised, prior: Prior, line: Vector | None) -> Adjustment:
    """By a smooth search, ended by exact lines where the objective is not smooth."""
    problem, l = goal.problem, goal.smooth_minimum()
    careful = goal._replace(penalty=np.sqrt(CARE) * goal.penalty)
    for g in _directions(problem, prior, line, l).T:
        l = careful.step(l, g)
    found = Adjustment.offsets(l)
    if problem.worth(found).feasible:
        return found
    safe = problem.neutral if line is None else exact_search(problem, Space.of(line[:, None])).adjustment
    return best_on_the_way(problem, safe, found)


def _directions(problem: Problem, prior: Prior, line: Vector | None, l: Vector) -> NDArray[np.float64]:
    """Away from the calibrated answer, along logit adjustment and D, and of few classes each by itself.

    A sum of class errors by soft labels is smooth enough to do without exact lines.
    """
    k, linear = problem.n_classes, isinstance(problem.objective, Form) and problem.objective.is_linear
    if linear and problem.beliefs is not None:
        return np.zeros((k, 0))
    away = np.column_stack([l - prior.centre, *([] if line is None else [line]), prior.columns])
    return np.column_stack([away, np.eye(k)]) if k <= FEW else away


def limit_errors(problem: Problem, found: Adjustment) -> list[float]:
    """A standard error of each limited objective; of its difference to the unadjusted one, where that is limited.

    It is no more than what the unadjusted scores leave free, so that there is always a way to keep the limit.
    Objectives on the confusion matrix have none.
    """
    labels = labels_per_class(problem)[problem.present] + OPINION
    before, after = (problem.errors(a)[problem.present] for a in (problem.neutral, found))
    first, second = problem.predict(problem.neutral), problem.predict(found)
    moved = np.flatnonzero(first != second)
    turned = sum(tally(d[moved], problem.mass(moved, d[moved]), problem.n_classes) for d in (first, second))
    changed = (turned / np.where(problem.totals > 0, problem.totals, 1))[problem.present]
    errors = []
    for constraint, bound in zip(problem.constraints, problem.bounds, strict=True):
        if isinstance(bound.evaluator, Form | ErrorFunction):
            _, slope = bound.evaluator.smooth(after)
            variance = changed if constraint.relative else after * (1 - after)
            free = bound.limit - bound.evaluator(before)
            error = float(np.sqrt(np.sum(slope**2 * variance / labels)))
            errors.append(min(error, free) if free >= 0 else error)
        else:
            errors.append(0.0)
    return errors


def make_feasible(problem: Problem, safe: Adjustment, wanted: Adjustment) -> Adjustment:
    """What is wanted, or if that violates a constraint (soft errors are not errors) the best on the way from `safe`."""
    return wanted if problem.worth(wanted).feasible else best_on_the_way(problem, safe, wanted)


def best_on_the_way(problem: Problem, safe: Adjustment, wanted: Adjustment) -> Adjustment:
    """The best adjustment between two."""
    if problem.on_confusion or problem.beliefs is not None:  # have exact lines of offsets only
        safe = safe._replace(delta=wanted.delta)
    direction, way = safe.towards(wanted), (0.0, 1.0)
    line = trace(problem, safe, direction)
    t, _ = settle(line, *choose(line, way), lambda t: problem.worth(safe.along(direction, t)), way)
    return safe.along(direction, t)

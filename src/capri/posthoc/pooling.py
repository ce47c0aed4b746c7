"""Partial pooling: a prior in the true sense.

    l = l₀ + D w + r,    minimise  R(l) + mean(λ₀ (a (l − l₀))² + λ (a r)²),     r = (I − P)(l − l₀),

P the projection on span(1, D). l₀ is the answer of the calibrated model (`capri.posthoc.calibration`), which needs no
tuning on the objective; a is its scale, so that deviations are counted in nats. Classes deviate from l₀ together, by
what their attributes say, at little cost (λ₀), and each by itself at a greater one (λ). Both fall with the number of
validation samples: with few, the answer is the calibrated one; with many, every class has its own offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri.constraints import EITHER_WAY, Constraint
from capri.forms import ErrorFunction, Form
from capri.objectives import quality_of
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.calibration import labels_per_class
from capri.posthoc.line import Line, choose, least_beyond, settle, trace, trace_near
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


class Price(Constraint):
    """A limit that is a place on a curve rather than a promise: it is taken to the letter, without `CAUTION`.

    Of what goes by the name of a quality too it limits the error, and says so as a floor.
    """

    def __post_init__(self) -> None:
        """Nothing is refused: whoever draws a curve gives an objective and a number."""

    def __str__(self) -> str:
        floor = quality_of(self.objective) not in (None, *EITHER_WAY)
        shown = Constraint(self.objective, 1 - self.bound if floor else self.bound, floor=floor)
        return str(shown)


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

    def penalty(self, strength: float) -> Penalty:
        """A with ‖A (l − l₀)‖² the penalty above; common shifts cost nothing."""
        k = len(self.centre)
        left, sizes, _ = np.linalg.svd(np.column_stack([np.ones(k), self.columns]), full_matrices=False)
        spanned = left[:, sizes > 1e-15 * sizes.max()]  # as pinv has it
        own = np.sqrt(strength / k) * self.scale
        return Penalty(spanned, np.sqrt(min(SHARED, TOGETHER / k)) * own, own)


@dataclass(frozen=True, eq=False)
class Penalty:
    """The matrix (2K, K) of a (I − 1/K) above b (I − U Uᵀ), by its products with vectors: U (K, M) is orthonormal."""

    spanned: NDArray[np.float64]
    common: float
    own: float
    turned: bool = False
    __array_ufunc__ = None  # numbers times this are left to it

    @property
    def T(self) -> Penalty:
        """Transposed."""
        return replace(self, turned=not self.turned)

    def __rmul__(self, factor: float) -> Penalty:
        return replace(self, common=factor * self.common, own=factor * self.own)

    def __matmul__(self, v: Vector) -> Vector:
        if self.turned:
            k = len(v) // 2
            return self.common * _centred(v[:k]) + self.own * self._rest(v[k:])
        return np.concatenate([self.common * _centred(v), self.own * self._rest(v)])

    def _rest(self, v: Vector) -> Vector:
        return np.asarray(v - self.spanned @ (self.spanned.T @ v))


def _centred(v: Vector) -> Vector:
    return np.asarray(v - v.mean())


def weights(columns: NDArray[np.float64], l: Vector) -> dict[str, Vector]:
    """w and r of l = D w + r, up to a common shift."""
    basis = np.column_stack([np.ones(len(columns)), columns])
    w = np.linalg.lstsq(basis, l, rcond=None)[0]
    return {"l": w[1:], "residual": l - basis @ w}


def pool(problem: Problem, prior: Prior, line: Vector | None, strength: float, start: Vector | None = None) -> Found:
    """The offsets of a given λ, within the constraints; by soft labels never worse than none, the penalty included.

    The search starts from the calibrated answer, or from offsets that are known to be near.

    A limit that holds on these samples holds on others with even odds. So where the model's opinion counts, limits are
    lowered by part of a standard error (`CAUTION`) of what is limited, as far as the unadjusted scores can keep them.
    """
    penalty = prior.penalty(strength)
    found = _pool(Penalised(problem, penalty, prior.centre), prior, line, start)
    if problem.constraints and problem.beliefs is not None:
        caution = [CAUTION * e for e in limit_errors(problem, found)]
        if max(caution) > 0:
            strict = problem.derived(beliefs=problem.beliefs, caution=caution)
            found = _pool(Penalised(strict, penalty, prior.centre), prior, line, start)
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
    penalty: Penalty
    centre: Vector

    def worth(self, l: Vector) -> Worth:
        """Violation, and objective plus penalty, of offsets."""
        violation, value = self.problem.worth(Adjustment.offsets(l))
        return Worth(violation, value + float(np.sum((self.penalty @ (l - self.centre)) ** 2)))

    def smooth_minimum(self, start: Vector | None = None) -> Vector:
        """By the smooth twin of the objective, from the centre unless told otherwise."""
        begin = self.centre if start is None else start
        return minimise_offsets(self.problem, None, begin, penalty=self.penalty, centre=self.centre)

    def step(self, l: Vector, g: Vector) -> Vector:
        """From l to the best point along g, by an exact line; the penalty is a parabola along it."""
        charge = self._charge(l, g)
        best = self._best_near(l, g, charge)
        if best is None:
            traced = trace(self.problem, Adjustment.offsets(l), Direction(np.zeros(len(l)), g))
            best, _ = _cheapest(traced, charge)
        there = l + best * g
        return there if self.worth(there).better_than(self.worth(l)) else l

    def _charge(self, l: Vector, g: Vector) -> Parabola:
        """The penalty along a line."""
        rest, slope = self.penalty @ (l - self.centre), self.penalty @ g
        return Parabola(float(rest @ rest), 2 * float(rest @ slope), float(slope @ slope))

    def _best_near(self, l: Vector, g: Vector, charge: Parabola) -> float | None:
        """The best t, where the problem is screened and no better one can lie outside of the box; else None."""
        problem, left, start = self.problem, self.problem.remainder, Adjustment.offsets(l)
        rising = isinstance(problem.objective, Form) and problem.objective.rises
        if left is None or not rising or problem.constraints or (reach := left.room(start, g)) == 0:
            return None
        near = trace_near(problem, left, start, g, reach)
        edges = near.line.breakpoints
        if len(edges) < 2:
            return None
        best, worth = _cheapest(near.line, charge)
        before = least_beyond(problem, left, near.first, g) + charge.least(-np.inf, edges[0])
        behind = least_beyond(problem, left, near.last, -g) + charge.least(edges[-1], np.inf)
        return best if edges[0] < best < edges[-1] and min(before, behind) > worth.value else None


class Parabola(NamedTuple):
    """a + b t + c t²."""

    a: float
    b: float
    c: float

    def at(self, t: Vector) -> Vector:
        """Its values."""
        return np.asarray(self.a + t * self.b + t**2 * self.c)

    def least(self, low: float, high: float) -> float:
        """Its least value in a range, c ≥ 0."""
        t = np.clip(-self.b / (2 * self.c) if self.c > 0 else 0.0, low, high)
        return float(self.a + t * self.b + t**2 * self.c)


def _cheapest(line: Line, charge: Parabola) -> tuple[float, Worth]:
    """The best point of a line on which a charge is made."""
    edges = line.breakpoints
    if len(edges) == 0:
        return 0.0, Worth(np.inf, np.inf)
    t = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    return choose(line._replace(values=line.values + charge.at(t)))


def _pool(goal: Penalised, prior: Prior, line: Vector | None, start: Vector | None) -> Adjustment:
    """By a smooth search, ended by exact lines where the objective is not smooth."""
    problem, l = goal.problem, goal.smooth_minimum(start)
    careful = goal._replace(penalty=np.sqrt(CARE) * goal.penalty)
    for g in _directions(problem, prior, line, l, near=start is not None).T:
        l = careful.step(l, g)
    found = Adjustment.offsets(l)
    if problem.worth(found).feasible:
        return found
    safe = problem.neutral if line is None else exact_search(problem, Space.of(line[:, None])).adjustment
    return best_on_the_way(problem, safe, found)


def _directions(problem: Problem, prior: Prior, line: Vector | None, l: Vector, *, near: bool) -> NDArray[np.float64]:
    """Away from the calibrated answer, along logit adjustment and D, and of few classes each by itself.

    A sum of class errors by soft labels is smooth enough to do without exact lines. From an answer that is near, those
    along D gain nothing on other samples.
    """
    k, linear = problem.n_classes, isinstance(problem.objective, Form) and problem.objective.is_linear
    if linear and problem.beliefs is not None:
        return np.zeros((k, 0))
    columns = [l - prior.centre, *([] if line is None else [line]), *([] if near else prior.columns.T)]
    away = np.column_stack(columns)
    return np.column_stack([away, np.eye(k)]) if k <= FEW else away


def limit_errors(problem: Problem, found: Adjustment) -> list[float]:
    """A standard error of each limited objective; of its difference to the unadjusted one, where that is limited.

    It is no more than what the unadjusted scores leave free, so that there is always a way to keep the limit.
    Objectives on the confusion matrix have none, and a price needs none.
    """
    labels = labels_per_class(problem)[problem.present] + OPINION
    before, after = (problem.errors(a)[problem.present] for a in (problem.neutral, found))
    first, second = problem.predict(problem.neutral), problem.predict(found)
    moved = np.flatnonzero(first != second)
    turned = sum(tally(d[moved], problem.mass(moved, d[moved]), problem.n_classes) for d in (first, second))
    changed = (turned / np.where(problem.totals > 0, problem.totals, 1))[problem.present]
    errors = []
    for constraint, bound in zip(problem.constraints, problem.bounds, strict=True):
        if isinstance(bound.evaluator, Form | ErrorFunction) and not isinstance(constraint, Price):
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

"""The smooth search: surrogate objectives on soft class errors, with analytic gradients, in plain NumPy.

    soft decisions p = softmax(s·(Δ∘o − l)) instead of 1{argmax},    R(soft confusions) → gradient in l or Δ

It is the paper's own way of tuning (`first_order`, with its history), and by L-BFGS it serves the many free offsets of
partial pooling. The sharpness s fits the softmax to the scores: where margins are small against 1, soft errors are far
from errors, and their minimum elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock, get_ident
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import OpenBLASController, ThreadpoolController

from capri._lazy import once
from capri.forms import ConfusionForm, ErrorFunction, Evaluator, Form, MarginEvaluator, on_confusion
from capri.objectives import balanced
from capri.posthoc import _kernels, matrices
from capri.posthoc._compiled import LEAST_SUMMED, summed
from capri.posthoc._kernels import soft_margins, soft_slopes
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.opinion import in_units, soften
from capri.posthoc.problem import Problem

Part: TypeAlias = Literal["l", "delta"]
HINGE = 100.0  # weight of a squared violation
SHARPNESS = 8.0  # median margin of the sharpened scores; reproduction/benchmarks/heldout.py compares
MARGIN_SAMPLES = 2000  # from which the median margin is told
LOST = 12.0  # sharpened nats below the best from which classes are left out: less than e^−12 of its mass
BOX = 0.25  # size of the box in median margins
OFTEN, WIDER = 3, 2.0  # how many boxes may be too small, and by how much they grow from then on
ITERATIONS, PRECISION = 30, 1e-6  # of L-BFGS: how many at most, and the relative decrease at which it stops


def median_margin(problem: Problem, at_most: int = MARGIN_SAMPLES) -> float:
    """Median of |o_y − max_{k≠y} o_k|: the natural unit of offsets on these scores."""
    rows = np.flatnonzero(problem.weight > 0)
    rows = rows[:: max(1, len(rows) // at_most)]
    known, margin = problem.of_scores.get("margin", (np.zeros(0), 0.0))
    if not np.array_equal(rows, known):
        parts = np.array_split(rows, -(-len(rows) * problem.n_classes // LEAST_SUMMED))
        gaps = [_margins(problem.scores[part].astype(np.float64), problem.y[part]) for part in parts]
        margin = max(float(np.median(np.concatenate(gaps))), 1e-6)
        problem.of_scores["margin"] = rows, margin
    return margin


def _margins(z: NDArray[np.float64], y: NDArray[np.int64]) -> Vector:
    """|o_y − max_{k≠y} o_k| of scores that may be written to."""
    sample = np.arange(len(y))
    own = z[sample, y]
    z[sample, y] = -np.inf
    return np.asarray(np.abs(own - z.max(axis=1)))


class Linear(Protocol):
    """A matrix, or what multiplies vectors as one."""

    @property
    def T(self) -> Any:
        """Transposed."""

    def __matmul__(self, v: Vector, /) -> Any:
        """Its product with a vector."""


class Smooth(Protocol):
    """What descent needs of a loss on a problem's scores."""

    def at(self, adjustment: Adjustment) -> float:
        """Its value."""

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Vector]:
        """Its value, and its gradient in the offsets or the multipliers."""


class Surrogate:
    """R on the soft confusion matrix plus a hinge on violated constraints, as a function of the adjustment.

    Of that matrix, objectives need the diagonal (hits) and the column sums: Err_k = 1 − hits_k / totals_k, and
    F1_k = 2 hits_k / (totals_k + columns_k).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sharpness = SHARPNESS / median_margin(problem)
        self.objective = neighbour(problem.objective, problem)
        self.near: _Near | None = None
        self.screenings = 0
        self.limits = self._soft_limits()

    def errors(self, adjustment: Adjustment) -> Vector:
        """Soft errors of the present classes."""
        hits, _ = self._margins(adjustment)
        return 1 - (hits / self._totals)[self.problem.present]

    def at(self, adjustment: Adjustment) -> float:
        """The surrogate."""
        return self._value(*self._margins(adjustment))[0]

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Vector]:
        """Value, and gradient in the offsets or the multipliers."""
        at = self.problem
        value, by_hits, by_columns = self._value(*self._margins(adjustment))
        if of == "l" and self._is_screened(adjustment):
            return value, -self.sharpness * self._around(adjustment).slopes(by_hits, by_columns)
        slopes = np.zeros(at.n_classes)
        by = at.scores if of == "delta" else np.ones((1, 1), at.scores.dtype)
        soft_slopes(self._p, at.membership, at.weight, by_hits, by_columns, by, slopes)
        return value, self.sharpness * (slopes if of == "delta" else -slopes)

    @property
    def _totals(self) -> Vector:
        return np.where(self.problem.totals > 0, self.problem.totals, 1.0)

    def _margins(self, adjustment: Adjustment) -> tuple[Vector, Vector]:
        """Hits and column sums of the soft confusion matrix; the soft decisions stay in `_p`."""
        if self._is_screened(adjustment):
            return self._around(adjustment).margins(self.sharpness * adjustment.l, with_columns=self._by_columns)
        at, hits, columns = self.problem, np.zeros(self.problem.n_classes), np.zeros(self.problem.n_classes)
        soften(at.scores, self.sharpness * adjustment.delta, self.sharpness * adjustment.l, self._p)
        soft_margins(self._p, at.membership, at.weight, hits, columns)
        return hits, columns

    @once
    def _p(self) -> NDArray[Any]:
        """Room for soft decisions."""
        return np.empty(self.problem.scores.shape, self.problem.scores.dtype)

    @property
    def _by_columns(self) -> bool:
        """Does the objective, or a limit, depend on how often classes are decided for?"""
        return any(isinstance(e, MarginEvaluator) for e in (self.objective, *self.problem.evaluators))

    def _is_screened(self, adjustment: Adjustment) -> bool:
        """Are there so many scores that it pays to know which of them matter? Of offsets only."""
        return self.problem.scores.size >= matrices.LARGE and bool((adjustment.delta == 1).all())

    def _around(self, adjustment: Adjustment) -> _Near:
        """What matters around an adjustment; screened again, more widely, where a search has left the box."""
        if self.near is None or not self.near.remainder.holds(adjustment):
            self.screenings += 1
            radius = BOX * SHARPNESS / self.sharpness * max(1.0, WIDER ** (self.screenings - OFTEN))
            self.near = _Near(self.problem, adjustment, radius, LOST / self.sharpness, self.sharpness)
        return self.near

    def _value(self, hits: Vector, columns: Vector) -> tuple[float, Vector, Vector]:
        """The surrogate and its derivatives by hits and columns."""
        value, by_hits, by_columns = self._of_margins(self.objective, hits, columns)
        for evaluator, limit in self.limits:
            level, more_hits, more_columns = self._of_margins(evaluator, hits, columns)
            excess = max(0.0, level - limit)
            value += HINGE * excess**2
            by_hits = by_hits + 2 * HINGE * excess * more_hits
            by_columns = by_columns + 2 * HINGE * excess * more_columns
        return value, by_hits, by_columns

    def _of_margins(self, evaluator: SmoothEvaluator, hits: Vector, columns: Vector) -> tuple[float, Vector, Vector]:
        totals, present = self._totals, self.problem.present
        if isinstance(evaluator, MarginEvaluator):
            return evaluator.smooth(hits, totals, columns)
        value, slope = evaluator.smooth(1 - (hits / totals)[present])
        by_hits = np.zeros(len(hits))
        by_hits[present] = -slope / totals[present]
        return value, by_hits, np.zeros(len(hits))

    def _soft_limits(self) -> list[tuple[SmoothEvaluator, float]]:
        """Limits for soft errors: each limit moved by how soft and hard ones differ at the start."""
        bounds = [b for b in self.problem.bounds if has_soft_twin(b.evaluator)]
        if not bounds:
            return []
        hard, margins = self.problem.confusion(self.problem.neutral), self._margins(self.problem.neutral)
        return [
            (b.evaluator, b.limit + self._of_margins(b.evaluator, *margins)[0] - on_confusion(b.evaluator, hard))
            for b in bounds
            if isinstance(b.evaluator, SmoothEvaluator)
        ]


def surrogate_of(problem: Problem) -> Surrogate:
    """The surrogate of a problem, which may bring its own: one whose scores live elsewhere does."""
    made: type[Surrogate] = getattr(problem, "surrogate", Surrogate)
    return made(problem)


class _Near:
    """Soft decisions of the classes that matter around an adjustment."""

    def __init__(self, problem: Problem, centre: Adjustment, radius: float, reach: float, sharpness: float) -> None:
        self.remainder = problem.screen(centre, radius, reach)
        self.masses, self.p = problem.entry_masses, np.empty_like(self.remainder.scores)
        self._rows = (self.remainder.starts[:-1], self.remainder.starts[1:], problem.weight)
        self._sharpness = sharpness

    def margins(self, sharpened: Vector, *, with_columns: bool) -> tuple[Vector, Vector]:
        """Hits and column sums (0 where nobody asks) of the soft confusion matrix, at offsets times the sharpness."""
        rest, k = self.remainder, len(sharpened)
        scale, shift = in_units(np.array(self._sharpness), sharpened, rest.scores.dtype)
        entries = (rest.classes, rest.scores, self.masses, self.p)
        sums = summed(_kernels.margins_of_entries, self._rows, 2 * k, *entries, scale[()], shift, with_columns)
        return sums[:k], sums[k:]

    def slopes(self, by_hits: Vector, by_columns: Vector) -> Vector:
        """The derivative by sharpened scores, of what has these derivatives by the margins."""
        entries = (self.remainder.classes, self.masses, self.p)
        return summed(_kernels.slopes_of_entries, self._rows, len(by_hits), *entries, by_hits, by_columns)


SmoothEvaluator: TypeAlias = Form | ErrorFunction | MarginEvaluator


def has_soft_twin(evaluator: Evaluator) -> bool:
    """Is the objective a function of the hits and the column sums alone, with derivatives?"""
    return isinstance(evaluator, SmoothEvaluator) and not (
        isinstance(evaluator, ConfusionForm) and bool(evaluator.costs.any())
    )


def neighbour(evaluator: Evaluator, problem: Problem) -> SmoothEvaluator:
    """The objective itself, or for one without a soft twin an objective near it.

    Costs become an error weighted by the mean cost of each class; other functions of the confusion matrix, the balanced
    error.
    """
    if isinstance(evaluator, SmoothEvaluator) and has_soft_twin(evaluator):
        return evaluator
    k = problem.n_classes
    if isinstance(evaluator, ConfusionForm):
        wrong = evaluator.costs.sum(axis=1) - np.diag(evaluator.costs)
        prices = np.maximum(wrong / max(1, k - 1) - np.diag(evaluator.costs), 0.0) * problem.totals
        return Form(prices[problem.present])
    form = balanced().on(problem.context)
    assert isinstance(form, Form)
    return form


class _OneBlasThread:
    """Of vectors of K numbers: more threads would only wait for each other.

    The limit is the process's. Whoever comes first sets it and whoever leaves last lifts it: of several that fit at
    once, each by itself would take another's limit for what was there before, and leave that behind.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), list[int]()  # the threads that are

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                with _in_control():
                    self._limit = _blas().limit(limits=1, user_api="blas")
            self._inside.append(get_ident())

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside.remove(get_ident())
            if not self._inside:
                self._lift()

    def survive_forks(self) -> None:
        """A fork waits while somebody comes or leaves, and takes nobody else's place in the new process."""
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._forget_others
        )

    def _forget_others(self) -> None:
        """Of a new process, where only the thread that forked goes on: the others would never leave."""
        before, self._inside = self._inside, [thread for thread in self._inside if thread == get_ident()]
        self._lock.release()
        if before and not self._inside:
            self._lift()

    def _lift(self) -> None:
        with _in_control():
            self._limit.restore_original_limits()


@contextmanager
def _in_control() -> Iterator[None]:
    """Since threadpoolctl 3.8 OpenBLAS obeys the first thread that gave it a number, as long as that lives."""
    let_go = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    let_go(force=True)
    yield
    let_go(force=True)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


_one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):
    _one_blas_thread.survive_forks()


def minimise_offsets(
    problem: Problem,
    basis: NDArray[np.float64] | None,
    start: Vector,
    *,
    penalty: Linear | None = None,
    centre: Vector | None = None,
    max_iterations: int = ITERATIONS,
) -> Vector:
    """θ that minimises the surrogate at l = basis θ, plus ‖penalty (θ − centre)‖² where there is a penalty.

    Without a basis l = θ.
    """
    if basis is not None and basis.shape[1] == 0:
        return start
    surrogate, middle = surrogate_of(problem), 0.0 if centre is None else centre

    def function(theta: Vector) -> tuple[float, Vector]:
        value, slope = surrogate.gradient(Adjustment.offsets(theta if basis is None else basis @ theta))
        gradient = slope if basis is None else basis.T @ slope
        if penalty is not None:
            rest = penalty @ (theta - middle)
            value, gradient = value + float(rest @ rest), gradient + 2 * (penalty.T @ rest)
        return value, gradient

    return descend(function, start, max_iterations)


def descend(
    function: Callable[[Vector], tuple[float, Vector]],
    start: Vector,
    max_iterations: int,
    stiffness: Vector | None = None,
) -> Vector:
    """Where L-BFGS ends on a function that returns its value and its gradient.

    stiffness: curvature by each coordinate, where it is known to differ much; then fewer steps are needed.
    """
    held = [function]  # and let go: what scipy leaves behind holds on to `scaled` until garbage is collected
    unit = np.ones(len(start)) if stiffness is None else np.exp2(-np.round(np.log2(stiffness) / 2))  # exact factors

    def scaled(x: Vector) -> tuple[float, Vector]:
        value, gradient = held[0](unit * x)
        return value, unit * gradient

    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": PRECISION}
    with _one_blas_thread:
        found = minimize(scaled, start / unit, jac=True, method="L-BFGS-B", options=options).x
    held.clear()
    return unit * np.asarray(found)


@dataclass(frozen=True, eq=False)
class Descent:
    """A first-order run: the weights w at its end and, for every step, loss and true objective, (steps, 2).

    It is the way that counts here, for the paper's figures; what is found at the end is not compared with anything.
    """

    w: Vector
    history: NDArray[np.float64]


def first_order(
    problem: Problem,
    basis: NDArray[np.float64],
    *,
    of: Part = "l",
    steps: int = 500,
    rate: float = 0.05,
    momentum: float = 0.9,
    watch: Problem | None = None,
    loss: Callable[[Problem], Smooth] = Surrogate,
) -> Descent:
    """The paper's way: gradient descent with momentum on W, for offsets l = basis w or multipliers Δ = exp(basis w).

    The history is that of `watch` (such as test data, for the paper's figure of error against loss), or of the problem.
    """
    descended = loss(problem)
    seen, outlook = (problem, descended) if watch is None else (watch, loss(watch))
    w, velocity = np.zeros(basis.shape[1]), np.zeros(basis.shape[1])
    history = np.empty((steps, 2))
    for step in range(steps):
        x = basis @ w
        here = Adjustment.multipliers(np.exp(x)) if of == "delta" else Adjustment.offsets(x)
        _, slope = descended.gradient(here, of)
        history[step] = outlook.at(here), seen.worth(here).value
        velocity = momentum * velocity - rate * (basis.T @ (slope * here.delta if of == "delta" else slope))
        w = w + velocity
    return Descent(w, history)

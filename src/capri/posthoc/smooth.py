"""The smooth search: surrogate objectives on soft class errors, with analytic gradients, in plain NumPy.

    soft Err_k = mean over class k of 1 − softmax(s·(Δ∘o − l))_y,    R(soft Err) → gradient in l or Δ by the chain rule

It is the paper's own way of tuning (`first_order`, with its history), and by L-BFGS it serves the many free offsets of
partial pooling. The sharpness s fits the softmax to the scores: where margins are small against 1, soft errors are far
from errors, and their minimum elsewhere. Scores are visited one by one: no second array of their size exists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from capri.forms import ErrorEvaluator, ErrorFunction, Form
from capri.objectives import balanced
from capri.posthoc._kernels import SQUARINGS, soft_errors
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.problem import Problem

Part: TypeAlias = Literal["l", "delta"]
HINGE = 100.0  # weight of a squared violation
SHARPNESS = 8.0  # median margin of the sharpened scores; reproduction/benchmarks/heldout.py compares
MARGIN_SAMPLES = 2000  # from which the median margin is told
ITERATIONS, PRECISION = 30, 1e-6  # of L-BFGS: how many at most, and the relative decrease at which it stops


def median_margin(problem: Problem, at_most: int = MARGIN_SAMPLES) -> float:
    """Median of |o_y − max_{k≠y} o_k|: the natural unit of offsets on these scores."""
    rows = np.flatnonzero(problem.weight > 0)
    rows = rows[:: max(1, len(rows) // at_most)]
    z, y = problem.scores[rows].astype(np.float64), problem.y[rows]
    sample = np.arange(len(y))
    own = z[sample, y]
    z[sample, y] = -np.inf
    return max(float(np.median(np.abs(own - z.max(axis=1)))), 1e-6)


class Smooth(Protocol):
    """What descent needs of a loss on a problem's scores."""

    def at(self, adjustment: Adjustment) -> float:
        """Its value."""

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Vector]:
        """Its value, and its gradient in the offsets or the multipliers."""


class Surrogate:
    """R(soft errors) plus a hinge on violated constraints, as a function of the adjustment, with its gradient."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.sharpness = SHARPNESS / median_margin(problem)
        self.objective = _with_gradient(problem)
        self.limits = self._soft_limits()

    def errors(self, adjustment: Adjustment) -> Vector:
        """Soft errors of the present classes."""
        return self._errors_and_slopes(adjustment, by_scale=False)[0]

    def value(self, errors: Vector) -> tuple[float, Vector]:
        """The surrogate and its gradient in the soft errors."""
        value, slope = self.objective.smooth(errors)
        for evaluator, limit in self.limits:
            level, direction = evaluator.smooth(errors)
            excess = max(0.0, level - limit)
            value, slope = value + HINGE * excess**2, slope + 2 * HINGE * excess * direction
        return value, slope

    def at(self, adjustment: Adjustment) -> float:
        """The surrogate."""
        return self.value(self.errors(adjustment))[0]

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Vector]:
        """Value, and gradient in the offsets or the multipliers, in one pass over the scores.

        How the errors weigh is known when all are summed. So each class's derivatives are summed by themselves, (K, K),
        and weighed at the end.
        """
        errors, slopes = self._errors_and_slopes(adjustment, by_scale=of == "delta")
        value, direction = self.value(errors)
        gradient = self.sharpness * (direction @ slopes)
        return value, gradient if of == "delta" else -gradient

    def _errors_and_slopes(self, adjustment: Adjustment, *, by_scale: bool) -> tuple[Vector, NDArray[np.float64]]:
        """Soft errors of the present classes, and the derivatives of each by the adjusted scores or the multipliers."""
        at, n = self.problem, self.problem.n_classes
        errors, slopes = np.zeros(n), np.zeros((n, n))
        unit, dtype = self.sharpness / 2**SQUARINGS, at.scores.dtype
        scale, shift = (unit * adjustment.delta).astype(dtype), (unit * adjustment.l).astype(dtype)
        soft_errors(at.scores, at.y, at.steps, scale, shift, by_scale, errors, slopes)
        return errors[at.present], slopes[at.present]

    def _soft_limits(self) -> list[tuple[ErrorEvaluator, float]]:
        """Limits for soft errors: each limit moved by how soft and hard errors differ at the start."""
        pairs = [(b.evaluator, b.limit) for b in self.problem.bounds if isinstance(b.evaluator, Form | ErrorFunction)]
        if not pairs:
            return []
        neutral = self.problem.neutral
        hard, soft = self.problem.errors(neutral)[self.problem.present], self.errors(neutral)
        return [(e, limit + e.smooth(soft)[0] - e(hard)) for e, limit in pairs]


def _with_gradient(problem: Problem) -> ErrorEvaluator:
    """The objective; for one on the confusion matrix, which has no soft twin, balanced error is its neighbour."""
    for evaluator in (problem.objective, balanced().on(problem.context)):
        if isinstance(evaluator, Form | ErrorFunction):
            return evaluator
    raise AssertionError("balanced error has a form")


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def minimise_offsets(
    problem: Problem,
    basis: NDArray[np.float64],
    start: Vector,
    *,
    penalty: NDArray[np.float64] | None = None,
    max_iterations: int = ITERATIONS,
) -> Vector:
    """θ that minimises the surrogate at l = basis θ, plus ‖penalty θ‖² where a penalty matrix is given, by L-BFGS."""
    if basis.shape[1] == 0:
        return start
    surrogate = Surrogate(problem)

    def function(theta: Vector) -> tuple[float, Vector]:
        value, slope = surrogate.gradient(Adjustment.offsets(basis @ theta))
        gradient = basis.T @ slope
        if penalty is not None:
            rest = penalty @ theta
            value, gradient = value + float(rest @ rest), gradient + 2 * (penalty.T @ rest)
        return value, gradient

    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": PRECISION}
    with _blas().limit(limits=1, user_api="blas"):  # vectors of K numbers: threads would only wait for each other
        found = minimize(function, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


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

"""The smooth search: surrogate objectives on soft class errors, with analytic gradients, in plain NumPy.

    soft Err_k = mean over class k of 1 − softmax(s·(m∘o − l))_y,    R(soft Err) → gradient in l or m by the chain rule

It is the paper's own way of tuning (`first_order`, with its history), and by L-BFGS it serves the many free offsets of
partial pooling. The sharpness s fits the softmax to the scores: where margins are small against 1, soft errors are far
from errors, and their minimum elsewhere. Scores are visited block by block: no second array of their size exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import ThreadpoolController

from capri.forms import ErrorEvaluator, ErrorFunction, Form
from capri.objectives import balanced
from capri.posthoc._kernels import add_rows
from capri.posthoc.problem import Problem, Vector, tally

BLOCK = 1 << 17  # scores per block: small enough for the cache
HINGE = 100.0  # weight of a squared violation
SHARPNESS = 8.0  # median margin of the sharpened scores; benchmarks/heldout.py compares


def median_margin(problem: Problem, at_most: int = 2000) -> float:
    """Median of |o_y − max_{k≠y} o_k|: the natural unit of offsets on these scores."""
    rows = np.flatnonzero(problem.weight > 0)
    rows = rows[:: max(1, len(rows) // at_most)]
    z, y = problem.scores[rows].astype(np.float64), problem.y[rows]
    sample = np.arange(len(y))
    own = z[sample, y]
    z[sample, y] = -np.inf
    return max(float(np.median(np.abs(own - z.max(axis=1)))), 1e-6)


class Surrogate:
    """R(soft errors) plus a hinge on violated constraints, as a function of (m, l), with its gradient."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows = max(1, BLOCK // problem.n_classes)
        self.sharpness = SHARPNESS / median_margin(problem)
        self.objective = _with_gradient(problem)
        self.limits = self._soft_limits()

    def errors(self, m: Vector, l: Vector) -> Vector:
        """Soft errors of the present classes."""
        sums = np.zeros(self.problem.n_classes)
        for block, p in self._blocks(m, l):
            labels = self.problem.y[block]
            sums += tally(labels, self.problem.steps[block] * (1 - p[np.arange(len(p)), labels]), len(sums))
        return sums[self.problem.present]

    def value(self, errors: Vector) -> tuple[float, Vector]:
        """The surrogate and its gradient in the soft errors."""
        value, slope = self.objective.smooth(errors)
        for evaluator, limit in self.limits:
            level, direction = evaluator.smooth(errors)
            excess = max(0.0, level - limit)
            value, slope = value + HINGE * excess**2, slope + 2 * HINGE * excess * direction
        return value, slope

    def gradient(self, m: Vector, l: Vector, of: Literal["l", "delta"] = "l") -> tuple[float, Vector]:
        """Value, and gradient in the offsets or the multipliers, in one pass over the scores.

        How the errors weigh is known when all are summed. So each class's derivatives are summed by themselves, (K, K),
        and weighed at the end.
        """
        k = self.problem.n_classes
        errors, slopes = np.zeros(k), np.zeros((k, k))
        for block, p in self._blocks(m, l):
            rows, labels, step = np.arange(len(p)), self.problem.y[block], self.problem.steps[block]
            own = p[rows, labels]
            errors += tally(labels, step * (1 - own), k)
            weight = (step * own).astype(p.dtype)
            p *= weight[:, None]
            p[rows, labels] -= weight  # ∂Err_y/∂z_k = weight · (p_k − 1{k = y})
            if of == "delta":
                p *= self.problem.scores[block]
            add_rows(p, labels, slopes)
        value, direction = self.value(errors[self.problem.present])
        gradient = self.sharpness * (direction @ slopes[self.problem.present])
        return value, gradient if of == "delta" else -gradient

    def _blocks(self, m: Vector, l: Vector) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        """Probabilities of the samples, block by block."""
        dtype = self.problem.scores.dtype
        scale, shift = (self.sharpness * m).astype(dtype), (self.sharpness * l).astype(dtype)
        for start in range(0, self.problem.n_samples, self.rows):
            block = slice(start, start + self.rows)
            z = self.problem.scores[block] * scale
            z -= shift
            z -= z.max(axis=1, keepdims=True)
            np.exp(z, out=z)
            z /= z.sum(axis=1, keepdims=True)
            yield block, z

    def _soft_limits(self) -> list[tuple[ErrorEvaluator, float]]:
        """Limits for soft errors: each limit moved by how soft and hard errors differ at the start."""
        pairs = [(b.evaluator, b.limit) for b in self.problem.bounds if isinstance(b.evaluator, Form | ErrorFunction)]
        if not pairs:
            return []
        m, l = self.problem.neutral
        hard, soft = self.problem.errors(m, l)[self.problem.present], self.errors(m, l)
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
    max_iterations: int = 30,
) -> Vector:
    """θ that minimises the surrogate at l = basis θ, plus ‖penalty θ‖² where a penalty matrix is given, by L-BFGS."""
    if basis.shape[1] == 0:
        return start
    surrogate = Surrogate(problem)
    ones = np.ones(problem.n_classes)

    def function(theta: Vector) -> tuple[float, Vector]:
        value, slope = surrogate.gradient(ones, basis @ theta)
        gradient = basis.T @ slope
        if penalty is not None:
            rest = penalty @ theta
            value, gradient = value + float(rest @ rest), gradient + 2 * (penalty.T @ rest)
        return value, gradient

    options = {"maxiter": max_iterations, "maxfun": 2 * max_iterations, "ftol": 1e-6}
    with _blas().limit(limits=1, user_api="blas"):  # vectors of K numbers: threads would only wait for each other
        found = minimize(function, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x)


@dataclass(frozen=True, eq=False)
class Descent:
    """A first-order run: the weights w found and, for every step, surrogate and true objective, (steps, 2)."""

    w: Vector
    history: NDArray[np.float64]


def first_order(
    problem: Problem,
    basis: NDArray[np.float64],
    *,
    of: Literal["l", "delta"] = "l",
    steps: int = 500,
    rate: float = 0.05,
    momentum: float = 0.9,
    watch: Problem | None = None,
) -> Descent:
    """The paper's way: gradient descent with momentum on W, for offsets l = basis w or multipliers Δ = exp(basis w).

    The history is that of `watch` (such as test data, for the paper's figure of error against loss), or of the problem.
    """
    surrogate = Surrogate(problem)
    seen, outlook = (problem, surrogate) if watch is None else (watch, Surrogate(watch))
    w, velocity = np.zeros(basis.shape[1]), np.zeros(basis.shape[1])
    history = np.empty((steps, 2))
    for step in range(steps):
        x = basis @ w
        m, l = (np.exp(x), np.zeros(len(x))) if of == "delta" else (np.ones(len(x)), x)
        _, slope = surrogate.gradient(m, l, of)
        history[step] = outlook.value(outlook.errors(m, l))[0], seen.worth(m, l).value
        velocity = momentum * velocity - rate * (basis.T @ (slope * m if of == "delta" else slope))
        w = w + velocity
    return Descent(w, history)

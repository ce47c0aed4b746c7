"""The smooth search: surrogate objectives on soft class errors, with analytic gradients, in plain NumPy.

    soft Err_k = mean over class k of 1 − softmax(m∘o − l)_y,      R(soft Err) → gradient in l and m by the chain rule.

It starts the exact search (L-BFGS), and it is the paper's own way of tuning (500 first-order steps with their history).
Scores are visited block by block: no second array of their size exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from capri.forms import ErrorEvaluator
from capri.objectives import balanced
from capri.posthoc.problem import Problem, Vector, tally

BLOCK = 1 << 17  # scores per block: small enough for the cache
HINGE = 10.0  # weight of a squared violation


class Surrogate:
    """R(soft errors) + penalties, as a function of (m, l), with its gradient."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.rows = max(1, BLOCK // problem.n_classes)
        objective = problem.objective
        # A confusion matrix has no soft twin here; balanced error is the neighbour that has one.
        self.objective: ErrorEvaluator = (
            objective if isinstance(objective, ErrorEvaluator) else balanced().on(problem.context)  # type: ignore[assignment]
        )
        self.limits = self._soft_limits()

    def _soft_limits(self) -> list[tuple[ErrorEvaluator, float]]:
        """Limits for soft errors: each limit moved by how soft and hard errors differ at the start."""
        pairs = [(b.evaluator, b.limit) for b in self.problem.bounds if isinstance(b.evaluator, ErrorEvaluator)]
        if not pairs:
            return []
        m, l = self.problem.neutral
        hard, soft = self.problem.errors(m, l)[self.problem.present], self.errors(m, l)
        return [(e, limit + e.smooth(soft)[0] - e(hard)) for e, limit in pairs]

    def errors(self, m: Vector, l: Vector) -> Vector:
        """Soft errors of the present classes."""
        sums = np.zeros(self.problem.n_classes)
        for labels, steps, p in self._blocks(m, l):
            sums += tally(labels, steps * (1 - p[np.arange(len(p)), labels]), len(sums))
        return sums[self.problem.present]

    def value(self, errors: Vector) -> tuple[float, Vector]:
        """The surrogate and its gradient in the soft errors."""
        value, slope = self.objective.smooth(errors)
        for evaluator, limit in self.limits:
            level, direction = evaluator.smooth(errors)
            excess = max(0.0, level - limit)
            value, slope = value + HINGE * excess**2, slope + 2 * HINGE * excess * direction
        return value, slope

    def __call__(self, m: Vector, l: Vector) -> tuple[float, Vector, Vector]:
        """Value, gradient in m, gradient in l."""
        value, slope = self.value(self.errors(m, l))
        per_class = np.zeros(self.problem.n_classes)
        per_class[self.problem.present] = slope
        grad_m, grad_l = np.zeros(len(m)), np.zeros(len(l))
        move_m = bool((m != 1).any())
        start = 0
        for labels, steps, p in self._blocks(m, l):
            rows = np.arange(len(p))
            weight = (per_class[labels] * steps * p[rows, labels]).astype(p.dtype)
            p *= weight[:, None]
            p[rows, labels] -= weight  # ∂R/∂z: weight · (p − 1{k = y})
            grad_l -= p.sum(axis=0)
            scores = self.problem.scores[start : start + len(p)]
            grad_m += np.einsum("ik,ik->k", p, scores) if move_m or self.free_multipliers else 0.0
            start += len(p)
        return value, grad_m, grad_l

    free_multipliers = False

    def _blocks(self, m: Vector, l: Vector) -> Any:
        """Labels, steps and probabilities of the samples, block by block."""
        p = self.problem
        dtype = p.scores.dtype
        scale, shift = m.astype(dtype), l.astype(dtype)
        for start in range(0, p.n_samples, self.rows):
            block = slice(start, start + self.rows)
            z = p.scores[block] * scale
            z -= shift
            z -= z.max(axis=1, keepdims=True)
            np.exp(z, out=z)
            z /= z.sum(axis=1, keepdims=True)
            yield p.y[block], p.steps[block], z


@dataclass(frozen=True, eq=False)
class SmoothResult:
    """Coefficients found, and the history of a first-order run: surrogate, objective, by step."""

    theta: Vector
    value: float
    history: NDArray[np.float64]


def minimise_offsets(
    problem: Problem,
    basis: NDArray[np.float64],
    start: Vector,
    *,
    penalty: float = 0.0,
    penalised: NDArray[np.float64] | None = None,
    max_iterations: int = 40,
) -> Vector:
    """θ of l = basis θ that minimises the surrogate + penalty·‖penalised θ‖², by L-BFGS."""
    surrogate = Surrogate(problem)
    ones = np.ones(problem.n_classes)

    def function(theta: Vector) -> tuple[float, Vector]:
        value, _, grad_l = surrogate(ones, basis @ theta)
        gradient = basis.T @ grad_l
        if penalty and penalised is not None:
            rest = penalised @ theta
            value, gradient = value + penalty * float(rest @ rest), gradient + 2 * penalty * (penalised.T @ rest)
        return value, gradient

    found = minimize(function, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iterations, "ftol": 1e-7})
    return np.asarray(found.x)


def first_order(
    problem: Problem,
    basis: NDArray[np.float64],
    *,
    part: str = "l",
    steps: int = 500,
    rate: float = 0.05,
    momentum: float = 0.9,
    watch: Problem | None = None,
) -> SmoothResult:
    """The paper's way: gradient descent with momentum on W for offsets ("l": l = basis w) or multipliers ("delta":
    Δ = exp(basis w)), keeping surrogate and true objective of every step, on `watch` (default: the same data)."""
    surrogate, seen = Surrogate(problem), watch or problem
    surrogate.free_multipliers = part == "delta"
    outlook = surrogate if watch is None else Surrogate(watch)
    w, velocity = np.zeros(basis.shape[1]), np.zeros(basis.shape[1])
    history = np.empty((steps, 2))
    for step in range(steps):
        x = basis @ w
        m, l = (np.exp(x), np.zeros(len(x))) if part == "delta" else (np.ones(len(x)), x)
        value, grad_m, grad_l = surrogate(m, l)
        history[step] = outlook.value(outlook.errors(m, l))[0], seen.worth(m, l).value
        velocity = momentum * velocity - rate * (basis.T @ (grad_m * m if part == "delta" else grad_l))
        w = w + velocity
    return SmoothResult(w, float(value), history)

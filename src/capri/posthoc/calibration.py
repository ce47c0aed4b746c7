"""Calibration: what the model itself believes, and the soft labels that are made of it.

A validation set of a few samples per class says little about class errors; the model's own scores say much, once they
are calibrated. The calibrated posterior of a validation sample is

    q_ik = (1 − ε) softmax_k(a o_i + β) + ε π_val,k,    β_k = log π_val,k − log π_train,k + b_k,

with a (one over the temperature T), b and ε by likelihood on the validation labels, under the priors log a ~ N(0, 1),
b_k ~ N(0, 0.4²) and logit ε ~ N(−3, 1). ε is the share of samples whose scores say nothing of their class, such as
those whose class got not a single vote in a forest: without it, they alone would set the temperature. A sample of
weight w_i then counts for class k with the mass

    M_ik = w_i (α_y 1{y_i = k} + (1 − α_y) q_ik),    α_k = n_k / (n_k + n₀),

n_k labels of class k against n₀ that the model's opinion is worth. If calibration holds, the decision argmax c_k q_k /
π_val,k is the best there is for Σ_k c_k Err_k: offsets (log π_val − β − log c) / a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri.attributes import frequency
from capri.forms import ClassContext, ConfusionForm, Evaluator, Form, MarginFunction
from capri.posthoc.adjustment import Vector
from capri.posthoc.problem import Problem, tally
from capri.posthoc.smooth import SHARPNESS, descend, median_margin, neighbour, soften

SCALE_SPREAD = 1.0  # of the prior of log a
BIAS_SPREAD = 0.4  # of the prior of b; reproduction/benchmarks/outofsample.py compares
NOISE_MEAN, NOISE_SPREAD = -3.0, 1.0  # of the prior of logit ε
UNKNOWN_SPREAD = 1.0  # the same where training frequencies are unknown, which b then has to make up for
ITERATIONS = 60
LEAST_IMPORTANCE = 0.1  # of a class, against the mean
LEAST_SHARE = 0.5  # samples added to each class before its validation share is taken


@dataclass(frozen=True, eq=False)
class Calibration:
    """a, β, π_val and ε of the formulas above; all classes have samples."""

    scale: float
    bias: Vector
    shares: Vector
    noise: float = 0.0

    @property
    def temperature(self) -> float:
        """T = 1/a."""
        return 1 / self.scale

    def posterior(self, scores: NDArray[Any]) -> NDArray[Any]:
        """q (n_samples, K), of the type of the scores."""
        q = soften(scores, np.full(len(self.bias), self.scale), -self.bias, np.empty_like(scores))
        return np.asarray((1 - self.noise) * q + (self.noise * self.shares).astype(q.dtype))

    def offsets(self, importance: Vector | None = None) -> Vector:
        """The best offsets for Σ_k c_k Err_k if calibration holds; c = 1 where no importance is given."""
        c = np.ones(len(self.bias)) if importance is None else importance
        return np.asarray((np.log(self.shares) - self.bias - np.log(c)) / self.scale)


def calibrate(problem: Problem, class_counts: Vector | None = None) -> Calibration:
    """By the labels of a problem whose classes all have samples."""
    n, k = problem.n_samples, problem.n_classes
    if k == 1:
        return Calibration(1.0, np.zeros(1), np.ones(1))
    weight = problem.given * (np.count_nonzero(problem.given) / problem.given.sum())
    seen = tally(problem.y, weight, k)
    shares = frequency(seen + LEAST_SHARE)
    known = class_counts is not None
    shift = np.log(shares) - np.log(frequency(class_counts)) if class_counts is not None else np.zeros(k)
    spread = BIAS_SPREAD if known else UNKNOWN_SPREAD
    rows, q, by_chance = np.arange(n), np.empty_like(problem.scores), shares[problem.y]

    def loss(theta: Vector) -> tuple[float, Vector]:
        """−log posterior of (log a, logit ε, b) and its gradient."""
        a, noise, b = float(np.exp(theta[0])), float(1 / (1 + np.exp(-theta[1]))), theta[2:]
        soften(problem.scores, np.full(k, a), -(b + shift), q)
        own = q[rows, problem.y].astype(np.float64)
        mixed = np.maximum((1 - noise) * own + noise * by_chance, np.finfo(np.float32).tiny)
        trusted = weight * (1 - noise) * own / mixed  # how far the scores speak for the label
        light = trusted.astype(q.dtype)
        expected = float(np.einsum("i,ik,ik->", light, q, problem.scores, optimize=False))
        by_scale = a * (expected - float(trusted @ problem.scores[rows, problem.y]))
        by_noise = noise * (1 - noise) * float(weight @ ((own - by_chance) / mixed))
        by_bias = light @ q - tally(problem.y, trusted, k)
        distance = (theta[1] - NOISE_MEAN) / NOISE_SPREAD**2
        value = -float(weight @ np.log(mixed)) + float(theta[0] ** 2 / SCALE_SPREAD**2 + b @ b / spread**2) / 2
        value += distance * (theta[1] - NOISE_MEAN) / 2
        gradient = [[by_scale + theta[0] / SCALE_SPREAD**2], [by_noise + distance], by_bias + b / spread**2]
        return value, np.concatenate(gradient)

    start = np.zeros(k + 2)
    start[:2] = np.log(SHARPNESS / 4 / median_margin(problem)), NOISE_MEAN
    found = descend(loss, start, ITERATIONS)
    return Calibration(float(np.exp(found[0])), found[2:] + shift, shares, float(1 / (1 + np.exp(-found[1]))))


def labels_per_class(problem: Problem) -> Vector:
    """How many equally weighted labels each class has, in effect: (Σ w)² / Σ w²."""
    total, squares = (tally(problem.y, w, problem.n_classes) for w in (problem.given, problem.given**2))
    return np.divide(total**2, squares, out=np.zeros(len(total)), where=squares > 0)


def soft_labels(problem: Problem, calibration: Calibration, worth: float) -> NDArray[Any]:
    """M (n_samples, K), where the model's opinion of a class is worth so many labels (n₀)."""
    labels = labels_per_class(problem)
    own = (labels / (labels + worth))[problem.y]
    mass = calibration.posterior(problem.scores)
    mass *= (problem.given * (1 - own))[:, None].astype(mass.dtype)
    mass[np.arange(problem.n_samples), problem.y] += (problem.given * own).astype(mass.dtype)
    return mass


def importance(problem: Problem) -> Vector:
    """c_k with Σ_k c_k Err_k nearest to the objective, mean 1: by it the calibrated answer is found.

    Ranks and spreads may concern any class, so they count all alike. F1 and its kin lie between the balanced error
    (c = 1) and the plain one (c = π), and get the geometric mean of these.
    """
    near = neighbour(problem.objective, problem)
    c = np.ones(problem.n_classes)
    if isinstance(near, ConfusionForm):
        c = np.sqrt(problem.totals) * np.maximum(-near.f1, 0.0)
    elif isinstance(near, MarginFunction):
        c = np.sqrt(problem.totals)
    elif isinstance(near, Form) and near.is_linear:
        c = np.maximum(near.linear, 0.0)
    if c.sum() == 0:
        c = np.ones(problem.n_classes)
    return np.maximum(c / c.mean(), LEAST_IMPORTANCE)


def exact_importance(objective: Evaluator, context: ClassContext) -> Vector | None:
    """c_k where the objective is Σ_k c_k Err_k, up to a constant factor and sum; None where it is no such thing.

    Costs are, if confusing a class costs the same whatever it is taken for.
    """
    if isinstance(objective, Form) and objective.is_linear and objective.linear.min() > 0:
        return objective.linear
    if isinstance(objective, ConfusionForm) and not (objective.f1.any() or objective.precision.any()):
        costs, k = objective.costs, context.n_classes
        price = (costs.sum(axis=1) - np.diag(costs)) / (k - 1)
        same = np.allclose(costs[~np.eye(k, dtype=bool)].reshape(k, k - 1), price[:, None])
        c = (price - np.diag(costs)) * context.shares
        return c if same and c.min() > 0 else None
    return None

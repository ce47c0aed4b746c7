"""Partial pooling: a prior in the true sense.

    l = D w + r,    minimise  R(l) + λ·mean((r / margin)²),     r = (I − P) l,  P the projection on span(1, D).

λ → ∞ is the class-attribute prior alone, λ → 0 one free offset per class. How much a class may deviate depends on how
much is known of it: λ₀ = 20 / (samples per class) is the default. Stratified cross-validation on the validation set may
overrule it, on evidence of one standard error, with a stronger or weaker pooling, the prior alone, or a single line
(logit adjustment). Each sample is judged by a fit that has not seen it, and the objective is taken once, on the class
errors of all judgements together: a rank or a spread of one fold's few samples would mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.line import choose, settle, trace
from capri.posthoc.problem import Problem, tally
from capri.posthoc.search import Found, Space, exact_search
from capri.posthoc.smooth import median_margin, minimise_offsets
from capri.sampling import stratified_folds

UNIT = 20.0  # λ₀ times samples per class; reproduction/benchmarks/heldout.py compares
FACTORS = (4.0, 1.0, 0.25)
FOLDS = 5
RESAMPLES = 50
PRIOR_ROUNDS = 4  # of the exact search for the prior alone


def default_strength(problem: Problem) -> float:
    """λ₀: the fewer samples speak for a class, the closer it stays to the prior."""
    return UNIT * float(problem.present.sum() / (problem.weight > 0).sum())


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known before tuning: the columns of D, and the line of logit adjustment where frequencies are known."""

    columns: NDArray[np.float64]
    line: Vector | None = None

    def residual_maker(self) -> NDArray[np.float64]:
        """I − P: what D and a common shift cannot express."""
        basis = np.column_stack([np.ones(len(self.columns)), self.columns])
        return np.eye(len(basis)) - basis @ np.linalg.pinv(basis)

    def nearest(self, l: Vector) -> Vector:
        """w with D w nearest to these offsets, of mean 0."""
        return np.asarray(np.linalg.lstsq(self.columns, l - l.mean(), rcond=None)[0])

    def weights(self, l: Vector) -> dict[str, Vector]:
        """w and r of l = D w + r, up to a common shift."""
        basis = np.column_stack([np.ones(len(self.columns)), self.columns])
        w = np.linalg.lstsq(basis, l, rcond=None)[0]
        return {"l": w[1:], "residual": l - basis @ w}


def path(problem: Problem, prior: Prior, strength: float, seed: int = 0) -> Iterator[tuple[str, Adjustment]]:
    """Every candidate, from the most to the least constrained, each started from the one before."""
    w = np.zeros(prior.columns.shape[1])
    if prior.line is not None:
        line = exact_search(problem, Space.of(prior.line[:, None]), seed=seed).adjustment
        yield "line", line
        w = prior.nearest(line.l)
    safe = exact_search(problem, Space.of(prior.columns), [w], max_rounds=PRIOR_ROUNDS, seed=seed).adjustment
    yield "prior", safe
    l = prior.columns @ minimise_offsets(problem, prior.columns, w)
    for factor in FACTORS:
        l = pooled(problem, prior, factor * strength, l)
        yield f"{factor:g} λ₀", make_feasible(problem, safe, Adjustment.offsets(l))


def make_feasible(problem: Problem, safe: Adjustment, wanted: Adjustment) -> Adjustment:
    """What is wanted, or if that violates a constraint (soft errors are not errors) the best on the way from `safe`."""
    return wanted if problem.worth(wanted).feasible else best_on_the_way(problem, safe, wanted)


def best_on_the_way(problem: Problem, safe: Adjustment, wanted: Adjustment) -> Adjustment:
    """The best adjustment between two."""
    if problem.on_confusion:  # has exact lines of offsets only
        safe = safe._replace(delta=wanted.delta)
    direction, way = safe.towards(wanted), (0.0, 1.0)
    line = trace(problem, safe, direction)
    t, _ = settle(line, *choose(line, way), lambda t: problem.worth(safe.along(direction, t)), way)
    return safe.along(direction, t)


def pooled(problem: Problem, prior: Prior, strength: float, start: Vector) -> Vector:
    """Offsets of one λ."""
    n = problem.n_classes
    penalty = np.sqrt(strength / n) / median_margin(problem) * prior.residual_maker()
    return minimise_offsets(problem, np.eye(n), start, penalty=penalty)


def pool(problem: Problem, prior: Prior, strength: float) -> Found:
    """The offsets of a given λ, within the constraints."""
    start = prior.columns @ minimise_offsets(problem, prior.columns, np.zeros(prior.columns.shape[1]))
    free = pooled(problem, prior, strength, start)
    found = make_feasible(problem, Adjustment.offsets(start), Adjustment.offsets(free))
    reason = f"pooled with λ = {strength:g} (λ₀ is {default_strength(problem):.3g})"
    return Found(found, problem.worth(found), reason, weights=prior.weights(found.l))


def pool_automatically(
    problem: Problem,
    prior_of: Callable[[Problem], Prior],
    *,
    seed: int = 0,
    folds: int = FOLDS,
    on_fold: Callable[[], None] = lambda: None,
) -> Found:
    """Choose among the candidates of `path` by cross-validation, then refit on everything.

    The prior of each fold is made from that fold's fitting part alone, since difficulty is measured on it. The path of
    what is found holds the cross-validated objective of each candidate (violations added).
    """
    assignment = stratified_folds(problem.y, folds, seed)
    strength = default_strength(problem)
    right: dict[str, NDArray[np.bool_]] = {}
    for fold in range(folds):
        held = np.flatnonzero(assignment == fold)
        fitting = problem.subset(assignment != fold)
        for name, candidate in path(fitting, prior_of(fitting), strength, seed):
            judged = right.setdefault(name, np.zeros(problem.n_samples, bool))
            judged[held] = (problem.predict(candidate) == problem.y)[held]
        on_fold()
    resampled = _resampled(problem, right, seed)
    choice, prior = _choose(resampled), prior_of(problem)
    found = next(candidate for name, candidate in path(problem, prior, strength, seed) if name == choice)
    return Found(
        found,
        problem.worth(found),
        f"cross-validation chose {choice}",
        weights=prior.weights(found.l),
        path={name: float(v.mean()) for name, v in resampled.items()},
    )


def _choose(resampled: Mapping[str, Vector], default: str = "1 λ₀") -> str:
    """The best of those that beat the default by a standard error of the paired difference, or the default."""
    differences = {name: v - resampled[default] for name, v in resampled.items()}
    better = {n: d.mean() for n, d in differences.items() if n != default and d.mean() < -d.std()}
    return min(better, key=lambda name: better[name], default=default)


def _resampled(problem: Problem, right: Mapping[str, NDArray[np.bool_]], seed: int) -> dict[str, Vector]:
    """Objective plus violation of each candidate on stratified resamples of its judgements, the same for all."""
    rng = np.random.default_rng(seed)
    members = problem.members()
    values = {name: np.empty(RESAMPLES) for name in right}
    for b in range(RESAMPLES):
        drawn = np.concatenate([rng.choice(m, len(m)) for m in members])
        labels, weight = problem.y[drawn], problem.weight[drawn]
        totals = tally(labels, weight, problem.n_classes)[problem.present]
        for name, judged in right.items():
            wrong = tally(labels, weight * ~judged[drawn], problem.n_classes)[problem.present]
            values[name][b] = sum(problem.worth_of_errors(wrong / totals))
    return values

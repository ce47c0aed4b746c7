"""Out of fold: what tuning gains on samples that it has not seen, and how sure that is.

The whole tuning is repeated without one fold after the other, and every sample is decided, before and after, by a
tuning that has not seen it. What is then known of class k is how often its samples fall into each cell (ŷ before, ŷ
after): few counts for a rare class. As in tuning, the model's opinion helps out: the cells' probabilities get a
Dirichlet posterior,

    p_k ~ Dirichlet(counts_k + n₁ q_k + n₂ p̄),    q_k: cells' shares by the calibrated posterior of the same samples,

p̄ for the mean class, which stands in where neither labels nor model have seen enough. The improvement is a function of
the p_k, so that draws of these are draws of the improvement. Their spread is that of this sample about the truth. The
interval is for what another sample of this size would show, which varies as much again; and with few samples per class
tunings differ among themselves, which widens it further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri.forms import ErrorEvaluator, MarginEvaluator
from capri.posthoc import _kernels
from capri.posthoc._compiled import blocks_of
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.calibration import Calibration, importance, labels_per_class
from capri.posthoc.matrices import Stacked, stacked
from capri.posthoc.methods import Task, tune
from capri.posthoc.problem import Problem, tally
from capri.posthoc.smooth import has_soft_twin
from capri.sampling import stratified_folds

FOLDS = 5
UNADJUSTED, TUNED = "unadjusted", "tuned"  # the lowest rung of the ladder, and what was asked for
OPINION = 20.0  # n₁: how many labels the model's opinion of a class is worth where it judges
COMMON = 2.0  # n₂: how many labels the mean of all classes is worth
ANY = 0.2  # the share of these that may lie in any cell
UNSTEADY = 12.0  # samples per class at which tunings differ as much as samples do
LEAST = 1e-3  # mass that is told from none
MANY, SMALL, NOTHING = 2**16, 0.05, 1e-12  # cells, whose mass is drawn in fewer steps where it is small


@dataclass(frozen=True)
class Gain:
    """An improvement: its mean and 90 % interval."""

    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Judged:
    """Decisions (n,) of each rung and calibrated posteriors (n, K), by tunings that have not seen the samples.

    rows: which samples of the problem these are; lone samples of their class are in every tuning, so they are not
    among them.
    """

    rows: NDArray[np.int64]
    decisions: Mapping[str, NDArray[np.int64]]
    posterior: Any

    def without_posterior(self) -> Judged:
        """The decisions alone, which take little room."""
        return replace(self, posterior=self.posterior[:0])


def judge(
    task: Task,
    tunings: Callable[[Task], Mapping[str, Adjustment]],
    *,
    folds: int = FOLDS,
    on_fold: Callable[[], None] = lambda: None,
) -> Judged | None:
    """Tune without each fold and decide its samples; None where every class has a single sample.

    tunings: what is found on a task, by name; such as the `ladder` of a method.
    """
    problem = task.problem
    assignment = stratified_folds(problem.y, folds, task.seed)
    parts: list[Judged] = []
    for fold in range(folds):
        held = (assignment == fold) & (problem.given > 0)
        if held.any():
            fitting = replace(task, problem=problem.subset(~held & (problem.given > 0)))
            parts.append(decided(fitting, tunings(fitting), problem.subset(held), np.flatnonzero(held)))
        on_fold()
    if not parts:
        return None
    return Judged(
        np.concatenate([part.rows for part in parts]),
        {
            name: np.concatenate([part.decisions[name] for part in parts])
            for name in parts[0].decisions
            if all(name in part.decisions for part in parts)  # a fold may lack a class, and with it a rung
        },
        stacked([part.posterior for part in parts]),
    )


def decided(
    task: Task, found: Mapping[str, Adjustment], there: Problem, rows: NDArray[np.int64] | None = None
) -> Judged:
    """Samples that a task has not seen, by what was found on it; rows: which samples these are, if not all."""
    posterior = _posterior(task.calibration, there, task.problem.present)
    decisions = {name: there.predict(adjustment) for name, adjustment in found.items()}
    return Judged(np.arange(there.n_samples) if rows is None else rows, decisions, posterior)


def _posterior(calibration: Calibration, problem: Problem, here: NDArray[np.bool_]) -> Any:
    """(n, K), by a calibration of the classes that are here."""
    if here.all():
        none, all_of_it = np.zeros(problem.n_samples), np.ones(problem.n_samples)
        return calibration.opinion(problem.scores, problem.y, none, all_of_it).small_as_array()
    posterior = np.zeros(problem.scores.shape, problem.scores.dtype)
    posterior[:, here] = calibration.posterior(np.ascontiguousarray(problem.scores[:][:, here]))
    return posterior


def ladder(task: Task, method: str) -> dict[str, Adjustment]:
    """Ways to decide, of increasing freedom: without tuning, by calibration alone, on a line, and as tuned.

    Logit adjustment with τ = 1 looks at no validation sample; the calibrated answer, at nothing but their calibration;
    tuned logit adjustment goes by the labels alone.
    """
    problem = task.problem
    rungs = {UNADJUSTED: problem.neutral}
    if task.usable_line is not None:
        rungs["τ = 1"] = Adjustment.offsets(task.usable_line)
    if problem.present.all():
        rungs["calibrated"] = Adjustment.offsets(task.calibration.offsets(importance(task.informed.problem)))
    if task.usable_line is not None:
        rungs["LA, tuned"] = tune(replace(task, borrow=0.0), "la").adjustment
    return rungs | {TUNED: tune(task, method).adjustment}


def gained(problem: Problem, judged: Judged, rung: str = TUNED, *, draws: int, seed: int = 0) -> Gain:
    """The improvement of the objective over the unadjusted decisions, out of fold."""
    collect = _all_cells if problem.on_confusion else _right_cells
    cells = collect(problem, judged, judged.decisions[UNADJUSTED], judged.decisions[rung])
    rng = np.random.default_rng(seed)
    gains = np.empty(draws)
    for d in range(draws):
        gains[d] = _gain(problem, cells, _gamma(rng, cells.mass))
    wider = np.sqrt(2 * (1 + UNSTEADY * problem.present.sum() / np.count_nonzero(problem.given)))
    low, high = gains.mean() + wider * (np.quantile(gains, [0.05, 0.95]) - gains.mean())
    return Gain(float(gains.mean()), (float(low), float(high)))


def _gamma(rng: np.random.Generator, mass: Vector) -> Vector:
    """Draws from Gamma(mass). Most of many cells have next to no mass, and of these nearly all draws are 0, or as good
    as that: Gamma(m) is Gamma(m + 1) U^(1/m), and where U^(1/m) is less than `NOTHING` nothing more is drawn."""
    if len(mass) < MANY:
        return rng.standard_gamma(mass)
    small, drawn = mass < SMALL, np.zeros(len(mass))
    drawn[~small] = rng.standard_gamma(mass[~small])
    places, u = np.flatnonzero(small), rng.random(np.count_nonzero(small))
    told = u > NOTHING ** mass[places]
    places, u = places[told], u[told]
    drawn[places] = rng.standard_gamma(mass[places] + 1) * u ** (1 / mass[places])
    return drawn


def _gain(problem: Problem, cells: Cells, mass: Vector) -> float:
    """By how much the objective is lower after than before, where the cells have so much mass for each class."""
    k, objective, rows = problem.n_classes, problem.objective, problem.totals
    if isinstance(objective, ErrorEvaluator) or has_soft_twin(objective):
        margins = np.zeros((2, 2, k))
        _kernels.margins_of_cells(cells.classes, cells.before, cells.after, mass, rows, margins)
        before, after = (_of_margins(problem, *of_either) for of_either in margins)
    else:
        keys, amounts = cells.classes * k, cells.normalised(mass, rows)
        confusions = (tally(keys + decided, amounts, k * k).reshape(k, k) for decided in (cells.before, cells.after))
        before, after = (objective(confusion) for confusion in confusions)
    return before - after


def _of_margins(problem: Problem, hits: Vector, columns: Vector) -> float:
    """The objective, of so much that is right, and decided for each class."""
    objective, rows = problem.objective, problem.totals
    if isinstance(objective, ErrorEvaluator):
        return objective(1 - (hits / np.where(rows > 0, rows, 1.0))[problem.present])
    assert isinstance(objective, MarginEvaluator)
    return objective.smooth(hits, rows, columns)[0]


# -- cells ------------------------------------------------------------------------------------------------------------


class Cells(NamedTuple):
    """Samples by class and decisions before and after, with the mass of each such cell, counts and opinion together."""

    classes: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    mass: Vector

    def normalised(self, mass: Vector, totals: Vector) -> Vector:
        """Masses scaled so that each class has its total."""
        sums = tally(self.classes, mass, len(totals))
        return mass * np.divide(totals, sums, out=np.zeros(len(totals)), where=sums > 0)[self.classes]


def _label_mass(problem: Problem, judged: Judged) -> Vector:
    """How many labels each judged sample stands for."""
    k, y = problem.n_classes, problem.y[judged.rows]
    per_weight = labels_per_class(problem) / np.where(problem.present, tally(problem.y, problem.given, k), 1.0)
    return np.asarray(problem.given[judged.rows] * per_weight[y])


def _opinion(problem: Problem, judged: Judged) -> Any:
    """(n, K): the model's opinion of the class of each judged sample, up to n₁ labels for each class in all.

    Of a class of which it sees less than a sample among those judged, it is worth less.
    """
    given = problem.given[judged.rows] / problem.given[judged.rows].mean()
    if isinstance(judged.posterior, Stacked):
        stack = judged.posterior.weighted(given)
        return stack.times(OPINION / (1 + stack.sum(axis=0)))
    opinion = judged.posterior * given[:, None].astype(judged.posterior.dtype)
    opinion *= (OPINION / (1 + opinion.sum(axis=0, dtype=np.float64))).astype(opinion.dtype)
    return np.asarray(opinion)


def _right_cells(problem: Problem, judged: Judged, first: NDArray[np.int64], second: NDArray[np.int64]) -> Cells:
    """For objectives on class errors, which only ask whether a decision is right: four cells for each class.

    A wrong decision is put down as the next class.
    """
    k, y, rows = problem.n_classes, problem.y[judged.rows], np.arange(len(judged.rows))
    labels = tally(4 * y + 2 * (first == y) + (second == y), _label_mass(problem, judged), 4 * k).reshape(k, 4)
    opinion = _opinion(problem, judged)
    both = tally(first, opinion[rows, first] * (first == second), k)
    one, other = tally(first, opinion[rows, first], k), tally(second, opinion[rows, second], k)
    neither = opinion.sum(axis=0, dtype=np.float64) - one - other + both
    mass = labels + np.maximum(np.column_stack([neither, other - both, one - both, both]), 0.0)
    mass += _of_all_classes(mass[problem.present])
    classes, wrong = np.repeat(np.arange(k), 4), (np.repeat(np.arange(k), 4) + 1) % k
    right_first, right_second = np.tile([False, False, True, True], k), np.tile([False, True, False, True], k)
    here = problem.present[classes]
    before, after = np.where(right_first, classes, wrong), np.where(right_second, classes, wrong)
    return Cells(classes[here], before[here], after[here], np.maximum(mass.ravel()[here], LEAST))


def _of_all_classes(mass: NDArray[np.float64]) -> Vector:
    """Cells (4,) that a class is taken to have before anything is known of it: those of the mean class, or any."""
    shares = mass / np.maximum(mass.sum(axis=1, keepdims=True), LEAST)
    return np.asarray(COMMON * ((1 - ANY) * shares.mean(axis=0) + ANY / 4))


def _all_cells(problem: Problem, judged: Judged, first: NDArray[np.int64], second: NDArray[np.int64]) -> Cells:
    """For objectives on the confusion matrix: a cell for each class and pair of decisions that has mass."""
    k, y = problem.n_classes, problem.y[judged.rows]
    i, c, opinion = _opinion_told(problem, judged)
    some = _right_cells(problem, judged, first, second)
    common = np.tile(_of_all_classes(some.mass.reshape(-1, 4)), int(problem.present.sum()))
    classes = np.concatenate([y, c, some.classes])
    before = np.concatenate([first, first[i], _taken_for(some.classes, some.before, first, k)])
    after = np.concatenate([second, second[i], _taken_for(some.classes, some.after, second, k)])
    mass = np.concatenate([_label_mass(problem, judged), opinion, common])
    keys, inverse = np.unique((classes * k + before) * k + after, return_inverse=True)
    return Cells(keys // (k * k), keys // k % k, keys % k, tally(inverse, mass, len(keys)))


def _opinion_told(problem: Problem, judged: Judged) -> tuple[NDArray[np.int64], NDArray[np.int64], Vector]:
    """`_entries` of the opinion, which all rungs share."""
    known = judged.__dict__.get("_told")
    if known is None or known[0] is not problem.given:
        known = problem.given, _entries(_opinion(problem, judged), problem.present)
        judged.__dict__["_told"] = known
    return known[1]


def _entries(opinion: Any, present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], Vector]:
    """Rows, columns and values of what is not next to nothing, of the classes that are present."""
    found = []
    for rows in blocks_of(opinion):
        block = opinion[rows]
        i, c = np.nonzero((block > LEAST) & present)
        found.append((i + rows.start, c, block[i, c].astype(np.float64)))
    i, c, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return i, c, values


def _taken_for(
    classes: NDArray[np.int64], decided: NDArray[np.int64], decisions: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """Right decisions as they are; wrong ones as the class that is most often decided for, or the second of these."""
    second, first = np.argsort(np.bincount(decisions, minlength=k), kind="stable")[-2:]
    return np.where(decided == classes, decided, np.where(classes == first, second, first))

"""Classes without validation samples: the search does without them, and they take their settings from the others.

    l_k = a + b log π_k   for an absent class k, (a, b) the least-squares line of l on log π over the present classes,

and log Δ in the same way. A class without samples can only cost the others: every sample that is predicted as it is an
error of another class, so a search would push it out. It is therefore left out of the search and placed afterwards. LA,
CDT and VS are such lines themselves, so an absent class gets from them what they would have given it. If absent classes
make the result worse than no tuning, all offsets are scaled back (in `capri.posthoc.methods`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from capri.forms import ClassContext, ConfusionForm, ConfusionFunction, Evaluator, LeastForm
from capri.objectives import Objective
from capri.posthoc.adjustment import Adjustment, Vector
from capri.posthoc.problem import Problem
from capri.posthoc.search import MULTIPLIER_LIMIT

REACH = 2.0  # how far the line is followed beyond the present classes, in units of how far these lie apart


# -- the question without them ---------------------------------------------------------------------------------------


def among_present(problem: Problem) -> Problem:
    """The same question where only the P present classes can be predicted; relative limits are those of that."""
    here, rows = problem.present, problem.present[problem.y]
    return problem.derived(
        scores=np.ascontiguousarray(problem.scores[np.ix_(rows, here)]),
        y=(np.cumsum(here) - 1)[problem.y[rows]],
        given=problem.given[rows],
        shares=None if problem.shares is None else problem.shares[here],
        beliefs=None if problem.beliefs is None else problem.beliefs[np.ix_(rows, here)],
        context=problem.context.present(),
        objective=_among(problem.objective_spec, problem.context),
        constraints=[replace(c, objective=_among(c.objective, problem.context)) for c in problem.constraints],
    )


def _among(objective: Objective, every: ClassContext) -> Objective:
    """The objective as a function of errors or confusions of some of the classes."""

    def build(some: ClassContext) -> Evaluator:
        totals = np.zeros(every.n_classes)
        totals[some.index] = some.total * some.shares
        return _restricted(objective.on(every.with_totals(totals)), some.index, every.n_classes)

    return Objective(objective.name, build)


def _restricted(evaluator: Evaluator, chosen: NDArray[np.int64], n_classes: int) -> Evaluator:
    """The evaluator on the confusion matrix of the chosen classes, where all others have empty rows and columns."""
    cells = np.ix_(chosen, chosen)
    if isinstance(evaluator, ConfusionForm):
        f1, precision = evaluator.f1[chosen], evaluator.precision[chosen]
        return ConfusionForm(evaluator.costs[cells], f1, precision, evaluator.constant)
    if isinstance(evaluator, LeastForm):
        return LeastForm(evaluator.quality, evaluator.groups[chosen])
    if not isinstance(evaluator, ConfusionFunction):
        return evaluator  # class errors are those of present classes in any case, and empty margins add nothing

    def function(confusion: NDArray[np.float64]) -> float:
        whole = np.zeros((n_classes, n_classes))
        whole[cells] = confusion
        return evaluator(whole)

    return ConfusionFunction(function, evaluator.name)


# -- and the answer for them -----------------------------------------------------------------------------------------


def extend(adjustment: Adjustment, present: NDArray[np.bool_], log_frequency: Vector | None = None) -> Adjustment:
    """From the adjustment of the P present classes to that of all K."""
    E = extension(present, log_frequency)
    delta = np.clip(np.exp(E @ np.log(adjustment.delta)), 1 / MULTIPLIER_LIMIT, MULTIPLIER_LIMIT)
    return Adjustment(delta, E @ adjustment.l)


def extension(present: NDArray[np.bool_], log_frequency: Vector | None = None) -> NDArray[np.float64]:
    """E (K, P): the identity on present classes, the value of the least-squares line of log π on absent ones.

    Where frequencies are unknown, or the same for all present classes, that is the mean of the present.

    >>> log_pi = np.log([0.8, 0.16, 0.04])
    >>> np.allclose(extension(np.array([True, True, False]), log_pi) @ log_pi[:2], log_pi)
    True
    """
    size = int(present.sum())
    E = np.full((len(present), size), 1 / size)
    E[present] = np.eye(size)
    if log_frequency is None:
        return E
    known = log_frequency[present]
    low, high, distance = known.min(), known.max(), known - known.mean()
    if high > low:
        there = np.clip(log_frequency[~present], low - REACH * (high - low), high + REACH * (high - low))
        E[~present] += np.outer(there - known.mean(), distance / (distance @ distance))
    return E

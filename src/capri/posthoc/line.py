"""The exact line search: the minimum of any function of the class errors along a line of adjustments.

Along  m + t h,  l + t g  each sample is right on one open interval of t (`right_intervals`), so the class errors are
step functions of t with at most 2N steps, known exactly after one pass over the scores and one sort. Objectives on the
confusion matrix, and soft labels, need the predicted class: the upper envelope of each sample's K lines (offsets only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri.constraints import ConstraintLike
from capri.forms import ConfusionEvaluator, ConfusionForm, ErrorFunction, Form, LeastForm, MarginFunction, on_margins
from capri.objectives import ObjectiveLike
from capri.posthoc import _kernels
from capri.posthoc._compiled import by_rows, summed
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.problem import TOLERANCE, Problem, Worth, check_direction, tally
from capri.posthoc.screening import Remainder

Interval: TypeAlias = tuple[float, float]
EVERYWHERE: Interval = (-np.inf, np.inf)
CHANGES = 16  # of a sample's decision along a line that are made room for at first
RESOLUTION = 1e-9  # plateaus narrower than this share of t are rounding and hold no point that argmax sees


class Line(NamedTuple):
    """Everything that happens along a line: T breakpoints, and on the T + 1 plateaus between them the objective and the
    total violation of the constraints."""

    breakpoints: Vector
    values: Vector
    violations: Vector


# -- from a direction to a line --------------------------------------------------------------------------------------


def trace(problem: Problem, start: Adjustment, direction: Direction) -> Line:
    """Objective and violations along m + t h, l + t g, where (m, l) is the start and (h, g) the direction."""
    breakpoints, values = trace_values(problem, start, direction)
    violations = np.zeros(values.shape[1])
    for row, bound in zip(values[1:], problem.bounds, strict=True):
        violations += np.maximum(0.0, row - bound.limit)
    return Line(breakpoints, values[0], violations)


def trace_values(problem: Problem, start: Adjustment, direction: Direction) -> tuple[Vector, NDArray[np.float64]]:
    """T breakpoints, and on the plateaus between them the objective and those of the constraints, a row each."""
    if problem.on_confusion or problem.beliefs is not None:
        if direction.h.any():
            raise InputError(
                "objectives on the confusion matrix, and soft labels, are searched along offsets only; leave Δ alone."
            )
        return _trace_decisions(problem, start, direction.g)
    return _trace_errors(problem, start, direction)


def _trace_errors(problem: Problem, start: Adjustment, direction: Direction) -> tuple[Vector, NDArray[np.float64]]:
    low, high = problem.right_intervals(start, direction)
    counts = problem.weight > 0
    starts, ends = np.flatnonzero(counts & np.isfinite(low)), np.flatnonzero(counts & np.isfinite(high))
    times = np.concatenate([low[starts], high[ends]])
    samples = np.concatenate([starts, ends])
    steps = np.concatenate([-problem.steps[starts], problem.steps[ends]])
    right = (low == -np.inf) & (high > -np.inf)
    errors = tally(problem.y, problem.steps * ~right, problem.n_classes)
    order = np.argsort(times)
    breakpoints, slots = _distinct(times[order])
    classes = problem.y[samples[order]]
    return breakpoints, _error_values(problem, slots, classes, steps[order], errors, len(breakpoints) + 1)


def _distinct(times: Vector) -> tuple[Vector, NDArray[np.int64]]:
    """Distinct breakpoints of sorted times, and the breakpoint of each event."""
    if len(times) == 0:
        return times, np.zeros(0, np.int64)
    new = np.concatenate([[True], times[1:] > times[:-1]])
    return times[new], np.cumsum(new) - 1


def _error_values(
    problem: Problem,
    slots: NDArray[np.int64],
    classes: NDArray[np.int64],
    steps: Vector,
    errors: Vector,
    n_plateaus: int,
) -> NDArray[np.float64]:
    """Values (n_evaluators, n_plateaus) of the evaluators of class errors; rows of others stay empty."""
    position = np.cumsum(problem.present) - 1
    here, start = position[classes], errors[problem.present]
    values = np.empty((len(problem.evaluators), n_plateaus))
    forms = [(f, e) for f, e in enumerate(problem.evaluators) if isinstance(e, Form)]
    if forms:
        swept = np.empty((len(forms), n_plateaus))
        _kernels.sweep_errors(slots, here, steps, start.copy(), *stack_forms([e for _, e in forms]), swept)
        values[[f for f, _ in forms]] = swept
    functions = [(f, e) for f, e in enumerate(problem.evaluators) if isinstance(e, ErrorFunction)]
    if functions:
        edges = np.searchsorted(slots, np.arange(n_plateaus), side="left")
        current = start.copy()
        for plateau in range(n_plateaus):
            for f, evaluator in functions:
                values[f, plateau] = evaluator(np.clip(current, 0.0, 1.0))  # sums of steps: rounding leaves −1e-17
            events = slice(edges[plateau], edges[plateau + 1] if plateau + 1 < n_plateaus else None)
            np.add.at(current, here[events], steps[events])
    return values


def stack_forms(forms: Sequence[Form]) -> tuple[NDArray[Any], ...]:
    """Forms side by side, as the kernel takes them."""
    k = len(forms[0].linear)
    ranks, groups = np.zeros((len(forms), k)), np.zeros((len(forms), k), np.int64)
    for f, form in enumerate(forms):
        ranks[f, : len(form.ranks)] = form.ranks
        groups[f, : len(form.groups)] = form.groups
    return (
        np.stack([f.linear for f in forms]),
        np.array([f.deviation for f in forms]),
        ranks,
        groups,
        np.array([len(f.ranks) for f in forms]),
        np.array([f.geometric for f in forms]),
    )


def _trace_decisions(problem: Problem, start: Adjustment, g: Vector) -> tuple[Vector, NDArray[np.float64]]:
    order, n = np.lexsort((np.arange(len(g)), -g)), problem.n_samples
    sizes, first, room = np.empty(n, np.int64), np.empty(n, np.int64), min(CHANGES, problem.n_classes)
    while True:
        table, classes = np.empty((n, room)), np.empty((n, room), np.int64)
        by_rows(_kernels.envelope_events, (problem.scores, sizes, first, table, classes), order, *start, g)
        if (most := int(sizes.max()) - 1) <= room:
            break
        room = most
    filled = np.arange(room) < sizes[:, None] - 1
    samples, times, after = np.nonzero(filled)[0], table[filled], classes[filled]
    before = np.column_stack([first, classes])[:, :-1][filled]
    by_time = np.argsort(times, kind="stable")  # a sample's own changes keep their order
    breakpoints, slots = _distinct(times[by_time])
    samples, before, after = samples[by_time], before[by_time], after[by_time]
    return breakpoints, _decision_values(problem, Changes(slots, samples, before, after), first, len(breakpoints) + 1)


def trace_near(problem: Problem, left: Remainder, start: Adjustment, g: Vector, reach: float) -> NearLine:
    """The line of offsets for |t| < reach, where what is left of the scores decides."""
    n_entries = len(left.classes)
    first, times, classes = np.empty(problem.n_samples, np.int64), np.empty(n_entries), np.empty(n_entries, np.int32)
    entries = (left.starts, left.classes, left.scores)
    _kernels.envelope_of_entries(*entries, first, times, classes, *start, g, -reach, reach)
    found = np.flatnonzero(~np.isnan(times))
    samples, times, after = left.samples_of(found), times[found], classes[found].astype(np.int64)
    follows = np.concatenate([[False], samples[1:] == samples[:-1]])[: len(samples)]
    before = np.where(follows, np.roll(after, 1), first[samples])
    last = first.copy()
    last[samples] = after  # in order, so that the last change counts
    by_time = np.argsort(times, kind="stable")
    breakpoints, slots = _distinct(times[by_time])
    changes = Changes(slots, samples[by_time], before[by_time], after[by_time])
    values = _decision_values(problem, changes, first, len(breakpoints) + 1)
    return NearLine(Line(breakpoints, values[0], np.zeros(values.shape[1])), first, last)


class NearLine(NamedTuple):
    """A part of a line, and the decisions at its ends."""

    line: Line
    first: NDArray[np.int64]
    last: NDArray[np.int64]


def least_beyond(problem: Problem, left: Remainder, decisions: NDArray[np.int64], slopes: Vector) -> float:
    """A bound from below for the objective further on, where scores have the given slopes from these decisions on.

    A sample can only come to classes that are steeper than the one it has. Mass outside of what is left of the scores
    is taken to be right. Of objectives that rise with every class error.
    """
    rows = (left.starts[:-1], left.starts[1:], decisions)
    lost = summed(_kernels.lost_beyond, rows, problem.n_classes, left.classes, problem.entry_masses, slopes)
    errors = np.clip(lost / np.where(problem.totals > 0, problem.totals, 1.0), 0.0, 1.0)
    return float(problem.objective(errors[problem.present]))


class Changes(NamedTuple):
    """Decisions that change along a line, in order: at which breakpoint, of which sample, from and to which class."""

    slots: NDArray[np.int64]
    samples: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]


def _decision_values(
    problem: Problem, changes: Changes, first: NDArray[np.int64], n_plateaus: int
) -> NDArray[np.float64]:
    """Values (n_evaluators, n_plateaus) of all evaluators, by the mass that each change takes and brings."""
    slots, samples, before, after = changes
    lost, won = problem.mass(samples, before), problem.mass(samples, after)
    totals = np.where(problem.totals > 0, problem.totals, 1.0)
    classes = np.column_stack([before, after]).ravel()
    steps = np.column_stack([lost / totals[before], -won / totals[after]]).ravel()
    moved = (steps != 0) & problem.present[classes]
    values = _error_values(
        problem, np.repeat(slots, 2)[moved], classes[moved], steps[moved], problem.errors_of(first), n_plateaus
    )
    if not problem.on_confusion:
        return values
    hits, columns = problem.margins_of(first)
    all_of_it = not all(on_margins(e) for e in problem.evaluators)
    confusion = problem.confusion_of(first) if all_of_it else np.zeros((1, 1))
    for f, evaluator in enumerate(problem.evaluators):
        margins = hits.copy(), problem.totals.copy(), columns.copy()
        if isinstance(evaluator, ConfusionForm):
            prices = _prices(problem, changes, evaluator.costs)
            costs = float((evaluator.costs * confusion).sum()) if evaluator.costs.any() else 0.0
            values[f] = evaluator.constant + costs
            form = prices, *margins, evaluator.f1, evaluator.precision
            _kernels.sweep_margins(slots, before, after, lost, won, problem.weight[samples], *form, values[f])
        elif isinstance(evaluator, MarginFunction):
            sums, weights = np.empty((3, n_plateaus)), problem.weight[samples]
            _kernels.sweep_moments(slots, before, after, lost, won, weights, *margins, sums)
            values[f] = evaluator.of_sums(sums, problem.totals)
        elif isinstance(evaluator, LeastForm):
            of_groups = (evaluator.summed(margin) for margin in margins)
            events = (slots, before, after, lost, won, problem.weight[samples], evaluator.groups)
            _kernels.sweep_least(*events, *of_groups, evaluator.quality == "f1", values[f])
        elif isinstance(evaluator, ConfusionEvaluator):
            values[f] = _call_on_confusions(evaluator, problem, changes, confusion, n_plateaus)
    return values


def _prices(problem: Problem, changes: Changes, costs: NDArray[np.float64]) -> Vector:
    """What each change adds to Σ_ij costs_ij M_ij."""
    _, samples, before, after = changes
    if not costs.any():
        return np.zeros(len(samples))
    if problem.beliefs is None:
        labels = problem.y[samples]
        return np.asarray(problem.weight[samples] * (costs[labels, after] - costs[labels, before]))
    charged = np.asarray(problem.beliefs) @ costs
    return np.asarray(charged[samples, after] - charged[samples, before])


def _call_on_confusions(
    evaluator: Callable[[NDArray[np.float64]], float],
    problem: Problem,
    changes: Changes,
    confusion: NDArray[np.float64],
    n_plateaus: int,
) -> Vector:
    slots, samples, before, after = changes
    edges = np.searchsorted(slots, np.arange(n_plateaus + 1), side="left")
    confusion, values = confusion.copy(), np.empty(n_plateaus)
    for plateau in range(n_plateaus):
        values[plateau] = evaluator(np.maximum(confusion, 0.0))
        for e in range(edges[plateau], edges[plateau + 1]):
            if problem.beliefs is None:
                rows, mass = problem.y[samples[e]], problem.weight[samples[e]]
            else:
                rows, mass = slice(None), problem.beliefs[samples[e]]
            confusion[rows, before[e]] -= mass
            confusion[rows, after[e]] += mass
    return values


# -- from a line to a point ------------------------------------------------------------------------------------------


def choose(line: Line, within: Interval = EVERYWHERE) -> tuple[float, Worth]:
    """The best point of a line: least violation, then least objective; among equals the middle of the widest plateau,
    then the nearest to 0. An outermost, infinite plateau is entered by a median gap, and only if nothing equals it."""
    left, right, real = _plateaus(line, within)
    with np.errstate(invalid="ignore"):
        width = right - left
    candidates = np.flatnonzero(real)
    if len(candidates) == 0:
        return 0.0, Worth(np.inf, np.inf)
    for key in (line.violations, line.values):
        candidates = candidates[key[candidates] <= key[candidates].min() + TOLERANCE]
    finite = candidates[np.isfinite(width[candidates])]
    if len(finite):
        middle = (left[finite] + right[finite]) / 2
        breadth = np.minimum(width[finite], _spread(line.breakpoints))
        best = int(np.lexsort((finite, np.abs(middle), -breadth))[0])
        at, t = int(finite[best]), float(middle[best])
    else:
        bounded = real & np.isfinite(width)
        gap = float(np.median(width[bounded])) if bounded.any() else 1.0
        entries = [_enter(float(left[j]), float(right[j]), gap) for j in candidates]
        t, at = min(zip(entries, candidates.tolist(), strict=True), key=lambda e: (abs(e[0]), e[1]))
    return t, Worth(float(line.violations[at]), float(line.values[at]))


def _plateaus(line: Line, within: Interval) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Where each plateau begins and ends within a range, and whether it is wider there than rounding."""
    left = np.clip(np.concatenate([[-np.inf], line.breakpoints]), *within)
    right = np.clip(np.concatenate([line.breakpoints, [np.inf]]), *within)
    with np.errstate(invalid="ignore"):
        width = right - left
    least = RESOLUTION * np.maximum(_unit(line.breakpoints), np.minimum(np.abs(left), np.abs(right)))
    return left, right, width > least


def wide_enough(line: Line, within: Interval = EVERYWHERE) -> NDArray[np.bool_]:
    """Which plateaus (T + 1,) are wider within a range than rounding, so that argmax can see them."""
    return _plateaus(line, within)[2]


def best_on(
    problem: Problem, line: Line, start: Adjustment, way: Direction, within: Interval = EVERYWHERE
) -> tuple[float, Worth]:
    """The best t of a line as `predict` sees it, and its worth; 0 where nothing beats the start."""
    here = problem.worth(start)
    t, there = settle(line, *choose(line, within), lambda t: problem.worth(start.along(way, t)), within)
    return (t, there) if there.better_than(here) else (0.0, here)


def settle(
    line: Line, t: float, promised: Worth, worth_at: Callable[[float], Worth], within: Interval = EVERYWHERE
) -> tuple[float, Worth]:
    """t and its worth as `predict` sees it. Where scores tie exactly there (votes and other coarse scores do), argmax
    may see what holds at no other point of the plateau: then a point beside it that keeps the promise."""
    plateau = int(np.searchsorted(line.breakpoints, t))
    ends = np.concatenate([[within[0]], line.breakpoints, [within[1]]])
    room = min(t - max(ends[plateau], within[0]), min(ends[plateau + 1], within[1]) - t)
    first = worth_at(t)
    for share in (0.0, 0.382, -0.382):
        beside = t + share * (room if np.isfinite(room) else 1.0)
        reached = first if share == 0 else worth_at(beside)
        if np.allclose(reached, promised, rtol=0, atol=1e-9):
            return float(beside), reached
    return t, first


def _enter(left: float, right: float, gap: float) -> float:
    """A point on an infinite plateau."""
    if np.isfinite(left):
        return left + gap
    return right - gap if np.isfinite(right) else 0.0


def _bulk(breakpoints: Vector) -> Interval:
    """Where nine tenths of the breakpoints lie: nearly equal slopes put a few of them very far out."""
    last = len(breakpoints) - 1
    return float(breakpoints[round(0.05 * last)]), float(breakpoints[round(0.95 * last)])


def _unit(breakpoints: Vector) -> float:
    """The size of t on this line, whatever the scales of scores and direction."""
    if len(breakpoints) == 0:
        return 1.0
    low, high = _bulk(breakpoints)
    return max(-low, high) or float(np.abs(breakpoints[[0, -1]]).max())


def _spread(breakpoints: Vector) -> float:
    """The range of the bulk of the breakpoints."""
    if len(breakpoints) < 2:
        return np.inf
    low, high = _bulk(breakpoints)
    return high - low


# -- the public face -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LineSearch:
    """The optimum along a line, and the whole step function; what `exact_line_search` returns.

    Parameters
    ----------
    t : float
        The optimum, in units of the direction; 0 where nothing beats the start.
    value : float
        The objective there, as predictions give it.
    unadjusted : float
        The objective at t = 0.
    feasible : bool
        Whether all constraints are met at t.
    breakpoints : ndarray of shape (T,)
        Where the objective may change, in order.
    values : ndarray of shape (T + 1,)
        ``values[j]`` holds between ``breakpoints[j - 1]`` and ``breakpoints[j]``.
    """

    t: float
    value: float
    unadjusted: float
    feasible: bool
    breakpoints: Vector
    values: Vector


def exact_line_search(
    scores: ArrayLike,
    y: ArrayLike,
    direction: ArrayLike,
    objective: ObjectiveLike = "balanced",
    *,
    offsets: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
    multiplier_direction: ArrayLike | None = None,
    bounds: Interval = EVERYWHERE,
    constraints: Sequence[ConstraintLike] = (),
    **problem: Any,
) -> LineSearch:
    """Minimise an objective exactly over t in  (m + t h)∘scores − (l + t g).

    Parameters
    ----------
    scores : array-like of shape (n_samples, K)
        Logits.
    y : array-like of shape (n_samples,)
        Classes, numbered 0 … K − 1.
    direction : array-like of shape (K,)
        g, how the offsets move with t.
    objective : name, Objective or function
        What to lower; see `capri.objective_names`.
    offsets, multipliers : array-like of shape (K,), optional
        l and m, where the line starts; 0 and 1 by default.
    multiplier_direction : array-like of shape (K,), optional
        h, how the multipliers move with t; 0 by default.
    bounds : (float, float)
        The open range of t; everywhere by default.
    constraints : sequence of "objective <= bound"
        What must be kept to, as in `LogitAdjuster`.
    **problem
        `sample_weight`, `weights`, `groups`, `absent`, …, as in `capri.evaluate`.

    Returns
    -------
    LineSearch

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[2.0, 1.0], [1.5, 1.0], [2.0, 0.0]])
    >>> found = exact_line_search(scores, [1, 1, 0], direction=[1.0, 0.0], objective="balanced")
    >>> found.t, found.value  # between 1.0, where the second '1' is won, and 2.0
    (1.5, 0.0)
    >>> found.breakpoints, found.values
    (array([0.5, 1. , 2. ]), array([0.5 , 0.25, 0.  , 0.5 ]))
    """
    task = Problem(scores, y, objective, constraints=constraints, **problem)
    g = check_direction(direction, task.n_classes, "direction")
    h = check_direction(multiplier_direction, task.n_classes, "multiplier_direction")
    l = check_direction(offsets, task.n_classes, "offsets")
    m = np.ones(task.n_classes) if multipliers is None else check_direction(multipliers, task.n_classes, "multipliers")
    start, way = Adjustment(m, l), Direction(h, g)
    line = trace(task, start, way)
    t, there = best_on(task, line, start, way, bounds)
    unadjusted = task.worth(start).value
    return LineSearch(t, there.value, unadjusted, there.feasible, line.breakpoints, line.values)

"""The curve of trade-offs: the lowest objective for each price in another, by searches that help each other.

    minimise  R  such that  Q ≤ b,        for bounds b from the least Q there is to the Q of the best R.

Each bound is one more constraint for the method that tunes, which starts from the answer to the bound before. One exact
line gives R and Q on all its plateaus at once, so it serves every bound: answers to neighbouring bounds are joined by
lines, and where classes are free and few, lines through each answer are taken for the sake of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri.objectives import Objective
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.line import EVERYWHERE, Interval, Line, choose, settle, trace_values
from capri.posthoc.methods import Task, believing, tune
from capri.posthoc.pooling import FEW, Price
from capri.posthoc.problem import ROUNDING, Problem, Worth
from capri.posthoc.search import DIRECTIONS, Found

ROUNDS = 3  # of lines through all answers, at most
DIGITS = 3  # of a bound, within the range of all bounds
UNBOUNDED = np.inf


def priced(problem: Problem, against: Objective, bound: float = UNBOUNDED) -> Problem:
    """The same question with a price to keep, unless it is unbounded; other constraints on the price give way to it."""
    others = [c for c in problem.constraints if c.objective.name != against.name]
    prices = [Price(against, bound)] if np.isfinite(bound) else []
    return problem.derived(beliefs=problem.beliefs, constraints=[*others, *prices])


def follow(
    task: Task,
    method: str,
    against: Objective,
    bounds: Sequence[float] | int,
    best: Found | None = None,
) -> dict[float, Answer]:
    """The best answer for each bound on the price, by what the method goes by: the labels, or soft labels.

    bounds: how many, from the least price to that of the best answer, which itself is unbounded; or what they are. An
    answer's worth is that under its bound, which it breaks if nothing found keeps it. best: the unbounded answer of the
    method, where that is known.
    """
    task = believing(task, method)
    free = priced(task.problem, against)
    thrifty = free.derived(beliefs=free.beliefs, objective=against)
    best = tune(task.asking(free), method) if best is None else best
    cheapest = tune(task.asking(thrifty), method)
    market = Market(priced(task.problem, against, 0.0))
    for found in (Found(free.neutral, free.worth(free.neutral), "no adjustment"), best, cheapest):
        market.offer(found)
    limits = market.bounds(bounds) if isinstance(bounds, int) else sorted(map(float, bounds))
    start = best.adjustment
    for bound in reversed(limits):
        if np.isfinite(bound):
            found = tune(task.asking(priced(task.problem, against, bound), start=start.l), method)
            market.offer(found)
            start = found.adjustment
    market.join(limits)
    if method == "plain" and task.parameters == "l" and task.problem.beliefs is None and free.n_classes <= FEW:
        market.comb(limits, np.random.default_rng(task.seed))
    return {bound: market.best(bound) for bound in limits}


class Answer(NamedTuple):
    """What was found, and its objective, those of the constraints, and last the price."""

    found: Found
    values: Vector

    @property
    def value(self) -> float:
        """The objective."""
        return float(self.values[0])

    @property
    def price(self) -> float:
        """What it costs."""
        return float(self.values[-1])


class Market:
    """Answers, and which of them is best for a bound on the price: the last constraint of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.answers = problem, list[Answer]()

    def offer(self, found: Found) -> None:
        """One answer more."""
        self.answers.append(Answer(found, np.array(self.problem.values(found.adjustment))))

    def best(self, bound: float) -> Answer:
        """The best answer with its worth; of those that are as good, the cheapest."""
        best, worth = self.answers[0], self._worth(self.answers[0].values, bound)
        for answer in self.answers[1:]:
            other = self._worth(answer.values, bound)
            cheaper = answer.price < best.price - ROUNDING and not worth.better_than(other)
            if cheaper or other.better_than(worth):
                best, worth = answer, other
        return best._replace(found=replace(best.found, worth=worth))

    def bounds(self, n: int) -> list[float]:
        """Evenly spaced from the least price to that of the best answer, which is unbounded; in few digits."""
        keeping = [a for a in self.answers if self._worth(a.values, UNBOUNDED).feasible]
        high = self.best(UNBOUNDED).price
        low = min((a.price for a in keeping), default=high)
        if high - low <= ROUNDING or n == 1:
            return [UNBOUNDED]
        step = 10.0 ** (np.floor(np.log10(high - low)) - DIGITS)
        prices = step * np.ceil(np.linspace(low, high, n)[:-1] / step - ROUNDING)
        return [*np.unique(prices.round(12)).tolist(), UNBOUNDED]

    def join(self, bounds: Sequence[float]) -> None:
        """Look on the way between the answers to neighbouring bounds."""
        best = [self.best(bound).found.adjustment for bound in bounds]
        for here, there in pairwise(best):
            if np.array_equal(here.delta, there.delta) and not np.array_equal(here.l, there.l):
                self._serve(bounds, here, here.towards(there), (0.0, 1.0))

    def comb(self, bounds: Sequence[float], rng: np.random.Generator) -> None:
        """Look along each class and at random, from each answer, until that helps none."""
        k = self.problem.n_classes
        for _ in range(ROUNDS):
            before, best = len(self.answers), (self.best(bound).found.adjustment for bound in bounds)
            for start in {a.l.tobytes(): a for a in best}.values():
                for g in (*np.eye(k), *rng.normal(size=(min(k, DIRECTIONS), k))):
                    self._serve(bounds, start, Direction(np.zeros(k), g), EVERYWHERE)
            if len(self.answers) == before:
                break

    def _serve(self, bounds: Sequence[float], start: Adjustment, way: Direction, within: Interval) -> None:
        """The best point of a line for each bound that it helps."""
        breakpoints, values = trace_values(self.problem, start, way)
        for bound in bounds:
            line = Line(breakpoints, values[0], self._excess(values, bound))
            t, promised = choose(line, within)
            held = self.best(bound).found.worth
            if not promised.better_than(held):
                continue
            worth_at = partial(self._worth_along, start, way, bound)
            t, reached = settle(line, t, promised, worth_at, within)
            if reached.better_than(held):
                self.offer(Found(start.along(way, t).centred(), reached, "between answers to other bounds"))

    def _worth_along(self, start: Adjustment, way: Direction, bound: float, t: float) -> Worth:
        return self._worth(np.array(self.problem.values(start.along(way, t))), bound)

    def _worth(self, values: Vector, bound: float) -> Worth:
        return Worth(float(self._excess(values, bound)), float(values[0]))

    def _excess(self, values: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
        """By how much constraints and bound are exceeded, beyond rounding; values: (constraints + 2, …)."""
        limits = np.array([*(b.limit for b in self.problem.bounds[:-1]), bound])
        over = values[1:] - limits.reshape(-1, *[1] * (values.ndim - 1))
        return np.asarray(np.where(over > ROUNDING, over, 0.0).sum(axis=0))

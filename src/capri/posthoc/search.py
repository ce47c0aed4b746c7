"""The exact search: from lines to W. Round after round of exact line searches, until no line improves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.line import EVERYWHERE, Interval, choose, settle, trace
from capri.posthoc.problem import ROUNDING, Problem, Worth

MULTIPLIER_LIMIT = 5.0  # 1/5 ≤ Δ_k ≤ 5: post-hoc multipliers stretch logits without end if nothing stops them
ROUNDS = 10  # at most, unless told otherwise
DIRECTIONS = 8  # random ones of a round, at most


@dataclass(frozen=True, eq=False)
class Space:
    """What may move: l = offsets @ w_l and m = base + multipliers @ w_Δ, one column per direction."""

    offsets: NDArray[np.float64]
    multipliers: NDArray[np.float64]
    base: Vector

    @classmethod
    def of(
        cls,
        offsets: NDArray[np.float64] | None = None,
        multipliers: NDArray[np.float64] | None = None,
        base: Vector | None = None,
    ) -> Space:
        """A space of offsets, of multipliers, or of both; multipliers start from `base`, 1 if not given."""
        given = offsets if offsets is not None else multipliers
        assert given is not None
        none = np.zeros((len(given), 0))
        return cls(
            none if offsets is None else offsets,
            none if multipliers is None else multipliers,
            np.ones(len(given)) if base is None else base,
        )

    @property
    def size(self) -> int:
        """Number of directions."""
        return self.offsets.shape[1] + self.multipliers.shape[1]

    def adjustment(self, w: Vector) -> Adjustment:
        """The adjustment at w = (w_l, w_Δ)."""
        h, l = self.direction(w)
        return Adjustment(self.base + h, l)

    def direction(self, w: Vector) -> Direction:
        """The direction of a step along w."""
        cut = self.offsets.shape[1]
        return Direction(_combine(self.multipliers, w[cut:]), _combine(self.offsets, w[:cut]))

    def weights(self, w: Vector) -> dict[str, Vector]:
        """w by part, those parts that may move."""
        cut = self.offsets.shape[1]
        return {name: part for name, part in (("l", w[:cut]), ("delta", w[cut:])) if len(part)}


def _combine(columns: NDArray[np.float64], w: Vector) -> Vector:
    # Row by row rather than by BLAS: classes with equal rows must get equal offsets, to the last bit.
    return np.asarray((columns * w).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Found:
    """What a search, a method or pooling found: an adjustment, its worth, and how it was found.

    reason: why the search stopped, or what was chosen. lines: exact lines taken. weights: W by part ("l", "delta", and
    "residual" with pooling), of the classes that are present. settled: whether it was compared with no adjustment.
    """

    adjustment: Adjustment
    worth: Worth
    reason: str
    lines: int = 0
    weights: Mapping[str, Vector] = field(default_factory=dict)
    settled: bool = False


def exact_search(
    problem: Problem,
    space: Space,
    starts: list[Vector] | None = None,
    *,
    max_rounds: int = ROUNDS,
    seed: int = 0,
) -> Found:
    """The best of several starts."""
    starts = starts or [np.zeros(space.size)]
    found = [_descend(problem, space, start, max_rounds, np.random.default_rng(seed)) for start in starts]
    best = found[0]
    for other in found[1:]:
        if other.worth.better_than(best.worth):
            best = other
    return replace(best, lines=sum(f.lines for f in found))


def _descend(
    problem: Problem,
    space: Space,
    start: Vector,
    max_rounds: int,
    rng: np.random.Generator,
) -> Found:
    w = start.astype(np.float64)
    worth = problem.worth(space.adjustment(w))
    lines, kept, reason = 0, False, f"{max_rounds} rounds done"
    for _ in range(max_rounds):
        before = w.copy()
        for step in _round(space.size, rng):
            w, worth, kept = _line_step(problem, space, w, worth, step)
            lines += 1
        if np.array_equal(before, w) or (space.size == 1 and kept):  # where there is but one line, its best is the end
            reason = "no line improves"
            break
        w, worth = line_step(problem, space, w, worth, w - before)  # on along the whole round's step
        lines += 1
    return Found(space.adjustment(w), worth, reason, lines, space.weights(w))


def _round(size: int, rng: np.random.Generator) -> Iterator[Vector]:
    """Each coordinate, then as many random directions (one coordinate needs none)."""
    yield from np.eye(size)
    if size > 1:
        yield from rng.normal(size=(min(size, DIRECTIONS), size))


def line_step(
    problem: Problem,
    space: Space,
    w: Vector,
    worth: Worth,
    step: Vector,
) -> tuple[Vector, Worth]:
    """One exact line search from w along `step`; w moves only if `predict` agrees that it is better."""
    return _line_step(problem, space, w, worth, step)[:2]


def _line_step(problem: Problem, space: Space, w: Vector, worth: Worth, step: Vector) -> tuple[Vector, Worth, bool]:
    """The same, and whether the best that the line promises was found there."""
    start, direction = space.adjustment(w), space.direction(step)
    line, limits = trace(problem, start, direction), _limits(start.delta, direction.h)
    t, promised = choose(line, limits)
    if not promised.better_than(worth):
        return w, worth, True
    t, reached = settle(line, t, promised, lambda t: problem.worth(space.adjustment(w + t * step)), limits)
    there = w + t * step
    kept = bool(np.allclose(reached, promised, rtol=0, atol=ROUNDING))
    return (there, reached, kept) if reached.better_than(worth) else (w, worth, kept)


def _limits(m: Vector, h: Vector) -> Interval:
    """The range of t that keeps every multiplier m + t h within its limits."""
    if not h.any():
        return EVERYWHERE
    moving = h != 0
    ends = np.stack([(1 / MULTIPLIER_LIMIT - m[moving]) / h[moving], (MULTIPLIER_LIMIT - m[moving]) / h[moving]])
    return float(ends.min(axis=0).max()), float(ends.max(axis=0).min())

"""Descent with few evaluations, each of them dear: L-BFGS whose state is plain arrays.

An evaluation is a whole training, so the value is asked for first, and the gradient only where the value was accepted.
A step tries the quasi-Newton direction, no longer than `reach`, and shortens it until the value falls (Armijo) and the
gradient has not exploded: at the edge of stability a training may end well, but its derivatives are boundless there and
lead nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Evaluation: TypeAlias = tuple[float, Callable[[], Vector]]  # the value, and its gradient when it is called

MEMORY = 10  # moves whose curvature is remembered
TRIES = 6  # lengths of a step
ENOUGH = 1e-4  # of the fall that the slope promises
STEEP = 10.0  # times as long as before, a gradient has exploded
CURVED = 1e-8  # a pair below this cosine says nothing of the curvature


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent stands: all that its next step depends on, and its path.

    path: (n + 1, M), values: (n + 1,), from the start on. gradient: (M,) at the end of the path. moves, turns: (m, M),
    the last moves and how the gradient turned along each. done: no step lowers the value further.
    """

    path: Vector
    values: Vector
    gradient: Vector
    moves: Vector
    turns: Vector
    done: bool = False

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As plain arrays, by name."""
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Descent:
        """Back from `arrays`."""
        return cls(**{f.name: arrays[f.name] for f in fields(cls) if f.name != "done"}, done=bool(arrays["done"]))


def begin(evaluate: Callable[[Vector], Evaluation], z: Vector) -> Descent:
    """At its start."""
    value, slopes = evaluate(z)
    gradient = slopes()
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        raise FloatingPointError("the training that a search starts from diverges; lower its learning rate.")
    none = np.zeros((0, len(z)))
    return Descent(z[None].copy(), np.array([value]), gradient, none, none)


def step(evaluate: Callable[[Vector], Evaluation], at: Descent, reach: float, tolerance: float) -> Descent:
    """One step down, or the same place: without its memory where the remembered curvature led up, else done."""
    if np.abs(at.gradient).max() <= tolerance:
        return replace(at, done=True)
    direction = -_inverse_hessian_product(at.gradient, at.moves, at.turns)
    length = float(np.linalg.norm(direction))
    if length > reach or not len(at.moves):  # without a memory the gradient has a direction and no length
        direction *= reach / length
    found = _shortened(evaluate, at, direction)
    if found is None:
        return replace(at, moves=at.moves[:0], turns=at.turns[:0], done=not len(at.moves))
    z, value, gradient = found
    moves, turns = at.moves, at.turns
    move, turn = z - at.path[-1], gradient - at.gradient
    if move @ turn > CURVED * np.linalg.norm(move) * np.linalg.norm(turn):
        moves, turns = np.vstack([moves, move])[-MEMORY:], np.vstack([turns, turn])[-MEMORY:]
    return Descent(np.vstack([at.path, z]), np.append(at.values, value), gradient, moves, turns)


def _shortened(
    evaluate: Callable[[Vector], Evaluation], at: Descent, direction: Vector
) -> tuple[Vector, float, Vector] | None:
    """The first of ever shorter steps that lowers the value enough: where, to what, and the gradient there."""
    slope, share = float(at.gradient @ direction), 1.0
    for _ in range(TRIES):
        z = at.path[-1] + share * direction
        value, slopes = evaluate(z)
        rise = value - at.values[-1]
        if rise <= ENOUGH * share * slope:
            gradient = slopes()
            if np.linalg.norm(gradient) <= STEEP * np.linalg.norm(at.gradient):  # not where it is NaN
                return z, value, gradient
            rise = np.nan
        lowest = -slope * share**2 / (2 * (rise - share * slope)) if np.isfinite(rise) else share  # of the parabola
        share = min(max(lowest, 0.1 * share), 0.5 * share)
    return None


def _inverse_hessian_product(g: Vector, moves: Vector, turns: Vector) -> Vector:
    """The two loops of L-BFGS (Nocedal 1980)."""
    product, shares = g.copy(), []
    for move, turn in zip(moves[::-1], turns[::-1], strict=True):
        shares.append((move @ product) / (move @ turn))
        product -= shares[-1] * turn
    if len(moves):
        product *= (moves[-1] @ turns[-1]) / (turns[-1] @ turns[-1])
    for move, turn, share in zip(moves, turns, reversed(shares), strict=True):
        product += (share - (turn @ product) / (move @ turn)) * move
    return product

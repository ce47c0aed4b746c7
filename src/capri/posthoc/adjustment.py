"""The adjustment (Δ, l): what post-hoc tuning does to scores, Δ∘o − l, and how it moves along a line.

In formulas Δ is written m where a letter is wanted: m + t h, l + t g.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capri.strategy import Strategy

Vector: TypeAlias = NDArray[np.float64]


class Direction(NamedTuple):
    """How an adjustment moves: h for the multipliers, g for the offsets, (K,) each."""

    h: Vector
    g: Vector


class Adjustment(NamedTuple):
    """Multipliers Δ and offsets l, (K,) each; predictions are argmax of Δ∘scores − l.

    >>> Adjustment.offsets(np.array([1.0, 3.0])).centred()
    Adjustment(delta=array([1., 1.]), l=array([-1.,  1.]))
    """

    delta: Vector
    l: Vector

    @classmethod
    def neutral(cls, n_classes: int) -> Adjustment:
        """The one that changes nothing."""
        return cls(np.ones(n_classes), np.zeros(n_classes))

    @classmethod
    def offsets(cls, l: Vector) -> Adjustment:
        """Offsets alone."""
        return cls(np.ones(len(l)), l)

    @classmethod
    def multipliers(cls, delta: Vector) -> Adjustment:
        """Multipliers alone."""
        return cls(delta, np.zeros(len(delta)))

    def along(self, direction: Direction, t: float) -> Adjustment:
        """The adjustment t steps further."""
        return Adjustment(self.delta + t * direction.h, self.l + t * direction.g)

    def towards(self, other: Adjustment) -> Direction:
        """The direction in which `other` is one step away."""
        return Direction(other.delta - self.delta, other.l - self.l)

    def centred(self) -> Adjustment:
        """Of all equivalent offsets, those with mean 0."""
        return self._replace(l=self.l - self.l.mean())

    def strategy(self) -> Strategy:
        """The same as a strategy, for policies."""
        return Strategy.of(len(self.l), l=self.l, delta=self.delta)

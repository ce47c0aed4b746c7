"""Safe screening: what of the scores can matter while offsets stay in a box.

Within |l_k − c_k| ≤ r, multipliers fixed, class k wins sample i for some l only if

    z_ik + r ≥ max_j (z_ij − r),    z_ik = m_k o_ik − c_k .

What is left is sparse, and nothing that could change a decision was dropped: predictions in the box are those of all
scores, ties included. Where soft decisions are made of the scores, classes a little further off are kept as well
(`reach`), so that those that are dropped hold next to no mass.

Each sample is screened by itself. So the remainder of many samples is that of their blocks, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri.posthoc import _kernels
from capri.posthoc._compiled import blocks_of, by_rows
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.matrices import Ints, Vector

TINY = np.finfo(np.float64).tiny
SLACK = 1e-9  # share of the largest score by which classes may miss the bound, far more than rounding


@dataclass(frozen=True, eq=False)
class Remainder:
    """Scores that matter in a box around an adjustment: sample i has the entries starts[i] … starts[i + 1].

    classes, scores: of the entries, classes in order. centre: m and c; radius: r. reach: by how
    much classes may miss the bound and are kept.
    """

    starts: Ints
    classes: NDArray[np.int32]
    scores: NDArray[Any]
    centre: Adjustment
    radius: float
    reach: float = 0.0

    @classmethod
    def merged(cls, parts: Sequence[Remainder]) -> Remainder:
        """Of samples in blocks, the remainder of all."""
        counts = np.concatenate([np.diff(part.starts) for part in parts])
        return cls(
            np.append(0, np.cumsum(counts)),
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].centre,
            parts[0].radius,
            parts[0].reach,
        )

    @property
    def samples(self) -> Ints:
        """The sample of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def samples_of(self, entries: Ints) -> Ints:
        """The samples of some entries."""
        return np.searchsorted(self.starts, entries, side="right") - 1

    @property
    def share(self) -> float:
        """Entries that are left, of all there were."""
        return len(self.classes) / ((len(self.starts) - 1) * len(self.centre.l))

    def holds(self, adjustment: Adjustment) -> bool:
        """Is the adjustment in the box? A shift of all offsets changes nothing."""
        return self._moved(adjustment) <= 2 * self.radius

    def decides(self, adjustment: Adjustment) -> bool:
        """Is it in the larger box in which classes within reach are all that may win?"""
        return self._moved(adjustment) <= 2 * self.radius + self.reach

    def room(self, adjustment: Adjustment, g: Vector) -> float:
        """How far decisions may be followed along ±g."""
        return max(0.0, 2 * self.radius + self.reach - self._moved(adjustment)) / max(float(np.ptp(g)), TINY)

    def _moved(self, adjustment: Adjustment) -> float:
        """By how much more some offsets have moved than others; ∞ where multipliers have."""
        same = np.array_equal(adjustment.delta, self.centre.delta)
        return float(np.ptp(adjustment.l - self.centre.l)) if same else np.inf

    def predict(self, adjustment: Adjustment) -> Ints:
        """argmax of Δ∘scores − l, for an adjustment in the box."""
        predictions = np.empty(len(self.starts) - 1, np.int64)
        _kernels.predict_entries(self.starts, self.classes, self.scores, predictions, *adjustment)
        return predictions


def screen(scores: Any, centre: Adjustment, radius: float, reach: float = 0.0) -> Remainder:
    """What is left of scores (n, K) in a box, and of classes that miss it by no more than `reach`."""
    return Remainder.merged([_screen(scores[rows], centre, radius, reach) for rows in blocks_of(scores)])


def _screen(scores: NDArray[Any], centre: Adjustment, radius: float, reach: float) -> Remainder:
    counts, levels = np.empty(len(scores), np.int64), np.empty(len(scores))
    by_rows(_kernels.count_near, (scores, counts, levels), *centre, 2 * radius + reach, SLACK)
    starts = np.append(0, np.cumsum(counts))
    classes, kept = np.empty(starts[-1], np.int32), np.empty(starts[-1], scores.dtype)
    by_rows(_kernels.keep_near, (scores, starts[:-1], levels), classes, kept, *centre)
    return Remainder(starts, classes, kept, centre, radius, reach)

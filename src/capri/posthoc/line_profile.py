"""The profile of a line: what an objective is at every τ of logit adjustment, l = τ log π, exactly.

It is the picture of what the exact search sees. Where there are more plateaus than a picture can show, neighbours are
drawn together into bands between their least and their highest value, so that nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from capri._checks import InputError, check_counts
from capri.attributes import frequency
from capri.constraints import ConstraintLike
from capri.objectives import ObjectiveLike
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.line import EVERYWHERE, Interval, Line, best_on, trace, wide_enough
from capri.posthoc.problem import Problem
from capri.strategy import Strategy

BANDS = 2000  # of a profile, at most, unless told otherwise


class Mark(NamedTuple):
    """A place beside a profile.

    Parameters
    ----------
    tau : float
        Where on the line.
    value : float
        The objective there.
    """

    tau: float
    value: float


@dataclass(frozen=True, eq=False)
class LineProfile:
    """An objective along l = τ log π, as `profile` gives it.

    Parameters
    ----------
    objective : str
        Its name.
    tau : ndarray of shape (B - 1,)
        Where one band ends and the next begins, in order. The first and the last band go on without end.
    low, high : ndarray of shape (B,)
        Least and highest value in each band, between ``tau[b - 1]`` and ``tau[b]``. They are equal where a band is a
        single plateau.
    n_plateaus : int
        Plateaus in all.
    unadjusted, la : Mark
        At τ = 0 and at τ = 1, logit adjustment as it is.
    tuned : Mark
        The best on the line, within the constraints.
    chosen : Mark or None
        An answer that need not lie on the line: at the τ that is nearest to it, with its own value.
    """

    objective: str
    tau: Vector
    low: Vector
    high: Vector
    n_plateaus: int
    unadjusted: Mark
    la: Mark
    tuned: Mark
    chosen: Mark | None = None

    @property
    def exact(self) -> bool:
        """Is every plateau there by itself?"""
        return len(self.low) == self.n_plateaus

    @property
    def marks(self) -> dict[str, Mark]:
        """The places by name, those that there are."""
        named = {"unadjusted": self.unadjusted, "τ = 1": self.la, "LA, tuned": self.tuned}
        return named if self.chosen is None else named | {"chosen": self.chosen}

    def to_dict(self) -> dict[str, Any]:
        """The profile in numbers, lists and text, as JSON has them.

        Returns
        -------
        dict
        """
        arrays = {"tau": self.tau.tolist(), "low": self.low.tolist(), "high": self.high.tolist()}
        marks = {name: mark._asdict() for name, mark in self.marks.items()}
        return {"objective": self.objective, **arrays, "n_plateaus": self.n_plateaus, "marks": marks}


def profile(
    scores: ArrayLike,
    y: ArrayLike,
    class_counts: ArrayLike,
    objective: ObjectiveLike = "balanced",
    *,
    chosen: Strategy | None = None,
    constraints: Sequence[ConstraintLike] = (),
    within: Interval = EVERYWHERE,
    bands: int = BANDS,
    **problem: Any,
) -> LineProfile:
    """The exact step function of an objective along the line of logit adjustment, l = τ log π.

    Parameters
    ----------
    scores : array-like of shape (n_samples, K)
        Logits.
    y : array-like of shape (n_samples,)
        Classes, numbered 0 … K − 1.
    class_counts : array-like of shape (K,)
        Training samples of each class, all above 0.
    objective : name, Objective or function
        What to follow; see `capri.objective_names`.
    chosen : Strategy, optional
        An answer to show beside the line, such as ``adjuster.strategy_``.
    constraints : sequence of "objective <= bound"
        What the tuned τ must keep to.
    within : (float, float)
        The range of τ that is wanted; everywhere by default.
    bands : int
        How many bands at most.
    **problem
        `sample_weight`, `shares`, `weights`, `groups`, `absent`, …, as in `exact_line_search`.

    Returns
    -------
    LineProfile

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[2.0, 1.0], [1.5, 1.0], [2.0, 0.0]])
    >>> found = profile(scores, [1, 1, 0], class_counts=[np.e, 1.0])
    >>> found.tau, found.low
    (array([0.5, 1. , 2. ]), array([0.5 , 0.25, 0.  , 0.5 ]))
    >>> found.la.value, found.tuned
    (0.25, Mark(tau=1.5, value=0.0))
    """
    task = Problem(scores, y, objective, constraints=constraints, class_counts=class_counts, **problem)
    counts = check_counts(class_counts, task.n_classes)
    if counts.min() == 0 or counts.min() == counts.max():
        said = "holds a class that never occurred" if counts.min() == 0 else "is the same for all classes"
        raise InputError(f"class_counts {said}; the line of logit adjustment, τ log π, needs counts that differ.")
    if bands < 1 or not within[0] < within[1]:
        raise InputError(f"bands is {bands}, within {within}; give one band or more, and a range from low to high.")
    return profile_of(task, counts, chosen=chosen, within=within, bands=bands)


def profile_of(
    task: Problem,
    counts: Vector,
    *,
    chosen: Strategy | None = None,
    within: Interval = EVERYWHERE,
    bands: int = BANDS,
) -> LineProfile:
    """The same of a question that has been posed.

    Parameters
    ----------
    task : Problem
        Objective, constraints and samples.
    counts : array of shape (K,)
        Training samples of each class, all above 0 and not all the same.
    chosen, within, bands
        As in `profile`.

    Returns
    -------
    LineProfile
    """
    way = Direction(np.zeros(task.n_classes), np.log(frequency(counts)))
    line = trace(task, task.neutral, way)
    tuned, worth = best_on(task, line, task.neutral, way)

    def mark(tau: float) -> Mark:
        return Mark(tau, task.worth(task.neutral.along(way, tau)).value)

    return LineProfile(
        task.objective_spec.name,
        *_thinned(line, within, bands),
        unadjusted=mark(0.0),
        la=mark(1.0),
        tuned=Mark(tuned, worth.value),
        chosen=None if chosen is None else _beside(task, way.g, chosen),
    )


def _beside(problem: Problem, line: Vector, strategy: Strategy) -> Mark:
    """The value of a strategy, at the τ whose offsets are nearest to its own."""
    along = line - line.mean()
    tau = float(along @ strategy.l / (along @ along))
    return Mark(tau, problem.worth(Adjustment(strategy.delta, strategy.l)).value)


def _thinned(line: Line, within: Interval, bands: int) -> tuple[Vector, Vector, Vector, int]:
    """τ between bands, the least and the highest value of each, and how many plateaus there are.

    Plateaus that are no wider than rounding hold no point that argmax sees.
    """
    kept = np.flatnonzero(wide_enough(line, within))
    values, starts = line.values[kept], line.breakpoints[kept[1:] - 1]  # where each but the first begins
    first = np.unique(np.linspace(0, len(kept), min(bands, len(kept)), endpoint=False).astype(np.int64))
    low, high = np.minimum.reduceat(values, first), np.maximum.reduceat(values, first)
    return starts[first[1:] - 1], low, high, len(kept)

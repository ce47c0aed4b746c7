"""`LadderDisplay`: what ways of increasing freedom reach on samples that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri.posthoc import LogitAdjuster
from capri.report.displays._drawing import Display, percent_axis
from capri.report.displays._posed import policy_of
from capri.report.style import AFTER, BEFORE, INK
from capri.sentences import called
from capri.validation import TUNED

Vector = NDArray[np.float64]
TITLES = {
    "τ = 1": "logit adjustment, τ = 1",
    "calibrated": "calibrated answer",
    "LA, tuned": "logit adjustment, tuned",
    TUNED: "as tuned",
}


@dataclass(eq=False)
class LadderDisplay(Display):
    """The objective out of fold of each way to decide, with 90 % intervals, from no freedom to all that was asked for.

    Parameters
    ----------
    objective : str
        What was tuned for.
    unadjusted : float
        Its value as the model was trained.
    rungs : sequence of str
        "τ = 1", "calibrated", "LA, tuned" and "tuned", those that there are.
    gains, low, high : ndarray of shape (n_rungs,)
        The improvement of each out of fold, and its 90 % interval.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.
    """

    objective: str
    unadjusted: float
    rungs: Sequence[str]
    gains: Vector
    low: Vector
    high: Vector

    size = (7.0, 2.6)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **how: Any) -> Self:
        """Of a fitted estimator, or a policy, from what it was judged by in tuning.

        Parameters
        ----------
        estimator : LogitAdjuster, CAPClassifierCV or Policy
            Tuned with ``bootstrap`` above 0.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        LadderDisplay
        """
        found = policy_of(estimator).validation
        if found is None or not found.ladder:
            raise InputError(
                "nothing was judged out of fold; tune with validation samples and {argument} above 0.",
                argument="bootstrap",
            )
        columns = np.array([found.ladder[rung] for rung in found.ladder], dtype=np.float64).T
        return cls(found.objective, found.before[found.objective], list(found.ladder), *columns).plot(ax, **how)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        scores: ArrayLike,
        *,
        objective: Any = "balanced",
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        ax: Any = None,
        how: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Of scores and labels, by tuning on them.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels of samples that the model was not trained on.
        scores : array-like of shape (n_samples, K)
            What the model gives to them.
        objective : name, Objective or function
            What to lower.
        class_counts : per class, optional
            Training samples of each class.
        ax : matplotlib axes, optional
            Where to draw.
        how : mapping, optional
            Of `plot`.
        **settings
            Of `LogitAdjuster`.

        Returns
        -------
        LadderDisplay
        """
        adjuster = LogitAdjuster(objective, **settings).fit(scores, y, class_counts=class_counts)
        return cls.from_estimator(adjuster, ax=ax, **(how or {}))

    @property
    def values(self) -> Vector:
        """The objective of each rung, (n_rungs,)."""
        return self.unadjusted - self.gains

    def _draw(self, axes: Any) -> None:
        axes.axvline(self.unadjusted, color=BEFORE, linestyle="--", linewidth=1)
        axes.plot(self.unadjusted, 0, "s", color=BEFORE, markersize=7)
        bounds = self.unadjusted - self.high, self.unadjusted - self.low
        for place, (rung, low, high, value) in enumerate(zip(self.rungs, *bounds, self.values, strict=True), start=1):
            colour = AFTER if rung == TUNED else INK
            axes.hlines(place, low, high, color=colour, linewidth=2)
            axes.plot(value, place, "o", color=colour, markersize=7)
        for place, value in enumerate([self.unadjusted, *self.values]):
            axes.annotate(f"{100 * value:.1f}", (value, place), (0, 6), textcoords="offset points", ha="center")
        names = ["as trained", *(TITLES.get(rung, rung) for rung in self.rungs)]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.7)
        axes.grid(axis="y", visible=False)
        percent_axis(axes.xaxis, f"{called(self.objective)} out of fold, with 90 % intervals")

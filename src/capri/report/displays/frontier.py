"""`FrontierDisplay`: the best of one objective at each price in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import clone

from capri.objectives import ObjectiveLike
from capri.posthoc import Frontier, frontier
from capri.report.displays._drawing import Display, legend_below, percent_axis
from capri.report.displays._posed import adjuster_of, posed
from capri.report.style import AFTER, BEFORE, GREEN, INK
from capri.sentences import called

LANDMARKS = {"unadjusted": ("as trained", BEFORE, "s"), "τ = 1": ("τ = 1", INK, "D"), "chosen": ("chosen", GREEN, "*")}


@dataclass(eq=False)
class FrontierDisplay(Display):
    """The curve of a `Frontier`: each point is a policy; beside it what it reaches on samples that did not tune.

    Parameters
    ----------
    frontier : Frontier
        What `capri.frontier` gives.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.
    """

    frontier: Frontier

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        against: ObjectiveLike = "plain",
        ax: Any = None,
        title: str | None = None,
        **known: Any,
    ) -> Self:
        """Of a fitted estimator's settings, on samples that the model was not trained on.

        Parameters
        ----------
        estimator : LogitAdjuster or CAPClassifierCV
            Its settings tune, for its objective.
        X : array-like
            What the estimator takes: scores, or features for `CAPClassifierCV`.
        y : array-like of shape (n_samples,)
            Labels.
        against : name, Objective or function
            What the objective is paid in.
        ax : matplotlib axes, optional
            Where to draw.
        title : str, optional
            Of the plot.
        **known
            `class_counts`, `points`, `held_out`, …, as in `capri.frontier`.

        Returns
        -------
        FrontierDisplay
        """
        policy, scores, positions = posed(estimator, X, y)
        adjuster = clone(adjuster_of(estimator)).set_params(classes=list(policy.classes))
        found = frontier(scores, policy.labels[positions], against=against, adjuster=adjuster, **known)
        return cls(found).plot(ax, title=title)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        scores: ArrayLike,
        *,
        objective: ObjectiveLike = "balanced",
        against: ObjectiveLike = "plain",
        ax: Any = None,
        title: str | None = None,
        **known: Any,
    ) -> Self:
        """Of scores and labels.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels of samples that the model was not trained on.
        scores : array-like of shape (n_samples, K)
            What the model gives to them.
        objective : name, Objective or function
            What to lower.
        against : name, Objective or function
            What it is paid in.
        ax : matplotlib axes, optional
            Where to draw.
        title : str, optional
            Of the plot.
        **known
            `class_counts`, `points`, `held_out`, settings of `LogitAdjuster`, …, as in `capri.frontier`.

        Returns
        -------
        FrontierDisplay
        """
        return cls(frontier(scores, y, objective, against, **known)).plot(ax, title=title)

    def _draw(self, axes: Any) -> None:
        found = self.frontier
        if found.held_out is not None:
            axes.plot(
                found.held_prices, found.held_values, "o--", color=AFTER, markersize=4, markerfacecolor="white",
                linewidth=1.2, label=found.held_out,
            )  # fmt: skip
        axes.plot(found.prices, found.values, "o-", color=AFTER, markersize=4, label="on the samples that tuned")
        for name, point in found.landmarks.items():
            label, colour, marker = LANDMARKS.get(name, (name, INK, "x"))
            held = point.held_value is not None and point.held_price is not None
            place = (point.held_price, point.held_value) if held else (point.price, point.value)
            axes.plot(*place, marker, color=colour, markersize=12 if marker == "*" else 8, label=label, zorder=3,
                      linestyle="none")  # fmt: skip
        percent_axis(axes.xaxis, f"price: {called(found.against)}")
        percent_axis(axes.yaxis, called(found.of))
        legend_below(axes, 3)

"""`LineDisplay`: the objective at every strength τ of logit adjustment, exactly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import AbsentClassWarning, InputError
from capri.classes import Classes, as_labels
from capri.objectives import ObjectiveLike
from capri.policy import to_logits
from capri.posthoc import LineProfile, profile
from capri.posthoc.account import shares_asked
from capri.report.displays._drawing import Display, legend_below, percent_axis
from capri.report.displays._posed import posed
from capri.report.style import AFTER, BEFORE, GREEN, GREY, INK
from capri.sentences import called
from capri.strategy import Strategy

MARKS = {
    "unadjusted": ("as trained", BEFORE, "s"),
    "τ = 1": ("τ = 1", INK, "D"),
    "LA, tuned": ("best τ", GREEN, "^"),
    "chosen": ("the policy (it may leave the line)", AFTER, "*"),
}


@dataclass(eq=False)
class LineDisplay(Display):
    """An objective along the line of logit adjustment, l = τ log π: the exact step function with its plateaus.

    Parameters
    ----------
    profile : LineProfile
        The curve and its marks: as trained, τ = 1, the best τ, and the policy.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.
    """

    profile: LineProfile

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        ax: Any = None,
        **how: Any,
    ) -> Self:
        """Of a fitted estimator, or a policy, on samples.

        Parameters
        ----------
        estimator : LogitAdjuster, CAPClassifierCV or Policy
            Its objective and constraints are asked for, in the class shares that it was tuned in; its own answer stands
            beside the line.
        X : array-like
            What the estimator takes: scores, or features for `CAPClassifierCV`.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts.
        class_counts : per class, optional
            Training samples of each class; by default the frequencies that the estimator was tuned with.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        LineDisplay
        """
        policy, scores, positions = posed(estimator, X, y)
        counts = class_counts if class_counts is not None else policy.attributes.get("freq")
        if counts is None:
            raise InputError("the line of logit adjustment needs {argument}.", argument="class_counts")
        return cls.from_predictions(
            policy.labels[positions],
            to_logits(scores, policy.scores, policy.floor),
            class_counts=counts,
            classes=policy.classes,
            objective=getattr(estimator, "objective", policy.objective),
            chosen=policy.strategy,
            constraints=policy.constraints,
            sample_weight=sample_weight,
            shares=shares_asked(policy),
            weights=policy.attributes.get("weights"),
            groups=getattr(estimator, "groups", None),
            ax=ax,
            **how,
        )

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        logits: ArrayLike,
        *,
        class_counts: ArrayLike | Mapping[Any, float],
        objective: ObjectiveLike = "balanced",
        classes: Any = None,
        chosen: Strategy | None = None,
        constraints: Any = (),
        ax: Any = None,
        title: str | None = None,
        **problem: Any,
    ) -> Self:
        """Of logits and labels.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        logits : array-like of shape (n_samples, K)
            Scores; of probabilities, their logarithms.
        class_counts : per class
            Training samples of each class.
        objective : name, Objective or function
            What to follow.
        classes : sequence of labels, optional
            The label of each column; by default those that occur, or 0 … K − 1.
        chosen : Strategy, optional
            An answer to show beside the line.
        constraints : sequence of "objective <= bound"
            What the best τ must keep to.
        ax : matplotlib axes, optional
            Where to draw.
        title : str, optional
            Of the plot.
        **problem
            `sample_weight`, `shares`, `weights`, `groups`, `absent`, as in `exact_line_search`.

        Returns
        -------
        LineDisplay
        """
        labels = as_labels(y)
        known = Classes.found(labels, np.shape(logits)[1], given=classes)
        aligned = {name: known.align(problem.pop(name, None), name) for name in ("weights", "groups")}
        counts = known.align(class_counts, "class_counts")
        assert counts is not None
        problem = {"absent": "ignore", "class_names": known.names, **aligned, **problem}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AbsentClassWarning)
            found = profile(
                logits, known.encode(labels), counts, objective, chosen=chosen, constraints=constraints, **problem
            )
        return cls(found).plot(ax, title=title)

    @property
    def span(self) -> tuple[float, float]:
        """The range of τ that holds all marks, with room beside them."""
        at = [mark.tau for mark in self.profile.marks.values()]
        low, high = min(at), max(at)
        return low - 0.35 * (high - low), high + 0.6 * (high - low)

    def _draw(self, axes: Any) -> None:
        found, (left, right) = self.profile, self.span
        edges = np.concatenate([[min(left, *found.tau[:1]) - 1], found.tau, [max(right, *found.tau[-1:]) + 1]])
        if not found.exact:
            axes.fill_between(
                edges, np.append(found.low, found.low[-1]), np.append(found.high, found.high[-1]),
                step="post", color=GREY, alpha=0.5, linewidth=0,
            )  # fmt: skip
        axes.stairs(found.low, edges, baseline=None, color=INK, linewidth=1.2)
        for name, mark in found.marks.items():
            label, colour, marker = MARKS[name]
            text = f"{label}: {100 * mark.value:.1f} %"
            size = 13 if marker == "*" else 8
            axes.plot(mark.tau, mark.value, marker, color=colour, markersize=size, label=text, zorder=3)
        axes.set_xlim(left, right)
        self._fit(axes, edges)
        axes.set_xlabel("strength τ of logit adjustment")
        percent_axis(axes.yaxis, called(found.objective))
        legend_below(axes, 2)

    def _fit(self, axes: Any, edges: NDArray[np.float64]) -> None:
        """The values that can be seen."""
        left, right = axes.get_xlim()
        seen = (edges[1:] > left) & (edges[:-1] < right)
        marks = [mark.value for mark in self.profile.marks.values()]
        low, high = min([*self.profile.low[seen], *marks]), max([*self.profile.high[seen], *marks])
        room = 0.06 * (high - low) or 0.01
        axes.set_ylim(low - room, high + room)

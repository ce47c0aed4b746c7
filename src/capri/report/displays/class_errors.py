"""`ClassErrorDisplay`: the error of each class, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import check_counts, check_sample_weight
from capri.errors import class_errors, class_totals
from capri.posthoc.views import wilson
from capri.report.displays._drawing import ABOVE, FEW, Display, class_axis, legend_above, percent_axis
from capri.report.displays._posed import encoded, posed
from capri.report.style import AFTER, BEFORE, GREY

Vector = NDArray[np.float64]
SIDE = 0.12  # by how much the two points of a class stand apart, so that their intervals do not hide each other


def _worth_of(y: NDArray[np.int64], n_classes: int, weight: ArrayLike | None) -> Vector:
    """How many equal samples those of each class are worth (K,): (Σw)² / Σw²."""
    if weight is None:
        return class_totals(y, n_classes)
    total, squares = (class_totals(y, n_classes, np.asarray(weight, dtype=np.float64) ** p) for p in (1, 2))
    return np.divide(total**2, squares, out=np.zeros(n_classes), where=squares > 0)


@dataclass(eq=False)
class ClassErrorDisplay(Display):
    """The error of each class before and after, from the most common class to the rarest or, without counts, from the
    worst to the best.

    Parameters
    ----------
    before, after : ndarray of shape (K,)
        Class errors; NaN for a class without samples.
    class_names : sequence of str
        Names.
    samples : ndarray of shape (K,), optional
        How many samples each error is of, or how many equal ones weighted samples are worth; they make 90 % intervals.
    class_counts : ndarray of shape (K,), optional
        Training samples of each class.
    labels : (str, str)
        What to call before and after.
    decided : ndarray of shape (K,), optional
        How many samples the error after is of, where some are left undecided.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.

    Examples
    --------
    >>> display = ClassErrorDisplay.from_predictions(["a", "a", "b", "b"], ["a", "a", "a", "b"], ["a", "b", "b", "b"])
    >>> display.before, display.after
    (array([0. , 0.5]), array([0.5, 0. ]))
    """

    before: Vector
    after: Vector
    class_names: Sequence[str]
    samples: Vector | None = None
    class_counts: Vector | None = None
    labels: tuple[str, str] = ("before", "after")
    decided: Vector | None = None

    pad = ABOVE

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
        """Of a fitted estimator, or a policy, on samples that it was not tuned on.

        Parameters
        ----------
        estimator : LogitAdjuster, CAPClassifierCV or Policy
            Decides after; without its offsets, before.
        X : array-like
            What the estimator takes: scores, or features for `CAPClassifierCV`.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts.
        class_counts : per class, optional
            Training samples of each class, to order the classes by.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        ClassErrorDisplay
        """
        policy, scores, positions = posed(estimator, X, y)
        labels = policy.labels
        return cls.from_predictions(
            labels[positions],
            labels[scores.argmax(axis=1)],
            policy.predict(scores),
            classes=policy.classes,
            sample_weight=sample_weight,
            class_counts=class_counts,
            ax=ax,
            **how,
        )

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        before: ArrayLike,
        after: ArrayLike,
        *,
        classes: Iterable[Any] | None = None,
        sample_weight: ArrayLike | None = None,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        labels: tuple[str, str] = ("before", "after"),
        ax: Any = None,
        **how: Any,
    ) -> Self:
        """Of two predictions for the same samples.

        Parameters
        ----------
        y, before, after : array-like of shape (n_samples,)
            Labels, and what was decided before and after; None leaves a sample undecided, and out of the errors.
        classes : sequence of labels, optional
            All of them; by default those that occur.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts.
        class_counts : per class, optional
            Training samples of each class, to order the classes by.
        labels : (str, str)
            What to call before and after.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        ClassErrorDisplay
        """
        known, truth, both = encoded(y, before, after, classes=classes)
        k, weight = len(known), check_sample_weight(sample_weight, len(truth))
        kept = [decided >= 0 for decided in both]
        some = [None if weight is None else weight[mask] for mask in kept]
        first, second = (class_errors(truth[m], d[m], k, w) for m, d, w in zip(kept, both, some, strict=True))
        counts = known.align(class_counts, "class_counts")
        counts = None if counts is None else check_counts(counts, k)
        worth = [_worth_of(truth[m], k, w) for m, w in zip(kept, some, strict=True)]
        decided = None if kept[1].all() else worth[1]
        return cls(first, second, known.names, worth[0], counts, labels, decided).plot(ax, **how)

    @property
    def order(self) -> NDArray[np.int64]:
        """Classes from left to right: the common before the rare, or the worst before tuning first."""
        by = np.nan_to_num(self.before, nan=-1.0) if self.class_counts is None else self.class_counts
        return np.argsort(-by, kind="stable")

    @property
    def intervals(self) -> tuple[tuple[Vector, Vector], tuple[Vector, Vector]] | None:
        """90 % intervals (low, high) before and after, by Wilson; None where nobody says how many samples there are."""
        if self.samples is None:
            return None
        after = self.samples if self.decided is None else self.decided
        return wilson(self.before, self.samples), wilson(self.after, after)

    def _draw(self, axes: Any) -> None:
        order, many = self.order, len(self.before) > FEW
        x, side = np.arange(len(order)), 0.0 if many else SIDE
        ends = [x - side, x + side], [self.before[order], self.after[order]]
        axes.plot(*ends, color=GREY, linewidth=1 if many else 2, alpha=0.7)
        each = (self.before, -side, BEFORE, "s", self.labels[0]), (self.after, side, AFTER, "o", self.labels[1])
        for which, (errors, shift, colour, marker, label) in enumerate(each):
            mean = np.nanmean(errors)
            if self.intervals is not None and not many:
                low, high = (bound[order] for bound in self.intervals[which])
                axes.vlines(x + shift, low, high, color=colour, linewidth=1.2, alpha=0.6)
            said = f"{label}, mean {100 * mean:.1f} %"
            if which and self.decided is not None:
                said += " of what is decided"
            axes.plot(x + shift, errors[order], marker, color=colour, markersize=3.5 if many else 6, label=said)
            axes.axhline(mean, color=colour, linestyle="--", linewidth=1)
        counts = None if self.class_counts is None else self.class_counts[order]
        class_axis(axes, [self.class_names[i] for i in order], counts, "training samples")
        axes.grid(axis="x", visible=False)
        percent_axis(axes.yaxis, "class error")
        axes.set_ylim(-0.03, 1.03)
        legend_above(axes, 2)

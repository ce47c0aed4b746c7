"""`ConfusionDifferenceDisplay`: where errors go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import check_sample_weight
from capri.posthoc.views import confusions
from capri.report.displays._drawing import Display, escaped
from capri.report.displays._posed import encoded, posed
from capri.report.style import AFTER, BEFORE

Matrix = NDArray[np.float64]
WRITTEN = 12  # rows up to which the figure of each cell is written into it
OTHER = "all others"


def _shares(matrix: Matrix) -> Matrix:
    """Of its rows."""
    totals = matrix.sum(axis=1, keepdims=True)
    return np.divide(matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)


@dataclass(eq=False)
class ConfusionDifferenceDisplay(Display):
    """What each class is taken for more often, or less often, than before.

    Of many classes those stand by themselves that are confused most; all others are one row and one column.

    Parameters
    ----------
    before, after : ndarray of shape (n_rows, n_rows)
        Samples by true and predicted class, or their weight.
    names : sequence of str
        What the rows and columns are.
    grouped : bool
        Whether the last row and column are all other classes.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.

    Examples
    --------
    >>> display = ConfusionDifferenceDisplay.from_predictions([0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1])
    >>> display.change
    array([[-0.5,  0.5],
           [-0.5,  0.5]])
    """

    before: Matrix
    after: Matrix
    names: Sequence[str]
    grouped: bool = False

    size = (6.4, 5.2)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike, *, sample_weight: ArrayLike | None = None, ax: Any = None, **how: Any
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
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        ConfusionDifferenceDisplay
        """
        policy, scores, positions = posed(estimator, X, y)
        labels = policy.labels
        return cls.from_predictions(
            labels[positions],
            labels[scores.argmax(axis=1)],
            policy.predict(scores),
            classes=policy.classes,
            sample_weight=sample_weight,
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
        ax: Any = None,
        **how: Any,
    ) -> Self:
        """Of two predictions for the same samples.

        Parameters
        ----------
        y, before, after : array-like of shape (n_samples,)
            Labels, and what was decided before and after; None leaves a sample undecided, and out of the matrix.
        classes : sequence of labels, optional
            All of them; by default those that occur.
        sample_weight : array-like of shape (n_samples,), optional
            How much each sample counts.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        ConfusionDifferenceDisplay
        """
        known, truth, (first, second) = encoded(y, before, after, classes=classes)
        weight = check_sample_weight(sample_weight, len(truth))
        weight = np.ones(len(truth)) if weight is None else weight
        found = confusions(truth, first, second, weight, len(known))
        names = [known.names[k] for k in found.classes] + ([] if found.complete else [OTHER])
        return cls(np.array(found.before), np.array(found.after), names, not found.complete).plot(ax, **how)

    @property
    def change(self) -> Matrix:
        """Share of a row that is decided so after, less that before, (n_rows, n_rows); NaN without samples."""
        return _shares(self.after) - _shares(self.before)

    def _draw(self, axes: Any) -> None:
        from matplotlib.colors import LinearSegmentedColormap

        change, k = 100 * self.change, len(self.names)
        hits = np.eye(k, dtype=bool)
        if self.grouped:
            hits[-1, -1] = False  # its samples may be taken for another of the others
        better = np.where(hits, change, -change)
        if self.grouped:
            better[-1, -1] = np.nan
        most = max(float(np.nanmax(np.abs(better), initial=0.0)), 1.0)
        colours = LinearSegmentedColormap.from_list("better", [BEFORE, "#ffffff", AFTER])
        axes.set_facecolor("#eeeeee")  # seen where there are no samples
        picture = axes.imshow(better, cmap=colours, vmin=-most, vmax=most)
        if k <= WRITTEN:
            for i, j in np.argwhere(np.abs(np.nan_to_num(change)) >= 0.5):
                dark = abs(better[i, j]) > 0.6 * most if np.isfinite(better[i, j]) else False
                text = f"{change[i, j]:+.0f}".replace("-", "−")
                axes.text(j, i, text, ha="center", va="center", fontsize=9, color="white" if dark else "#222222")
        names = [escaped(name) for name in self.names]
        small = {"fontsize": 9 if k <= WRITTEN else 7}
        axes.set_xticks(range(k), names, rotation=90, **small)
        axes.set_yticks(range(k), names, **small)
        axes.set_xlabel("decided as")
        axes.set_ylabel("true class")
        axes.grid(visible=False)
        bar = axes.figure.colorbar(picture, ax=axes, shrink=0.8)
        bar.set_ticks([-most, 0, most], labels=[f"worse by {most:.0f}", "as before", f"better by {most:.0f}"])
        bar.set_label("points of the class's samples")
        bar.outline.set_visible(False)

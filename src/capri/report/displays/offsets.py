"""`OffsetsDisplay`: the offset of each class against what is known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri.policy import Policy
from capri.posthoc import LogitAdjuster
from capri.posthoc.account import own_parts
from capri.report.displays._drawing import ABOVE, Display, escaped, legend_above
from capri.report.displays._posed import policy_of
from capri.report.style import AFTER, BEFORE, GREY

Vector = NDArray[np.float64]
NAMED = 12  # classes up to which each has its name beside it
FARTHEST = 3  # of more classes, those are named that are farthest from the map
ATTRIBUTES = {
    "freq": "class frequency",
    "diff": "difficulty: class error before tuning, smoothed",
    "weights": "importance at test time",
    "norm": "norm in the last layer",
    "noise": "share of wrong labels",
}


class Parts(NamedTuple):
    """What an offset is made of, l = mapped + residual, (K,) each; None where there is no map of attributes."""

    mapped: Vector | None
    residual: Vector | None


def offset_parts(policy: Policy) -> Parts:
    """What of each offset the map of attributes says, and what a class has of its own.

    Parameters
    ----------
    policy : Policy
        Tuned post-hoc.

    Returns
    -------
    Parts
        NaN for classes without validation samples.
    """
    l, weights = policy.strategy.l, policy.weights
    if policy.method not in ("cap", "la") or not weights.get("l"):
        return Parts(None, None)
    own = own_parts(policy)
    return Parts(l, np.zeros(len(l))) if own is None else Parts(l - own, own)


def _log_axis(axes: Any, span: float) -> None:
    """Shares on a logarithmic scale, in percent, with few enough ticks to be read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 500 else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


@dataclass(eq=False)
class OffsetsDisplay(Display):
    """The offset of each class against an attribute, with what the map of attributes says and what is the class's own.

    Parameters
    ----------
    offsets : ndarray of shape (K,)
        What is subtracted from the scores: a class with a low offset is decided for more often.
    attributes : mapping from names to ndarray of shape (K,)
        What is known of the classes.
    class_names : sequence of str
        Names.
    mapped, residual : ndarray of shape (K,), optional
        The two parts of the offsets.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.
    """

    offsets: Vector
    attributes: Mapping[str, Vector]
    class_names: Sequence[str]
    mapped: Vector | None = None
    residual: Vector | None = None

    pad = ABOVE

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **how: Any) -> Self:
        """Of a fitted estimator, or a policy.

        Parameters
        ----------
        estimator : LogitAdjuster, CAPClassifierCV or Policy
            Tuned post-hoc.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`: `attribute`, which one; by default frequency, or the first that is known.

        Returns
        -------
        OffsetsDisplay
        """
        policy = policy_of(estimator)
        policy.require_posthoc()
        attributes = {name: np.asarray(column, dtype=np.float64) for name, column in policy.attributes.items()}
        return cls(policy.strategy.l, attributes, policy.class_names, *offset_parts(policy)).plot(ax, **how)

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
        OffsetsDisplay
        """
        adjuster = LogitAdjuster(objective, **{"bootstrap": 0, **settings}).fit(scores, y, class_counts=class_counts)
        return cls.from_estimator(adjuster, ax=ax, **(how or {}))

    def _draw(self, axes: Any, attribute: str | None = None) -> None:
        name = next(iter(self.attributes), None) if attribute is None else attribute
        if name is not None and name not in self.attributes:
            known = ", ".join(self.attributes) or "none"
            raise InputError(f"attribute is {name!r}; those that this policy knows are: {known}.")
        x = np.arange(len(self.offsets), dtype=np.float64) if name is None else self.attributes[name]
        if self.mapped is not None:
            axes.vlines(x, self.mapped, self.offsets, color=GREY, linewidth=1, label="the class's own part")
            axes.plot(x, self.mapped, "s", color=BEFORE, markersize=4, label="by the map of attributes")
        axes.plot(x, self.offsets, "o", color=AFTER, markersize=5, label="offset")
        axes.axhline(0, color=GREY, linewidth=1)
        logarithmic = name == "freq" and x.min() > 0 and x.max() / x.min() > 10
        if logarithmic:
            _log_axis(axes, x.max() / x.min())
        for k in self._named():
            axes.annotate(escaped(self.class_names[k]), (x[k], self.offsets[k]), (5, 3), textcoords="offset points",
                          fontsize=8)  # fmt: skip
        label = "class" if name is None else ATTRIBUTES.get(name, escaped(name))
        axes.set_xlabel(f"{label} (%)" if logarithmic else label)
        axes.set_ylabel("offset, in units of the logits\n(lower: decided for more often)")
        if self.mapped is not None:
            legend_above(axes, 3)

    def _named(self) -> list[int]:
        """Classes whose names are written."""
        k = len(self.offsets)
        if k <= NAMED:
            return list(range(k))
        far = np.abs(self.offsets if self.residual is None else np.nan_to_num(self.residual))
        return np.argsort(-far, kind="stable")[:FARTHEST].tolist()

"""`SamplesDisplay`: how many validation samples tuning needs, by tuning on fewer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from capri._checks import InputError, Ints, check_counts, short
from capri.classes import Classes
from capri.objectives import ObjectiveLike, as_objective
from capri.policy import to_logits
from capri.posthoc import LogitAdjuster
from capri.report.displays._drawing import Display, legend_below, percent_axis
from capri.report.displays._posed import adjuster_of, posed
from capri.report.style import AFTER, BEFORE, GREEN
from capri.sampling import divide, share_sizes, shuffled
from capri.sentences import called
from capri.strategy import Strategy
from capri.study import METHODS, Method, Split, judge

Vector = NDArray[np.float64]
SIZES, LEAST = 5, 3  # how many sizes are tried unless told otherwise, and the smallest
REPEATS = 5
HELD = 0.5  # the share of each class that judges


@dataclass(frozen=True, eq=False)
class SamplesCurve:
    """An objective on samples that did not tune, by the number of those that did.

    Parameters
    ----------
    objective : str
        Its name.
    sizes : ndarray of shape (n_sizes,)
        Validation samples per class; a class that has fewer gives all.
    values : ndarray of shape (n_repeats, n_sizes)
        The objective after tuning on so many.
    unadjusted : ndarray of shape (n_repeats,)
        The objective as the model was trained, on the same samples.
    la : ndarray of shape (n_repeats,) or None
        Of logit adjustment with τ = 1, which needs no samples; None where frequencies are unknown.
    """

    objective: str
    sizes: Ints
    values: NDArray[np.float64]
    unadjusted: Vector
    la: Vector | None = None

    @property
    def mean(self) -> Vector:
        """Over repeats, (n_sizes,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def deviation(self) -> Vector:
        """Standard deviation over repeats, (n_sizes,); zeros of a single one."""
        return self.values.std(axis=0, ddof=1) if len(self.values) > 1 else np.zeros(len(self.sizes))


def samples_curve(
    adjuster: LogitAdjuster,
    X: ArrayLike,
    y: ArrayLike,
    *,
    class_counts: ArrayLike | Mapping[Any, float] | None = None,
    class_attributes: Any = None,
    sizes: Sequence[int] | None = None,
    repeats: int = REPEATS,
    seed: int = 0,
    on_progress: Callable[[], None] = lambda: None,
) -> SamplesCurve:
    """Tune on ever more validation samples per class, and judge each time on the same others.

    Half of each class is held out to judge, afresh in each repeat; larger sizes contain the smaller ones. That is
    ``repeats`` times ``len(sizes)`` tunings, without the judging out of fold of an ordinary fit.

    Parameters
    ----------
    adjuster : LogitAdjuster
        Fitted; its settings tune, its classes are those of the columns.
    X : array-like of shape (n_samples, K)
        Scores of samples that the model was not trained on.
    y : array-like of shape (n_samples,)
        Labels.
    class_counts, class_attributes : optional
        As in `LogitAdjuster.fit`.
    sizes : sequence of int, optional
        Samples per class to tune on; by default five, from 3 to all that are not held out.
    repeats : int
        How often to draw.
    seed : int
        Of the draws.
    on_progress : callable
        Called after each tuning.

    Returns
    -------
    SamplesCurve
    """
    policy, given, positions = posed(adjuster, X, y)
    scores, k = to_logits(given, policy.scores, policy.floor), len(policy.classes)
    classes = Classes.of(policy.classes)
    given_counts = classes.align(class_counts, "class_counts")
    counts = None if given_counts is None else check_counts(given_counts, k)
    context = {name: classes.align(getattr(adjuster, name), name) for name in ("weights", "groups")}
    held = share_sizes(np.bincount(positions, minlength=k), HELD)
    tried = _sizes(sizes, int((np.bincount(positions, minlength=k) - held).max()))
    if repeats < 1:
        raise InputError(f"repeats is {repeats}; give one or more.")
    shares = adjuster._shares(classes, counts, None)
    trial = clone(adjuster).set_params(bootstrap=0, absent="ignore", classes=list(range(k)), scores="logits")
    trial.set_params(target_shares="validation" if shares is None else shares, **context)

    def tune(split: Split, _: ObjectiveLike) -> Strategy:
        known = {"class_counts": counts, "class_attributes": class_attributes}
        return trial.fit(split.val_scores, split.val_y, **known).strategy_

    untuned = {"unadjusted": METHODS["unadjusted"], **({} if counts is None else {"la": METHODS["la1"]})}
    rows: list[dict[str | int, float]] = []
    for repeat in range(repeats):
        judging, tuning = divide(positions, held, np.random.default_rng((seed, repeat)))
        whole = Split(
            scores[tuning],
            positions[tuning],
            scores[judging],
            positions[judging],
            policy.class_names,
            train_counts=counts,
            weights=context["weights"],
            groups=context["groups"],
            absent="ignore",
            shares=shares,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few samples are the point
            row: dict[str | int, float] = {way: _judged(whole, adjuster, method) for way, method in untuned.items()}
            for size in tried:
                some = _first(whole.val_y, k, size, np.random.default_rng((seed, repeat, 1)))
                part = replace(whole, val_scores=whole.val_scores[some], val_y=whole.val_y[some])
                row[size] = _judged(part, adjuster, tune)
                on_progress()
        rows.append(row)
    columns = {way: np.array([row[way] for row in rows]) for way in rows[0]}
    values = np.column_stack([columns[size] for size in tried])
    return SamplesCurve(policy.objective, np.array(tried), values, columns["unadjusted"], columns.get("la"))


def _judged(split: Split, adjuster: LogitAdjuster, method: Method) -> float:
    """The adjuster's objective where a method has not tuned."""
    objective = as_objective(adjuster.objective)
    return judge(split, objective, method, beside=()).test[objective.name]


def _sizes(given: Sequence[int] | None, most: int) -> list[int]:
    """Sizes that can be tried, in order."""
    if given is None:
        return sorted({int(n) for n in np.rint(np.geomspace(min(LEAST, most), most, SIZES))})
    sizes = sorted(set(given)) if _are_numbers(given) else []
    if not sizes or sizes[0] < 1:
        raise InputError(f"sizes is {short(given)}; give numbers of samples per class, from 1 on.")
    return sizes


def _are_numbers(given: Any) -> bool:
    """Whether these are whole numbers in a row."""
    return np.ndim(given) == 1 and all(isinstance(n, int | np.integer) for n in given)


def _first(y: Ints, n_classes: int, size: int, rng: np.random.Generator) -> Ints:
    """So many samples of each class, or all; with the same seed, more contain fewer."""
    return np.concatenate([rows[:size] for rows in shuffled(y, n_classes, rng)])


@dataclass(eq=False)
class SamplesDisplay(Display):
    """How much validation tuning needs: the objective on other samples, by the number of those that tuned.

    Parameters
    ----------
    curve : SamplesCurve
        What `samples_curve` gives.

    Attributes
    ----------
    ax_, figure_
        Matplotlib's, after `plot`.
    """

    curve: SamplesCurve

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        class_attributes: Any = None,
        sizes: Sequence[int] | None = None,
        repeats: int = REPEATS,
        seed: int = 0,
        on_progress: Callable[[], None] = lambda: None,
        ax: Any = None,
        **how: Any,
    ) -> Self:
        """Of a fitted estimator's settings, on samples that the model was not trained on.

        Parameters
        ----------
        estimator : LogitAdjuster or CAPClassifierCV
            Its settings tune.
        X : array-like
            What the estimator takes: scores, or features for `CAPClassifierCV`.
        y : array-like of shape (n_samples,)
            Labels.
        class_counts, class_attributes, sizes, repeats, seed, on_progress
            As in `samples_curve`.
        ax : matplotlib axes, optional
            Where to draw.
        **how
            Of `plot`.

        Returns
        -------
        SamplesDisplay
        """
        policy, scores, positions = posed(estimator, X, y)
        curve = samples_curve(
            adjuster_of(estimator),
            scores,
            policy.labels[positions],
            class_counts=class_counts,
            class_attributes=class_attributes,
            sizes=sizes,
            repeats=repeats,
            seed=seed,
            on_progress=on_progress,
        )
        return cls(curve).plot(ax, **how)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        scores: ArrayLike,
        *,
        objective: ObjectiveLike = "balanced",
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        sizes: Sequence[int] | None = None,
        repeats: int = REPEATS,
        seed: int = 0,
        ax: Any = None,
        title: str | None = None,
        **settings: Any,
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
        class_counts : per class, optional
            Training samples of each class.
        sizes, repeats, seed
            As in `samples_curve`.
        ax : matplotlib axes, optional
            Where to draw.
        title : str, optional
            Of the plot.
        **settings
            Of `LogitAdjuster`.

        Returns
        -------
        SamplesDisplay
        """
        adjuster = LogitAdjuster(objective, **{"bootstrap": 0, **settings}).fit(scores, y, class_counts=class_counts)
        tried: dict[str, Any] = {"sizes": sizes, "repeats": repeats, "seed": seed}
        return cls.from_estimator(adjuster, scores, y, class_counts=class_counts, **tried, ax=ax, title=title)

    def _draw(self, axes: Any) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        curve = self.curve
        known = {"as trained": (curve.unadjusted, BEFORE, "--"), "logit adjustment, τ = 1": (curve.la, GREEN, "-.")}
        for label, (values, colour, line) in known.items():
            if values is not None:
                said = f"{label}: {100 * values.mean():.1f} %"
                axes.axhline(values.mean(), color=colour, linestyle=line, linewidth=1.5, label=said)
        mean, spread = curve.mean, curve.deviation
        axes.fill_between(curve.sizes, mean - spread, mean + spread, color=AFTER, alpha=0.2, linewidth=0)
        axes.plot(curve.sizes, mean, "o-", color=AFTER, label=f"tuned; ± deviation of {len(curve.values)} draws")
        axes.set_xscale("log")
        axes.xaxis.set(major_locator=FixedLocator(curve.sizes.tolist()), minor_locator=NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.set_xlabel("validation samples per class that tune")
        percent_axis(axes.yaxis, f"{called(curve.objective)} on others")
        legend_below(axes, 2)

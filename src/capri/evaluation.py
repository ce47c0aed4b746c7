"""Evaluation: objectives of predictions, of confusion matrices, and as scikit-learn scorers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, check_counts, check_names, short
from capri.blocks.source import Block, Source
from capri.blocks.survey import survey
from capri.blocks.tallies import confusions, unadjusted
from capri.classes import Classes, as_labels, check_one_kind
from capri.errors import Absent, confusion_matrix, resolve_absent
from capri.forms import ClassContext, on_confusion
from capri.objectives import Objective, ObjectiveLike, as_objective
from capri.shares import TargetShares, in_shares
from capri.shares import target_shares as world_shares

PerClass: TypeAlias = ArrayLike | Mapping[Any, Any] | None
STANDARD = ("plain", "balanced", "worst", "cvar:0.2", "quantile:0.2", "sdev")


def evaluate(
    y: ArrayLike | Source,
    predictions: ArrayLike | Deciding | None,
    classes: int | Iterable[Any] | None = None,
    objectives: Sequence[ObjectiveLike] = STANDARD,
    *,
    sample_weight: ArrayLike | None = None,
    absent: Absent = "error",
    class_names: Sequence[str] | None = None,
    weights: PerClass = None,
    groups: PerClass = None,
    class_counts: PerClass = None,
    target_shares: TargetShares = None,
) -> dict[str, float]:
    """Objectives of some predictions, by name.

    Parameters
    ----------
    y, predictions : array-like of shape (n_samples,)
        Labels of any kind: numbers or text; a prediction of None leaves the sample undecided. Or a source of row blocks
        (`capri.blocks`) and the policy that decides them, None for the highest score.
    classes : int or sequence of labels, optional
        How many classes there are, numbered from 0, or their labels. By default all labels that occur; those of the
        policy, or of the columns, where there is a source.
    objectives : sequence of names, objectives or functions
        What to report; see `capri.objective_names`.
    sample_weight : array-like of shape (n_samples,), optional
    absent : {"error", "ignore"}
        What to do about classes without samples.
    class_names : sequence of str, optional
        Names for ``err[name]`` and for messages, where the labels are numbers.
    weights, groups, class_counts : per class, optional
        What an objective may ask for: test-time importance, group labels, training samples. A mapping or a pandas
        Series is aligned by label.
    target_shares : {"train", "validation"} or per class, optional
        The class shares where the classifier will be used, for what depends on them (the plain error, F1, costs): those
        of `class_counts`, those of the samples (the default), or as given.

    Returns
    -------
    dict
        The value of each objective by its name. Where samples are left undecided, the objectives are of the others;
        "coverage" is their share, and "min_coverage" the least share of a class.

    Examples
    --------
    >>> evaluate(["cat", "cat", "dog", "dog"], ["cat", "dog", "dog", "dog"], objectives=["balanced", "err[cat]"])
    {'balanced': 0.25, 'err[cat]': 0.5}
    """
    covered: dict[str, float] = {}
    if isinstance(y, Source):
        known_classes, confusion, totals = _of_source(y, predictions, classes, sample_weight)
    else:
        labels, decided, weight, kept = _decided(y, predictions, sample_weight)
        known_classes = classes_among(y, decided, classes=classes)
        codes = known_classes.encode(labels), known_classes.encode(decided, "predictions")
        confusion = confusion_matrix(*codes, len(known_classes), weight)
        totals = None if kept is None else _totals(known_classes.encode(y), len(known_classes), sample_weight)
    if totals is not None:
        covered = coverage(confusion, totals)
    known: dict[str, Any] = {"weights": weights, "groups": groups, "class_counts": class_counts}
    known["class_names"] = class_names
    figures = evaluate_counts(confusion, known_classes, objectives, absent=absent, target_shares=target_shares, **known)
    return figures | covered


def coverage(confusion: NDArray[np.float64], totals: NDArray[np.float64]) -> dict[str, float]:
    """The share of the samples that is decided, and the least share of a class.

    Parameters
    ----------
    confusion : array of shape (K, K)
        Of what is decided, rows are true classes.
    totals : array of shape (K,)
        All samples of each class.

    Returns
    -------
    dict
        "coverage" and "min_coverage".
    """
    rows, here = confusion.sum(axis=1), totals > 0
    return {"coverage": float(rows.sum() / totals.sum()), "min_coverage": float((rows[here] / totals[here]).min())}


def _decided(y: Any, predictions: Any, weight: Any) -> tuple[Any, Any, Any, NDArray[np.bool_] | None]:
    """Labels, decisions and weights of what is decided, and which samples these are; None where all are."""
    given = np.asarray(predictions, dtype=object) if isinstance(predictions, list) else predictions
    if not (isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1):
        return y, predictions, weight, None
    kept = np.array([decision is not None for decision in given], dtype=bool)
    if kept.all():
        return y, predictions, weight, None
    if not kept.any():
        raise InputError("predictions leaves every sample undecided; there is nothing to evaluate.")
    if len(given) != len(y):
        raise InputError(f"predictions has {len(given)} entries for {len(y)} labels; give one per sample.")
    labels = np.asarray(y)[kept]
    return labels, given[kept].tolist(), None if weight is None else np.asarray(weight)[kept], kept


def _totals(codes: Ints, n_classes: int, weight: Any) -> NDArray[np.float64]:
    return np.bincount(codes, None if weight is None else np.asarray(weight, float), n_classes).astype(np.float64)


def evaluate_counts(
    confusion: NDArray[np.float64],
    classes: Classes,
    objectives: Sequence[ObjectiveLike] = STANDARD,
    *,
    absent: Absent = "error",
    class_names: Sequence[str] | None = None,
    target_shares: TargetShares = None,
    **known: PerClass,
) -> dict[str, float]:
    """Objectives of the counts (or weights) of each label and prediction, in the shares of the world, by name."""
    names = check_names(classes.names if class_names is None else class_names, len(classes))
    aligned = {name: classes.align(value, name) for name, value in known.items()}
    counts = aligned.get("class_counts")
    counts = None if counts is None else check_counts(counts, len(names), name="class_counts")
    shares = world_shares(target_shares, classes, counts)
    confusion = in_shares(confusion.T, confusion.sum(axis=1), shares).T
    return evaluate_confusion(confusion, objectives, absent=absent, class_names=names, **aligned)


class Deciding(Protocol):
    """What decides blocks of a source, as a policy does."""

    classes: Any

    def decide(self, block: Block) -> Ints:
        """The columns decided on."""


def _of_source(
    source: Source, policy: Any, classes: int | Iterable[Any] | None, sample_weight: ArrayLike | None
) -> tuple[Classes, NDArray[np.float64], NDArray[np.float64] | None]:
    """The classes, the confusion matrix of a policy or, without one, of the highest scores; and all samples of each
    class, where some are left undecided."""
    if sample_weight is not None:
        raise InputError("sample_weight cannot be given beside a source of row blocks, where each row counts once.")
    if policy is not None and not hasattr(policy, "decide"):
        raise InputError(f"predictions is {short(policy)}; beside a source of row blocks give a Policy, or None.")
    if classes is None and policy is None:
        found = survey(source).classes(source.n_classes, columns=source.columns)
    elif classes is None:
        found = Classes.of(policy.classes)
    else:
        found = Classes.of(range(classes) if isinstance(classes, int | np.integer) else classes)
    if len(found) != source.n_classes:
        raise InputError(f"{source.title} has {source.n_classes} score columns, and there are {len(found)} classes.")
    columns = {label: k for k, label in enumerate(found.labels.tolist())}
    rule = unadjusted if policy is None else policy.decide
    every, confusion = confusions(source.arranged(found), [unadjusted, rule], columns)
    totals = every.sum(axis=1)
    return found, confusion, None if confusion.sum() == totals.sum() else totals


def classes_among(y: ArrayLike, *predictions: ArrayLike, classes: int | Iterable[Any] | None = None) -> Classes:
    """The classes that are given (a number of them, or labels), or else all that occur among labels and predictions."""
    if classes is not None:
        return Classes.of(range(classes) if isinstance(classes, int | np.integer) else classes)
    every = [as_labels(y), *(as_labels(given, "predictions") for given in predictions)]
    for labels, name in zip(every, ("y", *["predictions"] * len(predictions)), strict=True):
        check_one_kind(labels, name)
    for given in every[1:]:
        if (given.dtype.kind in "iufb") != (every[0].dtype.kind in "iufb"):
            raise InputError(
                f"y holds labels such as {every[0][0]!r}, predictions such as {given[0]!r}; give both in one kind."
            )
    return Classes.of(np.unique(np.concatenate(every)))


def evaluate_confusion(
    confusion: NDArray[np.float64],
    objectives: Sequence[ObjectiveLike] = STANDARD,
    *,
    absent: Absent = "error",
    class_names: Sequence[str] | None = None,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    class_counts: ArrayLike | None = None,
) -> dict[str, float]:
    """Objectives of a confusion matrix (rows are true classes), by name."""
    if np.ndim(confusion) != 2 or confusion.shape[0] != confusion.shape[1]:
        raise InputError(f"confusion must be square, one row and column per class; got shape {np.shape(confusion)}.")
    totals = confusion.sum(axis=1)
    resolve_absent(totals, absent, class_names)
    known = {"weights": weights, "groups": groups, "class_counts": class_counts}
    context = ClassContext.of(totals, class_names=class_names, **known)
    return {name: on_confusion(given.on(context), confusion) for name, given in _by_name(objectives).items()}


def _by_name(objectives: Sequence[ObjectiveLike]) -> dict[str, Objective]:
    """Each of them once; refused where two that are not the same share a name."""
    if isinstance(objectives, str) or not isinstance(objectives, Iterable):
        raise InputError(f"objectives is {short(objectives)}; give a list of them, such as ['balanced'].")
    named: dict[str, tuple[ObjectiveLike, Objective]] = {}
    for given in objectives:
        objective = as_objective(given)
        first, other = named.setdefault(objective.name, (given, objective))
        if first is not given and not (objective.goes_by_name and other.goes_by_name):
            raise InputError(f"two different objectives are called {objective.name!r}; give them names of their own.")
    return {name: objective for name, (_, objective) in named.items()}


@dataclass(frozen=True)
class _Scorer:
    """Minus an objective of an estimator's predictions."""

    objective: Objective
    absent: Absent
    known: Mapping[str, Any]

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        values = evaluate(
            y,
            estimator.predict(X),
            estimator.classes_,
            [self.objective],
            sample_weight=sample_weight,
            absent=self.absent,
            **self.known,
        )
        return -values[self.objective.name]


def make_scorer(
    objective: ObjectiveLike,
    *,
    absent: Absent = "error",
    weights: PerClass = None,
    groups: PerClass = None,
    class_counts: PerClass = None,
) -> Callable[..., float]:
    """A scikit-learn scorer: minus the objective of ``estimator.predict``, so that greater is better.

    Parameters
    ----------
    objective : name, objective or function
        What is to be lowered.
    absent, weights, groups, class_counts
        As in `evaluate`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sample_weight=None)``.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> model = DummyClassifier(strategy="constant", constant=0).fit([[0], [1]], [0, 1])
    >>> make_scorer("balanced")(model, [[0], [1]], [0, 1])
    -0.5
    """
    known = {"weights": weights, "groups": groups, "class_counts": class_counts}
    return _Scorer(as_objective(objective), absent, known)

"""Forms: the algebra of objectives on class errors.

Nearly everything that people ask of class errors e = (Err_1, …, Err_K) has one *form*,

    R(e) = linear · e  +  deviation · sdev(e)  +  ranks · sort↓(ē),

where ē are the errors of groups of classes (of the classes themselves, unless grouped). Plain, balanced and weighted
error are linear; quantile and CVaR weigh ranks; worst group ranks groups; sums and multiples of forms are forms. The
form gives the value, the gradient and, in `capri.posthoc`, the exact search. What has no form is a function of the
class errors, or of the confusion matrix (macro-F1, costs), and is searched through the same door, more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_counts, check_names

Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassContext:
    """What an objective may know of the classes, besides their errors.

    shares: (K,) share of each class in the evaluation set (for the plain error).
    weights: (K,) test-time importance ω_test, any positive scale. groups: (K,) label of the group of each class.
    train_counts: (K,) training samples, for the many/medium/few-shot splits. class_names: for ``err[name]``.
    indices: (K,) what ``err[index]`` counts by, where absent classes were left out; 0 … K − 1 unless given.
    """

    shares: Vector
    weights: Vector | None = None
    groups: NDArray[Any] | None = None
    train_counts: Vector | None = None
    class_names: tuple[str, ...] | None = None
    indices: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        totals: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        train_counts: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
    ) -> ClassContext:
        """From the samples per class of the evaluation set, with checks."""
        shares = check_counts(totals, name="totals")
        k = len(shares)
        if groups is not None and np.shape(groups) != (k,):
            raise InputError(f"groups has shape {np.shape(groups)} for {k} classes; give one label per class.")
        return cls(
            shares=shares / shares.sum(),
            weights=None if weights is None else check_counts(weights, k, name="weights"),
            groups=None if groups is None else np.asarray(groups),
            train_counts=None if train_counts is None else check_counts(train_counts, k, name="train_counts"),
            class_names=None if class_names is None else check_names(class_names, k),
        )

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.shares)

    def restrict(self, present: NDArray[np.bool_]) -> ClassContext:
        """The same, of some classes only."""
        if present.all():
            return self

        def take(values: Any) -> Any:
            return None if values is None else values[present]

        names = None if self.class_names is None else tuple(np.asarray(self.class_names)[present].tolist())
        return ClassContext(
            self.shares[present] / self.shares[present].sum(),
            take(self.weights),
            take(self.groups),
            take(self.train_counts),
            names,
            np.flatnonzero(present) if self.indices is None else self.indices[present],
        )


@dataclass(frozen=True, eq=False)
class Form:
    """R(e) = linear·e + deviation·sdev(e) + ranks·sort↓(ē); `smooth_ranks` replace `ranks` in the smooth twin."""

    linear: Vector
    deviation: float = 0.0
    ranks: Vector = field(default_factory=lambda: np.zeros(0))
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    smooth_ranks: Vector | None = None

    @property
    def ranked(self) -> bool:
        """Does the value depend on the order of the errors?"""
        return len(self.ranks) > 0

    def group_errors(self, errors: Vector) -> Vector:
        """ē: mean error of the classes of each group."""
        return np.asarray(np.bincount(self.groups, weights=errors) / np.bincount(self.groups))

    def __call__(self, errors: Vector) -> float:
        """The objective itself."""
        return self._value(errors, self.ranks)

    def smooth(self, errors: Vector) -> tuple[float, Vector]:
        """Value and gradient ∂R/∂e of the smooth twin."""
        ranks = self.ranks if self.smooth_ranks is None else self.smooth_ranks
        gradient = self.linear.copy()
        if self.deviation:
            centred = errors - errors.mean()
            spread = math.sqrt(float(np.mean(centred**2)))
            if spread > 1e-12:  # of equal errors rounding would decide: no direction is better
                gradient += self.deviation * centred / (len(errors) * spread)
        if self.ranked:
            order = np.argsort(-self.group_errors(errors), kind="stable")
            by_group = np.empty(len(order))
            by_group[order] = ranks
            gradient += by_group[self.groups] / np.bincount(self.groups)[self.groups]
        return self._value(errors, ranks), gradient

    def _value(self, errors: Vector, ranks: Vector) -> float:
        value = float(self.linear @ errors)
        if self.deviation:
            value += self.deviation * float(np.std(errors))
        if len(ranks):
            value += float(ranks @ -np.sort(-self.group_errors(errors)))
        return value

    def __mul__(self, factor: float) -> Form:
        return replace(
            self,
            linear=factor * self.linear,
            deviation=factor * self.deviation,
            ranks=factor * self.ranks,
            smooth_ranks=None if self.smooth_ranks is None else factor * self.smooth_ranks,
        )

    def __add__(self, other: Form) -> Form:
        if self.ranked and other.ranked and not np.array_equal(self.groups, other.groups):
            raise _IncompatibleForms
        first, second = (self, other) if self.ranked else (other, self)
        ranks, smooth = first.ranks, first.smooth_ranks
        if second.ranked:
            if smooth is not None or second.smooth_ranks is not None:
                smooth = (ranks if smooth is None else smooth) + (
                    second.ranks if second.smooth_ranks is None else second.smooth_ranks
                )
            ranks = ranks + second.ranks
        return Form(self.linear + other.linear, self.deviation + other.deviation, ranks, first.groups, smooth)


class _IncompatibleForms(Exception):
    """Two forms rank different groups: their sum is not a form."""


@dataclass(frozen=True)
class ErrorFunction:
    """An objective without a form: any function of the class errors; its gradient is taken numerically."""

    function: Callable[[Vector], float]

    def __call__(self, errors: Vector) -> float:
        """The objective itself."""
        return float(self.function(errors))

    def smooth(self, errors: Vector, step: float = 1e-5) -> tuple[float, Vector]:
        """Value and central-difference gradient."""
        gradient = np.empty(len(errors))
        for k in range(len(errors)):
            up, down = errors.copy(), errors.copy()
            up[k] += step
            down[k] -= step
            gradient[k] = (self(up) - self(down)) / (2 * step)
        return self(errors), gradient


@dataclass(frozen=True)
class ConfusionFunction:
    """An objective on the whole confusion matrix (counts, rows are true classes), to be lowered."""

    function: Callable[[NDArray[np.float64]], float]

    def __call__(self, confusion: NDArray[np.float64]) -> float:
        """The objective itself."""
        return float(self.function(confusion))


Evaluator: TypeAlias = Form | ErrorFunction | ConfusionFunction


def scale(factor: float, evaluator: Evaluator) -> Evaluator:
    """A multiple of an objective; a form stays a form."""
    if isinstance(evaluator, Form):
        return evaluator * factor
    return type(evaluator)(lambda e: factor * evaluator(e))


def add(first: Evaluator, second: Evaluator) -> Evaluator:
    """The sum of two objectives; a form if both are and rank the same groups."""
    if isinstance(first, ConfusionFunction) or isinstance(second, ConfusionFunction):
        return ConfusionFunction(lambda m: _on_confusion(first, m) + _on_confusion(second, m))
    if isinstance(first, Form) and isinstance(second, Form):
        try:
            return first + second
        except _IncompatibleForms:
            pass
    return ErrorFunction(lambda e: first(e) + second(e))


def _on_confusion(evaluator: Evaluator, confusion: NDArray[np.float64]) -> float:
    if isinstance(evaluator, ConfusionFunction):
        return evaluator(confusion)
    totals = confusion.sum(axis=1)
    present = totals > 0
    return evaluator(1 - np.diag(confusion)[present] / totals[present])

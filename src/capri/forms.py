"""Forms: the algebra of objectives on class errors.

Nearly everything that people ask of class errors e = (Err_1, …, Err_K) has one *form*,

    R(e) = linear · e  +  deviation · sdev(e)  +  geometric · (1 − Π_k (1 − e_k)^(1/K))  +  ranks · sort↓(ē),

where ē are the errors of groups of classes (of the classes themselves, unless grouped). Plain, balanced and weighted
error are linear; quantile and CVaR weigh ranks; worst group ranks groups; sums and multiples of forms are forms. The
form gives the value, the gradient and, in `capri.posthoc`, the exact search. Costs, F1 and precision have a form on the
confusion matrix; κ and Matthews' correlation are functions of its margins. What has no form is a function of the class
errors or of the confusion matrix, and is searched through the same door, more slowly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, as_array, check_counts, check_names, short

Vector: TypeAlias = NDArray[np.float64]
ROUNDING = 1e-12  # of recalls, and of shares of the samples
ROUND_OFF = 0.02  # of the least of several qualities in its smooth twin
LIFT = 0.01  # of recalls in the smooth twin of their geometric mean, whose gradient is infinite at a recall of 0


def unit(size: int, at: int, length: float = 1.0) -> Vector:
    """(size,) zeros, but for one place."""
    vector = np.zeros(size)
    vector[at] = length
    return vector


@dataclass(frozen=True, eq=False)
class ClassContext:
    """What an objective may know of the classes, besides their errors.

    shares: (K,) share of each class in the evaluation set (for the plain error). total: its number of samples.
    class_names, index: (K,) for ``err[name]`` and ``err[3]``. weights: (K,) test-time importance ω_test, any positive
    scale. groups: (K,) label of the group of each class. class_counts: (K,) training samples, for the shot splits.
    """

    shares: Vector
    total: float
    class_names: tuple[str, ...]
    index: NDArray[np.int64]
    weights: Vector | None = None
    groups: NDArray[Any] | None = None
    class_counts: Vector | None = None

    @classmethod
    def of(
        cls,
        totals: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        class_counts: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
    ) -> ClassContext:
        """From the samples per class of the evaluation set, with checks."""
        counts = check_counts(totals, name="totals")
        k = len(counts)
        if groups is not None and np.shape(groups) != (k,):
            raise InputError(f"groups has shape {np.shape(groups)} for {k} classes; give one label per class.")
        return cls(
            shares=counts / counts.sum(),
            total=float(counts.sum()),
            class_names=check_names(class_names, k),
            index=np.arange(k),
            weights=None if weights is None else check_counts(weights, k, name="weights"),
            groups=None if groups is None else as_array(groups, "groups", "hold one label per class"),
            class_counts=None if class_counts is None else check_counts(class_counts, k, name="class_counts"),
        )

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.shares)

    def with_totals(self, totals: ArrayLike) -> ClassContext:
        """The same classes on other samples."""
        counts = check_counts(totals, self.n_classes, name="totals")
        return replace(self, shares=counts / counts.sum(), total=float(counts.sum()))

    def present(self) -> ClassContext:
        """The same, of the classes that have samples."""
        here = self.shares > 0
        if here.all():
            return self
        per_class = {"shares", "index", "weights", "groups", "class_counts"}
        taken = {name: value[here] for name in per_class if (value := getattr(self, name)) is not None}
        return replace(self, class_names=tuple(n for n, h in zip(self.class_names, here, strict=True) if h), **taken)


@dataclass(frozen=True, eq=False)
class Form:
    """R(e) = linear·e + deviation·sdev(e) + geometric·(1 − geometric mean of 1 − e) + ranks·sort↓(ē).

    In the smooth twin `smooth_ranks` replace `ranks`, and recalls are lifted before their geometric mean is taken.
    """

    linear: Vector
    deviation: float = 0.0
    ranks: Vector = field(default_factory=lambda: np.zeros(0))
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    smooth_ranks: Vector | None = None
    geometric: float = 0.0

    @property
    def is_linear(self) -> bool:
        """Is the value a weighted sum of the class errors?"""
        return not (self.deviation or self.geometric or self.ranked)

    @property
    def rises(self) -> bool:
        """Does the value never fall where an error rises?"""
        falls = self.deviation != 0 or self.geometric < 0 or self.linear.min(initial=0.0) < 0
        return not falls and self.ranks.min(initial=0.0) >= 0

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
        if self.geometric:
            lifted = np.maximum(1 - errors, 0.0) + LIFT
            gradient += self.geometric * geometric_mean(lifted) / (len(errors) * lifted)
        if self.ranked:
            order = np.argsort(-self.group_errors(errors), kind="stable")
            by_group = np.empty(len(order))
            by_group[order] = ranks
            gradient += by_group[self.groups] / np.bincount(self.groups)[self.groups]
        return self._value(errors, ranks, LIFT), gradient

    def _value(self, errors: Vector, ranks: Vector, lift: float = 0.0) -> float:
        value = float(self.linear @ errors)
        if self.deviation:
            value += self.deviation * float(np.std(errors))
        if self.geometric:
            value += self.geometric * (1 + lift - geometric_mean(np.maximum(1 - errors, 0.0) + lift))
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
            geometric=factor * self.geometric,
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
        deviation, geometric = self.deviation + other.deviation, self.geometric + other.geometric
        return Form(self.linear + other.linear, deviation, ranks, first.groups, smooth, geometric)


def geometric_mean(recalls: Vector) -> float:
    """Π_k r_k^(1/K); 0 where a recall is."""
    return float(np.exp(np.log(recalls).mean())) if recalls.min() > ROUNDING else 0.0


class _IncompatibleForms(Exception):
    """Two forms rank different groups: their sum is not a form."""


def returned(value: Any, name: str) -> float:
    """What a function of the user's returned, which a search can only compare if it is a number."""
    value = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    try:
        if isinstance(value, str | bytes | bytearray):  # float would read "0.5"
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"objective {name!r} returned {short(value)}; it must return a number.") from None
    if math.isnan(number):
        raise InputError(
            f"objective {name!r} returned nan; it must return a number for any errors, classes that are always or "
            "never right among them."
        )
    return number


@dataclass(frozen=True)
class ErrorFunction:
    """An objective without a form: any function of the class errors; its gradient is taken numerically."""

    function: Callable[[Vector], float]
    name: str = "sum"

    def __call__(self, errors: Vector) -> float:
        """The objective itself."""
        return returned(self.function(errors.copy()), self.name)  # it may do with them as it likes

    def smooth(self, errors: Vector, step: float = 1e-5) -> tuple[float, Vector]:
        """Value and central-difference gradient, of errors between 0 and 1: a root may have no value beyond."""
        gradient = np.empty(len(errors))
        for k in range(len(errors)):
            up, down = errors.copy(), errors.copy()
            up[k], down[k] = min(errors[k] + step, 1.0), max(errors[k] - step, 0.0)
            gradient[k] = (self(up) - self(down)) / (up[k] - down[k])
        return self(errors), gradient


@dataclass(frozen=True, eq=False)
class ConfusionForm:
    """R(M) = constant + Σ_ij costs_ij M_ij + Σ_k f1_k F1_k(M) + Σ_k precision_k Precision_k(M), M in counts."""

    costs: NDArray[np.float64]
    f1: Vector
    precision: Vector
    constant: float = 0.0

    @classmethod
    def of(
        cls,
        n_classes: int,
        *,
        costs: NDArray[np.float64] | None = None,
        f1: Vector | None = None,
        precision: Vector | None = None,
        constant: float = 0.0,
    ) -> ConfusionForm:
        """From the coefficients that are not 0."""
        return cls(
            np.zeros((n_classes, n_classes)) if costs is None else costs,
            np.zeros(n_classes) if f1 is None else f1,
            np.zeros(n_classes) if precision is None else precision,
            constant,
        )

    def __call__(self, confusion: NDArray[np.float64]) -> float:
        """The objective itself."""
        value = self.of_margins(np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0))
        return value + float((self.costs * confusion).sum())

    def of_margins(self, hits: Vector, rows: Vector, columns: Vector) -> float:
        """The value without costs, of (K,) correct, true and predicted samples of each class."""
        scores = self.f1 @ _f1(hits, rows, columns) + self.precision @ _precision(hits, columns)
        return self.constant + float(scores)

    def smooth(self, hits: Vector, rows: Vector, columns: Vector) -> tuple[float, Vector, Vector]:
        """The value without costs, of the diagonal, row and column sums, and its derivatives by hits and columns."""
        both, column = np.maximum(rows + columns, ROUNDING), np.maximum(columns, ROUNDING * rows.sum())
        f1, precision = 2 * hits / both, hits / column
        value = self.constant + float(self.f1 @ f1 + self.precision @ precision)
        by_hits = 2 * self.f1 / both + self.precision / column
        return value, by_hits, -(self.f1 * f1 / both + self.precision * precision / column)

    def __mul__(self, factor: float) -> ConfusionForm:
        return ConfusionForm(factor * self.costs, factor * self.f1, factor * self.precision, factor * self.constant)

    def __add__(self, other: ConfusionForm) -> ConfusionForm:
        return ConfusionForm(
            self.costs + other.costs,
            self.f1 + other.f1,
            self.precision + other.precision,
            self.constant + other.constant,
        )


def f1_scores(confusion: NDArray[np.float64]) -> Vector:
    """F1 of each class; 0 for a class that neither occurs nor is predicted."""
    return _f1(np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0))


def _f1(hits: Vector, rows: Vector, columns: Vector) -> Vector:
    both = columns + rows
    return np.divide(2 * hits, both, out=np.zeros(len(both)), where=both > 0)


def precision_scores(confusion: NDArray[np.float64]) -> Vector:
    """Precision of each class; 0 for a class that is never predicted."""
    return _precision(np.diag(confusion), confusion.sum(axis=0))


def _precision(hits: Vector, columns: Vector) -> Vector:
    return np.divide(hits, columns, out=np.zeros(len(columns)), where=columns > 0)


class Moments(NamedTuple):
    """Sums over the margins of a confusion matrix, in shares of its samples; numbers, or arrays along a line.

    hits: Σ_k M_kk. chance: Σ_k rows_k columns_k. decided: Σ_k columns_k². true: Σ_k rows_k².
    """

    hits: Any
    chance: Any
    decided: Any
    true: Any


@dataclass(frozen=True)
class MarginFunction:
    """An objective on the diagonal, the row sums and the column sums of the confusion matrix, by their `Moments`.

    Along a line the moments change in O(1) whatever K, and `function` takes those of all plateaus at once, as arrays.
    """

    function: Callable[[Moments], Any]

    def __call__(self, confusion: NDArray[np.float64]) -> float:
        """The objective itself."""
        return self.of_margins(np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0))

    def of_margins(self, hits: Vector, rows: Vector, columns: Vector) -> float:
        """The objective, of (K,) correct, true and predicted samples of each class."""
        return float(self.of_sums((hits.sum(), rows @ columns, columns @ columns), rows))

    def smooth(self, hits: Vector, rows: Vector, columns: Vector) -> tuple[float, Vector, Vector]:
        """Value and derivatives by hits and columns; those by the three sums are taken numerically."""
        sums = np.array([hits.sum(), rows @ columns, columns @ columns])
        steps = 1e-5 * np.diag(rows.sum() ** np.array([1, 2, 2]))
        slopes = [(self.of_sums(sums + h, rows) - self.of_sums(sums - h, rows)) / (2 * h.sum()) for h in steps]
        value = float(self.of_sums(sums, rows))
        return value, np.full(len(hits), slopes[0]), slopes[1] * rows + 2 * slopes[2] * columns

    def of_sums(self, sums: Iterable[Any], rows: Vector) -> Any:
        """The objective, of Σ hits, rows·columns and columns·columns in counts: numbers, or arrays along a line."""
        (hits, chance, decided), n = sums, rows.sum()
        return self.function(Moments(hits / n, chance / n**2, decided / n**2, rows @ rows / n**2))


@dataclass(frozen=True, eq=False)
class LeastForm:
    """1 − the least precision or F1 among groups of classes, each counted as one: a class by itself is a group, too.

    groups: (K,) the group of each class, from 0, or −1 for classes that are in none.
    """

    quality: Literal["precision", "f1"]
    groups: NDArray[np.int64]

    def __call__(self, confusion: NDArray[np.float64]) -> float:
        """The objective itself."""
        return self.of_margins(np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0))

    def summed(self, margin: Vector) -> Vector:
        """A margin (K,) of the confusion matrix, by group."""
        inside = self.groups >= 0
        size = int(self.groups.max()) + 1
        return np.bincount(self.groups[inside], margin[inside], size).astype(np.float64, copy=False)

    def of_margins(self, hits: Vector, rows: Vector, columns: Vector) -> float:
        """The objective, of (K,) correct, true and predicted samples of each class."""
        hits, rows, columns = map(self.summed, (hits, rows, columns))
        scores = _precision(hits, columns) if self.quality == "precision" else _f1(hits, rows, columns)
        return float(1 - scores.min())

    def smooth(self, hits: Vector, rows: Vector, columns: Vector) -> tuple[float, Vector, Vector]:
        """A maximum that is rounded off, and its derivatives by hits and columns."""
        h, r, c = map(self.summed, (hits, rows, columns))
        double = self.quality == "f1"
        whole = np.maximum((r + c) / 2 if double else c, ROUNDING * rows.sum())
        lack = (1 - h / whole) / ROUND_OFF
        top = lack.max()
        shares = np.exp(lack - top)
        value = ROUND_OFF * (top + np.log(shares.sum()))
        shares /= shares.sum()
        slopes = np.append(-shares / whole, 0.0), np.append(shares * h / whole**2 * (0.5 if double else 1.0), 0.0)
        return float(value), slopes[0][self.groups], slopes[1][self.groups]  # −1 is the zero at the end


@dataclass(frozen=True)
class ConfusionFunction:
    """An objective on the whole confusion matrix (counts, rows are true classes), to be lowered."""

    function: Callable[[NDArray[np.float64]], float]
    name: str = "sum"

    def __call__(self, confusion: NDArray[np.float64]) -> float:
        """The objective itself."""
        return returned(self.function(confusion.copy()), self.name)


def on_margins(evaluator: Evaluator) -> bool:
    """Are the diagonal, the row sums and the column sums of the confusion matrix all that it asks for?"""
    if isinstance(evaluator, ConfusionForm):
        return not evaluator.costs.any()
    return not isinstance(evaluator, ConfusionFunction)


ErrorEvaluator: TypeAlias = Form | ErrorFunction
MarginEvaluator: TypeAlias = ConfusionForm | MarginFunction | LeastForm
ConfusionEvaluator: TypeAlias = MarginEvaluator | ConfusionFunction
Evaluator: TypeAlias = ErrorEvaluator | ConfusionEvaluator


def scale(factor: float, evaluator: Evaluator) -> Evaluator:
    """A multiple of an objective; a form stays a form."""
    if factor == 1:
        return evaluator
    if isinstance(evaluator, Form | ConfusionForm):
        return evaluator * factor
    if isinstance(evaluator, MarginFunction):
        return MarginFunction(lambda moments: factor * evaluator.function(moments))
    if isinstance(evaluator, LeastForm):
        return ConfusionFunction(lambda m: factor * evaluator(m))
    return replace(evaluator, function=lambda e: factor * evaluator(e))


def add(first: Evaluator, second: Evaluator) -> Evaluator:
    """The sum of two objectives; a form where the forms allow."""
    if isinstance(first, ConfusionForm) and isinstance(second, ConfusionForm):
        return first + second
    if isinstance(first, MarginFunction) and isinstance(second, MarginFunction):
        return MarginFunction(lambda moments: first.function(moments) + second.function(moments))
    if isinstance(first, Form) and isinstance(second, Form):
        try:
            return first + second
        except _IncompatibleForms:
            pass
    if isinstance(first, ErrorEvaluator) and isinstance(second, ErrorEvaluator):
        return ErrorFunction(lambda e: first(e) + second(e))
    return ConfusionFunction(lambda m: on_confusion(first, m) + on_confusion(second, m))


def on_confusion(evaluator: Evaluator, confusion: NDArray[np.float64]) -> float:
    """Any objective, of a confusion matrix (counts, rows are true classes)."""
    if isinstance(evaluator, ConfusionEvaluator):
        return evaluator(confusion)
    totals = confusion.sum(axis=1)
    present = totals > 0
    return evaluator(1 - np.diag(confusion)[present] / totals[present])


def exact_importance(objective: Evaluator, context: ClassContext) -> Vector | None:
    """c_k where the objective is Σ_k c_k Err_k, up to a constant factor and sum; None where it is no such thing.

    Costs are, if confusing a class costs the same whatever it is taken for.
    """
    if isinstance(objective, Form) and objective.is_linear and objective.linear.min() > 0:
        return objective.linear
    if isinstance(objective, ConfusionForm) and not (objective.f1.any() or objective.precision.any()):
        costs, k = objective.costs, context.n_classes
        price = (costs.sum(axis=1) - np.diag(costs)) / (k - 1)
        same = np.allclose(costs[~np.eye(k, dtype=bool)].reshape(k, k - 1), price[:, None])
        c = (price - np.diag(costs)) * context.shares
        return c if same and c.min() > 0 else None
    return None


def is_spread(objective: object) -> bool:
    """Is the objective the spread of the errors and nothing else?

    Parameters
    ----------
    objective : object
        An evaluator.

    Returns
    -------
    bool
    """
    if not isinstance(objective, Form) or objective.geometric or objective.ranked:
        return False
    return bool(objective.deviation > 0 and not objective.linear.any())

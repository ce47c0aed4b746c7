"""The tuning problem: scores, labels, an objective and constraints, and what any adjustment is worth.

Nothing here knows how an adjustment is parametrised. All methods and searches ask the same questions: what is it worth,
and what happens along a line of adjustments?

Labels may be soft: a sample i then counts for class k with the mass M_ik (`membership`), and

    Err_k = 1 − Σ_i M_ik 1{ŷ_i = k} / Σ_i M_ik .

Masses carry the sample weights and the class shares of the world, which only objectives on shares (the plain error, F1,
costs) can see: class errors are means within classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_counts, check_labels, check_sample_weight, check_scores
from capri._lazy import once
from capri.constraints import Constraint, ConstraintLike, as_constraint
from capri.errors import Absent, resolve_absent
from capri.forms import (
    ClassContext,
    ConfusionEvaluator,
    ConfusionFunction,
    Evaluator,
    MarginEvaluator,
    on_confusion,
    on_margins,
)
from capri.objectives import Objective, ObjectiveLike, as_objective
from capri.posthoc import _kernels
from capri.posthoc._compiled import blocks_of, by_rows
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.matrices import some_rows
from capri.posthoc.opinion import Opinion
from capri.posthoc.screening import Remainder, screen
from capri.shares import in_shares, share_factors

TOLERANCE = 1e-12  # smaller differences between two worths are rounding
ROUNDING = 1e-9  # of sums over many samples; one sample too many is a larger violation than that


def tally(classes: NDArray[np.int64], amounts: Vector, n_classes: int) -> Vector:
    """Sum of the amounts of each class."""
    return np.bincount(classes, weights=amounts, minlength=n_classes).astype(np.float64, copy=False)


def tally_confusion(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], amounts: Vector, n_classes: int
) -> NDArray[np.float64]:
    """Sum of the amounts of each pair of label and prediction, (K, K)."""
    return tally(labels * n_classes + predictions, amounts, n_classes**2).reshape(n_classes, n_classes)


class Worth(NamedTuple):
    """How good an adjustment is; compares by violation of the constraints first, then by the objective."""

    violation: float
    value: float

    @property
    def feasible(self) -> bool:
        """Are all constraints met?"""
        return self.violation <= ROUNDING

    def better_than(self, other: Worth) -> bool:
        """Strictly better, beyond rounding."""
        if abs(self.violation - other.violation) > TOLERANCE:
            return self.violation < other.violation
        return self.value < other.value - TOLERANCE


@dataclass(frozen=True)
class Bound:
    """A constraint on these data: evaluator(errors) ≤ limit."""

    evaluator: Evaluator
    limit: float
    text: str


def is_neutral(adjustment: Adjustment) -> bool:
    """Does it change nothing?"""
    return bool((adjustment.delta == 1).all() and not adjustment.l.any())


class Problem:
    """Scores (n_samples, K) with labels, and an objective to lower by adjusting them to Δ∘scores − l.

    given: (n_samples,) sample weights as the user gave them. shares: (K,) of the classes in the world, or None for
    those of the samples. weight: (n_samples,) how much a sample counts, given the shares. beliefs: (n_samples, K)
    masses of soft labels, or None where labels alone count. totals: (K,) mass of each class. caution: by how much each
    limit is lowered. of_scores: what is known of the scores, whatever is asked of them, for all problems on them.
    """

    def __init__(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        objective: ObjectiveLike = "balanced",
        *,
        constraints: Sequence[ConstraintLike] = (),
        sample_weight: ArrayLike | None = None,
        shares: ArrayLike | None = None,
        absent: Absent = "error",
        class_names: Sequence[str] | None = None,
        **context: Any,
    ) -> None:
        checked = check_scores(scores)
        wanted = np.float32 if checked.dtype.itemsize <= 4 else np.float64
        n_samples, n_classes = checked.shape
        labels = np.ascontiguousarray(check_labels(y, n_classes, n_samples))
        weight = check_sample_weight(sample_weight, n_samples)
        weight = np.ones(n_samples) if weight is None else weight
        totals = tally(labels, weight, n_classes)
        resolve_absent(totals, absent, class_names)
        world = None if shares is None else _checked_shares(shares, totals)
        self._pose(
            np.ascontiguousarray(checked, dtype=wanted),
            labels,
            weight,
            ClassContext.of(totals, class_names=class_names, **context),
            as_objective(objective),
            [as_constraint(c) for c in constraints],
            world,
        )

    def _pose(
        self,
        scores: Any,
        y: NDArray[np.int64],
        given: Vector,
        context: ClassContext,
        objective: Objective,
        constraints: list[Constraint],
        shares: Vector | None = None,
        beliefs: Any = None,
        caution: Sequence[float] | None = None,
        of_scores: dict[str, Any] | None = None,
    ) -> None:
        self.of_scores: dict[str, Any] = {} if of_scores is None else of_scores
        self.scores, self.y, self.given, self.shares = scores, y, given, shares
        self.caution = caution if caution is not None else [0.0] * len(constraints)
        self.n_samples, self.n_classes = scores.shape
        counts = tally(y, given, self.n_classes)
        self.present = counts > 0
        self.beliefs: Any = None
        if beliefs is None:
            self.weight = in_shares(given, counts, shares, y)
            self.totals = tally(y, self.weight, self.n_classes)
        else:
            masses = beliefs.sum(axis=0, dtype=np.float64)
            factor = share_factors(masses, counts if shares is None else shares)
            self.beliefs = (
                beliefs.times(factor) if isinstance(beliefs, Opinion) else beliefs * factor.astype(beliefs.dtype)
            )
            self.weight = self.beliefs.sum(axis=1, dtype=np.float64)
            self.totals = self.beliefs.sum(axis=0, dtype=np.float64)
        self.remainder: Remainder | None = None
        self.context = context.with_totals(np.where(self.present, self.totals, 0.0))
        self.objective_spec, self.constraints = objective, constraints
        self.objective = objective.on(self.context)

    @once
    def steps(self) -> Vector:
        """By how much each sample moves the error of its class, where labels alone count."""
        return self.weight / np.where(self.present, self.totals, 1.0)[self.y]

    @once
    def membership(self) -> NDArray[Any]:
        """M (n_samples, K): with how much of its weight a sample is of each class."""
        if self.beliefs is not None:
            return np.asarray(self.beliefs)
        mass = np.zeros(self.scores.shape, self.scores.dtype)
        mass[np.arange(self.n_samples), self.y] = self.weight
        return mass

    def mass(self, samples: NDArray[np.int64], classes: NDArray[np.int64]) -> Vector:
        """With how much of its weight each of these samples is of the class beside it."""
        if self.beliefs is not None:
            return self.beliefs[samples, classes].astype(np.float64)
        return self.weight[samples] * (self.y[samples] == classes)

    @once
    def bounds(self) -> list[Bound]:
        """The constraints, with their limits on these data."""
        if not self.constraints:
            return []
        confusion = self.confusion(self.neutral)
        bounds = []
        for constraint, caution in zip(self.constraints, self.caution, strict=True):
            evaluator = constraint.objective.on(self.context)
            limit = constraint.limit(on_confusion(evaluator, confusion)) - caution
            bounds.append(Bound(evaluator, limit, str(constraint)))
        return bounds

    @once
    def evaluators(self) -> list[Evaluator]:
        """The objective, then the constraints' objectives."""
        return [self.objective, *(b.evaluator for b in self.bounds)]

    @property
    def on_confusion(self) -> bool:
        """Does anything ask for the predicted classes, not only for right and wrong?"""
        return any(isinstance(e, ConfusionEvaluator) for e in self.evaluators)

    @property
    def neutral(self) -> Adjustment:
        """The adjustment that changes nothing."""
        return Adjustment.neutral(self.n_classes)

    # -- what an adjustment is worth ---------------------------------------------------------------------------------

    def predict(self, adjustment: Adjustment) -> NDArray[np.int64]:
        """argmax of Δ∘scores − l."""
        if is_neutral(adjustment):
            return self._unadjusted
        if self.remainder is not None and self.remainder.decides(adjustment):
            return self.remainder.predict(adjustment)
        return self._decide(adjustment)

    def _decide(self, adjustment: Adjustment) -> NDArray[np.int64]:
        predictions = np.empty(self.n_samples, np.int64)
        by_rows(_kernels.predict, (self.scores, predictions), *adjustment)
        return predictions

    def right_intervals(self, start: Adjustment, direction: Direction) -> tuple[Vector, Vector]:
        """The open interval of t (n_samples,) on which each sample is right along a line; empty as (inf, −inf)."""
        low, high = np.empty(self.n_samples), np.empty(self.n_samples)
        by_rows(_kernels.right_intervals, (self.scores, self.y, low, high), *start, *direction)
        return low, high

    @property
    def _unadjusted(self) -> NDArray[np.int64]:
        """Predictions without adjustment, which many ask for."""
        if "unadjusted" not in self.of_scores:
            self.of_scores["unadjusted"] = self._decide(self.neutral)
        return np.asarray(self.of_scores["unadjusted"])

    def confusion(self, adjustment: Adjustment) -> NDArray[np.float64]:
        """Confusion matrix (weights) of an adjustment."""
        return self.confusion_of(self.predict(adjustment))

    def confusion_of(self, predictions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Confusion matrix (weights) of predictions."""
        if self.beliefs is None:
            return tally_confusion(self.y, predictions, self.weight, self.n_classes)
        confusion = np.zeros((self.n_classes, self.n_classes))
        for k in np.unique(predictions).tolist():
            confusion[:, k] = self.beliefs[predictions == k].sum(axis=0, dtype=np.float64)
        return confusion

    def errors(self, adjustment: Adjustment) -> Vector:
        """Class errors of an adjustment; NaN for absent classes."""
        return np.where(self.present, self.errors_of(self.predict(adjustment)), np.nan)

    def errors_of(self, predictions: NDArray[np.int64]) -> Vector:
        """Class errors of predictions; 0 for absent classes."""
        if self.beliefs is None:
            wrong = tally(self.y, self.steps * (predictions != self.y), self.n_classes)
        else:
            hits = tally(predictions, self.mass(np.arange(self.n_samples), predictions), self.n_classes)
            wrong = np.where(self.present, 1 - hits / np.where(self.totals > 0, self.totals, 1.0), 0.0)
        return np.clip(wrong, 0.0, 1.0)

    def worth(self, adjustment: Adjustment) -> Worth:
        """Violation and objective of an adjustment, exactly as `predict` gives them."""
        return self.judged(self.values(adjustment))

    def values(self, adjustment: Adjustment) -> list[float]:
        """The objective and those of the constraints, of an adjustment."""
        if not self.on_confusion:
            errors = self.errors(adjustment)[self.present]
            return [e(errors) for e in self.evaluators]
        return self.values_of(self.predict(adjustment), self.evaluators)

    def values_of(self, predictions: NDArray[np.int64], evaluators: Sequence[Evaluator]) -> list[float]:
        """Objectives of predictions, by their confusion matrix, or by as much of it as they ask for."""
        if all(on_margins(e) for e in evaluators):
            margins = self.margins_of(predictions)
            return [self.of_margins(e, *margins) for e in evaluators]
        confusion = self.confusion_of(predictions)
        return [on_confusion(e, confusion) for e in evaluators]

    def margins_of(self, predictions: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Diagonal and column sums of the confusion matrix of predictions; row sums are the totals."""
        samples, k = np.arange(self.n_samples), self.n_classes
        hits = tally(predictions, self.mass(samples, predictions), k)
        return hits, tally(predictions, self.weight, k)

    def of_margins(self, evaluator: Evaluator, hits: Vector, columns: Vector) -> float:
        """An objective that asks for no more than these and the totals."""
        if isinstance(evaluator, MarginEvaluator):
            return evaluator.of_margins(hits, self.totals, columns)
        assert not isinstance(evaluator, ConfusionFunction)
        return evaluator(1 - hits[self.present] / self.totals[self.present])

    def judged(self, values: Sequence[float]) -> Worth:
        """Violation and objective, of the values of the objective and of those of the constraints."""
        violation = sum(max(0.0, v - b.limit) for v, b in zip(values[1:], self.bounds, strict=True))
        return Worth(float(violation), values[0])

    def screen(self, centre: Adjustment, radius: float, reach: float = 0.0) -> Remainder:
        """What is left of the scores in a box, by which adjustments in it are judged from now on."""
        self.remainder = left = screen(self.scores, centre, radius, reach)
        self.entry_masses = np.concatenate([self._masses(left, rows) for rows in blocks_of(self.scores)])
        return left

    def _masses(self, left: Remainder, samples: slice) -> NDArray[Any]:
        """`mass` of the entries that are left of some samples."""
        starts = left.starts[samples.start : samples.stop + 1]
        entries = slice(starts[0], starts[-1])
        rows = np.repeat(np.arange(samples.start, samples.stop), np.diff(starts))
        classes = left.classes[entries].astype(np.int64)
        known = isinstance(self.beliefs, Opinion)
        mass = self.beliefs.at_scores(rows, classes, left.scores[entries]) if known else self.mass(rows, classes)
        return np.asarray(mass.astype(self.scores.dtype))

    def subset(self, chosen: NDArray[np.bool_]) -> Problem:
        """The same question on some of the samples. Limits of relative constraints are those of the chosen samples."""
        return self.derived(
            scores=some_rows(self.scores, chosen),
            y=self.y[chosen],
            given=self.given[chosen],
            beliefs=None if self.beliefs is None else self.beliefs[chosen],
            of_scores={name: known[chosen] for name, known in self.of_scores.items() if name == "unadjusted"},
        )

    def joined(self, unlabelled: NDArray[Any]) -> Problem:
        """The same question with further samples that have no labels: they weigh nothing until beliefs say so."""
        none, anyone = np.zeros(len(unlabelled)), np.full(len(unlabelled), self.present.argmax())
        return self.derived(
            scores=np.concatenate([self.scores, check_scores(unlabelled.astype(self.scores.dtype), "X_unlabelled")]),
            y=np.concatenate([self.y, anyone]),
            given=np.concatenate([self.given, none]),
        )

    def believing(self, beliefs: Any) -> Problem:
        """The same question with soft labels, (n_samples, K): how much of each sample counts for each class."""
        return self.derived(beliefs=beliefs)

    def derived(self, **parts: Any) -> Problem:
        """A problem made of this one, which has checked its parts, with some of them replaced."""
        names = ("scores", "y", "given", "context", "constraints", "shares")
        taken = {name: getattr(self, name) for name in names} | {"objective": self.objective_spec} | parts
        taken.setdefault("of_scores", {} if "scores" in parts else self.of_scores)
        problem = object.__new__(Problem)
        problem._pose(**taken)
        return problem


def _checked_shares(shares: ArrayLike, totals: Vector) -> Vector:
    """Shares of the classes in the world (K,), above 0 for each class that has samples."""
    checked = check_counts(shares, len(totals), name="shares")
    if (lost := np.flatnonzero((checked == 0) & (totals > 0))).size:
        raise InputError(
            f"shares of class {lost[0]} is 0, but there are samples of it; leave these out, or give it a small share."
        )
    return checked


def check_direction(values: ArrayLike | None, n_classes: int, name: str) -> Vector:
    """One finite number per class; zeros where none is given."""
    if values is None:
        return np.zeros(n_classes)
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != (n_classes,) or not np.isfinite(array).all():
        raise InputError(f"{name} must hold one finite number for each of the {n_classes} classes; got {values!r}.")
    return array

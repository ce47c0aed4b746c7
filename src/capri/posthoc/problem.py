"""The tuning problem: scores, labels, an objective and constraints, and what any adjustment is worth.

Nothing here knows how an adjustment is parametrised. All methods and searches ask the same questions: what is it worth,
and what happens along a line of adjustments?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_labels, check_sample_weight, check_scores
from capri.constraints import Constraint, ConstraintLike, as_constraint
from capri.errors import Absent, resolve_absent
from capri.forms import ClassContext, ConfusionEvaluator, Evaluator, on_confusion
from capri.objectives import Objective, ObjectiveLike, as_objective
from capri.posthoc import _kernels
from capri.posthoc.adjustment import Adjustment, Vector

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


class Problem:
    """Scores (n_samples, K) with labels, and an objective to lower by adjusting them to Δ∘scores − l."""

    def __init__(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        objective: ObjectiveLike = "balanced",
        *,
        constraints: Sequence[ConstraintLike] = (),
        sample_weight: ArrayLike | None = None,
        absent: Absent = "error",
        class_names: Sequence[str] | None = None,
        **context: Any,
    ) -> None:
        given = check_scores(scores)
        wanted = np.float32 if given.dtype.itemsize <= 4 else np.float64
        self.scores: NDArray[Any] = np.ascontiguousarray(given, dtype=wanted)
        self.n_samples, self.n_classes = self.scores.shape
        self.y = np.ascontiguousarray(check_labels(y, self.n_classes, self.n_samples))
        weight = check_sample_weight(sample_weight, self.n_samples)
        self.weight = np.ones(self.n_samples) if weight is None else weight
        self.totals = tally(self.y, self.weight, self.n_classes)
        self.present = resolve_absent(self.totals, absent, class_names)
        self.context = ClassContext.of(self.totals, class_names=class_names, **context)
        self.objective_spec = as_objective(objective)
        self.objective = self.objective_spec.on(self.context)
        self.constraints = [as_constraint(c) for c in constraints]

    @cached_property
    def steps(self) -> Vector:
        """By how much each sample moves the error of its class."""
        return self.weight / np.where(self.present, self.totals, 1.0)[self.y]

    @cached_property
    def bounds(self) -> list[Bound]:
        """The constraints, with their limits on these data."""
        confusion = self.confusion(self.neutral)
        bounds = []
        for constraint in self.constraints:
            evaluator = constraint.objective.on(self.context)
            bounds.append(Bound(evaluator, constraint.limit(on_confusion(evaluator, confusion)), str(constraint)))
        return bounds

    @cached_property
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
        predictions = np.empty(self.n_samples, np.int64)
        with _kernels.threads_for(self.scores):
            _kernels.predict(self.scores, *adjustment, predictions)
        return predictions

    def confusion(self, adjustment: Adjustment) -> NDArray[np.float64]:
        """Confusion matrix (weights) of an adjustment."""
        return tally_confusion(self.y, self.predict(adjustment), self.weight, self.n_classes)

    def errors(self, adjustment: Adjustment) -> Vector:
        """Class errors of an adjustment; NaN for absent classes."""
        wrong = tally(self.y, self.steps * (self.predict(adjustment) != self.y), self.n_classes)
        return np.where(self.present, np.minimum(wrong, 1.0), np.nan)

    def worth(self, adjustment: Adjustment) -> Worth:
        """Violation and objective of an adjustment, exactly as `predict` gives them."""
        if not self.on_confusion:
            return self.worth_of_errors(self.errors(adjustment)[self.present])
        confusion = self.confusion(adjustment)
        return self._judge([on_confusion(e, confusion) for e in self.evaluators])

    def worth_of_errors(self, errors: Vector) -> Worth:
        """Violation and objective of given errors of the present classes."""
        return self._judge([e(errors) for e in self.evaluators])

    def _judge(self, values: Sequence[float]) -> Worth:
        violation = sum(max(0.0, v - b.limit) for v, b in zip(values[1:], self.bounds, strict=True))
        return Worth(float(violation), values[0])

    def members(self) -> list[NDArray[np.intp]]:
        """The samples of each present class that carry weight, to resample from."""
        return [np.flatnonzero((self.y == k) & (self.weight > 0)) for k in np.flatnonzero(self.present)]

    def subset(self, chosen: NDArray[np.bool_]) -> Problem:
        """The same question on some of the samples; the others lose their weight, and no score is copied.

        Limits of relative constraints are those of the chosen samples.
        """
        weight = np.where(chosen, self.weight, 0.0)
        context = self.context.with_totals(tally(self.y, weight, self.n_classes))
        return self.derived(self.scores, self.y, weight, context, self.objective_spec, self.constraints)

    @staticmethod
    def derived(
        scores: NDArray[Any],
        y: NDArray[np.int64],
        weight: Vector,
        context: ClassContext,
        objective: Objective,
        constraints: list[Constraint],
    ) -> Problem:
        """A problem made of parts of another, which has checked them."""
        part = object.__new__(Problem)
        part.scores, part.y, part.weight, part.context = scores, y, weight, context
        part.n_samples, part.n_classes = scores.shape
        part.totals = tally(y, weight, part.n_classes)
        part.present = part.totals > 0
        part.objective_spec, part.objective, part.constraints = objective, objective.on(context), constraints
        return part


def check_direction(values: ArrayLike | None, n_classes: int, name: str) -> Vector:
    """One finite number per class; zeros where none is given."""
    if values is None:
        return np.zeros(n_classes)
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.shape != (n_classes,) or not np.isfinite(array).all():
        raise InputError(f"{name} must hold one finite number for each of the {n_classes} classes; got {values!r}.")
    return array

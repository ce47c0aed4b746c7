"""The exact line and the smooth search on scores that stay where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from capri._checks import InputError, check_counts, check_labels
from capri.attributes import frequency
from capri.classes import Classes
from capri.errors import Absent, resolve_absent
from capri.forms import ClassContext, ConfusionEvaluator
from capri.objectives import ObjectiveLike, as_objective
from capri.on_device.passes import DeviceScores
from capri.policy import Policy
from capri.posthoc.adjustment import Adjustment, Direction, Vector
from capri.posthoc.line import EVERYWHERE, Interval, LineSearch, best_on, trace
from capri.posthoc.pooling import default_strength
from capri.posthoc.problem import Problem, check_direction
from capri.posthoc.smooth import MARGIN_SAMPLES, SHARPNESS, Part, Surrogate, minimise_offsets, neighbour
from capri.posthoc.trust import validate


class DeviceSurrogate(Surrogate):
    """The surrogate whose soft margins are taken on the device."""

    problem: DeviceProblem

    def __init__(self, problem: DeviceProblem) -> None:
        self.problem = problem
        self.sharpness = SHARPNESS / max(float(np.median(problem.on_device.margins(MARGIN_SAMPLES))), 1e-6)
        self.objective, self.near, self.screenings, self.limits = neighbour(problem.objective, problem), None, 0, []

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Vector]:
        """Value, and gradient in the offsets."""
        assert of == "l"
        at = self.problem
        value, by_hits, by_columns = self._value(*self._margins(adjustment))
        slopes = at.on_device.soft_slopes(adjustment, self.sharpness, at.weight_there, by_hits, by_columns)
        return value, -self.sharpness * slopes

    def _margins(self, adjustment: Adjustment) -> tuple[Vector, Vector]:
        return self.problem.on_device.soft_margins(adjustment, self.sharpness, self.problem.weight_there)


class DeviceProblem(Problem):
    """A tuning problem whose scores live on a device; labels and all that is of classes are here as well."""

    surrogate = DeviceSurrogate

    def __init__(
        self, on_device: DeviceScores, objective: ObjectiveLike, absent: Absent = "error", **context: Any
    ) -> None:
        self.on_device = on_device
        labels = check_labels(on_device.y.cpu().numpy(), on_device.shape[1])
        totals = np.bincount(labels, minlength=on_device.shape[1]).astype(np.float64)
        resolve_absent(totals, absent, context.get("class_names"))
        known = ClassContext.of(totals, **context)
        self._pose(on_device, labels, np.ones(len(labels)), known, as_objective(objective), [])
        if isinstance(self.objective, ConfusionEvaluator):
            raise InputError(
                f"objective {self.objective_spec.name!r} is made of confusions, whose exact line is searched on the "
                "CPU alone; give LogitAdjuster the scores as an array."
            )
        self.weight_there = torch.as_tensor(self.weight, device=on_device.scores.device)

    def right_intervals(self, start: Adjustment, direction: Direction) -> tuple[Vector, Vector]:
        """Of the exact line, on the device."""
        return self.on_device.right_intervals(start, direction)

    def _decide(self, adjustment: Adjustment) -> NDArray[np.int64]:
        return self.on_device.decisions(adjustment)


def line_search(
    scores: Tensor,
    y: Tensor,
    direction: ArrayLike,
    objective: ObjectiveLike = "balanced",
    *,
    bounds: Interval = EVERYWHERE,
    **context: Any,
) -> LineSearch:
    """`capri.exact_line_search` for scores on a device: minimise an objective exactly over t in o − t g.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, K)
        Logits, on any device that has float64.
    y : Tensor of shape (n_samples,)
        Class numbers.
    direction : array-like of shape (K,)
        g, how the offsets move with t.
    objective : name, Objective or function of class errors
        What to lower.
    bounds : (float, float)
        The open range of t.
    **context
        `weights`, `groups`, `class_counts`, `class_names`, `absent`, as in `capri.evaluate`.

    Returns
    -------
    LineSearch

    Examples
    --------
    >>> found = line_search(torch.tensor([[2.0, 1.0], [1.5, 1.0], [2.0, 0.0]]), torch.tensor([1, 1, 0]), [1.0, 0.0])
    >>> found.t, found.value
    (1.5, 0.0)
    """
    problem = DeviceProblem(DeviceScores(scores, y), objective, **context)
    g = check_direction(direction, problem.n_classes, "direction")
    start, way = problem.neutral, Direction(np.zeros(problem.n_classes), g)
    line = trace(problem, start, way)
    t, there = best_on(problem, line, start, way, bounds)
    return LineSearch(t, there.value, problem.worth(start).value, there.feasible, line.breakpoints, line.values)


def tune(
    scores: Tensor,
    y: Tensor,
    objective: ObjectiveLike = "balanced",
    *,
    class_counts: ArrayLike | Mapping[Any, float] | None = None,
    classes: Sequence[Any] | None = None,
    absent: Absent = "error",
    **context: Any,
) -> Policy:
    """Offsets for an objective on class errors, without the scores leaving their device.

    The exact line of logit adjustment where class counts are known, then the smooth search of one offset per class,
    drawn to that answer as few samples ask for, then the exact line between the two. It is plainer than
    `LogitAdjuster`, which has soft labels, attributes, constraints, and judges itself out of fold: where the scores can
    be moved, use that.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, K)
        Logits, on any device that has float64.
    y : Tensor of shape (n_samples,)
        Class numbers.
    objective : name, Objective or function of class errors
        What to lower.
    class_counts : per class, optional
        Training samples.
    classes : sequence of labels, optional
        The label of each score column; by default their numbers.
    absent : {"error", "ignore"}
        What to do about classes without samples.
    **context
        `weights`, `groups`.

    Returns
    -------
    Policy
        Never worse on these samples than no adjustment.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> y = torch.arange(300) % 3
    >>> scores = torch.randn(300, 3) + 2 * torch.eye(3)[y] + torch.tensor([2.0, 0.0, -2.0])
    >>> policy = tune(scores, y, "worst")
    >>> policy.validation.after["worst"] < policy.validation.before["worst"]
    True
    """
    held = DeviceScores(scores, y)
    labels = Classes.of(range(held.shape[1]) if classes is None else classes)
    counts = labels.align(class_counts, "class_counts")
    counts = None if counts is None else check_counts(counts, held.shape[1])
    problem = DeviceProblem(held, objective, absent, class_names=labels.names, class_counts=counts, **context)
    start = problem.neutral
    if counts is not None and counts.min() > 0:
        start = _along(problem, start, Adjustment.offsets(np.log(frequency(counts))), EVERYWHERE)
    free = Adjustment.offsets(_smooth(problem, start.l))
    found = _along(problem, start, free, (0.0, 1.5)).centred()
    validation = validate(problem, found, feasible=True)
    return Policy(
        found.strategy(),
        objective=problem.objective_spec.name,
        classes=tuple(labels.labels.tolist()),
        method="plain",
        reason=f"exact lines and a smooth search on {held.scores.device}",
        validation=validation,
        data={"n_samples": problem.n_samples},
    )


def _along(problem: DeviceProblem, start: Adjustment, to: Adjustment, bounds: Interval) -> Adjustment:
    """The best on the way from one adjustment to another, or beyond; the first where nothing beats it."""
    way = start.towards(to)
    if not way.g.any():
        return start
    t, _ = best_on(problem, trace(problem, start, way), start, way, bounds)
    return start.along(way, t)


def _smooth(problem: DeviceProblem, start: Vector) -> Vector:
    """One offset per class, in units of a median margin drawn to the start."""
    unit = SHARPNESS / DeviceSurrogate(problem).sharpness
    own = np.sqrt(default_strength(problem) / problem.n_classes) / unit
    return minimise_offsets(problem, None, start, penalty=own * np.eye(problem.n_classes), centre=start)

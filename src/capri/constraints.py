"""Constraints: what tuning must not give up, such as ``plain <= baseline + 0.01`` or ``err[3] <= 0.2``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

from capri._checks import InputError, shortest
from capri.objectives import Objective, ObjectiveLike, as_objective

_BASELINE = r"(?:baseline|unadjusted)"
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?"
_BOUND = re.compile(rf"(?:(?P<base>{_BASELINE})(?:(?P<sign>[+-])(?P<slack>{_NUMBER}))?|(?P<number>{_NUMBER}))")


@dataclass(frozen=True)
class Constraint:
    """A limit on an objective, such as ``plain <= baseline + 0.01`` or ``err[3] <= 0.2``.

    Parameters
    ----------
    objective : Objective
        What is limited.
    bound : float
        The highest value it may have or, where `relative`, how far it may rise above its value before tuning.
    relative : bool
        Whether `bound` is added to the value on the unadjusted scores.

    Examples
    --------
    >>> constraint = as_constraint("plain <= baseline + 0.01")
    >>> constraint.limit(0.30)
    0.31
    >>> str(constraint)
    'plain <= baseline + 0.01'
    """

    objective: Objective
    bound: float
    relative: bool = False

    def limit(self, unadjusted: float) -> float:
        """The number that the objective must not exceed.

        Parameters
        ----------
        unadjusted : float
            The objective on the unadjusted scores.

        Returns
        -------
        float
        """
        return unadjusted + self.bound if self.relative else self.bound

    def __str__(self) -> str:
        if not self.relative:
            return f"{self.objective} <= {shortest(self.bound)}"
        slack = f" {'+' if self.bound > 0 else '-'} {shortest(abs(self.bound))}" if self.bound else ""
        return f"{self.objective} <= baseline{slack}"


ConstraintLike: TypeAlias = str | Constraint | tuple[ObjectiveLike, float]


def as_constraint(constraint: ConstraintLike) -> Constraint:
    """A constraint from text, or from a pair (objective, bound)."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, tuple) and len(constraint) == 2:
        objective, bound = constraint
        if not _is_finite(bound):
            raise InputError(f"constraint {constraint!r}: the bound is {bound!r}; it must be a finite number.")
        return Constraint(as_objective(objective), float(bound))
    left, operator, right = str(constraint).rpartition("<=")
    match = _BOUND.fullmatch(right.replace(" ", ""))
    if not operator or match is None:
        raise InputError(
            f"constraint {constraint!r} cannot be read; write '<objective> <= <number>', "
            "'<objective> <= baseline' or '<objective> <= baseline + <number>'."
        )
    parsed = as_objective(left)
    if match["base"]:
        slack = float(match["slack"] or 0)
        return Constraint(parsed, -slack if match["sign"] == "-" else slack, relative=True)
    return Constraint(parsed, float(match["number"]))


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)

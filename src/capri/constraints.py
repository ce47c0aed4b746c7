"""Constraints: what tuning must not give up, such as ``plain <= baseline + 0.01`` or ``precision[lynx] >= 0.9``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias

from capri._checks import InputError, short, shortest
from capri.objectives import Objective, ObjectiveLike, as_objective, quality_of

_BASELINE = r"(?:baseline|unadjusted)"
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?"
_BOUND = rf"(?:(?P<base>{_BASELINE})(?:(?P<sign>[+-])(?P<slack>{_NUMBER}))?|(?P<number>{_NUMBER}))"
_TEXT = re.compile(r"(?P<objective>.*)(?P<operator>[<>]=)(?P<bound>[^<>=]*)", re.DOTALL)
#: Qualities that may be limited as the errors they are computed as: ``macro_f1 <= 0.4`` is 1 − macro-F1 ≤ 0.4.
EITHER_WAY = {"macro_f1", "weighted_f1", "kappa", "mcc"}


@dataclass(frozen=True)
class Constraint:
    """A limit on an objective, such as ``plain <= baseline + 0.01``, or a floor, such as ``precision[lynx] >= 0.9``.

    A floor is for objectives that go by the name of a quality: precision[…], recall[…], f1[…], gmean, min_recall,
    macro_f1, weighted_f1, kappa and mcc. The last four can also be limited as errors: ``macro_f1 <= 0.4`` asks for
    1 − macro-F1 of at most 0.4.

    Parameters
    ----------
    objective : Objective
        What is limited.
    bound : float
        The highest value it may have or, where `relative`, how far it may rise above its value before tuning. Of a
        floor, the lowest value of the quality, or how far it must rise above its value before tuning.
    relative : bool
        Whether `bound` is added to the value on the unadjusted scores.
    floor : bool
        Whether the quality, 1 − objective, is bounded from below.

    Examples
    --------
    >>> constraint = as_constraint("plain <= baseline + 0.01")
    >>> constraint.limit(0.30)
    0.31
    >>> str(constraint)
    'plain <= baseline + 0.01'
    >>> as_constraint("precision[lynx] >= 0.75").limit(0.30)
    0.25
    """

    objective: Objective
    bound: float
    relative: bool = False
    floor: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", as_objective(self.objective))
        if not _is_finite(self.bound):
            raise InputError(f"the bound of {self.objective} is {short(self.bound)}; it must be a finite number.")
        quality = quality_of(self.objective)
        if self.floor and quality is None:
            raise InputError(
                f"constraint '{self}': {self.objective} is an error, which is limited from above; write "
                f"'{self.objective} <= <number>'. A floor (>=) is for precision[…], recall[…], f1[…], macro_f1, …."
            )
        if not self.floor and quality is not None and quality not in EITHER_WAY:
            raise InputError(
                f"constraint '{self}': {self.objective} reads as a quality, which is bounded from below; write "
                f"'{self.objective} >= <number>' or '{self.objective} >= baseline'."
            )
        if self.floor and not self.relative and self.bound > 1:
            raise InputError(f"constraint '{self}': {self.objective} is at most 1; give a share such as 0.9.")

    def limit(self, unadjusted: float) -> float:
        """The number that the objective must not exceed.

        Parameters
        ----------
        unadjusted : float
            The objective on the unadjusted scores.

        Returns
        -------
        float
            Of a floor too: as an objective, a quality is 1 − itself.
        """
        if self.floor:
            return unadjusted - self.bound if self.relative else 1 - self.bound
        return unadjusted + self.bound if self.relative else self.bound

    def __str__(self) -> str:
        operator = ">=" if self.floor else "<="
        if not self.relative:
            return f"{self.objective} {operator} {shortest(self.bound)}"
        slack = f" {'+' if self.bound > 0 else '-'} {shortest(abs(self.bound))}" if self.bound else ""
        return f"{self.objective} {operator} baseline{slack}"


ConstraintLike: TypeAlias = str | Constraint | tuple[ObjectiveLike, float]


def as_constraint(constraint: ConstraintLike) -> Constraint:
    """A constraint from text, or from a pair (objective, bound)."""
    if isinstance(constraint, Constraint):
        return constraint
    if isinstance(constraint, tuple) and len(constraint) == 2:
        objective, bound = constraint
        return Constraint(as_objective(objective), bound)
    text = _TEXT.fullmatch(str(constraint))
    match = re.fullmatch(_BOUND, text["bound"].replace(" ", "")) if text else None
    if text is None or match is None:
        raise InputError(
            f"constraint {constraint!r} cannot be read; write '<objective> <= <number>', '<objective> <= baseline', "
            "'<objective> <= baseline + <number>' or, of a quality such as precision[…], the same with '>='."
        )
    parsed, floor = as_objective(text["objective"]), text["operator"] == ">="
    if match["base"]:
        slack = float(match["slack"] or 0)
        return Constraint(parsed, -slack if match["sign"] == "-" else slack, relative=True, floor=floor)
    return Constraint(parsed, float(match["number"]), floor=floor)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and math.isfinite(value)

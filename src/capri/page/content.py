"""What a report says: aggregates by class, by objective and by pair of classes, and nothing of single samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias

from capri.sentences import Headline

Column: TypeAlias = Sequence[float | None]  # one number per class; None where it is undefined
Kind: TypeAlias = Literal["test", "out of fold", "in sample"]
DIGITS = 5  # that a number keeps in the page


@dataclass(frozen=True)
class ClassTable:
    """What is known of the K classes besides their errors.

    Parameters
    ----------
    names : sequence of str
        Their names.
    training : column or None
        Training samples of each.
    frequency : column or None
        Its share of the training samples or, where these are unknown, as tuning took it from the validation samples.
    groups : sequence of str
        Names of groups by frequency, the most common first; none where frequencies are unknown.
    group : sequence of int
        Which group each class belongs to.
    offsets, multipliers : column
        The policy: decisions are argmax of Δ∘o − l.
    residual : column or None
        What of the offset the map of attributes does not say; None where there is no map.
    """

    names: Sequence[str]
    training: Column | None
    frequency: Column | None
    groups: Sequence[str]
    group: Sequence[int]
    offsets: Column
    multipliers: Column
    residual: Column | None


@dataclass(frozen=True)
class Errors:
    """Class errors with a 90 % interval each, (K,)."""

    values: Column
    low: Column
    high: Column


@dataclass(frozen=True)
class Limit:
    """A constraint: its value, the limit, and whether it is kept. Of a floor, both are qualities."""

    text: str
    value: float | None
    limit: float | None
    kept: bool | None


@dataclass(frozen=True)
class Pair:
    """How many samples of one class are taken for another, before and after."""

    true: int
    predicted: int
    before: float
    after: float


@dataclass(frozen=True)
class Confusions:
    """Where errors go.

    Parameters
    ----------
    pairs : sequence of Pair
        The most frequent confusions, before or after.
    classes : sequence of int
        The rows and columns of the matrices.
    before, after : sequence of rows
        Samples by true and predicted class. Where classes are left out, a last row and column hold all others.
    complete : bool
        Whether every class has its own row.
    """

    pairs: Sequence[Pair]
    classes: Sequence[int]
    before: Sequence[Sequence[float]]
    after: Sequence[Sequence[float]]
    complete: bool


@dataclass(frozen=True)
class View:
    """Figures on one set of samples, before and after.

    Parameters
    ----------
    kind : {"test", "out of fold", "in sample"}
        What the figures are worth.
    n_samples : int
        How many samples they are of.
    before, after : mapping from objectives to numbers
        Objectives.
    samples : column
        Samples of each class, or their total weight.
    first, second : Errors
        Class errors before and after.
    fixed, broken : column or None
        Samples of each class that became right, and wrong.
    clear : sequence of bool
        Whether a class's change is more than chance, taken by itself (sign test, 5 %); empty where nobody asked.
    decided : column or None
        The share of each class that is decided, where samples may be left undecided; errors after are of these.
    confusions : Confusions or None
        Where errors go.
    limits : sequence of Limit
        The constraints on these samples.
    """

    kind: Kind
    n_samples: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    samples: Column
    first: Errors
    second: Errors
    fixed: Column | None = None
    broken: Column | None = None
    clear: Sequence[bool] = ()
    decided: Column | None = None
    confusions: Confusions | None = None
    limits: Sequence[Limit] = ()

    @property
    def coverage(self) -> tuple[float, float] | None:
        """The share of the samples that is decided, and the least of a class; None where all are, by their nature."""
        if self.decided is None:
            return None
        pairs = zip(self.samples, self.decided, strict=True)
        known = [(n, share) for n, share in pairs if n is not None and share is not None]
        return sum(n * share for n, share in known) / sum(n for n, _ in known), min(share for _, share in known)


@dataclass(frozen=True)
class Rung:
    """A way to decide: what it gains out of fold, with its 90 % interval where that was told."""

    name: str
    gain: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Content:
    """All that a report says.

    Parameters
    ----------
    objective : str
        What was tuned for.
    headline : Headline
        The sentence to begin with.
    views : sequence of View
        The most trustworthy first.
    classes : ClassTable
        The classes.
    method, reason : str
        How the policy was tuned, and how that ended.
    ladder : sequence of Rung
        What simpler ways gain.
    line : mapping or None
        The objective along the line of logit adjustment, as `LineProfile.to_dict` has it.
    frontier : mapping or None
        The best of the objective at each price in another, with the class errors of each point.
    facts : mapping
        Data, versions, digests: what to say of the policy's origin.
    thin : int
        Fewer samples than this make a class thin.
    abstains : bool
        Whether the policy may leave samples undecided.
    notes : sequence of str
        What could not be shown, and why.
    """

    objective: str
    headline: Headline
    views: Sequence[View]
    classes: ClassTable
    method: str = ""
    reason: str = ""
    ladder: Sequence[Rung] = ()
    line: Mapping[str, Any] | None = None
    frontier: Mapping[str, Any] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    thin: int = 5
    abstains: bool = False
    notes: Sequence[str] = ()

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.classes.names)

    def to_dict(self) -> dict[str, Any]:
        """The content in JSON's own types, numbers rounded; what is undefined is None.

        Returns
        -------
        dict
        """
        plain: dict[str, Any] = _plain(self)
        return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else float(f"{value:.{DIGITS}g}")

"""The policy: the artefact that leaves the laboratory.

It holds what was tuned (the strategy and the W behind it), for which side (decisions, or a loss), on what (classes,
attributes, a digest of the data), to what (objective, constraints) and what it gained on validation. On disk it is JSON
with a schema version and a digest of its own content: loading checks everything and executes nothing; saving is atomic.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputWarning, check_names, check_scores, short
from capri._files import read_text, write_atomically
from capri._provenance import versions
from capri.classes import Classes
from capri.strategy import Strategy

SCHEMA = 2
FEW = 10  # rows that may sum to 1 by chance
FLOOR = 1e-6  # the smallest probability that is told from 0, unless a policy says otherwise

ScoreKind: TypeAlias = Literal["logits", "proba"]
Side: TypeAlias = Literal["posthoc", "loss"]
Label: TypeAlias = str | int | float | bool


class ProbabilityWarning(InputWarning):
    """Scores that were declared logits look like probabilities."""


class PolicyError(InputError):
    """A policy file that cannot be trusted: truncated, changed, of another version, or not a policy."""


# --------------------------------------------------------------------------------------------------------------------
# What fields may hold


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, Sequence) and all(map(_is_number, values))


def _are_errors(values: Any) -> bool:
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return isinstance(listed, list | tuple) and all(v is None or _is_number(v) for v in listed)


_Rule: TypeAlias = tuple[str, Callable[[Any], bool]]
_TEXT: _Rule = ("text", lambda v: isinstance(v, str))
_MAPPING: _Rule = ("a mapping", lambda v: isinstance(v, Mapping))
_COLUMNS: _Rule = (
    "a mapping to lists of numbers",
    lambda v: isinstance(v, Mapping) and all(map(_are_errors, v.values())),
)
_FIGURES: _Rule = ("a mapping to numbers", lambda v: isinstance(v, Mapping) and all(map(_is_number, v.values())))
_ERRORS: _Rule = ("a number or None per class", _are_errors)
_VALIDATION_RULES: Mapping[str, _Rule] = {
    "objective": _TEXT,
    "before": _FIGURES,
    "after": _FIGURES,
    "errors_before": _ERRORS,
    "errors_after": _ERRORS,
    "samples": ("a number per class", _are_numbers),
    "in_sample": ("a number", _is_number),
    "improvement": ("a number or None", lambda v: v is None or _is_number(v)),
    "interval": ("two numbers or None", lambda v: v is None or (_are_numbers(v) and len(v) == 2)),
    "feasible": ("True or False", lambda v: isinstance(v, bool)),
}
_POLICY_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("objective", "method", "reason"), _TEXT),
    **dict.fromkeys(("dictionary", "data", "versions"), _MAPPING),
    **dict.fromkeys(("attributes", "weights"), _COLUMNS),
    "scores": ("'logits' or 'proba'", lambda v: isinstance(v, str) and v in ("logits", "proba")),
    "side": ("'posthoc' or 'loss'", lambda v: isinstance(v, str) and v in ("posthoc", "loss")),
    "floor": ("a probability above 0 and below 1", lambda v: _is_number(v) and 0 < v < 1),
    "constraints": ("a tuple of texts", lambda v: isinstance(v, tuple) and all(isinstance(c, str) for c in v)),
    "validation": ("a Validation or None", lambda v: v is None or isinstance(v, Validation)),
    "seed": ("a whole number or None", lambda v: v is None or (isinstance(v, Integral) and not isinstance(v, bool))),
}


def _check_fields(thing: Any, rules: Mapping[str, _Rule], prefix: str = "") -> None:
    for name, (expected, holds) in rules.items():
        if not holds(value := getattr(thing, name)):
            raise InputError(f"{prefix}{name} is {short(value)}; it must be {expected}.")


# --------------------------------------------------------------------------------------------------------------------
# The policy


@dataclass(frozen=True)
class Validation:
    """What tuning changed on the validation set: all standard objectives and the errors per class, before and after.

    Parameters
    ----------
    objective : str
        The tuned objective.
    before, after : mapping from objectives to numbers
        The standard objectives and the tuned one.
    errors_before, errors_after : sequence of float or None
        Errors per class; None for a class without samples.
    samples : sequence of float
        Samples per class, or their total weight.
    in_sample : float
        before − after of the tuned objective, on the samples that tuned: an optimistic figure.
    improvement : float or None
        What to expect on other samples: the improvement out of fold, where each sample is judged by a tuning that has
        not seen it. None where nothing was judged out of fold.
    interval : (float, float) or None
        90 % interval of that improvement.
    feasible : bool
        Whether all constraints were met, by what tuning goes by.
    """

    objective: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    errors_before: Sequence[float | None]
    errors_after: Sequence[float | None]
    samples: Sequence[float]
    in_sample: float
    improvement: float | None
    interval: tuple[float, float] | None
    feasible: bool

    def __post_init__(self) -> None:
        _check_fields(self, _VALIDATION_RULES, "validation.")

    def check_classes(self, n_classes: int) -> None:
        """Refuse figures per class that are not of this many classes.

        Parameters
        ----------
        n_classes : int
            K.
        """
        for name in ("errors_before", "errors_after", "samples"):
            if (n := len(getattr(self, name))) != n_classes:
                raise InputError(f"validation.{name} has {n} entries for {n_classes} classes; give one per class.")


@dataclass(frozen=True, eq=False)
class Policy:
    """A tuned strategy with its provenance; `apply` is all that serving needs.

    Parameters
    ----------
    strategy : Strategy
        What was tuned: ω, l, Δ and ε per class.
    objective : str
        What it was tuned for.
    classes : tuple of labels
        The label of each score column: text, whole numbers, finite numbers or truth values, which JSON keeps (NumPy's
        become Python's). Others are refused, because `predict` must return the labels that were given, and so is text
        with control characters, which a terminal would obey.
    scores : {"logits", "proba"}
        What the model gives; probabilities become log max(p, floor).
    side : {"posthoc", "loss"}
        "posthoc" adjusts a trained model's scores. "loss" is a loss to train with, as `capri search` finds it; `apply`
        refuses it.
    floor : float
        The smallest probability that is told from 0.
    method, reason : str
        How the strategy was tuned, and how that ended.
    constraints : tuple of str
        What tuning had to keep to.
    attributes : mapping from names to lists
        The class attributes, one number per class each.
    dictionary : mapping
        How D was made.
    weights : mapping from names to lists
        W by row: "l", "delta", …, and "residual" where classes deviate from the prior.
    validation : Validation, optional
        Figures before and after tuning.
    data : mapping
        What the policy was tuned on.
    seed : int, optional
        Of the search.
    versions : mapping from names to versions
        The software that made it.

    Examples
    --------
    >>> policy = Policy(Strategy.logit_adjustment([90, 10]), objective="balanced", classes=("common", "rare"))
    >>> policy.predict([[1.0, 0.0]])
    array(['rare'], dtype='<U6')
    """

    strategy: Strategy
    objective: str
    classes: tuple[Label, ...]
    scores: ScoreKind = "logits"
    side: Side = "posthoc"
    floor: float = FLOOR
    method: str = "given"
    reason: str = ""
    constraints: tuple[str, ...] = ()
    attributes: Mapping[str, list[float]] = field(default_factory=dict)
    dictionary: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, list[float]] = field(default_factory=dict)
    validation: Validation | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=versions)

    def __post_init__(self) -> None:
        given: Any = self.classes
        if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
            raise InputError(f"classes is {short(given)}; it must be one label per class.")
        object.__setattr__(self, "classes", tuple(_label(c, k) for k, c in enumerate(given)))
        check_names(self.class_names, self.strategy.n_classes, "classes")
        _check_fields(self, _POLICY_RULES)
        if self.validation is not None:
            self.validation.check_classes(self.strategy.n_classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels as text, all different."""
        return tuple(map(str, self.classes))

    @property
    def labels(self) -> NDArray[Any]:
        """The labels (K,) as an array of their own type: whole numbers, text, …; of objects where types are mixed."""
        return np.array(self.classes, dtype=None if len(set(map(type, self.classes))) == 1 else object)

    # -- use ---------------------------------------------------------------------------------------------------------

    def apply(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Adjusted scores Δ∘o − l, in plain NumPy; their argmax is the decision.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            Logits or probabilities, as `scores` says. The columns of a DataFrame are matched to the classes by name.

        Returns
        -------
        ndarray of shape (n_samples, K)

        Raises
        ------
        InputError
            Where the policy is a loss, or the scores are not of its classes.
        """
        self.require_posthoc()
        arranged = Classes.of(self.classes).arrange(scores)  # by the names of a table's columns, where it has them
        return self.strategy.adjust(to_logits(arranged, self.scores, self.floor))

    def predict(self, scores: ArrayLike) -> NDArray[Any]:
        """The labels decided on.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            As in `apply`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of the type that they had in tuning.
        """
        return np.asarray(self.labels[self.apply(scores).argmax(axis=1)])

    def require_posthoc(self) -> None:
        """Refuse a loss where decisions are to be adjusted.

        Raises
        ------
        InputError
            Where `side` is "loss".
        """
        if self.side == "loss":
            raise InputError(
                "this policy is a loss (Δ∘o + l in training), not an adjustment of a trained model's scores; "
                "`capri retrain --policy` trains with it. For decisions, tune post-hoc: `capri tune` or LogitAdjuster."
            )

    # -- on disk -----------------------------------------------------------------------------------------------------

    @property
    def digest(self) -> str:
        """SHA-256 of the content: equal for equal policies."""
        return _digest(_plain(self, "policy"))

    def to_json(self) -> str:
        """The policy as JSON, with schema version and digest.

        Returns
        -------
        str
        """
        content = _plain(self, "policy")
        return json.dumps(
            {"schema": SCHEMA, "digest": _digest(content), "policy": content}, indent=1, ensure_ascii=False
        )

    def save(self, path: str | Path) -> None:
        """Write the policy; a file that was there stays whole until the new one is complete.

        Parameters
        ----------
        path : str or Path
            Where to.
        """
        write_atomically(path, self.to_json().encode())

    @classmethod
    def from_json(cls, text: str, source: str = "policy") -> Policy:
        """Read and check a policy, of this schema or the one before.

        Parameters
        ----------
        text : str
            What `to_json` gave.
        source : str
            Where the text comes from, for error messages.

        Returns
        -------
        Policy

        Raises
        ------
        PolicyError
            Where the text is truncated, was changed, is of another version, or is not a policy.
        """
        content = _checked_content(text, source)
        if missing := {f.name for f in fields(cls)} - set(content):
            raise PolicyError(f"{source}: it lacks {', '.join(sorted(missing))}; save it again.")
        try:
            return cls(
                **content
                | {
                    "strategy": _read_strategy(content["strategy"]),
                    "validation": _read_validation(content["validation"]),
                    "classes": _read_list(content["classes"], "classes"),
                    "constraints": _read_list(content["constraints"], "constraints"),
                }
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise _unreadable(source, error) from None

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read and check a policy file.

        Parameters
        ----------
        path : str or Path
            What `save` wrote.

        Returns
        -------
        Policy
            Or a `PolicyError`, where the file is missing and as in `from_json`.
        """
        try:
            text = read_text(path)
        except FileNotFoundError:
            raise PolicyError(f"{path}: no such file; `capri tune … -o {path}` makes one.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path}: cannot be read as text ({error}).") from None
        except InputError as error:
            raise PolicyError(str(error)) from None
        return cls.from_json(text, str(path))


def to_logits(scores: ArrayLike, kind: ScoreKind, floor: float) -> NDArray[Any]:
    """Scores as logits: as they are, or log max(p, floor)."""
    array = check_scores(scores)
    if kind == "logits":
        _warn_if_probabilities(array)
        return array
    if array.min() < 0 or array.max() > 1 + 1e-6:
        raise InputError(
            f"scores are declared probabilities but range from {array.min():g} to {array.max():g}; "
            "they must lie in [0, 1]. If they are logits, give {argument}.",
            argument="scores",
            value="logits",
        )
    return np.log(np.maximum(array.astype(np.promote_types(array.dtype, np.float32), copy=False), floor))


_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # all but the ends of lines and tabs


def _label(value: Any, k: int) -> Label:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str) and re.search(_CONTROL, plain):
        raise InputError(f"classes[{k}] is {short(value)}, which holds control characters; leave them out.")
    if isinstance(plain, str | bool | int) or (isinstance(plain, float) and math.isfinite(plain)):
        return plain
    raise InputError(
        f"classes[{k}] is {short(value)}, which a policy file cannot keep; labels must be text, whole numbers, finite "
        "numbers, True or False. Name the classes, for instance with str(label)."
    )


# --------------------------------------------------------------------------------------------------------------------
# Reading


def _warn_if_probabilities(scores: NDArray[Any]) -> None:
    """Rows within [0, 1] that sum to 1 are hardly logits."""
    head = scores[:1000].astype(np.float64)
    if len(head) >= FEW and head.min() >= 0 and np.allclose(head.sum(axis=1), 1, atol=1e-2):
        warnings.warn(
            ProbabilityWarning(
                "the rows of the scores sum to 1, as probabilities do, and are taken for logits; give {argument} if "
                "they are probabilities.",
                argument="scores",
                value="proba",
            ),
            stacklevel=4,
        )


def _checked_content(text: str, source: str) -> dict[str, Any]:
    """The content of a policy file in the present schema, its digest checked."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{source}: not complete JSON ({error}); the file is truncated or not a policy.") from None
    if not isinstance(document, dict) or not {"schema", "digest", "policy"} <= set(document):
        raise PolicyError(f"{source}: not a capri policy; it lacks schema, digest or policy.")
    schema, content = document["schema"], document["policy"]
    if type(schema) is not int or schema not in (1, SCHEMA):
        raise PolicyError(
            f"{source}: schema version {schema!r}, this capri reads 1 and {SCHEMA}; use a capri that wrote it."
        )
    if not isinstance(content, dict) or _digest(content) != document["digest"]:
        raise PolicyError(f"{source}: its content does not match its digest; it was changed after it was saved.")
    try:
        content = _plain(content, "policy")  # numbers and text that could not have been saved
        return content if schema == SCHEMA else _from_schema_1(content)
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(source, error) from None


def _from_schema_1(old: Mapping[str, Any]) -> dict[str, Any]:
    """Schema 1 had names in place of labels, and kept the side, smoothing and how tuning ended among other things."""
    content, data, validation = dict(old), dict(old["data"]), dict(old["validation"])
    content["classes"] = content.pop("class_names")
    content["reason"] = validation.pop("reason", "")
    content["side"] = "loss" if data.pop("side", None) == "loss" or old["method"] == "bilevel" else "posthoc"
    smoothing = data.pop("label_smoothing", [0.0] * len(content["classes"]))
    content["strategy"] = {**content["strategy"], "smoothing": smoothing}
    complete = set(validation) == {f.name for f in fields(Validation)} - {"in_sample"}
    if validation and not complete:  # a search's own figures
        data["validation"] = validation
    return content | {"validation": validation if complete else None, "data": data}


def _read_list(given: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(given, list):  # text would be taken apart
        raise InputError(f"{name} is {short(given)}; it must be a list.")
    return tuple(given)


def _read_strategy(parts: Mapping[str, Any]) -> Strategy:
    for f in fields(Strategy):
        if not _are_errors(parts[f.name]):  # NumPy would read numbers from text
            raise InputError(f"{f.name} is {short(parts[f.name])}; it must be a list of numbers.")
    return Strategy(**{f.name: np.array(parts[f.name], float) for f in fields(Strategy)})


def _read_validation(given: Mapping[str, Any] | None) -> Validation | None:
    if given is None:
        return None
    if "in_sample" not in given:  # until 0.1 the improvement was that of the samples that tuned
        given = {**given, "in_sample": given["improvement"], "improvement": None, "interval": None}
    figures = {when: {name: _or_nan(v) for name, v in given[when].items()} for when in ("before", "after")}
    interval = None if given["interval"] is None else tuple(map(_or_nan, given["interval"]))
    return Validation(**{**given, **figures, "in_sample": _or_nan(given["in_sample"]), "interval": interval})


def _or_nan(value: Any) -> Any:
    """A figure that was NaN is null on disk."""
    return math.nan if value is None else value


def _unreadable(source: str, error: Exception) -> PolicyError:
    return PolicyError(f"{source}: its content does not make a policy ({error}); save it again.")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed")


# --------------------------------------------------------------------------------------------------------------------
# Writing


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _plain(value: Any, where: str) -> Any:
    """JSON's own types. NaN, such as the error of a class without samples, is undefined and becomes null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_plain(str(key), where): _plain(v, f"{where}.{key}") for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or (isinstance(value, str | bool | int | float) and _keeps(value)):
        return value
    raise InputError(f"{where} is {short(value)}, which has no place in a policy; give text, finite numbers or lists.")


def _keeps(value: str | float) -> bool:
    """Whether a file can keep it: text of whole characters, numbers that other readers know as well."""
    try:
        return value.encode() is not None if isinstance(value, str) else math.isfinite(value)
    except (UnicodeEncodeError, OverflowError):
        return False

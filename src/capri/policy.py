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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from importlib import resources
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, InputWarning, Ints, check_names, check_scores, short
from capri._fields import COLUMNS, MAPPING, NUMBER, TEXT, Rule, are_errors, check_fields, is_number
from capri._files import read_text, write_atomically
from capri._provenance import versions
from capri.blocks.source import Block, Source
from capri.classes import Classes
from capri.constraints import as_constraint
from capri.forms import ClassContext, Vector
from capri.objectives import ObjectiveLike, as_objective
from capri.shares import class_shares, share_correction
from capri.strategy import Strategy
from capri.validation import Validation

if TYPE_CHECKING:
    from torch import nn

SCHEMA = 2  # of a policy that decides every sample
ABSTAINING = 3  # of one that may leave samples undecided, which readers of schema 2 must not overlook
SOME_OF_EACH = (1000, 50, 5)  # training samples: many, medium, few
UNDECIDED = -1  # in the place of a column
FEW = 10  # rows that may sum to 1 by chance
ROUNDING = 1e-6  # how far beyond 0 and 1 probabilities may lie, as runtimes in float32 give them
FLOOR = 1e-6  # the smallest probability that is told from 0, unless a policy says otherwise

ScoreKind: TypeAlias = Literal["logits", "proba"]
Side: TypeAlias = Literal["posthoc", "loss"]
Label: TypeAlias = str | int | float | bool


class ProbabilityWarning(InputWarning):
    """Scores that were declared logits look like probabilities."""


class PolicyError(InputError):
    """A policy file that cannot be trusted: truncated, changed, of another version, or not a policy."""


# --------------------------------------------------------------------------------------------------------------------
# The policy


def _are_thresholds(values: Any) -> bool:
    return isinstance(values, tuple) and all(is_number(t) and 0 <= t < math.inf for t in values)


_POLICY_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("objective", "method", "reason"), TEXT),
    **dict.fromkeys(("dictionary", "data", "versions"), MAPPING),
    **dict.fromkeys(("attributes", "weights"), COLUMNS),
    "scores": ("'logits' or 'proba'", lambda v: isinstance(v, str) and v in ("logits", "proba")),
    "side": ("'posthoc' or 'loss'", lambda v: isinstance(v, str) and v in ("posthoc", "loss")),
    "floor": ("a probability above 0 and below 1", lambda v: is_number(v) and 0 < v < 1),
    "constraints": ("a tuple of texts", lambda v: isinstance(v, tuple) and all(isinstance(c, str) for c in v)),
    "validation": ("a Validation or None", lambda v: v is None or isinstance(v, Validation)),
    "thresholds": ("a threshold of at least 0 per class, or None", lambda v: v is None or _are_thresholds(v)),
    "seed": ("a whole number or None", lambda v: v is None or (isinstance(v, Integral) and not isinstance(v, bool))),
}

#: What others look up in `data`, where it is there.
_DATA_RULES: Mapping[str, Rule] = {
    "digest": TEXT,
    "target_shares": ("a list of numbers, at least 0, not all 0", lambda v: _are_amounts(v) and sum(v) > 0),
    "temperature": NUMBER,
    "path": ("a mapping to numbers", lambda v: isinstance(v, Mapping) and are_errors(list(v.values()))),
}


def _are_amounts(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(is_number(v) and 0 <= v < math.inf for v in values)


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
    thresholds : tuple of float, optional
        Of each class: a sample that is decided for it is left undecided where the best adjusted score exceeds the
        second by less. None decides every sample.

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
    thresholds: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        given: Any = self.classes
        if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
            raise InputError(f"classes is {short(given)}; it must be one label per class.")
        object.__setattr__(self, "classes", tuple(_label(c, k) for k, c in enumerate(given)))
        check_names(self.class_names, self.strategy.n_classes, "classes")
        check_fields(self, _POLICY_RULES)
        self._check_data()
        if self.thresholds is not None and len(self.thresholds) != self.strategy.n_classes:
            raise InputError(
                f"thresholds has {len(self.thresholds)} entries for {self.strategy.n_classes} classes; give one each."
            )
        if self.validation is not None:
            self.validation.check_classes(self.strategy.n_classes)
            if tuple(self.validation.class_names) != self.class_names:
                object.__setattr__(self, "validation", replace(self.validation, class_names=self.class_names))

    def _check_data(self) -> None:
        for name, (expected, holds) in _DATA_RULES.items():
            if (value := self.data.get(name)) is not None and not holds(value):
                raise InputError(f"data[{name!r}] is {short(value)}; it must be {expected}.")
        shares = self.data.get("target_shares")
        if shares is not None and len(shares) != self.strategy.n_classes:
            raise InputError(
                f"data['target_shares'] has {len(shares)} entries for {self.strategy.n_classes} classes; give one each."
            )

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

    def predict(self, scores: ArrayLike | Source) -> NDArray[Any]:
        """The labels decided on.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K) or Source
            As in `apply`; or a source of row blocks (`capri.blocks`), of which one block at a time is in memory.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of the type that they had in tuning. Of a policy with `thresholds` they are objects, and None where a
            sample is left undecided.
        """
        if isinstance(scores, Source):
            decided = list(scores.arranged(Classes.of(self.classes)).mapped(self.decide))
            return self.labelled(np.concatenate(decided))
        return self.labelled(self.columns(self.apply(scores)))

    def columns(self, adjusted: NDArray[np.float64]) -> Ints:
        """The columns that adjusted scores decide for; `UNDECIDED` where the margin is below the threshold.

        Parameters
        ----------
        adjusted : ndarray of shape (n_samples, K)
            As `apply` gives them.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        best = np.asarray(adjusted.argmax(axis=1), dtype=np.int64)
        if self.thresholds is None:
            return best
        least = np.take_along_axis(adjusted, best[:, None], axis=1)
        near = (least - adjusted < np.array(self.thresholds)[best][:, None]).sum(axis=1)  # itself among them, if any
        return np.where(near > 1, UNDECIDED, best)

    def labelled(self, columns: Ints) -> NDArray[Any]:
        """Labels of columns; of a policy with thresholds as objects, and None for `UNDECIDED`.

        Parameters
        ----------
        columns : ndarray of shape (n_samples,)
            As `columns` and `decide` give them.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if self.thresholds is None:
            return np.asarray(self.labels[columns])
        found = np.full(len(columns), None, dtype=object)
        found[columns >= 0] = self.labels[columns[columns >= 0]]
        return found

    def accepts(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Which samples are decided.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            As in `apply`.

        Returns
        -------
        ndarray of bool, shape (n_samples,)
        """
        return np.asarray(self.columns(self.apply(scores)) >= 0)

    def decide(self, block: Block) -> Ints:
        """The columns decided on, of one block of a source; `UNDECIDED` where none is.

        Parameters
        ----------
        block : Block
            Of scores in the order of the classes.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self.columns(self.adjust(block))

    def adjust(self, block: Block) -> NDArray[np.float64]:
        """Adjusted scores of one block of a source.

        Parameters
        ----------
        block : Block
            Of scores in the order of the classes.

        Returns
        -------
        ndarray of shape (n, K)
        """
        self.require_posthoc()
        logits = to_logits(block.scores, self.scores, self.floor, doubted=block.start == 0)
        return self.strategy.adjust(logits)

    def for_shares(
        self,
        shares: ArrayLike | Mapping[Any, float],
        *,
        old: ArrayLike | Mapping[Any, float] | None = None,
        objective: ObjectiveLike | None = None,
        temperature: float | None = None,
    ) -> Policy:
        """The policy for a world in which the classes have other shares, and look as they did.

        Of objectives on class errors alone, such as "balanced" or "cvar:0.2", the best decision does not depend on
        shares, and the policy stays as it is. Of sums c_k Err_k that do depend on them, such as the plain error and
        costs of the true class, the best decision of a calibrated model takes log c(new) − log c(old) off the offsets,
        times its temperature: for the plain error log(new / old).

        Parameters
        ----------
        shares : per class
            On any scale, above 0: a list in the order of the classes, or a mapping or pandas Series by label.
            `capri.estimate_shares` finds them by scores without labels.
        old : per class, optional
            Those that it was tuned for, where the policy does not say.
        objective : name, Objective or function, optional
            What it was tuned for, where the policy's name for it is not known, as of functions.
        temperature : float, optional
            By how much the model's logits are too large; by default what tuning found, or 1, the model at its word.

        Returns
        -------
        Policy
            This one, or a new one without `validation`, whose figures were of other shares.

        Raises
        ------
        InputError
            Where the objective or a constraint depends on shares and has no closed form, such as F1 and precision.

        Examples
        --------
        >>> policy = Policy(Strategy.of(2), "plain", ("ham", "spam"), data={"target_shares": [0.9, 0.1]})
        >>> policy.for_shares({"ham": 0.5, "spam": 0.5}).strategy.l.round(3)
        array([ 1.099, -1.099])
        """
        self.require_posthoc()
        classes = Classes.of(self.classes)
        tuned_for = (self.data.get("target_shares") or self.attributes.get("freq")) if old is None else old
        if tuned_for is None:
            raise InputError(
                "the policy does not say which class shares it was tuned for; give {argument}.", argument="old"
            )
        before = class_shares(tuned_for, classes, "old")
        after = class_shares(shares, classes, "shares")
        shift = self._share_correction(self.objective if objective is None else objective, before, after)
        if not shift.any():
            return self
        delta = self.strategy.delta
        if (delta != delta[0]).any():
            raise InputError(
                "the policy has multipliers, so other shares have no closed form; tune again, with target_shares=."
            )
        if temperature is None:
            known_as = self.data.get("temperature")
            temperature = 1.0 if known_as is None else float(known_as)
        if not 0 < temperature < math.inf:
            raise InputError(f"temperature is {short(temperature)}; it must be a positive number.")
        l = self.strategy.l - delta[0] * temperature * shift
        known = {"target_shares": (after / after.sum()).tolist(), "tuned_for": (before / before.sum()).tolist()}
        return replace(
            self,
            strategy=replace(self.strategy, l=l - l.mean()),
            reason=f"for other class shares; {self.reason}",
            validation=None,
            data={name: value for name, value in self.data.items() if name != "promise"} | known,  # of other shares
        )

    def _share_correction(self, objective: ObjectiveLike, old: Vector, new: Vector) -> Vector:
        k = self.strategy.n_classes
        context = ClassContext.of(
            old,
            class_names=self.class_names,
            weights=self.attributes.get("weights"),
            groups=np.arange(k),  # which they are does not matter, nor which classes have many samples:
            class_counts=np.resize(SOME_OF_EACH, k),  # neither has to do with shares
        )
        kept = [as_constraint(constraint).objective for constraint in self.constraints]
        return share_correction(as_objective(objective), kept, context, old, new)

    def as_module(self) -> nn.Module:
        """The adjustment as a module of torch: scores (…, K) in, adjusted scores out, for the end of a network.

        Where the policy has thresholds, a second output says which samples are decided. Its Δ and l are buffers in
        float64, so that it decides as `predict` does; `.float()` converts them.

        Returns
        -------
        torch.nn.Module

        Raises
        ------
        InputError
            Where the policy is a loss.

        Examples
        --------
        >>> import torch
        >>> policy = Policy(Strategy.logit_adjustment([90, 10]), objective="balanced", classes=("common", "rare"))
        >>> net = torch.nn.Sequential(torch.nn.Identity(), policy.as_module())
        >>> policy.labels[net(torch.tensor([[1.0, 0.0]])).argmax(1).numpy()]
        array(['rare'], dtype='<U6')
        """
        self.require_posthoc()
        from capri._torch import AdjustedScores

        return AdjustedScores(self.strategy, self.scores, self.floor, self.thresholds)

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
        return _digest(self._content())

    def _content(self) -> dict[str, Any]:
        """What a file holds. Thresholds are there if the policy has any."""
        content = _plain(self, "policy")
        return {name: value for name, value in content.items() if name != "thresholds" or value is not None}

    def to_json(self) -> str:
        """The policy as JSON, with schema version and digest.

        Returns
        -------
        str
        """
        content, schema = self._content(), SCHEMA if self.thresholds is None else ABSTAINING
        return json.dumps(
            {"schema": schema, "digest": _digest(content), "policy": content}, indent=1, ensure_ascii=False
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
        if missing := {f.name for f in fields(cls)} - set(content) - {"thresholds"}:
            raise PolicyError(f"{source}: it lacks {', '.join(sorted(missing))}; save it again.")
        try:
            return cls(
                **content
                | {
                    "strategy": _read_strategy(content["strategy"]),
                    "validation": _read_validation(content["validation"]),
                    "classes": _read_list(content["classes"], "classes"),
                    "constraints": _read_list(content["constraints"], "constraints"),
                    "thresholds": _read_thresholds(content.get("thresholds")),
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


def json_schema() -> dict[str, Any]:
    """The JSON Schema of policy files, for readers in other languages; it comes as `policy.schema.json`.

    Returns
    -------
    dict
        JSON Schema, draft 2020-12. It says all that it can of what `Policy.load` asks for; lists of one length, names
        that differ as text and the digest are beyond it.

    Examples
    --------
    >>> json_schema()["properties"]["schema"]["enum"]
    [2, 3]
    """
    return dict(json.loads((resources.files(__package__) / "policy.schema.json").read_text(encoding="utf-8")))


def to_logits(scores: ArrayLike, kind: ScoreKind, floor: float, *, doubted: bool = True) -> NDArray[Any]:
    """Scores as logits: as they are, or log max(p, floor). doubted: is there a warning if they look like the others?"""
    array = check_scores(scores)
    if kind == "logits":
        if doubted:
            _warn_if_probabilities(array)
        return array
    if array.min() < -ROUNDING or array.max() > 1 + ROUNDING:
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
                "the rows of the scores sum to 1, as probabilities do, and are taken for logits; if they "
                "are probabilities, tune with {argument}.",
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
    if type(schema) is not int or schema not in (1, SCHEMA, ABSTAINING):
        raise PolicyError(
            f"{source}: schema version {schema!r}, this capri reads 1 to {ABSTAINING}; use a capri that wrote it."
        )
    if not isinstance(content, dict) or _digest(content) != document["digest"]:
        raise PolicyError(f"{source}: its content does not match its digest; it was changed after it was saved.")
    try:
        content = _plain(content, "policy")  # numbers and text that could not have been saved
        if (content.get("thresholds") is not None) != (schema == ABSTAINING):
            raise InputError(f"thresholds are of schema {ABSTAINING}, which has them always")
        return _from_schema_1(content) if schema == 1 else content
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as error:
        raise _unreadable(source, error) from None


_VALIDATION_OF_SCHEMA_1 = {
    *("objective", "before", "after", "errors_before", "errors_after"),
    *("samples", "improvement", "interval", "feasible"),
}


def _from_schema_1(old: Mapping[str, Any]) -> dict[str, Any]:
    """Schema 1 had names in place of labels, and kept the side, smoothing and how tuning ended among other things."""
    content, data, validation = dict(old), dict(old["data"]), dict(old["validation"])
    content["classes"] = content.pop("class_names")
    content["reason"] = validation.pop("reason", "")
    content["side"] = "loss" if data.pop("side", None) == "loss" or old["method"] == "bilevel" else "posthoc"
    smoothing = data.pop("label_smoothing", [0.0] * len(content["classes"]))
    content["strategy"] = {**content["strategy"], "smoothing": smoothing}
    complete = set(validation) == _VALIDATION_OF_SCHEMA_1
    if validation and not complete:  # a search's own figures
        data["validation"] = validation
    return content | {"validation": validation if complete else None, "data": data}


def _read_list(given: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(given, list):  # text would be taken apart
        raise InputError(f"{name} is {short(given)}; it must be a list.")
    return tuple(given)


def _read_thresholds(given: Any) -> tuple[Any, ...] | None:
    return None if given is None else _read_list(given, "thresholds")


def _read_strategy(parts: Mapping[str, Any]) -> Strategy:
    for f in fields(Strategy):
        if not are_errors(parts[f.name]):  # NumPy would read numbers from text
            raise InputError(f"{f.name} is {short(parts[f.name])}; it must be a list of numbers.")
    return Strategy(**{f.name: np.array(parts[f.name], float) for f in fields(Strategy)})


def _read_validation(given: Mapping[str, Any] | None) -> Validation | None:
    if given is None:
        return None
    if "in_sample" not in given:  # until 0.1 the improvement was that of the samples that tuned
        given = {**given, "in_sample": given["improvement"], "improvement": None, "interval": None}
    figures = {when: {name: _or_nan(v) for name, v in given[when].items()} for when in ("before", "after")}
    figures |= {name: _with_nan(given.get(name, {})) for name in ("ladder", "limits")}
    interval = None if given["interval"] is None else tuple(map(_or_nan, given["interval"]))
    return Validation(**{**given, **figures, "in_sample": _or_nan(given["in_sample"]), "interval": interval})


def _with_nan(rows: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(map(_or_nan, values)) for name, values in rows.items()}


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
        value = {f.name: getattr(value, f.name) for f in fields(value) if f.metadata.get("kept", True)}
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

"""The policy: the artefact that leaves the laboratory.

It holds what was tuned (the strategy and the W behind it), on what (classes, attributes, a digest of the data), to what
(objective, constraints) and what it bought on validation. On disk it is JSON with a schema version and a digest of its
own content: loading checks everything and executes nothing; saving is atomic.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_names, check_scores, short
from capri._files import write_atomically
from capri._provenance import versions
from capri.strategy import Strategy

SCHEMA = 1
_KINDS: Mapping[str, tuple[tuple[str, ...], tuple[type, ...]]] = {
    "text": (("objective", "method"), (str,)),
    "a tuple of texts": (("constraints",), (tuple,)),
    "a mapping": (("attributes", "dictionary", "weights", "validation", "data", "versions"), (Mapping,)),
    "a whole number or None": (("seed",), (Integral, NoneType)),
    "a number": (("floor",), (Real,)),
}
ScoreKind: TypeAlias = Literal["logits", "proba"]


class PolicyError(InputError):
    """A policy file that cannot be trusted: truncated, changed, of another version, or not a policy."""


@dataclass(frozen=True, eq=False)
class Policy:
    """A tuned strategy with its provenance; `apply` is all that serving needs.

    scores: whether the model gives "logits" or "proba"; probabilities become log max(p, floor). weights: W by row
    ("l", "delta", and "residual" where classes deviate from the prior). dictionary: how D was made. validation: figures
    "before" and "after" tuning, with the errors per class.

    >>> policy = Policy(Strategy.logit_adjustment([90, 10]), objective="balanced", class_names=("common", "rare"))
    >>> policy.predict([[1.0, 0.0]])
    array(['rare'], dtype='<U6')
    """

    strategy: Strategy
    objective: str
    class_names: tuple[str, ...]
    scores: ScoreKind = "logits"
    floor: float = 1e-12
    method: str = "given"
    constraints: tuple[str, ...] = ()
    attributes: Mapping[str, list[float]] = field(default_factory=dict)
    dictionary: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, list[float]] = field(default_factory=dict)
    validation: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=versions)

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", check_names(self.class_names, self.strategy.n_classes))
        if self.scores not in ("logits", "proba"):
            raise InputError(f"scores is {self.scores!r}; it must be 'logits' or 'proba'.")
        for expected, (names, kinds) in _KINDS.items():
            for name in names:
                if not isinstance(value := getattr(self, name), kinds):
                    raise InputError(f"{name} is {short(value)}; it must be {expected}.")
        if not 0 < self.floor < 1:
            raise InputError(f"floor is {self.floor!r}; it must be a probability above 0 and below 1.")

    # -- use ---------------------------------------------------------------------------------------------------------

    def apply(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Adjusted scores Δ∘o − l, (n_samples, K), in plain NumPy; their argmax is the decision."""
        return self.strategy.adjust(to_logits(scores, self.scores, self.floor))

    def predict(self, scores: ArrayLike) -> NDArray[np.str_]:
        """The class names decided on."""
        return np.asarray(self.class_names)[self.apply(scores).argmax(axis=1)]

    # -- on disk -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The policy as JSON, with schema version and digest."""
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "strategy"}
        content["strategy"] = {f.name: getattr(self.strategy, f.name).tolist() for f in fields(Strategy)}
        plain = _plain(content, "policy")
        return json.dumps({"schema": SCHEMA, "digest": _digest(plain), "policy": plain}, indent=1, ensure_ascii=False)

    def save(self, path: str | Path) -> None:
        """Write the policy; a file that was there stays whole until the new one is complete."""
        write_atomically(path, self.to_json().encode())

    @classmethod
    def from_json(cls, text: str, source: str = "policy") -> Policy:
        """Read and check a policy."""
        content: dict[str, Any] = dict(_checked_content(text, source))
        if missing := {f.name for f in fields(cls)} - set(content):
            raise PolicyError(f"{source}: it lacks {', '.join(sorted(missing))}; save it again.")
        try:
            strategy = content.pop("strategy")
            content["strategy"] = Strategy(**{name: np.array(values, float) for name, values in strategy.items()})
            for name in ("class_names", "constraints"):
                content[name] = tuple(content[name])
            return cls(**content)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise PolicyError(f"{source}: its content does not make a policy ({error}); save it again.") from None

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read and check a policy file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise PolicyError(f"{path}: no such file; `capri tune … -o {path}` makes one.") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path}: cannot be read as text ({error}).") from None
        return cls.from_json(text, str(path))


def to_logits(scores: ArrayLike, kind: ScoreKind, floor: float) -> NDArray[Any]:
    """Scores as logits: as they are, or log max(p, floor)."""
    array = check_scores(scores)
    if kind == "logits":
        return array
    if array.min() < 0 or array.max() > 1 + 1e-6:
        raise InputError(
            f"scores are declared probabilities but range from {array.min():g} to {array.max():g}; "
            'they must lie in [0, 1]. For logits use scores="logits".'
        )
    return np.log(np.maximum(array.astype(np.promote_types(array.dtype, np.float32), copy=False), floor))


def _checked_content(text: str, source: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{source}: not complete JSON ({error}); the file is truncated or not a policy.") from None
    if not isinstance(document, dict) or not {"schema", "digest", "policy"} <= set(document):
        raise PolicyError(f"{source}: not a capri policy; it lacks schema, digest or policy.")
    if document["schema"] != SCHEMA:
        raise PolicyError(
            f"{source}: schema version {document['schema']!r}, this capri reads {SCHEMA}; use a capri that wrote it."
        )
    if not isinstance(document["policy"], dict) or _digest(document["policy"]) != document["digest"]:
        raise PolicyError(f"{source}: its content does not match its digest; it was changed after it was saved.")
    return document["policy"]


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _plain(value: Any, where: str) -> Any:
    """JSON's own types. NaN, such as the error of a class without samples, is undefined and becomes null."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(v, f"{where}.{key}") for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InputError(f"{where} is {short(value)}, which has no place in a policy; give text, finite numbers or lists.")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed")

"""The adjustment as nodes of ONNX: scores in, adjusted scores and labels out, as `Policy.predict` computes them.

    (Softmax) → (Max with the floor → Log) → Cast to float64 → (Mul by Δ) → Sub l → ArgMax → Gather of the labels

Where samples may be left undecided, it is counted how many classes come nearer to the best than its threshold; if these
are more than itself, the label is that of no class: "" for text, −1 (or the least number) for whole numbers, NaN. Only
operators that all versions have alike are used: sums are products with ones, and the best score is picked by its place.

Constants are nodes, not initializers, which old versions of the format would have as inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from capri._checks import InputError
from capri.policy import Policy

#: The number types of scores that are taken, and their NumPy types.
NUMBERS = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}
_LABELS = {"i": TensorProto.INT64, "U": TensorProto.STRING, "b": TensorProto.BOOL, "f": TensorProto.DOUBLE}


@dataclass(frozen=True)
class Adjustment:
    """How a policy becomes nodes.

    Parameters
    ----------
    policy : Policy
        Tuned post-hoc.
    number : int
        The number type of the scores, of TensorProto.
    order : sequence of int, optional
        The column of the scores that each class of the policy has; in their own order if not given.
    softmax : bool
        Whether a policy on probabilities takes the softmax of the scores.
    exact : bool
        Whether to compute in float64, as `Policy.predict` does, or in the scores' own type.
    """

    policy: Policy
    number: int = TensorProto.FLOAT
    order: Sequence[int] | None = None
    softmax: bool = False
    exact: bool = True

    @property
    def labels(self) -> NDArray[Any]:
        """The labels as ONNX has them: of one type, those of several as text."""
        labels = self.policy.labels
        return labels if labels.dtype.kind in _LABELS else np.array(self.policy.class_names)

    @property
    def label_type(self) -> int:
        """Of TensorProto."""
        return _LABELS[self.labels.dtype.kind]

    @property
    def adjusted_type(self) -> int:
        """Of the adjusted scores, of TensorProto."""
        return TensorProto.DOUBLE if self.exact else self._own_type

    @property
    def _own_type(self) -> int:
        """Logarithms are taken in float32 or more, as in `Policy.apply`."""
        half = self.number == TensorProto.FLOAT16 and self.policy.scores == "proba"
        return TensorProto.FLOAT if half else self.number

    def nodes(
        self, scores: str, adjusted: str, label: str, unique: Callable[[str], str], accepted: str | None = None
    ) -> list[NodeProto]:
        """The nodes from the value `scores` (n, K) to the values `adjusted` (n, K) and `label` (n,).

        unique: makes a name that the graph does not have yet. accepted: the value (n,) that says which samples are
        decided, of a policy with thresholds.
        """
        chain, strategy = _Chain(scores, unique), self.policy.strategy
        if self.order is not None and list(self.order) != list(range(strategy.n_classes)):
            chain.then("Gather", np.array(self.order, np.int64), axis=1)
        if self.softmax:
            chain.then("Softmax", axis=1)
        if self.policy.scores == "proba":
            if self._own_type != self.number:
                chain.then("Cast", to=self._own_type)
            chain.then("Max", np.array(self.policy.floor, NUMBERS[self._own_type])).then("Log")
        if self.adjusted_type != (self._own_type if self.policy.scores == "proba" else self.number):
            chain.then("Cast", to=self.adjusted_type)
        if (strategy.delta != 1).any():
            chain.then("Mul", self._constant(strategy.delta))
        chain.then("Sub", self._constant(strategy.l), output=adjusted)
        if self.policy.thresholds is not None:
            self._open(chain, label, accepted)
            return chain.nodes
        chain.then("ArgMax", axis=1, keepdims=0)  # of equal ones the first
        index, chain.value = chain.value, chain.constant(self.labels)
        chain.then("Gather", index, output=label, axis=0)
        return chain.nodes

    def _open(self, chain: _Chain, label: str, accepted: str | None) -> None:
        """Labels that may be left open, of the adjusted scores that the chain has come to."""
        k, dtype = self.policy.strategy.n_classes, NUMBERS[self.adjusted_type]
        adjusted, ones = chain.value, np.ones((k, 1), dtype)
        index = chain.then("ArgMax", axis=1, keepdims=1).value
        here = chain.then("Equal", np.arange(k)[None]).then("Cast", to=self.adjusted_type).value
        best = chain.then("Mul", adjusted).then("MatMul", ones).value
        chain.value = here
        limit = chain.then("MatMul", self._constant(np.array(self.policy.thresholds)[:, None])).value
        chain.value = best
        chain.then("Sub", adjusted).then("Less", limit).then("Cast", to=self.adjusted_type).then("MatMul", ones)
        decided = chain.then("Less", np.array(1.5, dtype)).value
        flat = {} if accepted is None else {"output": accepted}
        chain.then("Reshape", np.array([-1]), **flat)
        chain.value = decided
        kept = chain.then("Cast", to=TensorProto.INT64).value
        chain.value = index
        moved = (
            chain.then("Sub", np.array(k)).then("Mul", kept).then("Add", np.array(k)).then("Reshape", np.array([-1]))
        )
        last, chain.value = moved.value, chain.constant(self._with_none())
        chain.then("Gather", last, output=label, axis=0)

    def _with_none(self) -> NDArray[Any]:
        """The labels, and at the end that of no class."""
        labels, kind = self.labels, self.labels.dtype.kind
        none: Any = {"U": "", "f": np.nan, "i": -1 if -1 not in self.labels.tolist() else np.iinfo(np.int64).min}.get(
            kind
        )
        if none is None or none in labels.tolist():
            raise InputError(
                "labels that are truth values, or empty text, leave no label for undecided samples; name the classes."
            )
        return np.append(labels, none)

    def _constant(self, values: NDArray[np.float64]) -> NDArray[Any]:
        dtype = NUMBERS[self.adjusted_type]
        with np.errstate(over="ignore"):
            constant = values.astype(dtype)
        if not np.isfinite(constant).all():
            raise InputError(
                f"offsets or multipliers do not fit into {np.dtype(dtype)}; compute in float64, with {{argument}}.",
                argument="exact",
            )
        return constant


@dataclass
class _Chain:
    """Nodes one after the other, each taking what the last one gave."""

    value: str
    unique: Callable[[str], str]
    nodes: list[NodeProto] = field(default_factory=list)

    def then(self, kind: str, *others: NDArray[Any] | str, output: str | None = None, **attributes: Any) -> _Chain:
        inputs = [other if isinstance(other, str) else self.constant(other) for other in others]
        output = self.unique(kind.lower()) if output is None else output
        self.nodes.append(helper.make_node(kind, [self.value, *inputs], [output], name=self.unique(kind), **attributes))
        self.value = output
        return self

    def constant(self, values: NDArray[Any]) -> str:
        name = self.unique("constant")
        if values.dtype.kind == "U":
            text = [label.encode() for label in values.tolist()]
            tensor = helper.make_tensor(name, TensorProto.STRING, values.shape, text)
        else:
            tensor = numpy_helper.from_array(values, name)
        self.nodes.append(helper.make_node("Constant", [], [name], name=self.unique("Constant"), value=tensor))
        return name

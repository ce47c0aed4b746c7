"""What skl2onnx needs to know of `CAPClassifierCV` and `LogitAdjuster`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from capri._checks import InputError
from capri.onnx.nodes import Adjustment
from capri.policy import Policy
from capri.posthoc import CAPClassifierCV, LogitAdjuster

_LABEL_OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False], "output_class_labels": [False, True]}


def register_converters() -> None:
    """Let skl2onnx convert `CAPClassifierCV` and `LogitAdjuster`, alone and at the end of pipelines.

    As of any classifier the first output is the label, by the policy. The second is what the model said, its
    probabilities or margins; of `LogitAdjuster`, which is given scores, it is the adjusted scores.

    Examples
    --------
    >>> from skl2onnx import to_onnx
    >>> from skl2onnx.common.data_types import FloatTensorType
    >>> from capri import LogitAdjuster
    >>> register_converters()
    >>> adjuster = LogitAdjuster.from_counts({"common": 90, "rare": 10})
    >>> model = to_onnx(adjuster, initial_types=[("scores", FloatTensorType([None, 2]))], options={"zipmap": False})
    >>> [output.name for output in model.graph.output]
    ['label', 'probabilities']
    """
    from skl2onnx import update_registered_converter

    for model, convert in ((CAPClassifierCV, _convert_classifier), (LogitAdjuster, _convert_adjuster)):
        update_registered_converter(model, f"Capri{model.__name__}", _shapes, convert, options=dict(_LABEL_OPTIONS))


def _shapes(operator: Any) -> None:
    """The types and shapes of the label and of the scores."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType

    labels = _labelled(operator.raw_operator.policy_, operator.scope_inst, operator.raw_operator).labels
    first = operator.inputs[0].get_first_dimension()
    kind = StringTensorType if labels.dtype.kind == "U" else Int64TensorType
    operator.outputs[0].set_type(kind([first]))
    operator.outputs[1].type.shape = [first, len(labels)]


def _labelled(policy: Policy, scope: Any, model: Any) -> Policy:
    """The policy with labels as skl2onnx has them: text or whole numbers; by position with its option `nocl`."""
    if scope.get_options(model, {"nocl": False})["nocl"]:
        return replace(policy, classes=tuple(range(len(policy.classes))))
    if policy.labels.dtype.kind in "iU":
        return policy
    whole = tuple(int(label) for label in policy.classes if not isinstance(label, str))
    if policy.classes != whole:
        raise InputError("skl2onnx has labels of whole numbers or of text only; convert with the option nocl=True.")
    return replace(policy, classes=whole)


def _convert_adjuster(scope: Any, operator: Any, container: Any) -> None:
    label, adjusted = (output.full_name for output in operator.outputs)
    _adjust(scope, operator, container, operator.inputs[0].full_name, label, adjusted)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    """The model's own scores, then the policy."""
    from skl2onnx.common.data_types import guess_proto_type

    model = operator.raw_operator
    inner = model.estimator_
    while type(inner).__name__ == "FrozenEstimator":
        inner = inner.estimator
    if not np.array_equal(inner.classes_, model.classes_):
        raise InputError("the model has not met every class, and ONNX has no scores for these; fit with refit=True.")
    margins = model.policy_.scores == "logits"
    scores = _own_scores(scope, operator, container, inner, margins)
    if margins and len(model.classes_) == 2:  # (0, z), whether there is one column or one for each class
        scores = _beside_zero(scope, container, scores, guess_proto_type(operator.outputs[1].type))
    container.add_node("Identity", [scores], [operator.outputs[1].full_name], name=scope.get_unique_operator_name("Id"))
    _adjust(scope, operator, container, scores, operator.outputs[0].full_name, None)


def _own_scores(scope: Any, operator: Any, container: Any, model: Any, margins: bool) -> str:
    """The wrapped model, a pipeline perhaps, and the name of its probabilities or margins."""
    from skl2onnx._parse import _parse_sklearn

    for part in (model, model.steps[-1][1]) if hasattr(model, "steps") else (model,):
        allowed = scope._get_allowed_options(part, fail=False) or ()
        options = {name: value for name, value in {"zipmap": False, "raw_scores": margins}.items() if name in allowed}
        for place in (scope, container):
            place.add_options(id(part), options)
    return str(_parse_sklearn(scope, model, operator.inputs)[1].full_name)


def _beside_zero(scope: Any, container: Any, scores: str, number: int) -> str:
    last, zero, both, index = (scope.get_unique_variable_name(name) for name in ("last", "zero", "both", "index"))
    container.add_initializer(index, TensorProto.INT64, [1], [-1])
    container.add_node("Gather", [scores, index], [last], name=scope.get_unique_operator_name("Gather"), axis=1)
    container.add_node("Sub", [last, last], [zero], name=scope.get_unique_operator_name("Sub"))
    container.add_node("Concat", [zero, last], [both], name=scope.get_unique_operator_name("Concat"), axis=1)
    return str(both)


def _adjust(scope: Any, operator: Any, container: Any, scores: str, label: str, adjusted: str | None) -> None:
    """The policy's nodes into the container."""
    from skl2onnx.common.data_types import guess_proto_type

    number = guess_proto_type(operator.outputs[1].type)
    policy = _labelled(operator.raw_operator.policy_, scope, operator.raw_operator)
    inner = scope.get_unique_variable_name("adjusted")
    nodes = Adjustment(policy, number).nodes(scores, inner, label, scope.get_unique_variable_name)
    if adjusted is not None:
        nodes.append(helper.make_node("Cast", [inner], [adjusted], to=number))
    for node in nodes:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        name = scope.get_unique_operator_name(node.op_type)
        container.add_node(node.op_type, list(node.input), list(node.output), name=name, **attributes)

"""A policy behind the scores of a model: which output these are, and what becomes of the model's own label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper

from capri._checks import InputError, short
from capri.classes import Classes
from capri.onnx.files import check
from capri.onnx.nodes import NUMBERS, Adjustment
from capri.policy import Policy

LEAST_OPSET = 8
MARK = "capri_policy"  # the metadata of a model that holds a policy: its digest
ADJUSTED, LABEL, ACCEPTED = "adjusted_scores", "label", "accepted"
_LABEL_NAMES = ("label", "output_label")  # what skl2onnx and its kin call it
_LABEL_TYPES = (TensorProto.INT64, TensorProto.INT32, TensorProto.STRING, TensorProto.BOOL)
_PASSING = ("ZipMap", "Identity", "Cast", "Normalizer", "Softmax")  # nodes that keep the columns in their order


def with_policy(
    model: ModelProto,
    policy: Policy,
    *,
    scores_output: str | None = None,
    label_output: str | None = None,
    softmax: bool = False,
    exact: bool = True,
) -> ModelProto:
    """Put a policy behind a model's scores; what was given stays as it is.

    The new model has all outputs of the old one, whose scores stay what they were: tuning changes decisions, not
    beliefs. Its label is the policy's, in place of the model's own if there is one, and `adjusted_scores` is new. Of a
    policy with thresholds `accepted` is new, too; where it is False, the label is "" or −1 (or NaN), that of no class.

    Parameters
    ----------
    model : onnx.ModelProto
        With an output of scores (n_samples, K), or with those maps by label that skl2onnx makes of them (ZipMap). It is
        of opset 8 or later.
    policy : Policy
        Tuned post-hoc on these scores. Where the model names its columns, they are matched to the policy's classes.
    scores_output : str, optional
        The output of the scores, where several could be.
    label_output : str, optional
        The output of the decisions: replaced if it is there, else added. By default `label` or `output_label`.
    softmax : bool
        Only for a policy on probabilities: they are the softmax of this output.
    exact : bool
        Compute in float64, as `Policy.predict` does. False stays in the number type of the scores, for devices without
        float64: where the best two are as near as its rounding, the other one may be taken.

    Returns
    -------
    onnx.ModelProto
        Its metadata `capri_policy` is the digest of the policy.

    Raises
    ------
    InputError
        Where the policy is a loss or of other classes, the model has no usable output, holds a policy already, or is of
        an opset too old.

    Examples
    --------
    >>> from capri import Strategy
    >>> from onnx import parser
    >>> model = parser.parse_model(
    ...     '<ir_version: 8, opset_import: ["": 17]> net (float[n, 2] x) => (float[n, 2] logits)'
    ...     "{ logits = Identity (x) }"
    ... )
    >>> policy = Policy(Strategy.of(2, l=[1.0, -1.0]), objective="balanced", classes=("common", "rare"))
    >>> [output.name for output in with_policy(model, policy).graph.output]
    ['logits', 'label', 'adjusted_scores']
    """
    policy.require_posthoc()
    if softmax and policy.scores == "logits":
        raise InputError("softmax is for policies on probabilities, and this one was tuned on logits; leave it out.")
    new = _checked_copy(model)
    found = _scores(new, policy, scores_output)
    _check_kind(found, policy, softmax)
    adjustment = Adjustment(policy, found.number, _order(found, policy), softmax, exact)
    unique = _Names(new)
    label, place = _label_place(new.graph, label_output, found.output, unique)
    adjusted = unique.own(ADJUSTED)
    decided = None if policy.thresholds is None else unique.own(ACCEPTED)
    new.graph.node.extend(adjustment.nodes(found.value, adjusted, label, unique, decided))
    outputs = list(new.graph.output)
    outputs.insert(place, helper.make_tensor_value_info(label, adjustment.label_type, [None]))
    outputs.append(helper.make_tensor_value_info(adjusted, adjustment.adjusted_type, [None, policy.strategy.n_classes]))
    if decided is not None:
        outputs.append(helper.make_tensor_value_info(decided, TensorProto.BOOL, [None]))
    del new.graph.output[:]
    new.graph.output.extend(outputs)
    new.metadata_props.add(key=MARK, value=policy.digest)
    check(new, "the model with the policy")
    return new


# --------------------------------------------------------------------------------------------------------------------
# What is refused


def _checked_copy(model: ModelProto) -> ModelProto:
    if not isinstance(model, ModelProto):
        raise InputError(f"model is {short(model)}; give a ModelProto, such as capri.onnx.load(path).")
    if any(entry.key == MARK for entry in model.metadata_props):
        raise InputError("the model holds a policy already; export into what was trained, before any policy.")
    new = ModelProto()
    new.CopyFrom(model)
    versions = [entry.version for entry in new.opset_import if entry.domain in ("", "ai.onnx")]
    if not versions:  # all of its operators are of other domains
        new.opset_import.append(helper.make_opsetid("", LEAST_OPSET))
    elif versions[0] < LEAST_OPSET:
        raise InputError(
            f"the model is of opset {versions[0]}, and a policy needs {LEAST_OPSET} or later; export it again, or "
            "convert it with onnx.version_converter."
        )
    return new


# --------------------------------------------------------------------------------------------------------------------
# Where the scores are


@dataclass(frozen=True)
class _Found:
    """An output that may be scores: the value (n, K) behind it, its number type, what is known of its columns, and the
    operator that makes it."""

    output: str
    value: str
    number: int
    width: int | None
    labels: list[Any] | None
    maker: str


def _scores(model: ModelProto, policy: Policy, wanted: str | None) -> _Found:
    """The output that holds the scores."""
    k, outputs = policy.strategy.n_classes, [output.name for output in model.graph.output]
    if wanted is not None and wanted not in outputs:
        raise InputError(
            f"{{argument}} is {wanted!r}, which is no output of the model; there are {', '.join(outputs)}.",
            argument="scores_output",
        )
    usable = [found for found in _candidates(model) if wanted in (None, found.output)]
    if not usable:
        what = "the model has no output" if wanted is None else f"{wanted!r} is no output"
        raise InputError(
            f"{what} of scores: that is a tensor of floats (n_samples, K), or maps by label (ZipMap); it has "
            f"{', '.join(outputs)}. Export it with its scores."
        )
    fitting = [found for found in usable if found.width == k]
    if len(fitting) > 1:
        raise InputError(
            f"several outputs could be the scores: {', '.join(found.output for found in fitting)}; choose with "
            "{argument}.",
            argument="scores_output",
        )
    if not fitting:
        one = usable[0]
        columns = "an unknown number of columns" if one.width is None else f"{one.width} columns"
        raise InputError(
            f"the output {one.output!r} has {columns}, and the policy {k} classes; it needs one score per class"
            + (": export the model with a fixed number of them." if one.width is None else ".")
        )
    return fitting[0]


def _candidates(model: ModelProto) -> Iterator[_Found]:
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError):  # of operators that it does not know
        inferred = model
    types = {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.input)}
    types |= {value.name: value.type for value in inferred.graph.output}
    makers = {name: node for node in model.graph.node for name in node.output}
    for output in inferred.graph.output:
        value, labels, source = output.name, _column_labels(output.name, makers), _made_by(output.name, makers)
        if output.type.HasField("sequence_type"):
            maker = makers.get(value)
            if maker is None or maker.op_type != "ZipMap":
                continue
            value = maker.input[0]
            number, shape = _tensor(types.get(value, TypeProto()))
            yield _Found(output.name, value, number or TensorProto.FLOAT, len(labels or ()), labels, source)
            continue
        number, shape = _tensor(output.type)
        if number in NUMBERS and (shape is None or len(shape) == 2):
            yield _Found(output.name, value, number, shape[1] if shape else None, labels, source)


def _tensor(kind: TypeProto) -> tuple[int, list[int | None] | None]:
    """The number type and, as far as known, the shape; 0 for what is no tensor."""
    if not kind.HasField("tensor_type"):
        return 0, None
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    return tensor.elem_type, [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]


def _column_labels(value: str, makers: Mapping[str, NodeProto]) -> list[Any] | None:
    """The labels of the columns, where the node that makes them, or one behind it, says so."""
    while (node := makers.get(value)) is not None:
        for attribute in node.attribute:
            if attribute.name.startswith("classlabels_"):
                given: Sequence[Any] = helper.get_attribute_value(attribute)
                return [label.decode() if isinstance(label, bytes) else label for label in given]
        if node.op_type not in _PASSING:
            return None
        value = node.input[0]
    return None


def _made_by(value: str, makers: Mapping[str, NodeProto]) -> str:
    """The operator that makes a value, behind those that hand it on."""
    while (node := makers.get(value)) is not None and node.op_type in ("ZipMap", "Identity", "Cast"):
        value = node.input[0]
    return "" if node is None else node.op_type


def _check_kind(found: _Found, policy: Policy, softmax: bool) -> None:
    """Refuse logits where probabilities are wanted, and the other way round, as far as operators tell."""
    probabilities = found.maker in ("Softmax", "Normalizer")
    if probabilities and (softmax or policy.scores == "logits"):
        raise InputError(
            f"the output {found.output!r} is probabilities (it comes from {found.maker}), and the policy takes "
            f"{'their logits' if softmax else 'logits'}; choose the output of the logits"
            + (", or leave out softmax." if softmax else ", or tune on probabilities.")
        )
    if found.maker in ("Gemm", "MatMul", "Add", "Conv") and policy.scores == "proba" and not softmax:
        raise InputError(
            f"the output {found.output!r} is no probabilities (it comes from {found.maker}), and the policy takes "
            "such; if they are its softmax, say {argument}.",
            argument="softmax",
        )


def _order(found: _Found, policy: Policy) -> list[int] | None:
    """The column of each class, by the labels that the model has for them."""
    classes = Classes.of(policy.classes)
    if found.labels is None or len(found.labels) != found.width:
        return None
    numbered = list(policy.classes) == list(range(len(classes)))
    if numbered and not classes.named_by(found.labels):  # tuned by positions
        return None
    return classes.positions(found.labels, f"the output {found.output!r}")


# --------------------------------------------------------------------------------------------------------------------
# Names


class _Names:
    """Names that a model does not have yet."""

    def __init__(self, model: ModelProto) -> None:
        self.taken = {value.name for value in (*model.graph.input, *model.graph.output, *model.graph.initializer)}
        for node in _all_nodes(model.graph):
            self.taken |= {node.name, *node.input, *node.output}

    def __call__(self, name: str) -> str:
        return self.own(f"capri_{name}")

    def own(self, name: str) -> str:
        """This name, or one like it."""
        tries = (name, *(f"{name}_{i}" for i in range(1, len(self.taken) + 2)))
        free = next(candidate for candidate in tries if candidate not in self.taken)
        self.taken.add(free)
        return free


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Those of graphs inside graphs as well."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _all_nodes(inner)


def _label_place(graph: GraphProto, wanted: str | None, scores: str, unique: _Names) -> tuple[str, int]:
    """The name of the output of decisions and its place among the outputs; the model's own label makes way for it."""
    names = [output.name for output in graph.output]
    if wanted is not None and wanted in names:
        old: ValueInfoProto | None = graph.output[names.index(wanted)]
        if wanted == scores or _tensor(graph.output[names.index(wanted)].type)[0] not in _LABEL_TYPES:
            raise InputError(
                f"{{argument}} is {wanted!r}, which holds no labels; choose another name.", argument="label_output"
            )
    else:
        own = [o for o in graph.output if o.name in _LABEL_NAMES and _tensor(o.type)[0] in _LABEL_TYPES]
        old = own[0] if own and wanted is None else None
    if old is None:
        return unique.own(wanted or LABEL), len(names)
    name, place, hidden = old.name, names.index(old.name), unique(f"untuned_{old.name}")
    for node in _all_nodes(graph):
        for values in (node.input, node.output):
            values[:] = [hidden if value == name else value for value in values]
    del graph.output[place]
    return name, place

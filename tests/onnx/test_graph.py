"""onnxruntime decides by the exported model as Python does by the policy."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession, SessionOptions

from capri import InputError, Policy, Strategy
from capri.onnx import with_policy
from capri.onnx.graph import LEAST_OPSET

TYPES = {np.float16: "float16", np.float32: "float", np.float64: "double"}
ROWS = 10_000


def identity(k, dtype=np.float32, opset=17, name="logits"):
    """A model whose scores are its input."""
    text = f"""<ir_version: {3 if opset < 9 else 8}, opset_import: ["": {opset}]>
    net ({TYPES[dtype]}[n, {k}] x) => ({TYPES[dtype]}[n, {k}] {name}) {{ {name} = Identity (x) }}"""
    return parser.parse_model(text)


def classifier(labels, *, zipmap=True, label="output_label"):
    """What skl2onnx makes of a classifier: a label, and probabilities or maps of them. Columns are as `labels` say."""
    text = isinstance(labels[0], str)
    names = {"classlabels_strings" if text else "classlabels_int64s": labels}
    kind, k = TensorProto.STRING if text else TensorProto.INT64, len(labels)
    values = np.array(labels, dtype=object if text else np.int64)
    nodes = [
        helper.make_node("Identity", ["x"], ["probabilities"]),
        helper.make_node("ArgMax", ["x"], ["index"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "index"], ["inner"], axis=0),
        helper.make_node("Identity", ["inner"], [label]),
    ]
    outputs = [helper.make_tensor_value_info(label, kind, [None])]
    if zipmap:
        nodes.append(helper.make_node("ZipMap", ["probabilities"], ["maps"], domain="ai.onnx.ml", **names))
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        maps = helper.make_sequence_type_proto(helper.make_map_type_proto(kind, value))
        outputs.append(helper.make_value_info("maps", maps))
    else:
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, k]))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, k])],
        outputs,
        [numpy_helper.from_array(values, "names")],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(model, x):
    settings = SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    session = InferenceSession(model.SerializeToString(), settings)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": x}), strict=True))


def sample(k, kind, rng, dtype=np.float32, rows=ROWS):
    """A policy and scores, every tenth row with a tie of the first two classes."""
    l = np.concatenate([[0.25, 0.25], rng.normal(0, 1, k - 2)])
    delta = np.concatenate([[1.0, 1.0], rng.uniform(0.5, 2, k - 2)])
    policy = Policy(Strategy.of(k, l=l, delta=delta), "balanced", tuple(f"c{i}" for i in range(k)), scores=kind)
    scores = rng.normal(0, 3, (rows, k))
    scores[::10, :2] = 3 * scores[::10].max(axis=1, keepdims=True) + 10
    if kind == "proba":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    return policy, scores.astype(dtype)


def check(policy, scores, label):
    """Equal, but where a logarithm's rounding in the type of the scores decides."""
    expected, adjusted = policy.predict(scores), np.sort(policy.apply(scores), axis=1)
    differ = np.asarray(label) != expected
    assert len(label) == len(scores)
    if policy.scores == "logits":
        assert not differ.any()
    gap = (adjusted[:, -1] - adjusted[:, -2])[differ]
    assert (
        gap <= 10 * np.finfo(np.promote_types(scores.dtype, np.float32)).eps * np.abs(adjusted[differ]).max(axis=1)
    ).all()
    assert differ.mean() < 1e-3
    assert (expected[::10] == "c0").sum() > len(scores) // 50  # ties among them


class TestDecisions:
    @pytest.mark.parametrize("kind", ["logits", "proba"])
    @pytest.mark.parametrize("k", [2, 3, 10, 100, 1000])
    def test_of_any_number_of_classes(self, k, kind, rng):
        policy, scores = sample(k, kind, rng, rows=ROWS if k <= 100 else 2000)
        found = run(with_policy(identity(k), policy), scores)
        check(policy, scores, found["label"])
        np.testing.assert_array_equal(found["logits"], scores)
        assert found["adjusted_scores"].dtype == np.float64
        np.testing.assert_allclose(found["adjusted_scores"], policy.apply(scores), rtol=1e-6, atol=1e-5)

    @pytest.mark.parametrize("kind", ["logits", "proba"])
    @pytest.mark.parametrize("dtype", list(TYPES))
    @pytest.mark.parametrize("opset", [LEAST_OPSET, 11, 13, 18, 21])
    def test_of_any_opset_and_number_type(self, opset, dtype, kind, rng):
        policy, scores = sample(4, kind, rng, dtype, rows=2000)
        check(policy, scores, run(with_policy(identity(4, dtype, opset), policy), scores)["label"])

    @pytest.mark.parametrize("dtype", list(TYPES))
    def test_in_the_models_own_number_type_but_for_its_rounding(self, dtype, rng):
        policy, scores = sample(5, "logits", rng, dtype, rows=2000)
        model = with_policy(identity(5, dtype), policy, exact=False)
        found, adjusted = run(model, scores), np.sort(policy.apply(scores), axis=1)
        differ, gap = found["label"] != policy.predict(scores), adjusted[:, -1] - adjusted[:, -2]
        assert found["adjusted_scores"].dtype == dtype
        assert (gap[differ] < 4 * np.finfo(dtype).eps * np.abs(adjusted[differ]).max(axis=1)).all()
        elements = {TensorProto.DOUBLE} - {model.graph.output[0].type.tensor_type.elem_type}
        casts = [a.i for node in model.graph.node if node.op_type == "Cast" for a in node.attribute]
        assert not elements & set(casts)

    @pytest.mark.parametrize(
        ("classes", "dtype"),
        [
            (("a", "Ärmel", "c"), object),
            ((7, -2, 2**40), np.int64),
            ((0.5, 1.5, 2.5), np.float64),
            ((False, "x", 3), object),
            ((1, 2, 2**70), object),
        ],
    )
    def test_are_labels_as_the_policy_has_them(self, classes, dtype, rng):
        policy = Policy(Strategy.of(3, l=[0.1, 0.2, -1]), "balanced", classes)
        scores = rng.normal(size=(50, 3)).astype(np.float32)
        label = run(with_policy(identity(3), policy), scores)["label"]
        assert label.dtype == dtype
        expected = policy.predict(scores).tolist()
        assert label.tolist() == ([str(c) for c in expected] if dtype is object else expected)

    def test_truth_values_are_truth_values(self):
        policy = Policy(Strategy.of(2), "plain", (False, True))
        label = run(with_policy(identity(2), policy), np.eye(2, dtype=np.float32))["label"]
        np.testing.assert_array_equal(label, [False, True], strict=True)

    def test_by_probabilities_that_are_a_softmax(self, rng):
        policy, scores = sample(4, "proba", rng)
        logits = np.log(np.maximum(scores, 1e-20)) + 2
        found = run(with_policy(identity(4), policy, softmax=True), logits)
        assert (found["label"] == policy.predict(scores)).mean() > 0.999
        np.testing.assert_allclose(found["adjusted_scores"], policy.apply(scores), atol=1e-4)

    def test_of_a_torch_model(self, rng):
        """As its exporter writes them: weights inside, names of its own."""
        weight, policy = rng.normal(size=(4, 3)).astype(np.float32), sample(3, "logits", rng)[0]
        model = parser.parse_model(
            """<ir_version: 9, opset_import: ["": 18]>
            main_graph (float[batch, 4] x) => (float[batch, 3] linear, float[batch, 7] features)
            <float[4, 3] w, float[4, 7] v> { linear = MatMul (x, w)
            features = MatMul (x, v) }"""
        )
        model.graph.initializer.extend(
            [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.ones((4, 7), np.float32), "v")]
        )
        x = rng.normal(size=(100, 4)).astype(np.float32)
        found = run(with_policy(model, policy), x)
        assert list(found) == ["linear", "features", "label", "adjusted_scores"]
        np.testing.assert_array_equal(found["label"], policy.predict(found["linear"]))


class TestClassifiers:
    """Models that skl2onnx made."""

    @pytest.mark.parametrize("zipmap", [True, False])
    @pytest.mark.parametrize("labels", [["a", "b", "c"], [4, 5, 9]])
    def test_their_label_is_the_policys_and_their_probabilities_stay(self, labels, zipmap, rng):
        policy = Policy(Strategy.of(3, l=[1.0, 0, -1]), "balanced", tuple(labels), scores="proba")
        scores = rng.dirichlet(np.ones(3), ROWS).astype(np.float32)
        old = classifier(labels, zipmap=zipmap)
        before, after = run(old, scores), run(with_policy(old, policy), scores)
        assert list(after) == [*before, "adjusted_scores"]
        check_labels = policy.predict(scores)
        assert (after["output_label"] != check_labels).sum() <= 1
        assert (after["output_label"] != before["output_label"]).mean() > 0.1
        assert after["output_label"].dtype == before["output_label"].dtype
        second = list(before)[1]
        np.testing.assert_array_equal(after[second], before[second])

    def test_columns_are_matched_by_label(self, rng):
        policy = Policy(Strategy.of(3, l=[2.0, 0, -1]), "balanced", ("b", "c", "a"), scores="proba")
        scores = rng.dirichlet(np.ones(3), 500).astype(np.float32)
        found = run(with_policy(classifier(["a", "b", "c"]), policy), scores)
        np.testing.assert_array_equal(found["output_label"], policy.predict(scores[:, [1, 2, 0]]))

    def test_labels_that_are_text_to_one_and_numbers_to_the_other_are_matched(self, rng):
        policy = Policy(Strategy.of(3, l=[2.0, 0, -1]), "balanced", ("9", "4", "5"), scores="proba")
        scores = rng.dirichlet(np.ones(3), 500).astype(np.float32)
        found = run(with_policy(classifier([4, 5, 9]), policy), scores)
        np.testing.assert_array_equal(found["output_label"], policy.predict(scores[:, [2, 0, 1]]))

    def test_a_policy_of_positions_goes_by_position(self, rng):
        policy = Policy(Strategy.of(3, l=[2.0, 0, -1]), "balanced", (0, 1, 2), scores="proba")
        scores = rng.dirichlet(np.ones(3), 500).astype(np.float32)
        found = run(with_policy(classifier(["a", "b", "c"]), policy), scores)
        np.testing.assert_array_equal(found["output_label"], policy.predict(scores))

    def test_other_labels_are_refused(self):
        policy = Policy(Strategy.of(3), "balanced", ("a", "b", "x"), scores="proba")
        with pytest.raises(InputError, match="class 'x' has no entry in the output 'maps'"):
            with_policy(classifier(["a", "b", "c"]), policy)

    def test_of_other_numbers_of_classes_are_refused(self):
        policy = Policy(Strategy.of(2), "balanced", ("a", "b"), scores="proba")
        with pytest.raises(InputError, match="'maps' has 3 columns, and the policy 2 classes"):
            with_policy(classifier(["a", "b", "c"]), policy)

    def test_the_label_may_be_named(self, rng):
        policy = Policy(Strategy.of(2, l=[1.0, -1]), "balanced", ("a", "b"), scores="proba")
        model, x = classifier(["a", "b"], zipmap=False, label="y"), np.array([[0.6, 0.4]], np.float32)
        assert {name: v.tolist() for name, v in run(with_policy(model, policy), x).items() if v.ndim == 1} == {
            "y": ["a"],
            "label": ["b"],
        }
        assert run(with_policy(model, policy, label_output="y"), x)["y"].tolist() == ["b"]
        assert run(with_policy(model, policy, label_output="decision"), x)["decision"].tolist() == ["b"]


def of(k, **changes):
    return Policy(Strategy.of(k), "balanced", tuple(range(k)), **changes)


def two_outputs():
    model = identity(3)
    model.graph.node.append(helper.make_node("Neg", ["x"], ["other"]))
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [None, 3]))
    return model


def of_output(kind, shape):
    model = identity(3)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Cast", ["x"], ["logits"], to=kind))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("logits", kind, shape))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, shape))
    return model


def made_by(operator):
    model = identity(3)
    model.graph.node[0].op_type = operator
    model.graph.node[0].input.extend(["x"] if operator == "Add" else [])
    model.graph.node[0].output[0] = "inner"
    model.graph.node.append(helper.make_node("Identity", ["inner"], ["logits"]))
    return model


class TestRefused:
    @pytest.mark.parametrize(
        ("model", "policy", "settings", "says"),
        [
            (identity(3), of(3, side="loss"), {}, "this policy is a loss"),
            (identity(3), of(4), {}, "'logits' has 3 columns, and the policy 4 classes; it needs one score per class"),
            (identity(3, opset=7), of(3), {}, "of opset 7, and a policy needs 8 or later; export it again, or convert"),
            (with_policy(identity(3), of(3)), of(3), {}, "holds a policy already"),
            (of_output(TensorProto.INT64, [None, 3]), of(3), {}, "no output of scores: that is a tensor of floats"),
            (of_output(TensorProto.FLOAT, [None, 3, 4]), of(3), {}, "no output of scores"),
            (of_output(TensorProto.FLOAT, [None, None]), of(3), {}, "an unknown number of columns, and the policy 3"),
            (two_outputs(), of(3), {}, "several outputs could be the scores: logits, other; choose with scores_output"),
            (identity(3), of(3), {"scores_output": "y"}, "is 'y', which is no output of the model; there are logits"),
            (identity(3), of(3), {"label_output": "logits"}, "is 'logits', which holds no labels"),
            (identity(3), of(3), {"softmax": True}, "softmax is for policies on probabilities"),
            (made_by("Softmax"), of(3), {}, "is probabilities .it comes from Softmax., and the policy takes logits"),
            (made_by("Softmax"), of(3, scores="proba"), {"softmax": True}, "takes their logits; .* leave out softmax"),
            (made_by("Add"), of(3, scores="proba"), {}, "is no probabilities .it comes from Add., .* say softmax"),
            (None, of(3), {}, "model is None; give a ModelProto"),
        ],
    )
    def test_with_a_reason(self, model, policy, settings, says):
        with pytest.raises(InputError, match=says):
            with_policy(model, policy, **settings)

    @pytest.mark.parametrize(
        ("operator", "policy", "softmax"),
        [("Softmax", of(3, scores="proba"), False), ("Add", of(3), False), ("Add", of(3, scores="proba"), True)],
    )
    def test_but_scores_of_the_right_kind_are_not(self, operator, policy, softmax):
        assert with_policy(made_by(operator), policy, softmax=softmax)

    def test_numbers_that_the_models_type_cannot_hold(self):
        policy = Policy(Strategy.of(2, l=[1e300, 0]), "balanced", (0, 1))
        with pytest.raises(InputError, match="do not fit into float32; compute in float64"):
            with_policy(identity(2), policy, exact=False)


class TestTheModel:
    def test_that_was_given_stays_as_it_is(self):
        model = classifier(["a", "b"])
        before = model.SerializeToString(deterministic=True)
        with_policy(model, Policy(Strategy.of(2), "plain", ("a", "b"), scores="proba"))
        assert model.SerializeToString(deterministic=True) == before

    def test_keeps_the_digest_of_the_policy(self):
        policy = of(3)
        assert {e.key: e.value for e in with_policy(identity(3), policy).metadata_props} == {
            "capri_policy": policy.digest
        }

    def test_of_one_output_among_several_takes_the_one_that_is_chosen(self):
        policy = Policy(Strategy.of(3, l=[0, 0, 0.0]), "plain", (0, 1, 2))
        x = np.array([[1, 2, 3.0]], np.float32)
        assert run(with_policy(two_outputs(), policy, scores_output="logits"), x)["label"].tolist() == [2]
        assert run(with_policy(two_outputs(), policy, scores_output="other"), x)["label"].tolist() == [0]

    def test_with_our_names_in_use_gets_others(self, rng):
        model = identity(3, name="adjusted_scores")
        model.graph.node.append(helper.make_node("Exp", ["x"], ["label"], name="capri_Sub"))
        model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.FLOAT, [None, 3]))
        policy = sample(3, "logits", rng)[0]
        new = with_policy(model, policy, scores_output="adjusted_scores")
        names = [output.name for output in new.graph.output]
        assert names == ["adjusted_scores", "label", "label_1", "adjusted_scores_1"]
        x = rng.normal(size=(20, 3)).astype(np.float32)
        np.testing.assert_array_equal(run(new, x)["label_1"], policy.predict(x))

    def test_of_other_domains_only_gets_the_standard_one(self, rng):
        graph = helper.make_graph(
            [helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", scale=[1.0], offset=[0.0])],
            "scaler",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8)
        policy, x = sample(3, "logits", rng)[0], rng.normal(size=(20, 3)).astype(np.float32)
        np.testing.assert_array_equal(run(with_policy(model, policy), x)["label"], policy.predict(x))

    def test_with_a_label_that_is_used_inside_keeps_it_there(self, rng):
        """The model's own decision goes on where the model itself needs it."""
        model = classifier([0, 1], zipmap=False, label="label")
        then = helper.make_graph(
            [helper.make_node("Identity", ["label"], ["inside"])],
            "then",
            [],
            [helper.make_tensor_value_info("inside", TensorProto.INT64, [None])],
        )
        truth = numpy_helper.from_array(np.array(True), "truth")
        model.graph.node.extend(
            [
                helper.make_node("Constant", [], ["truth"], value=truth),
                helper.make_node("If", ["truth"], ["own"], then_branch=then, else_branch=then),
            ]
        )
        model.graph.output.append(helper.make_tensor_value_info("own", TensorProto.INT64, [None]))
        policy = Policy(Strategy.of(2, l=[1.0, -1]), "balanced", (0, 1), scores="proba")
        found = run(with_policy(model, policy), np.array([[0.6, 0.4]], np.float32))
        assert (found["label"].tolist(), found["own"].tolist()) == ([1], [0])

    def test_runs_where_onnx_itself_computes_it(self, rng):
        """A second runtime: the reference of the format."""
        policy, scores = sample(4, "logits", rng, rows=50)
        model = with_policy(identity(4), policy)
        names = [output.name for output in model.graph.output]
        found = ReferenceEvaluator(model).run(None, {"x": scores})
        assert found[names.index("label")].tolist() == policy.predict(scores).tolist()

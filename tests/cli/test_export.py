"""`capri export`: an ONNX model that decides by the policy, or one line and no file."""

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, parser
from onnxruntime import InferenceSession

from capri import Policy


def model(opset=17, k=3, outputs=("logits",), kind="float"):
    declared = ", ".join(f"{kind}[n, {k}] {name}" for name in outputs)
    made = " ".join(f"{name} = Identity (x)" for name in outputs)
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> net ({kind}[n, {k}] x) => ({declared}) {{ {made} }}'
    )


@pytest.fixture
def net(tmp_path):
    onnx.save(model(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def run(path, x):
    session = InferenceSession(path)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x}), strict=True))


def test_the_label_is_the_policys(capri, net, policy, data, tmp_path):
    done = capri("export", net, policy, "-o", "tuned.onnx")
    assert (done.code, done.err) == (0, "")
    assert done.out == "The policy decides in label, adjusted_scores; logits as it was: tuned.onnx\n"
    scores = data[0].astype(np.float32)
    found = run(tmp_path / "tuned.onnx", scores)
    np.testing.assert_array_equal(found["label"], Policy.load(policy).predict(scores))
    assert (found["label"] != np.array(Policy.load(policy).labels)[scores.argmax(1)]).any()


def test_as_apply_decides(capri, net, policy, data, tmp_path):
    scores = data[0].astype(np.float32)
    np.save(tmp_path / "scores.npy", scores)
    capri("export", net, policy, "-o", "tuned.onnx")
    applied = capri("apply", "scores.npy", policy).out.split()[1:]
    assert run(tmp_path / "tuned.onnx", scores)["label"].tolist() == applied


def test_options_reach_the_model(capri, policy, data, tmp_path):
    onnx.save(model(outputs=("a", "b")), tmp_path / "two.onnx")
    replace(Policy.load(policy), scores="proba").save(tmp_path / "proba.json")
    arguments = ["--scores-output", "b", "--label-output", "decision", "--softmax", "--no-exact"]
    assert capri("export", "two.onnx", "proba.json", *arguments, "-o", "tuned.onnx").code == 0
    scores = data[0].astype(np.float32)
    found = run(tmp_path / "tuned.onnx", scores)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = Policy.load(tmp_path / "proba.json").predict(p / p.sum(axis=1, keepdims=True))
    assert np.mean(found["decision"] == expected) > 0.98
    assert found["adjusted_scores"].dtype == np.float32


def with_weights_in(place):
    elsewhere = model()
    tensor = elsewhere.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    return elsewhere


def test_weights_beside_the_model_stay_where_they_are(capri, policy, tmp_path):
    (tmp_path / "model.onnx").write_bytes(with_weights_in("weights.bin").SerializeToString())
    (tmp_path / "weights.bin").write_bytes(b"1234")
    assert capri("export", "model.onnx", policy, "-o", "tuned.onnx").code == 0
    done = capri("export", "model.onnx", policy, "-o", "other/tuned.onnx")
    assert done.code == 2
    assert done.err.startswith("capri: model.onnx: its weights lie in 'weights.bin' beside it")
    assert not (tmp_path / "other").exists()


@pytest.fixture
def bad(policy, tmp_path):
    """Models and policies with something wrong in each."""
    folder = tmp_path / "bad"
    folder.mkdir()
    for name, given in {
        "net": model(),
        "old": model(opset=7),
        "four": model(k=4),
        "two": model(outputs=("a", "b")),
        "whole": model(kind="int64"),
    }.items():
        onnx.save(given, folder / f"{name}.onnx")
    (folder / "outside.onnx").write_bytes(with_weights_in("../weights.bin").SerializeToString())
    (folder / "short.onnx").write_bytes((folder / "net.onnx").read_bytes()[:-20])
    (folder / "text.onnx").write_text("no model")
    (folder / "folder.onnx").mkdir()
    good = Policy.load(policy)
    good.save(folder / "policy.json")
    replace(good, side="loss").save(folder / "loss.json")
    replace(good, scores="proba").save(folder / "proba.json")
    (folder / "short.json").write_text("{")
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["four.onnx", "policy.json"], "the output 'logits' has 4 columns, and the policy 3 classes"),
        (["whole.onnx", "policy.json"], "the model has no output of scores: that is a tensor of floats"),
        (["old.onnx", "policy.json"], "the model is of opset 7, and a policy needs 8 or later"),
        (["net.onnx", "loss.json"], "this policy is a loss"),
        (["net.onnx", "short.json"], "short.json: not complete JSON"),
        (["net.onnx", "policy.json", "--softmax"], "softmax is for policies on probabilities"),
        (["two.onnx", "policy.json"], "several outputs could be the scores: a, b; choose with --scores-output."),
        (
            ["net.onnx", "policy.json", "--scores-output", "y"],
            "--scores-output is 'y', which is no output of the model",
        ),
        (["net.onnx", "policy.json", "--label-output", "logits"], "--label-output is 'logits', which holds no labels"),
        (["outside.onnx", "policy.json"], "outside its folder, which is refused"),
        (["short.onnx", "policy.json"], "short.onnx: "),
        (["text.onnx", "policy.json"], "text.onnx: no ONNX model, or damaged"),
        (["folder.onnx", "policy.json"], "folder.onnx: cannot be read"),
        (["none.onnx", "policy.json"], "none.onnx: no such file; check the path."),
        (["-", "policy.json"], "a model is not read from standard input"),
        (["net.onnx", "policy.json", "-o", "net.onnx"], "the command was given this file twice"),
        (["net.onnx", "policy.json", "-o", "tuned.pb"], "cannot write files of type '.pb' here; use .onnx"),
    ],
)
def test_bad_input_is_one_line_and_no_file(capri, bad, arguments, message):
    before = {path: path.stat().st_mtime_ns for path in bad.iterdir()}
    given = [bad / a if a.endswith((".onnx", ".json", ".pb")) else a for a in arguments]
    done = capri("export", *given, *([] if "-o" in arguments else ["-o", bad / "tuned.onnx"]))
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert {path: path.stat().st_mtime_ns for path in bad.iterdir()} == before


def test_without_onnx_it_says_what_to_install(capri, net, policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    for name in [name for name in sys.modules if name.startswith("capri.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    done = capri("export", net, policy, "-o", "tuned.onnx")
    assert (done.code, done.err) == (
        2,
        'capri: this command needs onnx, which is not installed: pip install "capriors[onnx]"\n',
    )

"""ONNX files are data of strangers."""

import os
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("onnx")
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from capri import InputError, Policy, Strategy
from capri.onnx import load, with_policy
from capri.onnx.files import external_places

MODEL = parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]> net (float[n, 4] x) => (float[n, 3] logits)
    <float[4, 3] w> { logits = MatMul (x, w) }"""
)
MODEL.graph.initializer.append(numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w"))

POLICY = Policy(Strategy.of(3), "plain", ("a", "b", "c"))


def elsewhere(place, inside=False):
    """The model with its weights in another file; or with a constant there, in a graph inside the graph."""
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    branch = parser.parse_graph("then () => (float[1] y) { y = Constant <value_float = 1.0> () }")
    if inside:
        tensor = branch.initializer.add(name="v", data_type=TensorProto.FLOAT, dims=[1])
    else:
        tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=place)
    if inside:
        node = model.graph.node.add(op_type="If", input=["c"], output=["z"])
        node.attribute.append(helper.make_attribute("then_branch", branch))
    return model


def test_a_model_is_read_as_it_is(tmp_path):
    onnx.save(MODEL, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx") == MODEL


def test_weights_beside_it_are_left_there(tmp_path):
    """The file need not even exist: nothing looks for it."""
    onnx.save(elsewhere("weights.bin"), tmp_path / "model.onnx")
    model = load(tmp_path / "model.onnx")
    assert list(external_places(model)) == ["weights.bin"]
    assert model == elsewhere("weights.bin")


@pytest.mark.parametrize(
    "place", ["/etc/passwd", "../weights.bin", "a/../../b", "", "C:\\weights.bin", "..\\weights.bin", "\\\\host\\w"]
)
@pytest.mark.parametrize("inside", [False, True])
def test_weights_outside_its_folder_are_refused(tmp_path, place, inside):
    (tmp_path / "model.onnx").write_bytes(elsewhere(place, inside).SerializeToString())
    with pytest.raises(InputError, match="outside its folder, which is refused"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize("keep", [0, 1, 20, 100, -1])
def test_what_is_cut_short_is_refused(tmp_path, keep):
    (tmp_path / "model.onnx").write_bytes(MODEL.SerializeToString()[:keep])
    with pytest.raises(InputError, match=r"model.onnx: (no ONNX model, or damaged|is no valid ONNX model)"):
        load(tmp_path / "model.onnx")


def test_every_damaged_byte_leaves_a_model_or_is_refused(tmp_path, rng):
    content = MODEL.SerializeToString()
    for at in range(len(content)):
        changed = content[:at] + bytes([content[at] ^ int(rng.integers(1, 256))]) + content[at + 1 :]
        (tmp_path / "model.onnx").write_bytes(changed)
        with suppress(InputError):
            assert isinstance(with_policy(load(tmp_path / "model.onnx"), POLICY), onnx.ModelProto)


def test_a_checker_of_no_words_refuses_too(tmp_path, monkeypatch):
    def refuse(model):
        raise onnx.checker.ValidationError

    onnx.save(MODEL, tmp_path / "model.onnx")
    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(InputError, match="is no valid ONNX model"):
        load(tmp_path / "model.onnx")


def test_text_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_text("this is no model")
    with pytest.raises(InputError, match="no ONNX model, or damaged"):
        load(tmp_path / "model.onnx")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "model.onnx")
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InputError, match="is not a regular file"):
        load(tmp_path / "pipe.onnx")

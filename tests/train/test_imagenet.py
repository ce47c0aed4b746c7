"""ImageNet-LT on a tree of a few tiny images, through the command: the whole way, and what can be wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from capri.cli import commands


def train_on(root: Path, *assignments: str) -> Result:
    settings = ["data.n_classes=3", "data.image_size=32", "data.workers=0", "model.name=resnet32"]
    settings += ["trainer.max_epochs=1", "trainer.batch_size=4", "trainer.accelerator=cpu", f"data.root={root}"]
    options = [f"--set={a}" for a in (*settings, *assignments)]
    return CliRunner().invoke(commands, ["train", "--preset", "imagenet-lt", *options, "--out", str(root / "run")])


@pytest.mark.parametrize("model", ["resnet32", "resnet50"])
def test_the_whole_way(imagenet_tree, model):
    result = train_on(imagenet_tree, f"model.name={model}", "data.image_size=64", "loss.strategy=la")
    assert result.exit_code == 0, result.output
    assert "imagenet-lt: 11 training samples (6 … 2 per class, 3 classes), 6 validation, 6 test" in result.output
    summary = json.loads((imagenet_tree / "run/summary.json").read_text())
    assert summary["protocol"] == "official validation part"
    with np.load(imagenet_tree / "run/logits.npz") as file:
        assert (file["test_logits"].shape, file["test_y"].tolist()) == ((6, 3), [0, 0, 1, 1, 2, 2])


def test_a_share_of_train_may_validate(imagenet_tree):
    result = train_on(imagenet_tree, "data.val_fraction=0.4")
    assert result.exit_code == 0, result.output
    assert "7 training samples (4 … 1 per class, 3 classes), 4 validation, 6 test (per-class split" in result.output


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image(imagenet_tree, workers):
    path = imagenet_tree / "train/n01/n01_1.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    result = train_on(imagenet_tree, f"data.workers={workers}")
    assert result.exit_code == 2
    assert result.output.splitlines()[-1].startswith(f"capri: {path} cannot be decoded")


def test_missing_files_are_named_with_source_and_layout(imagenet_tree):
    (imagenet_tree / "val/val_1_0.JPEG").unlink()
    result = train_on(imagenet_tree)
    assert result.exit_code == 2
    assert f"missing {imagenet_tree}/val/val_1_0.JPEG. The lists are linked from https://" in result.output
    assert f"unpack them as {imagenet_tree}/train/<wnid>/*.JPEG" in result.output
    (imagenet_tree / "ImageNet_LT_test.txt").unlink()
    assert "missing ImageNet_LT_test.txt. " in train_on(imagenet_tree).output


def test_a_class_without_images(imagenet_tree):
    result = train_on(imagenet_tree, "data.n_classes=4")
    assert result.exit_code == 2
    assert "class 3 ('3') has no training sample" in result.output
    file = imagenet_tree / "ImageNet_LT_val.txt"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if not line.endswith(" 2\n")))
    assert "class '2' has no validation sample" in train_on(imagenet_tree).output

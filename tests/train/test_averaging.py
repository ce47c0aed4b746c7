"""The moving average of the weights: by hand, in what is validated and kept, and over a resumption."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

import capri.train.runner
from capri.train.averaging import WeightAverage
from capri.train.config import resolve
from capri.train.module import Classifier
from capri.train.runner import run

EMA = "trainer.ema=0.8"
stop_after_an_epoch = runpy.run_path(str(Path(__file__).parent / "runs.py"))["stop_after_an_epoch"]


@pytest.fixture
def config(feature_run, tmp_path):
    """A run of a second, with changes."""
    preset, assignments = feature_run[1], [word.removeprefix("--set=") for word in feature_run[2:]]
    return lambda out, *changes: resolve(preset=preset, out=str(tmp_path / out), assignments=[*assignments, *changes])


def by_hand(path: list[dict[str, torch.Tensor]], decay: float) -> dict[str, np.ndarray]:
    """Of the initial weights and those after each step."""
    average = {name: tensor.double().numpy() for name, tensor in path[0].items()}
    for t, state in enumerate(path[1:]):
        d = min(decay, (1 + t) / (10 + t))
        average = {name: d * average[name] + (1 - d) * state[name].double().numpy() for name in state}
    return average


def test_the_average_is_validated_and_kept(config, tmp_path, monkeypatch, metrics):
    path, validated = [], []

    class Noting(Classifier):
        def state(self):
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

        def on_train_start(self):
            path.append(self.state())

        def on_train_batch_end(self, *_):
            path.append(self.state())

        def on_validation_epoch_start(self):
            super().on_validation_epoch_start()
            validated.append(self.state())

    monkeypatch.setattr(capri.train.runner, "Classifier", Noting)
    summary = run(config("run", EMA))
    kept = safetensors.torch.load_file(tmp_path / "run/model.safetensors")
    for found, steps in ((validated[0], len(path) // 2 + 1), (validated[1], len(path)), (kept, len(path))):
        expected = by_hand(path[:steps], 0.8)
        for name, tensor in found.items():
            np.testing.assert_allclose(tensor.numpy(), expected[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(kept["fc.weight"], path[-1]["fc.weight"])
    assert float(metrics(tmp_path / "run")[-1]["val_balanced"]) == pytest.approx(summary["val"]["balanced"])
    stored = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)
    torch.testing.assert_close(stored["state_dict"]["model.fc.weight"], path[-1]["fc.weight"])  # training goes on there


def test_training_itself_is_none_the_wiser(config, tmp_path):
    for out, changes in (("plain", []), ("averaged", [EMA])):
        run(config(out, *changes))
    plain, averaged = (
        torch.load(tmp_path / out / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for out in ("plain", "averaged")
    )
    assert all(torch.equal(plain[name], averaged[name]) for name in plain)


def test_a_resumed_run_is_bit_for_bit_an_undisturbed_one(config, tmp_path, assert_same_run):
    run(config("whole", EMA))
    stop_after_an_epoch(config("stopped", EMA))
    run(config("stopped", EMA), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    (tmp_path / "stopped/summary.json").unlink()  # as if killed while the last files were written
    run(config("stopped", EMA), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")
    assert json.loads((tmp_path / "stopped/summary.json").read_text())["epochs"] == 2


def test_statistics_of_batch_normalisation_are_averaged_and_counts_are_not():
    classifier = Classifier(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), nn.Identity(), train_counts=np.ones(3))
    average, model = WeightAverage(0.5), classifier.model
    average.on_train_start(None, classifier)
    path = [{name: tensor.clone() for name, tensor in model.state_dict().items()}]
    for step in range(12):
        F.mse_loss(model(torch.randn(8, 2, generator=torch.Generator().manual_seed(step))), torch.ones(8, 3)).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        average.on_train_batch_end(None, classifier, None, None, step)
        path.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    expected = by_hand(path, 0.5)
    average.keep(model)
    for name in ("1.running_mean", "1.running_var", "1.weight"):
        np.testing.assert_allclose(model.state_dict()[name].numpy(), expected[name], rtol=1e-5)
    assert model[1].num_batches_tracked == 12

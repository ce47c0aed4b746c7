"""Two processes with Lightning's DDP (gloo) against one: the same gradients, plain and SAM's, and class statistics."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from capri.train.config import resolve

HERE = Path(__file__).parent
CLUSTER = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, feature_file) -> Path:
    """one/: a run of one process; plain/, noisy/, stopped/: of two, the last one resumed after its first epoch."""
    out = tmp_path_factory.mktemp("processes")
    feature_file(out / "tiny.npz", n=41)
    settings = {
        "data.root": out,
        "data.file": "tiny.npz",
        "data.profile": "exponential",
        "data.imbalance": 4,
        "data.val_fraction": 0.3,
        "model.hidden": [8],
        "loss.strategy": "vs",
        "optimizer.name": "sgd",
        "optimizer.lr": 0.1,
        "optimizer.sam": 0.1,
        "optimizer.sam_every": 2,
        "trainer.ema": 0.9,
        "trainer.max_epochs": 2,
        "trainer.batch_size": 15,  # shares of 8 and 7
        "trainer.accelerator": "cpu",
    }
    assignments = [f"{name}={value}" for name, value in settings.items()]
    # Lightning finds a free port and numbers the processes, unless the environment says otherwise.
    inherited = {name: value for name, value in os.environ.items() if name not in CLUSTER}
    environment = {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1] / "src")}
    command = [sys.executable, HERE / "runs.py", out, *assignments, "trainer.devices=2"]
    two = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    one = runpy.run_path(str(HERE / "runs.py"))["run_and_note_gradients"]
    one(resolve(out=str(out / "one"), preset="features", assignments=assignments))
    output, _ = two.communicate(timeout=300)
    assert two.returncode == 0, output
    return out


def test_gradients_are_those_of_the_joined_batch(runs):
    one, two = (torch.load(runs / name / "gradients.pt", weights_only=True) for name in ("one", "plain"))
    assert len(one) == len(two) == 2 * 4
    for first, second in zip(one, two, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_class_statistics_are_those_of_the_joined_validation_set(runs, metrics):
    assert (runs / "one/class_errors.csv").read_bytes() == (runs / "plain/class_errors.csv").read_bytes()
    for one, two in zip(metrics(runs / "one"), metrics(runs / "plain"), strict=True):
        assert {k: float(v) for k, v in one.items()} == pytest.approx({k: float(v) for k, v in two.items()}, rel=1e-5)
    with np.load(runs / "one/logits.npz") as one, np.load(runs / "plain/logits.npz") as two:
        np.testing.assert_array_equal(one["test_index"], two["test_index"])
        np.testing.assert_allclose(one["test_logits"], two["test_logits"], rtol=1e-2, atol=1e-3)


def test_a_resumed_run_goes_on_with_the_random_states_of_both_processes(runs, assert_same_run):
    assert_same_run(runs / "noisy", runs / "stopped")
    states = torch.load(runs / "noisy/checkpoints/last.ckpt", weights_only=True)["callbacks"]["Recorder"]["random"]
    assert not torch.equal(states[0]["torch"], states[1]["torch"])  # dropout and mixup are drawn apart
    assert torch.equal(states[0]["data"], states[1]["data"])  # order and crops together

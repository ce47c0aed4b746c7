"""Sharpness-aware minimisation: by hand, beside plain training, and over a resumption."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

import capri.train.runner
from capri.train.config import resolve
from capri.train.module import Classifier
from capri.train.runner import run
from capri.train.sam import flat_gradient, frozen_statistics, same_draws, step_back, step_up

LR, DECAY, RHO = 0.1, 0.01, 0.5
SGD = ["optimizer.name=sgd", f"optimizer.lr={LR}", "optimizer.momentum=0", "optimizer.nesterov=false",
       f"optimizer.weight_decay={DECAY}", "schedule.name=constant", "schedule.warmup=0"]  # fmt: skip
SAM = f"optimizer.sam={RHO}"
stop_after_an_epoch = runpy.run_path(str(Path(__file__).parent / "runs.py"))["stop_after_an_epoch"]


@pytest.fixture
def config(feature_run, tmp_path):
    """A run of a second, of two epochs with five steps each, with changes."""
    preset, assignments = feature_run[1], [word.removeprefix("--set=") for word in feature_run[2:]]
    return lambda out, *changes: resolve(preset=preset, out=str(tmp_path / out), assignments=[*assignments, *changes])


@pytest.fixture
def network(config, tmp_path):
    """The weights that a run ends with."""

    def of(out: str, *changes: str) -> dict[str, torch.Tensor]:
        run(config(out, *changes))
        return safetensors.torch.load_file(tmp_path / out / "model.safetensors")

    return of


def gradient(x, y, weight, bias):
    """Of the cross-entropy of a linear model, by its formula."""
    error = (torch.softmax(x @ weight.T + bias, dim=1) - F.one_hot(y, len(bias))) / len(y)
    return error.T @ x, error.sum(dim=0)


def by_hand(batches, weight, bias, every):
    """The two-step formula."""
    for step, (x, y) in enumerate(batches):
        g = gradient(x, y, weight, bias)
        if step % every == 0:
            scale = RHO / torch.cat([part.flatten() for part in g]).norm()
            g = gradient(x, y, weight + scale * g[0], bias + scale * g[1])
        weight, bias = (w - LR * (part + DECAY * w) for w, part in zip((weight, bias), g, strict=True))
    return weight, bias


@pytest.mark.parametrize("every", [1, 3])
def test_the_two_step_formula(network, monkeypatch, every):
    batches, start, losses = [], [], []

    class Noting(Classifier):
        def training_step(self, batch, batch_idx):
            batches.append(tuple(part.clone() for part in batch))
            if not start:
                start.extend([self.model.fc.weight.detach().clone(), self.model.fc.bias.detach().clone()])
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            super().on_train_epoch_end()
            losses.append(self.record["train_loss"])

    monkeypatch.setattr(capri.train.runner, "Classifier", Noting)
    kept = network("run", *SGD, SAM, f"optimizer.sam_every={every}")
    assert len(batches) == 10
    weight, bias = by_hand(batches, *start, every)
    torch.testing.assert_close(kept["fc.weight"], weight, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(kept["fc.bias"], bias, rtol=1e-4, atol=1e-6)
    plain, _ = by_hand(batches, *start, every=100)  # all but the first
    assert not torch.allclose(plain, weight, rtol=1e-2)

    values = []  # the recorded loss is that of the weights, not of the points above them
    for i, (x, y) in enumerate(batches[:5]):
        w, b = by_hand(batches[:i], *start, every)
        values += F.cross_entropy(x @ w.T + b, y, reduction="none").tolist()
    assert losses[0] == pytest.approx(sum(values) / len(values), rel=1e-4)


def test_a_radius_of_zero_is_plain_training(config, tmp_path, assert_same_run):
    run(config("plain"))
    run(config("none", "optimizer.sam=0", "optimizer.sam_every=3"))
    assert_same_run(tmp_path / "plain", tmp_path / "none")


def test_both_passes_draw_alike_and_leave_the_random_state_of_one(network):
    """Mixup, dropout and clipping: near a radius of 0, and only if they do, the run is a plain one."""
    noisy = [
        "model.name=mlp",
        "model.hidden=[8]",
        "model.dropout=0.5",
        "trainer.mixup=0.4",
        "trainer.gradient_clip=0.1",
    ]
    plain, near = network("plain", *SGD, *noisy), network("near", *SGD, *noisy, "optimizer.sam=1e-9")
    far = network("far", *SGD, *noisy, SAM)
    for name in plain:
        torch.testing.assert_close(near[name], plain[name], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(far["fc.weight"], plain["fc.weight"], rtol=1e-2)


def test_a_resumed_run_is_bit_for_bit_an_undisturbed_one(config, tmp_path, assert_same_run):
    settings = [SAM, "optimizer.sam_every=2", "trainer.mixup=0.4", "trainer.ema=0.9"]  # five steps per epoch: 2 ∤ 5
    run(config("whole", *settings))
    stop_after_an_epoch(config("stopped", *settings))
    run(config("stopped", *settings), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_in_bf16_it_is_nearly_the_same(network):
    single, half = network("single", *SGD, SAM), network("half", *SGD, SAM, "trainer.precision=bf16-mixed")
    plain = network("plain", *SGD, "trainer.precision=bf16-mixed")
    apart = [float((other["fc.weight"] - single["fc.weight"]).norm()) for other in (half, plain)]
    assert apart[0] < 0.2 * apart[1]


def normalised() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4))
    model.add_module("fc", nn.Linear(4, 3))
    return model


def test_running_statistics_are_those_of_the_weights(network, monkeypatch):
    """One update per step: with a learning rate of 0 the run leaves what plain training leaves."""
    monkeypatch.setattr(capri.train.runner, "make_model", lambda *_: normalised())
    still = [s for s in SGD if "lr" not in s] + ["optimizer.lr=0"]
    plain, sharp = network("plain", *still), network("sharp", *still, SAM)
    assert sharp["1.num_batches_tracked"] == 10
    assert all(torch.equal(plain[name], sharp[name]) for name in plain)


def test_frozen_statistics_normalise_by_the_batch():
    model, x = normalised(), torch.randn(8, 5)
    expected, before = model(x), {name: b.clone() for name, b in model.named_buffers()}
    with frozen_statistics(model):
        torch.testing.assert_close(model(x), expected)
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    model(x)
    assert model[1].num_batches_tracked == 2


def test_up_by_the_radius_and_back_to_the_bit():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 5, 5)
    slope = flat_gradient(model(x).square().mean(), model)
    assert all(p.grad is None for p in model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    weights = step_up(model, slope, 0.25)
    moved = torch.cat([(p - w).flatten() for p, w in zip(model.parameters(), before, strict=True)])
    torch.testing.assert_close(moved, 0.25 * slope / slope.norm(), rtol=1e-3, atol=1e-6)
    step_back(model, weights)
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), before, strict=True))
    step_up(model, torch.zeros_like(slope), 0.25)
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), before, strict=True))


def test_autocast_sees_the_weights_above():
    """It keeps casts of weights, which would be those from before."""
    model, x = nn.Linear(4, 2), torch.ones(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(x).square().mean()
        step_up(model, flat_gradient(low, model), 1.0)
        assert model(x).square().mean() > 1.1 * low


def test_what_is_drawn_is_drawn_again():
    torch.manual_seed(0)
    with same_draws(torch.device("cpu")):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), first)
    assert not torch.equal(torch.rand(3), first)

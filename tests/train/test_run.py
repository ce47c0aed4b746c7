"""Runs: killed and resumed, in the face of a full disk, and what they leave behind."""

from __future__ import annotations

import errno
import json
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from typer.testing import CliRunner, Result

import capri.train.checkpoints
from capri import evaluate
from capri._checks import AbsentClassWarning, InputError
from capri.cli import commands
from capri.train.checkpoints import AtomicCheckpointIO, load_checkpoint


def invoke(arguments: list[str]) -> Result:
    """The command, in this process."""
    result = CliRunner().invoke(commands, ["train", *arguments])
    assert result.exit_code == 0, result.output
    return result


def wait_for_epoch(folder: Path, epoch: int, process) -> None:
    """Until the checkpoint of `epoch` is there; metrics, a line per epoch, are written just before it."""
    deadline = time.monotonic() + 300
    while not (
        (folder / "checkpoints/last.ckpt").exists() and (folder / "metrics.csv").read_text().count("\n") > epoch
    ):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def cifar_arguments(root: Path, epochs: int) -> list[str]:
    settings = {
        "data.root": root,
        "data.imbalance": 5,
        "data.operations": "one",
        "data.cutout": 12,
        "optimizer.sam": 0.05,
        "optimizer.sam_every": 2,
        "trainer.max_epochs": epochs,
        "trainer.batch_size": 16,
        "trainer.mixup": 0.3,
        "trainer.ema": 0.9,
        "trainer.accelerator": "cpu",
        "loss.strategy": "vs",
    }
    return [f"--set={name}={value}" for name, value in settings.items()]


def killed_and_resumed(start, arguments: list[str], out: Path, kills: list[tuple[int, float]]) -> None:
    """Kill after each (epoch, further seconds), resume each time, and let the last run end."""
    for i, (epoch, seconds) in enumerate(kills):
        process = start([*arguments, "--out", str(out), *(["--resume"] if i else [])])
        wait_for_epoch(out, epoch, process)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (out / "summary.json").exists(), "the run ended before it was killed"
    invoke(["--resume", "--out", str(out)])


@pytest.mark.usefixtures("one_thread")
def test_a_killed_run_ends_as_if_undisturbed(start, tmp_path, tiny_cifar10, assert_same_run):
    arguments = cifar_arguments(tiny_cifar10, epochs=3)
    killed_and_resumed(start, arguments, tmp_path / "killed", [(1, 0.05)])
    invoke([*arguments, "--out", str(tmp_path / "whole")])
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_killed_at_random_moments(start, tmp_path, tiny_cifar10, assert_same_run):
    arguments = cifar_arguments(tiny_cifar10, epochs=12)
    invoke([*arguments, "--out", str(tmp_path / "whole")])
    rng = np.random.default_rng()
    for i in range(5):
        kills = [
            (int(rng.integers(1, 6)), float(rng.uniform(0, 0.8))),
            (int(rng.integers(7, 10)), float(rng.uniform(0, 0.8))),
        ]
        killed_and_resumed(start, arguments, tmp_path / f"killed{i}", kills)
        assert_same_run(tmp_path / "whole", tmp_path / f"killed{i}")


def test_the_artefacts(tmp_path, feature_run, metrics):
    out = tmp_path / "run"
    result = invoke([*feature_run, "--out", str(out), "--set", "trainer.tensorboard=true"])
    assert "epoch   2/2" in result.output
    assert any((out / "tensorboard").iterdir())
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")

    rows = metrics(out)
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert {"train_loss", "val_loss", "val_balanced", "val_cvar:0.2", "val_few", "lr"} <= set(rows[0])
    assert not [name for name in rows[0] if "test" in name]

    summary = json.loads((out / "summary.json").read_text())
    with np.load(out / "logits.npz", allow_pickle=False) as file:
        assert file["val_logits"].dtype == np.float16
        together = np.sort(np.concatenate([file["val_index"], file["test_index"]]))
        np.testing.assert_array_equal(together, np.arange(120))  # both halves: all of the official test set
        again = evaluate(file["test_y"], file["test_logits"].argmax(axis=1), 3, ["balanced", "worst"])
        assert {name: summary["test"][name] for name in again} == pytest.approx(again)
        card = json.loads(str(file["card"]))
        norms, counts = file["last_layer_norms"], file["train_counts"]
    assert counts.tolist() == [40, 20, 10]
    weights = safetensors.numpy.load_file(out / "model.safetensors")
    np.testing.assert_allclose(norms, np.linalg.norm(weights["fc.weight"], axis=1), rtol=1e-6)
    assert card["config_digest"] == summary["config_digest"]
    assert summary["config"]["trainer"]["max_epochs"] == 2
    assert float(rows[-1]["val_balanced"]) == pytest.approx(summary["val"]["balanced"])

    checkpoint = torch.load(out / "checkpoints/last.ckpt", weights_only=True)
    states = next(state for state in checkpoint["callbacks"].values() if "random" in state)["random"][0]
    assert {"torch", "numpy", "python", "data"} <= set(states)


def test_a_folder_is_not_overwritten_and_settings_must_match(tmp_path, feature_run):
    out = ["--out", str(tmp_path / "run")]
    invoke([*feature_run, *out])
    again = CliRunner().invoke(commands, ["train", *feature_run, *out])
    assert again.exit_code == 2
    assert "holds a run already; go on with --resume" in again.output
    other = CliRunner().invoke(commands, ["train", *feature_run, *out, "--resume", "--set", "optimizer.lr=3.0"])
    assert other.exit_code == 2
    assert "started with other settings: optimizer.lr" in other.output
    summary = tmp_path / "run/summary.json"
    summary.unlink()  # as if killed while the last files were written
    invoke(["--resume", *out])
    assert json.loads(summary.read_text())["epochs"] == 2


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path, feature_run, monkeypatch, metrics):
    real, out = capri.train.checkpoints.write_atomically, tmp_path / "run"
    saved = []

    def fills_up(path, content):
        saved.append(path)
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    monkeypatch.setattr(capri.train.checkpoints, "write_atomically", fills_up)
    result = CliRunner().invoke(commands, ["train", *feature_run, "--out", str(out)])
    assert result.exit_code == 2
    assert (
        "No space left on device. The previous checkpoint is intact; make room and run with --resume" in result.output
    )
    assert load_checkpoint(out / "checkpoints/last.ckpt")["epoch"] == 0
    monkeypatch.undo()
    invoke(["--resume", "--out", str(out)])
    assert len(metrics(out)) == 2


def test_a_file_that_cannot_grow_leaves_the_previous_checkpoint(tmp_path):
    """The operating system's own refusal: the limit on file sizes, in the middle of writing."""
    path, plugin = tmp_path / "last.ckpt", AtomicCheckpointIO()
    plugin.save_checkpoint({"epoch": 1}, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match="cannot write the checkpoint"):
            plugin.save_checkpoint({"epoch": 2, "weights": torch.zeros(100_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert plugin.load_checkpoint(path) == {"epoch": 1}
    assert {file.name for file in tmp_path.iterdir()} <= {"last.ckpt", "previous.ckpt"}


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"weights": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"last\.ckpt is not a readable checkpoint"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "absent.ckpt")


def test_batch_normalisation_over_processes_is_for_gpus(tmp_path, feature_run):
    result = CliRunner().invoke(
        commands, ["train", *feature_run, "--set=trainer.sync_batchnorm=true", "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 2
    assert "trainer.sync_batchnorm is true and trainer.accelerator 'cpu'" in result.output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["trainer.accelerator=mps"], "trainer.accelerator is 'mps', which torch does not find here; use auto."),
        (["loss.strategy=weighted", "loss.weights=[1, 2]"], "loss.weights has 2 entries for 3 classes; give one per"),
    ],
)
def test_what_only_the_run_can_know_is_one_line_too(tmp_path, feature_run, monkeypatch, settings, message):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    arguments = [*feature_run, *(f"--set={setting}" for setting in settings), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(commands, ["train", *arguments])
    assert result.exit_code == 2
    assert message in result.output
    assert "epoch" not in result.output


def test_a_diverging_run_says_so(tmp_path, feature_run):
    arguments = [*feature_run, "--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e38"]
    result = CliRunner().invoke(commands, ["train", *arguments, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "Lower optimizer.lr" in result.output


def test_print_config_shows_all_settings():
    output = invoke(["--print-config", "--preset", "paper"]).output
    assert "max_epochs = 300" in output
    assert "# epochs" in output
    strong = invoke(["--print-config", "--preset", "strong"]).output
    assert all(line in strong for line in ('operations = "one"', "cutout = 12", "ema = 0.998", "sam = 0.0"))


def test_classes_without_a_validation_sample(tmp_path, feature_run):
    rare = [*feature_run, "--set=data.profile=counts", "--set=data.counts=[40, 30, 1]", "--set=data.val_fraction=0.2"]
    refused = CliRunner().invoke(commands, ["train", *rare, "--out", str(tmp_path / "refused")])
    assert refused.exit_code == 2
    assert "class '2' has no validation sample" in refused.output
    assert "Set data.absent=ignore" in refused.output
    out = tmp_path / "run"
    with pytest.warns(AbsentClassWarning, match="class '2' has no validation sample and is left out"):
        invoke([*rare, "--set=data.absent=ignore", "--out", str(out)])
    errors = [[float(e) for e in line.split(",")[1:]] for line in (out / "class_errors.csv").read_text().split()[1:]]
    np.testing.assert_array_equal(np.isnan(errors), [[False, False, True]] * 2)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["val"]["balanced"] == pytest.approx(np.mean(errors[-1][:2]))
    assert "few" not in summary["val"]
    assert "few" in summary["test"]

"""The search by proxy as a run: what its network sees, how it resumes, and how it fails."""

import json
import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from capri import InputError
from capri.bilevel.side_by_side import train_side_by_side
from capri.cli import commands
from capri.policy import Policy
from capri.train import horizon_search, judging, proxy, search_runner
from capri.train.experiment import make_data, make_pretrained_model
from capri.train.recorder import Recorder
from capri.train.search_config import resolve_search

SETTINGS = {
    "search.method": "proxy", "data.val_fraction": 0.34, "data.imbalance": 2, "data.n_max": 9,
    "trainer.max_epochs": 2, "trainer.batch_size": 32, "trainer.accelerator": "cpu", "trainer.precision": "32-true",
    "search.network_epochs": 1, "search.epochs": 2, "search.generations": 2, "search.population": 4,
}  # fmt: skip


@pytest.fixture
def settings(tiny_cifar10):
    return [f"{name}={value}" for name, value in {"data.root": tiny_cifar10, **SETTINGS}.items()]


def resolved(settings, out, *changes):
    return resolve_search(preset="cpu", out=str(out), assignments=[*settings, *changes])


def run_search(settings, out, *changes, resume=False):
    return search_runner.search(resolved(settings, out, *changes), resume=resume)


def test_search_retrain_evaluate(settings, tmp_path):
    out = tmp_path / "run"
    flags = ["--preset", "cpu", *(f"--set={s}" for s in settings)]
    said = CliRunner().invoke(commands, ["search", *flags, "--out", str(out)])
    assert said.exit_code == 0, said.output
    assert "heads of 2 epochs on the features of a network of 1 epochs" in said.output
    assert "balanced by proxy, other orders of samples" in said.output
    search = json.loads((out / "search" / "summary.json").read_text())
    policy = Policy.load(out / "search" / "policy.json")
    assert search["chosen"] in policy.reason
    assert "by proxy" in policy.reason
    assert len(np.load(out / "search" / "trajectory.npz")["objective"]) == 2
    samples = {
        where: json.loads((out / where / "summary.json").read_text())["samples"]
        for where in ("search/network", "retrain")
    }
    assert samples["search/network"]["val"] == 20
    assert samples["retrain"]["train"] == samples["search/network"]["train"] + 20
    assert json.loads((out / "retrain" / "summary.json").read_text())["config"]["loss"]["strategy"] == "policy"


def test_features_are_those_of_a_network_that_has_not_seen_who_judges(settings, tmp_path):
    run_search(settings, tmp_path / "run")
    config = resolved(settings, tmp_path / "run")
    splits = make_data(config).splits
    kept = safetensors.torch.load_file(tmp_path / "run" / "features.safetensors")
    judges = kept["judges"]
    assert judges.sum() == len(splits.val)
    assert len(judges) == proxy.VIEWS * len(splits.train) + len(splits.val)
    assert not set(splits.train.index) & set(splits.val.index)
    counts = torch.bincount(kept["y"][~judges])
    assert counts.tolist() == (proxy.VIEWS * splits.train_counts).tolist()

    model = make_pretrained_model(config, splits, str(tmp_path / "run" / "network" / "model.safetensors")).eval()
    x = torch.from_numpy(splits.val.x).float() / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    with torch.no_grad():
        expected = model.features(((x - mean) / std).permute(0, 3, 1, 2))
    torch.testing.assert_close(kept["x"][judges], expected, rtol=1e-4, atol=1e-4)
    assert kept["y"][judges].tolist() == splits.val.y.tolist()


def test_who_judges_does_not_train(settings, tmp_path):
    """Heads are the same whatever the features of the validation samples are."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 64, generator=generator), torch.arange(60) % 10
    known = proxy.Features(x, y, torch.arange(60) >= 40)
    config = resolved(settings, tmp_path / "run")
    splits = make_data(config).splits
    named = horizon_search.stacked([n.strategy for n in horizon_search.named_losses(splits.train_counts)[:2]])

    def heads(known):
        v = judging.judge_by_proxy(config, splits, known, ledger=None).validation
        nobody = torch.zeros(2)  # but fold 0, who judges
        return train_side_by_side(v.model, named, v.x, v.y, v.recipe, left_out=nobody, folds=v.folds)["fc.weight"]

    other = known._replace(x=torch.where(known.judges[:, None], 100 * x, x))
    assert torch.equal(heads(known), heads(other))


class Interrupted(Exception):
    pass


STOPS = {
    "the network": (Recorder, "on_train_epoch_end"),
    "the features": (proxy.safetensors.torch, "load_file"),
    "a generation": (horizon_search.Trajectory, "note"),
}


@pytest.mark.parametrize("where", STOPS)
def test_resumed_is_bit_identical(settings, tmp_path, monkeypatch, one_thread, where):
    settings = [*settings, "search.network_epochs=2"]
    whole = run_search(settings, tmp_path / "whole")
    owner, name = STOPS[where]
    real = getattr(owner, name)

    def breaks(*arguments):
        real(*arguments)
        raise Interrupted

    monkeypatch.setattr(owner, name, breaks)
    with pytest.raises(Interrupted):
        run_search(settings, tmp_path / "resumed")
    monkeypatch.undo()
    resumed = run_search(settings, tmp_path / "resumed", resume=True)
    assert resumed["finalists"] == whole["finalists"]
    for name in ("features.safetensors", "network/model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes(), name
    with np.load(tmp_path / "whole" / "trajectory.npz") as a, np.load(tmp_path / "resumed" / "trajectory.npz") as b:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])


def test_features_that_are_gone_are_computed_again_and_changed_ones_refused(settings, tmp_path, one_thread):
    whole = run_search(settings, tmp_path / "run")
    kept = tmp_path / "run" / "features.safetensors"
    before = kept.read_bytes()
    kept.unlink()
    assert run_search(settings, tmp_path / "run", resume=True)["finalists"] == whole["finalists"]
    assert kept.read_bytes() == before
    kept.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    with pytest.raises(InputError, match="not what this search began with"):
        run_search(settings, tmp_path / "run", resume=True)


def test_features_of_a_run_that_had_judged_nothing_are_not_taken(settings, tmp_path):
    """They may be of other settings."""
    run_search(settings, tmp_path / "whole")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "features.safetensors").write_bytes(b"of another run")
    run_search(settings, tmp_path / "run")
    first, second = ((tmp_path / run / "features.safetensors").read_bytes() for run in ("whole", "run"))
    assert first == second


def test_a_given_network_is_taken_unless_it_has_seen_who_judges(settings, tmp_path):
    run_search(settings, tmp_path / "first")
    weights = tmp_path / "first" / "network" / "model.safetensors"
    run_search(settings, tmp_path / "given", f"search.init={weights}")
    assert not (tmp_path / "given" / "network").exists()
    first, given = ((tmp_path / run / "features.safetensors").read_bytes() for run in ("first", "given"))
    assert first == given
    with pytest.raises(InputError, match=r"data\.val_fraction, and may have seen"):
        run_search(settings, tmp_path / "other", f"search.init={weights}", "data.val_fraction=0.2")


def test_what_cannot_be_is_said(settings, tmp_path, feature_file):
    feature_file(tmp_path / "tiny.npz")
    heads = ["search.method=proxy", f"data.root={tmp_path}", "data.file=tiny.npz"]
    config = resolve_search(preset="features", out=str(tmp_path / "run"), assignments=heads)
    with pytest.raises(InputError, match="proxy is for networks on images"):
        search_runner.search(config)
    with pytest.raises(InputError, match=r"search\.init: .* is of another network"):
        run_search(settings, tmp_path / "run", f"search.init={_weights(tmp_path / 'other.safetensors')}")


def _weights(path):
    safetensors.torch.save_file({"conv1.weight": torch.zeros(1)}, path)
    return path


def test_a_loss_that_is_not_finite_ends_it(settings, tmp_path):
    with pytest.raises(FloatingPointError, match=r"lower optimizer.lr|Lower optimizer\.lr"):
        run_search(settings, tmp_path / "run", "optimizer.lr=1e30")
    assert not (tmp_path / "run" / "features.safetensors").exists()


def test_a_vanished_data_file_is_named(settings, tmp_path):
    run_search(settings, tmp_path / "run")
    shutil.rmtree(tmp_path / "data" / "cifar-10-batches-bin")
    with pytest.raises(InputError, match="cifar10 is not complete below"):
        run_search(settings, tmp_path / "run", resume=True)


def test_a_full_disk_leaves_what_was_there(settings, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(proxy, "write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        run_search(settings, tmp_path / "run")
    monkeypatch.undo()
    assert not (tmp_path / "run" / "features.safetensors").exists()
    assert np.isfinite(run_search(settings, tmp_path / "run", resume=True)["value"])

"""The search by populations as a run: what it finds and leaves behind, how it resumes, and how it fails."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.train.test_search import write_long_tail
from typer.testing import CliRunner

from capri import InputError
from capri.cli import commands
from capri.policy import Policy
from capri.train import horizon_search, search_runner
from capri.train.experiment import make_data
from capri.train.judgements import JUDGED
from capri.train.judging import judge_by_folds
from capri.train.proxy import Features
from capri.train.search_config import resolve_search

QUICK = {
    "data.file": "tail.npz", "data.profile": "exponential", "data.imbalance": 20, "model.name": "linear",
    "trainer.max_epochs": 4, "trainer.batch_size": 32, "trainer.accelerator": "cpu", "optimizer.lr": 0.05,
    "search.folds": 2, "search.generations": 2, "search.population": 4, "search.parts": '["l","delta"]',
}  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    write_long_tail(tmp_path / "tail.npz")
    return [f"{name}={value}" for name, value in {"data.root": tmp_path, **QUICK}.items()]


def run_search(settings, out, *changes, resume=False):
    config = resolve_search(preset="features", out=str(out), assignments=[*settings, *changes])
    return search_runner.search(config, resume=resume)


def test_search_retrain_evaluate(settings, tmp_path):
    out = tmp_path / "run"
    flags = ["--preset", "features", *(f"--set={s}" for s in settings), "--set=search.parts=[]"]
    said = CliRunner().invoke(commands, ["search", *flags, "--out", str(out)])
    assert said.exit_code == 0, said.output
    assert "← chosen" in said.output
    rows = list(csv.DictReader((out / "search" / "finalists.csv").read_text().splitlines()))
    named = ["cross-entropy", "LA", "VS", "scaled LA", "smoothed LA"]
    assert [row["loss"].split(",")[0].split(":")[0] for row in rows] == [*named, "CAP"]
    policy = Policy.load(out / "search" / "policy.json")
    assert policy.side == "loss"
    summary = json.loads((out / "search" / "summary.json").read_text())
    assert summary["chosen"] in policy.reason
    assert summary["value"] == min(float(row["value"]) for row in rows)
    for name in ("alpha.png", "trajectory.npz", "config.toml"):
        assert (out / "search" / name).exists()
    assert json.loads((out / "retrain" / "summary.json").read_text())["config"]["loss"]["strategy"] == "policy"


def test_what_the_evidence_chooses_is_what_is_returned(settings, tmp_path, monkeypatch):
    """Where CAP is judged worse, the policy is the best named loss, and says so."""
    real = horizon_search.Judge.errors

    def worse(self, name, strategies, folds=None):
        found = real(self, name, strategies, folds).copy()
        if folds is not None:
            found[-1] = 1.0
        return found

    monkeypatch.setattr(horizon_search.Judge, "errors", worse)
    summary = run_search(settings, tmp_path / "run")
    policy = Policy.load(tmp_path / "run" / "policy.json")
    assert not summary["chosen"].startswith("CAP")
    assert policy.weights == {}
    assert policy.reason.startswith(summary["chosen"])


UNROLLED = ("search.method=unrolled", "optimizer.lr=0.01", "trainer.batch_size=256", "trainer.max_epochs=20")


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop", ["generation 1", "generation 2", "finalists, folds 1"])
def test_resumed_is_bit_identical_and_judges_only_what_is_missing(settings, tmp_path, monkeypatch, stop):
    whole = run_search(settings, tmp_path / "whole")
    real, judged = horizon_search.Ledger.once, []

    def breaks(self, name, judge):
        if name == stop:
            raise Interrupted
        return real(self, name, judge)

    monkeypatch.setattr(horizon_search.Ledger, "once", breaks)
    with pytest.raises(Interrupted):
        run_search(settings, tmp_path / "resumed")
    monkeypatch.undo()

    def noted(self, name, judge):
        def tell():
            judged.append(name)
            return judge()

        return real(self, name, tell)

    monkeypatch.setattr(horizon_search.Ledger, "once", noted)
    resumed = run_search(settings, tmp_path / "resumed", resume=True)
    assert judged[0] == stop
    assert resumed["finalists"] == whole["finalists"]
    policies = [Policy.load(tmp_path / run / "policy.json") for run in ("whole", "resumed")]
    np.testing.assert_array_equal(policies[0].strategy.l, policies[1].strategy.l)
    np.testing.assert_array_equal(policies[0].strategy.delta, policies[1].strategy.delta)


@pytest.mark.slow
def test_unrolled_is_resumed_bit_by_bit(settings, tmp_path, monkeypatch):
    """Descends along the derivative through training; interrupted after a step, it ends with the same bits."""
    whole = run_search(settings, tmp_path / "whole", *UNROLLED)
    real = horizon_search.Ledger.keep_mapping

    def breaks(self, name, arrays):
        real(self, name, arrays)
        raise Interrupted

    monkeypatch.setattr(horizon_search.Ledger, "keep_mapping", breaks)
    with pytest.raises(Interrupted):
        run_search(settings, tmp_path / "resumed", *UNROLLED)
    monkeypatch.setattr(horizon_search.Ledger, "keep_mapping", real)
    resumed = run_search(settings, tmp_path / "resumed", *UNROLLED, resume=True)
    assert resumed["finalists"] == whole["finalists"]
    paths = [np.load(tmp_path / run / "trajectory.npz") for run in ("whole", "resumed")]
    assert len(paths[0]["objective"]) > 1
    for name in paths[0].files:
        np.testing.assert_array_equal(paths[0][name], paths[1][name])


def test_a_damaged_checkpoint_and_another_search_are_refused(settings, tmp_path):
    run_search(settings, tmp_path / "run")
    with pytest.raises(InputError, match="holds a run already"):
        run_search(settings, tmp_path / "run")
    with pytest.raises(InputError, match=r"started with other settings: search\.objective"):
        run_search(settings, tmp_path / "run", "search.objective=sdev", resume=True)
    kept = tmp_path / "run" / "checkpoints" / "last.ckpt"
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    with pytest.raises(InputError, match=r"last\.ckpt"):
        run_search(settings, tmp_path / "run", resume=True)


@pytest.mark.parametrize("how", [(), UNROLLED], ids=["population", "unrolled"])
def test_the_validation_part_judges_where_there_are_no_folds(settings, tmp_path, how, capsys):
    changes = ("search.folds=0", "data.val_fraction=0.3", "data.noise=0.4", 'search.attributes=["freq","noise"]')
    summary = run_search(settings, tmp_path / "run", *changes, *how)
    config = resolve_search(preset="features", assignments=[*settings, *changes, *how])
    splits = make_data(config).splits
    known = Features.of(splits)
    np.testing.assert_array_equal(known.x[known.judges], splits.val.x)
    np.testing.assert_array_equal(known.y[~known.judges], splits.train.y)
    said = capsys.readouterr().out
    assert f"{len(splits.val)} validation (per-class split of train)" in said
    assert "balanced on validation, other orders of samples" in said
    assert np.isfinite(summary["value"])


def test_a_spread_is_not_bought_with_worse_classes(settings, tmp_path):
    """All classes equally wrong have no spread: what is above cross-entropy's balanced error counts against it."""
    config = resolve_search(preset="features", out=str(tmp_path), assignments=[*settings, "search.objective=sdev"])
    splits = make_data(config).splits
    judge = judge_by_folds(config, splits, None)
    unadjusted = np.linspace(0.1, 0.6, splits.n_classes)
    equal, better = np.full((1, splits.n_classes), 0.9), 0.8 * unadjusted[None]
    assert judge.values(equal)[0] == pytest.approx(0, abs=1e-12)
    assert judge.values(equal, unadjusted)[0] == pytest.approx(2 * (0.9 - 0.35))
    assert judge.values(better, unadjusted)[0] == pytest.approx(0.8 * unadjusted.std())
    balanced = judge_by_folds(replace(config, search=replace(config.search, objective="balanced")), splits, None)
    assert balanced.values(equal, unadjusted)[0] == pytest.approx(0.9)


@pytest.mark.parametrize("objective", ["cvar:0.2", "sdev", "worst"])
def test_any_objective_of_class_errors(settings, tmp_path, objective):
    summary = run_search(settings, tmp_path / "run", f"search.objective={objective}")
    assert summary["objective"].startswith(objective.partition(":")[0])
    assert np.isfinite(summary["value"])


def test_what_was_judged_serves_another_objective_and_other_attributes(settings, tmp_path, monkeypatch, capsys):
    """Named losses and generations of the first search are not judged again."""
    run_search(settings, tmp_path / "first", 'search.attributes=["freq"]')
    known = tmp_path / "first" / JUDGED
    real, judged = horizon_search.Ledger.once, []

    def noted(self, name, judge):
        judged.append(name)
        return real(self, name, judge)

    monkeypatch.setattr(horizon_search.Ledger, "once", noted)
    changes = ("search.objective=sdev", "search.generations=1", f"search.known={known}")
    summary = run_search(settings, tmp_path / "second", *changes)
    assert judged == ["generation 1", "finalists, folds 1", "finalists, folds 2"]
    assert summary["objective"] == "sdev"
    assert "24 named losses, and 8 of 8 other strategies" in capsys.readouterr().out
    with np.load(known) as first, np.load(tmp_path / "second" / JUDGED) as second:
        assert list(second["names"]) == [*first["names"], *4 * ["generation 1"]]
        np.testing.assert_array_equal(second["errors"][: len(first["errors"])], first["errors"])


def test_judgements_of_others_are_refused(settings, tmp_path):
    run_search(settings, tmp_path / "first")
    known = tmp_path / "first" / JUDGED
    for change in ("seed=1", "search.folds=3", "trainer.max_epochs=5", "data.imbalance=10", "trainer.batch_size=64"):
        with pytest.raises(InputError, match="judged by other samples, folds or training"):
            run_search(settings, tmp_path / "second", f"search.known={known}", change)
    with pytest.raises(InputError, match="cannot take over"):
        run_search(settings, tmp_path / "second", f"search.known={known}", "search.method=unrolled")
    with pytest.raises(InputError, match="cannot be read"):
        run_search(settings, tmp_path / "second", "search.known=nowhere.npz")


def test_damaged_judgements_are_refused(settings, tmp_path):
    run_search(settings, tmp_path / "first")
    whole = (tmp_path / "first" / JUDGED).read_bytes()
    with np.load(tmp_path / "first" / JUDGED) as file:
        arrays = dict(file)
    bad = tmp_path / "bad.npz"
    for content in (b"", b"text", whole[:200], whole[: len(whole) // 2]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match="no file of judgements"):
            run_search(settings, tmp_path / "second", f"search.known={bad}")
    for change in ({"errors": arrays["errors"][1:]}, {"l": arrays["l"][:, 1:]}, {"names": arrays["names"][2:]},
                   {"errors": arrays["errors"] + np.nan}, {"delta": -arrays["delta"]}):  # fmt: skip
        np.savez(bad, **{**arrays, **change})
        with pytest.raises(InputError, match="is damaged"):
            run_search(settings, tmp_path / "second", f"search.known={bad}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('search.attributes=["identity"]', "one free number per class"),
        ('search.attributes=["norm"]', "names norm"),
        ("trainer.mixup=0.2", "without mixup"),
        ("search.folds=1", "search.folds is 1; it must be at least 2"),
        ("search.population=2", "search.population is 2; it must be at least 4"),
    ],
)
def test_what_cannot_be_is_said(settings, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        run_search(settings, tmp_path / "run", "search.method=population", change)


def test_losses_that_are_not_finite_end_the_search(settings, tmp_path):
    with pytest.raises((FloatingPointError, InputError), match="not finite"):
        run_search(settings, tmp_path / "run", "optimizer.name=sgd", "optimizer.lr=1e30")


def test_the_method_is_chosen_by_the_network(tmp_path):
    heads = resolve_search(preset="features")
    assert (heads.search.method, heads.search.delta_form, heads.search.scaling) == ("population", "exp", "ordered")
    assert heads.data.val_fraction == 0
    images = resolve_search(preset="cpu")
    assert (images.search.method, images.search.delta_form, images.search.scaling) == ("one-step", "sigmoid", "whiten")
    free = resolve_search(preset="features", assignments=['search.attributes=["identity"]'])
    assert free.search.method == "one-step"
    assert torch.get_num_threads() >= 1

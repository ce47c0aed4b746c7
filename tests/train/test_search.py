"""The search: what it finds, what it leaves behind, how it resumes, and how it fails."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from capri._checks import InputError
from capri.attributes import Attributes, difficulty, frequency
from capri.bilevel import Dictionaries, MovingLoss, OuterObjective, OuterStep, StrategyMap, measure_classes
from capri.cli import commands
from capri.policy import Policy
from capri.train import search, search_runner
from capri.train.checkpoints import load_checkpoint
from capri.train.experiment import make_data
from capri.train.search import Search, ThinValidationWarning, importance_stream, validation_stream
from capri.train.search_config import resolve_search


def write_long_tail(path: Path, seed: int = 0) -> Path:
    """Six overlapping Gaussian classes; class 2 is hard: it sits between two others."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 1.6, (6, 4))
    centres[2] = (centres[0] + centres[1]) / 2
    arrays = {}
    for split, n in (("train", 120), ("test", 100)):
        y = np.repeat(np.arange(6), n)
        arrays[f"x_{split}"] = (centres[y] + rng.normal(size=(len(y), 4))).astype(np.float32)
        arrays[f"y_{split}"] = y
    np.savez(path, **arrays)
    return path


@pytest.fixture
def settings(tmp_path: Path) -> list[str]:
    write_long_tail(tmp_path / "tail.npz")
    values = {
        "data.root": tmp_path,
        "data.file": "tail.npz",
        "data.profile": "exponential",
        "data.imbalance": 20,
        "model.name": "linear",
        "trainer.max_epochs": 6,
        "trainer.batch_size": 32,
        "trainer.accelerator": "cpu",
        "search.method": "one-step",
        "search.warmup_epochs": 2,
        "optimizer.lr": 0.05,
    }
    return [f"{name}={value}" for name, value in values.items()]


def run_search(settings: list[str], out: Path, *changes: str, resume: bool = False) -> dict:
    config = resolve_search(preset="features", out=str(out), assignments=[*settings, *changes])
    return search_runner.search(config, resume=resume)


def flags(settings: list[str]) -> list[str]:
    return ["--preset", "features", *(f"--set={s}" for s in settings)]


def trajectory(out: Path) -> dict[str, np.ndarray]:
    with np.load(out / "trajectory.npz", allow_pickle=False) as file:
        return dict(file)


def test_a_search_trains_with_sam_and_leaves_averages_to_retraining(settings, tmp_path):
    plain, sharp = (
        run_search(settings, tmp_path / name, *changes)
        for name, changes in (("plain", []), ("sharp", ["optimizer.sam=0.2", "trainer.ema=0.9"]))
    )
    assert sharp["outer_steps"] == plain["outer_steps"] > 0
    assert sharp["value"] != plain["value"]
    stored = [load_checkpoint(tmp_path / name / "checkpoints/last.ckpt")["callbacks"] for name in ("plain", "sharp")]
    assert set(stored[0]) == set(stored[1]) == {"Recorder"}


def test_search_retrain_evaluate(settings, tmp_path):
    out = tmp_path / "run"
    result = CliRunner().invoke(commands, ["search", *flags(settings), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "test: plain" in result.output
    assert "left 0:00:0" in result.output
    found = Policy.load(out / "search/policy.json")
    history = trajectory(out / "search")
    steps = len(history["time"])
    assert steps == 4 * len(load_steps(out / "search"))  # an outer step per inner step, from epoch 3 on
    assert history["time"][0] == pytest.approx(2.0)
    assert history["class_errors"].shape == (6, 6)
    assert history["w_l"].shape[0] == steps
    np.testing.assert_allclose(history["w_l"][-1], found.weights["l"])
    np.testing.assert_allclose(history["w_delta"][-1], found.weights["delta"])
    assert np.abs(found.strategy.l).max() > 0.01, "the strategy moved"
    assert (found.method, found.side, found.validation) == ("bilevel", "loss", None)
    assert (out / "search/alpha.png").read_bytes().startswith(b"\x89PNG")

    # diff is the smoothed validation error at the end of warm-up, and the search begins with its spread
    summary = json.loads((out / "search/summary.json").read_text())
    errors = history["start_errors"]
    np.testing.assert_allclose(errors, history["class_errors"][1])
    assert found.data["validation"] == {"objective": summary["value"], "start_sdev": summary["start_sdev"]}
    assert summary["start_sdev"] == pytest.approx(errors.std()) == float(history["start_sdev"])
    config = resolve_search(preset="features", assignments=settings)
    counts = np.bincount(make_data(config).splits.val.y)
    np.testing.assert_allclose(found.attributes["diff"], difficulty(errors, counts))

    # retraining uses all of the training data and the found strategy
    retrained = json.loads((out / "retrain/summary.json").read_text())
    assert retrained["samples"]["train"] == sum(make_data(config).splits.train_counts) + counts.sum()
    assert retrained["config"]["loss"]["strategy"] == "policy"

    # the same by hand
    again = ["retrain", *flags(s for s in settings if not s.startswith("search")), "--out", str(tmp_path / "again")]
    result = CliRunner().invoke(commands, [*again, "--policy", str(out / "search/policy.json")])
    assert result.exit_code == 0, result.output
    weights = [(folder / "model.safetensors").read_bytes() for folder in (out / "retrain", tmp_path / "again")]
    assert weights[0] == weights[1]
    result = CliRunner().invoke(commands, [*again[:-1], str(tmp_path / "inverse"), "--policy",
                                      str(out / "search/policy.json"), "--transfer", "inverse"])  # fmt: skip
    assert result.exit_code == 2
    assert "is a loss already and is taken as it is" in result.output


def load_steps(folder: Path) -> range:
    """Inner steps of an epoch."""
    checkpoint = load_checkpoint(folder / "checkpoints/last.ckpt")
    return range(checkpoint["global_step"] // (checkpoint["epoch"] + 1))


def test_the_search_lowers_the_objective(settings, tmp_path):
    """Rare classes get less of the loss's offsets, as in logit adjustment, and balanced validation improves."""
    still = run_search(settings, tmp_path / "still", "search.lr=0", "trainer.max_epochs=15")
    moved = run_search(settings, tmp_path / "moved", "trainer.max_epochs=15")
    assert moved["value"] < still["value"] - 0.1
    l = Policy.load(tmp_path / "moved/policy.json").strategy.l
    assert l[:2].mean() > l[-2:].mean() + 0.3


@pytest.mark.parametrize(
    "changes",
    [
        ['search.attributes=["identity"]', "search.hessian=ggn-cg", "search.iterations=3"],
        ['search.parts=["l", "omega", "smoothing"]', "search.objective=sdev"],
        ["search.hessian=neumann", "search.optimizer=sgd", "search.objective=cvar:0.4", "search.delta_form=normalized"],
        ['search.attributes=["freq", "norm"]', "search.every=3", "search.warmup_epochs=0", "trainer.mixup=0.2"],
    ],
    ids=["plain", "omega and smoothing", "neumann", "no warm-up"],
)
def test_variants_run(settings, tmp_path, changes):
    summary = run_search(settings, tmp_path / "run", *changes, "trainer.max_epochs=4")
    assert np.isfinite(summary["value"])
    found = Policy.load(tmp_path / "run/policy.json")
    history = trajectory(tmp_path / "run")
    for part in found.weights:
        assert np.ptp(history[f"w_{part}"], axis=0).max() > 1e-3, f"{part} moved"
    if "smoothing" in found.weights:
        assert 0 < found.strategy.smoothing.min() < found.strategy.smoothing.max() < 0.5


def test_logit_adjustment_is_a_start(settings, tmp_path):
    run_search(settings, tmp_path / "run", "search.tau=1.0", "search.lr=0", 'search.attributes=["freq"]')
    policy = Policy.load(tmp_path / "run/policy.json")
    log_pi = np.log(policy.attributes["freq"])
    np.testing.assert_allclose(policy.strategy.l, log_pi - log_pi.mean(), atol=0.1)


def test_a_plain_loop_finds_the_same_w(settings, tmp_path, monkeypatch):
    """The laboratory's batches, start and learning rates in a plain loop with `OuterStep`: W is equal, to the bit."""
    config = resolve_search(preset="features", out=str(tmp_path / "run"), assignments=[*settings, "model.name=mlp"])
    s, seen = config.search, {"train": [], "val": [], "rates": []}
    real_step, real_stream, real_init = Search.training_step, search.validation_stream, Search.__init__

    def training_step(self, batch, batch_idx):
        seen["train"].append(batch)
        seen["rates"].append(self.optimizers().param_groups[0]["lr"])
        return real_step(self, batch, batch_idx)

    def stream(*arguments):
        for batch in real_stream(*arguments):
            seen["val"].append(batch)
            yield batch

    def init(self, model, *arguments):
        seen["model"] = copy.deepcopy(model)
        real_init(self, model, *arguments)

    monkeypatch.setattr(Search, "training_step", training_step)
    monkeypatch.setattr(Search, "__init__", init)
    monkeypatch.setattr(search, "validation_stream", stream)
    search_runner.search(config)

    splits = make_data(config).splits
    x_val, y_val = torch.from_numpy(splits.val.x), torch.from_numpy(splits.val.y)
    freq, counts = frequency(splits.train_counts), np.bincount(splits.val.y)
    model, objective, val = seen["model"], OuterObjective("balanced", counts), iter(seen["val"])
    inner = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=config.optimizer.weight_decay)
    loss = MovingLoss(StrategyMap(Dictionaries.of(None, 6), delta_form=s.delta_form)())
    per_epoch = len(seen["train"]) // 6
    for i, (batch, lr) in enumerate(zip(seen["train"], seen["rates"], strict=True)):
        if i % per_epoch == 0:
            errors = measure_classes(model, objective, [(x_val, y_val)])
        if i == 2 * per_epoch:  # the end of warm-up
            attributes = Attributes.of(freq=freq, diff=difficulty(errors, counts))
            made = StrategyMap(Dictionaries.of(attributes, 6), delta_form=s.delta_form)
            outer = OuterStep(model, made, objective, lr=s.lr)
            loss = outer.loss
        if i >= 2 * per_epoch:
            outer.step(batch, next(val), rate=lr / 0.05)
        inner.param_groups[0]["lr"] = lr
        inner.zero_grad()
        loss(model(batch[0]), batch[1]).backward()
        inner.step()

    weights = trajectory(tmp_path / "run")
    for part, w in outer.map.weights().items():
        np.testing.assert_array_equal(w, weights[f"w_{part}"][-1])
        assert np.abs(w - weights[f"w_{part}"][0]).max() > 0.1, "it went somewhere"
    found = Policy.load(tmp_path / "run/policy.json").strategy
    np.testing.assert_array_equal(outer.strategy().l, found.l)
    np.testing.assert_array_equal(outer.strategy().delta, found.delta)


class Interrupted(Exception):
    pass


STEADY = ["search.draw=importance", "search.average=0.5", "search.prior=0.01", "search.trust=true"]


@pytest.mark.parametrize(
    ("stop", "changes"),
    [(2, []), (4, []), (4, STEADY)],
    ids=["as the search begins", "in the search", "with all that makes it steady"],
)
def test_resumed_is_bit_identical(settings, tmp_path, monkeypatch, stop, changes):
    """Interrupted in the middle of an epoch and resumed, a search ends with the bits of an undisturbed one."""
    settings = [*settings, *changes]
    run_search(settings, tmp_path / "whole", "search.every=2")
    real = Search.training_step

    def breaks(self, batch, batch_idx):
        if self.current_epoch == stop and batch_idx == 3:
            raise Interrupted
        return real(self, batch, batch_idx)

    monkeypatch.setattr(Search, "training_step", breaks)
    with pytest.raises(Interrupted):
        run_search(settings, tmp_path / "resumed", "search.every=2")
    monkeypatch.undo()
    run_search(settings, tmp_path / "resumed", "search.every=2", resume=True)
    for name in ("model.safetensors", "class_errors.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes(), name
    whole, resumed = trajectory(tmp_path / "whole"), trajectory(tmp_path / "resumed")
    for name in whole:
        np.testing.assert_array_equal(whole[name], resumed[name])
    policies = [Policy.load(tmp_path / run / "policy.json").weights for run in ("whole", "resumed")]
    assert policies[0] == policies[1]


def test_the_averaged_w_is_the_result(settings, tmp_path):
    last, mean = (
        run_search(settings, tmp_path / name, f"search.average={share}")
        for name, share in (("last", 0), ("mean", 0.25))
    )
    history = trajectory(tmp_path / "mean")
    n = round(0.25 * last["outer_steps"])
    assert n > 5
    found = Policy.load(tmp_path / "mean/policy.json")
    for part, w in found.weights.items():
        np.testing.assert_allclose(w, history[f"w_{part}"][-n:].mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(history["w_l"], trajectory(tmp_path / "last")["w_l"])
    at_last = Policy.load(tmp_path / "last/policy.json").strategy
    assert np.abs(found.strategy.l - at_last.l).max() > 1e-3
    assert last["value"] == mean["value"]


def test_a_search_that_trusts_little_stays_near_its_start(settings, tmp_path):
    def travelled(*changes: str) -> float:
        out = tmp_path / "-".join(["run", *changes]).replace("/", "")
        run_search(settings, out, "trainer.batch_size=8", "search.lr=0.05", *changes)
        history = trajectory(out)
        return sum(float(np.linalg.norm(history[f"w_{p}"][-1] - history[f"w_{p}"][0])) for p in ("l", "delta"))

    free = travelled()
    assert travelled("search.trust=true") < free
    assert travelled("search.prior=10") < free


@pytest.mark.parametrize("change", ["search.average=1.5", "search.prior=-1", "search.draw=all"])
def test_steadying_settings_are_checked(settings, change):
    with pytest.raises(InputError, match=change.split("=")[0].replace(".", r"\.")):
        resolve_search(preset="features", assignments=[*settings, change])


def test_a_finished_search_stands(settings, tmp_path):
    first, again = (run_search(settings, tmp_path / "run", "trainer.max_epochs=3", resume=r) for r in (False, True))
    assert {name: first[name] for name in ("value", "start_sdev", "outer_steps", "val")} == {
        name: again[name] for name in ("value", "start_sdev", "outer_steps", "val")
    }


def test_a_search_folder_is_not_overwritten(settings, tmp_path):
    run_search(settings, tmp_path / "run", "trainer.max_epochs=3")
    with pytest.raises(InputError, match="holds a run already"):
        run_search(settings, tmp_path / "run", "trainer.max_epochs=3")
    with pytest.raises(InputError, match=r"started with other settings: search\.lr"):
        run_search(settings, tmp_path / "run", "trainer.max_epochs=3", "search.lr=0.2", resume=True)


# -- how it fails ------------------------------------------------------------------------------------------------------


def test_an_exploding_strategy_stops_and_the_last_good_one_stays(settings, tmp_path):
    arguments = [*settings, "search.optimizer=sgd", "search.lr=50", "search.limit=4"]
    out = tmp_path / "run"
    result = CliRunner().invoke(commands, ["search", *flags(arguments), "--out", str(out)])
    assert result.exit_code == 2
    assert "the strategy diverged in epoch" in result.output
    assert "search.limit is 4" in result.output
    assert "the checkpoint of the epoch before is intact; there was no strategy yet" in result.output
    assert load_checkpoint(out / "search/checkpoints/last.ckpt")["epoch"] >= 1
    assert np.isfinite(trajectory(out / "search")["objective"]).all()


def test_a_loss_that_is_not_finite_is_named_at_once(settings, tmp_path, monkeypatch):
    real = Search._outer_step

    def poisoned(self, train):
        real(self, train)
        if self.current_epoch == 4:
            self.loss.l.fill_(float("nan"))

    monkeypatch.setattr(Search, "_outer_step", poisoned)
    with pytest.raises(FloatingPointError, match=r"the training loss is nan in epoch 5, step 1\. Lower optimizer\.lr"):
        run_search(settings, tmp_path / "run")
    assert load_checkpoint(tmp_path / "run/checkpoints/last.ckpt")["epoch"] == 3
    assert np.isfinite(Policy.load(tmp_path / "run/policy.json").strategy.l).all()


def test_difficulty_from_a_handful_of_samples_is_warned_of(settings, tmp_path):
    with pytest.warns(ThinValidationWarning, match="fewer than 5 validation samples in 4 of 6 classes"):
        run_search(settings, tmp_path / "run", "data.n_max=80", "data.imbalance=40", "trainer.max_epochs=3")


def test_a_search_shorter_than_the_training(settings, tmp_path):
    config = resolve_search(
        preset="features", out=str(tmp_path), assignments=[*settings, "search.epochs=3", "trainer.max_epochs=4"]
    )
    summary = search_runner.search_and_retrain(config)
    assert summary["retrain"]["epochs"] == 4
    assert len((tmp_path / "search" / "metrics.csv").read_text().splitlines()) == 1 + 3
    with pytest.raises(InputError, match=r"search\.warmup_epochs is 2 of 2 epochs"):
        resolve_search(preset="features", assignments=[*settings, "search.epochs=2"])


@pytest.mark.filterwarnings("ignore::capri.train.search.ThinValidationWarning")
def test_a_class_without_validation_samples(settings, tmp_path):
    thin = ["data.imbalance=120"]  # the rarest class has one sample, which trains
    with pytest.raises(InputError, match=r"class '5' has no validation sample"):
        run_search(settings, tmp_path / "run", *thin)
    with pytest.warns(UserWarning, match="left out of the objective"):
        summary = run_search(settings, tmp_path / "ignored", *thin, "data.absent=ignore", "trainer.max_epochs=4")
    assert np.isfinite(summary["value"])
    assert np.isnan(trajectory(tmp_path / "ignored")["class_errors"][-1, 5])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (['search.attributes=["colour"]'], "give some of freq, weights, noise, norm, diff, or identity alone"),
        (["search.warmup_epochs=9"], "nothing is left to search in"),
        (["search.every=0"], r"search\.every is 0; it must be at least 1"),
        (["search.weight_decay=-1"], r"search\.weight_decay is -1\.0; it must be at least 0"),
        (["search.momentum=2"], r"search\.momentum is 2\.0; it must lie in \[0, 1\)"),
        (["data.name=cifar10-lt", "search.weights=[1, 2]"], r"search\.weights has 2 entries for 10 classes"),
        (["loss.strategy=la"], r"start it with search\.tau"),
        (["trainer.devices=2", "search.method=population"], "a search by population runs on one device"),
    ],
)
def test_settings_are_checked(settings, changes, message):
    with pytest.raises(InputError, match=message):
        resolve_search(preset="features", assignments=[*settings, *changes])


def test_noise_needs_noise(settings, tmp_path):
    with pytest.raises(InputError, match=r"set data\.noise"):
        run_search(settings, tmp_path / "run", 'search.attributes=["noise"]')
    run_search(settings, tmp_path / "run", 'search.attributes=["freq", "noise"]', "data.noise=0.4")
    assert set(Policy.load(tmp_path / "run/policy.json").attributes) == {"freq", "noise"}


def test_the_validation_stream_shows_every_sample(settings):
    data = make_data(resolve_search(preset="features", assignments=settings))
    stream, n = validation_stream(data, 10), len(data.splits.val)
    batches = []
    while sum(map(len, batches)) < n:
        batches.append(next(stream)[1])
    seen = torch.cat(batches)
    assert sorted(seen.tolist()) == sorted(data.splits.val.y.tolist())
    assert seen.tolist() != data.splits.val.y.tolist()


def test_the_importance_stream_shows_classes_as_they_count(settings):
    config = resolve_search(preset="features", assignments=settings)
    data = make_data(config)
    counts = np.bincount(data.splits.val.y)
    objective = OuterObjective("balanced", counts)
    stream, seen, weights = importance_stream(data, 10, objective), [], []
    while sum(map(len, seen)) < 3000:
        x, y, w = next(stream)
        assert len(x) == len(y) == len(w) <= 10
        seen.append(y)
        weights.append(w)
    labels = torch.cat(seen)
    np.testing.assert_allclose(np.bincount(labels) / len(labels), np.full(6, 1 / 6), atol=0.04)
    a = objective.coefficients()
    torch.testing.assert_close(a[labels] * torch.cat(weights), torch.ones(len(labels), dtype=torch.float64))


def test_settings_are_printed():
    result = CliRunner().invoke(commands, ["search", "--print-config", "--preset", "paper"])
    assert result.exit_code == 0
    assert "[search]" in result.output
    assert "warmup_epochs = 120" in result.output

"""Score sets of made-up data: parts do not overlap, draws have the shares they promise, the cache is used."""

import importlib
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from capri import evaluate
from capri.study import METHODS, judge

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def scoresets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module with one made-up set of six classes, 120 to 170 samples each, and a cache of its own."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in ("realdata", "scoresets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module("scoresets")
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(list("abcdef"), np.arange(120, 180, 10)))
    x = np.searchsorted(list("abcdef"), y)[:, None] + rng.normal(0, 1, (len(y), 3))
    monkeypatch.setitem(sys.modules["realdata"].SETS, "made-up", lambda: (x, y))
    monkeypatch.setattr(module, "ALL", {"made-up": ("forest", "linear")})
    monkeypatch.setattr(module, "CACHE", tmp_path)
    yield module
    for name in ("realdata", "scoresets"):
        del sys.modules[name]


def test_halves_share_the_sets_and_have_the_same_models(scoresets: ModuleType):
    develop, report = scoresets.DEVELOP, scoresets.REPORT
    assert sorted([*develop, *report]) == sorted(set(sys.modules["realdata"].SETS) - {"made-up"})
    develop_models, report_models = (Counter(m for pair in half.values() for m in pair) for half in (develop, report))
    assert develop_models == report_models
    assert set(develop_models) == set(scoresets.MODELS)
    assert all(tree in scoresets.TREES and other not in scoresets.TREES for tree, other in (develop | report).values())


def test_parts_are_disjoint_and_training_is_long_tailed(scoresets: ModuleType):
    y = np.repeat(np.arange(6), np.arange(120, 180, 10))
    train, pool, test = scoresets.divide_classes(y, natural=False, seed=1)
    parts = np.concatenate([train, pool, test])
    assert len(np.unique(parts)) == len(parts) == len(y)
    assert sorted(np.bincount(y[train])) == [3, 5, 8, 14, 23, 40]
    assert np.bincount(y[test]).min() >= 30
    assert not np.array_equal(train, scoresets.divide_classes(y, natural=False, seed=2)[0])


def test_natural_sets_keep_their_shares_with_three_samples_at_least(scoresets: ModuleType):
    sizes = np.array([30_000, 3_000, 40])
    counts = scoresets.training_counts(sizes, True, np.random.default_rng(0))
    assert counts.tolist() == [5448, 545, 7]
    _, pool, test = scoresets.divide_classes(np.repeat(np.arange(3), sizes), natural=True, seed=0)
    assert len(pool) == 500 + 500 + 17
    assert len(test) == 500 + 500 + 16


def test_scores_are_computed_once_and_listed(
    scoresets: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    scoresets.make(seeds=2)
    assert capsys.readouterr().out.count("made-up") == 4
    monkeypatch.delattr(scoresets, "compute")
    scoresets.make(seeds=2)
    assert capsys.readouterr().out == ""
    found = scoresets.score_set("made-up", "forest", 1)
    assert found.kind == "proba"
    np.testing.assert_allclose(found.test_scores.sum(axis=1), 1, rtol=1e-6)
    assert scoresets.score_set("made-up", "linear", 1).kind == "logits"
    errors = [
        1 - balanced_accuracy_score(s.test_y, s.test_scores.argmax(axis=1))
        for s in (scoresets.score_set("made-up", "linear", seed) for seed in (0, 1))
    ]
    scoresets.show()
    assert (
        f"| linear | {100 * np.mean(errors):.1f} ± {100 * np.std(errors, ddof=1):.1f} | 2 |" in capsys.readouterr().out
    )


def test_a_set_without_its_data_is_left_out_with_a_word(
    scoresets: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    missing = sys.modules["realdata"].package
    monkeypatch.setitem(sys.modules["realdata"].SETS, "made-up", lambda: missing("no_such_package"))
    scoresets.make(seeds=1)
    assert capsys.readouterr().out.splitlines() == [
        f"{i}/2 made-up {model} 0 left out: package no_such_package is not installed: see requirements/scoresets.txt"
        for i, model in ((1, "forest"), (2, "linear"))
    ]


@pytest.mark.parametrize("model", ["net", "svm", "kernel", "extra", "boost"])
def test_every_model_scores_every_class(scoresets: ModuleType, model: str):
    found = scoresets.compute("made-up", model, 0)
    assert found.test_scores.shape == (len(found.test_y), 6)
    assert np.isfinite(found.test_scores).all()
    assert balanced_accuracy_score(found.test_y, found.test_scores.argmax(axis=1)) > 1 / 6


def test_draws_have_their_shares_and_contain_the_smaller_ones(scoresets: ModuleType):
    scores = scoresets.score_set("made-up", "linear", 0)
    pool = np.bincount(scores.pool_y)
    assert (np.bincount(scoresets.draw(scores, "balanced", 5).val_y) == 5).all()
    assert (np.bincount(scoresets.draw(scores, "balanced").val_y) == pool.min()).all()
    natural = np.bincount(scoresets.draw(scores, "natural", 10).val_y)
    assert np.array_equal(natural, np.maximum(1, np.rint(60 * scores.train_counts / scores.train_counts.sum())))
    rows = {
        shares: [scoresets.draw(scores, shares, n, seed=3) for n in (2, 10, None)] for shares in ("natural", "balanced")
    }
    for small, medium, large in rows.values():
        sets = [set(map(bytes, split.val_scores)) for split in (small, medium, large)]
        assert sets[0] < sets[1] < sets[2]


def test_a_sample_of_the_world_may_miss_a_class(scoresets: ModuleType):
    scores = scoresets.score_set("made-up", "linear", 0)
    splits = [scoresets.draw(scores, "natural", 5, seed, every_class=False) for seed in range(20)]
    assert {len(split.val_y) for split in splits} == {30}
    for split in splits:
        assert split.absent == ("error" if len(np.unique(split.val_y)) == 6 else "ignore")
    assert {split.absent for split in splits} == {"error", "ignore"}


def test_weighted_test_samples_have_the_training_shares(scoresets: ModuleType):
    scores = scoresets.score_set("made-up", "forest", 0)
    weight = scores.test_weight
    assert weight.mean() == pytest.approx(1)
    shares = np.bincount(scores.test_y, weight) / weight.sum()
    np.testing.assert_allclose(shares, scores.train_counts / scores.train_counts.sum())
    predictions = scores.test_scores.argmax(axis=1)
    found = evaluate(scores.test_y, predictions, 6, ["macro_f1"], sample_weight=weight)["macro_f1"]
    assert found == pytest.approx(1 - f1_score(scores.test_y, predictions, average="macro", sample_weight=weight))


def test_studies_run_on_draws(scoresets: ModuleType):
    scores = scoresets.score_set("made-up", "forest", 0)
    outcome = judge(scoresets.draw(scores, "natural", 5), "balanced", METHODS["unadjusted"])
    expected = 1 - balanced_accuracy_score(scores.test_y, scores.test_scores.argmax(axis=1))
    assert outcome.test["balanced"] == pytest.approx(expected)

"""The arithmetic of the out-of-sample benchmark on made-up rows, and its judging on a made-up score set."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MODULES = ("realdata", "scoresets", "outofsample_runs", "outofsample")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("outofsample")
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def runs(bench: ModuleType) -> ModuleType:
    return sys.modules["outofsample_runs"]


def made_up(seed: int, default: float, *, size: int = 5, excess: tuple = (0.0, 0.01), claimed: tuple = (0.1, 0, 0.2)):
    """A row with these figures of the default; all others have test value 0.5."""
    entry = {"test": [0.5, 0.5, 0.5, 0.5, default], "claimed": list(claimed), "delivered": 0.5 - default}
    limited = {**entry, "excess": [[-0.02, 0.0]] * 4 + [list(excess)]}
    names = ("balanced", "sdev", "cvar:0.2", "quantile:0.2", "worst", "weighted", "macro_f1")
    where = {"algorithm": 2, "name": "vowel", "model": "extra", "shares": "natural", "size": size, "seed": seed}
    pool = {"n": 50, "most": 30.0, "all": size == 0}
    return {**where, **pool, "objectives": dict.fromkeys(names, entry) | {"constrained": limited}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.50, 0.50, 0.50], (0, 0, 8)),  # ties are neither
        ([0.60, 0.60, 0.60], (8, 0, 8)),  # worse without any spread
        ([0.40, 0.41, 0.42], (0, 8, 8)),  # -0.09 with a standard error of 0.0058
        ([0.40, 0.70, 0.55], (0, 0, 8)),  # +0.05 with a standard error of 0.087
        ([0.60, 0.60], (0, 0, 0)),  # too few seeds to count
    ],
)
def test_a_cell_counts_beyond_two_standard_errors(bench: ModuleType, values: list[float], expected: tuple):
    found = bench.cells(made_up(seed, value) for seed, value in enumerate(values))
    assert bench.count(found, "default", "la") == expected


def test_violations_count_beyond_their_noise_and_by_shares(bench: ModuleType):
    rows = [made_up(seed, 0.5, excess=excess) for seed, excess in enumerate([(0.03, 0.01), (0.01, 0.01), (-0.01, 0.0)])]
    assert bench.violations(rows, "default", "natural") == (1, 3)
    assert bench.violations(rows, "la", "natural") == (0, 3)
    assert bench.violations(rows, "default", "balanced") == (0, 0)


def test_coverage_leaves_out_runs_without_an_interval(bench: ModuleType):
    claims = [(0.1, 0.0, 0.2), (0.3, 0.2, 0.4), (0.2, None, None), (None, None, None)]
    rows = [made_up(seed, 0.4, claimed=claimed) for seed, claimed in enumerate(claims)]  # delivered: 0.1
    found = bench.coverage(row["objectives"]["balanced"] for row in rows)
    assert found[:2] == (1, 2)
    assert found[2:] == pytest.approx((0.2, 0.1))
    assert bench.coverage([]).n == 0


def test_sizes_that_a_pool_cannot_give_are_filled_with_all_it_has(bench: ModuleType):
    rows = [made_up(0, 0.4, size=20), made_up(0, 0.3, size=0)]  # the pool has 30 per class
    filled = sorted((row["size"], row["objectives"]["balanced"]["test"][-1]) for row in bench.filled(rows))
    assert filled == [(0, 0.3), (20, 0.4), (50, 0.3)]
    exactly = {**made_up(0, 0.4, size=20), "all": True, "most": 20.0}
    assert sorted(row["size"] for row in bench.filled([exactly])) == [0, 20, 50]


def test_means_are_over_cells_not_over_seeds(bench: ModuleType):
    rows = [made_up(0, 0.2), made_up(1, 0.4), {**made_up(0, 0.6), "name": "letter"}]
    found = bench.chosen(bench.cells(rows), objective="balanced")
    assert bench.mean(found)[-1] == pytest.approx((0.3 + 0.6) / 2)


@pytest.mark.parametrize("padded", [True, False])
def test_all_tables_are_shown_and_drawn(bench: ModuleType, tmp_path: Path, padded: bool):
    rows = [made_up(seed, 0.4 + 0.01 * seed, size=size) for seed in range(3) for size in (5, 0)]
    text = bench.shown(rows, "report", padded)
    assert all(f"## {section.title}" in text for section in bench.SECTIONS)
    assert "unadjusted in 0.0 % (better in 100.0 %)" in text
    assert "better than every rival at every size" in text
    assert "nan" not in text
    assert ("![" in text) != padded
    bench.draw(rows, tmp_path / "figure.svg")
    assert bench.digest(rows) in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_the_figure_of_the_page_is_of_the_stored_results(bench: ModuleType):
    rows = bench.load(half="report")
    if not rows:
        pytest.skip("the report half has not been run")
    assert bench.digest(rows) in bench.FIGURE.read_text(encoding="utf-8")


def test_paired_error_is_that_of_a_stratified_mean(runs: ModuleType):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [20, 50, 5])
    weight = np.array([3.0, 1.0, 0.5])[y]
    differences = rng.integers(-1, 2, len(y)).astype(float)
    share = np.array([60, 50, 2.5]) / 112.5
    parts = [share[k] ** 2 * differences[y == k].var(ddof=1) / (y == k).sum() for k in range(3)]
    assert runs.paired_error(y, differences, weight) == pytest.approx(np.sqrt(sum(parts)))
    assert runs.paired_error(y, np.zeros(len(y)), weight) == 0


@pytest.fixture
def scores(runs: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """Logits of four classes, 40 samples each in the pool and on test, trained on 90 to 10 samples."""
    rng = np.random.default_rng(0)
    counts, y = np.array([90, 60, 30, 10]), np.repeat(np.arange(4), 40)
    logits = [rng.normal(size=(160, 4)) + 2 * np.eye(4)[y] + np.log(counts / 90) for _ in range(2)]
    found = runs.ScoreSet(logits[0], y, logits[1], y, counts, np.array(list("abcd")), "logits")
    monkeypatch.setattr(runs, "score_set", lambda name, model, seed: found)
    return found


def test_a_size_needs_a_pool_that_has_it(runs: ModuleType, scores):
    assert runs.sizes_of(scores, "balanced", runs.SIZES) == [2, 5, 10, 20, 0]
    assert runs.sizes_of(scores, "natural", runs.SIZES) == [2, 5, 10, 20, 0]  # 40 of the largest class: 21.1
    assert runs.sizes_of(scores, "balanced", [5, 40, 0]) == [5, 40]  # all are no more than 40


@pytest.mark.filterwarnings("ignore")
def test_rows_are_judged_stored_and_resumed(runs: ModuleType, scores, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    wanted = ("weighted", "constrained", "sdev", "macro_f1")
    monkeypatch.setattr(runs, "OBJECTIVES", {name: runs.OBJECTIVES[name] for name in wanted})
    asked = []

    class Spy(runs.LogitAdjuster):
        def fit(self, *args, **known):
            asked.append((self.objective, self.method, self.constraints, self.weights is not None))
            return super().fit(*args, **known)

    monkeypatch.setattr(runs, "LogitAdjuster", Spy)
    path = tmp_path / "results.jsonl"
    path.write_text('{"algorithm": 0, "name": "vowel"}\n{"algorithm": 2, "na', encoding="utf-8")
    run = runs.Run("vowel", "extra", "balanced", 5, 0)
    said: list[str] = []
    runs.run_all([run], jobs=1, path=path, say=said.append)
    assert len(said) == len(path.read_text(encoding="utf-8").splitlines()) == 1
    runs.run_all([run], jobs=1, path=path, say=said.append)
    assert len(said) == 1
    limit = ("plain <= baseline + 0.02",)
    assert [c for o, _, c, _ in asked if o == "balanced"] == [limit] * 3
    assert {c for o, _, c, _ in asked if o != "balanced"} == {None}
    assert {o for o, _, _, weights in asked if weights} == {"weighted"}
    (row,) = runs.load(path)
    assert (row["n"], row["most"], row["all"]) == (20, 40.0, False)
    _check_figures(runs, scores, row["objectives"])


def _check_figures(runs: ModuleType, scores, entries) -> None:
    """Test values of τ = 1, computed here: what exceeds a limit is added."""
    y, k = scores.test_y, list(runs.METHODS).index("la1")
    before = scores.test_scores.argmax(axis=1) != y
    after = (scores.test_scores - np.log(scores.train_counts)).argmax(axis=1) != y
    share = scores.train_counts / scores.train_counts.sum()
    first, second = (np.bincount(y, wrong) / 40 for wrong in (before, after))
    excess = share @ second - share @ first - 0.02
    assert entries["constrained"]["excess"][k][0] == pytest.approx(excess, abs=1e-5)
    assert entries["constrained"]["test"][k] == pytest.approx(second.mean() + max(0, excess), abs=1e-5)
    guard = max(0, second.mean() - first.mean())
    assert entries["sdev"]["test"][k] == pytest.approx(second.std() + guard, abs=1e-5)
    weights = np.random.default_rng(1000).uniform(size=4)
    assert entries["weighted"]["test"][k] == pytest.approx(weights @ second / weights.sum(), abs=1e-5)

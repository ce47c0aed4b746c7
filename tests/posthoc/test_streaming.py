"""Tuning on sources: as in memory where the rows fit, on a sample that is verified on every row where they do not."""

import json

import numpy as np
import pytest

from capri import InputError, LogitAdjuster, class_errors, evaluate
from capri.blocks import as_source
from capri.posthoc import streaming
from capri.posthoc.streaming import as_bytes, choose, even_sizes

K, N = 6, 2400
COUNTS = np.array([900, 300, 100, 50, 30, 20])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    y = rng.choice(K, N, p=COUNTS / COUNTS.sum())
    return (rng.normal(size=(N, K)) + 2 * np.eye(K)[y] + np.log(COUNTS)).astype(np.float32), y


@pytest.fixture
def sources(data, tmp_path):
    """The same rows in several kinds of sources."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    scores, y = data
    np.save(tmp_path / "x.npy", scores)
    columns = {f"score_{k}": scores[:, k] for k in range(K)} | {"label": y}
    parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet", row_group_size=700)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = {
        "array": as_source(scores, y, rows=500),
        "memory map": as_source(mapped, y, rows=333),
        "npy": as_source(tmp_path / "x.npy", y),
        "parquet": as_source(tmp_path / "x.parquet", rows=100),
        "blocks": as_source([(scores[i : i + 1000], y[i : i + 1000]) for i in range(0, N, 1000)]),
    }
    try:
        import dask.array as da
    except ImportError:
        return found
    return found | {"dask": as_source(da.from_array(scores, chunks=(300, -1)), da.from_array(y, chunks=300))}


@pytest.fixture
def small(monkeypatch):
    """A budget of which next to nothing goes to reading."""
    monkeypatch.setattr(streaming, "BLOCKS", 0)
    return int(24 * N + 600 * K * (4 + streaming.WORKING * 4))


def same(policy, other):
    """Equal but for the names of the classes, which only tables have."""
    return json.loads(policy.to_json())["policy"] == json.loads(other.to_json())["policy"]


def test_where_rows_fit_the_policy_is_that_of_the_array(data, sources):
    expected = LogitAdjuster("cvar:0.4", bootstrap=20).fit(*data, class_counts=COUNTS)
    for kind, source in sources.items():
        found = LogitAdjuster("cvar:0.4", bootstrap=20).fit(source, class_counts=COUNTS, memory="1GB")
        assert same(found.policy_, expected.policy_), kind
        assert source.passes == 1


def test_an_array_with_a_budget_is_a_source(data):
    expected = LogitAdjuster(bootstrap=0).fit(*data)
    assert same(LogitAdjuster(bootstrap=0).fit(*data, memory=1e9).policy_, expected.policy_)


class TestSample:
    def test_is_the_same_of_every_source(self, sources, small):
        found = {
            kind: LogitAdjuster(bootstrap=20).fit(source, class_counts=COUNTS, memory=small)
            for kind, source in sources.items()
        }
        first = found["array"].policy_
        assert first.data["sample"]["n_samples"] <= 600
        for kind, adjuster in found.items():
            assert same(adjuster.policy_, first), kind
            assert sources[kind].passes == 2, kind  # one to gather, one to verify

    @pytest.mark.parametrize("objective", ["balanced", "macro_f1", "cvar:0.4"])
    def test_figures_are_counted_on_every_row(self, data, small, objective):
        scores, y = data
        constraint = "plain <= baseline + 0.05"
        adjuster = LogitAdjuster(objective, bootstrap=0, constraints=[constraint])
        adjuster.fit(as_source(scores, y), memory=small)
        found, after = adjuster.validation_, adjuster.predict(scores)
        np.testing.assert_allclose(found.errors_after, class_errors(y, after, K))
        np.testing.assert_allclose(found.errors_before, class_errors(y, scores.argmax(axis=1), K))
        assert found.samples == np.bincount(y).tolist()
        for figures, decided in ((found.before, scores.argmax(axis=1)), (found.after, after)):
            expected = evaluate(y, decided, K, [*figures])
            assert figures == pytest.approx(expected)
        assert found.in_sample == pytest.approx(found.before[objective] - found.after[objective])
        (value, limit) = found.limits[constraint]
        assert value == pytest.approx(found.after["plain"])
        assert limit == pytest.approx(found.before["plain"] + 0.05)
        assert adjuster.policy_.data["n_samples"] == N
        assert "rows" in adjuster.reason_

    def test_is_judged_in_the_shares_of_all_rows(self, data, small):
        """Of a sample with equally many rows of each class, the plain error would be the balanced one."""
        scores, y = data
        adjuster = LogitAdjuster("plain", bootstrap=0).fit(as_source(scores, y), memory=small)
        assert adjuster.validation_.after["plain"] <= adjuster.validation_.before["plain"] + 0.01

    def test_a_limit_that_only_the_sample_keeps_is_told(self, data, small, monkeypatch):
        scores, y = data
        true = streaming.confusions

        def worse(*arguments):
            before, after = true(*arguments)
            return [before, np.roll(after, 1, axis=1)]

        monkeypatch.setattr(streaming, "confusions", worse)
        adjuster = LogitAdjuster(bootstrap=0, constraints=["plain <= baseline + 0.3"])
        with pytest.warns(UserWarning, match="the constraints are not met: the sample that tuned met them by chance"):
            adjuster.fit(as_source(scores, y), memory=small)
        assert not adjuster.validation_.feasible

    def test_leaves_classes_with_few_rows_whole(self, data):
        _, y = data
        budget = int(streaming.BLOCKS + 24 * N + 600 * K * (4 + streaming.WORKING * 4))
        rows = choose(y, K, 4, budget, 0)
        assert (np.bincount(y[rows.chosen]) == even_sizes(np.bincount(y), 600)).all()
        each, mean = rows.bounds(K)
        assert 0 < mean < each < 1
        assert choose(y, K, 4, None, 0).bounds(K) == (0, 0)

    def test_the_bounds_hold_for_most_samples(self, data):
        """Of a rule that no sample tuned, here the highest score; nine of ten samples at least."""
        scores, y = data
        wrong = scores.argmax(axis=1) != y
        errors, kept = np.bincount(y, wrong) / np.bincount(y), []
        for seed in range(50):
            rows = choose(y, K, 4, streaming.BLOCKS + 24 * N + 200 * K * (4 + 4 * int(streaming.WORKING)), seed)
            some = np.bincount(y[rows.chosen], wrong[rows.chosen]) / np.bincount(y[rows.chosen])
            each, mean = rows.bounds(K)
            kept.append([np.abs(some - errors).max() <= each, abs(some.mean() - errors.mean()) <= mean])
        assert (np.mean(kept, axis=0) >= 0.9).all()


class TestRefusals:
    def test_budgets(self):
        assert as_bytes("2GB") == 2 * 10**9
        assert as_bytes("1.5 mb") == 1_500_000
        for bad in ("much", "", "-1GB", "0", "2 parsecs", 0, 10**400, "9" * 400, "9" * 308 + "GB"):
            with pytest.raises(InputError, match="give a number of bytes, or a text such as '2GB'"):
                as_bytes(bad)

    def test_a_budget_that_is_too_small(self, data):
        with pytest.raises(InputError, match=r"does not hold 2 rows of each of 6 classes; give at least 0\.3GB"):
            LogitAdjuster().fit(as_source(*data), memory="200MB")

    def test_weights(self, data):
        with pytest.raises(InputError, match="sample_weight cannot be given beside a source"):
            LogitAdjuster().fit(as_source(*data), None, np.ones(N))

    def test_no_labels(self, data):
        with pytest.raises(InputError, match="no labels"):
            LogitAdjuster().fit(as_source(data[0]))

    def test_a_source_that_changes_before_it_is_verified(self, data, small):
        scores, y = data
        calls = []

        def blocks():
            calls.append(1)
            return [(scores if len(calls) < 5 else -scores, y)]

        with pytest.raises(InputError, match="changed while it was read"):
            LogitAdjuster(bootstrap=0).fit(as_source(blocks), memory=small)


@pytest.mark.parametrize("most", [0, 2, 7, 100, 999])
def test_even_sizes(most):
    counts = np.array([40, 5, 60])
    found = even_sizes(counts, most)
    assert found.sum() <= most
    assert (found <= counts).all()
    level = found.max()
    assert (found == np.minimum(counts, level)).all()
    if most < counts.sum():
        assert np.minimum(counts, level + 1).sum() > most

"""Every kind of source yields the same rows, checked, pass after pass."""

import os
from decimal import Decimal

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from capri import InputError, LogitAdjuster, Policy, Strategy, evaluate
from capri.blocks import as_source, survey
from capri.blocks.source import added

from .conftest import KINDS, K, N


def drained(source):
    """All rows of a pass."""
    blocks = list(source)
    labels = None if blocks[0].labels is None else np.concatenate([block.labels for block in blocks])
    return np.concatenate([block.scores for block in blocks]), labels


@pytest.fixture
def policy():
    return Policy(Strategy.of(K, l=np.log(np.arange(1, K + 1))), objective="balanced", classes=tuple(range(K)))


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_yields_the_rows_in_order_and_again(self, source, data, kind):
        opened = source(kind)
        for _ in range(2):
            scores, labels = drained(opened)
            np.testing.assert_array_equal(scores, data[0])
            np.testing.assert_array_equal(labels.astype(int), data[1])
        assert (opened.passes, opened.n_samples, opened.n_classes) == (2, N, K)
        if kind != "csv":  # text has no type
            assert scores.dtype == np.float16
            assert opened.digest == source("array").digest

    def test_blocks_are_bounded_and_say_where_they_stand(self, source, kind):
        starts = [(block.start, len(block.scores)) for block in source(kind)]
        assert [start for start, _ in starts] == [0, *np.cumsum([n for _, n in starts])[:-1].tolist()]
        assert max(n for _, n in starts) <= source(kind).rows

    def test_labels_are_surveyed_without_the_scores(self, source, data, kind):
        opened = source(kind)
        found = survey(opened)
        assert (found.distinct[found.codes].astype(int) == data[1]).all()
        if kind != "csv":
            np.testing.assert_array_equal(found.encoded(found.classes(K)), data[1])
        assert opened.passes == 0

    def test_policies_decide_and_are_evaluated_as_in_memory(self, source, data, policy, kind):
        scores, y = data
        expected = policy.predict(scores)
        np.testing.assert_array_equal(policy.predict(source(kind)), expected, strict=True)
        wanted = ["plain", "balanced", "worst", "macro_f1", "cvar:0.3"]
        if kind == "csv":
            policy = Policy(policy.strategy, objective="balanced", classes=tuple(map(str, range(K))))
        assert evaluate(source(kind), policy, objectives=wanted) == evaluate(y, expected, K, wanted)
        if kind != "csv":
            assert evaluate(source(kind), None) == evaluate(y, scores.argmax(axis=1), K)


class TestReduction:
    def test_confusion_matrices_are_those_of_scikit_learn(self, source, data):
        from capri.blocks.tallies import confusions, unadjusted

        scores, y = data
        for kind in ("parquet", "dask"):
            [found] = confusions(source(kind), [unadjusted], {k: k for k in range(K)})
            np.testing.assert_array_equal(found, confusion_matrix(y, scores.argmax(axis=1)))

    @pytest.mark.parametrize("n", range(1, 20))
    def test_sums_as_a_tree_keep_the_order(self, n):
        assert added(([i] for i in range(n)), lambda one, other: one + other) == list(range(n))


class TestNames:
    def test_columns_go_by_the_names_of_a_policy_s_classes(self, data, write):
        scores, _ = data
        names = [f"c{k}" for k in range(K)]
        policy = Policy(Strategy.of(K, l=np.arange(K)), objective="balanced", classes=tuple(names))
        shuffled = {f"score_{names[k]}": scores[:, k] for k in (3, 1, 0, 6, 5, 2, 4)}
        np.testing.assert_array_equal(policy.predict(as_source(write("s.parquet", shuffled))), policy.predict(scores))

    def test_files_of_a_folder_may_have_them_in_another_order(self, data, folder, write, columns):
        turned = dict(reversed({k: v[:50] for k, v in columns.items()}.items()))
        write("scores/part-3.parquet", turned)
        scores, labels = drained(as_source(folder))
        np.testing.assert_array_equal(scores[N:], data[0][:50])
        np.testing.assert_array_equal(labels[N:], data[1][:50])

    def test_what_is_hidden_in_a_folder_is_left_out(self, folder, write, columns):
        write("scores/_part.parquet", {"a": [1.0]})
        assert as_source(folder).n_samples == N

    def test_estimators_predict(self, source, data):
        scores, y = data
        adjuster = LogitAdjuster(method="la", bootstrap=0).fit(scores, y)
        np.testing.assert_array_equal(adjuster.predict(source("folder")), adjuster.predict(scores))


class TestRefusals:
    def refusal(self, source):
        with pytest.raises(InputError) as refused:
            drained(source)
        return str(refused.value)

    def test_a_score_that_is_no_number_in_the_middle(self, folder, write, columns):
        bad = {k: v[:1000].copy() for k, v in columns.items()}
        bad["score_4"][777] = np.nan
        path = write("scores/part-1.parquet", bad, row_group_size=200)
        said = self.refusal(as_source(folder, rows=64))
        assert f"{path}, row group 3, row 177, column '4': the score is nan" in said

    def test_a_label_out_of_range_in_the_middle(self, folder, write, columns):
        bad = {k: v[:1000].copy() for k, v in columns.items()}
        bad["label"][777] = 99
        path = write("scores/part-1.parquet", bad, row_group_size=200)
        with pytest.raises(InputError, match=r"row group 3, row 177: the label is 99, and there are 7 score columns"):
            survey(as_source(folder))
        policy = Policy(Strategy.of(K), objective="balanced", classes=tuple(range(K)))
        with pytest.raises(InputError) as refused:
            evaluate(as_source(folder), policy)
        assert f"{path}, row group 3, row 177: the label is 99, which is not in the class list" in str(refused.value)

    def test_a_file_without_a_column(self, folder, write, columns):
        path = write("scores/part-1.parquet", {k: v for k, v in columns.items() if k != "score_4"})
        with pytest.raises(InputError) as refused:
            drained(as_source(folder))
        assert f"{path}: has no column 'score_4', which part-0.parquet has" in str(refused.value)

    @pytest.mark.parametrize("prefix", ["score_", ""])
    def test_a_file_with_a_class_more(self, folder, write, columns, prefix):
        named = {k.replace("score_", prefix): v[:100] for k, v in columns.items()}
        for i in range(3):
            write(f"scores/part-{i}.parquet", named | ({f"{prefix}new": named["label"]} if i == 1 else {}))
        with pytest.raises(InputError, match=f"part-1.parquet: has a column '{prefix}new', which part-0.parquet lacks"):
            drained(as_source(folder))

    def test_a_file_with_a_column_more_that_is_no_score(self, folder, write, columns):
        write("scores/part-1.parquet", {k: v[:1000] for k, v in columns.items()} | {"id": np.arange(1000)})
        assert len(drained(as_source(folder))[1]) == 3000

    def test_a_column_that_is_text(self, folder, write, columns):
        bad = {k: v[:1000] for k, v in columns.items()} | {"score_4": ["1"] * 300 + ["much"] + ["1"] * 699}
        path = write("scores/part-1.parquet", bad, row_group_size=200)
        said = self.refusal(as_source(folder))
        assert f"{path}, row group 1, row 100, column 'score_4': 'much' is not a number" in said

    def test_a_missing_label(self, write, columns):
        labels = columns["label"].tolist()
        labels[1234] = None
        path = write("x.parquet", columns | {"label": labels}, row_group_size=1000)
        assert f"{path}, row group 1, row 234: there is no label" in self.refusal(as_source(path))

    def test_row_groups_of_other_widths(self, write):
        lists = [[0.0, 1.0, 2.0]] * 50 + [[0.0, 1.0]] * 50
        path = write("x.parquet", {"scores": lists, "y": [0, 1] * 50}, row_group_size=50)
        assert f"{path}, row group 1, row 0: 2 scores, where there were 3 before" in self.refusal(as_source(path))
        path = write("y.parquet", {"scores": [*lists[:60], *lists[:40]], "y": [0, 1] * 50}, row_group_size=50)
        assert "row group 1, row 10: 3 scores, where there were 2 before" in self.refusal(as_source(path))

    def test_a_row_of_csv(self, tmp_path):
        (tmp_path / "x.csv").write_text("a,b,label\n" + "1,2,0\n" * 500 + "1,,0\n")
        assert "x.csv, line 502, column 'b': '' is not a number" in self.refusal(as_source(tmp_path / "x.csv", rows=64))

    def test_a_folder_that_changes_between_passes(self, folder, write, columns):
        opened = as_source(folder)
        drained(opened)
        write("scores/part-2.parquet", {k: v[:1000] for k, v in columns.items()}, row_group_size=200)
        assert f"{folder} changed while it was read" in self.refusal(opened)

    def test_a_file_more_between_passes(self, folder, write, columns):
        opened = as_source(folder)
        survey(opened)
        write("scores/part-3.parquet", {k: v[:10] for k, v in columns.items()})
        assert "changed while it was read" in self.refusal(opened)

    def test_content_that_changes_behind_the_same_dates(self, tmp_path, data):
        path = tmp_path / "x.npy"
        np.save(path, data[0])
        opened = as_source(path)
        drained(opened)
        before = path.stat()
        np.save(path, np.where(np.arange(N)[:, None] == 1500, -data[0], data[0]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert "changed while it was read" in self.refusal(opened)

    def test_rows_in_another_order(self, data):
        scores, y = data
        opened = as_source(iter_twice([(scores, y), (scores[::-1], y[::-1])]))
        drained(opened)
        assert "changed while it was read" in self.refusal(opened)

    def test_labels_that_change(self, data):
        scores, y = data
        names = np.array(["alphabetical", "alphabetically"])
        opened = as_source(iter_twice([(scores, names[y % 2]), (scores, names[1 - y % 2])]))
        drained(opened)
        assert "changed while it was read" in self.refusal(opened)

    def test_a_file_that_is_cut_short_between_passes(self, tmp_path, data):
        path = tmp_path / "x.npy"
        np.save(path, data[0])
        opened = as_source(path)
        with path.open("r+b") as stream:
            stream.truncate(2000)
        assert "x.npy: the file is cut short or damaged" in self.refusal(opened)

    def test_an_iterator_that_is_over_after_one_pass(self, data):
        with pytest.raises(InputError, match="an iterator can be passed over only once"):
            as_source(iter([data]))

    @pytest.mark.parametrize("thing", [7, None, np.float64(1)])
    def test_what_is_no_source(self, thing):
        with pytest.raises(InputError):
            as_source(thing)

    def test_labels_of_another_length(self, data):
        with pytest.raises(InputError, match="there are 10 labels; give one per row"):
            as_source(data[0], data[1][:10])
        with pytest.raises(InputError, match="5 labels for 10 rows"):
            drained(as_source([(data[0][:10], data[1][:5])]))

    def test_sources_without_labels_cannot_be_evaluated(self, data):
        with pytest.raises(InputError, match="has no labels, which are needed here"):
            evaluate(as_source(data[0]), None)

    def test_weights_are_refused(self, data):
        with pytest.raises(InputError, match="sample_weight cannot be given beside a source"):
            evaluate(as_source(*data), None, sample_weight=np.ones(N))

    def test_what_gives_no_rows(self, data):
        class Closed:
            shape, dtype = data[0].shape, data[0].dtype

            def __getitem__(self, rows):
                raise ValueError("Not a dataset")

        assert "scores does not give slices of rows (Not a dataset)" in self.refusal(as_source(Closed(), data[1]))

    @pytest.mark.parametrize("kind", ["datetime64[s]", "datetime64[D]", "timedelta64[s]"])
    def test_times_are_no_scores(self, write, columns, kind):
        path = write("x.parquet", columns | {"score_3": np.arange(N).astype(kind)})
        assert "row group 0, row 0, column 'score_3': datetime" in self.refusal(as_source(path))

    def test_labels_of_other_types_are_refused_or_counted(self, write, columns):
        path = write("x.parquet", columns | {"label": np.arange(N).astype("datetime64[s]")})
        with pytest.raises(InputError, match=r"x\.parquet, row group 0, row 7: the label is datetime"):
            survey(as_source(path))
        path = write("x.parquet", columns | {"label": [Decimal(int(k)) for k in columns["label"]]})
        assert (
            survey(as_source(path)).distinct.tolist()
            == survey(as_source(write("y.parquet", columns))).distinct.tolist()
        )


def iter_twice(passes):
    """A function whose calls return blocks that are others each time; the first call is the look at the first block."""
    calls = iter([passes[0], *passes])
    return lambda: [next(calls)]

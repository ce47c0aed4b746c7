"""Commands on scores in blocks of rows: budgets, folders, and what is left behind when they fail."""

import json
import os
import signal

import numpy as np
import pytest

from capri import Policy
from capri.posthoc import streaming

NAMES = ("cat", "dog", "lynx")


@pytest.fixture
def folder(data, tmp_path):
    """Half-precision scores with labels by name, in a folder of three files with small row groups."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    scores, y = data
    (tmp_path / "scores" / "more").mkdir(parents=True)
    for i, name in enumerate(("a", "b", "more/c")):
        rows = slice(30 * i, 30 * i + 30)
        columns = {f"score_{n}": scores[::, k].astype(np.float16)[turned(y)][rows] for k, n in enumerate(NAMES)}
        columns["label"] = np.array(NAMES)[y[turned(y)][rows]]
        parquet.write_table(pyarrow.table(columns), tmp_path / "scores" / f"{name}.parquet", row_group_size=13)
    return tmp_path / "scores"


def turned(y):
    """An order in which every file has samples of every class."""
    return np.arange(len(y)).reshape(3, -1).T.ravel()


@pytest.fixture
def small(monkeypatch):
    """A budget for about half of the rows."""
    monkeypatch.setattr(streaming, "BLOCKS", 0)
    return str(int(24 * 90 + 45 * 3 * (2 + streaming.WORKING * 4)))


def content(path):
    return json.loads(path.read_text())["policy"]


class TestFolders:
    """All rows of a folder are read, or none; and none of its files is written over."""

    @pytest.mark.parametrize("output", ["scores/a.parquet", "scores/new.parquet", "scores/more/new.parquet",
                                        "target.parquet"])  # fmt: skip
    def test_no_file_of_a_folder_is_written(self, capri, folder, policy, tmp_path, output):
        (tmp_path / "target.parquet").write_bytes((folder / "a.parquet").read_bytes())
        (folder / "link.parquet").symlink_to(tmp_path / "target.parquet")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
        done = capri("apply", folder, policy, "-o", tmp_path / output)
        assert (done.code, "which is read as a whole; choose another" in done.err) == (2, True)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before

    def test_other_files_may_lie_beside_them(self, capri, folder, policy):
        assert capri("apply", folder, policy, "-o", folder / "p.csv").code == 0

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda path: path.symlink_to("nowhere"), "d.parquet: no such file"),
            (os.mkfifo, "d.parquet: is not a regular file"),
            (lambda path: path.symlink_to("/dev/zero"), "d.parquet: is not a regular file"),
        ],
    )
    def test_no_file_is_left_out(self, capri, folder, policy, make, message):
        make(folder / "d.parquet")
        for command in (["evaluate", folder], ["tune", folder], ["apply", folder, policy]):
            done = capri(*command)
            assert (done.code, message in done.err) == (2, True), done

    def test_linked_folders_are_read_and_circles_end(self, capri, folder, tmp_path):
        (tmp_path / "all").mkdir()
        (tmp_path / "all" / "linked").symlink_to(folder)
        (folder / "circle").symlink_to(tmp_path / "all")
        done = capri("evaluate", "all", "--json")
        assert json.loads(done.out)["n_samples"] == 90

    @pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may read any folder")
    def test_a_folder_that_cannot_be_read_is_no_empty_one(self, capri, folder):
        (folder / "more").chmod(0)
        assert "cannot be read (Permission denied)" in capri("evaluate", folder).err


class TestTune:
    @pytest.mark.parametrize("name", ["val.npz", "val.csv", "proba.npz", "scores.npy"])
    def test_with_a_budget_that_is_large_enough_writes_the_same_policy(self, capri, files, tmp_path, name):
        options = ["--labels", files / "labels.npy"] if name == "scores.npy" else []
        options += ["--proba"] if name == "proba.npz" else []
        for extra, output in (([], "whole.json"), (["--memory", "1GB"], "blocks.json")):
            done = capri("tune", files / name, *options, *extra, "-o", output)
            assert done.code == 0, done.err
        assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "blocks.json").read_bytes()

    def test_a_folder_in_memory_and_in_blocks(self, capri, folder, tmp_path):
        assert capri("tune", folder, "-o", "whole.json").code == 0
        assert capri("tune", folder, "--memory", "1 GB", "-o", "blocks.json").code == 0
        assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "blocks.json").read_bytes()
        assert content(tmp_path / "whole.json")["classes"] == list(NAMES)

    def test_a_sample_tunes_and_every_row_is_counted(self, capri, folder, tmp_path, small, data):
        done = capri("tune", folder, "--memory", small, "-o", "p.json", "--json")
        assert done.code == 0, done.err
        said = json.loads(done.out)
        assert "tuned on 45 of 90 rows" in said["reason"]
        assert [c["samples"] for c in said["classes"]] == [30, 30, 30]
        policy = Policy.load(tmp_path / "p.json")
        wrong = policy.predict(data[0].astype(np.float16)) != np.array(NAMES)[data[1]]
        assert said["after"]["plain"] == pytest.approx(wrong.mean())
        assert policy.data["sample"]["n_samples"] == 45

        shown = capri("evaluate", folder, "--policy", "p.json")
        assert "on the samples that tuned the policy, which flatter it" in " ".join(shown.out.split())

    def test_bad_budgets(self, capri, folder, tmp_path):
        for memory, message in (("lots", "give a number of bytes"), ("1MB", "give at least 0.3GB")):
            done = capri("tune", folder, "--memory", memory, "-o", "p.json")
            assert done.code == 2
            assert message in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["scores"]

    def test_a_label_that_is_no_class_names_its_row(self, capri, folder, tmp_path, data):
        parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        table = parquet.read_table(folder / "b.parquet")
        labels = table["label"].to_pylist()
        labels[20] = "dragon"
        table = table.set_column(3, "label", pyarrow.array(labels))
        parquet.write_table(table, folder / "b.parquet", row_group_size=13)
        done = capri("tune", folder, "--memory", "1GB", "-o", "p.json")
        assert done.code == 2
        assert f"{folder}/b.parquet, row group 1, row 7: the label is 'dragon'" in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["scores"]

    def test_an_interrupt_while_rows_are_counted_leaves_nothing(self, capri, folder, tmp_path, small, monkeypatch):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)

        def interrupted(*_):
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the signal was not heard")

        monkeypatch.setattr(streaming, "confusions", interrupted)
        try:
            done = capri("tune", folder, "--memory", small, "-o", "p.json")
        finally:
            signal.signal(signal.SIGINT, before)
        assert done.code == 130
        assert [path.name for path in tmp_path.iterdir()] == ["scores"]


class TestUse:
    def test_apply_and_evaluate_read_folders(self, capri, folder, files, policy, data, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        scores, y = data
        rule, order = Policy.load(policy), turned(y)
        halves = scores.astype(np.float16)[order]
        done = capri("apply", folder, policy, "-o", "p.parquet", "--adjusted", "a.npy")
        assert done.code == 0, done.err
        assert parquet.read_table("p.parquet")["prediction"].to_pylist() == rule.predict(halves).tolist()
        np.testing.assert_array_equal(np.load("a.npy"), rule.apply(halves), strict=True)
        said = json.loads(capri("evaluate", folder, "--policy", policy, "--json").out)
        assert said["after"]["plain"] == pytest.approx((rule.predict(halves) != np.array(NAMES)[y[order]]).mean())

    def test_a_column_of_lists_is_scores_in_the_policy_s_order(self, capri, data, policy, tmp_path):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        scores, y = data
        parquet.write_table(pyarrow.table({"logits": scores.tolist(), "y": y}), tmp_path / "x.parquet")
        done = capri("apply", "x.parquet", policy, "-o", "p.npz")
        assert done.code == 0, done.err
        with np.load("p.npz", allow_pickle=False) as saved:
            assert saved["prediction"].tolist() == Policy.load(policy).predict(scores).tolist()
        assert json.loads(capri("evaluate", "x.parquet", "--json").out)["n_samples"] == len(y)
        assert capri("tune", "x.parquet", "-o", "t.json").code == 0

    def test_an_interrupt_while_deciding_leaves_nothing(self, capri, folder, policy, tmp_path, monkeypatch):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        monkeypatch.setattr("capri.cli.tables._Matrix.write", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        try:
            done = capri("apply", folder, policy, "-o", "p.csv", "--adjusted", "a.npz")
        finally:
            signal.signal(signal.SIGINT, before)
        assert done.code == 130
        assert [path.name for path in tmp_path.iterdir()] == ["scores"]

    def test_a_file_with_a_bad_row_writes_nothing(self, capri, folder, policy, tmp_path):
        parquet, pyarrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        path = folder / "more" / "c.parquet"
        table = parquet.read_table(path)
        scores = table["score_dog"].to_numpy().copy()
        scores[29] = np.nan
        parquet.write_table(table.set_column(1, "score_dog", pyarrow.array(scores)), path, row_group_size=13)
        done = capri("apply", folder, policy, "-o", "p.csv", "--adjusted", "a.npy")
        assert done.code == 2
        assert f"{path}, row group 2, row 3, column 'dog': the score is nan" in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["scores"]

    def test_an_array_with_a_bad_row(self, capri, data, policy):
        scores = data[0].copy()
        scores[4, 1] = np.inf
        np.savez("x.npz", logits=scores, y=data[1])
        for command in (["apply", "x.npz", policy], ["evaluate", "x.npz"]):
            done = capri(*command)
            assert done.code == 2
            assert "x.npz: logits, row 4, column 1: the score is inf; scores must be finite numbers." in done.err

    def test_labels_in_a_file_of_their_own_beside_a_table_that_has_some(self, capri, files):
        ways = [["--labels", files / "labels.npy"], []]
        said = [json.loads(capri("evaluate", files / "val.csv", *way, "--json").out) for way in ways]
        assert said[0] == said[1]

    def test_an_empty_folder(self, capri, policy, tmp_path):
        (tmp_path / "scores").mkdir()
        done = capri("apply", "scores", policy)
        assert done.code == 2
        assert "scores: holds no .parquet files" in done.err

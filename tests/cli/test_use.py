"""`capri apply`, `evaluate`, `compare` and `fold`, and the command line as a whole."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capri import Policy, Strategy, evaluate
from capri.cli.display import verdict
from capri.cli.progress import progress
from capri.study import Study

COUNTS = np.array([900, 90, 10])


def column(text):
    return [row["prediction"] for row in csv.DictReader(text.splitlines())]


@pytest.fixture
def write_columns():
    def write(path, header, rows):
        Path(path).write_text("".join(",".join(map(str, row)) + "\n" for row in [header, *rows.tolist()]))

    return write


class TestLabels:
    @pytest.mark.parametrize("labels", [(0, 10**20), (2**53, 2**53 + 1), (-(10**20), 5)])
    def test_are_numbers_of_any_length(self, capri, tmp_path, labels):
        """In sorted order, for they are not the names of the columns."""
        rows = [f"{1 - k},{k},{label}" for k, label in enumerate(labels)] * 2
        (tmp_path / "x.csv").write_text("\n".join(["a,b,label", *rows]))
        done = capri("evaluate", "x.csv", "--json")
        assert done.code == 0, done.err
        assert [c["before"] for c in json.loads(done.out)["classes"]] == [0, 0]


class TestApply:
    @pytest.fixture
    def expected(self, data, policy):
        return Policy.load(policy).predict(data[0]).tolist()

    @pytest.mark.parametrize("name", ["val.npz", "val.csv", "bare.npz", "scores.npy"])
    def test_predicts_what_the_policy_does(self, capri, files, policy, expected, name, tmp_path):
        done = capri("apply", files / name, policy, "-o", "p.csv")
        assert done.code == 0, done.err
        assert column((tmp_path / "p.csv").read_text()) == expected
        assert done.out.startswith("90 predictions, ")

    def test_puts_named_columns_in_order(self, capri, files, policy, expected):
        done = capri("apply", files / "shuffled.csv", policy, "--label-key", "species")
        assert column(done.out) == expected

    def test_needs_no_labels_and_ignores_strange_ones(self, capri, policy, tmp_path):
        (tmp_path / "new.csv").write_text("lynx,dog,cat,label\n9,0,0,unseen\n0,0,9,\n")
        assert column(capri("apply", "new.csv", policy).out) == ["lynx", "cat"]

    def test_a_policy_without_names_takes_those_of_the_file(self, capri, files, tmp_path):
        Policy(Strategy.of(3), objective="balanced", classes=("0", "1", "2")).save(tmp_path / "bare.json")
        assert set(column(capri("apply", files / "val.csv", "bare.json").out)) <= {"cat", "dog", "lynx"}

    def test_whole_numbers_stay_whole_numbers(self, capri, files, data, tmp_path):
        parquet = pytest.importorskip("pyarrow.parquet")
        policy = Policy(Strategy.of(3), objective="balanced", classes=(7, 5, 2))
        policy.save(tmp_path / "numbered.json")
        expected = policy.predict(data[0])
        assert capri("apply", files / "bare.npz", "numbered.json", "-o", "p.npz").code == 0
        with np.load(tmp_path / "p.npz", allow_pickle=False) as saved:
            np.testing.assert_array_equal(saved["prediction"], expected, strict=True)
        assert capri("apply", files / "bare.npz", "numbered.json", "-o", "p.parquet").code == 0
        assert parquet.read_table(tmp_path / "p.parquet")["prediction"].to_pylist() == expected.tolist()
        printed = json.loads(capri("apply", files / "bare.npz", "numbered.json", "--json").out)
        assert printed["predictions"] == expected.tolist()

    def test_mixed_labels_are_written_as_text(self, capri, files, data, tmp_path):
        policy = Policy(Strategy.of(3), objective="balanced", classes=(7, "five", 2))
        policy.save(tmp_path / "mixed.json")
        done = capri("apply", files / "bare.npz", "mixed.json", "-o", "p.npz")
        assert done.code == 0, done.err
        with np.load(tmp_path / "p.npz", allow_pickle=False) as saved:
            assert saved["prediction"].tolist() == [str(c) for c in policy.predict(data[0])]

    def test_writes_npz_and_adjusted_scores(self, capri, files, policy, data, expected, tmp_path):
        done = capri("apply", files / "val.npz", policy, "-o", "new/p.npz", "--adjusted", "new/a.npz")
        assert done.code == 0, done.err
        with np.load(tmp_path / "new" / "p.npz", allow_pickle=False) as saved:
            assert saved["prediction"].tolist() == expected
        with np.load(tmp_path / "new" / "a.npz", allow_pickle=False) as saved:
            np.testing.assert_allclose(saved["scores"], Policy.load(policy).apply(data[0]))
            assert saved["class_names"].tolist() == ["cat", "dog", "lynx"]

    def test_writes_parquet_npy_and_safetensors(self, capri, files, policy, data, expected, tmp_path):
        parquet, numpy = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("safetensors.numpy")
        adjusted = Policy.load(policy).apply(data[0])
        assert capri("apply", files / "val.npz", policy, "-o", "p.parquet", "--adjusted", "a.npy").code == 0
        assert parquet.read_table(tmp_path / "p.parquet")["prediction"].to_pylist() == expected
        np.testing.assert_allclose(np.load(tmp_path / "a.npy"), adjusted)
        assert capri("apply", files / "val.npz", policy, "--adjusted", "a.safetensors").code == 0
        np.testing.assert_allclose(numpy.load_file(tmp_path / "a.safetensors")["scores"], adjusted)

    def test_json(self, capri, files, policy, expected):
        content = json.loads(capri("apply", files / "val.npz", policy, "--json").out)
        assert content["predictions"] == expected
        assert content["n_samples"] == 90
        kept = json.loads(capri("apply", files / "val.npz", policy, "-o", "p.csv", "--json").out)
        assert kept == {"n_samples": 90, "changed": content["changed"], "undecided": 0, "output": "p.csv"}

    def test_columns_named_by_number_go_by_name(self, capri, data, write_columns):
        scores, y = data
        np.savez("val.npz", logits=scores, y=y, train_counts=[900, 90, 10])
        assert capri("tune", "val.npz", "--method", "la", "-o", "made.json").code == 0
        for order in ([0, 1, 2], [2, 0, 1]):
            write_columns("test.csv", [*(f"score_{k}" for k in order), "y"], np.column_stack([scores[:, order], y]))
            done = capri("apply", "test.csv", "made.json", "-o", "out.npz")
            assert done.code == 0, done.err
            with np.load("out.npz") as file:
                np.testing.assert_array_equal(file["prediction"], Policy.load("made.json").predict(scores))

    def test_names_of_classes_meet_labels_as_text(self, capri, data):
        scores, y = data
        np.savez("val.npz", logits=scores[:, ::-1], y=y + 1, class_names=["3", "2", "1"])
        done = capri("evaluate", "val.npz", "--json")
        assert json.loads(done.out)["before"]["plain"] == pytest.approx((scores.argmax(axis=1) != y).mean())


class TestEvaluate:
    def test_agrees_with_the_library(self, capri, files, policy, data):
        content = json.loads(capri("evaluate", files / "val.csv", "--policy", policy, "--json").out)
        scores, y = data
        assert content["before"] == pytest.approx(evaluate(y, scores.argmax(1), 3))
        after = Policy.load(policy).apply(scores).argmax(1)
        assert content["after"] == pytest.approx(evaluate(y, after, 3))
        assert [c["after"] for c in content["classes"]] == pytest.approx(Policy.load(policy).validation.errors_after)

    def test_columns_in_another_order_change_nothing(self, capri, files, policy):
        first = json.loads(capri("evaluate", files / "val.csv", "--policy", policy, "--json").out)
        other = capri("evaluate", files / "shuffled.csv", "--label-key", "species", "--policy", policy, "--json")
        assert json.loads(other.out)["after"] == first["after"]
        assert json.loads(other.out)["classes"] == first["classes"]

    def test_names_of_the_policy_serve_a_file_without(self, capri, data, policy, tmp_path):
        np.savez(tmp_path / "t.npz", logits=data[0], y=np.array(["cat", "dog", "lynx"])[data[1]])
        done = capri("evaluate", "t.npz", "--policy", policy)
        assert done.code == 0, done.err
        assert "lynx" in done.out

    def test_shows_the_worst_classes_first(self, capri, files):
        done = capri("evaluate", files / "val.npz", "--classes", 2, "--objective", "worst", "--objective", "few")
        assert "The worst 2 of 3 classes" in done.out
        assert done.out.index("lynx") < done.out.index("dog")
        assert "cat" not in done.out
        assert "few" in done.out
        assert "Classes, the worst first" in capri("evaluate", files / "val.npz", "--classes", 0).out

    def test_says_who_gains_and_pays_and_knows_the_samples_that_tuned(self, capri, files, policy, data):
        seen = capri("evaluate", files / "val.csv", "--policy", policy, "--objective", "balanced").out
        assert "on the samples that tuned the policy, which flatter it" in " ".join(seen.split())
        scores, y = data
        np.savez("other.npz", logits=scores[::-1] + 0.01, y=y[::-1], class_names=["cat", "dog", "lynx"])
        done = capri("evaluate", "other.npz", "--policy", policy, "--objective", "balanced")
        errors = (
            evaluate(y, d, 3)["balanced"] for d in (scores.argmax(1), Policy.load(policy).apply(scores).argmax(1))
        )
        before, after = (f"{100 * e:.1f} %" for e in errors)
        assert f"Balanced error falls from {before} to {after}, on these {len(y)} samples" in " ".join(done.out.split())
        assert re.search(r"^gain +\d of 3 classes, .*lynx: \d+ → \d+ %", done.out, re.MULTILINE)
        assert re.search(r"^pay  ", done.out, re.MULTILINE)

    def test_weights_are_given_or_the_policys(self, capri, files):
        arguments = ("--objective", "weighted", "--weights", "1,2,7", "--pooling", "none", "-o", "w.json")
        assert capri("tune", files / "val.npz", *arguments).code == 0
        ours = json.loads(capri("evaluate", files / "val.npz", "--policy", "w.json", "--json").out)
        given = json.loads(capri("evaluate", files / "val.npz", "--weights", "1,2,7", "--json").out)
        assert ours["before"]["weighted"] == pytest.approx(given["before"]["weighted"])

    def test_an_objective_that_only_the_policy_knows_is_left_out(self, capri, files, tmp_path):
        Policy(Strategy.of(3), objective="homemade", classes=("cat", "dog", "lynx")).save(tmp_path / "h.json")
        done = capri("evaluate", files / "val.npz", "--policy", "h.json")
        assert done.code == 0
        assert "capri: warning: the policy's own objective 'homemade' is left out: unknown objective" in done.err

    def test_absent_classes(self, capri, files, data, tmp_path):
        np.savez(tmp_path / "two.npz", scores=data[0][:60], y=data[1][:60])
        done = capri("evaluate", "two.npz", "--absent", "ignore", "--json")
        assert json.loads(done.out)["classes"][2] == {
            "name": "2",
            "samples": 0,
            "train_count": None,
            "before": None,
        }
        assert done.err.count("is left out of the objective") == 1


class TestCompare:
    def test_every_method_on_every_split(self, capri, files):
        done = capri("compare", files / "val.npz", "--objective", "worst", "--splits", 1, "--json")
        rows = json.loads(done.out)["objectives"]["worst"]
        assert list(rows) == ["unadjusted", "la", "plain", "cap", "cap-pooled"]
        assert all(len(row["test"]) == len(row["balanced"]) == row["n"] == 1 for row in rows.values())
        assert rows["cap-pooled"]["mean"] < rows["unadjusted"]["mean"]

    def test_sums_of_objectives(self, capri, files):
        arguments = (
            "--objective",
            "worst",
            "--objective",
            "0.5*balanced + 0.5*err[lynx]",
            "--methods",
            "unadjusted,la",
        )
        content = json.loads(capri("compare", files / "val.npz", *arguments, "--splits", 2, "--json").out)
        assert list(content["objectives"]) == ["worst", "0.5*balanced+0.5*err[lynx]"]
        assert all(row["n"] == 2 for rows in content["objectives"].values() for row in rows.values())

    def test_prints_a_table_for_each_objective(self, capri, files):
        arguments = ("--objective", "sdev", "--objective", "balanced", "--methods", "unadjusted,la", "--splits", 2)
        done = capri("compare", files / "val.npz", *arguments, "--holdout", 0.3)
        assert done.code == 0, done.err
        for text in ("tuned for sdev", "tuned for balanced", "±", "n = 2 splits with 30% of each class held out"):
            assert text in done.out
        assert done.out.count("balanced, held out") == 1

    def test_says_which_method_is_best_and_how_sure_that_is(self):
        rows = {"a": [0.3, 0.4], "b": [0.31, 0.38], "c": [0.5, 0.62]}
        values = {m: {"worst": np.array(v)} for m, v in rows.items()}
        assert verdict(Study(values, {}, {}, {}), "worst").endswith(": b. No clear difference to a.")
        del values["a"]
        assert verdict(Study(values, {}, {}, {}), "worst").endswith(": b. It is ahead of all others.")
        one = {m: {"worst": row["worst"][:1]} for m, row in values.items()}
        assert "One split" in verdict(Study(one, {}, {}, {}), "worst")

    def test_what_is_named_twice_is_compared_once(self, capri, files):
        arguments = ("--objective", "worst", "--objective", "worst", "--methods", "la,la", "--splits", 1, "--json")
        rows = json.loads(capri("compare", files / "val.npz", *arguments).out)["objectives"]["worst"]
        assert {name: row["n"] for name, row in rows.items()} == {"la": 1}

    def test_logit_adjustment_with_temperature_one_tunes_nothing(self, capri, files, data):
        arguments = ("--methods", "unadjusted,la1", "--splits", 1, "--seed", 4, "--json")
        row = json.loads(capri("compare", files / "val.npz", *arguments).out)["objectives"]["balanced"]["la1"]
        scores, y = data
        wrong = (scores - np.log(COUNTS / COUNTS.sum())).argmax(1) != y
        by_class = [wrong[y == k].mean() for k in range(3)]
        both = np.mean([row["validation"], row["test"]])  # equal halves: together they are the whole
        assert both == pytest.approx(np.mean(by_class))

    def test_the_same_seed_gives_the_same_figures(self, capri, files):
        arguments = ("compare", files / "val.npz", "--methods", "unadjusted,la", "--splits", 1, "--json")
        first, again, other = (json.loads(capri(*arguments, "--seed", s).out) for s in (1, 1, 2))
        assert first == again
        assert first["objectives"] != other["objectives"]
        assert first["objectives"]["balanced"]["la"]["deviation"] is None

    def test_methods_that_need_frequencies_are_left_out_without_them(self, capri, files):
        done = capri("compare", files / "bare.npz", "--methods", "unadjusted,la1,la,plain", "--splits", 1, "--json")
        assert "capri: warning: la1, la left out: training frequencies are unknown; give --class-counts." in done.err
        assert list(json.loads(done.out)["objectives"]["balanced"]) == ["unadjusted", "plain"]

    def test_probabilities(self, capri, files):
        done = capri("compare", files / "proba.npz", "--proba", "--methods", "unadjusted,la", "--splits", 1)
        assert done.code == 0, done.err
        assert done.err == ""

    def test_a_class_with_one_sample_can_be_left_out(self, capri, data, tmp_path):
        np.savez(tmp_path / "lone.npz", logits=data[0][:61], y=data[1][:61], train_counts=[9, 3, 1])
        done = capri("compare", "lone.npz", "--absent", "ignore", "--methods", "unadjusted,la", "--splits", 2)
        assert done.code == 0, done.err
        assert "more such warnings" in done.err


class TestFold:
    @pytest.fixture
    def layer(self):
        rng = np.random.default_rng(0)
        return {
            "weight": rng.normal(size=(3, 4)).astype(np.float32),
            "bias": np.zeros(3, np.float32),
            "other": np.ones(2),
        }

    def test_the_layer_then_gives_adjusted_scores(self, capri, policy, layer, tmp_path):
        np.savez(tmp_path / "layer.npz", **layer)
        assert capri("fold", "layer.npz", policy, "-o", "folded.npz").code == 0
        x = np.random.default_rng(1).normal(size=(5, 4))
        expected = Policy.load(policy).apply(x @ layer["weight"].T + layer["bias"])
        with np.load(tmp_path / "folded.npz") as folded:
            np.testing.assert_allclose(x @ folded["weight"].T + folded["bias"], expected, atol=1e-6)
            assert folded["weight"].dtype == np.float32
            assert folded["capri_policy_"] == Policy.load(policy).digest
            np.testing.assert_array_equal(folded["other"], layer["other"])

    def test_safetensors_keep_their_notes(self, capri, policy, layer, tmp_path):
        safetensors, numpy = pytest.importorskip("safetensors"), pytest.importorskip("safetensors.numpy")
        tensors = {f"fc.{name}": values for name, values in layer.items()}
        numpy.save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
        keys = ("--weight-key", "fc.weight", "--bias-key", "fc.bias")
        done = capri("fold", "model.safetensors", policy, *keys, "-o", "folded.safetensors")
        assert done.code == 0, done.err
        with safetensors.safe_open(tmp_path / "folded.safetensors", framework="numpy") as folded:
            assert folded.metadata() == {"format": "pt", "capri_policy_": Policy.load(policy).digest}
            assert not np.array_equal(folded.get_tensor("fc.bias"), layer["bias"])

    @pytest.mark.parametrize("kind", ["npz", "safetensors"])
    def test_what_is_folded_is_not_folded_again(self, capri, policy, layer, tmp_path, kind):
        if kind == "safetensors":
            pytest.importorskip("safetensors")
        np.savez(tmp_path / "layer.npz", **layer)
        assert capri("fold", "layer.npz", policy, "-o", f"folded.{kind}").code == 0
        done = capri("fold", f"folded.{kind}", policy, "-o", "twice.npz")
        assert done.code == 2
        assert done.err.startswith(f"capri: folded.{kind} holds a policy already; fold into what was trained")
        assert not (tmp_path / "twice.npz").exists()

    def test_probabilities_are_a_softmax_if_one_says_so(self, capri, files, layer, tmp_path):
        np.savez(tmp_path / "layer.npz", **layer)
        assert capri("tune", files / "proba.npz", "--proba", "--method", "la", "-o", "p.json").code == 0
        assert "say softmax=True (capri fold --softmax)" in capri("fold", "layer.npz", "p.json", "-o", "f.npz").err
        assert capri("fold", "layer.npz", "p.json", "--softmax", "-o", "f.npz").code == 0
        x = np.random.default_rng(1).normal(size=(500, 4))
        o, p = x @ layer["weight"].T, Policy.load(tmp_path / "p.json")
        with np.load(tmp_path / "f.npz") as folded:
            decided = (x @ folded["weight"].T + folded["bias"]).argmax(axis=1)
        proba = np.exp(o) / np.exp(o).sum(axis=1, keepdims=True)
        np.testing.assert_array_equal(decided, p.apply(proba).argmax(axis=1))


class TestWhole:
    def test_help_reads_like_a_manual_page(self, capri, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        done = capri("tune", "--help")
        assert done.code == 0
        for text in (
            "Examples",
            "capri tune val.npz --objective cvar:0.2 -o policy.json",
            "Exit codes.",
            "--constraint",
        ):
            assert text in done.out
        assert max(map(len, done.out.splitlines())) <= 100

    @pytest.mark.parametrize("command", ["apply", "evaluate", "compare", "fold", "export"])
    def test_every_command_has_examples(self, capri, command):
        assert f"capri {command} " in capri(command, "--help").out

    def test_alone_it_shows_the_commands(self, capri, monkeypatch):
        done = capri()
        assert done.code == 0
        for command in ("demo", "tune", "apply", "evaluate", "compare", "fold", "export"):
            assert command in done.out

    def test_an_unknown_command_is_one_line(self, capri):
        done = capri("tuna")
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert "No such command 'tuna'" in done.err

    def test_as_a_process(self, files, tmp_path):
        arguments = ["tune", str(files / "val.npz"), "--method", "la", "--json", "-o", str(tmp_path / "made.json")]
        done = subprocess.run([sys.executable, "-m", "capri", *arguments], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["policy"] == str(tmp_path / "made.json")
        assert done.stderr == ""

    def test_progress_is_silent_where_nobody_watches(self, capsys):
        with progress("tuning", None) as advance:
            advance()
        assert capsys.readouterr() == ("", "")

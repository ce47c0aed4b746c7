"""`capri tune`."""

import json
import re
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capri import LogitAdjuster, Policy, register_objective
from capri.objectives import unregister_objective

NAMES = ("cat", "dog", "lynx")
COUNTS = "900,90,10"


def offsets(path) -> dict[str, float]:
    policy = Policy.load(path)
    return dict(zip(policy.class_names, policy.strategy.l.round(9).tolist(), strict=True))


class TestFormats:
    """The same samples give the same policy, however they are stored."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("val.npz",),
            ("bare.npz", "--class-names", "cat,dog,lynx", "--class-counts", COUNTS),
            ("scores.npy", "--labels", "labels.npy", "--class-names", "cat,dog,lynx", "--class-counts", COUNTS),
            ("scores.npy", "--labels", "val.csv", "--class-names", "cat,dog,lynx", "--class-counts", COUNTS),
            ("scores.npy", "--labels", "val.npz", "--class-names", "val.npz", "--class-counts", "val.npz"),
            ("val.csv", "--class-counts", COUNTS),
            ("val.csv", "--labels", "labels.npy", "--class-counts", COUNTS),
            ("shuffled.csv", "--label-column", "species", "--class-counts", "10,900,90"),
            ("shuffled.csv", "--label-key", "species", "--class-names", "cat,dog,lynx", "--class-counts", COUNTS),
        ],
    )
    def test_without_further_libraries(self, capri, files, policy, arguments):
        inside = [files / a if (files / a).is_file() else a for a in arguments]
        done = capri("tune", *inside, "--method", "la", "-o", "made.json")
        assert done.code == 0, done.err
        assert done.err == ""
        assert offsets("made.json") == offsets(policy)

    def test_parquet(self, capri, files, policy, data):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(data[0], columns=list(NAMES)).assign(y=np.array(NAMES)[data[1]])
        frame.to_parquet(files / "val.parquet")
        done = capri("tune", files / "val.parquet", "--class-counts", COUNTS, "--method", "la", "-o", "made.json")
        assert done.code == 0, done.err
        assert offsets("made.json") == offsets(policy)

    def test_safetensors(self, capri, files, policy, data):
        numpy = pytest.importorskip("safetensors.numpy")
        tensors = {"val_logits": data[0], "val_labels": data[1], "train_counts": np.array([900, 90, 10])}
        numpy.save_file(tensors, files / "val.safetensors")
        arguments = ("--class-names", "cat,dog,lynx", "--method", "la")
        done = capri("tune", files / "val.safetensors", *arguments, "-o", "made.json")
        assert done.code == 0, done.err
        assert offsets("made.json") == offsets(policy)

    def test_several_sets_of_scores_in_one_file(self, capri, files):
        done = capri("tune", files / "parts.npz", "--method", "la")
        assert "parts.npz: val_logits · 45 samples" in done.out
        other = capri("tune", files / "parts.npz", "--method", "la", "--scores-key", "test_logits")
        assert "parts.npz: test_logits · 45 samples" in other.out

    def test_probabilities_and_labels_by_name(self, capri, files):
        done = capri("tune", files / "proba.npz", "--proba", "--method", "la", "-o", "made.json")
        assert done.code == 0, done.err
        policy = Policy.load("made.json")
        assert (policy.scores, policy.class_names) == ("proba", NAMES)

    def test_probabilities_that_are_not_called_so(self, capri, files):
        done = capri("tune", files / "proba.npz", "--method", "la")
        assert done.code == 0
        assert "sum to 1, as probabilities do, and are taken for logits" in done.err
        assert "if they are probabilities, tune with --proba." in done.err

    def test_labels_that_are_numbers_but_names(self, capri, data, tmp_path):
        np.savez(tmp_path / "odd.npz", scores=data[0], y=np.array([3, 5, 8])[data[1]], class_names=[3, 5, 8])
        done = capri("tune", "odd.npz", "--class-counts", COUNTS, "--method", "la", "-o", "made.json")
        assert done.code == 0, done.err
        assert Policy.load("made.json").class_names == ("3", "5", "8")
        assert Policy.load("made.json").validation.samples == [30, 30, 30]

    def test_a_byte_order_mark_and_blank_lines(self, capri, files, policy, tmp_path):
        text = (files / "val.csv").read_text().replace("\n", "\r\n") + "\r\n"
        (tmp_path / "bom.csv").write_text("\ufeff" + text, encoding="utf-8")
        done = capri("tune", "bom.csv", "--class-counts", COUNTS, "--method", "la", "-o", "made.json")
        assert done.code == 0, done.err
        assert offsets("made.json") == offsets(policy)


class TestTuning:
    def test_is_what_the_library_does(self, capri, files, data):
        done = capri("tune", files / "val.npz", "--objective", "cvar:0.34", "--seed", 3, "-o", "made.json")
        assert done.code == 0, done.err
        labels = np.array(NAMES)[data[1]]
        adjuster = LogitAdjuster("cvar:0.34", classes=NAMES, random_state=3)
        adjuster.fit(data[0], labels, class_counts=[900, 90, 10])
        assert offsets("made.json") == dict(zip(NAMES, adjuster.strategy_.l.round(9).tolist(), strict=True))
        assert Policy.load("made.json").validation == adjuster.policy_.validation

    def test_shows_what_changes_for_whom(self, capri, files):
        done = capri("tune", files / "val.npz", "--objective", "worst", "--pooling", "none", "-o", "made.json")
        parts = ("90 % interval", "out of fold", "gain  ", "pay  ", "samples  ", "lynx: ", "balanced")
        for text in ("90 samples · 3 classes", "tuned for worst with cap", *parts):
            assert text in done.out
        assert len(done.out.splitlines()) < 20
        assert done.out.endswith("Policy: made.json\n")

    def test_without_resamples_no_interval_is_shown(self, capri, files, monkeypatch):
        monkeypatch.setattr("capri.posthoc.LogitAdjuster", partial(LogitAdjuster, bootstrap=0))
        arguments = ("tune", files / "val.npz", "--objective", "worst", "--method", "la")
        done = capri(*arguments)
        assert "which may not hold" in done.out
        assert "out of fold" not in done.out
        content = json.loads(capri(*arguments, "--json").out)
        assert content["improvement"] is content["interval"] is None

    def test_says_what_simpler_rungs_would_gain(self, capri, files):
        arguments = ("tune", files / "val.npz", "--objective", "worst")
        assert "gains most of the simpler" in capri(*arguments).out
        content = json.loads(capri(*arguments, "--json").out)
        assert list(content["path"]) == ["τ = 1", "calibrated", "LA, tuned", "tuned"]
        assert content["path"]["tuned"] == content["improvement"]
        assert content["ladder"]["tuned"] == [content["improvement"], *content["interval"]]

    def test_without_an_output_writes_nothing(self, capri, files, tmp_path):
        done = capri("tune", files / "val.npz", "--method", "la")
        assert "No policy was written" in done.out
        assert list(tmp_path.iterdir()) == []

    def test_json_is_all_that_is_printed(self, capri, files):
        done = capri("tune", files / "val.npz", "--method", "la", "--json", "-o", "made.json")
        content = json.loads(done.out)
        assert content["policy"] == "made.json"
        assert content["feasible"] is True
        assert content["in_sample"] == pytest.approx(content["before"]["balanced"] - content["after"]["balanced"])
        assert content["interval"][0] < content["improvement"] < content["interval"][1]
        assert [c["name"] for c in content["classes"]] == list(NAMES)
        assert content["classes"][2]["train_count"] == 10

    def test_settings_reach_the_policy(self, capri, files, tmp_path):
        (tmp_path / "more.csv").write_text("class,cost\nlynx,3\ncat,1\ndog,2\n")
        arguments = ["--attributes", "freq,cost", "--class-attributes", "more.csv", "--parameters", "both"]
        arguments += ["--pooling", "none", "--constraint", "err[cat] <= 0.9", "--constraint", "plain <= baseline"]
        done = capri("tune", files / "val.npz", *arguments, "-o", "made.json")
        assert done.code == 0, done.err
        policy = Policy.load("made.json")
        assert policy.attributes["cost"] == [1, 2, 3]
        assert set(policy.attributes) == {"freq", "cost"}
        assert set(policy.weights) == {"l", "delta"}
        assert policy.constraints == ("err[cat] <= 0.9", "plain <= baseline")

    def test_a_floor_on_the_precision_of_a_class(self, capri, files):
        arguments = ["--objective", "f1[lynx]", "--constraint", "precision[cat] >= baseline"]
        done = capri("tune", files / "val.npz", *arguments, "-o", "made.json")
        assert done.code == 0, done.err
        assert Policy.load("made.json").constraints == ("precision[cat] >= baseline",)

    def test_pooling_by_a_number(self, capri, files):
        done = capri("tune", files / "val.npz", "--pooling", "0.5")
        assert re.search(r"pooled around the calibrated answer \(T = [\d.]+, \d+% at its word, λ = 0.5\)", done.out)

    @pytest.mark.parametrize("given", ["1,2,7", "weights.csv", "weights.npy", "weights.txt"])
    def test_weights_from_a_list_or_a_file(self, capri, files, tmp_path, given):
        (tmp_path / "weights.csv").write_text("class,weight\nlynx,7\ncat,1\ndog,2\n")
        (tmp_path / "weights.txt").write_text("1\n2\n7\n")
        np.save(tmp_path / "weights.npy", [1.0, 2.0, 7.0])
        arguments = ("--objective", "weighted", "--weights", given, "--pooling", "none", "-o", "made.json")
        done = capri("tune", files / "val.npz", *arguments)
        assert done.code == 0, done.err
        assert Policy.load("made.json").attributes["weights"] == pytest.approx([0.3, 0.6, 2.1])

    def test_groups(self, capri, files):
        arguments = ("--objective", "worst_group", "--groups", "pet,pet,wild", "--method", "la", "--json")
        content = json.loads(capri("tune", files / "val.npz", *arguments).out)
        errors = [c["after"] for c in content["classes"]]
        assert content["after"]["worst_group"] == pytest.approx(max((errors[0] + errors[1]) / 2, errors[2]))

    def test_the_spread_is_guarded_unless_told_otherwise(self, capri, files):
        arguments = ("tune", files / "val.npz", "--objective", "sdev", "--method", "la", "--json")
        guarded = json.loads(capri(*arguments).out)
        assert guarded["constraints"] == ["balanced <= baseline"]
        free = capri(*arguments, "--constraint", "none")
        assert json.loads(free.out)["constraints"] == []

    def test_an_objective_that_was_registered_elsewhere(self, capri, files):
        @register_objective("gap")
        def gap(errors):
            """The worst class less the best."""
            return errors.max() - errors.min()

        try:
            done = capri("tune", files / "val.npz", "--objective", "gap", "--method", "la", "--json")
            content = json.loads(done.out)
            errors = [c["after"] for c in content["classes"]]
            assert content["after"]["gap"] == pytest.approx(max(errors) - min(errors))
        finally:
            unregister_objective("gap")


class TestWarnings:
    def test_constraints_that_cannot_be_met_are_a_warning(self, capri, files, tmp_path):
        done = capri("tune", files / "val.npz", "--method", "la", "--constraint", "worst <= 0", "-o", "made.json")
        assert done.code == 0
        assert done.err.startswith("capri: warning: no adjustment meets the constraints (worst <= 0)")
        assert len(done.err.splitlines()) == 1
        assert (tmp_path / "made.json").is_file()

    def test_each_is_one_line_in_the_words_of_the_options(self, capri, files, data, tmp_path):
        np.savez(tmp_path / "few.npz", scores=data[0][::10], y=data[1][::10])
        done = capri("tune", "few.npz", "--pooling", "none")
        lines = done.err.splitlines()
        assert all(line.startswith("capri: warning: ") for line in lines)
        assert any("3 of 3 classes have fewer than 5 validation samples" in line for line in lines)
        assert any("give --class-counts of the training data" in line for line in lines)
        assert len(lines) == 2

    def test_absent_classes_are_left_out_on_request(self, capri, files, data, tmp_path):
        np.savez(tmp_path / "two.npz", scores=data[0][:60], y=data[1][:60], train_counts=[900, 90, 10])
        done = capri("tune", "two.npz", "--absent", "ignore", "--method", "la", "--json")
        assert done.code == 0
        assert "class '2' (2) has no sample here and is left out" in done.err
        assert json.loads(done.out)["classes"][2]["after"] is None


class TestClassFiles:
    """What is said of classes may come from any kind of file."""

    @pytest.mark.parametrize("kind", ["value_counts.csv", "unnamed.csv", "counts.json", "list.json", "class.csv"])
    def test_counts_as_people_have_them(self, capri, files, kind):
        labels = pd.Series(["lynx"] * 10 + ["cat"] * 900 + ["dog"] * 90, name="species")
        counted = labels.value_counts(ascending=True)
        {
            "value_counts.csv": lambda: counted.to_csv(kind),
            "unnamed.csv": lambda: counted.rename_axis(None).to_csv(kind),
            "counts.json": lambda: counted.to_json(kind),
            "list.json": lambda: Path(kind).write_text("[900, 90, 10]"),
            "class.csv": lambda: counted.rename_axis("class").to_csv(kind),
        }[kind]()
        expected = capri("tune", files / "val.npz", "--method", "la", "--class-counts", "900,90,10", "-o", "made.json")
        assert expected.code == 0, expected.err
        done = capri("tune", files / "val.npz", "--method", "la", "--class-counts", kind, "-o", "again.json")
        assert done.code == 0, done.err
        assert offsets("again.json") == offsets("made.json")

    def test_archives_that_name_the_classes_go_by_the_names(self, capri, files):
        np.savez("other.npz", class_names=NAMES[::-1], train_counts=[10, 90, 900], cost=[3, 2, 1])
        expected = capri("tune", files / "val.npz", "--method", "la", "-o", "made.json")
        assert expected.code == 0, expected.err
        done = capri("tune", files / "val.npz", "--method", "la", "--class-counts", "other.npz", "-o", "again.json")
        assert done.code == 0, done.err
        assert offsets("again.json") == offsets("made.json")
        np.savez("other.npz", class_names=NAMES[::-1], cost=[3, 2, 1])
        arguments = ("--class-attributes", "other.npz", "--attributes", "cost", "--pooling", "none", "-o", "made.json")
        assert capri("tune", files / "val.npz", *arguments).code == 0
        assert Policy.load("made.json").attributes == {"cost": [1, 2, 3]}

    @pytest.mark.parametrize("option", ["--class-counts", "--class-attributes"])
    @pytest.mark.parametrize("kind", ["twice.csv", "twice.json", "twice.npz"])
    def test_a_class_that_is_there_twice_is_refused(self, capri, files, kind, option):
        Path("twice.csv").write_text("class,count\ncat,900\ndog,90\nlynx,10\ncat,5\n")
        Path("twice.json").write_text('{"cat": 900, "dog": 90, "lynx": 10, "cat": 5}')
        np.savez("twice.npz", class_names=[*NAMES, "cat"], count=[900, 90, 10, 5])
        done = capri("tune", files / "bare.npz", "--class-names", "cat,dog,lynx", option, kind)
        if (option, kind) != ("--class-attributes", "twice.json"):  # which is no table
            assert done.err == f"capri: 'cat' occurs twice in {kind}; give one entry per class.\n"
        assert (done.code, done.out) == (2, "")

    def test_names_of_the_file_in_another_order_are_asked_about(self, capri, files):
        done = capri("tune", files / "val.npz", "--class-names", "lynx,dog,cat")
        assert (done.code, done.out) == (2, "")
        assert "names its columns ['cat', 'dog', 'lynx'], and --class-names the same in another order" in done.err
        assert capri("tune", files / "val.npz", "--class-names", "Katze,Hund,Luchs", "--method", "la").code == 0

    def test_norms_and_noise_of_a_training_run_are_attributes(self, capri, data):
        scores, y = data
        known = {"train_counts": [900, 90, 10], "last_layer_norms": [2.0, 1.5, 1.0], "noise": [0.1, 0.2, 0.3]}
        np.savez("logits.npz", val_logits=scores, val_y=y, **known)
        assert capri("tune", "logits.npz", "-o", "made.json").code == 0
        attributes = Policy.load("made.json").attributes
        assert set(attributes) == {"freq", "noise", "norm", "diff"}
        assert (attributes["norm"], attributes["noise"]) == ([2.0, 1.5, 1.0], [0.1, 0.2, 0.3])
        assert capri("tune", "logits.npz", "--attributes", "freq,norm", "-o", "made.json").code == 0
        assert set(Policy.load("made.json").attributes) == {"freq", "norm"}

    @pytest.mark.parametrize("name", ["names.csv", "names.npy", "names.txt"])
    def test_names(self, capri, files, policy, tmp_path, name):
        (tmp_path / "names.csv").write_text("class\ncat\ndog\nlynx\n")
        (tmp_path / "names.txt").write_text("cat\ndog\nlynx\n")
        np.save(tmp_path / "names.npy", np.array(NAMES))
        arguments = ("--class-names", name, "--class-counts", COUNTS, "--method", "la", "-o", "made.json")
        assert capri("tune", files / "bare.npz", *arguments).code == 0
        assert offsets("made.json") == offsets(policy)

    def test_attributes_from_an_archive_or_a_table_without_names(self, capri, files, tmp_path):
        np.savez(tmp_path / "more.npz", cost=[1, 2, 3], class_names=NAMES)
        (tmp_path / "more.csv").write_text("cost\n1\n2\n3\n")
        for name in ("more.npz", "more.csv"):
            arguments = ("--class-attributes", name, "--attributes", "cost", "--pooling", "none", "-o", "made.json")
            done = capri("tune", files / "val.npz", *arguments)
            assert done.code == 0, done.err
            assert Policy.load("made.json").attributes == {"cost": [1, 2, 3]}

    def test_too_few_rows(self, capri, files, tmp_path):
        (tmp_path / "more.csv").write_text("cost\n1\n2\n")
        done = capri("tune", files / "val.npz", "--class-attributes", "more.csv")
        assert done.code == 2
        assert done.err == "capri: more.csv: 2 rows for 3 classes; give one row per class.\n"

    def test_text_that_is_no_text(self, capri, files, tmp_path):
        (tmp_path / "names.txt").write_bytes(b"\xff\xfe\xfa")
        done = capri("tune", files / "bare.npz", "--class-names", "names.txt")
        assert done.code == 2
        assert done.err.startswith("capri: names.txt: cannot be read as text (")


def test_progress_is_told_of_every_fold(capri, files, monkeypatch):
    steps = []

    @contextmanager
    def counting(what, total):
        steps.append((what, total))
        yield lambda: steps.append("step")

    monkeypatch.setattr("capri.cli.tune.progress", counting)
    assert capri("tune", files / "val.npz").code == 0
    assert steps == [("tuning balanced", 5), *["step"] * 5]


class TestUnlabelled:
    def test_columns_are_matched_by_name(self, capri, files):
        """The same scores as an archive and as a table with shuffled columns give the same policy."""
        given = [files / "val.npz", "--objective", "worst", "--json"]
        one = capri("tune", *given, "--unlabelled", files / "val.npz")
        other = capri("tune", *given, "--unlabelled", files / "shuffled.csv")
        without = capri("tune", *given)
        assert one.code == other.code == 0, other.err
        assert json.loads(one.out) == json.loads(other.out)
        assert json.loads(one.out)["improvement"] != json.loads(without.out)["improvement"]

    def test_keys_are_those_of_the_samples_or_their_own(self, capri, files, tmp_path):
        given = ["tune", files / "parts.npz", "--scores-key", "val_logits", "-o", "p.json"]
        digests = []
        for more in ([], ["--unlabelled-key", "test_logits"]):
            assert capri(*given, "--unlabelled", files / "parts.npz", *more).code == 0
            digests.append(Policy.load(Path("p.json")).data["unlabelled"]["digest"])
        assert digests[0] != digests[1]
        named = ["tune", files / "shuffled.csv", "--label-key", "species", "--class-counts", "10,900,90"]
        assert capri(*named, "--unlabelled", files / "shuffled.csv").code == 0
        assert capri(*named, "--unlabelled", files / "scores.npy").code == 0

    def test_other_classes_are_refused(self, capri, files, tmp_path):
        np.save(tmp_path / "two.npy", np.zeros((4, 2)))
        done = capri("tune", files / "val.npz", "--unlabelled", tmp_path / "two.npy")
        assert done.code == 2
        assert "2 score columns, but" in done.err
        assert "has 3 classes" in done.err

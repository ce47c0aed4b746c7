"""Every bad input: one line of explanation, exit code 2, and no output file."""

import os
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest

from capri import Policy

NAMES = np.array(["cat", "dog", "lynx"])


@pytest.fixture(scope="module")
def bad(files, data, policy, tmp_path_factory):
    """Files with something wrong in each, beside copies of the good ones."""
    folder = tmp_path_factory.mktemp("bad")
    for good in files.iterdir():
        (folder / good.name).write_bytes(good.read_bytes())
    spoil_files(folder)
    spoil_arrays(folder, *data)
    spoil_tables(folder, (folder / "val.csv").read_text().splitlines())
    text = (folder / policy.name).read_text()
    (folder / "short.json").write_text(text[: len(text) // 2])
    (folder / "changed.json").write_text(text.replace("balanced", "worst", 1))
    (folder / "list.json").write_text("[]")
    replace(Policy.load(policy), side="loss").save(folder / "loss.json")
    np.savez(folder / "layer.npz", weight=np.ones((2, 4)), bias=np.ones(2))
    return folder


def spoil_files(folder):
    """Files that are cut short, damaged, or not what their name says."""
    npz, npy = (folder / "val.npz").read_bytes(), (folder / "scores.npy").read_bytes()
    (folder / "short.npz").write_bytes(npz[: len(npz) // 2])
    (folder / "flipped.npz").write_bytes(npz[:400] + bytes(b ^ 255 for b in npz[400:420]) + npz[420:])
    (folder / "empty.npz").write_bytes(b"")
    (folder / "text.npz").write_text("these are not arrays")
    (folder / "short.npy").write_bytes(npy[:-100])
    (folder / "stub.npy").write_bytes(npy[:20])
    (folder / "pickle.npz").write_bytes(pickle.dumps({"logits": [1, 2]}))
    (folder / "pickle.npy").write_bytes(pickle.dumps([1, 2]))
    (folder / "scores.pkl").write_bytes(pickle.dumps([1, 2]))
    (folder / "folder.npz").mkdir()


def spoil_arrays(folder, scores, y):
    """Archives whose arrays do not fit together."""
    np.save(folder / "objects.npy", np.array([[1, None]], dtype=object))
    for name, arrays in {
        "objects": {"logits": np.array([[1, None]], dtype=object), "y": y},
        "unknown_label": {"logits": scores, "y": np.where(y == 2, "wolf", NAMES[y]), "class_names": NAMES},
        "outside": {"logits": scores, "y": np.where(np.arange(len(y)) == 7, 9, y)},
        "shifted": {"logits": scores, "y": np.minimum(y + 1, 2)},
        "text_labels": {"logits": scores, "y": NAMES[y]},
        "halves": {"logits": scores, "y": y / 2},
        "fewer_labels": {"logits": scores, "y": y[:-1]},
        "matrix_labels": {"logits": scores, "y": np.eye(3)[y]},
        "no_labels": {"logits": scores},
        "no_scores": {"features": scores, "y": y},
        "two_scores": {"logits": scores, "proba": scores, "y": y},
        "nan": {"logits": np.where(scores == scores[4, 1], np.nan, scores), "y": y},
        "flat": {"logits": scores[:, 0], "y": y},
        "wide": {"logits": np.hstack([scores, scores]), "y": y},
        "four_names": {"logits": scores, "y": y, "class_names": list("abcd")},
        "two_counts": {"logits": scores, "y": y, "train_counts": [1, 2]},
        "absent": {"logits": scores[:60], "y": y[:60], "train_counts": [3, 2, 1]},
        "lone": {"logits": scores[:61], "y": y[:61], "train_counts": [3, 2, 1]},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)


def spoil_tables(folder, lines):
    """Tables that are cut short, or whose columns do not make scores."""
    for name, text in {
        "short": "\n".join(lines)[:-30],
        "headless": "\n".join(lines[1:]),
        "word": "\n".join([lines[0], "0.1,high,0.3,cat", *lines[1:]]),
        "unknown_label": "\n".join([*lines, "0.1,0.2,0.3,wolf"]),
        "index": "\n".join([f",{lines[0]}", *(f"{i},{line}" for i, line in enumerate(lines[1:]))]),
        "again": "\n".join([f"Unnamed: 0,{lines[0]}", *(f"{i},{line}" for i, line in enumerate(lines[1:]))]),
        "twice": "cat,cat,label\n1,2,cat\n",
        "empty": "",
        "header": "cat,dog,lynx,label\n",
        "other": "cat,dog,wolf,label\n1,2,3,cat\n",
        "weights": "class,weight\ncat,1\ndog,2\n",
    }.items():
        (folder / f"{name}.csv").write_text(text)
    (folder / "latin.csv").write_bytes("cat,bär,label\n1,2,bär\n".encode("latin-1"))


TUNE = [
    # files that are not there, or not what they seem
    (["absent_file.npz"], "absent_file.npz: no such file; check the path."),
    (["folder.npz"], "folder.npz: cannot be read (Is a directory)."),
    (["scores.pkl"], "files of type '.pkl' are not read here; use .npz, .npy, .safetensors, .csv, .parquet."),
    (["short.npz"], "short.npz: the file is cut short or damaged (File is not a zip file); write it again."),
    (["flipped.npz"], "flipped.npz: the file is cut short or damaged"),
    (["empty.npz"], "empty.npz: not an .npz file, or its beginning is lost"),
    (["text.npz"], "text.npz: not an .npz file, or its beginning is lost"),
    (["short.npy", "--labels", "labels.npy"], "short.npy: the file is cut short or damaged"),
    (["stub.npy", "--labels", "labels.npy"], "stub.npy: the file is cut short or damaged"),
    (["index.csv"], "index.csv: the column '' is an index, not a score; write the table without it (index=False), or"),
    (["again.csv"], "again.csv: the column 'Unnamed: 0' is an index, not a score"),
    (["short.csv"], "short.csv, line 91: 2 cells where the header names 4; the file is cut short"),
    (["empty.csv"], "empty.csv: the file is empty; the first line must name the columns."),
    (["header.csv"], "header.csv is empty: 0 sample(s) (shape=(0, 3))"),
    (["latin.csv"], "latin.csv: the file is cut short or damaged ('utf-8' codec can't decode"),
    # pickles
    (["pickle.npz"], "pickle.npz: holds pickled Python objects, which could run code on loading and are refused"),
    (["pickle.npy"], "pickle.npy: holds pickled Python objects"),
    (["objects.npz"], "objects.npz: holds pickled Python objects"),
    (["objects.npy", "--labels", "labels.npy"], "objects.npy: holds pickled Python objects"),
    (["val.npz", "--labels", "objects.npy"], "objects.npy: holds pickled Python objects"),
    # keys and columns
    (["val.npz", "--scores-key", "logit"], "--scores-key is 'logit', which is not in the file; did you mean 'logits'?"),
    (["val.npz", "--label-key", "truth"], "--label-key is 'truth', which is not in the file; there are 'logits, y,"),
    (["no_scores.npz"], "holds no scores under scores (it holds features, y); choose with --scores-key KEY."),
    (["two_scores.npz"], "holds scores under logits and proba (it holds logits, proba, y); choose with --scores-key"),
    (["no_labels.npz"], "no_labels.npz: logits: no labels found; name their key or column with --label-key"),
    (["scores.npy"], "scores.npy: no labels found"),
    (["val.csv", "--label-column", "lable"], "--label-key is 'lable', which is not in the file; did you mean 'label'?"),
    (["val.csv", "--scores-key", "p_"], "no column begins with 'p_'; --scores-key is the prefix of score columns."),
    (["val.csv", "--class-names", "cat,wolf"], "a name in --class-names is 'wolf', which is not in the file"),
    (["shuffled.csv", "--label-key", "id"], "label '#0' is not in the class list: ['lynx', 'cat', 'dog']."),
    (["val.npz", "--labels", "parts.npz"], "say with --label-key which are the labels."),
    (["headless.csv"], "it must name the columns."),
    (["twice.csv"], "twice.csv: the column 'cat' occurs twice; columns must differ."),
    (["word.csv"], "word.csv, line 2, column 'dog': 'high' is not a number. If the column is no score,"),
    # scores and labels
    (["flat.npz"], "flat.npz: logits must have shape (n_samples, n_classes); got shape (90,)."),
    (["nan.npz"], "nan.npz: logits[4, 1] is nan; 1 entries are NaN or infinite."),
    (
        ["unknown_label.npz"],
        "labels holds 'wolf', but the score columns are named ['cat', 'dog', 'lynx'];",
    ),
    (
        ["unknown_label.csv"],
        "labels holds 'wolf', but the score columns are named ['cat', 'dog', 'lynx'];",
    ),
    (["text_labels.npz"], "label 'cat' is not in the class list: 0 … 2; name the columns with --class-names."),
    (["outside.npz"], "there are 4 classes but 3 score columns; give --class-names with one label per column"),
    (["shifted.npz"], "the columns may stand for classes 0 … 2 or 1 … 3; give --class-names with the label of each"),
    (["halves.npz"], "labels holds continuous numbers; give one class label per sample."),
    (["fewer_labels.npz"], "there are 89 labels for 90 samples; give one label per sample."),
    (["matrix_labels.npz"], "matrix_labels.npz: y must hold one label per sample; got shape (90, 3)."),
    (
        ["absent.npz"],
        "class '2' (2) has no sample here, so its error is undefined. Add samples, or pass --absent ignore",
    ),
    (["val.npz", "--proba"], "scores are declared probabilities but range from"),
    (
        ["proba.npz", "--proba", "--parameters", "both"],
        "multipliers act on logits only; with probabilities use --parameters l.",
    ),
    # classes
    (["four_names.npz"], "class_names has 4 entries for 3 classes; give one per class."),
    (["two_counts.npz"], "class_counts has 2 entries for 3 classes; give one per class."),
    (["val.npz", "--class-counts", "9,1"], "--class-counts has 2 entries for 3 classes; give one per class."),
    (["val.npz", "--class-counts", "9,1,many"], "--class-counts holds 'many'; give one number per class, or a file."),
    (["val.npz", "--class-counts", "9,1,0"], "class_counts[2] is 0: a class that never occurs has no frequency."),
    (["val.npz", "--class-names", "a,b,b"], "class_names holds 'b' twice; names must differ."),
    (["val.npz", "--class-names", "names.txt"], "names.txt: no such file; check the path."),
    (
        ["val.npz", "--weights", "weights.csv"],
        "weights.csv; there are ['cat', 'dog'].",
    ),
    (["val.npz", "--weights", "parts.npz"], "for --weights name one of them weights or weight."),
    (["val.npz", "--weights", "1,2,-3"], "weights[2] is -3.0; each entry must be at least 0"),
    (["val.npz", "--groups", "a,b"], "groups has shape (2,) for 3 classes; give one label per class."),
    (
        ["val.npz", "--class-attributes", "weights.csv"],
        "weights.csv; there are ['cat', 'dog'].",
    ),
    (
        ["val.npz", "--attributes", "size"],
        "attribute 'size' is unknown; give it as a column of --class-attributes FILE.",
    ),
    (["val.npz", "--attributes", "freq,,diff"], "'freq,,diff' has an empty name; write names with commas"),
    # objectives and settings: these fail before any file is opened
    (["absent_file.npz", "--objective", "cvarr:0.2"], "unknown objective 'cvarr'; did you mean 'cvar'?"),
    (["absent_file.npz", "--objective", "cvar:2"], "cvar's a is 2; it must lie in (0, 1]."),
    (["absent_file.npz", "--objective", "cvar"], "objective 'cvar' takes a parameter, as in 'cvar:a'; got none."),
    (["absent_file.npz", "--objective", "x*worst"], "objective term 'x*worst': 'x' is not a number."),
    (["absent_file.npz", "--objective", "weighted"], "objective 'weighted' needs --weights: one test-time weight per"),
    (["absent_file.npz", "--objective", "worst_group"], "objective 'worst_group' needs --groups: the group of each"),
    (["absent_file.npz", "--constraint", "plain < 1"], "constraint 'plain < 1' cannot be read; write '<objective> <="),
    (["absent_file.npz", "--reject", "some"], "reject is 'some'; give a share such as 0.1, a cost such as 'cost:0.3'"),
    (["absent_file.npz", "--reject", "2"], "reject is '2'; its number must be between 0 and 1."),
    (["absent_file.npz", "--reject", "until plain <= baseline"], "needs a number, not the baseline."),
    (["absent_file.npz", "--reject", "1e-1", "--min-coverage", "1"], "--min-coverage is 1.0; it must be 0 or more"),
    (
        ["absent_file.npz", "--min-coverage", "9e-1"],
        "--min-coverage is about samples that are left undecided; give --rej",
    ),
    (
        ["absent_file.npz", "--reject", "1e-1", "--constraint", "worst <= 1"],
        "--reject cannot be given beside --constrain",
    ),
    (["absent_file.npz", "--reject", "1e-1", "--memory", "1GB"], "--reject cannot be given beside --guarantee or"),
    (["val.npz", "--reject", "until precision[wolf] >= 1"], "precision[wolf]: no such class with samples"),
    (["absent_file.npz", "--guarantee", "9e-1"], "--guarantee is a promise about constraints; give some, as"),
    (["absent_file.npz", "--guarantee", "2", "--constraint", "worst <= 1"], "--guarantee is 2.0; it must be between 0"),
    (
        ["absent_file.npz", "--guarantee", "9e-1", "--memory", "1GB", "--constraint", "worst <= 1"],
        "--guarantee cannot be given beside --memory",
    ),
    (["val.npz", "--guarantee", "9e-1", "--constraint", "sdev <= 1"], "constraint 'sdev <= 1' cannot be promised"),
    (
        ["val.npz", "--guarantee", "9e-1", "--constraint", "recall[wolf] >= 1"],
        "recall[wolf]: no such class with samples",
    ),
    (["val.npz", "--constraint", "precision[group:x] >= 1"], "precision[group:x] needs --groups: the group of each"),
    (["absent_file.npz", "--constraint", "mix:7 <= 1"], "mix's λ is 7; it must lie in [0, 1]."),
    (
        ["absent_file.npz", "--constraint", "plain >= 1"],
        "constraint 'plain >= 1': plain is an error, which is limi",
    ),
    (["absent_file.npz", "--constraint", "f1[a] <= 1"], "constraint 'f1[a] <= 1': f1[a] reads as a quality, which"),
    (
        ["absent_file.npz", "--objective", "roc_auc"],
        "objective 'roc_auc' judges how the scores rank the samples, and a",
    ),
    (["absent_file.npz", "--borrow", "inf"], "--borrow is inf; it must be a finite number, 0 or more."),
    (
        ["val.npz", "--unlabelled", "val.npz", "--unlabelled-key", "logit"],
        "val.npz: --unlabelled-key is 'logit', which is not in the file; did you mean 'logits'?",
    ),
    (
        ["val.npz", "--unlabelled", "val.csv", "--unlabelled-key", "logit"],
        "val.csv: no column begins with 'logit'; --unlabelled-key is the prefix of score columns.",
    ),
    (["absent_file.npz", "--pooling", "-1"], "--pooling is '-1'; it must be auto, none, or a positive number."),
    (["absent_file.npz", "--pooling", "some"], "--pooling is 'some'; it must be auto, none, or a positive number."),
    (
        ["val.npz", "--objective", "err[wolf]"],
        "err[wolf]: no such class with samples; give an index 0 … 2 or a class name.",
    ),
    (["bare.npz", "--objective", "few"], "objective 'few' needs --class-counts: the training samples of each class."),
    (["absent_file.npz", "--method", "lda"], "--method is 'lda'; it must be one of cap, plain, la, cdt, vs."),
    (["val.npz", "--parameters", "omega"], "Invalid value for '--parameters'"),
    (["val.npz", "--objektive", "worst"], "No such option: --objektive"),
    ([], "Missing argument 'SCORES'"),
]


def refused(done, message):
    """Exit code 2, one line that holds the message, nothing on stdout."""
    assert done.code == 2, done
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("capri: ")
    assert message in done.err
    return True


@pytest.mark.parametrize(("arguments", "message"), TUNE, ids=[" ".join(a) for a, _ in TUNE])
def test_tune(capri, bad, arguments, message, tmp_path):
    inside = [bad / a if "." in a and not a.startswith(("cvar", "mix", "-")) else a for a in arguments]
    assert refused(capri("tune", *inside, "-o", tmp_path / "out" / "policy.json"), message)
    assert list(tmp_path.iterdir()) == []


APPLY = [
    (["val.npz", "nothing.json"], "nothing.json: no such file; `capri tune … -o"),
    (["val.npz", "short.json"], "short.json: not complete JSON"),
    (["val.npz", "changed.json"], "changed.json: its content does not match its digest"),
    (["val.npz", "list.json"], "list.json: not a capri policy"),
    (["val.npz", "loss.json"], "this policy is a loss (Δ∘o + l in training), not an adjustment"),
    (["val.npz", "val.npz"], "val.npz: cannot be read as text"),
    (["wide.npz", "policy.json"], "wide.npz: logits: 6 score columns, but the policy has 3 classes; give scores of"),
    (["other.csv", "policy.json"], "a class of the policy is 'lynx', which is not in the file; there are"),
    (["short.csv", "policy.json"], "short.csv, line 91: 2 cells where the header names 4"),
    (["nan.npz", "policy.json"], "is nan"),
]


REPORT = [
    *(([*arguments, "-o", "report.html"], message) for arguments, message in APPLY),
    (["val.npz", "policy.json", "-o", "report.pdf"], "report.pdf: cannot write files of type '.pdf' here; use .html"),
    (["val.npz", "policy.json", "wide.npz"], "wide.npz: logits: 6 score columns, but the policy has 3 classes"),
    (["val.npz", "policy.json", "scores.npy"], "scores.npy: no labels found; name their key or column with"),
    (["scores.npy", "policy.json"], "scores.npy: no labels found; name their key or column with --label-key"),
    (["val.npz", "policy.json", "missing.npz"], "missing.npz: no such file"),
    (["val.npz", "policy.json", "--frontier", "list.json"], "list.json: not a frontier of schema"),
    (["-", "policy.json", "-"], "- is given for SCORES and TEST"),
    (["val.npz", "policy.json", "val.npz"], "val.npz: logits: these samples tuned the policy, so they are no test"),
]


@pytest.mark.parametrize(("arguments", "message"), REPORT, ids=[" ".join(a) for a, _ in REPORT])
def test_report(capri, bad, arguments, message, tmp_path):
    inside = [str(bad / a) if (bad / a).exists() else a for a in arguments]
    assert refused(capri("report", *inside), message)
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.parametrize(("arguments", "message"), APPLY, ids=[" ".join(a) for a, _ in APPLY])
def test_apply(capri, bad, arguments, message, tmp_path):
    paths = [bad / a for a in arguments]
    assert refused(capri("apply", *paths, "-o", tmp_path / "p.csv", "--adjusted", tmp_path / "a.npz"), message)
    assert list(tmp_path.iterdir()) == []


OTHERS = [
    (["evaluate", "no_labels.npz"], "no labels found"),
    (["evaluate", "val.npz", "--policy", "short.json"], "short.json: not complete JSON"),
    (["evaluate", "val.npz", "--policy", "loss.json"], "this policy is a loss"),
    (["evaluate", "wide.npz", "--policy", "policy.json"], "6 score columns, but the policy has 3 classes"),
    (["evaluate", "absent_file.npz", "--objective", "quantile:0"], "quantile's a is 0; it must lie in (0, 1]."),
    (["evaluate", "absent.npz"], "class '2' (2) has no sample here"),
    (["compare", "absent_file.npz", "--objective", "wrst"], "unknown objective 'wrst'; did you mean 'worst'?"),
    (["compare", "absent_file.npz", "--methods", "la,cup"], "'cup', which is not a method; did you mean 'cap'?"),
    (["compare", "absent_file.npz", "--holdout", "1"], "--holdout is 1; it must lie between 0 and 1, such as 0.5."),
    (["compare", "lone.npz"], "class '2' has 1 samples; comparing needs 2 or more, one to tune on and one to test on."),
    (["fold", "layer.npz", "policy.json", "-o", "folded.npz"], "the layer has weight (2, 4) and bias (2,)"),
    (["fold", "layer.npz", "loss.json", "-o", "folded.npz"], "this policy is a loss"),
    (["fold", "val.npz", "policy.json", "-o", "folded.npz"], "--weight-key is 'weight', which is not in the file"),
    (["fold", "val.csv", "policy.json", "-o", "folded.npz"], "val.csv: holds columns, not a layer; use"),
    (["fold", "layer.npz", "policy.json", "-o", "folded.pt"], "cannot write files of type '.pt' here; use"),
    (["fold", "layer.npz", "policy.json"], "Missing option '--output'"),
]


@pytest.mark.parametrize(("arguments", "message"), OTHERS, ids=[" ".join(a) for a, _ in OTHERS])
def test_other_commands(capri, bad, arguments, message):
    before = set(bad.iterdir())
    command, *rest = arguments
    inside = [bad / a if a.endswith((".npz", ".csv", ".json", ".pt")) else a for a in rest]
    assert refused(capri(command, *inside), message)
    assert set(bad.iterdir()) == before


class TestOutput:
    def test_of_an_unknown_kind(self, capri, files, tmp_path):
        assert refused(capri("tune", files / "val.npz", "-o", "policy.yaml"), "cannot write files of type '.yaml' here")
        assert refused(capri("apply", "x.npz", "y.json", "-o", "p.pkl"), "use .csv, .parquet, .npz.")
        assert refused(capri("apply", "x.npz", "y.json", "--adjusted", "a.csv"), "use .npz, .npy, .safetensors.")

    def test_that_is_a_folder(self, capri, files, tmp_path):
        (tmp_path / "policy.json").mkdir()
        assert refused(capri("tune", files / "val.npz", "-o", "policy.json"), "policy.json: is a folder; give the path")

    def test_in_a_file(self, capri, files, tmp_path):
        (tmp_path / "out").write_text("here already")
        assert refused(capri("tune", files / "val.npz", "-o", "out/policy.json"), "cannot write into")
        assert (tmp_path / "out").read_text() == "here already"

    def test_in_a_folder_that_is_not_writable(self, capri, files, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write anywhere
        assert refused(capri("tune", files / "val.npz", "-o", "policy.json"), "cannot write into")
        assert list(tmp_path.iterdir()) == []

    def test_when_writing_fails_after_all(self, capri, files, policy, tmp_path, monkeypatch):
        def full(handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        for command in (
            ["tune", files / "val.npz", "-o", "p.json"],
            ["apply", files / "val.npz", policy, "-o", "p.csv"],
        ):
            assert refused(capri(*command), f"{command[-1]}: cannot be written (No space left on device).")
        assert list(tmp_path.iterdir()) == []

    def test_when_the_disk_is_full_while_adjusted_scores_are_written(self, capri, files, policy, tmp_path, monkeypatch):
        written = []

        def full(matrix, rows):
            written.extend(tmp_path.iterdir())
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("capri.cli.tables._Matrix.write", full)
        done = capri("apply", files / "val.npz", policy, "-o", "p.csv", "--adjusted", "a.npy")
        assert refused(done, "a.npy: cannot be written (No space left on device).")
        assert len(written) == 1  # the file that was begun
        assert list(tmp_path.iterdir()) == []


class TestLibraries:
    """Without the extra `tables`, one line says what to install; .npz and .csv do not need it."""

    @pytest.mark.parametrize(("name", "library"), [("x.parquet", "pyarrow"), ("x.safetensors", "safetensors")])
    def test_missing(self, capri, monkeypatch, tmp_path, name, library):
        (tmp_path / name).write_bytes(b"")
        for module in (library, f"{library}.parquet", f"{library}.numpy"):
            monkeypatch.setitem(sys.modules, module, None)
        message = f'files need {library}: pip install "capriors[tables]"'
        assert refused(capri("tune", name, "-o", "policy.json"), message)

    def test_missing_for_output(self, capri, files, policy, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        done = capri("apply", files / "val.csv", policy, "-o", "p.parquet", "--adjusted", "a.npz")
        assert refused(done, '.parquet files need pyarrow: pip install "capriors[tables]"')
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["x.parquet", "x.safetensors"])
    @pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"\x10\0\0\0\0\0\0\0{}"])
    def test_damaged_files(self, capri, tmp_path, name, content):
        pytest.importorskip({"x.parquet": "pyarrow", "x.safetensors": "safetensors"}[name])
        (tmp_path / name).write_bytes(content)
        assert refused(capri("tune", name, "-o", "policy.json"), "damaged")
        assert not (tmp_path / "policy.json").exists()

    def test_a_parquet_file_that_ends_early(self, capri, tmp_path):
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame({"cat": [0.1, 0.2], "dog": [1.0, 2.0], "y": ["cat", "dog"]}).to_parquet(tmp_path / "x.parquet")
        whole = (tmp_path / "x.parquet").read_bytes()
        (tmp_path / "x.parquet").write_bytes(whole[:-50])
        assert refused(capri("tune", "x.parquet"), "x.parquet: the file is cut short or damaged")

    def test_an_index_in_a_parquet_file(self, capri, tmp_path):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"cat": [0.1, 0.2], "dog": [1.0, 2.0], "y": ["cat", "dog"]}, index=[5, 3])
        frame.to_parquet(tmp_path / "x.parquet")
        assert refused(capri("evaluate", "x.parquet"), "x.parquet: the column '__index_level_0__' is an index, not")
        assert capri("evaluate", "x.parquet", "--class-names", "cat,dog").code == 0

    def test_text_in_a_parquet_score(self, capri, tmp_path):
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame({"cat": ["a", "b"], "dog": [1.0, 2.0], "y": ["cat", "dog"]}).to_parquet(tmp_path / "x.parquet")
        assert refused(capri("tune", "x.parquet"), "column 'cat': 'a' is not a number")

    def test_a_missing_safetensors_file(self, capri):
        pytest.importorskip("safetensors")
        assert refused(capri("tune", "x.safetensors"), "x.safetensors: no such file; check the path.")

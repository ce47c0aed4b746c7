"""A small long-tailed problem in every format, and the command line as a function."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from capri.cli import app

NAMES = ("cat", "dog", "lynx")
COUNTS = np.array([900, 90, 10])


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def capri(capsys, monkeypatch, tmp_path):
    """`capri(*arguments)` runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app([str(a) for a in arguments])
        output = capsys.readouterr()
        return Done(ended.value.code or 0, output.out, output.err)

    return run


@pytest.fixture(scope="session")
def data():
    """Logits of a model that favours common classes, (90, 3), and labels."""
    rng = np.random.default_rng(7)
    y = np.repeat([0, 1, 2], 30)
    return rng.normal(size=(90, 3)) + 2 * np.eye(3)[y] + np.log(COUNTS / COUNTS.sum()), y


@pytest.fixture(scope="session")
def files(data, tmp_path_factory) -> Path:
    """The same samples in every format."""
    folder = tmp_path_factory.mktemp("files")
    scores, y = data
    named = np.array(NAMES)
    known = {"class_names": named, "train_counts": COUNTS}
    np.savez(folder / "val.npz", logits=scores, y=y, **known)
    np.savez(folder / "bare.npz", logits=scores, y=y)
    np.savez(
        folder / "parts.npz", val_logits=scores[::2], val_y=y[::2], test_logits=scores[1::2], test_y=y[1::2], **known
    )
    np.savez(folder / "proba.npz", proba=softmax(scores), labels=named[y], **known)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "labels.npy", y)
    write_csv(
        folder / "val.csv", [*NAMES, "label"], [[*row, NAMES[k]] for row, k in zip(scores.tolist(), y, strict=True)]
    )
    columns = ["id", "score_lynx", "score_cat", "score_dog", "species"]
    rows = [[f"#{i}", *row[[2, 0, 1]].tolist(), NAMES[y[i]]] for i, row in enumerate(scores)]
    write_csv(folder / "shuffled.csv", columns, rows)
    return folder


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def write_csv(path: Path, header, rows) -> Path:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [header, *rows]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def policy(files) -> Path:
    """A policy for the samples, tuned once."""
    path = files / "policy.json"
    with pytest.raises(SystemExit):
        app(["tune", str(files / "val.npz"), "--method", "la", "-o", str(path)])
    return path

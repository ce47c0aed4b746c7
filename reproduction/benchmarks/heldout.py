"""Which way of tuning is best on data that it has not seen?

    python reproduction/benchmarks/heldout.py run        # fills results/heldout.jsonl, resumes where it stopped
    python reproduction/benchmarks/heldout.py leak       # fills results/leak.jsonl: does measuring difficulty leak?
    python reproduction/benchmarks/heldout.py render     # writes docs/heldout.md from both

Real scores of four models (see `SOURCES`), validation sets of 5 to 50 samples per class, five objectives, five seeds.
Each method tunes on validation and is judged on test samples that it never saw. `sdev` is tuned under
`balanced <= baseline`, with the balanced error reported beside it. Needs the data folder named by CAPRI_SHARED
(default: ../shared beside the project).
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import Progress, TimeRemainingColumn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from capri import LogitAdjuster, class_errors, evaluate, study
from capri.attributes import difficulty
from capri.extension import write_atomically
from capri.sampling import divide, shuffled
from capri.study import Split, Spread, judge

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("CAPRI_SHARED", ROOT.parent / "shared")) / "data"
RESULTS = ROOT / "reproduction" / "benchmarks" / "results" / "heldout.jsonl"
LEAK = RESULTS.with_name("leak.jsonl")
PAGE = ROOT / "docs" / "heldout.md"

SIZES = (5, 10, 20, 50)
SEEDS = range(5)
OBJECTIVES = ("balanced", "sdev", "cvar:0.2", "quantile:0.2", "weighted")
DEFAULT = "default"
METHODS = {name: study.METHODS[name] for name in ("unadjusted", "la1", "la", "plain")} | {DEFAULT: study.tuned()}
REFIT = "refit"  # no tuning: the model trained anew with class_weight="balanced", where there is a model to train
COLUMNS = {"la1": "τ = 1", "la": "LA", "plain": "plain", REFIT: "refit", DEFAULT: "default"}


class Scores(NamedTuple):
    """val: (K, n, K) scores by class; test: (N, K); counts: training samples; refit: test scores of the model trained
    with class_weight="balanced", None where it cannot be.
    """

    val: np.ndarray
    test: np.ndarray
    test_y: np.ndarray
    counts: np.ndarray
    refit: np.ndarray | None = None


def long_tail(largest: int, imbalance: float, n_classes: int) -> np.ndarray:
    return np.floor(largest * imbalance ** (-np.arange(n_classes) / (n_classes - 1)) + 1e-9).astype(int)


def halves(scores: np.ndarray, y: np.ndarray, counts: np.ndarray, seed: int, refit: np.ndarray | None = None) -> Scores:
    """Official test samples, half of each class to tune and half to test."""
    val, test = divide(y, np.full(len(counts), 50), seed)
    refit = None if refit is None else refit[test]
    return Scores(scores[val].reshape(len(counts), 50, -1), scores[test], y[test], counts, refit)


def logits_of(model: Any, x: np.ndarray) -> np.ndarray:
    return model.decision_function(x).astype(np.float32)


def refit_of(model: Any, x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Test scores of the same model, trained with class_weight="balanced"."""
    names = [name for name in model.get_params() if name.split("__")[-1] == "class_weight"]
    return logits_of(clone(model).set_params(**dict.fromkeys(names, "balanced")).fit(x, y), x_test)


def cifar_resnet(seed: int) -> Scores:
    pack = np.load(SHARED / "cifar100_lt_resnet32_logits.npz")
    return halves(pack["logits"].astype(np.float32), pack["y"].astype(int), pack["train_counts"], seed)


@cache
def _cifar_head() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    pack = np.load(SHARED / "cifar100_lt_features.npz")
    x, y = pack["x_train"].astype(np.float32), pack["y_train"].astype(int)
    model = LogisticRegression(C=0.003, max_iter=100).fit(x, y)
    x_test = pack["x_test"].astype(np.float32)
    return logits_of(model, x_test), pack["y_test"].astype(int), np.bincount(y), refit_of(model, x, y, x_test)


def cifar_features(seed: int) -> Scores:
    scores, y, counts, refit = _cifar_head()
    return halves(scores, y, counts, seed, refit)


@cache
def clinc(seed: int) -> Scores:
    """Sentences of 150 intents: 50 training sentences per class thinned to 1, 50 others to tune, 50 to test."""
    pack = np.load(SHARED / "clinc150_minilm.npz")
    x, y = pack["x_train"].astype(np.float32), pack["y_train"].astype(int)
    x_test = np.concatenate([pack["x_val"], pack["x_test"]]).astype(np.float32)
    y_test = np.concatenate([pack["y_val"], pack["y_test"]]).astype(int)
    rng = np.random.default_rng(seed)
    counts = np.empty(150, int)
    counts[rng.permutation(150)] = long_tail(50, 50, 150)
    order = list(shuffled(y, 150, rng))
    train = np.concatenate([o[:n] for o, n in zip(order, counts, strict=True)])
    val = np.stack([o[50:100] for o in order])
    model = LogisticRegression(C=30, max_iter=200).fit(x[train], y[train])
    scores = logits_of(model, x[val.ravel()]).reshape(150, 50, 150)
    return Scores(scores, logits_of(model, x_test), y_test, counts, refit_of(model, x[train], y[train], x_test))


@cache
def digits(seed: int) -> Scores:
    x, y = load_digits(return_X_y=True)
    counts = long_tail(90, 30, 10)
    order = list(shuffled(y, 10, seed))
    train = np.concatenate([o[:n] for o, n in zip(order, counts, strict=True)])
    val, test = np.stack([o[90:140] for o in order]), np.concatenate([o[140:] for o in order])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(x[train], y[train])
    scores = logits_of(model, x[val.ravel()]).reshape(10, 50, 10)
    return Scores(scores, logits_of(model, x[test]), y[test], counts, refit_of(model, x[train], y[train], x[test]))


SOURCES: dict[str, tuple[str, Callable[[int], Scores]]] = {
    "CIFAR100-LT, ResNet-32": (
        "logits of a ResNet-32 trained with cross-entropy (64.2 % balanced error)",
        cifar_resnet,
    ),
    "CIFAR100-LT, features": ("logistic regression on ImageNet features", cifar_features),
    "CLINC150-LT": ("logistic regression on sentence embeddings, 150 intents, imbalance 50", clinc),
    "digits-LT": ("logistic regression on pixels, 10 classes, imbalance 30", digits),
}


def cells() -> Iterator[tuple[str, int, str, int]]:
    for seed in SEEDS:
        for source in SOURCES:
            for size in SIZES:
                for objective in OBJECTIVES:
                    yield source, size, objective, seed


def run_cell(source: str, size: int, objective: str, seed: int) -> dict:
    scores = SOURCES[source][1](seed)
    k = len(scores.counts)
    split = Split(
        scores.val[:, :size].reshape(-1, k),
        np.repeat(np.arange(k), size),
        scores.test,
        scores.test_y,
        class_names=tuple(map(str, range(k))),
        train_counts=scores.counts,
        weights=np.random.default_rng(1000 + seed).uniform(size=k) if objective == "weighted" else None,
    )
    row = {"source": source, "size": size, "objective": objective, "seed": seed}
    if scores.refit is not None:
        beside = list(dict.fromkeys([objective, "balanced"]))
        row[REFIT] = split.evaluate(split.test_y, scores.refit.argmax(axis=1), beside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return row | {name: judge(split, objective, method).test for name, method in METHODS.items()}


def run() -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    known = current()
    write_atomically(RESULTS, "".join(json.dumps(row) + "\n" for row in known).encode())
    done = {(r["source"], r["size"], r["objective"], r["seed"]) for r in known}
    todo = [c for c in cells() if c not in done]
    with Progress(*Progress.get_default_columns(), TimeRemainingColumn()) as progress, RESULTS.open("a") as out:
        for cell in progress.track(todo, description="cells"):
            out.write(json.dumps(run_cell(*cell)) + "\n")
            out.flush()


def load(path: Path = RESULTS) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def current() -> list[dict]:
    """Rows with all of the methods: those of others are left aside, and dropped by `run`."""
    return [row for row in load() if row.keys() >= METHODS.keys()]


def leak(size: int = 20) -> None:
    """CAP with difficulty measured on the samples that tune, and on as many others."""
    rows = []
    for source in ("CIFAR100-LT, ResNet-32", "CIFAR100-LT, features", "CLINC150-LT"):
        for seed in SEEDS:
            scores = SOURCES[source][1](seed)
            k = len(scores.counts)
            tuning, other = (scores.val[:, a : a + size].reshape(-1, k) for a in (0, size))
            y = np.repeat(np.arange(k), size)
            elsewhere = difficulty(class_errors(y, other.argmax(axis=1), k), np.full(k, size))
            for objective in OBJECTIVES[:4]:
                row = {"source": source, "objective": objective, "seed": seed}
                for name, given in {"same": None, "other": {"diff": elsewhere}}.items():
                    adjuster = LogitAdjuster(objective, pooling=None, bootstrap=1)
                    adjuster.fit(tuning, y, class_counts=scores.counts, class_attributes=given)
                    predictions = adjuster.transform(scores.test).argmax(axis=1)
                    row[name] = evaluate(scores.test_y, predictions, k, [objective])
                rows.append(row)
    LEAK.write_text("".join(json.dumps(row) + "\n" for row in rows))


def render_leak() -> str:
    groups = defaultdict(list)
    for row in load(LEAK):
        groups[row["source"], row["objective"]].append(row)
    lines = [
        "\n## Does measuring difficulty on the tuning samples leak?\n",
        "CAP without pooling, 20 samples per class: test objective with `diff` measured on the tuning samples minus",
        "the same with `diff` from 20 others per class, in points (positive: the leak hurts), 5 seeds,",
        "± standard error. Made by `python reproduction/benchmarks/heldout.py leak`.\n",
        "| source | objective | same − other |",
        "| --- | --- | ---: |",
    ]
    for (source, objective), rows in groups.items():
        found = paired(rows, "same", "other", objective).text(2, signed=True)
        lines.append(f"| {source} | {objective} | {found} |")
    return "\n".join(lines) + "\n"


# -- the page ---------------------------------------------------------------------------------------------------------


def paired(rows: list[dict], first: str, second: str, objective: str) -> Spread:
    """Mean and standard error of first − second."""
    return Spread.of([r[first][objective] - r[second][objective] for r in rows]).of_mean()


def render() -> str:
    groups = defaultdict(list)
    for row in current():
        groups[row["source"], row["size"], row["objective"]].append(row)
    rivals = ("la1", "la", "plain")
    versus = [f"default − {COLUMNS[rival]}" for rival in rivals]
    lines, losses, compared, n_seeds = [], [], 0, {len(rows) for rows in groups.values()}
    for source, (what, _) in SOURCES.items():
        lines += [f"\n## {source}\n", f"{what[0].upper()}{what[1:]}.\n"]
        lines += [
            "| objective | n per class | unadjusted | " + " | ".join([*COLUMNS.values(), *versus]) + " |",
            "| --- | ---: | ---: |" + " ---: |" * (len(COLUMNS) + len(versus)),
        ]
        for objective in OBJECTIVES:
            for size in SIZES:
                rows = groups[source, size, objective]
                if len(rows) < 2:
                    continue
                compared += 1
                cells_ = [f"{100 * np.mean([r['unadjusted'][objective] for r in rows]):.2f}"]
                for method in COLUMNS:
                    if any(method not in r for r in rows):
                        cells_.append("–")
                        continue
                    mean = paired(rows, method, "unadjusted", objective).mean
                    beside = ""
                    if objective == "sdev":
                        beside = f" (bal {100 * paired(rows, method, 'unadjusted', 'balanced').mean:+.1f})"
                    cells_.append(f"{100 * mean:+.2f}{beside}")
                for rival in rivals:
                    difference = paired(rows, DEFAULT, rival, objective)
                    cells_.append(difference.text(2, signed=True))
                    if difference.mean > difference.deviation:
                        losses.append(f"{source}, {objective}, {size} per class: {cells_[-1]} against {COLUMNS[rival]}")
                lines.append(f"| {objective} | {size} | " + " | ".join(cells_) + " |")
    lost = len({loss.rsplit(":", 1)[0] for loss in losses})
    kept, seeds = compared - lost, " to ".join(map(str, sorted({min(n_seeds), max(n_seeds)})))
    head = f"""# Held-out comparison

Made by `python reproduction/benchmarks/heldout.py run` and `python reproduction/benchmarks/heldout.py render`;
every number on this page comes from `reproduction/benchmarks/results/heldout.jsonl`.

Each method tunes a trained model's scores on a validation set (*n per class* samples) and is judged on test samples
that it never saw. Numbers are in points (%), lower is better: the unadjusted value, then the change that each method
brings, as means over {seeds} seeds; the last three columns are paired differences with their standard errors.
*τ = 1* is logit adjustment without a validation set, *LA* has its temperature tuned exactly, *plain* is one free offset
per class, *refit* the model trained anew with `class_weight="balanced"`, where there is a model to train. `sdev` is
tuned under `balanced <= baseline`, with the change of the balanced error in brackets.

**The default is not worse than τ = 1, LA or plain by more than one standard error in {kept} of {compared} cells
({100 * kept / max(compared, 1):.0f} %).** Where it is worse than one of them:

"""
    return head + ("\n".join(f"- {loss}" for loss in losses) or "- nowhere") + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "leak", "render"])
    what = parser.parse_args().what
    if what == "render":
        PAGE.write_text(render() + render_leak())
    else:
        {"run": run, "leak": leak}[what]()

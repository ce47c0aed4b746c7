"""What do scores without labels bring? The default with and without `X_unlabelled`, on real score sets.

    python reproduction/benchmarks/unlabelled.py run --seeds 5 --jobs 2     # resumes where it stopped
    python reproduction/benchmarks/unlabelled.py show

Labelled samples are those of `outofsample`; unlabelled ones are others of the same pool, at most `MOST`, in the shares
of the training set. Nothing in capri was chosen on the sets shown: they are those of the report half.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from outofsample_runs import OBJECTIVES, SHARES, Judge, weights_of
from scoresets import REPORT, ScoreSet, divide_pool, draw, score_set

from capri import LogitAdjuster
from capri.sampling import divide
from capri.study import Spread

RESULTS = Path(__file__).resolve().parent / "results" / "unlabelled.jsonl"
SIZES, MOST = (2, 5, 10, 20), 1000
SHOWN = ("balanced", "cvar:0.2", "worst", "weighted", "macro_f1")  # objectives without a limit
LEFT_OUT = ("clinc150",)  # 150 classes leave too few others in the pool

Task = tuple[str, str, str, int, int]  # set, model, shares, size, seed


def unlabelled(scores: ScoreSet, shares: Any, size: int, seed: int) -> np.ndarray:
    """Scores of samples of the pool that are not in the validation set, in the shares of the training set."""
    _, others = divide_pool(scores, shares, size, seed)
    natural, left = scores.shares("natural"), np.bincount(scores.pool_y[others], minlength=len(scores.train_counts))
    total = min(MOST, (left / natural).min())
    chosen, _ = divide(scores.pool_y[others], np.minimum(np.rint(total * natural).astype(int), left), seed)
    return scores.pool_scores[others][chosen]


def row(task: Task) -> dict[str, Any]:
    """Test values without and with unlabelled scores, by objective."""
    name, model, shares, size, seed = task
    scores = score_set(name, model, seed)
    split, more = draw(scores, shares, size, seed), unlabelled(scores, shares, size, seed)
    labels = np.asarray(split.class_names)[split.val_y]
    test = {}
    for objective in SHOWN:
        weights = weights_of(split) if objective == "weighted" else None
        judge = Judge(replace(split, weights=weights), scores.test_weight)
        values = []
        for extra in (None, more if len(more) else None):
            fit = LogitAdjuster(
                OBJECTIVES[objective].objective,
                scores=split.kind,
                classes=split.class_names,
                weights=weights,
                bootstrap=0,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of thin classes: they are the point
                fit.fit(split.val_scores, labels, class_counts=split.train_counts, X_unlabelled=extra)
            values.append(round(judge.value(fit.transform(split.test_scores).argmax(axis=1), objective), 5))
        test[objective] = values
    return {"task": list(task), "unlabelled": len(more), "test": test}


def load() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(seeds: int, jobs: int) -> None:
    done = {tuple(found["task"]) for found in load()}
    tasks = [
        (name, model, shares, size, seed)
        for seed in range(seeds) for name, models in REPORT.items() if name not in LEFT_OUT
        for model in models for shares in SHARES for size in SIZES
    ]  # fmt: skip
    todo = [task for task in tasks if task not in done]
    with RESULTS.open("a") as stream, parallel_config("loky", inner_max_num_threads=1):
        rows = Parallel(n_jobs=jobs, return_as="generator_unordered")(delayed(row)(task) for task in todo)
        for i, found in enumerate(rows, 1):
            stream.write(json.dumps(found) + "\n")
            stream.flush()
            if i % 50 == 0 or i == len(todo):
                print(f"{i}/{len(todo)}", flush=True)


def show() -> None:
    """Markdown: test error in %, without and with; the paired difference with its standard error over runs."""
    rows = load()
    print("| objective | labels per class | without | with | difference |\n| --- | ---: | ---: | ---: | ---: |")
    for objective in SHOWN:
        for size in SIZES:
            values = 100 * np.array([r["test"][objective] for r in rows if r["task"][3] == size])
            difference = Spread.of(values[:, 1] - values[:, 0]).of_mean()
            without, together = values.mean(axis=0)
            text = f"{difference.mean:+.2f} ± {difference.deviation or 0:.2f}"
            print(f"| {objective} | {size} | {without:.1f} | {together:.1f} | {text} |")
    seeds = len({r["task"][4] for r in rows})
    sets = len({(r["task"][0], r["task"][1]) for r in rows})
    mean = np.mean([r["unlabelled"] for r in rows])
    print(
        f"\n{sets} pairs of set and model, {seeds} seeds, {mean:.0f} unlabelled samples in the mean; ± standard error."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What scores without labels bring.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="fill in the results")
    running.add_argument("--seeds", type=int, default=5)
    running.add_argument("--jobs", type=int, default=2)
    commands.add_parser("show", help="print the table")
    given = parser.parse_args()
    if given.command == "run":
        run(given.seeds, given.jobs)
    else:
        show()


if __name__ == "__main__":
    main()

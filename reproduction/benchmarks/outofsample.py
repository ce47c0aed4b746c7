"""How tuning does out of sample with few validation samples: methods × score sets × sizes × objectives.

    python reproduction/benchmarks/outofsample.py run [--half develop] [--seeds 2] [--sizes 5 10]   # resumes
    python reproduction/benchmarks/outofsample.py show [--half develop]                              # the tables

A row of results/outofsample.jsonl is one cell: a set, a model, shares and size of the validation set, an objective and
a seed, with the test value of every method. Objectives on shares (plain error, macro-F1) are judged under the training
shares, the others class by class. Choose on `develop` alone; `report` is looked at once, at the end.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scoresets import DEVELOP, REPORT, Shares, draw, score_set

from capri import evaluate
from capri.study import METHODS, Spread

RESULTS = Path(__file__).resolve().parent / "results" / "outofsample.jsonl"
HALVES = {"develop": DEVELOP, "report": REPORT}
OBJECTIVES = ("balanced", "cvar:0.2", "worst", "sdev", "macro_f1")
COMPARED = ("unadjusted", "la1", "la", "plain", "cap", "cap-pooled")


class Cell(NamedTuple):
    """Where methods are compared. size: validation samples per class, 0 for all."""

    name: str
    model: str
    shares: Shares
    size: int
    objective: str
    seed: int


def cells(half: str, sizes: list[int], seeds: int) -> Iterator[Cell]:
    for seed in range(seeds):
        for name, models in HALVES[half].items():
            for model in models:
                for shares in ("natural", "balanced"):
                    for size in sizes:
                        for objective in OBJECTIVES:
                            yield Cell(name, model, shares, size, objective, seed)


def judged(cell: Cell) -> dict[str, float]:
    """Test values by method."""
    scores = score_set(cell.name, cell.model, cell.seed)
    split = draw(scores, cell.shares, cell.size or None, cell.seed)
    weight = scores.test_weight if cell.objective == "macro_f1" else None
    values = {}
    for method in COMPARED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of thin classes: they are the point
            predictions = split.predict(METHODS[method](split, cell.objective), split.test_scores)
        figures = evaluate(split.test_y, predictions, split.n_classes, [cell.objective], sample_weight=weight)
        values[method] = figures[cell.objective]
    return values


def stored() -> dict[Cell, dict[str, float]]:
    if not RESULTS.exists():
        return {}
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {Cell(**row["cell"]): row["test"] for row in rows}


def run(half: str, sizes: list[int], seeds: int) -> None:
    known = stored()
    wanted = [cell for cell in cells(half, sizes, seeds) if cell not in known]
    with RESULTS.open("a", encoding="utf-8") as stream:
        for i, cell in enumerate(wanted):
            test = {name: round(value, 6) for name, value in judged(cell).items()}
            stream.write(json.dumps({"cell": cell._asdict(), "test": test}) + "\n")
            stream.flush()
            if i % 50 == 0:
                print(f"{i}/{len(wanted)} {cell}", flush=True)


def show(half: str) -> None:
    """Means over sets, models and seeds, and how often the default loses or wins by two standard errors over seeds."""
    found = {cell: test for cell, test in stored().items() if cell.name in HALVES[half]}
    groups = defaultdict(list)
    for cell, test in found.items():
        groups[cell.shares, cell.size, cell.objective].append([test[m] for m in COMPARED])
    print("| shares | per class | objective | n | " + " | ".join(COMPARED) + " |")
    print("| --- | ---: | --- | ---: |" + " ---: |" * len(COMPARED))
    for (shares, size, objective), rows in sorted(groups.items()):
        means = [Spread.of([row[k] for row in rows]).mean for k in range(len(COMPARED))]
        best = min(means)
        shown = [f"**{100 * m:.1f}**" if m == best else f"{100 * m:.1f}" for m in means]
        print(f"| {shares} | {size or 'all'} | {objective} | {len(rows)} | " + " | ".join(shown) + " |")
    print(f"\n{', '.join(f'{other}: {_losses(found, other)}' for other in COMPARED[:-1])}")


def _losses(found: dict[Cell, dict[str, float]], other: str) -> str:
    """In how many cells (over seeds) the default is worse, and better, by more than two standard errors."""
    pairs = defaultdict(list)
    for cell, test in found.items():
        pairs[cell._replace(seed=0)].append(test["cap-pooled"] - test[other])
    spreads = [Spread.of(values).of_mean() for values in pairs.values() if len(values) > 1]
    worse = sum(s.mean > 2 * (s.deviation or 0) + 1e-12 for s in spreads)
    better = sum(s.mean < -2 * (s.deviation or 0) - 1e-12 for s in spreads)
    return f"worse {worse}, better {better} of {len(spreads)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "show"])
    parser.add_argument("--half", choices=list(HALVES), default="develop")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 10, 50], help="per class; 0 is all")
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    np.seterr(all="ignore")
    run(chosen.half, chosen.sizes, chosen.seeds) if chosen.command == "run" else show(chosen.half)


if __name__ == "__main__":
    main()

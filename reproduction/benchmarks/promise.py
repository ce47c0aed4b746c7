"""Are promises kept? Constraints with `guarantee=0.95`, on populations whose truth is known.

    python reproduction/benchmarks/promise.py run --repetitions 1000 --jobs 2      # resumes where it stopped
    python reproduction/benchmarks/promise.py show

Validation samples are drawn with replacement from a population (`populations`), so that the truth of a policy is its
figure on the population, without sampling error.

A promise is broken where a constraint that it names, as asked or the nearest, does not hold on the population.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from populations import population

from capri import LogitAdjuster, evaluate
from capri.constraints import as_constraint

RESULTS = Path(__file__).resolve().parent / "results" / "promise.jsonl"
CONFIDENCE, BATCH = 0.95, 25  # repetitions that make a line of the results
#: population, samples, objective, constraint: floors that are easy to keep, at the edge, and out of reach
QUESTIONS = (
    ("gaussian", 1000, "plain", "recall[*] >= 0.4"),
    ("gaussian", 1000, "plain", "recall[*] >= 0.6"),
    ("gaussian", 1000, "plain", "recall[*] >= 0.7"),
    ("gaussian", 4000, "plain", "recall[*] >= 0.7"),
    ("gaussian", 2000, "balanced", "precision[4] >= 0.4"),
    ("gaussian", 2000, "balanced", "precision[*] >= 0.5"),
    ("gaussian", 2000, "balanced", "f1[*] >= 0.4"),
    ("gaussian", 1000, "balanced", "plain <= 0.2"),
    ("letter", 2600, "plain", "recall[*] >= 0.4"),
    ("letter", 2600, "balanced", "precision[*] >= 0.4"),
    ("letter", 2600, "balanced", "plain <= 0.31"),
)


def repetition(question: tuple[str, int, str, str], seed: int) -> tuple[bool, bool, float]:
    """Whether it was promised as asked, whether the promise is broken, and the objective in the population."""
    name, size, objective, asked = question
    scores, y = population(name)
    chosen = np.random.default_rng(seed).integers(0, len(y), size)
    k = scores.shape[1]
    adjuster = LogitAdjuster(objective, constraints=[asked], guarantee=CONFIDENCE, bootstrap=0, classes=range(k))
    adjuster.fit(scores[chosen], y[chosen])
    [promise] = map(as_constraint, adjuster.promise_.nearest)
    truth = evaluate(y, adjuster.predict(scores), k, [promise.objective.name, objective])
    broken = truth[promise.objective.name] > promise.limit(0.0) + 1e-12
    return adjuster.promise_.held, bool(broken), truth[objective]


def batch(question: tuple[str, int, str, str], first: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thin classes, and of what cannot be promised
        found = [repetition(question, seed) for seed in range(first, first + BATCH)]
    held, broken, values = map(list, zip(*found, strict=True))
    return {"question": list(question), "first": first, "held": held, "broken": broken, "values": values}


def results() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(repetitions: int, jobs: int) -> None:
    done = {(tuple(found["question"]), found["first"]) for found in results()}
    todo = [(q, first) for q in QUESTIONS for first in range(0, repetitions, BATCH) if (q, first) not in done]
    with RESULTS.open("a") as stream, parallel_config("loky", inner_max_num_threads=1):
        found = Parallel(n_jobs=jobs, return_as="generator_unordered")(delayed(batch)(*task) for task in todo)
        for i, line in enumerate(found, 1):
            line["values"] = [round(v, 4) for v in line["values"]]
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            if i % 20 == 0 or i == len(todo):
                print(f"{i}/{len(todo)}", flush=True)


def show() -> None:
    """Markdown: how often the constraint was promised, and how often a promise was broken."""
    print("| population | samples | constraint | promised | of these broken | nearest broken | all broken |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    rows = results()
    for question in QUESTIONS:
        chosen = [found for found in rows if tuple(found["question"]) == question]
        held = np.array([h for found in chosen for h in found["held"]], bool)
        broken = np.array([b for found in chosen for b in found["broken"]], bool)
        if len(held):
            counts = (f"{(broken & held).sum()} of {held.sum()}", f"{(broken & ~held).sum()} of {(~held).sum()}")
            cells = (question[0], f"{question[1]:,}", f"`{question[3]}`", f"{100 * held.mean():.0f} %", *counts)
            print("| " + " | ".join([*cells, f"{100 * broken.mean():.1f} %"]) + " |")
    n = {sum(len(f["held"]) for f in rows if tuple(f["question"]) == q) for q in QUESTIONS}
    print(f"\n{min(n):,} repetitions of each, `guarantee=0.95`: at most 5 % may be broken.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Are promises kept?")
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="fill in the results")
    running.add_argument("--repetitions", type=int, default=1000)
    running.add_argument("--jobs", type=int, default=2)
    commands.add_parser("show", help="print the table")
    given = parser.parse_args()
    if given.command == "run":
        run(given.repetitions, given.jobs)
    else:
        show()


if __name__ == "__main__":
    main()

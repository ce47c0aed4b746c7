"""The runs of `outofsample`: what is compared, where, how it is judged and how results are kept.

    score_set --draw--> Split --METHODS--> Answer --judged--> a row per set, model, shares, size and seed

A row of results/outofsample.jsonl, figures to five digits:

    {"algorithm": 2, "name": "letter", "model": "net", "shares": "natural", "size": 5, "seed": 0,
     "n": 130, "most": 61.2, "all": false,          # validation samples; what the pool has per class; are these all?
     "objectives": {"balanced": {
        "test": [0.31, 0.29, …],                    # by method, in the order of METHODS
        "excess": [[0.01, 0.004], …],               # `constrained` alone: by method, with its standard error
        "claimed": [0.02, 0.01, 0.04],              # the default's improvement and its interval, null where it has none
        "delivered": 0.018}, …}}                    # the improvement on test
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, parallel_config
from scoresets import DEVELOP, REPORT, ScoreSet, Shares, draw, score_set

from capri import LogitAdjuster, evaluate
from capri.extension import write_atomically
from capri.study import METHODS as LIBRARY
from capri.study import Split

#: Raise it when the library's default, a rival or the judging changes: rows of another number are dropped.
ALGORITHM = 2
RESULTS = Path(__file__).resolve().parent / "results" / "outofsample.jsonl"
HALVES: Mapping[str, Mapping[str, Sequence[str]]] = {"develop": DEVELOP, "report": REPORT}
SIZES = (2, 5, 10, 20, 50, 0)  # validation samples per class; 0 is all
SHARES: tuple[Shares, ...] = ("natural", "balanced")
DIGITS = 5

#: Settings of `LogitAdjuster` by method; None: nothing is tuned. Rivals are tuned on labels alone; the default has no
#: settings, by definition. All of them get the same scores, classes, weights, counts, constraints and seed.
METHODS: Mapping[str, Mapping[str, Any] | None] = {
    "unadjusted": None,
    "la1": None,
    "la": {"method": "la", "borrow": 0, "bootstrap": 0},
    "plain": {"method": "plain", "borrow": 0, "bootstrap": 0},
    "default": {},
}


class Goal(NamedTuple):
    """What is tuned for. guard: an objective and by how much it may rise above the unadjusted value on test; what it
    exceeds that by is added to the test figure.
    """

    objective: str
    constraints: tuple[str, ...] | None = None
    guard: tuple[str, float] | None = None


OBJECTIVES: Mapping[str, Goal] = {
    "balanced": Goal("balanced"),
    "sdev": Goal("sdev", guard=("balanced", 0.0)),  # the library's own guard, as constraints are None
    "cvar:0.2": Goal("cvar:0.2"),
    "quantile:0.2": Goal("quantile:0.2"),
    "worst": Goal("worst"),
    "weighted": Goal("weighted"),
    "macro_f1": Goal("macro_f1"),
    "constrained": Goal("balanced", constraints=("plain <= baseline + 0.02",), guard=("plain", 0.02)),
}

# -- one run ----------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """Predictions on test, and what the method says that it gained: improvement and interval, where it says so."""

    predictions: np.ndarray
    claimed: tuple[float | None, float | None, float | None] = (None, None, None)


def answer(split: Split, method: str, goal: Goal) -> Answer:
    """Tune on the validation part, predict the test part."""
    settings = METHODS[method]
    if settings is None:
        return Answer(split.predict(LIBRARY[method](split, goal.objective), split.test_scores))
    known = {"scores": split.kind, "classes": split.class_names, "weights": split.weights, "random_state": split.seed}
    adjuster = LogitAdjuster(goal.objective, constraints=goal.constraints, **known, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of thin classes and limits out of reach: they are the point
        labels = np.asarray(split.class_names)[split.val_y]
        adjuster.fit(split.val_scores, labels, class_counts=split.train_counts)
    found = adjuster.validation_
    interval = (None, None) if found.interval is None else tuple(found.interval)
    return Answer(adjuster.transform(split.test_scores).argmax(axis=1), (found.improvement, *interval))


def weights_of(split: Split) -> np.ndarray:
    """Test-time weights of the classes for `weighted`, by seed."""
    return np.random.default_rng(1000 + split.seed).uniform(size=split.n_classes)


class Judge:
    """Figures of predictions on the test part, under the training shares. Class errors do not depend on shares."""

    def __init__(self, split: Split, sample_weight: np.ndarray) -> None:
        self.split, self.sample_weight = split, sample_weight

    def value(self, predictions: np.ndarray, objective: str) -> float:
        split = self.split
        known = {"sample_weight": self.sample_weight, "weights": split.weights}
        return evaluate(split.test_y, predictions, split.n_classes, [objective], **known)[objective]

    def excess(self, predictions: np.ndarray, before: np.ndarray, guard: tuple[str, float]) -> float:
        """By how much predictions exceed what the guard allows, negative where they do not."""
        objective, slack = guard
        return self.value(predictions, objective) - self.value(before, objective) - slack

    def noise(self, predictions: np.ndarray, before: np.ndarray) -> float:
        """Standard error of the paired difference in plain error."""
        y = self.split.test_y
        return paired_error(y, (predictions != y) * 1.0 - (before != y), self.sample_weight)


def paired_error(y: np.ndarray, differences: np.ndarray, weight: np.ndarray) -> float:
    """Standard error of the weighted mean of differences, of test samples that were drawn class by class.

    y, differences, weight: (n,); the weight is the same for all samples of a class.
    """
    n, share = np.bincount(y), np.bincount(y, weight) / weight.sum()
    mean = np.bincount(y, differences) / n
    variance = np.bincount(y, (differences - mean[y]) ** 2) / np.maximum(n - 1, 1)
    return float(np.sqrt((share**2 * variance / n).sum()))


def judged(split: Split, sample_weight: np.ndarray, name: str) -> dict[str, Any]:
    """All methods for one objective: an entry of a row's "objectives"."""
    goal = OBJECTIVES[name]
    if goal.objective == "weighted":
        split = replace(split, weights=weights_of(split))
    judge = Judge(split, sample_weight)
    answers = {method: answer(split, method, goal) for method in METHODS}
    before, after = answers["unadjusted"].predictions, answers["default"].predictions
    values = [judge.value(a.predictions, goal.objective) for a in answers.values()]
    entry: dict[str, Any] = {}
    if goal.guard:
        excess = [judge.excess(a.predictions, before, goal.guard) for a in answers.values()]
        values = [value + max(0.0, e) for value, e in zip(values, excess, strict=True)]
        if goal.guard[0] == "plain":
            noise = [judge.noise(a.predictions, before) for a in answers.values()]
            entry["excess"] = [rounded(pair) for pair in zip(excess, noise, strict=True)]
    delivered = judge.value(before, goal.objective) - judge.value(after, goal.objective)
    claimed = rounded(answers["default"].claimed)
    return {"test": rounded(values), **entry, "claimed": claimed, "delivered": rounded([delivered])[0]}


def rounded(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else round(float(value), DIGITS) for value in values]


# -- all runs ---------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What a row is of. size: validation samples per class, 0 for all."""

    name: str
    model: str
    shares: Shares
    size: int
    seed: int


def sizes_of(scores: ScoreSet, shares: Shares, wanted: Sequence[int]) -> list[int]:
    """Those that the pool can give in these shares; all, where that is more than the largest of them."""
    most = scores.available(shares) / len(scores.train_counts)
    sizes = sorted(size for size in wanted if 0 < size <= most)
    if 0 in wanted and (not sizes or drawn(scores, shares, 0) > drawn(scores, shares, sizes[-1])):
        sizes.append(0)
    return sizes


def drawn(scores: ScoreSet, shares: Shares, size: int) -> int:
    return len(draw(scores, shares, size or None).val_y)


def runs(half: str, sizes: Sequence[int], seeds: int, only: Sequence[str] = ()) -> Iterator[Run]:
    for seed in range(seeds):
        for name, models in HALVES[half].items():
            for model in models if not only or name in only else ():
                scores = score_set(name, model, seed)
                for shares in SHARES:
                    for size in sizes_of(scores, shares, sizes):
                        yield Run(name, model, shares, size, seed)


def row(run: Run) -> dict[str, Any]:
    """One row, all objectives inside."""
    scores = score_set(run.name, run.model, run.seed)
    split = draw(scores, run.shares, run.size or None, run.seed)
    n, most = len(split.val_y), scores.available(run.shares) / split.n_classes
    with np.errstate(all="ignore"):
        found = {name: judged(split, scores.test_weight, name) for name in OBJECTIVES}
    pool = {"n": n, "most": round(float(most), 2), "all": n == drawn(scores, run.shares, 0)}
    return {"algorithm": ALGORITHM, **run._asdict(), **pool, "objectives": found}


def load(path: Path = RESULTS, half: str | None = None) -> list[dict[str, Any]]:
    """Rows of this algorithm; a line that was cut short is left out."""
    rows = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue
        if found.get("algorithm") == ALGORITHM and (half is None or found["name"] in HALVES[half]):
            rows[run_of(found)] = found
    return [rows[key] for key in sorted(rows)]


def run_of(found: Mapping[str, Any]) -> Run:
    return Run(*(found[field] for field in Run._fields))


def run_all(wanted: Iterable[Run], jobs: int, path: Path = RESULTS, say: Callable[[str], None] = print) -> None:
    """Add the rows that are not there yet. Rows of other algorithms, and lines cut short, are dropped first."""
    known = load(path)
    write_atomically(path, "".join(map(line, known)).encode())
    done = set(map(run_of, known))
    todo = [run for run in wanted if run not in done]
    start = said = time.monotonic()
    with path.open("a", encoding="utf-8") as stream, parallel_config("loky", inner_max_num_threads=1):
        # inner_max_num_threads sets OMP_NUM_THREADS, NUMBA_NUM_THREADS and their like in the workers
        rows = Parallel(n_jobs=jobs, return_as="generator_unordered")(delayed(row)(run) for run in todo)
        for i, found in enumerate(rows, 1):
            stream.write(line(found))
            stream.flush()
            now = time.monotonic()
            if now - said > 20 or i == len(todo):
                left = (now - start) / i * (len(todo) - i)
                say(f"{i}/{len(todo)} rows, {left / 60:.0f} min left; {' '.join(map(str, run_of(found)))}")
                said = now


def line(found: Mapping[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":")) + "\n"

"""How fast is the exact search? Ratios of two things in one run, never seconds.

    make bench          # or: python reproduction/benchmarks/posthoc.py [--quick] [--page docs/speed.md]

Timings are the best of interleaved repetitions: on a busy machine the middle one measures the scheduler. Peers that are
not installed (requirements/peers.txt, torch) are left out with a word.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from capri import Attributes, build_dictionary, evaluate
from capri.attributes import difficulty, frequency
from capri.posthoc.adjustment import Adjustment, Direction
from capri.posthoc.line import choose, trace
from capri.posthoc.methods import Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.search import Space, exact_search

Rows = list[tuple[str, str, float, str]]


def long_tailed_scores(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of a made-up model that favours common classes and finds some classes harder than others."""
    rng = np.random.default_rng(seed)
    counts = np.floor(500 * 100 ** (-np.arange(k) / (k - 1)))
    y = rng.permutation(n) % k
    skill = 2.5 + rng.normal(size=k) * 0.7
    scores = rng.normal(size=(n, k), scale=1.2).astype(np.float32)
    scores[np.arange(n), y] += skill[y]
    scores += np.log(frequency(counts)).astype(np.float32) * 0.8
    return scores, y, counts


def interleaved(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Least seconds of each, measured in turns: what the work takes when nothing else gets in its way."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for side, function in enumerate((first, second)):
            start = time.perf_counter()
            function()
            times[side].append(time.perf_counter() - start)
    return min(times[0]), min(times[1])


def line_of(problem: Problem, g: np.ndarray) -> Callable[[], object]:
    """One exact line along offsets g."""
    direction = Direction(np.zeros(len(g)), g)
    return lambda: choose(trace(problem, problem.neutral, direction))


def argmax_of(scores: np.ndarray) -> Callable[[], object]:
    """One NumPy adjust-and-argmax."""
    m, l = np.ones(scores.shape[1], np.float32), np.zeros(scores.shape[1], np.float32)
    return lambda: (scores * m - l).argmax(1)


def lines(quick: bool) -> Rows:
    """One exact line against one NumPy adjust-and-argmax."""
    rows: Rows = []
    targets = {"balanced": "≤ 3", "sdev": "", "quantile:0.2": "≤ 5", "cvar:0.2": "≤ 5", "macro_f1": ""}
    for n, k, repeats in [(10_000, 100, 21)] + ([] if quick else [(50_000, 1_000, 5)]):
        scores, y, counts = long_tailed_scores(n, k)
        for objective, target in targets.items():
            line = line_of(Problem(scores, y, objective), np.log(frequency(counts)))
            line()  # compile
            exact, argmax = interleaved(line, argmax_of(scores), 3 if objective == "macro_f1" else repeats)
            name = f"exact line, {objective}, N={n:,} K={k:,}"
            rows.append((name, "one NumPy adjust + argmax", exact / argmax, target))
    return rows


def adam(problem: Problem, D: np.ndarray, steps: int) -> np.ndarray:
    """The surrogate by Adam in torch, as a user would write it."""
    import torch

    x, y = torch.tensor(problem.scores), torch.tensor(problem.y)
    basis = torch.tensor(D, dtype=torch.float32)
    weight = torch.tensor(problem.steps / problem.n_classes, dtype=torch.float32)
    w = torch.zeros(D.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([w], lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        p = torch.softmax(x - basis @ w, dim=1).gather(1, y[:, None])[:, 0]
        ((1 - p) * weight).sum().backward()
        optimiser.step()
    return D @ w.detach().numpy().astype(np.float64)


def xcolumns_fw(scores: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """xcolumns' Frank-Wolfe for macro recall, its randomised classifier's prediction."""
    from xcolumns.frank_wolfe import find_classifier_using_fw
    from xcolumns.metrics import macro_recall_on_conf_matrix

    one_hot = np.eye(scores.shape[1])[y]
    found = find_classifier_using_fw(one_hot, softmax(scores), macro_recall_on_conf_matrix, k=1, max_iters=20, seed=0)
    return lambda new: found.predict(softmax(new), seed=0).argmax(1)


def cutoffs(scores: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """optimal-classification-cutoffs' coordinate ascent (macro-F1 is what it offers)."""
    from optimal_cutoffs.optimize import find_optimal_threshold_multiclass

    found = find_optimal_threshold_multiclass(y, softmax(scores), metric="f1", average="macro", method="coord_ascent")
    return lambda new: (softmax(new) - np.asarray(found.thresholds)).argmax(1)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Arena:
    """Scores to tune on and as many to judge on, for one objective; every contestant returns its held-out error."""

    def __init__(self, n: int, k: int, objective: str) -> None:
        scores, y, counts = long_tailed_scores(2 * n, k)
        self.problem, self.held = Problem(scores[:n], y[:n], objective), Problem(scores[n:], y[n:], objective)
        self.known = {"freq": frequency(counts)}
        diff = difficulty(self.problem.errors(self.problem.neutral), self.problem.totals)
        self.D = build_dictionary(Attributes.of(**self.known, diff=diff)).values
        self.objective, self.n_classes = objective, k

    def capri(self, pooling: str | None) -> float:
        return self.held.worth(tune(Task(self.problem, self.known, pooling=pooling)).adjustment).value

    def adam(self, steps: int = 400) -> float:
        return self.held.worth(Adjustment.offsets(adam(self.problem, self.D, steps))).value

    def powell(self) -> float:
        def error(w: np.ndarray, on: Problem = self.problem) -> float:
            return on.worth(Adjustment.offsets(self.D @ w)).value

        return error(minimize(error, np.zeros(self.D.shape[1]), method="Powell").x, self.held)

    def rule(self, fit: Callable[..., Callable[[np.ndarray], np.ndarray]]) -> float:
        predictions = fit(self.problem.scores, self.problem.y)(self.held.scores)
        return evaluate(self.held.y, predictions, self.n_classes, [self.objective])[self.objective]


def fits(quick: bool) -> Rows:
    """A whole fit against other ways to tune, on the same scores, with held-out errors beside the ratios."""
    n, k = (4_000, 50) if quick else (10_000, 100)
    balanced, macro_f1 = Arena(n, k, "balanced"), Arena(n, k, "macro_f1")
    balanced.capri(None), macro_f1.capri(None)  # compile
    contests = [
        ("Adam on the surrogate, 400 steps (torch)", balanced.adam, "CAP", lambda: balanced.capri(None), "≥ 10"),
        (
            "Adam on the surrogate, 400 steps (torch)",
            balanced.adam,
            "pooled, λ by CV",
            lambda: balanced.capri("auto"),
            "≥ 0.2",
        ),
        ("Powell on the objective (scipy)", balanced.powell, "CAP", lambda: balanced.capri(None), ""),
        ("xcolumns, Frank-Wolfe", lambda: balanced.rule(xcolumns_fw), "CAP", lambda: balanced.capri(None), ""),
        (
            "optimal-classification-cutoffs, macro-F1",
            lambda: macro_f1.rule(cutoffs),
            "CAP",
            lambda: macro_f1.capri(None),
            "",
        ),
    ]
    rows: Rows = []
    for peer, theirs, name, ours, target in contests:
        try:
            (their_value, their_time), (our_value, our_time) = timed(theirs), timed(ours)
        except ImportError as error:
            print(f"left out: {peer} ({error})", file=sys.stderr)
            continue
        note = f"held-out {100 * our_value:.2f} % ({name}) and {100 * their_value:.2f} %"
        rows.append((f"{peer} / {name} fit, N={n:,} K={k}", note, their_time / our_time, target))
    return rows


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Value, and seconds it took."""
    start = time.perf_counter()
    value = function()
    return value, time.perf_counter() - start


def growth(quick: bool) -> Rows:
    """Time per score as N and K grow: 1 means exactly linear."""
    rows: Rows = []
    base = 0.0
    for n, k in [(5_000, 100), (50_000, 100), (5_000, 1_000)] + ([] if quick else [(200_000, 1_000)]):
        scores, y, counts = long_tailed_scores(n, k)
        repeats = min(20, int(2e9 / (n * k)))
        seconds, _ = interleaved(line_of(Problem(scores, y), np.log(frequency(counts))), lambda: None, repeats)
        cost = seconds / (n * k)
        base = base or cost
        note = f"{n * k * repeats:.1e} scores in all; N=5,000 K=100 is 1"
        rows.append((f"time per score of a line, N={n:,} K={k:,}", note, cost / base, ""))
    return rows + growth_in_directions()


def growth_in_directions(n: int = 5_000, k: int = 100) -> Rows:
    """Time of a search per direction of W as their number M grows."""
    scores, y, _ = long_tailed_scores(n, k)
    problem, rng = Problem(scores, y), np.random.default_rng(0)
    rows: Rows = []
    base = 0.0
    for m in (4, 16, 64):
        space = Space.of(rng.normal(size=(k, m)))
        found, seconds = timed(lambda space=space: exact_search(problem, space, max_rounds=1))
        base = base or seconds / m
        rows.append(
            (f"time per direction of one round, M={m}", f"{found.lines} lines; M=4 is 1", seconds / m / base, "")
        )
    return rows


def memory() -> Rows:
    """Peak of what a line allocates beyond its input, as a share of the input."""
    rows: Rows = []
    for n, k in [(20_000, 100), (20_000, 1_000)]:
        scores, y, counts = long_tailed_scores(n, k)
        line = line_of(Problem(scores, y), np.log(frequency(counts)))
        line()
        tracemalloc.start()
        line()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        note = f"input of {scores.nbytes / 1e6:.0f} MB is 1"
        rows.append((f"peak memory of a line, N={n:,} K={k:,}", note, peak / scores.nbytes, "< 1"))
    return rows


SMALL_FIT = """
import numpy as np, capri
rng = np.random.default_rng(0)
y = rng.integers(0, 5, 500)
scores = rng.normal(size=(500, 5)) + np.eye(5)[y]
capri.LogitAdjuster("cvar:0.4").fit(scores, y, class_counts=[9, 7, 5, 3, 1])
"""


def start_up() -> Rows:
    """Import and a small fit in a fresh process, against importing scikit-learn's LogisticRegression."""

    def process(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    ours, theirs = process(SMALL_FIT), process("from sklearn.linear_model import LogisticRegression")
    ours()  # fills the cache of compiled kernels
    first, second = interleaved(ours, theirs, 3)
    note = f"importing scikit-learn's LogisticRegression is 1; {first:.1f} s here"
    return [("import and a small pooled fit, second run", note, first / second, "< 2 s")]


def page(rows: Rows) -> str:
    """The rows as a page of the manual."""
    lines = [
        "# Speed\n",
        "Made by `make bench` (`python reproduction/benchmarks/posthoc.py`): ratios of two things in one run on",
        "2 cores, best of interleaved repetitions (whole fits: once). In rows `a / b` a ratio above 1 says that `b` is "
        "faster.\n",
        "| what | against | ratio | to reach |",
        "| --- | --- | ---: | ---: |",
    ]
    lines += [f"| {what} | {against} | {ratio:.2f} | {target} |" for what, against, ratio, target in rows]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="also write the rows as Markdown to this file")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = lines(arguments.quick) + fits(arguments.quick) + growth(arguments.quick) + memory() + start_up()
    table = Table("what", "against", "ratio", "to reach")
    for what, against, ratio, target in rows:
        table.add_row(what, against, f"{ratio:.2f}", target)
    Console(width=150).print(table)
    if arguments.page:
        arguments.page.write_text(page(rows))


if __name__ == "__main__":
    main()

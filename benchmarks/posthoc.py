"""How fast is the exact search? Ratios of two things in one run, never seconds.

    make bench          # or: python benchmarks/posthoc.py [--json results.json] [--quick]

Timings are medians of interleaved repetitions, so that a busy machine slows both sides of a ratio alike. Peers that are
not installed (requirements/peers.txt, torch) are left out with a word.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from capri import Attributes, build_dictionary
from capri.attributes import difficulty, frequency
from capri.posthoc.line import choose, trace
from capri.posthoc.methods import Task, tune
from capri.posthoc.problem import Problem

Rows = list[tuple[str, str, float, str]]


def long_tailed_scores(n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of a made-up model that favours common classes and finds some classes harder than others."""
    rng = np.random.default_rng(seed)
    counts = np.floor(500 * 100 ** (-np.arange(k) / (k - 1)))
    y = rng.integers(0, k, n)
    skill = 2.5 + rng.normal(size=k) * 0.7
    scores = rng.normal(size=(n, k), scale=1.2).astype(np.float32)
    scores[np.arange(n), y] += skill[y]
    scores += np.log(frequency(counts)).astype(np.float32) * 0.8
    return scores, y, counts


def interleaved(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of each, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for side, function in enumerate((first, second)):
            start = time.perf_counter()
            function()
            times[side].append(time.perf_counter() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def lines(quick: bool) -> Rows:
    """One exact line against one NumPy adjust-and-argmax."""
    rows: Rows = []
    for n, k, repeats in [(10_000, 100, 21)] + ([] if quick else [(50_000, 1_000, 5)]):
        scores, y, counts = long_tailed_scores(n, k)
        g = np.log(frequency(counts))
        m, l, zero = np.ones(k), np.zeros(k), np.zeros(k)
        m32, l32 = m.astype(np.float32), l.astype(np.float32)
        for objective in ("balanced", "sdev", "quantile:0.2", "cvar:0.2", "macro_f1"):
            problem = Problem(scores, y, objective)

            def line(problem: Problem = problem) -> object:
                return choose(trace(problem, m, l, zero, g))

            line()  # compile
            exact, argmax = interleaved(
                line, lambda: (scores * m32 - l32).argmax(1), repeats if objective != "macro_f1" else 3
            )
            target = {"balanced": "≤ 3", "quantile:0.2": "≤ 5", "cvar:0.2": "≤ 5"}.get(objective, "")
            rows.append(
                (f"exact line, {objective}, N={n:,} K={k:,}", "one NumPy adjust + argmax", exact / argmax, target)
            )
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

    proba = softmax(scores)
    found = find_classifier_using_fw(
        np.eye(scores.shape[1])[y], proba, macro_recall_on_conf_matrix, k=1, max_iters=20, seed=0
    )
    return lambda new: found.predict(softmax(new), seed=0).argmax(1)


def cutoffs(scores: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """optimal-classification-cutoffs' coordinate ascent (macro-F1 is what it offers)."""
    from optimal_cutoffs.optimize import find_optimal_threshold_multiclass

    found = find_optimal_threshold_multiclass(y, softmax(scores), metric="f1", average="macro", method="coord_ascent")
    return lambda new: (softmax(new) - np.asarray(found.thresholds)).argmax(1)


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def fits(quick: bool) -> Rows:
    """A whole fit against other ways to tune, on the same scores, with held-out errors beside the ratios."""
    n, k = (4_000, 50) if quick else (10_000, 100)
    scores, y, counts = long_tailed_scores(2 * n, k)
    problem, held = Problem(scores[:n], y[:n], "balanced"), Problem(scores[n:], y[n:], "balanced")
    f1, held_f1 = Problem(scores[:n], y[:n], "macro_f1"), Problem(scores[n:], y[n:], "macro_f1")
    known = {"freq": frequency(counts)}
    cap, pooled = Task(problem, known, pooling=None), Task(problem, known, pooling="auto")
    D = build_dictionary(
        Attributes.of(**known, diff=difficulty(problem.errors(*problem.neutral), problem.totals))
    ).values
    one = np.ones(k)
    tune(cap)  # compile
    tune(Task(f1, known, pooling=None))

    def exact() -> float:
        tuned, _ = tune(cap)
        return held.worth(tuned.m, tuned.l).value

    def auto() -> float:
        tuned, _ = tune(pooled)
        return held.worth(tuned.m, tuned.l).value

    def exact_f1() -> float:
        tuned, _ = tune(Task(f1, known, pooling=None))
        return held_f1.worth(tuned.m, tuned.l).value

    def powell() -> float:
        found = minimize(lambda w: problem.worth(one, D @ w).value, np.zeros(D.shape[1]), method="Powell")
        return held.worth(one, D @ found.x).value

    def by_prediction(rule: Callable[[np.ndarray], np.ndarray], metric: str) -> float:
        from capri import evaluate

        return evaluate(held.y, rule(held.scores), k, [metric])[metric]

    steps = 400
    peers: dict[str, tuple[str, Callable[[], float], Callable[[], float], str]] = {
        f"Adam, {steps} steps (torch)": (
            "CAP fit",
            exact,
            lambda: held.worth(one, adam(problem, D, steps)).value,
            "≥ 10",
        ),
        f"Adam, {steps} steps (torch) ": (
            "pooled fit (λ by CV)",
            auto,
            lambda: held.worth(one, adam(problem, D, steps)).value,
            "≥ 0.2",
        ),
        "Powell (scipy)": ("CAP fit", exact, powell, ""),
        "xcolumns, Frank-Wolfe": (
            "CAP fit",
            exact,
            lambda: by_prediction(xcolumns_fw(problem.scores, problem.y), "balanced"),
            "",
        ),
        "optimal-classification-cutoffs": (
            "CAP fit, macro-F1",
            exact_f1,
            lambda: by_prediction(cutoffs(problem.scores, problem.y), "macro_f1"),
            "",
        ),
    }
    rows: Rows = []
    for peer, (ours_name, ours, theirs, target) in peers.items():
        try:
            start = time.perf_counter()
            ours_value = ours()
            middle = time.perf_counter()
            theirs_value = theirs()
            end = time.perf_counter()
        except ImportError as error:
            print(f"left out: {peer.strip()} ({error})", file=sys.stderr)
            continue
        ratio = (end - middle) / (middle - start)
        note = f"held-out {100 * ours_value:.2f} % against {100 * theirs_value:.2f} %"
        rows.append((f"{peer.strip()} / {ours_name} at N={n:,} K={k}", note, ratio, target))
    return rows


def growth(quick: bool) -> Rows:
    """Time per score as N, K and M grow: 1 means exactly linear."""
    sizes = [(5_000, 100), (50_000, 100), (5_000, 1_000)] + ([] if quick else [(200_000, 1_000)])
    base, rows = None, []
    for n, k in sizes:
        scores, y, counts = long_tailed_scores(n, k)
        problem, g = Problem(scores, y, "balanced"), np.log(frequency(counts))
        m, l, zero = np.ones(k), np.zeros(k), np.zeros(k)
        repeats = max(3, min(20, int(2e8 / (n * k))))
        per, _ = interleaved(lambda p=problem: choose(trace(p, m, l, zero, g)), lambda: None, repeats)
        cost = per / (n * k)
        base = base or cost
        rows.append(
            (
                f"time per score, N={n:,} K={k:,}",
                f"{n * k * repeats:.1e} scores in all; at N=5,000 K=100: 1",
                cost / base,
                "",
            )
        )
    return rows


def memory() -> Rows:
    """Peak of what a line allocates beyond its input, as a share of the input."""
    rows = []
    for n, k in [(20_000, 100), (20_000, 1_000)]:
        scores, y, counts = long_tailed_scores(n, k)
        problem, g = Problem(scores, y, "balanced"), np.log(frequency(counts))
        m, l, zero = np.ones(k), np.zeros(k), np.zeros(k)
        choose(trace(problem, m, l, zero, g))
        tracemalloc.start()
        choose(trace(problem, m, l, zero, g))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            (
                f"peak memory of a line, N={n:,} K={k:,}",
                f"input {scores.nbytes / 1e6:.0f} MB = 1",
                peak / scores.nbytes,
                "< 1",
            )
        )
    return rows


def start_up() -> Rows:
    """Import and a small fit in a fresh process, against importing scikit-learn's LogisticRegression."""
    ours = "import numpy as np, capri; r = np.random.default_rng(0); y = r.integers(0, 5, 500); s = r.normal(size=(500, 5)) + np.eye(5)[y]; capri.LogitAdjuster('cvar:0.4').fit(s, y, class_counts=[9, 7, 5, 3, 1])"
    theirs = "from sklearn.linear_model import LogisticRegression"

    def call(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    call(ours)()
    first, second = interleaved(call(ours), call(theirs), 3)
    return [
        (
            "import and a small pooled fit, cached",
            f"import of scikit-learn's LogisticRegression = 1 ({first:.1f} s here)",
            first / second,
            "< 2 s",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = lines(arguments.quick) + fits(arguments.quick) + growth(arguments.quick) + memory() + start_up()
    table = Table("what", "against", "ratio", "to reach")
    for what, against, ratio, target in rows:
        table.add_row(what, against, f"{ratio:.2f}", target)
    Console(width=150).print(table)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        keys = ("what", "against", "ratio", "target")
        arguments.json.write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()

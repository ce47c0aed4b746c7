"""How long does tuning take, and how much memory, as scores grow? In passes of NumPy over the same scores.

    python reproduction/benchmarks/scale.py [--quick] [--pairs 5] [--page docs/speed.md]

A pass is `(scores * m - l).argmax(1)`, what applying a policy takes at the least. Both sides of a ratio run in turns,
in one thread, and are told by the processor's clock: what else runs on the machine counts for neither. The scores are
those of `reallike`. A fit is the default one, with training counts, folds and bootstrap.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import reallike
from rich.console import Console
from rich.table import Table

import posthoc
from capri import LogitAdjuster
from capri.attributes import frequency
from capri.posthoc import limit_threads, matrices
from capri.posthoc.problem import Problem

IMAGENET, INATURALIST, SMALL = (50_000, 1_000), (24_426, 8_142), (5_000, 100)
LINES = {(10_000, 100): "≤ 2", IMAGENET: "≤ 1.5", INATURALIST: "≤ 1.5"}
FITS = {
    ("balanced", IMAGENET): "≤ 60",
    ("cvar:0.2", IMAGENET): "≤ 80",
    ("macro_f1", IMAGENET): "≤ 200",
    ("balanced", INATURALIST): "≤ 60",
    ("balanced", SMALL): "",
}
START = "<!-- scale -->"


def ratio(first: Callable[[], object], second: Callable[[], object], pairs: int) -> float:
    """Median ratio of processor times of two functions that run in turns.

    The second is the yardstick, and taken at its best: its first call after something else waits for the system to
    find memory, many times longer than it computes, which would flatter whatever is measured by it.
    """
    ratios = []
    for _ in range(pairs):
        times = [timed(first), min(timed(second) for _ in range(4))]
        ratios.append(times[0] / times[1])
    return float(np.median(ratios))


def timed(function: Callable[[], object]) -> float:
    """Processor time of a call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def fit(made: reallike.ScoreSet, objective: str) -> LogitAdjuster:
    """The default fit."""
    return LogitAdjuster(objective).fit(made.scores, made.y, class_counts=made.counts)


def compile_for(objective: str) -> None:
    """Compile what a large fit needs, on a small one."""
    small, large = reallike.made(300, 5), matrices.LARGE
    matrices.LARGE = 1
    fit(small, objective)
    matrices.LARGE = large
    fit(small, objective)


def lines(sizes: dict[tuple[int, int], str], pairs: int) -> posthoc.Rows:
    """An exact line over all t."""
    rows: posthoc.Rows = []
    for (n, k), target in sizes.items():
        made = reallike.made(n, k)
        line = posthoc.line_of(Problem(made.scores, made.y), np.log(frequency(made.counts)))
        line()  # compile
        posthoc.argmax_of(made.scores)()
        found = ratio(line, posthoc.argmax_of(made.scores), max(pairs, 5))
        rows.append((f"exact line, balanced, N={n:,} K={k:,}", "a NumPy pass", found, target))
    return rows


def fits(tasks: dict[tuple[str, tuple[int, int]], str], pairs: int) -> posthoc.Rows:
    """Default fits; in the note, what screening left of the scores."""
    rows: posthoc.Rows = []
    for (objective, (n, k)), target in tasks.items():
        compile_for(objective)
        made = reallike.made(n, k)
        posthoc.argmax_of(made.scores)()
        passes = ratio(partial(fit, made, objective), posthoc.argmax_of(made.scores), pairs)
        left = fit(made, objective).policy_.data.get("screened", {}).get("left")
        note = "a NumPy pass" + ("" if left is None else f"; searched on {left:.1%} of the scores")
        rows.append((f"default fit, {objective}, N={n:,} K={k:,}", note, passes, target))
    return rows


PEAK = """
import sys, warnings
sys.path.insert(0, {folder!r})
warnings.simplefilter("ignore")
import reallike, scale
scale.compile_for({objective!r})
made = reallike.made({n}, {k})
before = scale.resident("VmRSS")
scale.set_peak_back()
scale.fit(made, {objective!r})
print((scale.resident("VmHWM") - before) / made.scores.nbytes)
"""


def resident(name: str) -> int:
    """Bytes of memory that this process holds (VmRSS), or held at most (VmHWM). Linux only."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def set_peak_back() -> None:
    """From now on VmHWM is of what follows."""
    Path("/proc/self/clear_refs").write_text("5")


def memory(size: tuple[int, int]) -> posthoc.Rows:
    """Peak of the resident memory of a fit beyond what is there before it."""
    (n, k), folder = size, str(Path(__file__).parent)
    rows: posthoc.Rows = []
    for objective in ("balanced", "cvar:0.2"):
        code = PEAK.format(folder=folder, objective=objective, n=n, k=k)
        peak = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
        rows.append((f"peak memory of a default fit, {objective}, N={n:,} K={k:,}", "the scores", peak, "≤ 0.5"))
    return rows


def growth(sizes: list[tuple[int, int]], pairs: int, picture: Path | None) -> posthoc.Rows:
    """Slope of a fit's time against N·K in log-log; drawn where a page wants it."""
    compile_for("balanced")
    seconds = []
    for n, k in sizes:
        made = reallike.made(n, k)
        times = []
        for _ in range(pairs):
            start = time.process_time()
            fit(made, "balanced")
            times.append(time.process_time() - start)
        seconds.append(np.median(times))
    slope, height = np.polyfit(np.log([n * k for n, k in sizes]), np.log(seconds), 1)
    if picture is not None:
        draw_growth(sizes, seconds, float(slope), float(height), picture)
    shown = ", ".join(f"{n:,}×{k:,}" for n, k in sizes)
    return [("time of a fit against N·K, slope in log-log", shown, float(slope), "≤ 1.05")]


def draw_growth(sizes: list[tuple[int, int]], seconds: list[float], slope: float, height: float, picture: Path) -> None:
    """Processor time of a default fit against the number of scores."""
    from matplotlib.figure import Figure

    from capri.report.style import look

    with look():
        figure = Figure(figsize=(6, 3.6), layout="constrained")
        ax = figure.subplots()
        cells = np.array([n * k for n, k in sizes], float)
        ends = np.array([cells.min() / 1.3, cells.max() * 1.3])
        ax.plot(ends, np.exp(height) * ends**slope, color="0.6", label=f"N·K to the power of {slope:.2f}")
        ax.plot(cells, seconds, "o", label="default fit, balanced")
        for (n, k), x, y in zip(sizes, cells, seconds, strict=True):
            ax.annotate(f"{n:,} × {k:,}", (x, y), (6, -11), textcoords="offset points", fontsize=8)
        ax.set(xscale="log", yscale="log", xlabel="scores, N·K", ylabel="processor seconds, one thread")
        ax.legend(loc="upper left")
        figure.savefig(picture, metadata={"Date": None})


def two_workers(rows: int, k: int, pairs: int) -> posthoc.Rows:
    """A verifying pass over a Dask array, by one process and by two."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster

    from capri.blocks import as_source
    from capri.blocks.tallies import confusions, unadjusted

    def part(block_info: dict) -> np.ndarray:
        start = block_info[None]["array-location"][0][0]
        return np.random.default_rng(start).normal(size=(rows // 16, k)).astype(np.float32)

    times: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(pairs):
        for workers, found in times.items():
            with (
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
                Client(cluster),
            ):
                scores = da.map_blocks(part, chunks=((rows // 16,) * 16, (k,)), dtype=np.float32, meta=np.zeros((0, 0)))
                source = as_source(scores, np.arange(rows) % k)
                confusions(source, [unadjusted], {j: j for j in range(k)})  # workers start, and import
                start = time.perf_counter()
                confusions(source, [unadjusted], {j: j for j in range(k)})
                found.append(time.perf_counter() - start)
    ratio = float(np.median(np.array(times[1]) / np.array(times[2])))
    what = f"one Dask process, a pass over N={rows:,} K={k:,} that are made on the way"
    return [(what, "two, by the clock on the wall", ratio, "≥ 1.6")]


def spin() -> None:
    """Keeps a core busy."""
    while True:
        pass


def beside_others(size: tuple[int, int], pairs: int) -> posthoc.Rows:
    """A line in two threads, against one, by the clock on the wall: alone, and with a busy process for each core."""
    made, rows = reallike.made(*size), []
    line = posthoc.line_of(Problem(made.scores, made.y), np.log(frequency(made.counts)))
    line()
    for name, number in (
        ("as the machine is", 0),
        ("beside a process that spins on every core", joblib.cpu_count()),
    ):
        others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(number)]
        for other in others:
            other.start()
        ratios = []
        for _ in range(max(pairs, 15)):
            start = time.perf_counter()
            with limit_threads(2):
                line()
            middle = time.perf_counter()
            with limit_threads(1):
                line()
            ratios.append((middle - start) / (time.perf_counter() - middle))
        for other in others:
            other.terminate()
        n, k = size
        what = f"exact line in two threads, N={n:,} K={k:,}"
        rows.append((what, f"in one, {name}", float(np.median(ratios)), "≤ 1.1" if number else ""))
    return rows


def section(rows: posthoc.Rows, pairs: int) -> str:
    """The rows for the page."""
    top = [
        START,
        "",
        "## As scores grow",
        "",
        "Made by `python reproduction/benchmarks/scale.py`: times as multiples of one NumPy pass",
        f"`(scores * m - l).argmax(1)` over the same scores, medians of {pairs} interleaved pairs by the processor's",
        "clock, in one thread; the pass is the best of four in a row. The scores are made up",
        "(`reproduction/benchmarks/reallike.py`), with",
        "margins and confusions of a network of 76 % top-1 accuracy at K = 1,000. A fit is the default one, with folds",
        "and bootstrap.",
        "",
        "| what | against | ratio | to reach |",
        "| --- | --- | ---: | ---: |",
    ]
    missed = [
        f"- {a} / {b.split(';')[0]}: {r:.2f}, where {t} is to be reached" for a, b, r, t in rows if not holds(r, t)
    ]
    said = ["", "Lines that do not hold:" if missed else "All lines hold.", "", *missed]
    shown = ["", "![Time of a fit against the number of scores](figures/growth.svg)"]
    return "\n".join([*top, *(f"| {a} | {b} | {r:.2f} | {t} |" for a, b, r, t in rows), *said, *shown]) + "\n"


def holds(figure: float, target: str) -> bool:
    """Is what was to be reached reached?"""
    if not target:
        return True
    relation, limit = target.split()
    return figure <= float(limit) if relation == "≤" else figure >= float(limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved repetitions")
    parser.add_argument("--page", type=Path, help="write the section of this page of the manual, too")
    parser.add_argument("--only", choices=["lines", "fits", "memory", "growth", "threads", "workers"], nargs="+")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    quick, pairs = arguments.quick, arguments.pairs
    four = [(2_500, 200), (10_000, 200), (10_000, 800), *([] if quick else [(40_000, 800)])]
    parts: dict[str, Callable[[], posthoc.Rows]] = {
        "lines": lambda: lines({(10_000, 100): "≤ 2"} if quick else LINES, pairs),
        "fits": lambda: fits({("balanced", SMALL): ""} if quick else FITS, pairs),
        "memory": lambda: memory((5_000, 1_000) if quick else IMAGENET),
        "growth": lambda: growth(four, min(pairs, 3), arguments.page and arguments.page.parent / "figures/growth.svg"),
        "workers": lambda: two_workers(64_000 if quick else 1_600_000, 200, 1 if quick else 3),
        "threads": lambda: beside_others((10_000, 100), pairs) + beside_others((10_000, 1_000), pairs),
    }
    rows: posthoc.Rows = []
    for name, part in parts.items():
        if not arguments.only or name in arguments.only:
            if name in ("threads", "workers"):
                rows += part()
            else:
                with limit_threads(1):
                    rows += part()
    table = Table("what", "against", "ratio", "to reach")
    for what, against, figure, target in rows:
        table.add_row(what, against, f"{figure:.2f}", target)
    Console(width=150).print(table)
    if arguments.page:
        page = arguments.page.read_text().split(START)[0].rstrip()
        arguments.page.write_text(page + "\n\n" + section(rows, pairs))


if __name__ == "__main__":
    main()

"""Is the default good on data that it has not seen? Methods × score sets × validation sizes × objectives.

    python reproduction/benchmarks/outofsample.py run --half develop --seeds 10 --jobs 2   # resumes where it stopped
    python reproduction/benchmarks/outofsample.py show --half develop                      # the tables
    python reproduction/benchmarks/outofsample.py page                                     # docs/outofsample.md, figure
    python reproduction/benchmarks/outofsample.py cost --before ../other/src               # fit time against a checkout

What is compared, and the format of results, is in `outofsample_runs`. A cell is a set, a model, shares, a size and an
objective; methods are paired over its seeds. Choose on `develop` alone; `report` is looked at once, at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from outofsample_runs import HALVES, METHODS, OBJECTIVES, RESULTS, SHARES, SIZES, line, load, run_all, runs

from capri.report.style import BLUE, GREEN, GREY, INK, ORANGE, style
from capri.study import Spread

ROOT = Path(__file__).resolve().parents[2]
PAGE, FIGURE = ROOT / "docs" / "outofsample.md", ROOT / "docs" / "figures" / "outofsample.svg"
NAMES = {"unadjusted": "unadjusted", "la1": "τ = 1", "la": "LA tuned", "plain": "plain", "default": "default"}
RIVALS = [method for method in METHODS if method != "default"]
FEWEST = 3  # seeds of a cell that is counted: of fewer, a standard error says nothing
ROUNDING = 1e-5  # of stored figures

Row = Mapping[str, Any]
Table = list[list[str]]


class Place(NamedTuple):
    """What a cell is of."""

    name: str
    model: str
    shares: str
    size: int
    objective: str


Cells = dict[Place, np.ndarray]

# -- arithmetic -------------------------------------------------------------------------------------------------------


def cells(rows: Iterable[Row]) -> Cells:
    """Test values (n_seeds, n_methods) by cell."""
    found = defaultdict(list)
    for row in rows:
        for objective, entry in row["objectives"].items():
            found[Place(row["name"], row["model"], row["shares"], row["size"], objective)].append(entry["test"])
    return {place: np.array(values) for place, values in found.items()}


def filled(rows: Iterable[Row]) -> Iterator[Row]:
    """At sizes that a pool cannot give, the row of all that it has: means at all sizes are then of the same sets."""
    for row in rows:
        yield row
        for size in SIZES if row["all"] else ():
            if size != row["size"] and (size == 0 or size > row["most"]):
                yield {**row, "size": size}


def mean(found: Cells) -> np.ndarray:
    """(n_methods,): the mean over cells of their means over seeds."""
    return np.mean([values.mean(axis=0) for values in found.values()], axis=0)


def chosen(found: Cells, **wanted: Any) -> Cells:
    """The cells whose fields are as wanted."""
    return {p: v for p, v in found.items() if all(getattr(p, field) == value for field, value in wanted.items())}


class Count(NamedTuple):
    """Of n cells, in how many one method is worse than another, and better, by more than two standard errors."""

    worse: int
    better: int
    n: int


def count(found: Cells, method: str, other: str) -> Count:
    first, second = (list(METHODS).index(m) for m in (method, other))
    spreads = [Spread.of(v[:, first] - v[:, second]).of_mean() for v in found.values() if len(v) >= FEWEST]
    worse = sum(s.mean > 2 * (s.deviation or 0) + 1e-9 for s in spreads)
    better = sum(s.mean < -2 * (s.deviation or 0) - 1e-9 for s in spreads)
    return Count(worse, better, len(spreads))


def violations(rows: Iterable[Row], method: str, shares: str) -> tuple[int, int]:
    """Runs whose plain error exceeds its limit on test by more than two standard errors, and all runs."""
    pairs = [r["objectives"]["constrained"]["excess"] for r in rows if r["shares"] == shares]
    k = list(METHODS).index(method)
    return sum(pair[k][0] > 2 * pair[k][1] + ROUNDING for pair in pairs), len(pairs)


class Coverage(NamedTuple):
    """Of n runs with an interval, how many intervals hold the improvement on test; mean claim and truth, all runs."""

    covered: int
    n: int
    claimed: float
    delivered: float


def coverage(entries: Iterable[Mapping[str, Any]]) -> Coverage:
    entries = list(entries)
    held = [
        low - ROUNDING <= entry["delivered"] <= high + ROUNDING
        for entry in entries
        for _, low, high in [entry["claimed"]]
        if low is not None and high is not None
    ]
    said = [(e["claimed"][0], e["delivered"]) for e in entries if e["claimed"][0] is not None]
    claimed, delivered = np.mean(said, axis=0) if said else (np.nan, np.nan)
    return Coverage(sum(held), len(held), float(claimed), float(delivered))


# -- tables -----------------------------------------------------------------------------------------------------------


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def points(value: float) -> str:
    """In points, with a sign; no negative zero."""
    return f"{round(100 * value, 2) + 0.0:+.2f}"


def size_name(size: int) -> str:
    return str(size) if size else "all"


def means_table(rows: Sequence[Row]) -> Table:
    """Mean test error in %, the best in bold."""
    found = cells(filled(rows))
    table = [["objective", "validation", "per class", *NAMES.values()]]
    for objective in OBJECTIVES:
        for shares in SHARES:
            for size in SIZES:
                here = chosen(found, objective=objective, shares=shares, size=size)
                if here:
                    shown = [f"{100 * value:.1f}" for value in mean(here)]
                    best = min(shown, key=float)
                    bold = [f"**{value}**" if value == best else value for value in shown]
                    table.append([objective, shares, size_name(size), *bold])
    return table


def losses_table(rows: Sequence[Row]) -> Table:
    """Cells where the default is worse / better than each rival by more than two standard errors."""
    found = cells(rows)
    table = [["objective", "cells", *(f"against {NAMES[rival]}" for rival in RIVALS)]]
    for objective in ("all", *OBJECTIVES):
        here = found if objective == "all" else chosen(found, objective=objective)
        counts = [count(here, "default", rival) for rival in RIVALS]
        shown = [f"{percent(c.worse, c.n)} / {percent(c.better, c.n)}" for c in counts]
        table.append([objective, str(counts[0].n), *shown])
    return table


def differences_table(rows: Sequence[Row]) -> Table:
    """Default less rival, mean over cells in points; in bold where it is not lower."""
    found = cells(rows)
    k = list(METHODS).index("default")
    table = [["objective", "per class", *(f"default − {NAMES[rival]}" for rival in RIVALS)]]
    for objective in ("all", *OBJECTIVES):
        for size in SIZES:
            here = chosen(found, size=size, **({} if objective == "all" else {"objective": objective}))
            if here:
                differences = mean(here)[k] - np.delete(mean(here), k)
                shown = [points(d) if d < 0 else f"**{points(d)}**" for d in differences]
                table.append([objective, size_name(size), *shown])
    return table


def violations_table(rows: Sequence[Row]) -> Table:
    tuned = [method for method in METHODS if method != "unadjusted"]
    table = [["validation", "runs", *(NAMES[method] for method in tuned)]]
    for shares in SHARES:
        counts = [violations(rows, method, shares) for method in tuned]
        table.append([shares, str(counts[0][1]), *(percent(*c) for c in counts)])
    return table


def coverage_table(rows: Sequence[Row]) -> Table:
    """Overall, by objective, by size."""
    groups = {"all": [e for r in rows for e in r["objectives"].values()]}
    groups |= {objective: [r["objectives"][objective] for r in rows] for objective in OBJECTIVES}
    for size in SIZES:
        here = [e for r in rows if r["size"] == size for e in r["objectives"].values()]
        groups |= {f"{size_name(size)} per class" if size else "all there are": here} if here else {}
    table = [["runs", "with an interval", "coverage", "claimed, points", "delivered, points"]]
    for name, entries in groups.items():
        c = coverage(entries)
        table.append([name, str(c.n), percent(c.covered, c.n), points(c.claimed), points(c.delivered)])
    return table


def gains_table(rows: Sequence[Row]) -> Table:
    """Unadjusted less method, mean over cells of all objectives, in points."""
    found = cells(filled(rows))
    table = [["validation", "per class", *(name for method, name in NAMES.items() if method != "unadjusted")]]
    for shares in SHARES:
        for size in SIZES:
            here = chosen(found, shares=shares, size=size)
            if here:
                values = mean(here)
                table.append([shares, size_name(size), *map(points, values[0] - values[1:])])
    return table


BANDS = {"few: 2 to 10 per class": (2, 5, 10), "some: 20 to 50 per class": (20, 50), "plenty: more": (0,)}
KINDS = {
    "class errors": tuple(o for o in OBJECTIVES if o not in ("macro_f1", "constrained")),
    "macro-F1": ("macro_f1",),
    "limited plain error": ("constrained",),
}


def decision_table(rows: Sequence[Row]) -> Table:
    """For each kind of objective: gain over unadjusted, in how many cells that is a loss, and the best method."""
    table = [["validation set", "use", *KINDS]]
    found = cells(rows)
    nothing = "`LogitAdjuster.from_counts(counts)` (τ = 1), or `CAPClassifierCV`"
    bands = {"none": (SIZES, "la1", nothing)}
    bands |= {name: (sizes, "default", "`LogitAdjuster()`, the default") for name, sizes in BANDS.items()}
    for name, (sizes, method, use) in bands.items():
        row = [name, use]
        for objectives in KINDS.values():
            here = {p: v for p, v in found.items() if p.size in sizes and p.objective in objectives}
            row.append(_expectation(here, method) if here else "–")
        table.append(row)
    return table


def _expectation(here: Cells, method: str) -> str:
    values, lost = mean(here), count(here, method, "unadjusted")
    gain = points(values[0] - values[list(METHODS).index(method)])
    best = NAMES[list(METHODS)[int(values.argmin())]]
    said = f"{gain}; hurts in {percent(lost.worse, lost.n)}"
    return said if method == "la1" else f"{said}; best mean: {best}"


# -- the text around them ---------------------------------------------------------------------------------------------


def formatted(table: Table, padded: bool) -> str:
    """In Markdown; columns of numbers to the right."""
    widths = [max(map(len, column)) if padded else 0 for column in zip(*table, strict=True)]
    numbers = [_is_number(table[-1][k]) for k in range(len(widths))]
    rule = [
        ("-" * max(w - 1, 3) + ":") if number else "-" * max(w, 3) for w, number in zip(widths, numbers, strict=True)
    ]
    lines = []
    for row in (table[0], rule, *table[1:]):
        cells_ = [c.rjust(w) if number else c.ljust(w) for c, w, number in zip(row, widths, numbers, strict=True)]
        lines.append("| " + " | ".join(cells_) + " |")
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return text.strip("*")[:1] in "+-–0123456789" or text == "all"


def losses_sentence(rows: Sequence[Row]) -> str:
    found = cells(rows)
    parts = [
        f"{NAMES[rival]} in {percent(c.worse, c.n)} (better in {percent(c.better, c.n)})"
        for rival in RIVALS
        for c in [count(found, "default", rival)]
    ]
    n = count(found, "default", "unadjusted").n
    return f"Of {n} cells, the default is worse beyond two standard errors than {', '.join(parts)}."


def differences_sentence(rows: Sequence[Row]) -> str:
    found, k = cells(rows), list(METHODS).index("default")
    sizes = [size for size in SIZES if chosen(found, size=size)]
    behind = [
        f"{NAMES[rival]} at {size_name(size)}"
        for size in sizes
        for values in [mean(chosen(found, size=size))]
        for j, rival in enumerate(RIVALS)
        if values[k] >= values[j]
    ]
    where = f"not better than {', '.join(behind)}" if behind else "better than every rival at every size"
    return f"Over all objectives together, the default's mean is {where}."


def macro_f1_sentence(rows: Sequence[Row]) -> str:
    c = count(chosen(cells(rows), objective="macro_f1"), "default", "unadjusted")
    return (
        f"For macro-F1, the default hurts (against unadjusted, beyond two standard errors) in {percent(c.worse, c.n)} "
        f"of {c.n} cells and helps in {percent(c.better, c.n)}."
    )


def coverage_sentence(rows: Sequence[Row]) -> str:
    by_objective = {o: coverage(r["objectives"][o] for r in rows) for o in OBJECTIVES}
    c = coverage(e for r in rows for e in r["objectives"].values())
    rates = {o: found.covered / found.n for o, found in by_objective.items() if found.n}
    if not rates:
        return "No run has an interval."
    low = min(rates, key=rates.__getitem__)
    return (
        f"The 90 % interval held the improvement on test in {percent(c.covered, c.n)} of {c.n} runs; least often for "
        f"{low} ({100 * rates[low]:.1f} %)."
    )


class Section(NamedTuple):
    """A heading, what the table shows, a sentence of its figures, the table."""

    title: str
    text: str
    sentence: Callable[[Sequence[Row]], str]
    table: Callable[[Sequence[Row]], Table]


def _nothing(rows: Sequence[Row]) -> str:
    return ""


SECTIONS = (
    Section(
        "What to use",
        "Mean gain over the unadjusted scores in points, and the share of cells in which it is a loss beyond two "
        "standard errors: for objectives on class errors, for macro-F1, and for the balanced error while the plain "
        "error may rise by 2 points at most. *Best mean* is the method with the lowest mean test error there.",
        _nothing,
        decision_table,
    ),
    Section(
        "Gain against validation samples",
        "Unadjusted less method, in points, mean over sets, models and objectives.",
        _nothing,
        gains_table,
    ),
    Section(
        "Where the default loses, and wins",
        "Share of cells where it is worse / better than the rival by more than two standard errors over seeds.",
        losses_sentence,
        losses_table,
    ),
    Section(
        "Means at each size",
        "Default less rival, in points, mean over cells; bold where the default is not better.",
        differences_sentence,
        differences_table,
    ),
    Section("Macro-F1", "", macro_f1_sentence, lambda rows: []),
    Section(
        "Limits that hold",
        "Share of runs with `plain <= baseline + 0.02` whose plain error on test exceeds the limit by more than two "
        "standard errors of the paired difference.",
        _nothing,
        violations_table,
    ),
    Section(
        "Is the printed interval true?",
        "The 90 % interval of `validation_` against the improvement on test.",
        coverage_sentence,
        coverage_table,
    ),
    Section(
        "Test errors",
        "In %, mean over sets and models, the best in bold.",
        _nothing,
        means_table,
    ),
)


def what_was_run(rows: Sequence[Row]) -> str:
    """How many sets, models and seeds; sets with fewer seeds than the others by name."""
    pairs, seeds = {(r["name"], r["model"]) for r in rows}, defaultdict(set)
    for r in rows:
        seeds[r["name"]].add(r["seed"])
    most = max(map(len, seeds.values()))
    fewer = [f"{name} {len(s)}" for name, s in sorted(seeds.items()) if len(s) < most]
    but = f" (but {', '.join(fewer)})" if fewer else ""
    return f"{len(seeds)} sets, {len(pairs)} models of them, {most} seeds{but}, {len(rows)} runs."


def shown(rows: Sequence[Row], half: str, padded: bool) -> str:
    """All sections; the page's figure after the first."""
    if not rows:
        return f"No results of this half yet: `python reproduction/benchmarks/outofsample.py run --half {half}`."
    parts = [what_was_run(rows)]
    for i, section in enumerate(SECTIONS):
        table = section.table(rows)
        texts = (section.sentence(rows), section.text, formatted(table, padded) if table else "")
        parts += [f"## {section.title}", *filter(None, texts)]
        if i == 0 and not padded:
            parts.append(f"![Test error against validation samples per class]({FIGURE.relative_to(PAGE.parent)})")
    return "\n\n".join(parts)


# -- figure and page --------------------------------------------------------------------------------------------------

LOOKS = {
    "unadjusted": (GREY, "--", ""),
    "la1": (INK, ":", ""),
    "la": (ORANGE, "-", "s"),
    "plain": (GREEN, "-", "^"),
    "default": (BLUE, "-", "o"),
}
LAST = 140  # where "all" stands on the axis


def digest(rows: Iterable[Row]) -> str:
    """Of the results that a figure shows: it carries this, to be known as out of date."""
    return hashlib.sha256("".join(map(line, rows)).encode()).hexdigest()[:16]


def draw(rows: Sequence[Row], path: Path) -> None:
    """A panel per objective: mean test error of each method over validation samples per class."""
    found = cells(filled(rows))
    sizes = [size for size in SIZES if chosen(found, size=size)]
    with style():
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(2, 4, figsize=(12, 6), layout="constrained", sharex=True)
        for axes, objective in zip(panels.flat, OBJECTIVES, strict=True):
            here = chosen(found, objective=objective)
            values = 100 * np.array([mean(chosen(here, size=size)) for size in sizes])
            for k, (method, (colour, dashes, marker)) in enumerate(LOOKS.items()):
                width, order = (2.4, 3) if method == "default" else (1.4, 2)
                look = {"color": colour, "ls": dashes, "marker": marker, "ms": 4.5, "lw": width, "zorder": order}
                axes.plot([size or LAST for size in sizes], values[:, k], label=NAMES[method], **look)
            axes.set(title=objective, xscale="log")
            axes.set_xticks([size or LAST for size in sizes], [size_name(size) for size in sizes])
            axes.minorticks_off()
        figure.supxlabel("validation samples per class", fontsize=11)
        figure.supylabel("mean test error, %", fontsize=11)
        handles, labels = panels.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"metadata": {"Date": None, "Description": digest(rows)}} if path.suffix == ".svg" else {}
        figure.savefig(path, **metadata)
        plt.close(figure)


def page(results: Path) -> None:
    """Draw the figure and have `reproduction/pages.py` write the tables between the page's markers."""
    rows = load(results, "report")
    if rows:
        draw(rows, FIGURE)
    sys.path.insert(0, str(ROOT / "reproduction"))
    import pages

    pages.write(PAGE)


# -- cost -------------------------------------------------------------------------------------------------------------

FIT = """
import sys, time, warnings
import numpy as np
from capri import LogitAdjuster, packs
warnings.simplefilter("ignore")
pack = packs.load("cifar100-lt")
val, _ = pack.halves(0)
x, y = pack.logits[val], pack.y[val]
few = np.concatenate([np.flatnonzero(y == k)[:5] for k in range(100)])
def fit(rows):
    start = time.perf_counter()
    LogitAdjuster(sys.argv[1]).fit(x[rows], y[rows], class_counts=pack.train_counts)
    return time.perf_counter() - start
fit(few)  # compiles
print(fit(np.arange(len(y))))
"""


def fit_seconds(source: Path, objective: str) -> float:
    """Of the default at N = 5,000, K = 100, by the library in this folder, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    command = [sys.executable, "-c", FIT, objective]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def cost(before: Path, objectives: Sequence[str], repeats: int) -> None:
    """Interleaved, so that a busy machine slows both."""
    table = [["objective", "before, s", "after, s", "after / before"]]
    for objective in objectives:
        pairs = [(fit_seconds(before, objective), fit_seconds(ROOT / "src", objective)) for _ in range(repeats)]
        first, second = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(after / before for before, after in pairs)
        table.append([objective, f"{first:.2f}", f"{second:.2f}", f"{ratio:.2f}"])
    print(formatted(table, padded=True))


# -- commands ---------------------------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    parts = {
        "run": "compute what is not there yet",
        "show": "print the tables",
        "figure": "draw the figure",
        "page": "write docs/outofsample.md and its figure",
        "cost": "fit time of the default against another checkout",
    }
    made = {name: commands.add_parser(name, help=text) for name, text in parts.items()}
    for name in ("run", "show", "figure", "page"):
        made[name].add_argument("--results", type=Path, default=RESULTS, help="file of results")
    for name in ("run", "show", "figure"):
        made[name].add_argument("--half", choices=list(HALVES), default="develop")
    made["run"].add_argument("--seeds", type=int, default=10)
    made["run"].add_argument("--sizes", type=int, nargs="+", default=SIZES, choices=SIZES, help="per class; 0 is all")
    made["run"].add_argument("--sets", nargs="+", default=(), help="these sets of the half alone, for trials")
    made["run"].add_argument("--jobs", type=int, default=2)
    made["show"].add_argument("--format", choices=["text", "markdown"], default="text")
    made["figure"].add_argument("--out", type=Path, required=True)
    made["cost"].add_argument("--before", type=Path, required=True, help="the other checkout's src")
    made["cost"].add_argument("--objectives", nargs="+", default=("balanced", "cvar:0.2", "macro_f1"))
    made["cost"].add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.command == "run":
        run_all(runs(given.half, given.sizes, given.seeds, given.sets), given.jobs, given.results)
    elif given.command == "show":
        print(shown(load(given.results, given.half), given.half, padded=given.format == "text"))
    elif given.command == "figure":
        draw(load(given.results, given.half), given.out)
    elif given.command == "page":
        page(given.results)
    else:
        cost(given.before, given.objectives, given.repeats)


if __name__ == "__main__":
    main()

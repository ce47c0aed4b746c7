"""Bilevel search on real sentences: what does each way of finding the loss bring after retraining?

    python benchmarks/bilevel_clinc.py run [--tables main noise warmup smoothing hessian] [--seeds 0 1 2 3 4]
    python benchmarks/bilevel_clinc.py render     # writes the tables into docs/bilevel.md, and the picture beside it

CLINC150-LT: 384-dimensional embeddings of sentences, 150 intents, 100 to 2 training sentences per class. Choices are
made on a fifth of the training set (the 80/20 protocol); then each method trains on all of it, and the official test
part, balanced, is touched once. Fills benchmarks/results/bilevel_clinc.jsonl and resumes where it stopped. Needs the
data folder named by CAPRI_SHARED (default: ../shared beside the project).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from capri import LogitAdjuster
from capri.train.config import Config, resolve
from capri.train.runner import run as train
from capri.train.search_config import SearchRun, resolve_search
from capri.train.search_runner import retrain, search

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CAPRI_SHARED", ROOT.parent / "shared")) / "data"
RESULTS = ROOT / "benchmarks" / "results" / "bilevel_clinc.jsonl"
PAGE = ROOT / "docs" / "bilevel.md"
PICTURE = ROOT / "docs" / "figures" / "bilevel_warmup.svg"

EPOCHS, WARMUPS = 20, (0, 5, 12)
TAUS, GAMMAS = (0.5, 1.0, 1.5, 2.0), (0.05, 0.1, 0.2, 0.3)
BOTH = '["freq", "diff"]'
ATTRIBUTES = {"plain": '["identity"]', "freq": '["freq"]', "diff": '["diff"]', "freq+diff": BOTH,
              "freq+diff+noise": '["freq", "diff", "noise"]'}  # fmt: skip
NAMES = {
    "ce": "cross-entropy", "la": "LA, τ tuned on validation", "cdt": "CDT, γ tuned on validation",
    "plain": "plain bilevel (AutoBalance's parameters)", "freq": "CAP bilevel: freq", "diff": "CAP bilevel: diff",
    "freq+diff": "CAP bilevel: freq + diff", "freq+diff+noise": "CAP bilevel: freq + diff + noise",
    "posthoc": "CAP post-hoc: freq + diff", "posthoc-retrain": "post-hoc → retrain (W unchanged)",
}  # fmt: skip


def base(seed: int, *changes: str) -> list[str]:
    given = {"data.root": SHARED, "data.imbalance": 50, "data.seed": seed, "seed": seed, "trainer.max_epochs": EPOCHS,
             "trainer.accelerator": "cpu"}  # fmt: skip
    return [*(f"{name}={value}" for name, value in given.items()), *changes]


def training(seed: int, out: Path, *changes: str) -> Config:
    return resolve(preset="clinc150-lt", out=str(out), assignments=base(seed, *changes))


def searching(seed: int, out: Path, *changes: str) -> SearchRun:
    return resolve_search(preset="clinc150-lt", out=str(out), assignments=base(seed, *changes))


def fixed(seed: int, folder: Path, *changes: str) -> dict:
    """One training run on all the training data."""
    return {"test": train(training(seed, folder / "final", *changes))["test"]}


def tuned(setting: str, values: tuple[float, ...], strategy: str) -> Callable[..., dict]:
    """The best of a grid on the 80/20 split, by balanced error, then trained on all."""

    def method(seed: int, folder: Path, *changes: str) -> dict:
        name = f"loss.strategy={strategy}"
        errors = [
            train(training(seed, folder / str(v), *changes, name, f"{setting}={v}", "data.val_fraction=0.2"))["val"]
            for v in values
        ]
        best = values[int(np.argmin([e["balanced"] for e in errors]))]
        return fixed(seed, folder, *changes, name, f"{setting}={best}") | {"chosen": best}

    return method


def bilevel(attributes: str) -> Callable[..., dict]:
    """Search on the 80/20 split, then retrain on all."""

    def method(seed: int, folder: Path, *changes: str) -> dict:
        config = searching(seed, folder / "search", f"search.attributes={attributes}", *changes)
        found = search(config)
        final = config.training(data=replace(config.data, val_fraction=0.0), out=str(folder / "final"))
        history = np.load(folder / "search" / "trajectory.npz")
        thin = slice(None, None, max(1, len(history["time"]) // 60))
        errors = history["class_errors"]
        return {
            "test": retrain(final, folder / "search" / "policy.json")["test"],
            "val": found["val"], "value": found["value"], "start_sdev": found["start_sdev"],
            "seconds": found["seconds"],
            "curve": {"time": history["time"][thin].round(2).tolist(),
                      "objective": history["objective"][thin].round(4).tolist(),
                      "balanced": np.nanmean(errors, axis=1).round(4).tolist()},
        }  # fmt: skip

    return method


def posthoc(retrained: bool) -> Callable[..., dict]:
    """Cross-entropy on 80 %, offsets tuned on the rest; used on a model trained on all, as they are or in its loss."""

    def method(seed: int, folder: Path, *changes: str) -> dict:
        first = folder / "eighty"
        train(training(seed, first, *changes, "data.val_fraction=0.2"))
        pack = np.load(first / "logits.npz")
        adjuster = LogitAdjuster("balanced", classes=list(pack["class_names"]), bootstrap=1)
        labels = pack["class_names"][pack["val_y"]]
        adjuster.fit(pack["val_logits"].astype(np.float32), labels, class_counts=pack["train_counts"])
        if retrained:
            adjuster.policy_.save(folder / "policy.json")
            return {"test": retrain(training(seed, folder / "final", *changes), folder / "policy.json")["test"]}
        train(training(seed, folder / "final", *changes))
        final = np.load(folder / "final" / "logits.npz")
        decided = adjuster.policy_.apply(final["test_logits"].astype(np.float32)).argmax(axis=1)
        wrong = decided != final["test_y"]
        errors = np.array([wrong[final["test_y"] == k].mean() for k in range(150)])
        return {"test": {"balanced": errors.mean(), "sdev": errors.std(), "worst": errors.max()}}

    return method


METHODS: dict[str, Callable[..., dict]] = {
    "ce": fixed, "la": tuned("loss.tau", TAUS, "la"), "cdt": tuned("loss.gamma", GAMMAS, "cdt"),
    "posthoc": posthoc(False), "posthoc-retrain": posthoc(True),
    **{name: bilevel(attributes) for name, attributes in ATTRIBUTES.items()},
}  # fmt: skip

NOISE, LA_START, GGN = ("data.noise=0.5",), ("search.tau=1.0",), "search.hessian=ggn-cg"
SMOOTH = 'search.parts=["l", "delta", "smoothing"]'
# As in the paper, offsets start at logit adjustment for the first table, and at zero for noise and warm-up.
TABLES: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "main": {m: (m, LA_START if m in ATTRIBUTES else ()) for m in NAMES if m != "freq+diff+noise"},
    "noise": {m: (m, NOISE) for m in ("ce", "la", "plain", "freq", "diff", "freq+diff", "freq+diff+noise")},
    "warmup": {
        f"{NAMES[m]}, warm-up {w} of {EPOCHS} epochs": (m, (f"search.warmup_epochs={w}",))
        for m in ("plain", "freq+diff")
        for w in WARMUPS
    },
    "smoothing": {
        "freq + diff with ε": ("freq+diff", (SMOOTH, *LA_START)),
        "freq + diff with ε, label noise": ("freq+diff", (SMOOTH, *NOISE)),
    },
    "hessian": {
        "freq + diff, ggn-cg": ("freq+diff", (GGN, *LA_START)),
        "plain, ggn-cg": ("plain", (GGN, *LA_START)),
        "freq + diff, neumann": ("freq+diff", ("search.hessian=neumann", *LA_START)),
    },
}


def cells(tables: list[str], seeds: list[int]) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for table in tables:
            for row in TABLES[table]:
                yield table, row, seed


def run_cell(table: str, row: str, seed: int) -> dict:
    method, changes = TABLES[table][row]
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            found = METHODS[method](seed, Path(folder), *changes)
        except FloatingPointError as error:
            found = {"failed": str(error)}
    return {"table": table, "row": row, "seed": seed, "cpu_seconds": round(time.process_time() - start, 1), **found}


def load() -> list[dict]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def run(tables: list[str], seeds: list[int]) -> None:
    torch.set_num_threads(1)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["table"], r["row"], r["seed"]) for r in load()}
    for cell in cells(tables, seeds):
        if cell in done:
            continue
        row = run_cell(*cell)
        with RESULTS.open("a") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        shown = row["failed"] if "failed" in row else f"balanced {100 * row['test']['balanced']:.2f} %"
        print(*cell, shown, f"{row['cpu_seconds']} s", sep="  ", flush=True)


# -- the page ---------------------------------------------------------------------------------------------------------


def statistics(rows: list[dict], name: str) -> str:
    """Mean ± standard deviation over seeds, in points."""
    values = 100 * np.array([r["test"][name] for r in rows if "test" in r])
    if not len(values):
        return "failed"
    deviation = f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else ""
    failed = sum("failed" in r for r in rows)
    return f"{values.mean():.2f}{deviation}" + (f" ({failed} of {len(rows)} diverged)" if failed else "")


def table(entries: list[tuple[str, list[dict]]], start: bool = False) -> str:
    lines = [
        "| method | seeds | balanced error | sdev of class errors |" + (" sdev at search start |" if start else "")
    ]
    lines.append("| --- | ---: | ---: | ---: |" + (" ---: |" if start else ""))
    for name, rows in entries:
        if not rows:
            continue
        line = f"| {name} | {len(rows)} | {statistics(rows, 'balanced')} | {statistics(rows, 'sdev')} |"
        if start:
            spreads = [r["start_sdev"] for r in rows if "start_sdev" in r]
            line += f" {np.mean(spreads):.3f} |" if spreads else " – |"
        lines.append(line)
    return "\n".join(lines)


def sections() -> dict[str, str]:
    groups: dict = defaultdict(list)
    for r in load():
        groups[r["table"], r["row"]].append(r)
    of = lambda t: [(NAMES.get(m, m), groups[t, m]) for m in TABLES[t]]  # noqa: E731
    cap, plain = ((NAMES[m], groups["main", m]) for m in ("freq+diff", "plain"))
    noisy = (f"{NAMES['freq+diff']}, label noise", groups["noise", "freq+diff"])
    return {
        "main": table(of("main")),
        "noise": table(of("noise")),
        "warmup": table(of("warmup"), start=True),
        "smoothing": table([cap, of("smoothing")[0], noisy, of("smoothing")[1]]),
        "hessian": table([cap, plain, *of("hessian")]),
    }


def draw() -> None:
    """Objective during the search, one line per seed: plain and CAP, by length of the warm-up."""
    import matplotlib.pyplot as plt

    from capri.report.style import BLUE, ORANGE, style

    groups: dict = defaultdict(list)
    for r in load():
        if "curve" in r:
            groups[r["table"], r["row"]].append(r["curve"])
    with style():
        figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), sharey=True, layout="constrained")
        for ax, w in zip(axes, WARMUPS, strict=True):
            for method, colour in (("plain", ORANGE), ("freq+diff", BLUE)):
                curves = groups["warmup", f"{NAMES[method]}, warm-up {w} of {EPOCHS} epochs"]
                for i, c in enumerate(curves):
                    ax.plot(c["time"], c["objective"], color=colour, lw=1, label=NAMES[method] if i == 0 else None)
            ax.set(title=f"warm-up {w} epochs", xlabel="epoch", yscale="log")
        axes[0].set_ylabel("balanced cross-entropy\non validation")
        axes[-1].legend(fontsize=8)
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(PICTURE, metadata={"Date": None})
        plt.close(figure)


def render() -> None:
    page = PAGE.read_text()
    for name, text in sections().items():
        pattern = rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)"
        page, n = re.subn(pattern, lambda m, t=text: f"{m[1]}{t}\n{m[2]}", page, flags=re.DOTALL)
        if n != 1:
            raise SystemExit(f"{PAGE} has {n} pairs of markers for {name}; it needs one.")
    PAGE.write_text(page)
    draw()
    print(f"wrote {PAGE} and {PICTURE}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "render"])
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=["main"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    given = parser.parse_args()
    run(given.tables, given.seeds) if given.what == "run" else render()

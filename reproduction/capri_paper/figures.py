"""The paper's figures, declared: which units they need and how they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capri import demo
from capri.report.style import BLUE, GREY, INK, ORANGE, PINK, style
from capri.strategy import Strategy
from capri_paper import reference
from capri_paper.exhibits import Plot, Size
from capri_paper.posthoc import posthoc
from capri_paper.steps import steps
from capri_paper.store import Store, Unit
from capri_paper.tables import warmup_unit

WIDE, SMALL = "cifar100-lt", "cifar10-lt"  # scores of many classes, and of few
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
MIXES = tuple(round(0.1 * i, 1) for i in range(11))
LOOKS = {
    "plain": ("plain post-hoc", GREY, "^"),
    "la": ("LA post-hoc", ORANGE, "s"),
    "cap": ("CAP, W alone", PINK, "D"),
    "pooled": ("CAP (default)", BLUE, "o"),
}


def _levels(size: Size) -> Sequence[float]:
    return LEVELS[2:5] if size == "smoke" else LEVELS


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {}))
    plt.close(figure)


# -- improvement over a -----------------------------------------------------------------------------------------------


def _improvement(kind: str, title: str) -> Plot:
    """How much an objective falls, for the worst a of classes, a from few to all."""

    def needs(seeds: Sequence[int], size: Size) -> list[Unit]:
        return [posthoc(WIDE, s, size, m, f"{kind}:{a:g}") for s in seeds for m in LOOKS for a in _levels(size)]

    def draw(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
        with style():
            import matplotlib.pyplot as plt

            figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
            for method, (label, colour, marker) in LOOKS.items():
                _band(axes, *_falls(store, seeds, size, method, kind), label, colour, marker)
            theirs = {m: reference.figure("objectives", m, f"{kind}:0.2") for m in ("plain", "la", "cap")}
            for method, figure_ in theirs.items():
                if figure_ is not None and size != "smoke":
                    colour, marker = LOOKS["pooled" if method == "cap" else method][1:]
                    axes.plot(0.2, -figure_.mean, marker, mfc="none", mec=colour, ms=11, mew=1.5)
            axes.plot([], [], "o", mfc="none", mec=INK, ms=10, label="the paper, at a = 0.2")
            axes.set(xlabel="a, share of classes", ylabel=f"{title} falls by (points)")
            axes.axhline(0, color=GREY, lw=0.8)
            axes.legend()
            _save(figure, path)

    return Plot(kind, f"{title}: improvement over a", needs, draw)


def _falls(store: Store, seeds: Sequence[int], size: Size, method: str, kind: str) -> tuple[Any, Any]:
    levels = np.array(_levels(size))
    rows = []
    for seed in seeds:
        found = [store.need(posthoc(WIDE, seed, size, method, f"{kind}:{a:g}")) for a in levels]
        names = [f"{kind}:{a:g}" for a in levels]
        rows.append([100 * (f["unadjusted"][n] - f["test"][n]) for f, n in zip(found, names, strict=True)])
    return levels, np.array(rows)


def _band(axes: Any, x: Any, rows: Any, label: str, colour: str, marker: str) -> None:
    mean, spread = rows.mean(axis=0), rows.std(axis=0, ddof=min(1, len(rows) - 1))
    axes.plot(x, mean, color=colour, marker=marker, label=label)
    axes.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)


# -- error against spread ---------------------------------------------------------------------------------------------


def _mixed(seed: int, size: Size, method: str, mix: float) -> Unit:
    """Tuned for λ·plain + (1 − λ)·sdev. For a small λ that is best where all is wrong, so the model's error is kept."""
    return posthoc(WIDE, seed, size, method, f"mix:{mix:g}", constraint="balanced <= baseline")


def _tradeoff_needs(seeds: Sequence[int], size: Size) -> list[Unit]:
    mixes = MIXES[::5] if size == "smoke" else MIXES
    return [_mixed(s, size, m, x) for s in seeds for m in LOOKS for x in mixes]


def _draw_tradeoff(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
    mixes = MIXES[::5] if size == "smoke" else MIXES
    with style():
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
        for method, (label, colour, marker) in LOOKS.items():
            points = np.array([
                [[store.need(_mixed(s, size, method, x))["test"][n] for n in ("sdev", "plain")] for x in mixes]
                for s in seeds
            ])  # fmt: skip
            x, y = 100 * points.mean(axis=0).T
            axes.plot(x, y, color=colour, marker=marker, label=label)
        start = np.array([
            [store.need(_mixed(s, size, "plain", mixes[0]))["unadjusted"][n] for n in ("sdev", "plain")]
            for s in seeds
        ])  # fmt: skip
        axes.plot(*(100 * start.mean(axis=0)), "*", color=INK, ms=13, label="pre-trained")
        axes.set(xlabel="standard deviation of class errors (%)", ylabel="error (%)")
        axes.legend()
        _save(figure, path)


# -- logits before and after ------------------------------------------------------------------------------------------

PARTS = {"l": "offsets l", "delta": "multipliers Δ"}


def _scatter_needs(seeds: Sequence[int], size: Size) -> list[Unit]:
    return [posthoc(SMALL, seeds[0], size, "cap", "balanced", p) for p in PARTS]


def _draw_scatter(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
    split = demo.DATASETS["digits" if size == "smoke" else SMALL].split(seeds[0])
    largest, smallest = int(split.counts.argmax()), int(split.counts.argmin())
    names = split.class_names[largest], split.class_names[smallest]
    shown: list[tuple[str, Any]] = [("as trained", np.asarray(split.test_scores))]
    for part, title in PARTS.items():
        found = store.need(posthoc(SMALL, seeds[0], size, "cap", "balanced", part))
        strategy = Strategy(np.ones(len(found["l"])), np.array(found["l"]), np.array(found["delta"]))
        shown.append((f"tuned: {title}", strategy.adjust(split.test_scores)))
    with style():
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, 3, figsize=(12, 4.6), sharex=True, sharey=True, layout="constrained")
        for axes, (title, scores) in zip(panels, shown, strict=True):
            for k, colour, marker in ((largest, ORANGE, "."), (smallest, BLUE, "x")):
                of = scores[split.test_y == k]
                axes.plot(of[:, largest], of[:, smallest], marker, color=colour, alpha=0.6,
                          label=f"{split.class_names[k]} ({int(split.counts[k]):,} in training)")  # fmt: skip
            both = np.isin(split.test_y, (largest, smallest))
            low, high = scores[both][:, [largest, smallest]].min(), scores[both][:, [largest, smallest]].max()
            axes.plot([low, high], [low, high], color=INK, lw=1, label="decision boundary of the two")
            axes.set(title=title, xlabel=f"score of {names[0]}")
        panels[0].set_ylabel(f"score of {names[1]}")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        _save(figure, path)


# -- along the steps --------------------------------------------------------------------------------------------------


def _steps_needs(seeds: Sequence[int], size: Size) -> list[Unit]:
    return [steps(SMALL, seeds[0], size, part) for part in PARTS]


def _draw_steps(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
    with style():
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
        for axes, (part, title) in zip(panels, PARTS.items(), strict=True):
            found = store.need(steps(SMALL, seeds[0], size, part))
            x = np.array(found["step"]) + 1
            axes.plot(x, 100 * np.array(found["error"]), color=BLUE, label="balanced test error (left)")
            other = axes.twinx()
            other.plot(x, found["loss"], color=ORANGE, ls="--", label="balanced test loss (right)")
            other.grid(False)
            other.spines["right"].set_visible(True)
            axes.set(
                title=f"tuning {title}",
                xlabel="step of gradient descent (1: as trained)",
                ylabel="balanced error (%)",
                xscale="log",
            )
            other.set_ylabel("balanced cross-entropy")
            handles = [*axes.get_lines(), *other.get_lines()]
            axes.legend(handles, [str(h.get_label()) for h in handles], loc="upper right")
        _save(figure, path)


# -- the objective during the search -----------------------------------------------------------------------------------

WARMUP_PANELS = {"no warm-up": ("plain_none", "cap_none"), "5 epochs of warm-up": ("plain_short", "cap"),
                 "warm-up for ⅔ of it": ("default_long", "cap_long")}  # fmt: skip


def _search_units(seeds: Sequence[int], size: Size) -> list[Unit]:
    return [warmup_unit(row, "clinc150-lt", s, size) for rows in WARMUP_PANELS.values() for row in rows for s in seeds]


def _draw_searches(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
    with style():
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), sharex=True, sharey=True, layout="constrained")
        for axes, (title, rows) in zip(panels, WARMUP_PANELS.items(), strict=True):
            for row, label, colour in zip(rows, ("plain (AutoBalance)", "CAP"), (ORANGE, BLUE), strict=True):
                found = [store.need(warmup_unit(row, "clinc150-lt", s, size)) for s in seeds]
                for i, curve in enumerate(f["curve"] for f in found if "failed" not in f):
                    axes.plot(curve["time"], curve["objective"], color=colour, lw=1.2, label=label if i == 0 else None)
            axes.set(title=title, xlabel="epoch of the search", yscale="log")
        panels[0].set_ylabel("balanced cross-entropy\non validation")
        panels[0].set_yticks(ticks := (0.4, 0.6, 1, 2, 4), [f"{t:g}" for t in ticks])
        panels[0].minorticks_off()
        panels[0].legend()
        _save(figure, path)


# -- theory -----------------------------------------------------------------------------------------------------------


def _draw_margins(store: Store, seeds: Sequence[int], size: Size, path: Path) -> None:
    from capri_paper.theory.figures import margin_figure, save

    path.parent.mkdir(parents=True, exist_ok=True)
    save(margin_figure(n=100 if size == "smoke" else 600, seeds=0 if size == "smoke" else 10), path)


FIGURES = (
    _improvement("quantile", "Quantile class error"),
    _improvement("cvar", "CVaR of class errors"),
    Plot("tradeoff", "Error against spread, λ·plain + (1 − λ)·sdev for λ from 0 to 1", _tradeoff_needs, _draw_tradeoff),
    Plot("scatter", "Logits of the largest and the smallest class, before and after", _scatter_needs, _draw_scatter),
    Plot("steps", "Test loss and balanced error along post-hoc steps, l and Δ", _steps_needs, _draw_steps),
    Plot("search-curves", "The objective during bilevel search, by warm-up", _search_units, _draw_searches),
    Plot("delta-star", "The best margin ratio δ* of the Gaussian mixture", lambda seeds, size: [], _draw_margins),
)

"""The two pictures of ``capri theory``: the paper's figure, and the regime where its claim reverses.

matplotlib is imported when a picture is drawn, so the theory itself does without it. Each function draws on the figure
it is given, or makes one, and returns it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from capri_paper.theory import gmm, simulation
from capri_paper.theory._numerics import Array
from capri_paper.theory.slab import delta_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours stay apart for colour-blind readers; the markers tell the curves apart in print.
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
STYLES = ((BLUE, "o"), (ORANGE, "s"), (GREEN, "^"), (VERMILION, "D"))

FREQUENCIES = (0.1, 0.2)
VARIANCE_RATIOS = (0.5, 1.0, 2.0)
SIGNAL = 2.0
SIMULATED_AT = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)

SIGNALS = (1.0, 1.5, 2.0, 4.0)
WEAK_PI = 0.1
# What becomes of the claim that δ* grows with σ₊/σ₋: its tint on the map, and where its name is written.
VERDICTS = {
    "not\nseparable": ("#D9D9D9", 6.5, 0.4),
    "claim reversed:\nδ* falls at some ratio": ("#F5B895", 0.2, 0.65),
    "δ* = ∞\nat several\nratios": ("#F7F0A0", 4.6, 1.3),
    "claim holds:\nδ* grows with σ₊/σ₋": ("#BFE0F5", 0.2, 3.0),
}


def margin_figure(figure: Figure | None = None, *, n: int = 600, seeds: int = 10) -> Figure:
    """δ* against n/d for three noise ratios, a panel for each frequency; dots are fitted SVMs, if seeds ≥ 2."""
    figure = figure or _new_figure(9.0, 4.3)
    panels = figure.subplots(1, len(FREQUENCIES), sharey=True)
    for panel, pi in zip(panels, FREQUENCIES, strict=True):
        for ratio, (colour, marker) in zip(VARIANCE_RATIOS, STYLES, strict=False):
            samples = np.geomspace(0.05, 4, 200)
            curve = gmm.solve(pi, ratio**0.5, 1, SIGNAL, 1 / samples).delta_star
            _curve(panel, samples, curve, colour, marker, f"{ratio:g}  ({_difficulty(ratio)})")
            for x in SIMULATED_AT if seeds > 1 else ():
                _dot(panel, x, _simulated_kappa(pi, ratio, SIGNAL, 1 / x, n, seeds), colour, marker)
        panel.axhline(1, color=GREY, linewidth=1, linestyle=":")
        panel.set_title(f"minority share π = {pi:g}")
        _log_axis(panel.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 4))
        panel.set_xlabel("training samples per dimension, n/d")
    _log_axis(panels[0].yaxis, (1, 2, 4, 8, 16, 32, 64))
    panels[0].set_ylim(0.8, 64)
    panels[0].set_ylabel("best margin ratio δ*  (minority : majority)")
    panels[1].annotate("δ = 1: plain SVM", (0.05, 1), (0, 4), textcoords="offset points", color=GREY, fontsize=9)
    panels[1].legend(title="noise variance σ₊/σ₋", loc="upper left")
    figure.suptitle(f"The rarer and the noisier the minority, the larger its best margin (‖μ‖ = {SIGNAL:g})")
    _footnote(figure, n, seeds)
    return figure


def low_signal_figure(figure: Figure | None = None, *, n: int = 600, seeds: int = 10) -> Figure:
    """δ* against the noise ratio for weak and strong signal, and a map of where δ* grows with the ratio."""
    figure = figure or _new_figure(10.0, 4.7)
    left, right = figure.subplots(1, 2)
    _draw_signals(left, n, seeds)
    _draw_map(right)
    figure.suptitle("With a weak signal the claim reverses: a noisier minority is best given less margin")
    _footnote(figure, n, seeds)
    return figure


def _draw_signals(panel: Axes, n: int, seeds: int) -> None:
    ratios = np.geomspace(0.25, 4, 200)
    for R, (colour, marker) in zip(SIGNALS, reversed(STYLES), strict=True):
        curve = gmm.solve(WEAK_PI, np.sqrt(ratios), 1, R, 1).delta_star
        _curve(panel, ratios, curve, colour, marker, f"{R:g}")
        for ratio in VARIANCE_RATIOS if seeds > 1 else ():
            _dot(panel, ratio, _simulated_kappa(WEAK_PI, ratio, R, 1, n, seeds), colour, marker)
    panel.set_title(f"π = {WEAK_PI:g}, n/d = 1", fontsize=11)
    _log_axis(panel.xaxis, (0.25, 0.5, 1, 2, 4))
    _log_axis(panel.yaxis, (1, 2, 4, 8, 16, 32, 64))
    panel.set_ylim(0.6, 90)
    panel.set_xlabel("noise variance ratio σ₊/σ₋  (σ₋ = 1)")
    panel.set_ylabel("best margin ratio δ*  (minority : majority)")
    panel.legend(title="signal ‖μ‖", loc="lower right", ncols=2)


def _draw_map(panel: Axes) -> None:
    from matplotlib.colors import ListedColormap

    samples, signals = np.geomspace(0.05, 10, 120), np.linspace(0.02, 4.3, 120)
    verdicts = claim_map(WEAK_PI, samples, signals)
    tints = ListedColormap([tint for tint, _, _ in VERDICTS.values()])
    panel.pcolormesh(samples, signals, verdicts, cmap=tints, vmin=-0.5, vmax=len(VERDICTS) - 0.5, rasterized=True)
    for verdict, (_, x, y) in VERDICTS.items():
        panel.text(x, y, verdict, ha="center", va="center", fontsize=10)
    for R, (colour, marker) in zip(SIGNALS, reversed(STYLES), strict=True):
        panel.plot(1, R, color=colour, marker=marker, markersize=8, markeredgecolor="white")
    panel.set_title(f"π = {WEAK_PI:g}, σ₊/σ₋ from ½ to 2; symbols as on the left", fontsize=11)
    _log_axis(panel.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10))
    panel.set_xlabel("training samples per dimension, n/d")
    panel.set_ylabel("signal ‖μ‖  (in standard deviations of the majority)")


def save(figure: Figure, path: Path) -> None:
    """Write a picture; the same picture gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def claim_map(pi: float, samples: Array, signals: Array) -> NDArray[np.int64]:
    """Does δ* grow with σ₊/σ₋ over ½ … 2 (σ₋ = 1)? Indices into `VERDICTS`, of shape (signals, samples)."""
    grid = gmm.solve(pi, np.sqrt(np.geomspace(0.5, 2, 9))[:, None, None], 1, signals[:, None], 1 / samples)
    rising = np.diff(grid.kappa_star, axis=0)
    cases = [~grid.separable.all(axis=0), (rising < 0).any(axis=0), (rising == 0).any(axis=0)]
    return np.select(cases, [0, 1, 2], default=3)


# --------------------------------------------------------------------------------------------------------------------
# Parts


def _simulated_kappa(pi: float, ratio: float, R: float, dbar: float, n: int, seeds: int) -> simulation.Mean:
    return simulation.mean(simulation.measure(pi, ratio**0.5, 1, R, dbar, n=n, seeds=range(seeds)).free_kappa)


def _curve(panel: Axes, x: Array, delta: Array, colour: str, marker: str, label: str) -> None:
    # The line carries its dots' marker in the legend only.
    panel.plot(x, delta, color=colour, marker=marker, markevery=[], markeredgecolor="white", label=label)


def _dot(panel: Axes, x: float, kappa: simulation.Mean, colour: str, marker: str) -> None:
    """A fitted δ* with a bar of two standard errors. Averaged as κ: δ has no finite mean near its infinite values."""
    low, middle, high = delta_of([kappa.value - 2 * kappa.error, kappa.value, kappa.value + 2 * kappa.error])
    if middle < 1e3:  # beyond the axis, infinite, or not separable: no dot
        reach = [[middle - low], [min(high, 1e3) - middle]]
        panel.errorbar(x, middle, reach, color=colour, marker=marker, markersize=7, markeredgecolor="white", capsize=2)


def _difficulty(ratio: float) -> str:
    return "equal noise" if ratio == 1 else f"minority {'harder' if ratio > 1 else 'easier'}"


def _log_axis(axis: Any, ticks: tuple[float, ...]) -> None:
    """A logarithmic axis that names plain numbers."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def _footnote(figure: Figure, n: int, seeds: int) -> None:
    dots = f"Dots: SVMs fitted to {n} samples, {seeds} draws, ± 2 standard errors. " if seeds > 1 else ""
    figure.supxlabel(f"Lines: the limit n, d → ∞. {dots}", fontsize=8.5, color=GREY)


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")

"""Where a search has been: W, objective and class errors over time, and the picture of it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capri._files import write_atomically
from capri.bilevel.strategy_map import StrategyMap


@dataclass
class Trajectory:
    """Kept in checkpoints, so that a resumed search has the whole of it.

    times: in epochs, of each outer step. objective: running, there. weights: W by part, there. class_errors: (K,) of
    validation at the end of each epoch. start_epoch, start_sdev, start_errors: when the search began, the spread of
    the class errors, and the errors (NaN: a class without samples).
    """

    times: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    weights: dict[str, list[Tensor]] = field(default_factory=dict)
    class_errors: list[list[float]] = field(default_factory=list)
    start_epoch: int | None = None
    start_sdev: float = float("nan")
    start_errors: list[float] = field(default_factory=list)

    def begin(self, epoch: int, sdev: float, errors: NDArray[np.float64]) -> None:
        """The search begins."""
        self.start_epoch, self.start_sdev, self.start_errors = epoch, sdev, errors.tolist()

    def note(self, time: float, objective: float, weights: Mapping[str, NDArray[np.float64]]) -> None:
        """After an outer step."""
        self.times.append(time)
        self.objective.append(objective)
        for part, w in weights.items():
            self.weights.setdefault(part, []).append(torch.from_numpy(w.copy()))

    def note_errors(self, errors: Sequence[float]) -> None:
        """After an epoch."""
        self.class_errors.append(list(errors))

    def averaged(self, share: float) -> dict[str, NDArray[np.float64]]:
        """W by part: the mean over this share of the outer steps so far, the last ones; 0: the last step alone."""
        n = max(1, round(share * len(self.times)))
        return {part: torch.stack(rows[-n:]).mean(dim=0).numpy() for part, rows in self.weights.items()}

    def state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        stacked = {part: torch.stack(rows) for part, rows in self.weights.items()}
        return {**vars(self), "weights": stacked}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Trajectory:
        """Back from `state`."""
        return cls(**{**state, "weights": {part: list(rows) for part, rows in state["weights"].items()}})

    def arrays(self) -> dict[str, Any]:
        """The same as arrays, for trajectory.npz."""
        found = {f"w_{part}": torch.stack(rows).numpy() for part, rows in self.weights.items()}
        return found | {
            "time": np.array(self.times),
            "objective": np.array(self.objective),
            "class_errors": np.array(self.class_errors),
            "start_sdev": np.array(self.start_sdev),
            "start_errors": np.array(self.start_errors),
        }

    def save(self, path: Path) -> None:
        """As .npz without pickles."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays())
        write_atomically(path, buffer.getvalue())

    def strategies(self, made: StrategyMap) -> dict[str, NDArray[np.float64]]:
        """l, Δ, … at each outer step, (steps, K), by the map."""
        steps: dict[str, list[NDArray[np.float64]]] = {part: [] for part in self.weights}
        names = dict(made.named_parameters())
        for i in range(len(self.times)):
            at = {f"w_{part}": rows[i].to(names[f"w_{part}"]) for part, rows in self.weights.items()}
            with torch.no_grad():
                tensors = torch.func.functional_call(made, at, ())
            for part in steps:
                steps[part].append(getattr(tensors, part).double().cpu().numpy())
        return {part: np.array(rows) for part, rows in steps.items()}


def plot_trajectory(
    trajectory: Trajectory,
    made: StrategyMap,
    train_counts: NDArray[np.int64],
    path: Path,
    title: str,
    time: str = "epoch",
) -> None:
    """α curves, a line per class from frequent (dark) to rare (bright), beside the objective and the class errors."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curves = trajectory.strategies(made)
    order = np.argsort(-train_counts, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, 30).astype(int))]
    colours = colormaps["viridis"](np.linspace(0, 0.92, len(shown)))
    figure = Figure(figsize=(3.6 * (len(curves) + 2), 3.4), layout="constrained")
    axes = figure.subplots(1, len(curves) + 2)
    symbols = {"l": "offsets l", "delta": "multipliers Δ", "omega": "weights ω", "smoothing": "label smoothing ε"}
    for ax, (part, values) in zip(axes, curves.items(), strict=False):
        for k, colour in zip(shown, colours, strict=True):
            ax.plot(trajectory.times, values[:, k], color=colour, lw=1)
        ax.set(title=symbols[part], xlabel=time)
    axes[-2].plot(trajectory.times, trajectory.objective, color="#0072B2")
    axes[-2].set(title="objective on validation", xlabel=time)
    errors = 100 * np.array(trajectory.class_errors)
    for k, colour in zip(shown, colours, strict=True):
        axes[-1].plot(np.arange(len(errors)) + 1, errors[:, k], color=colour, lw=0.7, alpha=0.5)
    axes[-1].plot(np.arange(len(errors)) + 1, np.nanmean(errors, axis=1), color="black", lw=2, label="mean")
    axes[-1].set(title="class errors (%)", xlabel=time)
    if trajectory.start_epoch:
        axes[-1].axvline(trajectory.start_epoch, color="0.6", ls=":", label="search begins")
    axes[-1].legend(frameon=False)
    for ax in axes:
        if time == "generation":
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    figure.suptitle(f"{title} (dark: frequent classes, bright: rare ones)", fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    write_atomically(path, buffer.getvalue())

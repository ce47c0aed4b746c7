"""Figures of class errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from capri.report.style import BLUE, GREY, ORANGE, style


def class_error_figure(
    before: ArrayLike,
    after: ArrayLike,
    train_counts: ArrayLike,
    class_names: Sequence[str],
    *,
    labels: tuple[str, str] = ("as trained", "adjusted"),
    title: str = "",
    path: str | Path,
) -> Path:
    """Error of each class before and after, from the most common class to the rarest, joined by a line."""
    counts = np.asarray(train_counts)
    order = np.argsort(-counts, kind="stable")
    first, second = 100 * np.asarray(before)[order], 100 * np.asarray(after)[order]
    with style():
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(9, 4.2))
        x = np.arange(len(order))
        small = len(order) > 40
        axes.vlines(x, first, second, color=GREY, linewidth=1 if small else 2, alpha=0.7)
        for values, colour, label in ((first, ORANGE, labels[0]), (second, BLUE, labels[1])):
            axes.plot(x, values, "o", color=colour, markersize=4 if small else 8, label=label)
            axes.axhline(values.mean(), color=colour, linestyle="--", linewidth=1)
            axes.annotate(
                f" mean {values.mean():.1f}",
                (1, values.mean()),
                xycoords=("axes fraction", "data"),
                color=colour,
                va="center",
            )
        _class_axis(axes, [class_names[k] for k in order], counts[order])
        axes.set_ylabel("class error on test data (%)")
        axes.set_ylim(-3, 103)
        axes.set_title(title, pad=24)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
        figure.savefig(path)
        plt.close(figure)
    return Path(path)


def _class_axis(axes: Any, names: Sequence[str], counts: ArrayLike) -> None:
    count = np.asarray(counts).astype(int)
    if len(names) <= 20:
        axes.set_xticks(np.arange(len(names)), [f"{n}\n{c:,}" for n, c in zip(names, count, strict=True)], fontsize=9)
        axes.set_xlabel("class, with its number of training samples")
    else:
        ticks = np.unique(np.linspace(0, len(names) - 1, 9).astype(int))
        axes.set_xticks(ticks, [str(count[t]) for t in ticks])
        axes.set_xlabel(f"the {len(names)} classes from common to rare, marked by their number of training samples")

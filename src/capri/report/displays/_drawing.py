"""What all displays share: axes in the one look, names as Matplotlib shows them, and class axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from capri.report.style import look
from capri.sentences import clipped

FEW = 20  # classes that an axis can name one by one
ROOM = 14  # characters of a name below an axis


class Display:
    """A plot whose data are its attributes.

    `plot` draws it into `ax`, or into a figure of its own, and keeps both as `ax_` and `figure_`.
    """

    size: ClassVar[tuple[float, float]] = (7.0, 4.0)
    pad: ClassVar[float] = 6.0  # below a title: more where a legend stands
    figure_: Any
    ax_: Any

    def plot(self, ax: Any = None, **how: Any) -> Self:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to; by default a figure of its own.
        **how
            `title`, and what this display can vary.

        Returns
        -------
        Display
            Itself, with `ax_` and `figure_`.
        """
        import matplotlib.pyplot as plt

        title = how.pop("title", None)
        with look():
            if ax is None:
                _, ax = plt.subplots(figsize=self.size, layout="constrained")
            self.ax_, self.figure_ = ax, ax.figure
            self._draw(ax, **how)
            if title is not None:
                ax.set_title(escaped(title, longest=200), loc="left", pad=self.pad)
        return self

    def save(self, path: str | Path, **how: Any) -> Path:
        """Draw it off screen, into a file.

        Parameters
        ----------
        path : str or Path
            Where to; the ending says in which format, such as .png, .svg or .pdf.
        **how
            Of `plot`.

        Returns
        -------
        Path
            Where it is.
        """
        from matplotlib.figure import Figure

        with look():
            figure = Figure(figsize=self.size, layout="constrained")
            self.plot(figure.subplots(), **how)
            figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)
        return Path(path)

    def _draw(self, axes: Any) -> None:
        raise NotImplementedError


def escaped(name: str, longest: int = ROOM) -> str:
    r"""Text as it is, clipped: a dollar begins no formula, and what cannot be shown is a box.

    >>> escaped("$x_1$")
    '\\$x_1\\$'
    """
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in clipped(name, longest))
    return shown.replace("$", r"\$")


ABOVE = 26.0  # room that a legend takes


def legend_above(axes: Any, columns: int) -> None:
    """A legend in one row over the axes."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, borderaxespad=0.2, handletextpad=0.3)


def legend_below(axes: Any, columns: int) -> None:
    """A legend under the label of the axes."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=columns, columnspacing=1, handletextpad=0.3)


def percent_axis(axis: Any, label: str) -> None:
    """An axis of shares, in percent."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g}".replace("-", "−")))
    axis.axes.set(**{f"{axis.axis_name}label": f"{label} (%)"})


def class_axis(axes: Any, names: Sequence[str], counts: NDArray[np.float64] | None, counted: str) -> None:
    """Below each place 0 … K − 1 a class: its name and count where they are few, else counts of some of them."""
    k = len(names)
    if k <= FEW:
        below = [""] * k if counts is None else [f"\n{c:,.0f}" for c in counts]
        upright = max(map(len, names)) <= 80 // k
        labels = [escaped(name) + extra for name, extra in zip(names, below, strict=True)]
        turned = {} if upright else {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        axes.set_xticks(np.arange(k), labels, fontsize=9, **turned)
        axes.set_xlabel("class" if counts is None else f"class, with its number of {counted}")
    elif counts is None:
        axes.set_xticks([])
        axes.set_xlabel(f"the {k:,} classes, by their error before")
    else:
        ticks = np.unique(np.linspace(0, k - 1, 9).astype(int))
        axes.set_xticks(ticks, [f"{counts[t]:,.0f}" for t in ticks])
        axes.set_xlabel(f"the {k:,} classes from common to rare, by number of {counted}")
    axes.set_xlim(-0.7, k - 0.3)

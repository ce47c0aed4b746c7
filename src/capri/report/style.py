"""The look of figures of class errors and of the paper: quiet axes, colours that colour-blind readers can tell apart.

The curves of training runs have their own look (`capri.train`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: Okabe and Ito's colours without yellow, with a softer black and a grey.
INK, BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = (
    "#222222",
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#999999",
)
CYCLE = (BLUE, ORANGE, GREEN, PINK, RED, SKY, INK)


#: Before and after, wherever a figure tells the two apart.
BEFORE, AFTER = ORANGE, BLUE


@contextmanager
def style() -> Iterator[None]:
    """The look of these figures, drawn off screen."""
    import matplotlib

    matplotlib.use("Agg", force=False)
    with look():
        yield


@contextmanager
def look() -> Iterator[None]:
    """The look of these figures, wherever they are drawn."""
    import matplotlib
    from cycler import cycler

    settings = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=CYCLE),
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e6e6",
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "figure.dpi": 120,
        "savefig.bbox": "tight",
        "svg.hashsalt": "capri",
    }
    with matplotlib.rc_context(settings):
        yield

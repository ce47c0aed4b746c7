"""`Report`: a page that can be saved, and shows itself in notebooks."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from capri._files import write_atomically
from capri.page.content import Content
from capri.page.render import render

HEIGHT = 900  # of the page in a notebook, in pixels


@dataclass(frozen=True)
class Report:
    """What tuning changed, as one self-contained page: no network, no fonts or scripts from elsewhere.

    Parameters
    ----------
    content : Content
        All that it says.

    Examples
    --------
    >>> import numpy as np
    >>> from capri import LogitAdjuster
    >>> y = np.arange(90) % 3
    >>> scores = np.random.default_rng(0).normal(size=(90, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    >>> report = LogitAdjuster("worst").fit(scores, y, class_counts=[90, 9, 1]).report_
    >>> print(report)
    Worst class error falls from ...
    """

    content: Content

    def to_html(self) -> str:
        """The page.

        Returns
        -------
        str
            A whole document.
        """
        return render(self.content)

    def save(self, path: str | Path) -> None:
        """Write the page; a file that was there stays whole until the new one is complete.

        Parameters
        ----------
        path : str or Path
            Where to, usually ``report.html``.
        """
        write_atomically(path, self.to_html().encode())

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that neither its look nor its script meets the notebook's."""
        page = html.escape(self.to_html())
        return (
            f'<iframe title="capri report" srcdoc="{page}" sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
            'loading="lazy" frameborder="0"></iframe>'
        )

    def __str__(self) -> str:
        return str(self.content.headline)

    def __repr__(self) -> str:
        return f"<Report: {self}>"

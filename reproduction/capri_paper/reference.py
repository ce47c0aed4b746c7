"""What the paper reports, to stand beside what we measure. `reference.toml` holds its figures, each typed once."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """A number of the paper in %, with its standard deviation where one is given."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads((resources.files("capri_paper") / "reference.toml").read_text(encoding="utf-8"))


def title(table: str) -> str:
    """What a table of the paper shows."""
    return str(_tables()[table]["title"])


def figure(table: str, row: str, column: str) -> Figure | None:
    """The paper's number, None where it has none.

    >>> figure("objectives", "cap", "sdev")
    Figure(mean=-13.92, deviation=0.24)
    """
    found = _tables().get(table, {}).get(row, {}).get(column)
    if found is None:
        return None
    return Figure(*map(float, found)) if isinstance(found, list) else Figure(float(found))

"""What the paper shows, declared: an exhibit is a table or a figure, made of units of work.

A table is rows × columns. Each cell names, for a seed, the unit whose result holds its number and where in it; the
paper's own number stands in `reference` under the same row and column. A figure names its units and how to draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capri import InputError
from capri_paper import reference
from capri_paper.store import Result, Store, Unit

#: The schedule of training: "cpu", "strong" and "paper" as in `capri train`; "smoke" takes seconds and shows that
#: all of it runs.
Size: TypeAlias = Literal["cpu", "strong", "paper", "smoke"]


class Cell(NamedTuple):
    """Whose result, and how to read the number off it, in % as in the paper."""

    unit: Unit
    read: Callable[[Result], float]


@dataclass(frozen=True)
class Only:
    """A selection: ``method=cap,la`` and ``data=cifar10-lt`` admit what has one of the values of each name.

    >>> Only.parse(["method=cap,la"]).admits("method", "la")
    True
    """

    wanted: Mapping[str, frozenset[str]]

    @classmethod
    def parse(cls, given: Sequence[str] = ()) -> Only:
        """From the command line."""
        wanted: dict[str, frozenset[str]] = {}
        for item in given:
            name, equals, values = item.partition("=")
            if not (equals and values) or name not in ("method", "data"):
                raise InputError(f"--only is {item!r}; write method=cap,la or data=cifar10-lt.")
            wanted[name] = wanted.get(name, frozenset()) | frozenset(values.split(","))
        return cls(wanted)

    def admits(self, name: str, value: str) -> bool:
        """Whether a method, or data, is wanted."""
        return name not in self.wanted or value in self.wanted[name]


@dataclass(frozen=True)
class Table:
    """rows: id to title; columns: id to (title, data); data: id to title. cell: None where nothing can be run.

    beside: rows of ours that stand beside a row of the paper under another name. beyond: title of a table that the
    paper does not have. trains: whether networks are trained for it, whose settings may be changed.
    """

    name: str
    rows: Mapping[str, str]
    columns: Mapping[str, tuple[str, str]]
    data: Mapping[str, str]
    cell: Callable[[str, str, int, Size], Cell | None]
    beside: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    beyond: str = ""
    trains: bool = True

    @property
    def title(self) -> str:
        """What it shows: the paper's table, or what goes beyond it."""
        return self.beyond or reference.title(self.name)

    def units(self, seeds: Sequence[int], size: Size, only: Only) -> list[Unit]:
        """All that it needs, seed by seed, each once."""
        rows, columns = self.chosen(only)
        cells = (self.cell(row, column, seed, size) for seed in seeds for column in columns for row in rows)
        return list(dict.fromkeys(cell.unit for cell in cells if cell is not None))

    def under(self, change: Callable[[Unit], Unit]) -> Table:
        """The same table of other units."""

        def cell(row: str, column: str, seed: int, size: Size) -> Cell | None:
            found = self.cell(row, column, seed, size)
            return None if found is None else Cell(change(found.unit), found.read)

        return replace(self, cell=cell)

    def chosen(self, only: Only) -> tuple[list[str], list[str]]:
        """Rows and columns that a selection leaves."""
        there = {"method": list(self.rows), "data": list(dict.fromkeys(data for _, data in self.columns.values()))}
        for name, values in only.wanted.items():
            unknown = sorted(values.difference(there[name]))
            if unknown:
                raise InputError(f"--only names {name}={unknown[0]}; {self.name!r} has {', '.join(there[name])}.")
        rows = [row for row in self.rows if only.admits("method", row)]
        return rows, [column for column, (_, data) in self.columns.items() if only.admits("data", data)]

    def values(
        self, store: Store, row: str, column: str, seeds: Sequence[int], size: Size
    ) -> tuple[NDArray[np.float64], int]:
        """The numbers that are stored, over seeds, in %; and how many runs diverged."""
        cells = [cell for seed in seeds if (cell := self.cell(row, column, seed, size)) is not None]
        found = [(cell, result) for cell in cells if (result := store.find(cell.unit)) is not None]
        ended = [cell.read(result) for cell, result in found if "failed" not in result]
        return np.array(ended), len(found) - len(ended)


@dataclass(frozen=True)
class Plot:
    """A figure. draw(store, seeds, size, path): from stored results to a picture."""

    name: str
    title: str
    needs: Callable[[Sequence[int], Size], list[Unit]]
    draw: Callable[[Store, Sequence[int], Size, Path], None]

    def units(self, seeds: Sequence[int], size: Size, only: Only) -> list[Unit]:
        """All that it needs."""
        if only.wanted:
            raise InputError(f"--only is for tables, and {self.name!r} is a figure.")
        return self.needs(seeds, size)


Exhibit: TypeAlias = Table | Plot

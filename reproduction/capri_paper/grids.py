"""A table of results as text: for the terminal, as Markdown, as LaTeX.

A cell is ours, mean ± standard deviation over seeds, then in brackets the paper's number and how far ours is from it:
``21.40 ± 0.35 [20.22, +1.18]``. Data sets are blocks of columns; each block is a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri.study import Spread
from capri_paper import reference
from capri_paper.exhibits import Only, Size, Table
from capri_paper.store import Store


@dataclass(frozen=True)
class Entry:
    """Ours over seeds, and the paper's, in %; either may be missing."""

    values: NDArray[np.float64]
    paper: reference.Figure | None
    failed: int = 0

    def __bool__(self) -> bool:
        return bool(len(self.values)) or self.paper is not None or self.failed > 0

    def ours(self) -> str:
        """Mean ± standard deviation."""
        diverged = f" ({self.failed} of {self.failed + len(self.values)} diverged)" if self.failed else ""
        if not len(self.values):
            return f"–{diverged}"
        return f"{Spread.of(self.values).text(2, scale=1)}{diverged}"

    def theirs(self) -> str:
        """The paper's number and how far ours is from it, in brackets."""
        if self.paper is None:
            return ""
        away = f", {self.values.mean() - self.paper.mean:+.2f}" if len(self.values) else ""
        return f"[{self.paper.mean:.2f}{away}]"


@dataclass(frozen=True)
class Block:
    """The columns of one data set: a heading, and a row of entries per method."""

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Entry]]]

    @property
    def run(self) -> bool:
        """Whether any of it has been run."""
        return any(len(e.values) for _, entries in self.rows for e in entries)

    @property
    def paper(self) -> bool:
        """Whether the paper has any of it."""
        return any(e.paper for _, entries in self.rows for e in entries)

    @property
    def seeds(self) -> str:
        """How many seeds stand behind the numbers: n, or the least and the most."""
        sizes = {len(e.values) for _, entries in self.rows for e in entries if len(e.values)}
        if not sizes:
            return "nothing run"
        return f"n = {min(sizes)}" if len(sizes) == 1 else f"n = {min(sizes)} … {max(sizes)}"


def blocks(table: Table, store: Store, seeds: Sequence[int], size: Size, only: Only) -> Iterator[Block]:
    """One block per data set of which anything is known, ours or the paper's."""
    methods, chosen = table.chosen(only)
    for data in dict.fromkeys(table.columns[c][1] for c in chosen):
        columns = [c for c in chosen if table.columns[c][1] == data]
        rows = [(table.rows[m], [_entry(table, store, m, c, seeds, size) for c in columns]) for m in methods]
        known = [(title, entries) for title, entries in rows if any(entries)]
        if known:
            yield Block(table.data[data], [table.columns[c][0] for c in columns], known)


def _entry(table: Table, store: Store, row: str, column: str, seeds: Sequence[int], size: Size) -> Entry:
    paper = None if size == "smoke" else reference.figure(table.name, table.beside.get(row, row), column)
    values, failed = table.values(store, row, column, seeds, size)
    return Entry(values, paper, failed)


def rich(block: Block, width: int) -> Iterator[Any]:
    """For the terminal: the paper's number below ours, columns that do not fit in a further table."""
    from rich import box
    from rich.table import Table as Grid

    for columns in _fitting(block, width):
        grid = Grid(title=f"{block.title} ({block.seeds})", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        grid.add_column("method", no_wrap=True)
        for c in columns:
            grid.add_column(block.columns[c], justify="right", no_wrap=True)
        for title, entries in block.rows:
            shown = (entries[c] for c in columns)
            grid.add_row(title, *(e.ours() + (f"\n[dim]\\{e.theirs()}[/]" if e.theirs() else "") for e in shown))
        yield grid


def _fitting(block: Block, width: int) -> list[list[int]]:
    """The columns in as few groups as fit beside the methods, each at least one."""
    left = width - max(len(title) for title, _ in block.rows)
    groups: list[list[int]] = []
    room = 0
    for c, name in enumerate(block.columns):
        entries = [row[c] for _, row in block.rows]
        need = 3 + max(len(name), *(max(len(e.ours()), len(e.theirs())) for e in entries))
        if room < need:
            groups.append([])
            room = left
        groups[-1].append(c)
        room -= need
    return groups


def markdown(block: Block) -> str:
    """As Markdown."""
    lines = [
        f"| {block.title}, {block.seeds} | " + " | ".join(block.columns) + " |",
        "| --- |" + " ---: |" * len(block.columns),
    ]
    for title, entries in block.rows:
        lines.append(f"| {title} | " + " | ".join(f"{e.ours()} {e.theirs()}".strip() for e in entries) + " |")
    return "\n".join(lines)


def latex(block: Block) -> str:
    """As LaTeX, with booktabs' rules."""
    lines = [rf"\begin{{tabular}}{{l{'r' * len(block.columns)}}}", r"\toprule"]
    lines.append(" & ".join(map(_escape, (f"{block.title}, {block.seeds}", *block.columns))) + r" \\")
    lines.append(r"\midrule")
    for title, entries in block.rows:
        lines.append(" & ".join(map(_escape, (title, *(f"{e.ours()} {e.theirs()}" for e in entries)))) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _escape(cell: str) -> str:
    for plain, written in (("&", r"\&"), ("%", r"\%"), ("_", r"\_"), ("±", r"$\pm$"), ("–", "--"), ("Δ", r"$\Delta$"),
                           ("τ", r"$\tau$"), ("γ", r"$\gamma$"), ("→", r"$\to$"), ("λ", r"$\lambda$"),
                           ("…", r"\dots")):  # fmt: skip
        cell = cell.replace(plain, written)
    return cell.strip()

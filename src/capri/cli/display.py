"""Tables for people and JSON for machines; no arithmetic beyond means."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from capri.cli.messages import OBEYED, harmless
from capri.sentences import change, percent
from capri.study import Spread, Study

if TYPE_CHECKING:
    from capri.posthoc import Frontier, Point

WIDEST = 100  # characters of a line of text


@dataclass(frozen=True)
class ClassRow:
    """One class: its errors before and, where a policy is at hand, after; the share decided, where it may abstain."""

    name: str
    samples: float
    train_count: float | None
    before: float | None
    after: float | None = None
    decided: float | None = None


def print_json(content: Mapping[str, Any]) -> None:
    """JSON on stdout; what is undefined becomes null."""
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False)
    print(re.sub(f"(?!\n){OBEYED}", lambda found: f"\\u{ord(found[0]):04x}", text))


def tell(text: str) -> None:
    """Lines on stdout."""
    print("\n".join(map(harmless, text.split("\n"))))


def width() -> int:
    """How wide paragraphs are: as the terminal, and no wider than people read."""
    return min(stdout().width, WIDEST)


def objectives_table(
    before: Mapping[str, float], after: Mapping[str, float] | None, tuned: str | None, heading: str = "after"
) -> Table:
    """Objectives before and after; the tuned one stands out."""
    table = _table("objective", "before" if after else "error")
    if after is not None:
        for name in (heading, "change"):
            table.add_column(name, justify="right")
    for name, value in before.items():
        cells = [_text(name), _text(percent(value))]
        if after is not None:
            cells += [_text(percent(after[name])), _text(change(value, after[name]))]
        table.add_row(*cells, style="bold" if name == tuned else None)
    return table


def classes_table(rows: Sequence[ClassRow], *, title: str, after: bool, heading: str = "after") -> Table:
    """Errors by class."""
    table = _table("class", "samples")
    table.title, table.title_justify = title, "left"
    counted = any(row.train_count is not None for row in rows)
    abstains = any(row.decided is not None for row in rows)
    ends = [*(["before", heading, "change"] if after else ["error"]), *(["decided"] if abstains else [])]
    for name in (*(["trained on"] if counted else []), *ends):
        table.add_column(name, justify="right")
    for row in rows:
        cells = [_text(row.name), _text(f"{row.samples:g}")]
        cells += [_text("–" if row.train_count is None else f"{row.train_count:g}")] if counted else []
        cells += [_text(percent(row.before))]
        cells += [_text(percent(row.after)), _text(change(row.before, row.after))] if after else []
        cells += [_text(percent(row.decided))] if abstains else []
        table.add_row(*cells)
    return table


def comparison_table(study: Study, objective: str) -> Table:
    """One objective: methods by row, means and deviations over splits; the best held-out mean stands out."""
    table = _table("method", "held out", "minus unadjusted", "tuned on")
    if objective != "balanced":
        table.add_column("balanced, held out", justify="right")
    table.title, table.title_justify = f"tuned for {objective}", "left"
    best = study.best(objective)
    for method in study.values:
        held_out, tuned_on, balanced = (
            Spread.of(of[method][objective]).text() for of in (study.values, study.validation, study.balanced)
        )
        cells = [method, held_out, _paired(study, method, objective), tuned_on]
        cells += [balanced] if objective != "balanced" else []
        table.add_row(*map(_text, cells), style="bold" if method in best else None)
    return table


def verdict(study: Study, objective: str) -> str:
    """Which method is best, and which others the splits cannot tell from it."""
    means = {method: float(study.values[method][objective].mean()) for method in study.values}
    best = min(means, key=lambda method: means[method])
    others = {m: Spread.of(study.difference(m, best, objective)) for m in means if m != best}
    close = [m for m, gap in others.items() if gap.mean <= (gap.deviation or 0.0)]
    said = f"Lowest on held-out samples: {best}."
    if any(gap.deviation is None for gap in others.values()):
        return f"{said} One split does not tell how far to trust that."
    return f"{said} No clear difference to {', '.join(close)}." if close else f"{said} It is ahead of all others."


def comparison_json(study: Study, objective: str) -> dict[str, Any]:
    """Figures of every split by method, with mean and deviation of the held-out objective."""
    return {
        method: asdict(Spread.of(row[objective]))
        | {
            "test": row[objective],
            "validation": study.validation[method][objective],
            "balanced": study.balanced[method][objective],
        }
        for method, row in study.values.items()
    }


def frontier_table(curve: Frontier) -> Table:
    """Landmarks, then the points of the curve: objective and price, as tuned and on other samples."""
    table = _table("", curve.of, curve.against)
    if curve.held_out is not None:
        for name in (f"{curve.of}, {curve.held_out}", f"{curve.against}, {curve.held_out}"):
            table.add_column(name, justify="right")
    for name, point in curve.landmarks.items():
        table.add_row(*map(_text, _figures(name, point)), style="dim", end_section=name == [*curve.landmarks][-1])
    for i, point in enumerate(curve.points):
        table.add_row(*map(_text, _figures(str(i), point)))
    return table


def _figures(name: str, point: Point) -> list[str]:
    seen = [name, percent(point.value), percent(point.price)]
    if point.held_value is None:
        return seen
    held = ((point.held_value, point.value_interval), (point.held_price, point.price_interval))
    return seen + [percent(value) + _range(interval) for value, interval in held]


def _range(interval: tuple[float, float] | None) -> str:
    if interval is None or interval[0] == interval[1]:
        return ""
    return f" ({percent(interval[0])} to {percent(interval[1])})"


def class_json(rows: Sequence[ClassRow], *, after: bool) -> list[dict[str, Any]]:
    """Errors by class, in the order of the columns."""
    left_out = set() if after else {"after"}
    if all(row.decided is None for row in rows):
        left_out.add("decided")
    return [{key: v for key, v in asdict(row).items() if key not in left_out} for row in rows]


def worst_first(rows: Sequence[ClassRow], limit: int) -> list[ClassRow]:
    """The classes that are among the `limit` worst before or after, the worst before first; all where limit is 0."""
    by_before = sorted(rows, key=lambda row: -(row.before or 0.0))
    if limit == 0:
        return by_before
    by_after = sorted(rows, key=lambda row: -(row.after or 0.0)) if any(r.after is not None for r in rows) else []
    kept = {row.name for row in (*by_before[:limit], *by_after[:limit])}
    return [row for row in by_before if row.name in kept]


def _paired(study: Study, method: str, objective: str) -> str:
    """Mean ± deviation of the differences to the unadjusted scores on the same splits."""
    if method == "unadjusted" or "unadjusted" not in study.values:
        return "–"
    return Spread.of(study.difference(method, "unadjusted", objective)).text(signed=True)


def _text(content: str) -> Text:
    return Text(harmless(content))


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def stdout() -> Console:
    """Where tables go."""
    return Console(highlight=False, soft_wrap=True)

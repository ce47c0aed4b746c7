"""`capri demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from capri import demo as story
from capri._checks import InputError
from capri._files import write_atomically
from capri.study import Split, Spread, Study

#: What the last method is compared with.
OTHERS = (story.AS_TRAINED, "LA, tuned", "plain")


def demo(
    data: Annotated[str, typer.Option(help="Which scores to use.")] = story.DEFAULT,
    splits: Annotated[int, typer.Option(min=1, help="How many random splits to average over.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the table, the picture and the page.")] = Path("capri-demo"),
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1: as many as there are cores.")] = -1,
) -> None:
    """Show what capri does: a real classifier, five objectives, errors before and after."""
    if data not in story.DATASETS:
        raise InputError(f"--data is {data!r}; there are {', '.join(story.DATASETS)}.")
    console = Console()
    source = story.DATASETS[data]
    console.print(f"[bold]capri demo[/bold]: {source.title}")
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("tuning", total=splits * len(story.OBJECTIVES))
        results = story.run(data, splits, on_step=lambda: progress.advance(task), jobs=jobs)
    console.print(table(results))
    console.print(differences(results))
    console.print(
        f"Errors in % on test samples, mean ± standard deviation over {splits} splits; lower is better. Each column is "
        "tuned for its own objective on validation samples; the spread sdev is lowered only as far as the balanced "
        "error there stays at or below that of the model as trained.\n"
        "LA: logit adjustment. plain: one free offset per class. CAP: offsets from class attributes, pooled: with "
        "room for each class to deviate. Differences are taken split by split, on the same scores.",
        highlight=False,
    )
    write_atomically(out / "table.md", markdown(results, splits).encode())
    picture = draw(results, source.split(0), out)
    with console.status("writing a page to look at"):
        page = story.report(data)
        page.save(out / "report.html")
    console.print(f"Picture of the class errors: {picture}\nTable: {out / 'table.md'}")
    console.print(f"A page to look at, tuned for {story.SHOWN}: {out / 'report.html'}")


def table(results: Study) -> Table:
    """The results as a terminal table, the best of each column in bold."""
    grid = _grid("method")
    best = {o: results.best(o) for o in story.OBJECTIVES}
    for method, row in results.values.items():
        cells = [(Spread.of(row[o]).text(), method in best[o]) for o in story.OBJECTIVES]
        grid.add_row(method, *(f"[bold green]{text}[/]" if first else text for text, first in cells))
    return grid


def differences(results: Study) -> Table:
    """The last method less others, as a terminal table."""
    grid = _grid("other", title=f"{list(results.values)[-1]} minus another, in points")
    for name, cells in paired(results):
        grid.add_row(name, *cells)
    return grid


def _grid(heading: str, title: str | None = None) -> Table:
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in (heading, *story.OBJECTIVES):
        grid.add_column(name, no_wrap=True)
    return grid


def paired(results: Study) -> list[tuple[str, list[str]]]:
    """Rows of the differences: the last method less others, split by split."""
    last = list(results.values)[-1]
    return [
        (other, [Spread.of(results.difference(last, other, o)).text(signed=True) for o in story.OBJECTIVES])
        for other in OTHERS
    ]


def markdown(results: Study, n_splits: int) -> str:
    """Both tables as Markdown."""
    rows = [(method, [Spread.of(row[o]).text() for o in story.OBJECTIVES]) for method, row in results.values.items()]
    head, rule = " | ".join(story.OBJECTIVES), "| --- |" + " ---: |" * len(story.OBJECTIVES)
    return "\n".join(
        [
            f"| method | {head} |",
            rule,
            *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows),
            f"\nErrors in %, test, mean ± standard deviation, n = {n_splits} splits.\n",
            f"| {list(results.values)[-1]} minus | {head} |",
            rule,
            *(f"| {name} | {' | '.join(cells)} |" for name, cells in paired(results)),
            "",
        ]
    )


def draw(results: Study, split: Split, out: Path) -> Path:
    """Class errors before and after, for the first objective and the last method."""
    from capri.report import ClassErrorDisplay

    objective, method = story.OBJECTIVES[0], list(results.values)[-1]
    display = ClassErrorDisplay(
        results.class_errors[story.AS_TRAINED][objective].mean(axis=0),
        results.class_errors[method][objective].mean(axis=0),
        split.class_names,
        class_counts=split.counts,
        labels=(story.AS_TRAINED, method),
    )
    title = f"Class errors on test data, tuned for {objective} error"
    return display.save(out / "class_errors.png", title=title)

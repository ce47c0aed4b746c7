"""The command ``capri paper``: every table and figure of the paper, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from capri import InputError
from capri.extension import Stopped
from capri_paper.exhibits import Exhibit, Only, Plot, Size, Table
from capri_paper.store import Store, Unit

if TYPE_CHECKING:
    from capri_paper.grids import Block

app = typer.Typer(help="The paper's tables and figures, ours beside theirs.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Which table or figure; `capri paper list` names them.")]
Results = Annotated[
    Path, typer.Option("--results", help="Folder of stored results; of the repository, seen from its root.")
]
Data = Annotated[Path, typer.Option("--data", help="Folder of CIFAR's files and of feature files.")]
Preset = Annotated[
    Literal["cpu", "strong", "paper", "smoke"], typer.Option(help="Schedule of training; smoke takes seconds.")
]
Selection = Annotated[
    list[str] | None, typer.Option("--only", help="method=cap,la or data=cifar10-lt; may be repeated.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Train otherwise: --set trainer.max_epochs=5. May be repeated.")
]
MOST = 10  # seeds that `show` looks for
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds (draws, splits, networks).")]


@app.command("list")
def list_() -> None:
    """Name all tables and figures."""
    found = exhibits()
    width = max(map(len, found))
    for name, exhibit in found.items():
        typer.echo(f"{name:<{width}}  {'table ' if isinstance(exhibit, Table) else 'figure'}  {exhibit.title}")


@app.command()
def run(
    name: Name,
    preset: Preset = "cpu",
    seeds: Seeds = 3,
    only: Selection = None,
    set_: Changes = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Units at a time (joblib); training uses all cores.")] = 1,
    results: Results = Path("reproduction/results"),
    data: Data = Path("data"),
) -> None:
    """Compute what is missing; what is stored is not computed again. Interrupt it as you like."""
    from capri_paper.runner import run as run_units

    exhibit = _exhibit(name, set_ or [])
    units = exhibit.units(range(seeds), preset, Only.parse(only or []))
    try:
        problems = run_units(units, _store(results, data, preset), jobs)
    except Stopped as stop:
        stop.remedy = "What is done is kept: run the same command again, and it goes on."
        raise
    _say_problems(problems)
    typer.echo(f"all {len(units)} units are there; see `capri paper show {name} --preset {preset}`")


@app.command()
def campaign(
    hours: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many hours; if not said, go on.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Only say what is there and what is missing.")] = False,
    results: Results = Path("reproduction/results"),
    data: Data = Path("data"),
) -> None:
    """Fill the tables of searches and trained images, the most telling runs first, at low priority.

    A run that is stopped goes on from its last epoch with the same command; each result is stored as it ends.
    """
    from capri_paper import campaign as plan
    from capri_paper.runner import run as run_units

    store = _store(results, data, "cpu")
    if list_:
        for unit, stage in plan.planned(exhibits()).items():
            mark = "there  " if store.find(unit) is not None else "missing"
            typer.echo(f"{mark}  {stage.table:<10}  {unit.kind:<8}  {unit.label}")
        return
    plan.step_back()
    with plan.alarm(None if hours is None else 3600 * hours) as rung:
        try:
            problems = run_units(plan.missing(store, exhibits()), store)
        except Stopped as stop:
            stop.remedy = "What is done is kept: run the same command again, and it goes on."
            if not rung.is_set():
                raise
            typer.echo(f"the time is up. {stop.remedy}")
            return
    _say_problems(problems)


@app.command()
def show(
    name: Name,
    preset: Preset = "cpu",
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"How many seeds; all of the first {MOST} if not said.")
    ] = None,
    only: Selection = None,
    set_: Changes = None,
    form: Annotated[Literal["rich", "markdown", "latex"], typer.Option("--format", help="Of tables.")] = "rich",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Of figures: a .png or .svg file.")] = None,
    results: Results = Path("reproduction/results"),
    data: Data = Path("data"),
) -> None:
    """Print a table, or draw a figure, from stored results."""
    exhibit, store = _exhibit(name, set_ or []), _store(results, data, preset)
    if not isinstance(exhibit, Table):
        seeds = seeds or _whole(exhibit, store, preset)
        missing = [u for u in exhibit.units(range(seeds), preset, Only.parse()) if store.find(u) is None]
        if missing:
            raise InputError(
                f"{len(missing)} results of {name!r} are missing (the first: {missing[0].label}); "
                f"run `capri paper run {name} --preset {preset} --seeds {seeds}` first."
            )
        path = out or Path(f"{name}.png")
        exhibit.draw(store, range(seeds), preset, path)
        typer.echo(f"{exhibit.title}\nwrote {path}")
        return
    blocks = _blocks(exhibit, store, seeds or MOST, preset, Only.parse(only or []))
    _print_blocks(exhibit, blocks, form)
    typer.echo(("% " if form == "latex" else "") + _footer(exhibit, blocks, preset, set_ or []))


@app.command()
def scores() -> None:
    """Say what the scores that come with the package are, as Markdown."""
    from capri import packs
    from capri.evaluation import evaluate

    typer.echo("| pack | network | trained on | epochs | seed | commit | images | balanced error | sdev |")
    typer.echo("| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for name in packs.names():
        pack = packs.load(name)
        config, counts = pack.card["config"], pack.train_counts
        errors = evaluate(pack.y, pack.logits.argmax(axis=1), len(counts), ["balanced", "sdev"])
        cells = [
            name,
            config["model"]["name"],
            f"{counts.sum():,} images, {counts.max():,} … {counts.min():,} per class",
            config["trainer"]["max_epochs"],
            config["seed"],
            (pack.card["commit"] or "unknown")[:12],
            f"{len(pack.y):,}",
            *(f"{100 * errors[objective]:.2f} %" for objective in errors),
        ]
        typer.echo("| " + " | ".join(map(str, cells)) + " |")


def _say_problems(problems: list[tuple[Unit, str]]) -> None:
    for unit, reason in problems:
        typer.echo(f"not run: {unit.label}: {reason}", err=True)
    if problems:
        raise typer.Exit(code=2)


def _whole(figure: Plot, store: Store, size: Size) -> int:
    """The most seeds of which a figure has everything, at least one."""
    for n in range(MOST, 1, -1):
        if all(store.find(unit) is not None for unit in figure.units(range(n), size, Only.parse())):
            return n
    return 1


def _blocks(table: Table, store: Store, seeds: int, size: Size, only: Only) -> list[Block]:
    from capri_paper import grids

    blocks = list(grids.blocks(table, store, range(seeds), size, only))
    if not any(block.run for block in blocks):
        typer.echo(f"Nothing of it is stored; run `capri paper run {table.name} --preset {size}` first.", err=True)
    return blocks


def _print_blocks(table: Table, blocks: list[Block], form: str) -> None:
    from rich.console import Console

    from capri_paper import grids

    if form != "rich":
        for block in blocks:
            typer.echo((grids.markdown(block) if form == "markdown" else grids.latex(block)) + "\n")
        return
    console = Console()
    console.print(f"[bold]{table.title}[/bold]", highlight=False)
    for block in blocks:
        for grid in grids.rich(block, console.width):
            console.print(grid, highlight=False)


def _footer(table: Table, blocks: list[Block], size: Size, changes: list[str]) -> str:
    brackets = "; in brackets the paper's number, and ours − the paper's" if any(b.paper for b in blocks) else ""
    stand_in = " Digits stand in for all data." if size == "smoke" else ""
    changed = f" Trained with {', '.join(changes)}." if changes else ""
    return f"Preset {size}: mean ± standard deviation over seeds, in %{brackets}.{stand_in}{changed} {table.note}"


def exhibits() -> dict[str, Exhibit]:
    """All tables and figures by name."""
    from capri_paper.figures import FIGURES
    from capri_paper.tables import TABLES

    return {e.name: e for e in (*TABLES, *FIGURES)}


def _exhibit(name: str, changes: list[str]) -> Exhibit:
    from capri_paper.training import adapted

    found = exhibits()
    if name not in found:
        raise InputError(f"there is no table or figure {name!r}; there are {', '.join(found)}.")
    exhibit = found[name]
    if not changes:
        return exhibit
    if not isinstance(exhibit, Table) or not exhibit.trains:
        raise InputError(f"--set is for tables of trained networks, and {name!r} is not one.")
    return exhibit.under(lambda unit: adapted(unit, changes))


def _store(results: Path, data: Path, size: Size) -> Store:
    """Smoke runs keep to themselves."""
    from capri_paper.runner import WORKS

    if not results.is_dir():
        typer.echo(
            f"nothing is stored in {results.resolve()}; what comes with the repository is found from its root, or with "
            "--results FOLDER.",
            err=True,
        )
    return Store(results / "smoke" if size == "smoke" else results, data, WORKS)

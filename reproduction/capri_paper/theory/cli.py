"""``capri theory``: the two pictures of the Gaussian mixture, as files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """File formats of the pictures."""

    png = "png"
    svg = "svg"


def theory(
    out: Annotated[Path, typer.Option(help="Folder for the pictures; made where it is missing.")] = Path("theory"),
    samples: Annotated[int, typer.Option(min=50, help="Training samples of each simulated SVM.")] = 600,
    seeds: Annotated[int, typer.Option(min=0, help="Draws behind each simulated dot; 0 or 1: no dots.")] = 10,
    image_format: Annotated[Format, typer.Option("--format", help="File format.")] = Format.png,
) -> None:
    """Draw when several attributes help: the best margin of a mixture's classes by frequency and noise.

    theory_margins: the paper's figure. theory_low_signal: where its claim reverses. About half a minute.
    """
    from capri_paper.theory import figures

    out.mkdir(parents=True, exist_ok=True)
    for name, draw in (("theory_margins", figures.margin_figure), ("theory_low_signal", figures.low_signal_figure)):
        path = out / f"{name}.{image_format.value}"
        figures.save(draw(n=samples, seeds=seeds), path)
        typer.echo(f"{path}")


app = typer.Typer(add_completion=False)
app.command()(theory)

if __name__ == "__main__":
    app()

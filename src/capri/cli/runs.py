"""What the commands that train share: their options, where a resumed run finds its settings, and the closing lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from capri._stopping import Stopped
from capri.train.config import LAST

ConfigFile: TypeAlias = Annotated[
    Path | None, typer.Argument(help="Settings as TOML; see --print-config.", show_default=False)
]
Preset: TypeAlias = Annotated[
    str | None, typer.Option(help="Where the defaults come from: cpu, paper, imagenet-lt, clinc150-lt, features.")
]
Assignments: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting: --set trainer.max_epochs=5. May be repeated.")
]
Out: TypeAlias = Annotated[str | None, typer.Option("--out", "-o", help="Folder of the run's files.")]
Resume: TypeAlias = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint in the run's folder.")
]
PrintConfig: TypeAlias = Annotated[bool, typer.Option("--print-config", help="Show all settings and stop.")]


def settings_file(config: Path | None, preset: str | None, own: Path, resume: bool) -> Path | None:
    """The file of settings: as given, or the run's own where it is resumed without any."""
    return own if resume and config is None and preset is None and own.exists() else config


@contextmanager
def resumable(out: str) -> Iterator[None]:
    """Whoever stops the run inside is told how to go on."""
    try:
        yield
    except Stopped as stop:
        kept = [*Path(out).glob(f"**/{LAST}")]
        stop.remedy = f"Go on with --resume --out {out}." if kept else "No epoch had ended: start it again."
        raise


def report(summary: dict[str, Any], out: str) -> None:
    """Test errors, and where the files are."""
    errors = "  ".join(f"{name} {100 * value:.2f} %" for name, value in list(summary["test"].items())[:6])
    typer.echo(f"test: {errors}\nwrote {out}")

"""The command ``capri train``. Torch loads only when a run begins."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from capri.train.config import Config, resolve


def train(
    config: Annotated[
        Path | None, typer.Argument(help="Settings as TOML; see --print-config.", show_default=False)
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Where the defaults come from: cpu, paper, imagenet-lt, clinc150-lt, features.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting: --set trainer.max_epochs=5. May be repeated.")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", "-o", help="Folder of the run's files.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in the run's folder.")
    ] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Show all settings and stop.")] = False,
) -> None:
    """Train a classifier on long-tailed data; checkpoints each epoch, and ends with logits ready for `capri tune`."""
    settings = _settings(config, preset, set_ or [], out, resume)
    if print_config:
        sys.stdout.write(settings.to_toml(comments=True))
        return
    from capri.train.runner import run

    summary = run(settings, resume=resume)
    if summary:
        errors = "  ".join(f"{name} {100 * value:.2f} %" for name, value in list(summary["test"].items())[:6])
        typer.echo(f"test: {errors}\nwrote {settings.out}")


def _settings(config: Path | None, preset: str | None, assignments: list[str], out: str | None, resume: bool) -> Config:
    """Resolve the settings; a run that is resumed without any keeps its own."""
    if resume and config is None and preset is None and out is not None:
        own = Path(out) / "config.toml"
        if own.exists():
            config = own
    return resolve(config, preset=preset, out=out, assignments=assignments)

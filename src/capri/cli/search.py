"""The commands ``capri search``, ``capri retrain`` and ``capri pretrain``. Torch loads only when a run begins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from capri.cli import runs
from capri.train.config import resolve
from capri.train.search_config import resolve_search


def search(
    config: runs.ConfigFile = None,
    preset: runs.Preset = None,
    set_: runs.Assignments = None,
    out: runs.Out = None,
    resume: runs.Resume = False,
    only: Annotated[bool, typer.Option("--only", help="Search, and do not retrain.")] = False,
    print_config: runs.PrintConfig = False,
) -> None:
    """Search the loss on a validation split, retrain on all training data with it, and evaluate on test."""
    own = Path(out or "") / "search" / "config.toml"
    file = config if out is None else runs.settings_file(config, preset, own, resume)
    settings = resolve_search(file, preset=preset, out=out, assignments=set_ or [])
    if print_config:
        sys.stdout.write(settings.to_toml(comments=True))
        return
    from dataclasses import replace

    from capri.train import search_runner

    if only:
        with runs.resumable(settings.out):
            found = search_runner.search(replace(settings, out=str(Path(settings.out) / "search")), resume=resume)
        if found:
            typer.echo(_found(found, settings.out))
        return
    with runs.resumable(settings.out):
        summary = search_runner.search_and_retrain(settings, resume=resume)
    if summary["retrain"]:
        runs.report(summary["retrain"], settings.out)


def _found(found: Mapping[str, Any], out: str) -> str:
    """What a search by itself has to say."""
    return f"{found['objective']} on validation: {found['value']:.4f}\nwrote {out}/search/policy.json"


def retrain(
    config: runs.ConfigFile = None,
    policy: Annotated[
        Path, typer.Option("--policy", help="The strategy: what `capri search` found or `capri tune` wrote.")
    ] = Path("policy.json"),
    transfer: Annotated[
        str, typer.Option(help="A post-hoc policy in the loss: unchanged (the paper) or inverse (1/Δ, l/Δ).")
    ] = "unchanged",
    preset: runs.Preset = None,
    set_: runs.Assignments = None,
    out: runs.Out = None,
    resume: runs.Resume = False,
) -> None:
    """Train on all training data with the strategy of a policy."""
    settings = resolve(config, preset=preset, out=out or "runs/retrain", assignments=set_ or [])
    from capri.train.search_runner import retrain as run_retrain

    with runs.resumable(settings.out):
        summary = run_retrain(settings, policy, transfer=transfer, resume=resume)
    runs.report(summary, settings.out)


def pretrain(
    config: runs.ConfigFile = None,
    epochs: Annotated[int, typer.Option(help="Epochs of self-supervised training.")] = 20,
    preset: runs.Preset = None,
    set_: runs.Assignments = None,
    out: runs.Out = None,
    resume: runs.Resume = False,
) -> None:
    """Learn features without labels (SimSiam); `capri search --set search.init=…` starts from them."""
    assignments = [f"trainer.max_epochs={epochs}", *(set_ or [])]
    settings = resolve(config, preset=preset, out=out or "runs/pretrain", assignments=assignments)
    from capri.train.pretrain import pretrain as run_pretrain

    with runs.resumable(settings.out):
        found = run_pretrain(settings, resume=resume)
    typer.echo(
        f"spread of outputs {found['spread']:.3f} of at most 1 (0: collapsed); linear probe, balanced error: "
        f"{100 * found['probe']:.1f} %, of a random network {100 * found['probe_random']:.1f} %\n"
        f"wrote {settings.out}/encoder.safetensors"
    )

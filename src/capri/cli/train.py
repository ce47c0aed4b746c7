"""The command ``capri train``. Torch loads only when a run begins."""

from __future__ import annotations

import sys
from pathlib import Path

from capri.cli import runs
from capri.train.config import resolve


def train(
    config: runs.ConfigFile = None,
    preset: runs.Preset = None,
    set_: runs.Assignments = None,
    out: runs.Out = None,
    resume: runs.Resume = False,
    print_config: runs.PrintConfig = False,
) -> None:
    """Train a classifier on long-tailed data; checkpoints each epoch, and ends with logits ready for `capri tune`."""
    file = config if out is None else runs.settings_file(config, preset, Path(out) / "config.toml", resume)
    settings = resolve(file, preset=preset, out=out, assignments=set_ or [])
    if print_config:
        sys.stdout.write(settings.to_toml(comments=True))
        return
    from capri.train.runner import run

    with runs.resumable(settings.out):
        summary = run(settings, resume=resume)
    if summary:
        runs.report(summary, settings.out)

"""The folder of a run: one process at a time, one run, and not another one's settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from capri._checks import InputError
from capri._files import locked, remove_partial, write_atomically
from capri.train.config import LAST, PREVIOUS, SUMMARY, Config
from capri.train.settings import build, differences, read_toml

#: Where files lie decides nothing; what those files hold that a run starts from is in the checkpoint's identity.
ELSEWHERE = ("out", "data.root", "loss.policy", "search.init", "search.known")

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")  # as launchers of several processes set them


@contextmanager
def claimed(config: Config, resume: bool) -> Iterator[Path]:
    """The run's folder, held as long as the run goes on: another run there is refused, of training or of a search."""
    folder = Path(config.out)
    advice = "wait until it has ended, or choose another folder with --out."
    with locked(folder / "run.lock", advice) if _leads(config) else nullcontext():
        _check(folder, config, resume)
        if _leads(config):
            _prepare(folder, config)
        yield folder


def _leads(config: Config) -> bool:
    """Whether this is the first of the run's processes: the others come into a folder that it has claimed."""
    alone = config.trainer.devices * config.trainer.num_nodes == 1
    return alone or not any(int(os.environ.get(name) or 0) for name in RANKS)


def _check(folder: Path, config: Config, resume: bool) -> None:
    path = folder / "config.toml"
    if not resume and any((folder / name).exists() for name in (LAST, PREVIOUS, SUMMARY)):
        raise InputError(f"{folder} holds a run already; go on with --resume, or choose another folder with --out.")
    if started_from(folder) is None or not path.exists():
        return
    before = build(type(config), read_toml(path.read_text(encoding="utf-8"), str(path))).to_mapping()
    changed = [name for name in differences(before, config.to_mapping()) if name not in ELSEWHERE]
    if changed:
        raise InputError(
            f"{folder} was started with other settings: {', '.join(changed)}. Resume with the same ones "
            "(give no config and no --set, and its own are taken), or choose another folder with --out."
        )


def _prepare(folder: Path, config: Config) -> None:
    """Nothing that was left behind may pass for a file of this run, which has ended when its summary is there."""
    for place in (folder, (folder / LAST).parent):
        remove_partial(place)
    (folder / SUMMARY).unlink(missing_ok=True)
    write_atomically(folder / "config.toml", config.to_toml().encode())


def started_from(folder: Path) -> Path | None:
    """The checkpoint to go on from: the last, or the one before where that was removed; None without any."""
    return next((folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()), None)

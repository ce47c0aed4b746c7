"""Ended at random moments, by SIGKILL, SIGTERM or SIGINT, and resumed: the result is that of the undisturbed run."""

from __future__ import annotations

import json
import os
import runpy
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import capri.train.pretrain
import capri.train.search_runner  # noqa: F401 (imported once, before forks)
import capri_paper.runner  # noqa: F401

pytestmark = pytest.mark.faults
SHARED = runpy.run_path(str(Path(__file__).parents[1] / "train" / "conftest.py"))
SIGNALS = {signal.SIGKILL: 137, signal.SIGTERM: 143, signal.SIGINT: 130}
PATIENCE = 180
GRACE = 0.5  # seconds in which a process is found ended that was at its end
LATE = "signals that came after the end (no kills)"
CLOCKS = {"seconds", "commit", "versions", "logits.npz"}  # a digest of arrays, compared below, and of a clock


def features(folder: Path, epochs: int) -> list[str]:
    SHARED["write_features"](folder / "tiny.npz")
    settings = {"data.root": folder, "data.file": "tiny.npz", "data.profile": "exponential", "data.imbalance": 4,
                "model.name": "linear", "trainer.max_epochs": epochs, "trainer.batch_size": 16,
                "trainer.accelerator": "cpu"}  # fmt: skip
    return ["--preset", "features", *(f"--set={name}={value}" for name, value in settings.items())]


def train(folder: Path) -> list[str]:
    return ["train", *features(folder, 6)]


def search(folder: Path) -> list[str]:
    return ["search", *features(folder, 2), "--set=search.epochs=3", "--set=search.warmup_epochs=1",
            '--set=search.attributes=["freq"]']  # fmt: skip


def pretrain(folder: Path) -> list[str]:
    root = SHARED["write_tiny_cifar10"](folder / "data")
    settings = (f"data.root={root}", "data.imbalance=5", "trainer.accelerator=cpu", "trainer.batch_size=32",
                "trainer.limit_train_batches=1", "trainer.max_epochs=3")  # fmt: skip
    return ["pretrain", *(f"--set={setting}" for setting in settings)]


def paper(folder: Path) -> list[str]:
    return ["paper", "run", "transfer", "--preset", "smoke", "--seeds", "1", "--only", "method=la", "--data",
            str(folder)]  # fmt: skip


def resumed(words: list[str], out: Path) -> list[str]:
    return [*words, "--results", str(out)] if words[0] == "paper" else [*words, "--out", str(out), "--resume"]


def without_clocks(value):
    if isinstance(value, dict):
        return {
            k: without_clocks(v) for k, v in value.items() if k not in CLOCKS and not k.endswith(("sha256", "checksum"))
        }
    return [without_clocks(v) for v in value] if isinstance(value, list) else value


def content(out: Path) -> dict[str, object]:
    """What a run leaves, but for clocks: networks and arrays bit by bit, tables and figures as they are."""
    found: dict[str, object] = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        name = str(path.relative_to(out))
        if path.suffix in (".safetensors", ".jsonl", ".json", ".csv", ".npz"):
            found[name] = _plain(path, out)
        elif path.name.endswith(".part"):
            found[name] = "litter"
    return found


def _plain(path: Path, out: Path) -> object:
    if path.suffix in (".json", ".jsonl"):
        text = path.read_text().replace(str(out), "")  # paths of a policy or a network to start from
        return [without_clocks(json.loads(line)) for line in (text.splitlines() if path.suffix == ".jsonl" else [text])]
    if path.name == "metrics.csv":
        return SHARED["read_metrics"](path.parent)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files if name != "card"}
    return path.read_bytes()


def ended(child: int) -> bool:
    """Has the process come to its end, which nobody has asked about yet?"""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.parametrize(("command", "kills"), [(train, 26), (search, 16), (pretrain, 8), (paper, 12)],
                         ids=lambda v: getattr(v, "__name__", v))  # fmt: skip
def test_ended_and_resumed(tally, tmp_path, rng, forked, waited, monkeypatch, command, kills):
    """A signal counts as a kill where it found the process at work. Each run is signalled twice, unless it ends."""
    monkeypatch.chdir(tmp_path)
    words, log = command(tmp_path), tmp_path / "log"

    def said() -> str:
        text = log.read_text(errors="replace")
        log.write_text("")
        return text

    def signalled(number: int, out: Path, window: float) -> bool:
        """Whether the signal found the run at work."""
        child = forked(resumed(words, out), log)
        time.sleep(float(rng.uniform(0.02, window)))
        late = ended(child)
        os.kill(child, number)
        sent = time.monotonic()
        code, text, heard = waited(child, PATIENCE), said(), time.monotonic() - sent
        late = late or (code == 0 and heard < GRACE)  # it ended in the same moment
        fine = code == (0 if late else SIGNALS[number]) and "Traceback" not in text
        problem = None if fine else f"{number.name}: code {code} after {heard:.1f} s: {text[-600:]}"
        with tally(LATE if late else f"ended by a signal: {command.__name__}") as check:
            check(problem, out.name)
        return not late

    started = time.monotonic()
    assert waited(forked(resumed(words, tmp_path / "whole"), log), PATIENCE) == 0, said()[-2000:]
    windows = [time.monotonic() - started] * 2  # of the first signal of a run, and of the second
    expected, landed, rounds = content(tmp_path / "whole"), 0, 0
    assert expected
    while landed < kills:
        out, rounds = tmp_path / f"out{rounds}", rounds + 1
        assert rounds < 4 * kills, f"{landed} of {kills} signals came in time"
        for k in range(2):
            if not signalled(list(SIGNALS)[rng.integers(3)], out, windows[k]):
                windows[k] *= 0.75  # the first run was slower
                break
            landed += 1
        code, text = waited(forked(resumed(words, out), log), PATIENCE), said()
        found = content(out) if code == 0 else {}
        differ = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
        with tally(f"resumed after it: {command.__name__}") as check:
            check(f"code {code}: {text[-600:]}" if code else f"differ: {differ}" if differ else None, out.name)

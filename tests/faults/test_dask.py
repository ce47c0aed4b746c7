"""Tuning on Dask while its workers are killed, or the process that tunes: the policy is that of the undisturbed run."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capri import LogitAdjuster, Policy
from capri.blocks import as_source

pytest.importorskip("distributed", reason="the extra dask is not installed")
pytestmark = pytest.mark.faults
SCRIPT = Path(__file__).with_name("dask_tuning.py")
PATIENCE = 120  # seconds
WORKERS, MAIN = 12, 6  # kills
ONCE = 3.0  # seconds within which signals come: about those of a fit


@pytest.fixture(scope="module")
def expected() -> str:
    """The policy of the same samples in memory."""
    shared = runpy.run_path(str(SCRIPT))
    policy = LogitAdjuster(**shared["SETTINGS"]).fit(as_source(*shared["samples"]()), memory="1GB").policy_
    return policy.to_json()


@contextlib.contextmanager
def tuning(fits: int, out: Path) -> Iterator[subprocess.Popen[str]]:
    """The script at work, which is ended in any case."""
    words = [sys.executable, SCRIPT, str(fits), str(out), str(out.parent / "workers")]
    with (out.parent / "log").open("w") as log:  # Dask says much of each worker that it loses
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line; an error if it does not come."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE)[0], f"nothing comes for {PATIENCE} s"
    line = process.stdout.readline()
    assert line, f"ended with {process.wait(PATIENCE)}"
    return dict(json.loads(line))


def gone(numbers: list[int]) -> bool:
    """Do these processes end on their own?"""
    end = time.monotonic() + PATIENCE / 2
    while time.monotonic() < end:
        if not any(_at_work(number) for number in numbers):
            return True
        time.sleep(0.1)
    return False


def _at_work(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_is_killed(tally, tmp_path, rng, expected):
    out, digest = tmp_path / "policy.json", json.loads(expected)["digest"]
    with tuning(WORKERS + 1, out) as process, tally("Dask: a worker is killed") as check:
        workers = told(process)["workers"]
        for case in range(WORKERS + 1):
            if case:  # the first fit is that of workers that have yet to import
                time.sleep(float(rng.uniform(0, ONCE / 2)))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(workers[rng.integers(2)], signal.SIGKILL)
            said = told(process)
            workers = said["workers"]
            check(None if said["digest"] == digest else "another policy", case)
        assert process.wait(PATIENCE) == 0
    assert out.read_text() == expected


def test_the_process_that_tunes_is_ended(tally, tmp_path, rng, expected):
    out, numbers = tmp_path / "policy.json", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
    with tally("Dask: the process that tunes is ended") as check:
        for case in range(MAIN):
            number = numbers[case % 3]
            with tuning(1000, out) as process:
                workers = told(process)["workers"]
                time.sleep(float(rng.uniform(0, 2 * ONCE)))
                process.send_signal(number)
                try:
                    code = process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    code = None
            problem = None if code == -number else f"code {code}"
            if not gone(workers):
                problem = "its workers live on"
            if out.exists() and out.read_text() != expected:
                problem = "the file is not the policy"
            check(problem, f"{number.name} {case}")
        Policy.from_json(expected).save(out)
        left = [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")]
        check(f"left {left}" if left else None, "at the end")

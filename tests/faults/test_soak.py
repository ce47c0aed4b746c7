"""Many fits, one after the other: memory does not grow, and another process finds the same."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.faults
FITS, SETTLED = 200, 60  # by then all is compiled, and every kind of problem has been met
LARGEST = 50e3  # bytes a fit may seem to leave behind: noise of the allocator


def soaked(seed: int) -> dict[str, list]:
    words = [sys.executable, Path(__file__).with_name("soak.py"), str(FITS), str(seed)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def test_memory_stays_and_results_repeat(tally):
    first, second = soaked(1), soaked(1)
    with tally("a soak: fits repeated elsewhere") as check:
        for i, (one, other) in enumerate(zip(first["digests"], second["digests"], strict=True)):
            check(None if one == other else "another answer in a second process", i)
    with tally("a soak: memory") as check:
        for i, run in enumerate((first, second)):
            held = np.array(run["memory"][SETTLED:])
            slope = np.polyfit(np.arange(len(held)), held, 1)[0]
            check(None if slope < LARGEST else f"{slope / 1e3:.0f} kB more with each fit", i)

"""Bits that a disk has flipped: noticed where something was promised, everywhere in the file."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from capri import InputError, Policy

pytestmark = pytest.mark.faults
SHARED = runpy.run_path(str(Path(__file__).parents[1] / "train" / "conftest.py"))
FLIPS = 40  # of each file


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    """One to four bits, anywhere; in short files all places come up."""
    data = bytearray(content)
    for at in rng.integers(0, len(data), rng.integers(1, 5)):
        data[at] ^= 1 << int(rng.integers(8))
    return bytes(data)


def noticed(read, expected) -> str | None:
    try:
        found = read()
    except InputError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if found == expected else "taken for whole"


@pytest.fixture
def each(tally, rng):
    """`each(kind, path, read)`: flips bits of a file and reads it, which must notice or make no difference."""

    def check_each(kind, path, read, flips=FLIPS):
        content = path.read_bytes()
        expected = read()
        with tally(f"flipped bits: {kind}") as check:
            for case in range(flips):
                path.write_bytes(flipped(content, rng))
                check(noticed(read, expected), f"{path.name} {case}")
        path.write_bytes(content)

    return check_each


def test_policies(each, good, tmp_path):
    path = tmp_path / "policy.json"
    shutil.copy(good / "policy.json", path)
    each("policies", path, lambda: Policy.load(path).to_json(), 10 * FLIPS)


def test_packs(each, tmp_path, monkeypatch):
    from capri import packs

    shutil.copytree(Path(packs.__file__).parent, tmp_path / "packs")
    monkeypatch.setattr(packs.resources, "files", lambda _: tmp_path / "packs")

    def read():
        return packs.load.__wrapped__("cifar10-lt").logits.sum()

    each("packs", tmp_path / "packs" / "cifar10-lt.npz", read, 20)


def test_checkpoints_and_summaries(each, forked, waited, tmp_path):
    from capri.train.artefacts import read_summary
    from capri.train.checkpoints import load_checkpoint
    from capri.train.config import LAST, PREVIOUS, SUMMARY

    SHARED["write_features"](tmp_path / "tiny.npz")
    settings = {"data.root": tmp_path, "data.file": "tiny.npz", "model.name": "linear", "trainer.max_epochs": 2,
                "trainer.accelerator": "cpu"}  # fmt: skip
    words = ["train", "--preset", "features", *(f"--set={k}={v}" for k, v in settings.items())]
    assert waited(forked([*words, "--out", str(tmp_path / "run")], tmp_path / "log"), 120) == 0
    for name in (LAST, PREVIOUS):
        path = tmp_path / "run" / name
        each("checkpoints", path, lambda path=path: load_checkpoint(path)["epoch"])
    summary = tmp_path / "run" / SUMMARY
    each("summaries", summary, lambda: json.dumps(read_summary(summary)))


def test_stored_results(each, tmp_path):
    from capri_paper.store import Store, Unit

    store = Store(tmp_path, tmp_path, {"posthoc": lambda unit, _: {"value": unit.settings["n"] / 7}})
    units = [Unit("posthoc", {"n": n}, label=f"n = {n}") for n in range(3)]
    for unit in units:
        store.need(unit)
    path = store.path("posthoc")
    # A label is for people and guarded by nothing; results and settings are.
    each("stored results", path, lambda: [_found(store, unit) for unit in units], 10 * FLIPS)


def _found(store, unit):
    record = store.records(unit.kind).get(unit.digest)
    return None if record is None else (record["result"], record["settings"])

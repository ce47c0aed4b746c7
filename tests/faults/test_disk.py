"""Disks that are full or read-only, folders and files that several processes want at once, forks and threads."""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from capri import LogitAdjuster, Policy, Strategy
from capri._files import write_atomically

pytestmark = pytest.mark.faults
SHARED = runpy.run_path(str(Path(__file__).parents[1] / "train" / "conftest.py"))
PATIENCE = 120


@pytest.fixture
def tiny(tmp_path):
    """Arguments of a run that takes a second or two."""
    SHARED["write_features"](tmp_path / "tiny.npz")
    settings = {"data.root": tmp_path, "data.file": "tiny.npz", "model.name": "linear", "trainer.max_epochs": 3,
                "trainer.accelerator": "cpu", "trainer.batch_size": 16}  # fmt: skip
    return ["--preset", "features", *(f"--set={k}={v}" for k, v in settings.items())]


@pytest.fixture
def limited():
    """`limited(size)`: no file may grow beyond, as on a full disk (without the signal that would end the process)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[0][1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before[0])
    signal.signal(signal.SIGXFSZ, before[1])


def commands(good: Path, out: Path) -> list[list[str]]:
    return [
        ["tune", f"{good}/scores.npz", "--method", "la", "-o", f"{out}/p.json"],
        ["apply", f"{good}/scores.npz", f"{good}/policy.json", "-o", f"{out}/p.csv"],
        ["apply", f"{good}/scores.npz", f"{good}/policy.json", "--adjusted", f"{out}/a.npy", "-o", f"{out}/p.npz"],
        ["apply", f"{good}/scores.npz", f"{good}/policy.json", "-o", f"{out}/p.parquet"],
        ["fold", f"{good}/layer.npz", f"{good}/policy.json", "-o", f"{out}/f.safetensors"],
    ]


def outputs(words: list[str]) -> list[Path]:
    return [Path(words[k + 1]) for k, word in enumerate(words) if word in ("-o", "--adjusted")]


@pytest.mark.parametrize("size", [0, 1, 50, 200, 300])
def test_a_full_disk(capri, good, tally, tmp_path, limited, size):
    with tally("a full disk") as check:
        for words in commands(good, tmp_path):
            for path in outputs(words):
                path.write_bytes(b"old")
            limited(size)
            done = capri(*words)
            limited(resource.RLIM_INFINITY)
            problem = done.problem or (None if done.code in (0, 2) else f"exit code {done.code}")
            kept = [p.name for p in outputs(words) if done.code == 2 and size < 3 and p.read_bytes() != b"old"]
            left = [p.name for p in tmp_path.iterdir() if p.name.endswith(".part")]
            check(problem or (f"lost {kept}, left {left}" if kept or left else None), f"{words[0]} {size}")


def test_a_full_disk_while_training(tally, tmp_path, tiny, forked, waited):
    """Files fit up to some size; the run ends with one line, and goes on when there is room."""
    with tally("a full disk, training") as check:
        for size in (0, 500, 2000, 5000, 20_000):
            out, log = tmp_path / f"run{size}", tmp_path / f"log{size}"
            child = _with_limit(forked, size, ["train", *tiny, "--out", str(out)], log)
            code = waited(child, PATIENCE)
            text = log.read_text(errors="replace")
            problem = None if code in (0, 2) and "Traceback" not in text else f"code {code}: {text[-300:]}"
            if problem is None and code == 2:
                again = waited(forked(["train", *tiny, "--out", str(out), "--resume"], log), PATIENCE)
                problem = None if again == 0 else f"resumed with {again}: {log.read_text(errors='replace')[-300:]}"
            check(problem, f"{size} bytes")


def _with_limit(forked, size, arguments, log):
    log.write_text("")
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log.write_text("")
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    inner = forked(arguments, Path(os.devnull) if size == 0 else log)
    _, status = os.waitpid(inner, 0)
    os._exit(os.waitstatus_to_exitcode(status) % 256)


def test_a_small_disk_of_its_own(capri, good, tally, tmp_path):
    """A file system of 64 kB, where the user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True)
    if made.returncode:
        pytest.skip("no right to mount a file system")
    try:
        with tally("a full disk") as check:
            write_atomically(disk / "p.json", (good / "policy.json").read_bytes())
            with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while filler.write(bytes(4096)):
                    pass
            before = (disk / "p.json").read_bytes()
            for words in commands(good, disk):
                done = capri(*words)
                whole = (disk / "p.json").read_bytes() == before and not list(disk.glob(".*.part"))
                check(done.problem or (None if done.code == 2 and whole else f"code {done.code}"), words[0])
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_is_read_only(good, tally, tmp_path, forked, waited, tiny):
    """As another user, since root may write anywhere."""
    closed, log = tmp_path / "closed", tmp_path / "log"
    closed.mkdir(mode=0o555)
    log.touch(0o666)
    for folder in (good, *good.parents[:2], tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    os.chmod(log, 0o666)  # noqa: PTH101
    for path in good.iterdir():
        path.chmod(0o644)
    with tally("a read-only folder") as check:
        for words in [*commands(good, closed), ["train", *tiny, "--out", f"{closed}/run"]]:
            child = os.fork()
            if child == 0:
                os.setuid(65534)
                inner = forked(words, log)
                _, status = os.waitpid(inner, 0)
                os._exit(os.waitstatus_to_exitcode(status) % 256)
            code = waited(child, PATIENCE)
            text = log.read_text(errors="replace")
            fine = code == 2 and "Traceback" not in text and not list(closed.iterdir())
            check(None if fine else f"code {code}: {text[-300:]}", words[0])


def test_two_processes_in_one_folder(tally, tmp_path, tiny, forked, waited):
    with tally("two processes in one run folder") as check:
        for case in range(5):
            out = tmp_path / f"run{case}"
            logs = [tmp_path / f"{name}{case}" for name in "ab"]
            children = [forked(["train", *tiny, "--out", str(out)], log) for log in logs]
            codes = sorted(str(waited(child, PATIENCE)) for child in children)
            text = "".join(log.read_text() for log in logs)
            fine = codes == ["0", "2"] and "Traceback" not in text and ("in use by" in text or "holds a run" in text)
            check(None if fine and (out / "summary.json").exists() else f"codes {codes}: {text[-400:]}", case)


def test_many_writers_and_readers_of_one_policy(tally, tmp_path):
    path = tmp_path / "policy.json"
    policies = [Policy(Strategy.of(3, l=[k, 0, 0]), "balanced", ("a", "b", "c")) for k in range(8)]
    digests = {policy.digest for policy in policies}
    policies[0].save(path)
    with tally("writers and readers at once") as check:
        children = []
        for policy in policies[:4]:
            child = os.fork()
            if child == 0:
                for _ in range(50):
                    policy.save(path)
                os._exit(0)
            children.append(child)
        for case in range(300):
            check(None if Policy.load(path).digest in digests else "neither the old nor the new", case)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        check(None if [p.name for p in tmp_path.iterdir()] == [path.name] else "litter", "at the end")


def test_threads_and_forks_decide_alike(good, tally):
    with np.load(good / "scores.npz") as file:
        scores, y = file["logits"], file["y"]

    def tuned(seed):
        return LogitAdjuster("cvar:0.5", random_state=seed).fit(scores, y, class_counts=[90, 30, 10]).policy_.digest

    expected = [tuned(seed) for seed in range(3)]
    with tally("threads and forks") as check:
        with ThreadPoolExecutor(4) as pool:
            for seed, digest in zip([0, 1, 2] * 4, pool.map(tuned, [0, 1, 2] * 4), strict=True):
                check(None if digest == expected[seed] else "decides otherwise in a thread", seed)
        for seed in range(3):
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(PATIENCE)
                os.write(write, json.dumps(tuned(seed)).encode())
                os._exit(0)
            os.close(write)
            with os.fdopen(read) as stream:
                text = stream.read()
            os.waitpid(child, 0)
            check(None if text and json.loads(text) == expected[seed] else f"in a fork: {text!r}", seed)

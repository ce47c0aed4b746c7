"""Told to stop, a command says so and how to go on; its exit code is never that of success."""

from __future__ import annotations

import os
import signal
import time

import pytest

from capri._stopping import Stopped
from capri.cli import app
from capri.train.config import LAST, resolve
from capri.train.pretrain import _Keeper
from capri.train.recorder import Recorder
from capri.train.runner import run


@pytest.fixture
def _interruptible():
    """Shells start what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def after_an_epoch(monkeypatch, _interruptible):
    """`after_an_epoch(kind, number)`: the signal comes when the first epoch is checkpointed."""

    def at(kind: type, number: int) -> None:
        whole = kind.on_train_epoch_end

        def stop(self, trainer, module):
            whole(self, trainer, module)
            os.kill(os.getpid(), number)

        monkeypatch.setattr(kind, "on_train_epoch_end", stop)

    return at


def stopped(capsys, *arguments: str) -> tuple[int, str]:
    """The exit code, and what stands on stderr."""
    with pytest.raises(SystemExit) as ended:
        app(list(arguments))
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_training(after_an_epoch, feature_run, tmp_path, capsys, number, code):
    after_an_epoch(Recorder, number)
    out = str(tmp_path / "run")
    said = f"capri: stopped by {number.name}. Go on with --resume --out {out}.\n"
    assert stopped(capsys, "train", *feature_run, "--out", out) == (code, said)
    assert (tmp_path / "run" / LAST).exists()


def test_searching(after_an_epoch, feature_run, tmp_path, capsys):
    after_an_epoch(Recorder, signal.SIGTERM)
    out = str(tmp_path / "run")
    arguments = [*feature_run, "--set=search.warmup_epochs=1", "--out", out]
    assert stopped(capsys, "search", *arguments) == (
        143,
        f"capri: stopped by SIGTERM. Go on with --resume --out {out}.\n",
    )


def test_pretraining(after_an_epoch, tiny_cifar10, tmp_path, capsys):
    after_an_epoch(_Keeper, signal.SIGTERM)
    settings = (f"data.root={tiny_cifar10}", "data.imbalance=5", "trainer.accelerator=cpu", "trainer.batch_size=32",
                "trainer.limit_train_batches=2")  # fmt: skip
    arguments = [*(f"--set={setting}" for setting in settings), "--out", str(tmp_path / "run")]
    code, said = stopped(capsys, "pretrain", *arguments)
    assert code == 143
    assert "Go on with --resume" in said


def test_before_the_first_epoch_there_is_nothing_to_resume(feature_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Recorder, "on_train_start", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, said = stopped(capsys, "train", *feature_run, "--out", str(tmp_path / "run"))
    assert (code, said) == (143, "capri: stopped by SIGTERM. No epoch had ended: start it again.\n")


def test_from_python_the_exit_code_is_that_of_the_signal_too(after_an_epoch, feature_run, tmp_path):
    after_an_epoch(Recorder, signal.SIGTERM)
    config = resolve(preset="features", out=str(tmp_path / "run"), assignments=[a[6:] for a in feature_run[2:]])
    with pytest.raises(Stopped) as ended:
        run(config)
    assert ended.value.code == 143


def test_what_is_ignored_stays_ignored(feature_run, tmp_path, after_an_epoch, capsys):
    """As in a shell's background job, which an interrupt of the job in front of it must not end."""
    after_an_epoch(Recorder, signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert stopped(capsys, "train", *feature_run, "--out", str(tmp_path / "run")) == (None, "")
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_whole_process(start, feature_run, tmp_path):
    out = tmp_path / "run"
    process = start([*feature_run, "--set=trainer.max_epochs=100000", "--out", str(out)])
    while not (out / LAST).exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    printed = process.communicate()[0]
    assert process.returncode == 143
    assert printed.splitlines()[-1] == f"capri: stopped by SIGTERM. Go on with --resume --out {out}."

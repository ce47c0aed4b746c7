"""No false labels and no silent damage: whose folder it is, what a checkpoint is of, and whether it is intact."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from capri import InputError, Policy, Strategy
from capri._files import locked
from capri.train.artefacts import read_summary, write_summary
from capri.train.checkpoints import AtomicCheckpointIO, load_checkpoint
from capri.train.config import LAST, PREVIOUS, SUMMARY, Config, resolve
from capri.train.recorder import Recorder
from capri.train.runner import run
from capri.train.search_config import resolve_search
from capri.train.search_runner import retrain, search_and_retrain


class Killed(BaseException):
    """As a kill: nothing is tidied up on purpose."""


@pytest.fixture
def settings(feature_run: list[str]) -> list[str]:
    return [argument.removeprefix("--set=") for argument in feature_run[2:]]


def config(settings: list[str], out: Path, *changes: str) -> Config:
    return resolve(preset="features", out=str(out), assignments=[*settings, *changes])


@pytest.fixture
def killed(settings, monkeypatch, tmp_path):
    """`killed(epochs, *changes)`: the folder of a run of 3 epochs that was killed after some of them."""

    def after(epochs: int, *changes: str) -> Path:
        whole = Recorder.on_train_epoch_end

        def end(self, trainer, module):
            whole(self, trainer, module)
            if len(self.rows) == epochs:
                raise Killed

        started = config(settings, tmp_path / "run", "trainer.max_epochs=3", *changes)
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "on_train_epoch_end", end)
            with pytest.raises(Killed):
                run(started)
        return tmp_path / "run"

    return after


def resume(settings: list[str], folder: Path, *changes: str) -> dict:
    return run(config(settings, folder, "trainer.max_epochs=3", *changes), resume=True)


def flip_a_bit(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)


# -- whose folder it is ------------------------------------------------------------------------------------------------


def test_the_folder_of_a_running_run_is_refused_and_left_as_it_was(settings, tmp_path):
    folder = tmp_path / "run"
    with locked(folder / "run.lock"):
        message = rf"run is in use by process {os.getpid()} on \S*; wait until it has ended, or choose another folder"
        with pytest.raises(InputError, match=message):
            run(config(settings, folder, "loss.strategy=la", "loss.tau=3"))
        assert [path.name for path in folder.iterdir()] == ["run.lock"]


def test_a_run_holds_its_folder_to_its_end(settings, tmp_path, monkeypatch):
    whole, tried = Recorder.on_train_epoch_end, []

    def intrude(self, trainer, module):
        whole(self, trainer, module)
        with pytest.raises(InputError, match="is in use by process"):
            run(config(settings, self.folder, "loss.tau=3"), resume=True)
        tried.append(True)

    monkeypatch.setattr(Recorder, "on_train_epoch_end", intrude)
    run(config(settings, tmp_path / "run"))
    assert len(tried) == 2


def test_the_first_of_several_processes_claims_for_all(settings, tmp_path, monkeypatch):
    from capri.train.claim import claimed

    several = config(settings, tmp_path / "run", "trainer.devices=2")
    with claimed(several, resume=False):
        monkeypatch.setenv("LOCAL_RANK", "1")
        with claimed(several, resume=False):
            pass
        with pytest.raises(InputError, match="in use"), claimed(config(settings, tmp_path / "run"), resume=False):
            pass


def test_a_link_in_the_place_of_the_lock_does_not_empty_its_target(settings, tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="in the place of a lock and is none"):
        run(config(settings, tmp_path / "run"))
    assert (tmp_path / "precious").read_text() == "kept"


def test_the_summary_of_a_run_before_does_not_stand_beside_another(settings, tmp_path):
    run(config(settings, tmp_path / "run", "loss.strategy=la"))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(InputError, match="holds a run already"):
        run(config(settings, tmp_path / "run", "loss.strategy=cdt"))


def test_what_a_kill_left_half_written_goes(settings, killed):
    folder = killed(1)
    left = [folder / ".metrics.csv.abcd1234.part", folder / "checkpoints" / ".last.ckpt.abcd1234.part"]
    for path in left:
        path.write_bytes(b"half")
    resume(settings, folder)
    assert not any(path.exists() for path in left)


# -- what a checkpoint is of -------------------------------------------------------------------------------------------


def test_a_checkpoint_under_other_settings_is_refused(settings, killed):
    """As a second run had left them in config.toml."""
    folder = killed(1, "loss.strategy=la", "loss.tau=1.0")
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("tau = 1.0", "tau = 3.0"))
    with pytest.raises(InputError, match=r"last\.ckpt is of a run with other settings.*digest .*Resume with those"):
        resume(settings, folder, "loss.strategy=la", "loss.tau=3.0")


def test_a_checkpoint_of_other_data_is_refused(settings, killed, feature_file, tmp_path):
    folder = killed(1)
    feature_file(tmp_path / "tiny.npz", seed=1)
    with pytest.raises(InputError, match=r"last\.ckpt is of a run with other data: their files have changed since"):
        resume(settings, folder)
    feature_file(tmp_path / "tiny.npz")
    assert resume(settings, folder)["epochs"] == 3


def test_a_run_is_resumed_by_another_path_to_its_folder(settings, killed, tmp_path):
    folder, other = killed(1), tmp_path / "other"
    folder.rename(other)
    (tmp_path / "moved").mkdir()
    shutil.move(tmp_path / "tiny.npz", tmp_path / "moved")
    assert resume(settings, other, f"data.root={tmp_path / 'moved'}")["epochs"] == 3


def test_a_search_is_resumed_by_another_path_to_its_folder(settings, tmp_path):
    def searching(out: Path) -> dict:
        changes = ("search.epochs=2", "search.warmup_epochs=1", 'search.attributes=["freq"]')
        made = resolve_search(preset="features", out=str(out), assignments=[*settings, *changes])
        return search_and_retrain(made, resume=True)

    first = searching(tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    again = searching(tmp_path / "link")
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = searching(tmp_path / "moved")
    for part in ("search", "retrain"):
        assert first[part]["config_digest"] == again[part]["config_digest"] == moved[part]["config_digest"]


def test_another_policy_under_the_same_name_is_refused(settings, tmp_path):
    file, out = tmp_path / "policy.json", tmp_path / "run"
    for l, resumed in (([0.0, 1.0, 2.0], False), ([0.0, 2.0, 1.0], True)):
        strategy = Strategy.of(3, l=np.array(l))
        Policy(strategy, objective="balanced", classes=("0", "1", "2"), side="loss", method="hand").save(file)
        if resumed:
            with pytest.raises(InputError, match="other settings, or with another policy or network to start from"):
                retrain(config(settings, out), file, resume=True)
        else:
            retrain(config(settings, out), file)


# -- whether it is intact ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 0.3, 0.5, 0.8, 1])
def test_one_flipped_bit_is_noticed(tmp_path, place):
    path = tmp_path / LAST
    AtomicCheckpointIO().save_checkpoint({"weights": np.arange(2000).tolist()}, path)
    flip_a_bit(path, place)
    with pytest.raises(InputError, match=r"last\.ckpt is not a readable checkpoint \(damaged: its SHA-256 is not"):
        load_checkpoint(path)


@pytest.mark.usefixtures("one_thread")
def test_the_checkpoint_before_is_kept_and_offered(settings, killed, tmp_path, assert_same_run):
    folder = killed(2)
    flip_a_bit(folder / LAST, 0.5)
    offer = r"remove it, and --resume goes on from the one before, previous\.ckpt, which is intact"
    with pytest.raises(InputError, match=offer):
        resume(settings, folder)
    (folder / LAST).unlink()
    resume(settings, folder)
    run(config(settings, tmp_path / "whole", "trainer.max_epochs=3"))
    assert_same_run(tmp_path / "whole", folder)


def test_a_damaged_one_is_not_offered(settings, killed):
    folder = killed(2)
    for name in (LAST, PREVIOUS):
        flip_a_bit(folder / name, 0.5)
    with pytest.raises(InputError, match=r"remove it and start again\."):
        resume(settings, folder)


def test_the_summary_of_a_run_carries_its_digest(tmp_path):
    path = tmp_path / SUMMARY
    write_summary(path, {"test": {"balanced": 0.546, "absent": float("nan")}, "name": "é"})
    assert read_summary(path)["name"] == "é"
    path.write_text(path.read_text().replace("0.546", "0.762"))
    with pytest.raises(InputError, match=r"summary\.json was changed: its sha256"):
        read_summary(path)
    path.write_text(json.dumps({"test": {}}))
    with pytest.raises(InputError, match="is not the summary of a run"):
        read_summary(path)

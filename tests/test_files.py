"""Files are written whole or not at all, and locked by one process at a time."""

import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capri import InputError
from capri._files import locked, open_regular, read_text, remove_partial, write_atomically


def test_a_new_file_holds_the_content_and_its_folder_is_made(tmp_path):
    target = tmp_path / "a" / "b" / "file.json"
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]


def test_an_old_file_is_replaced(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"old and longer")
    write_atomically(str(target), b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_file_whole_and_no_litter(tmp_path, monkeypatch, step, failure):
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def fail(*_):
        raise failure

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(type(failure)):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_not_overwritten(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(target, b"new")
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    for name in (".file.abc123.part", ".other.abc123.part", "mine.part", "file"):
        (tmp_path / name).touch()
    remove_partial(tmp_path, "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.abc123.part", "file", "mine.part"]
    remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "mine.part"]


HOLD = """
import sys, time
from capri._files import locked

with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_held_by_one_names_it_and_goes_with_it(tmp_path):
    path = tmp_path / "folder" / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        message = rf"folder is in use by process {other.pid} on \S*; try later\."
        with pytest.raises(InputError, match=message), locked(path, "try later."):
            pass
        other.kill()
        other.wait()
        with locked(path, "try later."):
            assert path.read_text().startswith(f"process {os.getpid()} on ")
    with locked(path, "try later."), pytest.raises(InputError, match="in use"), locked(path, "try later."):
        pass


def test_a_forked_process_does_not_hold_the_lock_of_its_parent(tmp_path):
    ready, tell = os.pipe()
    with locked(tmp_path / "lock"):
        child = os.fork()
        if child == 0:
            os.write(tell, b"!")
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
    try:
        with locked(tmp_path / "lock", "try later."):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to, lambda path, _: path.write_text("precious")])
def test_what_is_planted_in_the_place_of_a_lock_is_refused_and_left_as_it_was(tmp_path, plant):
    target, path = tmp_path / "target", tmp_path / "lock"
    target.write_text("precious")
    plant(path, target)
    with pytest.raises(InputError, match=r"lock is in the place of a lock and is none .*; remove it\."), locked(path):
        pass
    assert target.read_text() == path.read_text() == "precious"


def test_a_link_to_nowhere_makes_nothing_there(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(InputError, match="remove it"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "target").exists()


def test_permissions_are_those_of_the_file_before_or_of_the_user(tmp_path):
    target = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_atomically(target, b"new")
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        target.chmod(0o600)
        write_atomically(target, b"newer")
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_file_that_may_not_be_written_to_is_left_alone(tmp_path, monkeypatch):
    target = tmp_path / "file"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write anywhere
    with pytest.raises(PermissionError):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


WRITE = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from capri._files import write_atomically

def wait(*_):
    print("writing", flush=True)
    time.sleep(60)

os.fsync = wait
write_atomically(sys.argv[1], b"half")
"""


def test_what_a_kill_leaves_goes_with_the_next_write_and_what_is_being_written_does_not(tmp_path):
    target = tmp_path / "file[1]"
    with subprocess.Popen([sys.executable, "-c", WRITE, str(target)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "writing\n"
        write_atomically(target, b"mine")
        assert len(list(tmp_path.iterdir())) == 2
        other.kill()
        other.wait()
    write_atomically(target, b"new")
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"new"


def test_many_writers_of_one_file_do_not_tidy_each_other_up(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: write_atomically(tmp_path / "file", bytes([k]) * 1000), range(200)))
    assert len(set((tmp_path / "file").read_bytes())) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is not a regular file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    (tmp_path / "file").write_text("é", encoding="utf-8")
    assert read_text(tmp_path / "file") == "é"

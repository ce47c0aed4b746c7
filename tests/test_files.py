"""Files are written whole or not at all."""

import os
from pathlib import Path

import pytest

from capri._files import write_atomically


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

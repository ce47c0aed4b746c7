"""Files that processes share: written so that a reader sees the old content or the new, and locked by one at a time."""

from __future__ import annotations

import os
import platform
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capri._checks import InputError

PART = ".part"  # how files end that are being written; after a kill they may stay


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write through a temporary file beside the target, then rename; on any failure the target stays as it was.

    Parameters
    ----------
    path : path
        Where to; folders are made as needed.
    content : bytes
        The whole of the file.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PART)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.chmod(0o644)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def remove_partial(folder: str | Path, name: str = "*") -> None:
    """Delete what a killed process left of `write_atomically`; the caller makes sure that no other one is writing.

    Parameters
    ----------
    folder : path
        Where; folders inside are left alone.
    name : str
        Of the file that was being written; all of them by default.
    """
    for partial in Path(folder).glob(f".{name}.*{PART}"):
        partial.unlink(missing_ok=True)


@contextmanager
def locked(path: str | Path, advice: str | None = None) -> Iterator[None]:
    """One process at a time. The lock goes with the process, so a killed one leaves none behind.

    Parameters
    ----------
    path : path
        The lock: a file of its own, which says who holds it. A link or another file in its place is refused.
    advice : str, optional
        What to do while another process holds it, for the message of the `InputError`; by default we wait.

    Returns
    -------
    context manager
        Inside it the lock is held.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover (not on this system: run one process at a time)
        yield
        return
    handle = _open_lock(Path(path))
    _held.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if advice is None else fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(
                f"{Path(path).parent} is in use by {_holder(handle) or 'another process'}; {advice}"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {platform.node()}"[:200].encode(), 0)
        yield
    finally:
        if handle in _held:  # not in a process that was forked inside
            _held.remove(handle)
            os.close(handle)


def _open_lock(path: Path) -> int:
    """Links are not followed, and nothing that is there is touched unless it is a lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = InputError(f"{path} is in the place of a lock and is none (a link, or another file); remove it.")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError:
        if path.is_symlink():
            raise refusal from None
        raise
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or not re.fullmatch(_HOLDER, _holder(handle)):
        os.close(handle)
        raise refusal
    return handle


_HOLDER = r"(process \d+ on \S*)?"  # nothing in the moment after it was made


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode(errors="replace")


#: Locks of this process. A forked one must not keep them beyond its parent's end.
_held: set[int] = set()


def _let_go() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)

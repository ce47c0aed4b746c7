"""Files: only regular ones are read, a reader sees the old content or the new, and locks are held by one at a time."""

from __future__ import annotations

import errno
import glob
import os
import platform
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from capri._checks import InputError

fcntl: Any
try:
    import fcntl
except ImportError:  # pragma: no cover (not on this system: run one process at a time)
    fcntl = None

PART = ".part"  # how files end that are being written
LIMIT = 2**28  # bytes of a text that is read whole


def open_regular(path: str | Path) -> IO[bytes]:
    """A regular file, open for reading; pipes, which may never end, and devices are refused, without waiting for them.

    Parameters
    ----------
    path : path
        Of the file, or of a link to it.

    Returns
    -------
    binary stream
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise InputError(f"{path}: is not a regular file; for standard input give - where scores are read.")


def read_text(path: str | Path) -> str:
    """A text of reasonable length.

    Parameters
    ----------
    path : path
        Of a regular file, in UTF-8.

    Returns
    -------
    str
    """
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size > LIMIT:
            raise InputError(f"{path}: is too large for a text, which may have {LIMIT >> 20} MiB.")
        return stream.read(LIMIT).decode("utf-8")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write through a temporary file beside the target, then rename; on any failure the target stays as it was.

    A file that was there keeps its permissions; a new one has those of any new file.

    Parameters
    ----------
    path : path
        Where to; folders are made as needed.
    content : bytes
        The whole of the file.
    """
    with written_atomically(path) as stream:
        stream.write(content)


@contextmanager
def written_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """A stream to write a file in parts, as `write_atomically` writes it at once.

    Parameters
    ----------
    path : path
        Where to; folders are made as needed.

    Returns
    -------
    context manager
        Of a binary stream, which can be searched. The file is there once the block ends, unless by an exception.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(target.parent, target.name)
    mode = _mode_of(target)
    handle, partial = _aside(target)
    try:
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            if mode is not None:
                partial.chmod(mode)
            os.fsync(stream.fileno())
            partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _mode_of(target: Path) -> int | None:
    """The permissions of a file that is there, which must be one that may be written to."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not os.access(target, os.W_OK):  # renaming would not ask
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return stat.S_IMODE(mode)


def _aside(target: Path) -> tuple[int, Path]:
    """A new file beside the target, locked as long as it is open, so that what a kill leaves can be told from it."""
    while True:
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART}")
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        _lock(handle, wait=True)
        if partial.exists():  # else it was taken for a leftover in the moment before
            return handle, partial
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Whether this file is ours now; not where another process has it, or where there are no locks."""
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
    return False


def remove_partial(folder: str | Path, name: str = "*") -> None:
    """Delete what a killed process left of `write_atomically`; what is being written is left alone.

    Parameters
    ----------
    folder : path
        Where; folders inside are left alone.
    name : str
        Of the file that was being written; all of them by default.
    """
    pattern = name if name == "*" else glob.escape(name)
    for partial in Path(folder).glob(f".{pattern}.*{PART}"):
        with suppress(OSError):
            handle = os.open(partial, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            try:
                if _lock(handle, wait=False):
                    partial.unlink()
            finally:
                os.close(handle)


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
    if fcntl is None:  # pragma: no cover
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

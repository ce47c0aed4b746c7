"""Where a figure comes from: digests of data, versions, and the commit of the source that ran."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError
from capri._version import __version__


def data_digest(*arrays: ArrayLike) -> str:
    """A short digest of arrays, to tell data sets apart.

    Parameters
    ----------
    *arrays : array-like
        Values, shapes and types count.

    Returns
    -------
    str
        Sixteen hexadecimal digits.
    """
    digest = DataDigest()
    for array in map(np.ascontiguousarray, arrays):
        digest.begin(array.dtype, array.shape)
        digest.add(array)
    return digest.text


class DataDigest:
    """What `data_digest` says of arrays whose rows come one after the other: each begins, then its rows are added."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def begin(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """An array of this type and shape comes next."""
        self._sha.update(f"{dtype.str}{shape}".encode())

    def add(self, rows: NDArray[Any]) -> None:
        """Some rows of it."""
        plain = np.ascontiguousarray(rows)
        self._sha.update(repr(plain.tolist()).encode() if plain.dtype == object else plain.view(np.uint8).data)

    @property
    def text(self) -> str:
        """Sixteen hexadecimal digits."""
        return self._sha.hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """A short digest of a file's content; empty for no file, the empty path."""
    if not str(path):
        return ""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from None


def versions() -> dict[str, str]:
    """Versions of what computes a policy.

    Returns
    -------
    dict
        Of capri, NumPy and Python.
    """
    return {"capri": __version__, "numpy": np.__version__, "python": platform.python_version()}


def commit() -> str | None:
    """The commit of the source that runs.

    Returns
    -------
    str or None
        With '+changes' where files differ from it; None where the source is not in a repository of its own, such as an
        installed package.
    """
    here = Path(__file__)
    # An environment inside another project lies in that project's repository: it must be ours, with this file in it.
    if _git(here.parent, "ls-files", "--full-name", here.name) != f"src/{here.parent.name}/{here.name}":
        return None
    return _git(here.parent, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says there; None where it fails. Variables such as GIT_DIR would speak of another repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()

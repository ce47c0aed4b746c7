"""Files that are read, and what can go wrong with them: one sentence each."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from capri._checks import InputError, short
from capri._files import open_regular

ZIP, NPY, PARQUET, PICKLE = b"PK", b"\x93NUMPY", b"PAR1", b"\x80"  # how such files begin


class File:
    """A regular file, or content that is kept because readers look twice. title: what messages call it."""

    def __init__(self, path: Path, title: str = "", content: bytes | None = None, kind: str = "") -> None:
        self.path, self._title, self._kept = path, title or str(path), content
        self.kind = kind or path.suffix.lower()

    def __str__(self) -> str:
        return self._title

    def open(self) -> IO[bytes]:
        """Its content, from the beginning."""
        return open_regular(self.path) if self._kept is None else io.BytesIO(self._kept)

    def state(self) -> object:
        """What differs where it was written again."""
        if self._kept is not None:
            return None
        with reading(self):
            found = self.path.stat()
        return str(self.path), found.st_size, found.st_mtime_ns


@contextmanager
def reading(file: File, otherwise: str = "the file is cut short or damaged") -> Iterator[None]:
    """Failures to read this file, as one sentence each."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{file}: no such file; check the path.") from None
    except Exception as error:  # a reader may raise anything when a file is damaged
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{file}: cannot be read ({error.strerror}).") from None
        if "allow_pickle" in str(error):
            raise pickled(file) from None
        raise InputError(f"{file}: {otherwise} ({one_line(error)}); write it again.") from None


def pickled(file: object) -> InputError:
    """The refusal of a file that could run code."""
    return InputError(
        f"{file}: holds pickled Python objects, which could run code on loading and are refused; "
        "save numbers and text as plain arrays."
    )


def one_line(error: BaseException) -> str:
    """What an error says, shortened."""
    return " ".join(str(error).split())[:120] or type(error).__name__


def missing_library(path: object, kind: str, library: str) -> InputError:
    """What to install for files of a kind."""
    return InputError(f'{path}: {kind} files need {library}: pip install "capriors[tables]"')


def expect_start(file: File, expected: bytes, kind: str) -> None:
    """Refuse a file that is not what its extension says, and say so where it is a pickle."""
    with file.open() as stream:
        start = stream.read(len(expected))
    if start == expected:
        return
    if start[:1] == PICKLE:
        raise pickled(file)
    raise InputError(f"{file}: not an {kind} file, or its beginning is lost; write it again.")


def check_header(file: File, names: Sequence[str]) -> None:
    """Refuse columns of one name."""
    (name, times), *_ = Counter(names).most_common(1) or [("", 0)]
    if times > 1:
        raise InputError(f"{file}: the column {name!r} occurs twice; columns must differ.")


def not_a_number(where: str, column: str, value: object) -> InputError:
    """The refusal of a cell."""
    return InputError(
        f"{where}, column {column!r}: {short(value)} is not a number. If the column is no score, "
        "name the score columns score_<class>, or list them with --class-names."
    )


def is_number(value: Any) -> bool:
    """Can this be read as a number?"""
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def is_fraction(text: str) -> bool:
    """A number that is no class index: a sign that the line holds data, not names."""
    return is_number(text) and not text.strip().isdigit()

"""Files of numbers: what each format holds, read and written without executing anything.

An *archive* (.npz, .npy, .safetensors) holds named arrays; a *table* (.csv, .parquet) holds named columns. Whatever is
wrong with a file becomes one `InputError` that names it. What the arrays mean is decided in `capri.cli.inputs`. `-` is
standard input, whose format is known by its beginning.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from array import array
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from capri._arrays import Npz, check_unpacked, read_npy
from capri._checks import InputError, short
from capri._files import open_regular, write_atomically

ARCHIVES = (".npz", ".npy", ".safetensors")
TABLES = (".csv", ".parquet")
ZIP, NPY, PARQUET, PICKLE = b"PK", b"\x93NUMPY", b"PAR1", b"\x80"  # how such files begin
ONLY = "array"  # the name of the one array of an .npy file
STDIN = Path("-")
MOST = 2**30  # bytes of standard input, which may never end
LOOK = 64  # bytes by which its format is known


class Archive(Protocol):
    """Named arrays; notes are what .safetensors keep beside them."""

    names: list[str]
    notes: dict[str, str]

    def get(self, name: str) -> NDArray[Any]:
        """One of them."""


@runtime_checkable
class Table(Protocol):
    """Named columns of equal length."""

    names: list[str]

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Some columns, side by side, as numbers (n_rows, n_columns)."""

    def texts(self, name: str) -> list[str]:
        """One column as text."""


def opened(path: Path) -> Archive | Table:
    """An archive or a table, by its extension; arrays and columns are read when asked for."""
    file = _File(path)
    if file.kind not in _READERS:
        known = ", ".join((*ARCHIVES, *TABLES))
        raise InputError(f"{path}: files of type {path.suffix!r} are not read here; use {known}.")
    return _READERS[file.kind](file)


def first_of(archive: Archive, keys: Sequence[str]) -> NDArray[Any] | None:
    """The first of these that the archive holds."""
    return next((archive.get(key) for key in keys if key in archive.names), None)


def title(path: Path) -> str:
    """What reports and messages call a file."""
    return "standard input" if path == STDIN else str(path)


def check_stdin(places: Mapping[str, Path | None]) -> None:
    """Refuse standard input in several places, before the first takes what the others wait for."""
    given = [place for place, path in places.items() if path == STDIN]
    if len(given) > 1:
        listed = f"{', '.join(given[:-1])} and {given[-1]}"
        raise InputError(f"- is given for {listed}; standard input can be read once, so save the rest as files.")


class _File:
    """A regular file, or standard input, which is kept because readers look twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = _from_stdin() if path == STDIN else None
        self.kind = path.suffix.lower() if self._kept is None else _kind_by_beginning(self._kept[:LOOK])

    def __str__(self) -> str:
        return title(self.path)

    def open(self) -> IO[bytes]:
        return open_regular(self.path) if self._kept is None else io.BytesIO(self._kept)


def _from_stdin() -> bytes:
    if sys.stdin is None:
        raise InputError("standard input is closed; give the path of a file.")
    content = sys.stdin.buffer.read(MOST + 1)
    if len(content) > MOST:
        raise InputError(
            f"standard input is longer than {MOST >> 20} MiB; save it as a file, which is not kept in memory."
        )
    return content


def _kind_by_beginning(start: bytes) -> str:
    """The extension that standard input would have as a file."""
    for begins, kind in _BEGINNINGS.items():
        if start.startswith(begins):
            return kind
    if start.startswith(PICKLE):
        raise _pickled(title(STDIN))
    if not _is_text(start):
        raise InputError(
            f"{title(STDIN)}: is neither .npz, .npy, .parquet nor .csv in UTF-8, by its beginning; save other formats, "
            "such as .safetensors, as files."
        )
    return ".csv"


_BEGINNINGS = {ZIP: ".npz", NPY: ".npy", PARQUET: ".parquet"}


def _is_text(start: bytes) -> bool:
    """Is this, which may end within a character, the beginning of a text?"""
    try:
        return "\0" not in getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False


# --------------------------------------------------------------------------------------------------------------------
# What can go wrong


@contextmanager
def _reading(file: _File, otherwise: str = "the file is cut short or damaged") -> Iterator[None]:
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
            raise _pickled(file) from None
        raise InputError(f"{file}: {otherwise} ({_one_line(error)}); write it again.") from None


def _pickled(file: object) -> InputError:
    return InputError(
        f"{file}: holds pickled Python objects, which could run code on loading and are refused; "
        "save numbers and text as plain arrays."
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _missing_library(path: object, kind: str, library: str) -> InputError:
    return InputError(f'{path}: {kind} files need {library}: pip install "capriors[tables]"')


def _expect_start(file: _File, expected: bytes, kind: str) -> None:
    """Refuse a file that is not what its extension says, and say so where it is a pickle."""
    with file.open() as stream:
        start = stream.read(len(expected))
    if start == expected:
        return
    if start[:1] == PICKLE:
        raise _pickled(file)
    raise InputError(f"{file}: not an {kind} file, or its beginning is lost; write it again.")


# --------------------------------------------------------------------------------------------------------------------
# Archives


class _Npz:
    def __init__(self, file: _File) -> None:
        self.file, self.notes = file, dict[str, str]()
        with _reading(file):
            _expect_start(file, ZIP, ".npz")
        with self._opened() as arrays:
            self.names = list(arrays.names)

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as arrays:
            return arrays.get(name)

    @contextmanager
    def _opened(self) -> Iterator[Npz]:
        with _reading(self.file), self.file.open() as stream:
            yield Npz(stream)


class _Npy:
    def __init__(self, file: _File) -> None:
        self.file, self.names, self.notes = file, [ONLY], dict[str, str]()
        with _reading(file):
            _expect_start(file, NPY, ".npy")

    def get(self, name: str) -> NDArray[Any]:
        with _reading(self.file), self.file.open() as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            return read_npy(stream, size)


class _Safetensors:
    def __init__(self, file: _File) -> None:
        self.file = file
        with _reading(file):
            file.open().close()  # the library would wait for a pipe
        with self._opened() as tensors:
            self.names, self.notes = list(tensors.keys()), dict(tensors.metadata() or {})

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as tensors:
            return np.asarray(tensors.get_tensor(name))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from safetensors import safe_open
        except ImportError:
            raise _missing_library(self.file, ".safetensors", "safetensors") from None
        odd = "damaged, or not made of plain numbers"  # that NumPy has, unlike bfloat16
        with _reading(self.file, odd), safe_open(self.file.path, framework="numpy") as tensors:
            yield tensors


# --------------------------------------------------------------------------------------------------------------------
# Tables


class _Csv:
    """Comma-separated, UTF-8, with a header line; read row by row, so that only the numbers stay in memory."""

    def __init__(self, file: _File) -> None:
        self.file = file
        with _reading(file), self._text() as stream:
            self.names = next(csv.reader(stream), [])
        if not self.names:
            raise InputError(f"{file}: the file is empty; the first line must name the columns.")
        if any(_is_fraction(name) for name in self.names):
            raise InputError(f"{file}: the first line is {short(self.names)}; it must name the columns.")
        _check_header(file, self.names)
        self._places = {name: c for c, name in enumerate(self.names)}

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        columns = [self._places[name] for name in names]
        values = array("d")
        for line, row in self._rows():
            try:
                values.extend([float(row[c]) for c in columns])
            except ValueError:
                c = next(c for c in columns if not _is_number(row[c]))
                raise _not_a_number(f"{self.file}, line {line}", self.names[c], row[c]) from None
        return np.frombuffer(values, dtype=np.float64).reshape(-1, len(columns))

    def texts(self, name: str) -> list[str]:
        return [row[self._places[name]] for _, row in self._rows()]

    def _text(self) -> IO[str]:
        return io.TextIOWrapper(self.file.open(), encoding="utf-8-sig", newline="")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        with _reading(self.file), self._text() as stream:
            reader = csv.reader(stream)
            next(reader, None)
            for row in reader:
                if row and len(row) != len(self.names):
                    raise InputError(
                        f"{self.file}, line {reader.line_num}: {len(row)} cells where the header names "
                        f"{len(self.names)}; the file is cut short or a comma is missing."
                    )
                if row:
                    yield reader.line_num, row


class _Parquet:
    def __init__(self, file: _File) -> None:
        self.file = file
        with self._opened() as table:
            self.names = [str(name) for name in table.schema_arrow.names]
        _check_header(file, self.names)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        with self._opened() as table:
            columns = table.read(columns=list(names))
            result = np.empty((columns.num_rows, len(names)))
            for c, name in enumerate(names):
                column = columns[name].to_numpy()
                try:
                    result[:, c] = column
                except (TypeError, ValueError, OverflowError):
                    value = next((v for v in column if not _is_number(v)), column[0])
                    raise _not_a_number(str(self.file), name, value) from None
        return result

    def texts(self, name: str) -> list[str]:
        with self._opened() as table:
            return [str(value) for value in table.read(columns=[name])[name].to_pylist()]

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise _missing_library(self.file, ".parquet", "pyarrow") from None
        with _reading(self.file), self.file.open() as stream, ParquetFile(stream) as table:
            check_unpacked("it", _unpacked(table.metadata), stream.seek(0, os.SEEK_END))
            yield table


_READERS: dict[str, Callable[[_File], Archive | Table]] = {
    ".npz": _Npz,
    ".npy": _Npy,
    ".safetensors": _Safetensors,
    ".csv": _Csv,
    ".parquet": _Parquet,
}


def _unpacked(metadata: Any) -> int:
    """Bytes of all columns of a parquet file, as it declares them."""
    return sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups))


def _check_header(file: _File, names: Sequence[str]) -> None:
    (name, times), *_ = Counter(names).most_common(1) or [("", 0)]
    if times > 1:
        raise InputError(f"{file}: the column {name!r} occurs twice; columns must differ.")


def _not_a_number(where: str, column: str, value: object) -> InputError:
    return InputError(
        f"{where}, column {column!r}: {short(value)} is not a number. If the column is no score, "
        "name the score columns score_<class>, or list them with --class-names."
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _is_fraction(text: str) -> bool:
    """A number that is no class index: a sign that the line holds data, not names."""
    return _is_number(text) and not text.strip().isdigit()


# --------------------------------------------------------------------------------------------------------------------
# Writing


def check_output(path: Path, kinds: Sequence[str], *others: Path | str | None) -> None:
    """Refuse an output path that cannot work, or is one of the others that the command was given, before any work."""
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path}: cannot write files of type {path.suffix!r} here; use {', '.join(kinds)}.")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the path of a file.")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file; give the path of one.")
    for other in others:
        if other is not None and _same(path, other):
            raise InputError(f"{path}: the command was given this file twice, and would write over it; choose another.")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write into {folder}; choose another folder or change its permissions.")


def _same(path: Path, other: Path | str) -> bool:
    """By whatever names and links."""
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there yet
        return path.resolve() == Path(other).resolve()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None


def encode(path: Path, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, str] | None = None) -> bytes:
    """The content of a file of these arrays (or, in tables, columns), in the format of its extension."""
    writers: dict[str, Callable[[Mapping[str, NDArray[Any]]], bytes]] = {
        ".npz": _npz_bytes,
        ".npy": _npy_bytes,
        ".safetensors": partial(_safetensors_bytes, notes=notes),
        ".csv": _csv_bytes,
        ".parquet": _parquet_bytes,
    }
    try:
        return writers[path.suffix.lower()](arrays)
    except ImportError as error:
        raise _missing_library(path, path.suffix, str(error.name)) from None


def _npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _npy_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, next(iter(arrays.values())), allow_pickle=False)
    return buffer.getvalue()


def _safetensors_bytes(arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, str] | None) -> bytes:
    from safetensors.numpy import save

    metadata = dict(notes) if notes else None
    return bytes(save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, metadata))


def _csv_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return buffer.getvalue().encode()


def _parquet_bytes(columns: Mapping[str, NDArray[Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({name: column.tolist() for name, column in columns.items()}), buffer)
    return buffer.getvalue()

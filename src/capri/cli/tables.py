"""Files of numbers: what each format holds, read and written without executing anything.

An *archive* (.npz, .npy, .safetensors) holds named arrays; a *table* (.csv, .parquet) holds named columns. Whatever is
wrong with a file becomes one `InputError` that names it. What the arrays mean is decided in `capri.cli.inputs`.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, short
from capri._files import write_atomically

ARCHIVES = (".npz", ".npy", ".safetensors")
TABLES = (".csv", ".parquet")
ZIP, NPY, PICKLE = b"PK", b"\x93NUMPY", b"\x80"  # how such files begin
ONLY = "array"  # the name of the one array of an .npy file


class Archive(Protocol):
    """Named arrays; notes are what .safetensors keep beside them."""

    names: list[str]
    notes: dict[str, str]

    def get(self, name: str) -> NDArray[Any]:
        """One of them."""


class Table(Protocol):
    """Named columns of equal length."""

    names: list[str]

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Some columns, side by side, as numbers (n_rows, n_columns)."""

    def texts(self, name: str) -> list[str]:
        """One column as text."""


def is_table(path: Path) -> bool:
    """Does this path name a table (columns) rather than an archive (arrays)?"""
    if path.suffix.lower() not in (*ARCHIVES, *TABLES):
        raise InputError(
            f"{path}: files of type {path.suffix!r} are not read here; use {', '.join((*ARCHIVES, *TABLES))}."
        )
    return path.suffix.lower() in TABLES


def open_archive(path: Path) -> Archive:
    """An archive by its extension; arrays are read when asked for."""
    readers: dict[str, Callable[[Path], Archive]] = {".npz": _Npz, ".npy": _Npy, ".safetensors": _Safetensors}
    return readers[path.suffix.lower()](path)


def open_table(path: Path) -> Table:
    """A table by its extension; columns are read when asked for."""
    readers: dict[str, Callable[[Path], Table]] = {".csv": _Csv, ".parquet": _Parquet}
    return readers[path.suffix.lower()](path)


# --------------------------------------------------------------------------------------------------------------------
# What can go wrong


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Failures to read this file, as one sentence each."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path.") from None
    except (OSError, ValueError, EOFError, MemoryError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{path}: cannot be read ({error.strerror}).") from None
        if "allow_pickle" in str(error):
            raise _pickled(path) from None
        raise InputError(f"{path}: the file is cut short or damaged ({_one_line(error)}); write it again.") from None


def _pickled(path: Path) -> InputError:
    return InputError(
        f"{path}: holds pickled Python objects, which could run code on loading and are refused; "
        "save numbers and text as plain arrays."
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


def _missing_library(path: Path, library: str) -> InputError:
    return InputError(f'{path}: {path.suffix} files need {library}: pip install "capriors[tables]"')


def _expect_start(path: Path, expected: bytes) -> None:
    """Refuse a file that is not what its extension says, before NumPy takes it for a pickle."""
    with path.open("rb") as stream:
        start = stream.read(len(expected))
    if start == expected:
        return
    if start[:1] == PICKLE:
        raise _pickled(path)
    raise InputError(f"{path}: not an {path.suffix} file, or its beginning is lost; write it again.")


# --------------------------------------------------------------------------------------------------------------------
# Archives


class _Npz:
    def __init__(self, path: Path) -> None:
        self.path, self.notes = path, dict[str, str]()
        with _reading(path):
            _expect_start(path, ZIP)
        with self._opened() as arrays:
            self.names = list(arrays.files)

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as arrays:
            return np.asarray(arrays[name])

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        # The file is opened here because NumPy leaves it open when the archive turns out to be damaged.
        with _reading(self.path), self.path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            yield arrays


class _Npy:
    def __init__(self, path: Path) -> None:
        self.path, self.names, self.notes = path, [ONLY], dict[str, str]()
        with _reading(path):
            _expect_start(path, NPY)

    def get(self, name: str) -> NDArray[Any]:
        with _reading(self.path):
            return np.asarray(np.load(self.path, allow_pickle=False))


class _Safetensors:
    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as tensors:
            self.names, self.notes = list(tensors.keys()), dict(tensors.metadata() or {})

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as tensors:
            return np.asarray(tensors.get_tensor(name))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError:
            raise _missing_library(self.path, "safetensors") from None
        try:
            with _reading(self.path), safe_open(self.path, framework="numpy") as tensors:
                yield tensors
        except (SafetensorError, TypeError) as error:  # TypeError: a number type that NumPy lacks, such as bfloat16
            raise InputError(f"{self.path}: damaged, or not made of plain numbers ({_one_line(error)}).") from None


# --------------------------------------------------------------------------------------------------------------------
# Tables


class _Csv:
    """Comma-separated, UTF-8, with a header line; read row by row, so that only the numbers stay in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path), path.open(newline="", encoding="utf-8-sig") as stream:
            self.names = next(csv.reader(stream), [])
        if not self.names:
            raise InputError(f"{path}: the file is empty; the first line must name the columns.")
        if any(_is_fraction(name) for name in self.names):
            raise InputError(f"{path}: the first line is {short(self.names)}; it must name the columns.")
        _check_header(path, self.names)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        columns = [self.names.index(name) for name in names]
        values = array("d")
        for line, row in self._rows():
            try:
                values.extend([float(row[c]) for c in columns])
            except ValueError:
                c = next(c for c in columns if not _is_number(row[c]))
                raise _not_a_number(f"{self.path}, line {line}", self.names[c], row[c]) from None
        return np.frombuffer(values, dtype=np.float64).reshape(-1, len(columns))

    def texts(self, name: str) -> list[str]:
        column = self.names.index(name)
        return [row[column] for _, row in self._rows()]

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        with _reading(self.path), self.path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            next(reader, None)
            for row in reader:
                if row and len(row) != len(self.names):
                    raise InputError(
                        f"{self.path}, line {reader.line_num}: {len(row)} cells where the header names "
                        f"{len(self.names)}; the file is cut short or a comma is missing."
                    )
                if row:
                    yield reader.line_num, row


class _Parquet:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise _missing_library(path, "pyarrow") from None
        self._read = parquet.read_table
        with _reading(path):
            self.names = [str(name) for name in parquet.read_schema(path).names]
        _check_header(path, self.names)

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        with _reading(self.path):
            table = self._read(self.path, columns=list(names))
        result = np.empty((table.num_rows, len(names)))
        for c, name in enumerate(names):
            column = table[name].to_numpy()
            try:
                result[:, c] = column
            except (TypeError, ValueError):
                value = next(v for v in column if not _is_number(v))
                raise _not_a_number(str(self.path), name, value) from None
        return result

    def texts(self, name: str) -> list[str]:
        with _reading(self.path):
            return [str(value) for value in self._read(self.path, columns=[name])[name].to_pylist()]


def _check_header(path: Path, names: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"{path}: the column {twice[0]!r} occurs twice; columns must differ.")


def _not_a_number(where: str, column: str, value: object) -> InputError:
    return InputError(
        f"{where}, column {column!r}: {short(value)} is not a number. If the column is no score, "
        "name the score columns score_<class>, or list them with --class-names."
    )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_fraction(text: str) -> bool:
    """A number that is no class index: a sign that the line holds data, not names."""
    return _is_number(text) and not text.strip().isdigit()


# --------------------------------------------------------------------------------------------------------------------
# Writing


def check_output(path: Path, kinds: Sequence[str]) -> None:
    """Refuse an output path that cannot work before any work is done."""
    if path.suffix.lower() not in kinds:
        raise InputError(f"{path}: cannot write files of type {path.suffix!r} here; use {', '.join(kinds)}.")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the path of a file.")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write into {folder}; choose another folder or change its permissions.")


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
        raise _missing_library(path, str(error.name)) from None


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

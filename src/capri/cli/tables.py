"""Files of numbers on the command line: standard input for `-`, and what is written, which is whole or not there.

What the formats hold is read by `capri.tables`; what the arrays mean is decided in `capri.cli.inputs`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import zipfile
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from capri._checks import InputError
from capri._files import write_atomically, written_atomically
from capri.tables import NPY, PARQUET, PICKLE, ZIP, Archive, File, Table, missing_library, parquet_files, pickled
from capri.tables import opened as opened_file

STDIN = Path("-")
MOST = 2**30  # bytes of standard input, which may never end
LOOK = 64  # bytes by which its format is known


def opened(path: Path) -> Archive | Table:
    """An archive or a table, by its extension, or by its beginning where it is standard input."""
    if path != STDIN:
        return opened_file(File(path))
    content = _from_stdin()
    return opened_file(File(path, title(path), content, _kind_by_beginning(content[:LOOK])))


def title(path: Path) -> str:
    """What reports and messages call a file."""
    return "standard input" if path == STDIN else str(path)


def check_stdin(places: Mapping[str, Path | None]) -> None:
    """Refuse standard input in several places, before the first takes what the others wait for."""
    given = [place for place, path in places.items() if path == STDIN]
    if len(given) > 1:
        listed = f"{', '.join(given[:-1])} and {given[-1]}"
        raise InputError(f"- is given for {listed}; standard input can be read once, so save the rest as files.")


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
        raise pickled(title(STDIN))
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
        if other is not None and _among(path, other):
            raise InputError(f"{path}: would be one of the files of {other}, which is read as a whole; choose another.")
    folder = next(p for p in path.absolute().parents if p.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write into {folder}; choose another folder or change its permissions.")


def _same(path: Path, other: Path | str) -> bool:
    """By whatever names and links."""
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there yet
        return path.resolve() == Path(other).resolve()


def _among(path: Path, folder: Path | str) -> bool:
    """Is this one of the files of a folder, or would it become one?"""
    if path.suffix != ".parquet" or not Path(folder).is_dir():
        return False
    inside = path.resolve().is_relative_to(Path(folder).resolve())
    return inside or any(_same(path, file) for file in parquet_files(File(Path(folder))))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write in parts; it is there once the block ends, whole, or not at all."""
    try:
        with written_atomically(path) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}).") from None


ROWS = 2**16  # that are written at a time


def write_column(stream: IO[bytes], kind: str, name: str, values: NDArray[Any], codes: NDArray[Any]) -> None:
    """A column `values[codes]` as .csv, .parquet or .npz, of which a part at a time is in memory."""
    parts = (values[codes[first : first + ROWS]] for first in range(0, len(codes), ROWS))
    if kind == ".npz":
        with _Matrix(stream, kind, name, (len(codes),), values.dtype) as column:
            for part in parts:
                column.write(part)
    elif kind == ".parquet":
        _write_parquet(stream, name, parts)
    else:
        stream.write(f"{name}\n".encode())
        for part in parts:
            lines = io.StringIO()
            csv.writer(lines, lineterminator="\n").writerows([value] for value in part.tolist())
            stream.write(lines.getvalue().encode())


def _write_parquet(stream: IO[bytes], name: str, parts: Iterator[NDArray[Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_library(stream.name, ".parquet", str(error.name)) from None
    tables = (pyarrow.table({name: part.tolist()}) for part in parts)
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(stream, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


@contextmanager
def matrix_writer(
    path: Path, shape: tuple[int, int], names: NDArray[np.str_]
) -> Iterator[Callable[[NDArray[np.float64]], None]]:
    """Writes an array `scores` of doubles row by row as .npz, .npy or .safetensors; in .npz with `class_names`."""
    kind = path.suffix.lower()
    with writing(path) as stream:
        with _Matrix(stream, kind, "scores", shape, np.dtype(np.float64)) as matrix:
            yield matrix.write
        if kind == ".npz":
            with _Matrix(stream, kind, "class_names", names.shape, names.dtype) as labels:
                labels.write(names)


class _Matrix:
    """An array whose shape is known and whose rows come one after the other."""

    def __init__(self, stream: IO[bytes], kind: str, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._with, self._stream = ExitStack(), stream
        self.header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        self.kind, self.name, self.size = kind, name, math.prod(shape) * dtype.itemsize

    def __enter__(self) -> _Matrix:
        if self.kind == ".npz":
            archive = self._with.enter_context(zipfile.ZipFile(self._stream, "a", zipfile.ZIP_DEFLATED))
            self._stream = self._with.enter_context(archive.open(f"{self.name}.npy", "w", force_zip64=True))
        if self.kind == ".safetensors":
            entry = {"dtype": "F64", "shape": self.header["shape"], "data_offsets": [0, self.size]}
            text = json.dumps({self.name: entry}).encode()
            text += b" " * (-len(text) % 8)
            self._stream.write(len(text).to_bytes(8, "little") + text)
        else:
            npy.write_array_header_1_0(self._stream, self.header)
        return self

    def write(self, rows: NDArray[Any]) -> None:
        """Some rows further."""
        self._stream.write(np.ascontiguousarray(rows).data)

    def __exit__(self, *error: Any) -> None:
        self._with.__exit__(*error)


def encode(path: Path, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, str] | None = None) -> bytes:
    """The content of an archive of these arrays, in the format of its extension."""
    writers: dict[str, Callable[[Mapping[str, NDArray[Any]]], bytes]] = {
        ".npz": _npz_bytes,
        ".npy": _npy_bytes,
        ".safetensors": partial(_safetensors_bytes, notes=notes),
    }
    try:
        return writers[path.suffix.lower()](arrays)
    except ImportError as error:
        raise missing_library(path, path.suffix, str(error.name)) from None


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

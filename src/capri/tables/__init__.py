"""Files of numbers: what each format holds, read without executing anything, whole or in blocks of rows.

An *archive* (.npz, .npy, .safetensors) holds named arrays; a *table* (.csv, .parquet, or a folder of .parquet) holds
named columns. Whatever is wrong with a file becomes one `InputError` that names it. What the arrays mean is for others
to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from capri._checks import InputError
from capri.tables._archives import ONLY, NpyFile, NpzFile, SafetensorsFile
from capri.tables._csv import CsvFile
from capri.tables._files import NPY, PARQUET, PICKLE, ZIP, File, missing_library, one_line, pickled
from capri.tables._kinds import SCORE_PREFIX, Archive, Part, Rows, Table
from capri.tables._parquet import ParquetFolder, ParquetTable, other_width, parquet_files

__all__ = [
    "ARCHIVES",
    "NPY",
    "ONLY",
    "PARQUET",
    "PICKLE",
    "SCORE_PREFIX",
    "TABLES",
    "ZIP",
    "Archive",
    "File",
    "Part",
    "Rows",
    "Table",
    "first_of",
    "missing_library",
    "one_line",
    "opened",
    "other_width",
    "parquet_files",
    "pickled",
]

ARCHIVES = (".npz", ".npy", ".safetensors")
TABLES = (".csv", ".parquet")


def opened(file: File) -> Archive | Table:
    """An archive or a table, by its extension; a folder is a table, too. Contents are read when asked for."""
    if file.path.is_dir() and file.kind not in (*ARCHIVES, ".csv"):
        return ParquetFolder(file)
    if file.kind not in _READERS:
        known = ", ".join((*ARCHIVES, *TABLES))
        raise InputError(f"{file}: files of type {file.kind!r} are not read here; use {known}.")
    return _READERS[file.kind](file)


def first_of(archive: Archive, keys: Sequence[str]) -> NDArray[Any] | None:
    """The first of these that the archive holds."""
    return next((archive.get(key) for key in keys if key in archive.names), None)


_READERS: dict[str, Callable[[File], Archive | Table]] = {
    ".npz": NpzFile,
    ".npy": NpyFile,
    ".safetensors": SafetensorsFile,
    ".csv": CsvFile,
    ".parquet": ParquetTable,
}

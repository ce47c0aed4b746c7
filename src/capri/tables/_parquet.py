"""Tables in Parquet: one file, or the files of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._arrays import check_unpacked
from capri._checks import InputError
from capri.tables._files import File, check_header, is_number, missing_library, not_a_number, one_line, reading
from capri.tables._kinds import SCORE_PREFIX, Part


class ParquetTable:
    """Read row group by row group; a group that does not fit into a part is read in several."""

    def __init__(self, file: File) -> None:
        self.file = file
        with self._opened() as table:
            schema = table.schema_arrow
            self.names = [str(name) for name in schema.names]
            self._rows = table.metadata.num_rows
            self._types = dict(zip(self.names, schema.types, strict=True))
        check_header(file, self.names)
        self.lists = [name for name, kind in self._types.items() if _is_list(kind)]

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        return _filled(self._rows, len(names), self.type_of(names), self.parts(names, None, WHOLE))

    def texts(self, name: str) -> list[str]:
        with self._opened() as table:
            column = table.read(columns=[name])[name]
            if column.null_count:
                i = column.is_null().to_pylist().index(True)
                raise InputError(f"{self.file}, row {i}, column {name!r}: is empty; drop the row, or fill it in.")
            return [str(value) for value in column.to_pylist()]

    def parts(
        self, names: Sequence[str], label: str | None, most: int, dtype: np.dtype[Any] | None = None
    ) -> Iterator[Part]:
        wanted, dtype = [*names, *([] if label is None else [label])], dtype or self.type_of(names)
        with self._opened() as table:
            for group in range(table.num_row_groups):
                start = 0
                batches = table.iter_batches(batch_size=most, row_groups=[group], columns=wanted, use_threads=False)
                for batch in batches:
                    if len(batch):
                        place = partial(self._place, group, start)
                        numbers = self._numbers(batch, names, dtype, place)
                        yield Part(numbers, None if label is None else _labels(batch.column(label), place), place)
                    start += len(batch)

    def n_rows(self) -> int | None:
        return int(self._rows)

    def state(self) -> object:
        return self.file.state()

    def type_of(self, names: Sequence[str]) -> np.dtype[Any]:
        """The float type that keeps the numbers of these columns: theirs where they have one, else double."""
        kinds = [str(getattr(self._types[name], "value_type", self._types[name])) for name in names]
        return np.result_type(*{_FLOATS.get(kind, np.float64) for kind in kinds}) if kinds else np.dtype(np.float64)

    def _place(self, group: int, start: int, i: int) -> str:
        return f"{self.file}, row group {group}, row {start + i}"

    def _numbers(
        self, batch: Any, names: Sequence[str], dtype: np.dtype[Any], place: Callable[[int], str]
    ) -> NDArray[Any]:
        if len(names) == 1 and names[0] in self.lists:
            return _matrix(batch.column(names[0]), names[0], place).astype(dtype, copy=False)
        result = np.empty((len(batch), len(names)), dtype)
        for c, name in enumerate(names):
            column = batch.column(name).to_numpy(zero_copy_only=False)
            if column.dtype.kind in "mM":  # NumPy would make numbers of them
                raise not_a_number(place(0), name, batch.column(name)[0].as_py())
            try:
                result[:, c] = column
            except (TypeError, ValueError, OverflowError):
                i = next((i for i, v in enumerate(column) if not is_number(v)), 0)
                raise not_a_number(place(i), name, column[i]) from None
        return result

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise missing_library(self.file, ".parquet", "pyarrow") from None
        with reading(self.file), self.file.open() as stream, ParquetFile(stream, buffer_size=BUFFER) as table:
            check_unpacked("it", _unpacked(table.metadata), stream.seek(0, os.SEEK_END))
            yield table


class ParquetFolder:
    """The .parquet files of a folder and its folders, by name, one below the other. Columns go by their names."""

    def __init__(self, folder: File) -> None:
        self.file, self._paths = folder, parquet_files(folder)
        if not self._paths:
            raise InputError(f"{folder}: holds no .parquet files; give a file, or a folder of such.")
        self._first = ParquetTable(File(self._paths[0]))
        self.names, self.lists = self._first.names, self._first.lists

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        every = list(self.parts(names, None, WHOLE))
        return np.concatenate([part.numbers for part in every]) if every else np.empty((0, len(names)))

    def texts(self, name: str) -> list[str]:
        return [text for table in self._tables([name]) for text in table.texts(name)]

    def parts(self, names: Sequence[str], label: str | None, most: int) -> Iterator[Part]:
        wanted = [*names, *([] if label is None else [label])]
        tables = list(self._tables(wanted))
        dtype = np.result_type(*(table.type_of(names) for table in tables))
        for table in tables:
            yield from table.parts(names, label, most, dtype)

    def n_rows(self) -> int | None:
        return sum(table.n_rows() or 0 for table in self._tables([]))

    def state(self) -> object:
        return tuple(File(path).state() for path in parquet_files(self.file))

    def _tables(self, wanted: Sequence[str]) -> Iterator[ParquetTable]:
        """Each file, which must have the columns, and no score that the first one lacks."""
        prefixed = bool(self.lists) or any(name.startswith(SCORE_PREFIX) for name in self.names)
        any_is_score = not prefixed and {*self.names} <= {*wanted}
        for path in self._paths:
            table = ParquetTable(File(path))
            lost = [name for name in wanted if name not in table.names]
            if lost:
                more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
                raise InputError(
                    f"{path}: has no column {lost[0]!r}{more}, which {self._paths[0].name} has; all files of a folder "
                    "must have the same columns."
                )
            for name in table.names:
                if name not in self.names and (any_is_score or name.startswith(SCORE_PREFIX)):
                    raise InputError(
                        f"{path}: has a column {name!r}, which {self._paths[0].name} lacks; all files of a folder must "
                        "have the same columns."
                    )
            yield table


def parquet_files(folder: File) -> list[Path]:
    """Not those that others hide, as marks and what is being written; links to folders are followed.

    What is called so and is no file is among them, so that whoever opens it says so, rather than leave out rows.
    """
    found, seen = list[Path](), set[str]()
    with reading(folder):
        for here, folders, files in os.walk(folder.path, onerror=_give_up, followlinks=True):
            if (real := os.path.realpath(here)) in seen:  # a link that leads in a circle
                folders.clear()
                continue
            seen.add(real)
            folders[:] = [name for name in folders if name[0] not in "._"]
            found += [Path(here, name) for name in files if name.endswith(".parquet") and name[0] not in "._"]
    return sorted(found)


def _give_up(error: OSError) -> None:
    raise error


def _filled(n_rows: int, width: int, dtype: np.dtype[Any], parts: Iterator[Part]) -> NDArray[Any]:
    """All parts in one array; lists say their width themselves."""
    result, start = np.empty((n_rows, width), dtype), 0
    for numbers, _, _ in parts:
        if numbers.shape[1] != result.shape[1]:
            result = np.empty((n_rows, numbers.shape[1]), dtype)
        result[start : start + len(numbers)] = numbers
        start += len(numbers)
    return result


def _matrix(column: Any, name: str, place: Callable[[int], str]) -> NDArray[Any]:
    """A column of lists of one length as (n, length)."""
    if column.null_count:
        i = column.is_null().to_pylist().index(True)
        raise InputError(f"{place(i)}, column {name!r}: there is no list; drop the row, or give its scores.")
    lengths = np.asarray(column.value_lengths()) if hasattr(column, "value_lengths") else np.array([])
    if len(lengths) and (lengths != lengths[0]).any():
        i = int(np.flatnonzero(lengths != lengths[0])[0])
        raise other_width(place(i), int(lengths[i]), int(lengths[0]))
    try:
        values = np.asarray(column.flatten().to_numpy(zero_copy_only=False))
        floats = values if values.dtype.kind == "f" else values.astype(np.float64)
        return floats.reshape(len(column), -1)
    except (TypeError, ValueError) as error:
        raise InputError(f"{place(0)}, column {name!r}: holds no lists of numbers ({one_line(error)}).") from None


def other_width(where: str, found: int, expected: int) -> InputError:
    """The refusal of rows that are longer or shorter than those before."""
    return InputError(f"{where}: {found} scores, where there were {expected} before; give one score per class.")


def _labels(column: Any, place: Callable[[int], str]) -> NDArray[Any]:
    """A column of labels in its own type; a row without one is refused."""
    if column.null_count:
        i = column.is_null().to_pylist().index(True)
        raise InputError(f"{place(i)}: there is no label; drop the rows without one.")
    return np.array(column.to_pylist())


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))


_FLOATS: Mapping[str, Any] = {"halffloat": np.float16, "float": np.float32}
BUFFER = 2**16  # bytes of each column that are read at a time
WHOLE = 2**16  # rows that are converted at a time where all are wanted


def _unpacked(metadata: Any) -> int:
    """Bytes of all columns of a parquet file, as it declares them."""
    return sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups))

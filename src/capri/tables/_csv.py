"""Tables as text."""

from __future__ import annotations

import csv
import io
import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, short
from capri.tables._files import File, check_header, is_fraction, is_number, not_a_number, reading
from capri.tables._kinds import Part


class CsvFile:
    """Comma-separated, UTF-8, with a header line; read row by row, so that only the numbers stay in memory."""

    def __init__(self, file: File) -> None:
        self.file, self.lists = file, list[str]()
        with reading(file), self._text() as stream:
            self.names = next(csv.reader(stream), [])
        if not self.names:
            raise InputError(f"{file}: the file is empty; the first line must name the columns.")
        if any(is_fraction(name) for name in self.names):
            raise InputError(f"{file}: the first line is {short(self.names)}; it must name the columns.")
        check_header(file, self.names)
        self._places = {name: c for c, name in enumerate(self.names)}

    def numbers(self, names: Sequence[str]) -> NDArray[np.float64]:
        every = next(self.parts(names, None, sys.maxsize), None)
        return np.empty((0, len(names))) if every is None else every.numbers

    def texts(self, name: str) -> list[str]:
        return [row[self._places[name]] for _, row in self._rows()]

    def parts(self, names: Sequence[str], label: str | None, most: int) -> Iterator[Part]:
        rows = self._rows()
        while lines := self._part(names, label, islice(rows, most)):
            yield lines

    def _part(self, names: Sequence[str], label: str | None, rows: Iterator[tuple[int, list[str]]]) -> Part | None:
        columns, values, lines, labels = [self._places[name] for name in names], array("d"), array("q"), []
        for line, row in rows:
            try:
                values.extend([float(row[c]) for c in columns])
            except ValueError:
                c = next(c for c in columns if not is_number(row[c]))
                raise not_a_number(f"{self.file}, line {line}", self.names[c], row[c]) from None
            lines.append(line)
            if label is not None:
                labels.append(row[self._places[label]])
        if not lines:
            return None
        numbers = np.frombuffer(values, dtype=np.float64).reshape(len(lines), len(columns))
        return Part(numbers, None if label is None else np.array(labels), lambda i: f"{self.file}, line {lines[i]}")

    def n_rows(self) -> int | None:
        return None

    def state(self) -> object:
        return self.file.state()

    def _text(self) -> IO[str]:
        return io.TextIOWrapper(self.file.open(), encoding="utf-8-sig", newline="")

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        with reading(self.file), self._text() as stream:
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

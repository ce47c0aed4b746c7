"""Archives: .npz, .npy and .safetensors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from capri._arrays import Header, Npz, read_header, read_npy
from capri.tables._files import NPY, ZIP, File, expect_start, missing_library, reading
from capri.tables._kinds import Rows

ONLY = "array"  # the name of the one array of an .npy file


class NpzFile:
    def __init__(self, file: File) -> None:
        self.file, self.notes = file, dict[str, str]()
        with reading(file):
            expect_start(file, ZIP, ".npz")
        with self._opened() as arrays:
            self.names = list(arrays.names)

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as arrays:
            return arrays.get(name)

    def rows(self, name: str) -> Rows:
        return self.get(name)  # members may be compressed

    @contextmanager
    def _opened(self) -> Iterator[Npz]:
        with reading(self.file), self.file.open() as stream:
            yield Npz(stream)


class NpyFile:
    def __init__(self, file: File) -> None:
        self.file, self.names, self.notes = file, [ONLY], dict[str, str]()
        with reading(file):
            expect_start(file, NPY, ".npy")

    def get(self, name: str) -> NDArray[Any]:
        with reading(self.file), self.file.open() as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            return read_npy(stream, size)

    def rows(self, name: str) -> Rows:
        with reading(self.file), self.file.open() as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(0)
            return NpyRows(self.file, read_header(stream, size), stream.tell())


class NpyRows:
    """Slices are read, not mapped: a file that is cut short meanwhile is an error then, not the end of the process."""

    def __init__(self, file: File, header: Header, start: int) -> None:
        self.file, self._start = file, start
        self._header = header

    @property
    def shape(self) -> tuple[int, ...]:
        return self._header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._header.dtype

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last, _ = rows.indices(self.shape[0])
        with reading(self.file), self.file.open() as stream:
            if not self._header.fortran:
                width = math.prod(self.shape[1:])
                return self._read(stream, first * width, (last - first) * width).reshape(-1, *self.shape[1:])
            columns = [self._read(stream, c * self.shape[0] + first, last - first) for c in range(self.shape[1])]
            return np.stack(columns, axis=1)

    def _read(self, stream: IO[bytes], first: int, count: int) -> NDArray[Any]:
        size = self.dtype.itemsize
        stream.seek(self._start + first * size)
        content = stream.read(count * size)
        if len(content) != count * size:
            raise ValueError(f"it ends at {stream.tell()} bytes")
        return np.frombuffer(content, self.dtype)


class SafetensorsFile:
    def __init__(self, file: File) -> None:
        self.file = file
        with reading(file):
            file.open().close()  # the library would wait for a pipe
        with self._opened() as tensors:
            self.names, self.notes = list(tensors.keys()), dict(tensors.metadata() or {})

    def get(self, name: str) -> NDArray[Any]:
        with self._opened() as tensors:
            return np.asarray(tensors.get_tensor(name))

    def rows(self, name: str) -> Rows:
        return self.get(name)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from safetensors import safe_open
        except ImportError:
            raise missing_library(self.file, ".safetensors", "safetensors") from None
        odd = "damaged, or not made of plain numbers"  # that NumPy has, unlike bfloat16
        with reading(self.file, odd), safe_open(self.file.path, framework="numpy") as tensors:
            yield tensors

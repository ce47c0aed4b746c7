"""Arrays in .npy and .npz files: plain numbers and text, of a size that the file can hold, and never code.

A header is believed only after it was checked: nothing is allocated for what it promises beyond what is there.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

PLAIN = "biufcUS"  # kinds of numbers and text, by NumPy's letters
CHUNK = 2**24  # bytes that are read at a time
FREE, FOLD = 2**28, 100  # an archive may unpack to this many bytes, or this many times its own size
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class Header(NamedTuple):
    """What an .npy file says of its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


def read_header(stream: IO[bytes], size: int) -> Header:
    """The header of one array, checked against what is there.

    Parameters
    ----------
    stream : binary stream
        At the beginning of the .npy content; afterwards at that of the numbers.
    size : int
        How many bytes there are.

    Returns
    -------
    Header

    Raises
    ------
    ValueError
        Where it is damaged, or not of plain numbers or text.
    """
    read = _HEADERS.get(npy.read_magic(stream))
    if read is None:
        raise ValueError("not made of plain numbers or text")
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded when allow_pickle=False")  # NumPy's own words
    if dtype.kind not in PLAIN or dtype.itemsize == 0:
        raise ValueError(f"{dtype} is not made of plain numbers or text")
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"there is no shape {shape}")
    promised, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if promised != there:
        raise ValueError(f"its header promises {promised} bytes, and there are {there}")
    return Header(shape, fortran, dtype)


def read_npy(stream: IO[bytes], size: int) -> NDArray[Any]:
    """One array.

    Parameters
    ----------
    stream : binary stream
        At the beginning of the .npy content.
    size : int
        How many bytes there are.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError
        Where it is damaged, or not of plain numbers or text.
    """
    shape, fortran, dtype = read_header(stream, size)
    promised = math.prod(shape) * dtype.itemsize
    content = bytearray()  # arrays of it can be written to, unlike those of bytes
    while chunk := stream.read(min(CHUNK, promised - len(content))):
        content += chunk
    if len(content) != promised:
        raise ValueError(f"its header promises {promised} bytes, and there are {len(content)}")
    array: NDArray[Any] = np.ndarray(shape, dtype, content, order="F" if fortran else "C")
    if dtype.kind == "U":
        _check_text(array)
    return array


def _check_text(array: NDArray[Any]) -> None:
    points = np.frombuffer(array.tobytes(), np.dtype("u4").newbyteorder(array.dtype.byteorder))
    wrong = (points > 0x10FFFF) | ((points >= 0xD800) & (points <= 0xDFFF))
    if wrong.any():
        raise ValueError(f"{points[wrong][0]:#x} is not text")


class Npz:
    """The arrays of an .npz file.

    Parameters
    ----------
    stream : binary stream
        Which can be searched, and stays open as long as arrays are read.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(stream)
        self._size = stream.seek(0, 2)
        members = [name for name in self._zip.namelist() if name.endswith(".npy")]
        self.names = [name.removesuffix(".npy") for name in members]
        if len(set(members)) != len(members):
            twice = next(name for k, name in enumerate(self.names) if name in self.names[:k])
            raise ValueError(f"it holds {twice!r} twice")

    def get(self, name: str) -> NDArray[Any]:
        """The array of one of the `names`; what it would take is checked first."""
        member = self._zip.getinfo(f"{name}.npy")
        check_unpacked(name, member.file_size, self._size)
        with self._zip.open(member) as stream:
            return read_npy(stream, member.file_size)


def check_unpacked(name: str, promised: int, size: int) -> None:
    """Refuse what unpacks to far more than its file.

    Parameters
    ----------
    name : str
        Of what is unpacked.
    promised : int
        Its bytes in memory, as the file declares them.
    size : int
        Bytes of the file.
    """
    if promised > max(FREE, FOLD * size):
        raise ValueError(f"{name} would take {promised / 1e9:.1f} GB in memory, over {FOLD} times the size of the file")

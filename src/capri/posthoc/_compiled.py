"""How the compiled passes live on a machine: where they are kept, and in which threads they run.

Numba keeps what it compiles on disk. Where it cannot (a read-only installation without a home, a full disk) or finds
damage there, it would fail; here it compiles in memory and says so once. Threads are ours, for Numba's own
are safe neither to fork with (GNU OpenMP) nor to share between threads (workqueue).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import numpy as np
from joblib import cpu_count
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from capri._checks import InputError

_limit: ContextVar[int] = ContextVar("threads", default=2**31)
Array = Any  # Numba compiles for float32 and float64 scores alike

PARALLEL_FROM = 4_000_000  # scores, a few milliseconds; below, a second thread brings less than waiting for it may cost
WAITING, REST = (
    0.1,
    50.0,
)  # share of the time that may be waited for threads; so many times what was lost, they are left
BLOCKS = 4  # per thread, so that one on a busy core does not keep the others waiting
MOST_SUMS, LEAST_SUMMED = 64, 2**17  # blocks that are summed by themselves, at most; scores of each, at least


# -- what the compiler needs to be told ------------------------------------------------------------------------------


def larger(a: Any, b: Any) -> Any:
    """The larger of two numbers, neither of them NaN.

    Compiled, this tells LLVM that there are no NaNs in the choice, too, and not only in the comparison, as `fastmath`
    does: otherwise a loop that finds a maximum is not vectorised, and takes five times as long.
    """
    return a if a > b else b


@intrinsic  # type: ignore[untyped-decorator]
def _chosen(context: Any, a: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        flags = ("nnan", "nsz")
        first = builder.fcmp_ordered(">", *arguments, flags=flags)
        return builder.select(first, *arguments, flags=flags)

    return (a(a, b), build) if a == b else None


@overload(larger, strict=False)  # type: ignore[untyped-decorator]
def _larger(a: Any, b: Any) -> Any:
    return lambda a, b: _chosen(a, b)


# -- threads ---------------------------------------------------------------------------------------------------------


def by_rows(kernel: Callable[..., None], rows: Sequence[Array], *rest: Array) -> None:
    """Run a kernel on all samples: at once, or on blocks of them in threads where there are many scores.

    rows: arrays with a row per sample, the scores first; the kernel's first arguments. rest: its other ones. What it
    does to a row must depend on no other row.
    """
    n, n_threads = len(rows[0]), _threads_for(rows[0])
    at_once = n if all(isinstance(array, np.ndarray) for array in rows) else _rows_of(rows[0])
    size = min(at_once, -(-n // (BLOCKS * n_threads)) if n_threads > 1 else n)

    def work(block: slice) -> None:
        kernel(*(array[block] for array in rows), *rest)

    _in_turn(work, _slices(n, size), n_threads)


def summed(
    kernel: Callable[..., None], rows: Sequence[Array], width: int, *rest: Array, of: Array | None = None
) -> NDArray[np.float64]:
    """(width,) sums over all samples, which a kernel adds to the argument between rows and rest.

    of: the scores, where they are not the first of rows. Blocks of samples depend on the size of the problem alone, and
    so do the bits of the sums.
    """
    n, scores = len(rows[0]), rows[0] if of is None else of
    blocks = _slices(n, max(-(-n // MOST_SUMS), _rows_of(scores)))
    sums = np.zeros((len(blocks), width))

    def work(block: slice) -> None:
        kernel(*(array[block] for array in rows), sums[block.start // blocks[0].stop], *rest)

    _in_turn(work, blocks, _threads_for(scores))
    return np.asarray(sums.sum(axis=0))


def blocks_of(matrix: Array) -> list[slice]:
    """Blocks of rows of a matrix that is better not there as a whole."""
    return _slices(len(matrix), _rows_of(matrix))


def _rows_of(matrix: Array) -> int:
    """How many rows have the entries of a block."""
    return max(1, len(matrix) * LEAST_SUMMED // max(1, matrix.size))


def _slices(n: int, size: int) -> list[slice]:
    """Samples in blocks of so many."""
    return [slice(first, min(first + size, n)) for first in range(0, n, max(1, size))]


def _in_turn(work: Callable[[slice], None], blocks: list[slice], n_threads: int) -> None:
    """Do the work block by block; whoever of the threads is free takes the next."""
    if n_threads == 1 or len(blocks) == 1:
        for block in blocks:
            work(block)
        return
    left: SimpleQueue[slice | None] = SimpleQueue()
    for item in [*blocks, *[None] * n_threads]:
        left.put(item)

    def help_out() -> None:
        while (block := left.get()) is not None:
            work(block)

    helping, start = [], perf_counter()
    with suppress(RuntimeError):  # no thread can be started: the system allows no more, or Python is about to end
        for _ in range(n_threads - 1):
            helping.append(_helpers(os.getpid(), n_threads - 1).submit(help_out))
    help_out()  # all of it, where others are too busy to help
    done = perf_counter()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    _weigh(perf_counter() - done, perf_counter() - start)


class _Alone:
    """Until when threads are left alone, since they have cost more than they brought."""

    until = 0.0


def _weigh(waited: float, took: float) -> None:
    """A thread that is not scheduled may hold a block. Having waited for it too long, work alone for a while."""
    if waited > WAITING * took:
        _Alone.until = perf_counter() + REST * waited


def _threads_for(scores: Array) -> int:
    """One for a few scores, and while others keep the machine busy."""
    return 1 if scores.size < PARALLEL_FROM or perf_counter() < _Alone.until else threads()


@contextmanager
def limit_threads(n: int) -> Iterator[None]:
    """Within this context passes over the scores run in so many threads at most.

    Parameters
    ----------
    n : int
        1 or more. It holds for the thread that enters; ``NUMBA_NUM_THREADS`` limits all of them.

    Returns
    -------
    context manager

    Examples
    --------
    >>> with limit_threads(1):
    ...     threads()
    1
    """
    if n < 1:
        raise InputError(f"n is {n!r}; it must be 1 or more threads.")
    token = _limit.set(min(n, _limit.get()))
    try:
        yield
    finally:
        _limit.reset(token)


@cache
def _helpers(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one has none of its parent's, and gets its own."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"capri-{process}")


def threads() -> int:
    """As many as NUMBA_NUM_THREADS and `limit_threads` say and as this process may use."""
    return max(1, min(config.NUMBA_NUM_THREADS, cpu_count(), _limit.get()))


# -- what is kept on disk --------------------------------------------------------------------------------------------


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(**options)` without the GIL, kept on disk where that is possible."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = njit(nogil=True, **options)(function)
        if hasattr(kernel, "_cache"):  # not where NUMBA_DISABLE_JIT leaves the function as it is
            try:
                kernel._cache = _Kept(function)
            except (OSError, RuntimeError):
                kernel._cache = _Nowhere()
        return kernel

    return decorate


class _Nowhere(NullCache):  # type: ignore[misc]
    """Of a read-only installation without a home."""

    def save_overload(self, sig: Any, data: Any) -> None:
        _warn("there is no place to keep them; set NUMBA_CACHE_DIR to a folder that can be written")


class _Sealed(CompileResultCacheImpl):  # type: ignore[misc]
    """With a digest, for damaged machine code would run."""

    def reduce(self, compiled: Any) -> tuple[bytes, bytes]:
        content = dumps(super().reduce(compiled))
        return hashlib.sha256(content).digest(), content

    def rebuild(self, target_context: Any, sealed: tuple[bytes, bytes]) -> Any:
        digest, content = sealed
        if hashlib.sha256(content).digest() != digest:
            raise ValueError("its digest is another")
        return super().rebuild(target_context, pickle.loads(content))


class _Kept(FunctionCache):  # type: ignore[misc]
    """Numba's cache, which costs time where it fails, and nothing else."""

    _impl_class = _Sealed

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
            if found is None or found.signature.args == normalize_signature(sig)[0]:
                return found
            raise ValueError("it is for other types")  # of a process that wrote at the same time
        except Exception as error:  # unpickling damaged files raises whatever it likes
            _warn(f"what was kept of them in {self.cache_path} is damaged ({error}) and made anew")
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn(f"they cannot be kept in {self.cache_path} ({error}); make room there, or set NUMBA_CACHE_DIR")


_warned: list[str] = []


def _warn(what: str) -> None:
    if not _warned:
        _warned.append(what)
        warnings.warn(f"capri compiles its functions anew, which takes a while: {what}.", stacklevel=3)

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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from queue import SimpleQueue
from typing import Any

from joblib import cpu_count
from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

Array = Any  # Numba compiles for float32 and float64 scores alike

PARALLEL_FROM = 1_000_000  # scores; below, a second thread brings little, and much waiting on a busy machine
BLOCKS = 4  # per thread, so that one on a busy core does not keep the others waiting


# -- threads ---------------------------------------------------------------------------------------------------------


def by_rows(kernel: Callable[..., None], rows: Sequence[Array], *rest: Array) -> None:
    """Run a kernel on all samples: at once, or on blocks of them in threads where there are many scores.

    rows: arrays with a row per sample, the scores first; the kernel's first arguments. rest: its other ones. What it
    does to a row must depend on no other row.
    """
    n, n_threads = len(rows[0]), 1 if rows[0].size < PARALLEL_FROM else threads()
    if n_threads == 1:
        kernel(*rows, *rest)
        return
    size = -(-n // (BLOCKS * n_threads))
    blocks: SimpleQueue[int | None] = SimpleQueue()
    for first in [*range(0, n, size), *[None] * n_threads]:
        blocks.put(first)

    def work() -> None:
        while (first := blocks.get()) is not None:
            kernel(*(array[first : first + size] for array in rows), *rest)

    helping = []
    with suppress(RuntimeError):  # no thread can be started: the system allows no more, or Python is about to end
        for _ in range(n_threads - 1):
            helping.append(_helpers(os.getpid(), n_threads - 1).submit(work))
    work()  # all of it, where others are too busy to help
    for helper in helping:
        if not helper.cancel():
            helper.result()


@cache
def _helpers(process: int, n_threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one has none of its parent's, and gets its own."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"capri-{process}")


def threads() -> int:
    """As many as NUMBA_NUM_THREADS says and as this process may use."""
    return max(1, min(config.NUMBA_NUM_THREADS, cpu_count()))


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

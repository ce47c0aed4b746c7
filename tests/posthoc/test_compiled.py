"""Compiled passes where Numba cannot live: without a cache, with a damaged one, in forked processes and in threads."""

import errno
import importlib.util
import os
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba.core import caching

from capri import InputError
from capri.posthoc import _compiled, _kernels
from capri.posthoc._compiled import by_rows, limit_threads, summed

SOURCE = "def total(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total\n"


@pytest.fixture
def compile_anew(tmp_path, monkeypatch):
    """A function, compiled as by a process that has just begun; what it warns of is kept in the list."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "passes.py").write_text(SOURCE)

    def call(values):
        monkeypatch.setattr(_compiled, "_warned", [])
        spec = importlib.util.spec_from_file_location("passes", tmp_path / "passes.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "passes", module)  # where what was compiled looks for its globals
        spec.loader.exec_module(module)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            kernel = _compiled.compiled()(module.total)
            value = kernel(np.asarray(values))
            kernel(np.asarray(values, np.float32))
        return value, kernel, [str(warning.message) for warning in said]

    return call


def kept(folder, pattern):
    files = sorted(folder.rglob(pattern))
    assert files
    return files


class TestOnDisk:
    def test_a_second_process_compiles_nothing(self, compile_anew):
        compile_anew([1.0, 2.0])
        value, kernel, said = compile_anew([1.0, 2.0])
        assert value == 3
        assert sum(kernel.stats.cache_hits.values()) == 2
        assert not said

    def test_without_a_place_to_write_it_compiles_in_memory_and_says_so_once(self, compile_anew, monkeypatch):
        def refuse(self):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
        value, _, said = compile_anew([1.0, 2.0])
        assert value == 3
        (message,) = said
        assert message.startswith("capri compiles its functions anew, which takes a while: there is no place to keep")
        assert message.endswith("set NUMBA_CACHE_DIR to a folder that can be written.")

    def test_on_a_full_disk_it_compiles_in_memory_and_says_so_once(self, compile_anew, monkeypatch):
        def refuse(self, path):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(caching.IndexDataCacheFile, "_open_for_write", refuse)
        value, _, said = compile_anew([1.0, 2.0])
        assert value == 3
        (message,) = said
        assert "No space left on device" in message
        assert "make room there, or set NUMBA_CACHE_DIR" in message

    @pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
    @pytest.mark.parametrize(
        "damage",
        [
            lambda content: b"",
            lambda content: content[: len(content) // 2],
            lambda content: bytes(len(content)),
            lambda content: b"garbage" + content,
        ],
        ids=["empty", "cut", "zeros", "garbage"],
    )
    def test_what_is_damaged_is_made_anew(self, compile_anew, tmp_path, pattern, damage):
        compile_anew([1.0, 2.0])
        for file in kept(tmp_path, pattern):
            file.write_bytes(damage(file.read_bytes()))
        value, _, said = compile_anew([1.0, 2.0])
        assert value == 3
        (message,) = said
        assert "is damaged" in message
        value, kernel, said = compile_anew([1.0, 2.0])
        assert value == 3
        assert sum(kernel.stats.cache_hits.values()) == 2
        assert not said

    def test_damaged_machine_code_is_not_run(self, compile_anew, tmp_path):
        compile_anew([1.0, 2.0])
        for file in kept(tmp_path, "*.nbc"):
            content = bytearray(file.read_bytes())
            code = content.index(b"\x7fELF") if b"\x7fELF" in content else len(content) // 2
            for at in range(code + 64, code + 1000):
                content[at] ^= 0xFF
            file.write_bytes(bytes(content))
        value, _, (message,) = compile_anew([1.0, 2.0])
        assert value == 3
        assert "its digest is another" in message

    def test_code_for_other_types_is_not_run(self, compile_anew, tmp_path):
        compile_anew([1.0, 2.0])
        first, second = kept(tmp_path, "*.nbc")  # for float64 and for float32
        first.write_bytes(second.read_bytes())
        value, _, (message,) = compile_anew([1.0, 2.0])
        assert value == 3
        assert "it is for other types" in message


PASSES = """
import hashlib
import numpy as np
from capri.posthoc import _kernels

rng = np.random.default_rng(0)
scores, own, sums, p = rng.normal(size=(300, 37)), np.zeros(300), np.zeros(38), np.zeros((300, 37))
scale, shift, y = np.full(37, 1 / 64), rng.normal(size=37) / 64, rng.integers(0, 37, 300)
_kernels.soft_decisions(scores, p, scale, shift)
_kernels.opinions(np.arange(300), y, np.ones(300), own, sums, scores, scale, shift, 0.05, np.full(37, 1 / 37))
print(hashlib.sha256(own.tobytes() + sums.tobytes() + p.tobytes()).hexdigest())
"""


def test_compiled_passes_and_those_from_the_cache_give_the_same_bits(tmp_path):
    apart = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-c", PASSES]
    anew, again = (subprocess.run(words, env=apart, capture_output=True, text=True, check=True) for _ in range(2))
    assert kept(tmp_path, "*.nbc")
    assert anew.stdout == again.stdout


class TestRows:
    @pytest.fixture
    def many_threads(self, monkeypatch):
        monkeypatch.setattr(_compiled, "threads", lambda: 4)
        monkeypatch.setattr(_compiled, "PARALLEL_FROM", 1)
        monkeypatch.setattr(_compiled._Alone, "until", 0.0)

    @pytest.mark.parametrize("n", [1, 3, 16, 1001])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_in_blocks_each_row_is_what_it_is_at_once(self, n, dtype, rng, many_threads):
        scores, y = rng.normal(size=(n, 7)).astype(dtype), rng.integers(0, 7, n)
        m, l, h, g = np.ones(7), *rng.normal(size=(3, 7))
        blocks, once = np.full((2, n), np.nan), np.full((2, n), np.nan)
        by_rows(_kernels.right_intervals, (scores, y, *blocks), m, l, h, g)
        _kernels.right_intervals(scores, y, *once, m, l, h, g)
        np.testing.assert_array_equal(blocks, once)

    @pytest.mark.parametrize(("n", "k"), [(1, 3), (17, 5), (1001, 3), (3000, 500)])
    def test_sums_have_the_same_bits_in_any_number_of_threads(self, n, k, rng, monkeypatch):
        values, found = rng.normal(size=(n, k)), []
        monkeypatch.setattr(_compiled, "PARALLEL_FROM", 1)
        for number in (1, 2, 5):
            monkeypatch.setattr(_compiled, "threads", lambda number=number: number)
            found.append(
                summed(lambda rows, sums, factor: np.add(sums, factor * rows.sum(axis=0), sums), [values], k, 2.0)
            )
        np.testing.assert_allclose(found[0], 2 * values.sum(axis=0), atol=1e-9)
        assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()

    def test_what_fails_in_a_thread_fails(self, many_threads):
        def kernel(rows):
            raise MemoryError

        with pytest.raises(MemoryError):
            by_rows(kernel, (np.zeros((100, 3)),))

    def test_where_no_thread_can_be_started_there_is_one(self, many_threads, monkeypatch):
        def refuse(*_):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(_compiled, "_helpers", refuse)
        rows, seen = np.zeros((100, 3)), np.zeros(100)

        def kernel(scores, counts):
            counts += 1

        by_rows(kernel, (rows, seen))
        assert (seen == 1).all()

    def test_threads_that_are_late_are_left_alone_for_a_while(self, many_threads, monkeypatch):
        monkeypatch.setattr(_compiled._Alone, "until", 0.0)
        used, start = [], threading.get_ident()

        def kernel(scores):
            used.append(threading.get_ident())
            time.sleep(0.001 if used[-1] == start else 0.2)

        by_rows(kernel, (np.zeros((64, 3)),))
        assert len(set(used)) > 1
        used.clear()
        by_rows(kernel, (np.zeros((64, 3)),))
        assert set(used) == {start}
        assert 1 < _compiled._Alone.until - time.perf_counter() < 50

    def test_threads_in_time_go_on_helping(self, many_threads, monkeypatch):
        monkeypatch.setattr(_compiled._Alone, "until", 0.0)
        for _ in range(3):
            _compiled._weigh(0.001, 0.1)
        assert _compiled._threads_for(np.zeros(10)) == 4

    def test_a_limit_holds_within_its_context_and_not_in_other_threads(self, monkeypatch):
        monkeypatch.setattr(_compiled.config, "NUMBA_NUM_THREADS", 8)
        monkeypatch.setattr(_compiled, "cpu_count", lambda: 8)
        with limit_threads(3):
            with limit_threads(5):
                assert _compiled.threads() == 3
            with limit_threads(1), ThreadPoolExecutor(1) as pool:
                assert _compiled.threads() == 1
                assert pool.submit(_compiled.threads).result() == 8
        assert _compiled.threads() == 8
        with pytest.raises(InputError, match="1 or more"), limit_threads(0):
            pass

    def test_a_small_problem_is_one_call(self):
        calls = []
        by_rows(lambda rows: calls.append(len(rows)), (np.zeros((100, 3)),))
        assert calls == [100]

    def test_threads_are_limited_as_numba_is(self, monkeypatch):
        monkeypatch.setattr(_compiled.config, "NUMBA_NUM_THREADS", 1)
        assert _compiled.threads() == 1


FITTING = """
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_info

from capri import LogitAdjuster
from capri.posthoc import _compiled

_compiled.threads, _compiled.PARALLEL_FROM = lambda: 4, 1  # as for many scores on many cores


def fit(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(300) % 5
    scores = rng.normal(size=(300, 5)) + 2 * np.eye(5)[y]
    adjuster = LogitAdjuster("macro_f1", bootstrap=5).fit(scores, y, class_counts=[50, 40, 30, 20, 10])
    return adjuster.strategy_.l.tolist()


def blas():
    return sorted(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


fork = get_context("fork")
alone, before = [fit(seed) for seed in range(4)], blas()
match sys.argv[1]:
    case "futures":
        with ProcessPoolExecutor(2, mp_context=fork) as pool:
            found = list(pool.map(fit, range(4)))
    case "multiprocessing":
        with fork.Pool(2) as pool:
            found = pool.map(fit, range(4))
    case "joblib":
        found = Parallel(2, backend="multiprocessing")(delayed(fit)(seed) for seed in range(4))
    case "threads":
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(fit, range(4)))
np.testing.assert_allclose(found, alone, rtol=0, atol=1e-9)
assert blas() == before, (blas(), before)
"""


@pytest.mark.parametrize(
    ("way", "layer"),  # with what Numba's own threads do not survive
    [("futures", "default"), ("multiprocessing", "default"), ("joblib", "default"), ("threads", "workqueue")],
)
def test_fitting_in_forked_processes_and_in_threads_gives_what_it_gives_alone(way, layer, tmp_path):
    (tmp_path / "fitting.py").write_text(FITTING)
    command = [sys.executable, "fitting.py", way]
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


LEAVING = """
import threading

from threadpoolctl import threadpool_info

from capri.posthoc import smooth


def blas():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def first():
    with smooth._one_blas_thread:
        came.set()
        leave.wait(60)
    left.set()
    end.wait(60)


came, leave, left, end = (threading.Event() for _ in range(4))
thread = threading.Thread(target=first, daemon=True)
thread.start()
came.wait(60)
with smooth._one_blas_thread:
    leave.set()
    left.wait(60)
    print(blas())
print(blas(), thread.is_alive())
"""


def with_two_threads(script, *arguments):
    """The script, where BLAS may have two threads."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, "2")}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_blas_has_its_threads_back_whoever_leaves_last():
    done = with_two_threads(LEAVING)
    assert (done.returncode, done.stdout) == (0, "{1}\n{2} True\n"), done.stderr


FORKED = """
import os
import signal
import sys
import threading
import time

import numpy as np
from threadpoolctl import threadpool_info

from capri import LogitAdjuster
from capri.posthoc import smooth

minimize, inside, go_on = smooth.minimize, threading.Event(), threading.Event()
rng, y = np.random.default_rng(0), np.arange(300) % 5
scores = rng.normal(size=(300, 5)) + 2 * np.eye(5)[y]


def fit():
    adjuster = LogitAdjuster("macro_f1", bootstrap=0).fit(scores, y, class_counts=[50, 40, 30, 20, 10])
    return adjuster.strategy_.l.tolist()


def blas():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def wait(*arguments, **settings):
    inside.set()
    go_on.wait(60)
    return minimize(*arguments, **settings)


def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        smooth.minimize = minimize
        while_ = blas()
        same = fit() == alone
        print(f"in the child {while_} {blas()} {same}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)


def in_the_middle(lock):
    "A fit in a thread, and a fork by another in its middle."
    fitting = threading.Thread(target=fit, daemon=True)
    fitting.start()
    assert inside.wait(60)
    forking = threading.Thread(target=fork)
    with smooth._one_blas_thread._lock if lock else threading.Lock():
        forking.start()
        time.sleep(0.5)
    forking.join()
    go_on.set()
    fitting.join(60)


def by_itself():
    "A fit that forks in its own middle, as an objective may."
    def forks(*arguments, **settings):
        smooth.minimize, child = minimize, os.fork()
        if child:
            os.waitpid(child, 0)
        else:
            signal.alarm(60)
            forked.append(blas())
        return minimize(*arguments, **settings)

    forked = []
    smooth.minimize = forks
    same = fit() == alone
    if forked:
        print(f"in the child {forked[0]} {blas()} {same}", flush=True)
        os._exit(0)


alone = fit()
assert blas() == {2}, "set by the environment"
smooth.minimize = wait
by_itself() if sys.argv[1] == "itself" else in_the_middle(lock=sys.argv[1] == "lock")
assert blas() == {2}, blas()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
@pytest.mark.parametrize(("who", "while_"), [("thread", "{2}"), ("lock", "{2}"), ("itself", "{1}")])
def test_a_fork_in_the_middle_of_a_fit_leaves_blas_its_threads(who, while_):
    done = with_two_threads(FORKED, who)
    assert (done.returncode, done.stdout) == (0, f"in the child {while_} {{2}} True\n"), done.stderr

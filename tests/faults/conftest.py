"""The campaign of faults: what is counted, a command in this process, and what it may end with."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from capri.cli import app

SEED = 20261  # everything that is drawn here is drawn from it
FINE = (0, 2, 130, 143)  # done, refused, interrupted, told to stop
PATIENCE = 60  # seconds, after which a command hangs


@dataclass
class Count:
    cases: int = 0
    failures: list[tuple[str, object]] = field(default_factory=list)


COUNTS: dict[str, Count] = defaultdict(Count)


@dataclass(frozen=True)
class Tally:
    """`with tally("kind") as check`: `check(problem, case)` counts a case, which fails if there is a problem."""

    kind: str

    def __enter__(self) -> Callable[[str | None, object], None]:
        return self._check

    def _check(self, problem: str | None, case: object) -> None:
        count = COUNTS[self.kind]
        count.cases += 1
        if problem:
            count.failures.append((problem, case))

    def __exit__(self, *raised: object) -> None:
        found = COUNTS[self.kind].failures
        if found and raised == (None, None, None):
            kinds = dict(reversed(found))  # the first case of each problem
            shown = "\n".join(f"{problem} <- {case}" for problem, case in kinds.items())
            pytest.fail(f"{len(found)} failures of {len(kinds)} kinds:\n{shown}", pytrace=False)


@pytest.fixture
def tally() -> type[Tally]:
    return Tally


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What forks comes first: threads that compiled code has started do not survive a fork."""
    order = (
        "test_kills",
        "test_soak",
        "test_disk",
        "test_bits",
        "test_files",
        "test_policies",
        "test_api",
        "test_dask",
    )
    mine = [item for item in items if item.path.parent == Path(__file__).parent]
    mine.sort(key=lambda item: (order.index(item.path.stem), "forked" not in getattr(item, "fixturenames", ())))
    items[:] = [item for item in items if item not in mine] + mine


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Bits depend on how many there are, and so does whether a fork is safe."""
    torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of `make faults`."""
    if not COUNTS:
        return
    terminalreporter.write_line("\n| kind | cases | failures |\n| --- | ---: | ---: |")
    for kind, count in COUNTS.items():
        terminalreporter.write_line(f"| {kind} | {count.cases:,} | {len(count.failures):,} |")
    cases, failures = sum(c.cases for c in COUNTS.values()), sum(len(c.failures) for c in COUNTS.values())
    terminalreporter.write_line(f"| all | {cases:,} | {failures:,} |")


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (None: not by an exit), what it printed, and what is wrong with that."""

    code: int | None
    out: str
    problem: str | None


class _Hangs(BaseException):
    pass


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    def lose(number: int, frame: object) -> None:
        raise _Hangs

    before = signal.signal(signal.SIGALRM, lose)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def in_process(*arguments: object) -> Ended:
    """`capri …` in this process: no traceback, no other exit code, no hang, and one line where it is refused."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: int | None = None
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _patience():
            app([str(a) for a in arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    except _Hangs:
        return Ended(None, "", f"hangs for {PATIENCE} s")
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Ended(None, "", f"{type(error).__name__}: {error} in {Path(where.filename).name}:{where.lineno}"[:300])
    printed, said = (stream.buffer.getvalue().decode(errors="replace") for stream in (out, err))  # type: ignore
    if code not in FINE:
        return Ended(code, printed, f"exit code {code}")
    if "Traceback" in said or (code == 2 and len(said.splitlines()) != 1):
        return Ended(code, printed, f"stderr {said[:200]!r}")
    return Ended(code, printed, None)


@pytest.fixture
def capri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    monkeypatch.chdir(tmp_path)
    return in_process


def in_a_fork(arguments: list[str], log: Path) -> int:
    """`capri …` in a process of its own, without the time to import everything; its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 70  # a traceback
    try:
        warnings.resetwarnings()  # no errors, outside of tests
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
        try:
            app(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def wait_for(child: int, patience: float) -> int | None:
    """The exit code of a process, as shells have it; None where it hangs, and is killed."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.fixture
def forked() -> Callable[[list[str], Path], int]:
    return in_a_fork


@pytest.fixture
def waited() -> Callable[[int, float], int | None]:
    return wait_for


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


#: A linear layer of three classes, as ONNX text.
MODEL = """<ir_version: 8, opset_import: ["": 17]> net (float[n, 2] x) => (float[n, 3] logits)
<float[2, 3] W = {1, 0, -1, 0, 1, 1}, float[3] b = {0, 0, 1}> { logits = Gemm (x, W, b) }"""


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that work, in every format: scores, labels, classes, a layer, a model, a curve, and policies."""
    import onnx
    import pandas
    import safetensors.numpy

    folder = tmp_path_factory.mktemp("good")
    rng, counts = np.random.default_rng(SEED), np.array([90, 30, 10])
    y = np.repeat([0, 1, 2], 12)
    scores = rng.normal(size=(36, 3)) + 2 * np.eye(3)[y] + np.log(counts / counts.sum())
    names = np.array(["cat", "dog", "lynx"])
    others = scores + rng.normal(size=(36, 3))
    np.savez(folder / "others.npz", logits=others, y=y, class_names=names)
    pandas.DataFrame(others, columns=names).assign(label=names[y]).to_csv(folder / "others.csv", index=False)
    np.savez(folder / "scores.npz", logits=scores, y=y, class_names=names, train_counts=counts)
    np.savez_compressed(folder / "packed.npz", logits=scores, y=names[y], class_names=names, train_counts=counts)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "labels.npy", y)
    frame = pandas.DataFrame(scores, columns=names).assign(label=names[y])
    frame.to_csv(folder / "scores.csv", index=False)
    frame.to_parquet(folder / "scores.parquet")
    safetensors.numpy.save_file({"logits": scores, "y": y, "train_counts": counts}, folder / "scores.safetensors")
    layer = {"weight": rng.normal(size=(3, 4)).astype(np.float32), "bias": np.zeros(3, np.float32)}
    np.savez(folder / "layer.npz", **layer)
    safetensors.numpy.save_file(layer, folder / "layer.safetensors")
    (folder / "counts.json").write_text('{"cat": 90, "dog": 30, "lynx": 10}')
    (folder / "counts.csv").write_text("class,count\ncat,90\ndog,30\nlynx,10\n")
    onnx.save(onnx.parser.parse_model(MODEL), folder / "model.onnx")
    scores_file = f"{folder}/scores.npz"
    for words in (
        ["tune", scores_file, "--method", "la", "-o", f"{folder}/policy.json"],
        ["tune", scores_file, "--method", "la", "--reject", "0.2", "-o", f"{folder}/abstaining.json"],
        ["tune", scores_file, "--method", "la", "--constraint", "recall[*] >= 0.1", "--guarantee", "0.6", "-o",
         f"{folder}/promising.json"],
        ["frontier", scores_file, "--method", "la", "--of", "worst", "--points", "3", "-o", f"{folder}/frontier.json"],
    ):  # fmt: skip
        assert wait_for(in_a_fork(words, folder / "log"), PATIENCE) == 0, (folder / "log").read_text()
    return folder

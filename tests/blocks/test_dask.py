"""On Dask: threads, processes and a worker that is killed give what one pass in this process gives."""

import os
import signal

import numpy as np
import pytest

from capri import InputError, LogitAdjuster, evaluate
from capri.blocks import Block, as_source
from capri.blocks.tallies import confusions, unadjusted
from capri.posthoc import streaming

from .conftest import K, N

da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")


@pytest.fixture
def arrays(data):
    scores, y = data
    return da.from_array(scores, chunks=(250, -1)), da.from_array(y, chunks=250)


def expected(data):
    scores, y = data
    return np.bincount(y * K + scores.argmax(axis=1), minlength=K * K).reshape(K, K)


COLUMNS = {k: k for k in range(K)}


class TestThreads:
    def test_a_worker_s_error_names_chunk_and_row(self, data):
        scores, y = data
        scores = scores.copy()
        scores[1234, 5] = np.inf
        opened = as_source(da.from_array(scores, chunks=(250, -1)), y)
        with pytest.raises(InputError, match=r"the Dask array, chunk 4, row 234, column 5: the score is inf"):
            evaluate(opened, None, K)

    def test_unknown_chunk_sizes_are_computed(self, data, arrays):
        scores, y = arrays
        kept = da.from_array(data[1], chunks=250) < 5
        opened = as_source(scores[kept], y[kept])
        assert opened.n_samples == (data[1] < 5).sum()
        assert sum(len(block.scores) for block in opened) == opened.n_samples

    def test_many_chunks_go_window_by_window(self, data):
        scores, y = data
        opened = as_source(da.from_array(scores, chunks=(20, -1)), da.from_array(y, chunks=20))
        seen = []
        [found] = [opened.reduced(len_of, int.__add__, seen.append)]
        assert found == N
        assert sum(seen) == N
        assert len(seen) == 3  # windows of 64 of 150 chunks

    @pytest.mark.parametrize("labels", [np.zeros(5, int), "label"])
    def test_labels_must_fit(self, arrays, labels):
        with pytest.raises(InputError):
            as_source(arrays[0], labels)


def len_of(block: Block) -> int:
    return len(block.scores)


def die_once(block: Block) -> int:
    """Kills the worker's process at the block that begins at row 1000, unless it was killed before."""
    marker = os.environ["CAPRI_TEST_MARKER"]
    if block.start == 1000 and not os.path.exists(marker):  # noqa: PTH110
        with open(marker, "w") as stream:  # noqa: PTH123
            stream.write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return len(block.scores)


def kill_once(scores, block_info=None):
    """Chunk 4 of an array, whose first reader does not survive it."""
    marker = os.environ["CAPRI_TEST_MARKER"]
    if block_info[0]["chunk-location"][0] == 4 and not os.path.exists(marker):  # noqa: PTH110
        with open(marker, "w") as stream:  # noqa: PTH123
            stream.write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return scores


@pytest.mark.slow
class TestProcesses:
    @pytest.fixture
    def client(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CAPRI_TEST_MARKER", str(tmp_path / "killed"))
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        )
        with cluster, distributed.Client(cluster) as client:
            yield client

    def test_give_what_one_pass_gives(self, client, data, arrays):
        opened = as_source(*arrays)
        [found] = confusions(opened, [unadjusted], COLUMNS)
        np.testing.assert_array_equal(found, expected(data))
        assert opened.digest == as_source(*data).digest

    def test_a_killed_worker_is_survived(self, client, tmp_path, arrays):
        before = {worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()}
        assert as_source(*arrays).reduced(die_once, int.__add__) == N
        assert (tmp_path / "killed").exists()
        client.wait_for_workers(2, timeout=60)
        assert {worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()} != before

    @pytest.mark.parametrize("memory", ["1GB", None])
    def test_policies_are_those_of_the_array_though_a_worker_is_killed(self, client, tmp_path, data, arrays, memory):
        """Where all rows fit, and where a sample tunes (`None` stands for a budget that holds a fifth of them)."""
        settings = {"memory": memory or streaming.BLOCKS + streaming.ROW * N + N // 5 * K * (2 + 4 * streaming.WORKING)}
        expected = LogitAdjuster("cvar:0.3", bootstrap=20).fit(as_source(*data), **settings)
        scores, y = arrays
        dying = scores.map_blocks(kill_once, dtype=scores.dtype)
        found = LogitAdjuster("cvar:0.3", bootstrap=20).fit(as_source(dying, y), **settings)
        assert (tmp_path / "killed").exists()
        assert found.policy_.to_json() == expected.policy_.to_json()
        assert ("sample" in found.policy_.data) == (memory is None)
        if memory:
            assert found.policy_.to_json() == LogitAdjuster("cvar:0.3", bootstrap=20).fit(*data).policy_.to_json()

"""The same scores and labels in every kind of source."""

from pathlib import Path

import numpy as np
import pytest

from capri.blocks import as_source

N, K = 3000, 7


@pytest.fixture(scope="session")
def data():
    """Half-precision scores of a fair model, (3000, 7), and labels."""
    rng = np.random.default_rng(5)
    y = rng.choice(K, N, p=np.arange(1, K + 1) / 28)
    scores = rng.normal(size=(N, K)) + 1.5 * np.eye(K)[y] + np.log(np.arange(1, K + 1))
    return scores.astype(np.float16), y


@pytest.fixture(scope="session")
def columns(data):
    """As columns of a table."""
    scores, y = data
    return {f"score_{k}": scores[:, k] for k in range(K)} | {"label": y}


@pytest.fixture
def write(tmp_path):
    """Writes a Parquet file of columns."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def written(name, columns, **settings) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), path, **settings)
        return path

    return written


@pytest.fixture
def folder(write, columns, tmp_path) -> Path:
    """A folder of three Parquet files, in row groups of 200."""
    for i in range(3):
        write(
            f"scores/part-{i}.parquet",
            {k: v[i * 1000 : (i + 1) * 1000] for k, v in columns.items()},
            row_group_size=200,
        )
    return tmp_path / "scores"


KINDS = ("array", "npy", "fortran", "npz", "csv", "parquet", "lists", "folder", "blocks", "function", "dask")


@pytest.fixture
def source(data, columns, write, folder, tmp_path):
    """`source(kind)`: the same rows, each time cut in another way."""
    scores, y = data

    def opened(kind):
        if kind == "array":
            return as_source(scores, y, rows=333)
        if kind in ("npy", "fortran"):
            np.save(tmp_path / "x.npy", np.asfortranarray(scores) if kind == "fortran" else scores)
            return as_source(tmp_path / "x.npy", y, rows=301)
        if kind == "npz":
            np.savez(tmp_path / "x.npz", logits=scores)
            return as_source(tmp_path / "x.npz", y, rows=1000)
        if kind == "csv":
            rows = (",".join(map(str, [*row, label])) for row, label in zip(scores.tolist(), y.tolist(), strict=True))
            (tmp_path / "x.csv").write_text("\n".join([",".join(columns), *rows]))
            return as_source(tmp_path / "x.csv", rows=457)
        if kind == "parquet":
            return as_source(write("x.parquet", columns, row_group_size=1100), rows=128)
        if kind == "lists":
            pyarrow = pytest.importorskip("pyarrow")
            listed = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(scores.ravel()), K)
            return as_source(write("l.parquet", {"logits": listed, "y": y}, row_group_size=500))
        if kind == "folder":
            return as_source(folder)
        cut = range(0, N, 900)
        if kind == "blocks":
            return as_source([(scores[i : i + 900], y[i : i + 900]) for i in cut])
        if kind == "function":
            return as_source(lambda: ((scores[i : i + 900], y[i : i + 900]) for i in cut), rows=100)
        da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
        return as_source(da.from_array(scores, chunks=(400, 3)), da.from_array(y, chunks=1000))

    return opened

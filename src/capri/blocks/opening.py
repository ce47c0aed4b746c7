"""From whatever holds scores to a source of row blocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from capri._checks import InputError, short
from capri.blocks.source import Source
from capri.blocks.sources import ArraySource, IterableSource, TableSource, refused
from capri.tables import ONLY, SCORE_PREFIX, Archive, File, Table, opened

LABELS = ("label", "y", "labels", "y_true")  # what columns of labels are called
LISTS = ("scores", "logits", "proba", "probabilities")  # and arrays of scores, or columns of lists


def as_source(
    scores: Any,
    labels: ArrayLike | str | None = None,
    *,
    columns: Sequence[str] | str | None = None,
    rows: int | None = None,
) -> Source:
    """A source of row blocks.

    Parameters
    ----------
    scores : array, path, iterable, function or Dask array
        An array or memory map (N, K), or what gives slices of rows as arrays do. The path of an .npy, .npz, .csv or
        .parquet file, or of a folder of .parquet files. A list or function of blocks (scores, labels). A Dask array.
    labels : array-like of shape (N,) or str, optional
        The labels; in tables, the name of their column (`label`, `y`, … are found without).
    columns : sequence of str or str, optional
        Of tables: the score columns, or the one column that holds a list of scores in each row. By default those that
        begin with `score_`, else a column of lists called `scores` or `logits`, else all but the labels.
    rows : int, optional
        The most rows of a block; by default as many as take 32 MiB as doubles.

    Returns
    -------
    Source

    Examples
    --------
    >>> import numpy as np
    >>> source = as_source(np.eye(3), [0, 1, 2], rows=2)
    >>> [len(block.scores) for block in source]
    [2, 1]
    """
    if rows is not None and (not isinstance(rows, int) or rows < 1):
        raise InputError(f"rows is {short(rows)}; it must be a whole number, at least 1.")
    if isinstance(scores, Source):
        return scores
    if isinstance(scores, str | os.PathLike):
        return _of_file(Path(scores), labels, columns, rows)
    if type(scores).__module__.partition(".")[0] == "dask":
        from capri.blocks.on_dask import DaskSource

        return DaskSource(scores, labels, rows=rows)
    if hasattr(scores, "shape"):
        return ArraySource(scores, labels, rows=rows)
    if labels is not None:
        raise InputError("labels are given beside blocks of scores; give each block as a pair (scores, labels).")
    if callable(scores) or isinstance(scores, Iterable):
        return IterableSource(scores, rows=rows)
    raise refused(scores)


def _of_file(path: Path, labels: Any, columns: Sequence[str] | str | None, rows: int | None) -> Source:
    file = opened(File(path))
    if isinstance(file, Table):
        return _of_table(file, path, labels, columns, rows)
    return ArraySource(file.rows(_scores_of(file, path)), labels, str(path), rows)


def _scores_of(archive: Archive, path: Path) -> str:
    found = [name for name in archive.names if name in (ONLY, *LISTS)]
    if len(found) != 1:
        raise InputError(f"{path}: holds {short(archive.names)}; open it and give the array of scores itself.")
    return found[0]


def _of_table(
    table: Table, path: Path, labels: Any, columns: Sequence[str] | str | None, rows: int | None
) -> TableSource:
    if labels is not None and not isinstance(labels, str):
        raise InputError(f"{path}: labels is {short(labels)}; give the name of the column of labels.")
    label = next((name for name in LABELS if name in table.names), None) if labels is None else labels
    wanted = [columns] if isinstance(columns, str) else columns
    if wanted is None:
        wanted = score_columns([name for name in table.names if name != label], table.lists)
    for name in (*wanted, *([] if label is None else [label])):
        if name not in table.names:
            raise InputError(f"{path}: has no column {name!r}; there are {short(table.names)}.")
    named = None if wanted and wanted[0] in table.lists else [name.removeprefix(SCORE_PREFIX) for name in wanted]
    return TableSource(table, wanted, label, str(path), named, rows)


def score_columns(names: Sequence[str], lists: Sequence[str]) -> list[str]:
    """Those with the prefix, or the column of lists, or all."""
    return (
        [name for name in names if name.startswith(SCORE_PREFIX)]
        or [name for name in names if name in lists and name in LISTS][:1]
        or list(names)
    )

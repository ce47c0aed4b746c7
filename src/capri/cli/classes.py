"""Options that say something of each class: a file, or a list such as `900,90,10`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, check_vector, short
from capri.cli.tables import ARCHIVES, TABLES, Archive, Table, is_table, open_archive, open_table

NAME_KEYS = ("class_names", "classes")
COUNT_KEYS = ("train_counts", "class_counts")
KEYS = {
    "--class-names": NAME_KEYS,
    "--class-counts": COUNT_KEYS,
    "--weights": ("weights", "weight"),
    "--groups": ("groups", "group"),
}
CLASS_COLUMN = "class"
LISTS = ".txt"


def class_texts(value: str, option: str, names: Sequence[str] | None = None) -> list[str]:
    """One text per class, from a file or from the list itself; a column `class` puts rows in the order of `names`."""
    path = Path(value)
    suffix = path.suffix.lower()
    if suffix == LISTS:
        return _lines(path)
    if suffix in (*ARCHIVES, *TABLES):
        return _from_file(path, option, names)
    return [part.strip() for part in value.split(",")]


def class_numbers(value: str, option: str, names: Sequence[str]) -> NDArray[np.float64]:
    """One number per class, from a file or from the list itself."""
    return check_vector(_floats(class_texts(value, option, names), option), option, len(names))


def class_context(weights: str | None, groups: str | None, names: Sequence[str]) -> dict[str, Any]:
    """--weights and --groups, as objectives take them."""
    return {
        "weights": None if weights is None else class_numbers(weights, "--weights", names),
        "groups": None if groups is None else class_texts(groups, "--groups", names),
    }


def class_table(path: Path, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Columns of numbers by name, one row per class, in `names`' order."""
    if not is_table(path):
        archive = open_archive(path)
        columns = {key: archive.get(key) for key in archive.names if key not in NAME_KEYS}
        return {key: check_vector(column, f"{path}: {key}", len(names)) for key, column in columns.items()}
    table = open_table(path)
    order = _order(table, path, names)
    keys = [key for key in table.names if key != CLASS_COLUMN]
    values = table.numbers(keys)
    if len(values) != len(names):
        raise InputError(f"{path}: {len(values)} rows for {len(names)} classes; give one row per class.")
    return {key: values[order, j] for j, key in enumerate(keys)}


def _from_file(path: Path, option: str, names: Sequence[str] | None) -> list[str]:
    keys = KEYS[option]
    if not is_table(path):
        archive = open_archive(path)
        values = archive.get(_only(archive, path, option, [n for n in archive.names if n in keys] or archive.names))
        return [str(v) for v in values.ravel().tolist()]
    table = open_table(path)
    columns = table.names
    if names is not None:  # the list of names itself may well be called `class`
        columns = [n for n in columns if n != CLASS_COLUMN]
    elif CLASS_COLUMN in columns:
        columns = [CLASS_COLUMN]
    texts = table.texts(_only(table, path, option, [n for n in columns if n in keys] or columns))
    return texts if names is None else [texts[row] for row in _order(table, path, names)]


def _only(source: Archive | Table, path: Path, option: str, candidates: Sequence[str]) -> str:
    if len(candidates) != 1:
        raise InputError(f"{path}: holds {short(', '.join(source.names))}; for {option} give a file with one of them.")
    return candidates[0]


def _order(table: Table, path: Path, names: Sequence[str]) -> list[int]:
    """Rows of the table in the order of the classes, by its column `class` where it has one."""
    if CLASS_COLUMN not in table.names:
        return list(range(len(table.texts(table.names[0]))))
    rows = {name: row for row, name in enumerate(table.texts(CLASS_COLUMN))}
    for name in names:
        if name not in rows:
            raise InputError(f"{path}: class {name!r} has no row; give one row per class.")
    return [rows[name] for name in names]


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}).") from None


def _floats(texts: Sequence[str], option: str) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        bad = next(text for text in texts if not _is_float(text))
        raise InputError(f"{option} holds {bad!r}; give one number per class, or a file.") from None


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

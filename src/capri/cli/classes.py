"""Options that say something of each class: a list such as `900,90,10`, or a file.

A file that names the classes (a column `class`, the label column of pandas' ``value_counts().to_csv()``, the keys of a
JSON object) is aligned by these names, whatever its order; any other is taken in the order of the score columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError, check_vector, short
from capri._files import read_text
from capri.classes import Classes, check_once
from capri.cli.tables import opened, title
from capri.evidence import CLASS
from capri.tables import ARCHIVES, TABLES, Archive, Table, first_of

NAME_KEYS = ("class_names", "classes")
COUNT_KEYS = ("train_counts", "class_counts")
KEYS = {
    "--class-names": NAME_KEYS,
    "--class-counts": (*COUNT_KEYS, "count", "counts", "proportion"),
    "--weights": ("weights", "weight"),
    "--groups": ("groups", "group"),
    "--target-shares": ("shares", "share", "proportion", "count", "counts"),
}
CLASS_COLUMN = CLASS
LISTS, JSON = ".txt", ".json"


def class_names(value: str) -> list[str]:
    """The names themselves, in the order of the score columns."""
    found = _read(value, "--class-names")
    return [str(name) for name in found]


def class_texts(value: str, option: str, classes: Classes) -> list[str]:
    """One text per class, in the order of the score columns."""
    return [str(text) for text in classes.align(_read(value, option), value)]


def class_numbers(value: str, option: str, classes: Classes) -> NDArray[np.float64]:
    """One number per class, in the order of the score columns."""
    return check_vector(_floats(class_texts(value, option, classes), option), option, len(classes))


def class_context(weights: str | None, groups: str | None, classes: Classes) -> dict[str, Any]:
    """--weights and --groups, as objectives take them."""
    return {
        "weights": None if weights is None else class_numbers(weights, "--weights", classes),
        "groups": None if groups is None else class_texts(groups, "--groups", classes),
    }


def class_table(path: Path, classes: Classes) -> dict[str, NDArray[np.float64]]:
    """Columns of numbers by name, one row per class, in the order of the score columns."""
    file, where = opened(path), title(path)
    if not isinstance(file, Table):
        names, columns = first_of(file, NAME_KEYS), [key for key in file.names if key not in NAME_KEYS]
        order = slice(None) if names is None else classes.positions(names.ravel().tolist(), where)
        return {key: check_vector(file.get(key), f"{where}: {key}", len(classes))[order] for key in columns}
    keys = [key for key in file.names if key != CLASS_COLUMN]
    values = file.numbers(keys)
    if CLASS_COLUMN in file.names:
        values = values[classes.positions(file.texts(CLASS_COLUMN), where)]
    if len(values) != len(classes):
        raise InputError(f"{where}: {len(values)} rows for {len(classes)} classes; give one row per class.")
    return {key: values[:, j] for j, key in enumerate(keys)}


def _read(value: str, option: str) -> Sequence[Any] | Mapping[str, Any]:
    """What the option says, with the names of the classes where it has them."""
    path = Path(value)
    suffix = path.suffix.lower()
    if suffix == LISTS:
        return [line.strip() for line in _text(path).splitlines() if line.strip()]
    if suffix == JSON:
        return _from_json(path)
    if suffix in (*ARCHIVES, *TABLES):
        file = opened(path)
        return _from_table(file, path, option) if isinstance(file, Table) else _from_archive(file, path, option)
    return [part.strip() for part in value.split(",")]


def _from_json(path: Path) -> Sequence[Any] | Mapping[str, Any]:
    try:
        found = json.loads(_text(path), object_pairs_hook=lambda pairs: _once(pairs, path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}).") from None
    if not isinstance(found, list | dict):
        raise InputError(f"{path}: holds {short(found)}; give a list, or an object from class to value.")
    return found


def _once(pairs: Sequence[tuple[str, Any]], path: Path) -> dict[str, Any]:
    check_once([key for key, _ in pairs], str(path))
    return dict(pairs)


def _from_archive(archive: Archive, path: Path, option: str) -> Sequence[Any] | Mapping[str, Any]:
    known = [name for name in archive.names if name in KEYS[option]]
    others = [name for name in archive.names if option == "--class-names" or name not in NAME_KEYS]
    values = archive.get(_only(known or others, path, option)).ravel().tolist()
    names = None if option == "--class-names" else first_of(archive, NAME_KEYS)
    return values if names is None else _by_class(names.ravel().tolist(), values, path)


def _by_class(names: Sequence[Any], values: Sequence[Any], path: Path) -> dict[Any, Any]:
    if len(names) != len(values):
        raise InputError(f"{path}: {len(names)} class names for {len(values)} entries; give one entry per class.")
    return _once(list(zip(names, values, strict=True)), path)


def _from_table(table: Table, path: Path, option: str) -> Sequence[Any] | Mapping[str, Any]:
    known = [name for name in table.names if name in KEYS[option]]
    if option == "--class-names":
        return table.texts(_only([n for n in table.names if n == CLASS_COLUMN] or known or table.names, path, option))
    values = _only(known or [name for name in table.names if name != CLASS_COLUMN], path, option)
    others = [name for name in table.names if name != values]
    labels = CLASS_COLUMN if CLASS_COLUMN in others else others[0] if len(others) == 1 else None
    texts = table.texts(values)
    return texts if labels is None else _by_class(table.texts(labels), texts, path)


def _only(names: Sequence[str], path: Path, option: str) -> str:
    if len(names) != 1:
        raise InputError(
            f"{path}: holds {short(', '.join(names))}; for {option} name one of them {' or '.join(KEYS[option])}."
        )
    return names[0]


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({error}).") from None


def _floats(texts: Sequence[str], option: str) -> list[float]:
    numbers = []
    for text in texts:
        try:
            numbers.append(float(text))
        except ValueError:
            raise InputError(f"{option} holds {text!r}; give one number per class, or a file.") from None
    return numbers

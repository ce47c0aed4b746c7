"""Classes: which label belongs to which column of the scores. The one owner of that question.

Scores have a column per class, labels come as numbers or text, and what is known of the classes (counts, weights,
attributes) comes as a list in the order of the columns or, with labels of its own, as a mapping, a pandas Series or a
DataFrame. Whatever carries labels is aligned by them, never by position; what is ambiguous is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, as_array, short
from capri._lazy import once

Label = Any  # a number, text or truth value


@dataclass(frozen=True, eq=False)
class Classes:
    """The labels of the K classes, in the order of the score columns.

    Parameters
    ----------
    labels : array of shape (K,)
        One label per class, all different.

    Examples
    --------
    >>> animals = Classes.of(["cat", "dog", "lynx"])
    >>> animals.encode(["lynx", "cat"])
    array([2, 0])
    >>> animals.align({"lynx": 10, "cat": 900, "dog": 90}, "class_counts")
    [900, 90, 10]
    """

    labels: NDArray[Any]

    @classmethod
    def of(cls, labels: Iterable[Label]) -> Classes:
        """From labels in the order of the columns."""
        order = as_labels(labels)
        for names in ([str(label) for label in order.tolist()], order.tolist()):  # 1 and "1", or 1 and True
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InputError(f"classes holds the label {twice!r} twice; each column needs its own.")
        return cls(order)

    @classmethod
    def found(
        cls,
        y: ArrayLike,
        n_columns: int,
        *,
        given: Iterable[Label] | None = None,
        columns: Sequence[Label] | None = None,
        name: str = "y",
    ) -> Classes:
        """The classes of `n_columns` score columns: as given, as the columns are named, or as the labels y say.

        Whole numbers 0 … K − 1 are positions. Other labels stand in sorted order, if there are as many as columns.
        """
        labels = as_labels(y, name)
        if np.issubdtype(labels.dtype, np.floating) and (labels != np.floor(labels)).any():
            raise InputError(f"Unknown label type: {name} holds continuous numbers; give one class label per sample.")
        if given is not None:
            order = as_labels(given)
        elif columns is not None:
            order = _named_by(columns, labels, name)
        else:
            check_one_kind(labels, name)
            order = _by_themselves(_distinct(labels)[0], n_columns)
        if len(order) != n_columns:
            raise InputError(
                f"there are {len(order)} classes but {n_columns} score columns; give {{argument}} with one label per "
                "column, in the order of the columns.",
                argument="classes",
            )
        return cls.of(order)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text."""
        return tuple(str(label) for label in self.labels.tolist())

    @once
    def _are_positions(self) -> bool:
        return bool(self.labels.dtype.kind in "iu" and np.array_equal(self.labels, np.arange(len(self))))

    def encode(self, y: ArrayLike, name: str = "y") -> Ints:
        """Labels as positions of columns, (n_samples,)."""
        labels = as_labels(y, name)
        if self._are_positions and labels.dtype.kind in "iu" and labels.size:
            inside = labels.min() >= 0 and labels.max() < len(self)
            if inside:  # the usual case, without a sort
                return labels.astype(np.int64, copy=False)
        index = {label: k for k, label in enumerate(self.labels.tolist())}
        distinct, inverse = _distinct(labels)
        unknown = [label for label in distinct.tolist() if label not in index]
        if unknown:
            shown = ", ".join(map(repr, self.labels[:5].tolist())) + (", …" if len(self) > 5 else "")
            raise InputError(f"{name} holds {unknown[0]!r}, which is not in the class list; classes are {shown}.")
        return np.array([index[label] for label in distinct.tolist()], dtype=np.int64)[inverse]

    def align(self, values: Any, name: str) -> Any:
        """One value per class in the order of the columns: by label where `values` carries labels, else as it is.

        values: a mapping or a pandas Series, with labels as they are or as text; or anything else, by position.
        """
        if (columns := all_columns(values)) is not None and len(columns) == 1:
            values = values[columns[0]]  # as value_counts().to_frame() has it
        if isinstance(values, Mapping):
            keys, entries = list(values), list(values.values())
        elif (index := index_of(values)) is not None and not self._only_numbered(index):
            keys, entries = index, list(np.asarray(values))
        else:
            return values
        return [entries[k] for k in self.positions(keys, name)]

    def _only_numbered(self, keys: Sequence[Label]) -> bool:
        """Are the keys 0, 1, … as every Series has them, where the labels are others?"""
        return list(keys) == list(range(len(keys))) and set(map(str, keys)) != set(self.names)

    def positions(self, keys: Sequence[Label], name: str) -> list[int]:
        """Where each class stands among these keys, which must name exactly the classes."""
        check_once(keys, name)
        found = _match(self.labels.tolist(), keys)
        missing = [label for label, k in zip(self.labels.tolist(), found, strict=True) if k is None]
        if missing:
            raise InputError(f"class {missing[0]!r} has no entry in {name}; there are {short(list(keys))}.")
        if len(keys) != len(self):
            extra = next(key for k, key in enumerate(keys) if k not in found)
            raise InputError(f"{extra!r} in {name} is none of the {len(self)} classes; give one per class.")
        return [k for k in found if k is not None]

    def named_by(self, keys: Sequence[Label]) -> bool:
        """Do any of these keys name a class, as they are or as text?"""
        return any(k is not None for k in _match(self.labels.tolist(), keys))

    def arrange(self, scores: Any, name: str = "scores", *, strict: bool = True) -> Any:
        """Score columns in the order of the classes, by name; as they are where they have none (or own: `strict`)."""
        columns = all_columns(scores)
        if columns is None or (columns == list(range(len(columns))) and not self.named_by(columns)):
            return scores
        if not strict and not self.named_by(columns):
            return scores
        if columns == list(range(len(columns))) and set(columns) == set(self.labels.tolist()):
            if self._are_positions:
                return scores
            raise InputError(
                f"the columns of {name} are numbered 0 … {len(columns) - 1}, and the classes are {short(self.labels)}: "
                "is a number a position or a class? Give an array in the order of the classes, or name the columns."
            )
        return self.columns_of(scores, name)

    def columns_of(self, scores: Any, name: str = "scores") -> NDArray[Any]:
        """The columns that the classes name, which must be there, in the order of the classes."""
        order = self.positions(all_columns(scores) or [], f"the columns of {name}")
        return np.asarray(scores)[:, order]


def check_once(keys: Iterable[Label], name: str) -> None:
    """Refuse a label that is there twice: which of its entries counts?"""
    for key, times in Counter(keys).items():
        if times > 1:
            raise InputError(f"{key!r} occurs twice in {name}; give one entry per class.")


def as_labels(y: Any, name: str = "y") -> NDArray[Any]:
    """Labels as a one-dimensional array: whole numbers, text or truth values."""
    if y is None:
        raise InputError(f"requires {name} to be passed, but the target {name} is None; give one label per sample.")
    if not (hasattr(y, "__array__") or hasattr(y, "shape") or isinstance(y, Sequence)):
        y = list(y) if isinstance(y, Iterable) else y
    labels = as_array(y, name, "hold one label per sample")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 0:
        raise InputError(f"{name} must be one-dimensional, with one label per sample; got {short(y)}.")
    listed = y if isinstance(y, list | tuple) else labels.tolist() if labels.dtype == object else ()
    if any(map(_is_missing, listed)):  # NumPy would make text of them
        raise InputError(f"{name} contains missing labels (None or NaN); drop the samples without a label.")
    if labels.dtype == object and not all(isinstance(label, Hashable) for label in labels.tolist()):
        raise InputError(f"{name} must hold one label per sample; got {short(y)}.")
    if labels.dtype != object and len(set(map(_kind, listed))) > 1:  # and of numbers among text
        labels = np.array([*listed, None], dtype=object)[:-1]
    if labels.ndim != 1:
        raise InputError(f"{name} must be one-dimensional; got shape {labels.shape}.")
    if labels.dtype == object and len({type(label) for label in labels.tolist()}) == 1:
        labels = np.array(labels.tolist())  # pandas hands out text as objects
    if np.issubdtype(labels.dtype, np.floating) and not np.isfinite(labels).all():
        raise InputError(f"{name} contains NaN or infinity; drop the samples without a label.")
    return labels


def check_one_kind(labels: NDArray[Any], name: str) -> None:
    """Refuse numbers among text, which have no order to go by, and among truth values, which are numbers to Python."""
    kinds = {_kind(label): label for label in labels.tolist()} if labels.dtype == object else {}
    if len(kinds) > 1:
        equal = {_TRUTH, _NUMBERS} <= kinds.keys()
        one, other = (kinds[_TRUTH], kinds[_NUMBERS]) if equal else list(kinds.values())[:2]
        why = "and True is 1 and False is 0" if equal else "which have no order"
        raise InputError(
            f"{name} mixes {' and '.join(kinds)}, such as {short(one)} and {short(other)}, {why}; give {{argument}} "
            "with the label of each column, or labels of one kind.",
            argument="classes",
        )


_TRUTH, _NUMBERS = "truth values", "numbers"


def _kind(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return _TRUTH
    return _NUMBERS if isinstance(label, Number) else "text" if isinstance(label, str) else type(label).__name__


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except (TypeError, ValueError):  # pandas' NA knows no answer; an array has several
        return np.ndim(label) == 0


def column_names(scores: Any) -> list[Label] | None:
    """The names of the columns of a table; None where they are only numbered."""
    names = all_columns(scores)
    return None if names is None or names == list(range(len(names))) else names


def all_columns(scores: Any) -> list[Label] | None:
    """The names or numbers of the columns of a table; None of a plain array."""
    columns = getattr(scores, "columns", None)
    return None if columns is None or callable(columns) else list(columns)


def _named_by(columns: Sequence[Label], labels: NDArray[Any], name: str) -> NDArray[Any]:
    """The columns' names as labels, in the labels' own type where the two differ only by that."""
    distinct = _distinct(labels)[0].tolist()
    found = _match(distinct, columns)
    if None in found:
        unknown = distinct[found.index(None)]
        raise InputError(
            f"{name} holds {unknown!r}, but the score columns are named {short(list(columns))}; give {{argument}} with "
            "the label of each column, in the order of the columns.",
            argument="classes",
        )
    typed = dict(zip(found, distinct, strict=True))
    return as_labels([typed.get(k, _as_others(column, distinct)) for k, column in enumerate(columns)])


def _as_others(column: Label, labels: Sequence[Label]) -> Label:
    """The name of a column without samples, in the labels' type: "2" is 2 where they are whole numbers, and 2 is "2"
    where they are text."""
    if all(isinstance(label, str) for label in labels):
        return str(column)
    with suppress(ValueError):
        if isinstance(column, str) and all(type(label) is int for label in labels) and str(int(column)) == column:
            return int(column)
    return column


def _by_themselves(distinct: NDArray[Any], n_columns: int) -> NDArray[Any]:
    """Labels alone: positions, or as many as there are columns in sorted order."""
    whole = distinct.dtype.kind in "iuf" and distinct.size > 0
    if not whole or distinct[0] < 0 or distinct[-1] >= n_columns:
        return distinct
    if distinct[0] > 0:
        raise InputError(
            f"the labels begin at {distinct[0]:g}, and {n_columns - len(distinct)} of {n_columns} classes have no "
            f"sample, so the columns may stand for classes 0 … {n_columns - 1} or 1 … {n_columns}; give {{argument}} "
            "with the label of each column.",
            argument="classes",
        )
    return np.arange(n_columns, dtype=distinct.dtype)


def _match(labels: Sequence[Label], keys: Sequence[Label]) -> list[int | None]:
    """Where each label stands among the keys; as text, if none is found as it is."""
    exact = {key: k for k, key in enumerate(keys)}
    found = [exact.get(label) for label in labels]
    if any(k is not None for k in found):
        return found
    text = {str(key): k for k, key in enumerate(keys)}
    return [text.get(str(label)) for label in labels]


def index_of(values: Any) -> list[Label] | None:
    """The labels that a Series carries."""
    index = getattr(values, "index", None)
    return None if index is None or callable(index) else list(index)  # lists have a method of that name


def _distinct(labels: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """Distinct labels in sorted order, and the position of each label among them."""
    try:
        distinct, inverse = np.unique(labels, return_inverse=True)
    except TypeError:  # numbers and text together have no order
        index = {label: k for k, label in enumerate(dict.fromkeys(labels.tolist()))}
        return np.array(list(index), dtype=object), np.array([index[label] for label in labels.tolist()], np.int64)
    return distinct, inverse.astype(np.int64)

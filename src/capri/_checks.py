"""Checks of what users hand in: one clear sentence that names the argument, the value and the remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]


class _Said(Exception):
    """A message that may name an argument, so that each way in can name it as its users do.

    The text holds ``{argument}`` where the name stands: `str` has Python's words (``absent="ignore"``), `said` those of
    another way in, such as the command line's ``--absent ignore``.
    """

    def __init__(self, message: str, *, argument: str | None = None, value: str | None = None) -> None:
        self.message, self.argument, self.value = message, argument, value
        super().__init__(self.said(lambda name, value: f"{name}=…" if value is None else f'{name}="{value}"'))

    def said(self, word: Callable[[str, str | None], str]) -> str:
        """The message with `word(argument, value)` for the argument."""
        return self.message if self.argument is None else self.message.replace(HERE, word(self.argument, self.value))


HERE = "{argument}"


class InputError(_Said, ValueError):
    """Something handed to capri is not usable; the message says what, and what to do."""


class InputTypeError(InputError, TypeError):
    """Something handed to capri is of a type that cannot be used."""


class InputWarning(_Said, UserWarning):
    """Something handed to capri is usable but suspicious; the message says what was assumed."""


class AbsentClassWarning(InputWarning):
    """A class has no sample in the evaluation set and was left out on request."""


def as_array(values: Any, name: str, must: str = "be an array") -> NDArray[Any]:
    """An array, of what NumPy can make one of without leaving something out or guessing.

    Parameters
    ----------
    values : array-like
        Masked arrays will do where nothing is masked; sparse matrices and tensors that NumPy cannot read will not.
    name : str
        What messages call them.
    must : str
        What is said of anything else.

    Returns
    -------
    array
    """
    if isinstance(values, np.ma.MaskedArray) and (masked := int(np.ma.getmaskarray(values).sum())):
        raise InputError(f"{name} has {masked} masked entries; drop them, or give values for them with .filled(…).")
    if hasattr(values, "tocsr") and hasattr(values, "toarray"):
        raise InputTypeError(f"{name} is a sparse matrix; give a dense one, {name}.toarray().")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        if any(type(value).__module__.split(".")[0] == "torch" for value in (values, *_first_of(values))):
            raise InputTypeError(
                f"{name} is a tensor that NumPy cannot read ({error}); give {name}.detach().cpu().float().numpy()."
            ) from None
        raise InputTypeError(f"{name} must {must}; got {short(values)} ({error}).") from None


def _first_of(values: Any) -> Sequence[Any]:
    return values[:1] if isinstance(values, list | tuple) else ()


def check_scores(scores: ArrayLike, name: str = "scores") -> Floats:
    """Scores that can be used: finite floats, two classes or more. Floats are not copied.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_classes)
    name : str
        What messages call them.

    Returns
    -------
    array of shape (n_samples, n_classes)
    """
    array = check_matrix(scores, name, "n_samples", "n_classes")
    if array.shape[1] < 2:
        raise InputError(f"{name} has 1 column (n_features = 1); a classifier needs at least 2, one per class.")
    return array


def check_matrix(values: ArrayLike, name: str, rows: str, columns: str) -> Floats:
    """A non-empty table of finite floats, of shape (rows, columns). Floats are not copied."""
    array = as_array(values, name, "be real numbers")
    try:
        if np.iscomplexobj(array):
            raise TypeError("Complex data not supported")
        if not np.issubdtype(array.dtype, np.floating) or array.dtype.itemsize > 8:
            with np.errstate(over="ignore"):  # infinity is refused below
                array = array.astype(np.float64, casting="unsafe" if array.dtype == object else "same_kind")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputTypeError(f"{name} must be real numbers; got {short(values)} ({error}).") from None
    if array.ndim != 2:
        raise InputError(
            f"{name} must have shape ({rows}, {columns}); got shape {array.shape}. Reshape your data to one row each."
        )
    if 0 in array.shape:
        what = "sample" if array.shape[0] == 0 else "feature"
        raise InputError(f"{name} is empty: 0 {what}(s) (shape={array.shape}) while a minimum of 1 is required.")
    # The sum is finite unless an entry is not (or it overflows): one pass and no N×K mask in the ordinary case.
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = not np.isfinite(array.sum(dtype=np.float64))
    if suspicious and (bad := np.argwhere(~np.isfinite(array))).size:
        i, k = bad[0]
        remedy = "Remove these rows or clip the values." if rows == "n_samples" else "Give finite numbers."
        raise InputError(f"{name}[{i}, {k}] is {array[i, k]}; {len(bad)} entries are NaN or infinite. {remedy}")
    return array


def check_labels(y: ArrayLike, n_classes: int, n_samples: int | None = None, name: str = "y") -> Ints:
    """Labels as integers 0 … n_classes − 1, one per sample."""
    array = as_array(y, name, "hold one class index per sample")
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional; got shape {array.shape}.")
    if n_samples is not None and len(array) != n_samples:
        raise InputError(f"{name} has {len(array)} labels for {n_samples} samples; give one label per sample.")
    if len(array) == 0:
        raise InputError(f"{name} is empty; give at least one label.")
    whole = np.ones(len(array), bool)
    if np.issubdtype(array.dtype, np.floating):
        whole = np.isfinite(array) & (array == np.floor(array))
    elif not np.issubdtype(array.dtype, np.integer):
        whole[:] = False
    if not whole.all():
        i = int(np.flatnonzero(~whole)[0])
        raise InputError(
            f"{name}[{i}] is {short(array[i : i + 1].tolist()[0])} of type {array.dtype}; "
            f"labels must be class indices 0 … {n_classes - 1}. Encode names as indices."
        )
    labels = array.astype(np.int64, copy=False)
    outside = (labels < 0) | (labels >= n_classes)
    if outside.any():
        i = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"{name}[{i}] is {labels[i]}, outside 0 … {n_classes - 1}; with {n_classes} classes, "
            "labels must be indices below that, starting at 0."
        )
    return labels


def check_vector(
    values: ArrayLike,
    name: str,
    n_classes: int | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
    strict: bool = False,
    per: str = "class",
) -> NDArray[np.float64]:
    """One finite number per class, or per sample.

    Parameters
    ----------
    values : array-like of shape (n,)
    name : str
        What messages call them.
    n_classes : int, optional
        How many there must be.
    low, high : float, optional
        Bounds; `strict` excludes `low` itself.
    strict : bool
    per : str
        What each number belongs to.

    Returns
    -------
    array of shape (n,)
    """
    array = as_array(values, name, must := f"hold one number per {per}")
    try:
        array = array.astype(np.float64, casting="unsafe" if array.dtype.kind in "OSU" else "same_kind", copy=False)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must {must}; got {short(values)}.") from None
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} must be a non-empty vector with one number per {per}; got shape {array.shape}.")
    if n_classes is not None and len(array) != n_classes:
        plural = {"class": "classes"}.get(per, per + "s")
        raise InputError(f"{name} has {len(array)} entries for {n_classes} {plural}; give one per {per}.")
    for wrong, expected in (
        (~np.isfinite(array), "a finite number"),
        (array < low if low is not None and not strict else np.zeros(len(array), bool), f"at least {low}"),
        (array <= low if low is not None and strict else np.zeros(len(array), bool), f"above {low}"),
        (array > high if high is not None else np.zeros(len(array), bool), f"at most {high}"),
    ):
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise InputError(f"{name}[{k}] is {array[k]}; each entry must be {expected}.")
    return array


def check_counts(counts: ArrayLike, n_classes: int | None = None, name: str = "class_counts") -> NDArray[np.float64]:
    """Samples per class: non-negative, not all zero."""
    array = check_vector(counts, name, n_classes, low=0)
    if array.max() == 0:
        raise InputError(f"{name} sums to 0; at least one class must have a positive entry.")
    if array.max() > np.finfo(np.float64).max / len(array):
        raise InputError(f"{name} reaches {array.max():g}, and its sum overflows; give smaller numbers.")
    return array


def check_sample_weight(weight: ArrayLike | None, n_samples: int) -> NDArray[np.float64] | None:
    """Non-negative weights, one per sample, or None."""
    if weight is None:
        return None
    return check_vector(weight, "sample_weight", n_samples, low=0, per="sample")


def check_names(names: Sequence[str] | None, n_classes: int, name: str = "class_names") -> tuple[str, ...]:
    """One name per class, all different; '0', '1', … where none are given."""
    if names is None:
        return tuple(str(k) for k in range(n_classes))
    try:
        result = tuple(str(n) for n in names)
    except TypeError:
        raise InputTypeError(f"{name} is {short(names)}; it must hold one name per class.") from None
    if len(result) != n_classes:
        raise InputError(f"{name} has {len(result)} entries for {n_classes} classes; give one per class.")
    if len(set(result)) != len(result):
        twice = Counter(result).most_common(1)[0][0]
        raise InputError(f"{name} holds {twice!r} twice; names must differ.")
    return result


def shortest(number: float) -> str:
    """The shortest text that reads back as the same number: 0.5, 2, 1e-07."""
    return repr(float(number)).removesuffix(".0")


def short(value: object) -> str:
    """A value as it may stand in a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."

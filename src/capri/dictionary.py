"""The dictionary D: basis functions of the attributes, one row per class (eq. 2 of the paper).

    D = [F(A_1) … F(A_K)]ᵀ,   F = [log a, a, a^β, a^2β, a^4β],   β = 0.075,   stitched attribute by attribute.

The raw columns are nearly collinear (condition 10⁴ to 10⁷), so by default they are whitened: centred, scaled, rotated
onto their principal directions, and directions without substance dropped. W then means the same step in each direction.
Centring is harmless for offsets l (softmax and argmax ignore a common shift); multipliers Δ and weights ω ask for an
`intercept` column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, short
from capri.attributes import Attributes

Vector: TypeAlias = NDArray[np.float64]
BasisFunction: TypeAlias = Callable[[Vector], Vector]
Scaling: TypeAlias = Literal["whiten", "ordered", "standardize", "raw"]

BETA = 0.075
FLOOR = 1e-6  # attributes are lifted to this before logarithms and powers


def _power(a: Vector, exponent: float) -> Vector:
    return np.asarray(a**exponent)


def _identity(a: Vector) -> Vector:
    return a


#: The basis functions of the paper's appendix, by name.
BASIS: Mapping[str, BasisFunction] = {
    "log": np.log,
    "id": _identity,
    "β": partial(_power, exponent=BETA),
    "2β": partial(_power, exponent=2 * BETA),
    "4β": partial(_power, exponent=4 * BETA),
}
INTERCEPT = ("", "1")
NEEDS_POSITIVE = frozenset(BASIS) - {"id"}
WHITEN_TOLERANCE = 0.03  # directions with less than this share of the largest singular value carry rounding, not news
ORDERED_TOLERANCE = 0.1  # columns of which less than this share is new are left out


@dataclass(frozen=True, eq=False)
class Dictionary:
    """D and how it was made. A row of D is a class, a column a direction of W; ``D @ w`` is one number per class.

    Parameters
    ----------
    values : ndarray of shape (K, M)
        D itself.
    columns : tuple of (attribute, function)
        What each of the M_raw raw columns is.
    scaling : {"whiten", "ordered", "standardize", "raw"}
        How raw columns became those of D.
    centre : ndarray of shape (M_raw,)
        What was subtracted from each raw column.
    transform : ndarray of shape (M_raw, M)
        From centred raw columns to D; the identity where `scaling` is "raw".
    floor : float
        Attributes were raised to at least this before logarithms and powers.

    Examples
    --------
    >>> D = build_dictionary(Attributes.of(freq=[0.7, 0.2, 0.1]), basis=["log"], scaling="raw")
    >>> D.columns
    (('freq', 'log'),)
    >>> D @ [2.0]  # logit adjustment with τ = 2
    array([-0.71334989, -3.21887582, -4.60517019])
    """

    values: NDArray[np.float64]
    columns: tuple[tuple[str, str], ...]
    scaling: Scaling
    centre: NDArray[np.float64]
    transform: NDArray[np.float64]
    floor: float = FLOOR

    @property
    def shape(self) -> tuple[int, int]:
        """(K, M): classes and columns."""
        return self.values.shape[0], self.values.shape[1]

    def __matmul__(self, w: ArrayLike) -> Vector:
        weights = np.asarray(w, dtype=np.float64)
        if weights.shape != (self.shape[1],):
            raise InputError(f"w has shape {weights.shape}; this dictionary has {self.shape[1]} columns.")
        return np.asarray(self.values @ weights)

    def raw_weights(self, w: ArrayLike) -> Vector:
        """The same map in terms of the raw columns: D w = (raw − centre) @ raw_weights(w).

        Parameters
        ----------
        w : array-like of shape (M,)
            Weights of the columns of D.

        Returns
        -------
        ndarray of shape (M_raw,)
        """
        return np.asarray(self.transform @ np.asarray(w, dtype=np.float64))

    def project(self, values: ArrayLike) -> Vector:
        """P v: the part of v that this dictionary and a common shift of all classes can express, by least squares.

        Parameters
        ----------
        values : array-like of shape (K,)
            v, one number per class.

        Returns
        -------
        ndarray of shape (K,)
        """
        basis = np.column_stack([np.ones(len(self.values)), self.values])
        target = np.asarray(values, dtype=np.float64)
        return np.asarray(basis @ np.linalg.lstsq(basis, target, rcond=None)[0])

    def __repr__(self) -> str:
        names = ", ".join(f"{f}({a})" if a else f for a, f in self.columns[:6])
        more = ", …" if len(self.columns) > 6 else ""
        return f"Dictionary({self.shape[0]} classes x {self.shape[1]} columns, {self.scaling}, of {names}{more})"


def build_dictionary(
    attributes: Attributes,
    basis: Sequence[str] | Mapping[str, BasisFunction] = tuple(BASIS),
    *,
    scaling: Scaling = "whiten",
    intercept: bool = False,
    floor: float = FLOOR,
) -> Dictionary:
    """D from a table of attributes.

    Parameters
    ----------
    attributes : Attributes
        One row per class.
    basis : sequence of names, or mapping from names to functions
        Functions of `BASIS` ("log", "id", "β", "2β", "4β"; all by default), or your own, from columns (K,) to (K,).
    scaling : {"whiten", "ordered", "standardize", "raw"}
        "whiten" makes the columns uncorrelated and drops directions that carry almost nothing; "ordered" does so column
        by column, each freed of those before it, so that the first stays what it is (log of the first attribute: logit
        adjustment); "standardize" gives each column mean 0 and deviation 1; "raw" leaves them as the basis functions
        give them.
    intercept : bool
        Put a column of ones first, for multipliers and weights; offsets do not need it.
    floor : float
        Attributes below it are raised to it before logarithms and powers.

    Returns
    -------
    Dictionary
        K rows, and a column for each attribute and function (fewer where "whiten" drops directions).

    Raises
    ------
    InputError
        Where a basis function does not give one finite number per class, or the attributes do not tell classes apart.

    Examples
    --------
    >>> table = Attributes.of(freq=[0.7, 0.2, 0.1], diff=[0.1, 0.3, 0.2])
    >>> build_dictionary(table, basis=["log", "id"], scaling="raw")
    Dictionary(3 classes x 4 columns, raw, of log(freq), id(freq), log(diff), id(diff))
    >>> build_dictionary(table).shape  # whitened: of 10 columns, 2 directions are left
    (3, 2)
    """
    raw, columns = _raw_columns(attributes, _functions(basis), floor)
    centre, transform = _scaling(raw, columns, scaling)
    values = raw if scaling == "raw" else _row_by_row(raw - centre, transform)
    if intercept:
        values = np.column_stack([np.ones(len(raw)), values])
        columns = (INTERCEPT, *columns)
        centre = np.concatenate([[0.0], centre])
        transform = _block(np.ones((1, 1)), transform)
    return Dictionary(values, columns, scaling, centre, transform, floor)


def identity_dictionary(n_classes: int, class_names: Sequence[str] | None = None) -> Dictionary:
    """D = I: each class its own free number ("plain", AutoBalance)."""
    return build_dictionary(Attributes.identity(n_classes, class_names), ["id"], scaling="raw")


def _functions(basis: Sequence[str] | Mapping[str, BasisFunction]) -> Mapping[str, BasisFunction]:
    if isinstance(basis, str):
        basis = [basis]
    if isinstance(basis, Mapping):
        chosen = dict(basis)
    else:
        unknown = [name for name in basis if name not in BASIS]
        if unknown:
            raise InputError(
                f"unknown basis function {unknown[0]!r}; there are {', '.join(BASIS)}, "
                "or pass a mapping from names to functions."
            )
        chosen = {name: BASIS[name] for name in basis}
    if not chosen:
        raise InputError("basis is empty; give at least one function.")
    return chosen


def _raw_columns(
    attributes: Attributes, functions: Mapping[str, BasisFunction], floor: float
) -> tuple[NDArray[np.float64], tuple[tuple[str, str], ...]]:
    columns, labels = [], []
    for attribute in attributes.names:
        given = attributes[attribute]
        if (given < 0).any() and NEEDS_POSITIVE & set(functions):
            raise InputError(
                f"attribute {attribute!r} is negative ({given.min():g}), which logarithms and powers cannot take; "
                'shift it, or use basis=["id"].'
            )
        for name, function in functions.items():
            a = np.maximum(given, floor) if name in NEEDS_POSITIVE else given
            with np.errstate(all="ignore"):
                column = np.asarray(function(a), dtype=np.float64)
            if column.shape != given.shape or not np.isfinite(column).all():
                raise InputError(
                    f"basis function {name!r} of attribute {attribute!r} must give one finite number per class; "
                    f"got {short(column)}. Shift the attribute, or use another function."
                )
            columns.append(column)
            labels.append((attribute, name))
    return np.column_stack(columns), tuple(labels)


def _scaling(
    raw: NDArray[np.float64], columns: tuple[tuple[str, str], ...], scaling: Scaling
) -> tuple[Vector, NDArray[np.float64]]:
    """What to subtract and what to multiply with."""
    n = raw.shape[1]
    if scaling == "raw":
        return np.zeros(n), np.eye(n)
    centre, spread = raw.mean(axis=0), raw.std(axis=0)
    varying = spread > 1e-12 * np.maximum(1.0, np.abs(centre))
    if not varying.any():
        named = ", ".join(sorted({a for a, _ in columns}))
        raise InputError(
            f"attributes {named} are the same for all classes, so they cannot tell classes apart; add one that differs."
        )
    scale = np.diag(np.where(varying, 1 / np.where(varying, spread, 1.0), 0.0))[:, varying]
    if scaling == "standardize":
        return centre, scale
    if scaling == "ordered":
        return centre, scale @ _freed((raw - centre) @ scale)
    if scaling != "whiten":
        raise InputError(f"scaling is {scaling!r}; it must be 'whiten', 'ordered', 'standardize' or 'raw'.")
    _, singular, directions = np.linalg.svd((raw - centre) @ scale, full_matrices=False)
    kept = singular > WHITEN_TOLERANCE * singular[0]
    return centre, scale @ _signed(directions[kept]).T * (np.sqrt(len(raw)) / singular[kept])


def _freed(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """The transform that frees each column of those before it, at spread 1; what holds little new is left out."""
    kept: list[int] = []
    for j, column in enumerate(columns.T):
        before = columns[:, kept]
        new = column - before @ np.linalg.lstsq(before, column, rcond=None)[0] if kept else column
        if np.linalg.norm(new) > ORDERED_TOLERANCE * np.linalg.norm(column):
            kept.append(j)
    triangle = np.linalg.qr(columns[:, kept], mode="r")
    triangle *= np.sign(np.diag(triangle))[:, None]
    transform = np.zeros((columns.shape[1], len(kept)))
    transform[kept] = np.linalg.inv(triangle) * np.sqrt(len(columns))
    return transform


def _signed(directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular vectors have arbitrary signs: make the first large entry positive, so that W means the same everywhere.

    Not the largest entry, nor the sum: of two columns the second direction is always (1, −1)/√2, where rounding would
    decide. For the same reason "large" is no simple fraction of the largest.
    """
    size = np.abs(directions)
    first = np.argmax(size > 0.618 * size.max(axis=1, keepdims=True), axis=1)
    return directions * np.sign(directions[np.arange(len(directions)), first])[:, None]


def _row_by_row(rows: NDArray[np.float64], transform: NDArray[np.float64]) -> NDArray[np.float64]:
    """rows @ transform, but equal rows stay equal to the last bit, which BLAS does not promise."""
    return np.column_stack([(rows * column).sum(axis=1) for column in transform.T])


def _block(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.zeros((a.shape[0] + b.shape[0], a.shape[1] + b.shape[1]))
    out[: a.shape[0], : a.shape[1]] = a
    out[a.shape[0] :, a.shape[1] :] = b
    return out

"""From what is known of the classes to a table of attributes: the registry, for tuning, search and the command line.

`Evidence` holds what is known, `REGISTRY` says how each named attribute is made of it, `gather` makes the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_names, check_vector, short
from capri.attributes import Attributes, Vector, difficulty, estimate_noise, frequency, importance, noise
from capri.classes import Classes, column_names


@dataclass(frozen=True, eq=False)
class Evidence:
    """What attributes are made of, as far as it is known. Everything is optional.

    Parameters
    ----------
    class_counts : array-like of shape (K,), optional
        Training samples per class; `freq` comes from them.
    errors, n_samples : array-like of shape (K,), optional
        Class errors of the model (NaN without samples), and how many samples each was measured on; for `diff`.
    weights : array-like of shape (K,), optional
        Importance of each class at test time.
    judged : (labels, probabilities), optional
        Of shapes (n,) and (n, K), of samples that the model was not trained on; label noise is estimated from them.
    own : mapping from names to columns, optional
        Attributes that are known already, (K,) each. They go before what could be measured.
    """

    class_counts: ArrayLike | None = None
    errors: ArrayLike | None = None
    n_samples: ArrayLike | None = None
    weights: ArrayLike | None = None
    judged: tuple[ArrayLike, ArrayLike] | None = None
    own: Mapping[str, ArrayLike] = field(default_factory=dict)

    def among(self, chosen: NDArray[np.bool_]) -> Evidence:
        """What is known of some of the classes. Label noise is estimated before, since that takes samples of all.

        Parameters
        ----------
        chosen : ndarray of bool, shape (K,)
            Which classes.

        Returns
        -------
        Evidence
        """
        estimated = _noise(self) if "noise" not in self.own else None
        own = dict(self.own) if estimated is None else {**self.own, "noise": estimated}

        def part(column: ArrayLike | None) -> Vector | None:
            return None if column is None else np.asarray(column, dtype=np.float64)[chosen]

        return Evidence(
            class_counts=part(self.class_counts),
            errors=part(self.errors),
            n_samples=part(self.n_samples),
            weights=part(self.weights),
            own={name: np.asarray(column)[chosen] for name, column in own.items()},
        )


@dataclass(frozen=True)
class Entry:
    """How an attribute with a name of its own is made and checked.

    Parameters
    ----------
    measure : function
        From the evidence to the column, (K,); None where the evidence does not hold what is needed.
    check : function
        Checks a column that a user gives under this name.
    argument : str
        The argument to name in the error message where the attribute is asked for and unknown.
    automatic : bool
        Whether ``"auto"`` includes it wherever it can be measured.
    """

    measure: Callable[[Evidence], Vector | None]
    check: Callable[[ArrayLike], Vector]
    argument: str = "class_attributes"
    automatic: bool = True


def _freq(known: Evidence) -> Vector | None:
    return None if known.class_counts is None else frequency(known.class_counts)


def _weights(known: Evidence) -> Vector | None:
    return None if known.weights is None else importance(known.weights)


def _noise(known: Evidence) -> Vector | None:
    return None if known.judged is None else estimate_noise(*known.judged)


def _diff(known: Evidence) -> Vector | None:
    if known.errors is None or known.n_samples is None:
        return None
    return difficulty(known.errors, known.n_samples)


def _rate(name: str, high: float | None = 1.0) -> Callable[[ArrayLike], Vector]:
    return lambda column: check_vector(column, name, low=0, high=high)


CLASS = "class"  # the column of a table that names the class of each row


def own_columns(given: Any, classes: Classes) -> dict[str, ArrayLike]:
    """Columns that a user gives, in the order of the classes: an `Attributes` table, a DataFrame with a row per class,
    or a mapping from names to columns, each of which may carry labels of its own."""
    if given is None:
        return {}
    if isinstance(given, Attributes):
        if given.n_classes != len(classes):
            raise InputError(f"class_attributes has {given.n_classes} rows for {len(classes)} classes; give one each.")
        numbered = given.class_names == check_names(None, given.n_classes)
        rows = None if numbered else classes.positions(given.class_names, "class_attributes")
        return {name: given[name] if rows is None else given[name][rows] for name in given.names}
    table = not isinstance(given, Mapping)
    if not table or column_names(given) is not None:
        if table and CLASS in given.columns:
            given = given.set_index(CLASS)
        columns = {str(name): classes.align(given[name], f"class_attributes[{name!r}]") for name in given}
        return {name: check_vector(c, f"class_attributes[{name!r}]", len(classes)) for name, c in columns.items()}
    raise InputError(
        f"class_attributes is {short(given)}; give a mapping from names to columns, a DataFrame or an Attributes table."
    )


#: The attributes that have a name, in the order of a table's columns. Noise costs an estimate, so it must be asked for.
REGISTRY: dict[str, Entry] = {
    "freq": Entry(_freq, frequency, "class_counts"),
    "weights": Entry(_weights, importance, "weights"),
    "noise": Entry(_noise, noise, automatic=False),
    "norm": Entry(lambda known: None, _rate("norm", high=None)),
    "diff": Entry(_diff, _rate("diff")),
}


def gather(
    known: Evidence, wanted: Literal["auto"] | Sequence[str] = "auto", class_names: Sequence[str] | None = None
) -> Attributes | None:
    """The table of the attributes that are wanted.

    Parameters
    ----------
    known : Evidence
        What they are made of.
    wanted : "auto" or sequence of names
        Names of `REGISTRY` or of columns in ``known.own``, in the order of the table; "auto" takes all that are known
        (label noise only where it is given, since an estimate costs time).
    class_names : sequence of str, optional
        Names of the classes; "0", "1", … by default.

    Returns
    -------
    Attributes or None
        None where "auto" finds nothing.

    Raises
    ------
    InputError
        Where an attribute is named that the evidence says nothing of.

    Examples
    --------
    >>> gather(Evidence(class_counts=[90, 10], own={"size": [3.0, 1.0]}))
    Attributes: 2 classes x 2 attributes
      class  freq  size
      0       0.9     3
      1       0.1     1
    """
    if wanted != "auto" and not len(wanted):
        raise InputError("attributes is empty; name at least one, or take 'auto'.")
    columns: dict[str, Vector] = {}
    for name in _automatic(known) if wanted == "auto" else wanted:
        found = _column(name, known) if isinstance(name, str) else None
        if found is not None:
            columns[name] = found
        elif wanted != "auto":
            entry = REGISTRY.get(str(name))
            raise InputError(
                f"attribute {name!r} is unknown; give it as {{argument}}.",
                argument="class_attributes" if entry is None else entry.argument,
            )
    return Attributes.of(class_names=class_names, **columns) if columns else None


def _automatic(known: Evidence) -> list[str]:
    """Names in the order of the registry; columns of one's own before difficulty, which is measured last."""
    named = [name for name, entry in REGISTRY.items() if entry.automatic or name in known.own]
    own = [name for name in known.own if name not in REGISTRY]
    return [*(n for n in named if n != "diff"), *own, "diff"]


def _column(name: str, known: Evidence) -> Vector | None:
    entry = REGISTRY.get(name)
    if name in known.own:
        return check_vector(known.own[name], name) if entry is None else entry.check(known.own[name])
    return None if entry is None else entry.measure(known)

"""Attributes: what is known of each class before any tuning, as a named table (K classes × n attributes).

    freq     π_k = P(y = k)                       of the training labels
    diff     Err_k                                of the model, smoothed so that its logarithm is finite
    weights  ω_test,k                             importance at test time, Σ ω = K
    noise    P(y ≠ y_clean | y_clean = k)         given, or estimated from out-of-sample probabilities
    norm     ‖w_k‖                                of the classifier's last layer
    identity I_K                                  each class its own attribute: the AutoBalance parametrisation

Any other column that the user knows of (similarity, cost, hierarchy depth) is an attribute too. `REGISTRY` says how
each of these is made of what is known (`Evidence`), and `gather` makes the table, for tuning, search and the command
line alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import (
    InputError,
    check_counts,
    check_labels,
    check_matrix,
    check_names,
    check_scores,
    check_vector,
    short,
)
from capri.classes import Classes, column_names

Vector = NDArray[np.float64]

NEARLY_BALANCED = 1.5  # largest over smallest class: below it, labels say nothing of training frequencies
UNKNOWN_FREQUENCIES = "training frequencies are unknown; give {argument}"


def frequency(class_counts: ArrayLike) -> Vector:
    """π_k = n_k / N of the training labels.

    >>> frequency([90, 10])
    array([0.9, 0.1])
    """
    counts = check_counts(class_counts)
    if (counts == 0).any():
        k = int(np.flatnonzero(counts == 0)[0])
        raise InputError(
            f"class_counts[{k}] is 0: a class that never occurs has no frequency. "
            "Drop the class, or give it a pseudo-count."
        )
    return counts / counts.sum()


def counts_in(y: ArrayLike, n_classes: int) -> Vector | None:
    """Samples per class as a guess of the training counts; None where the labels are nearly balanced, as if by design.

    A class without samples counts ½, so that its frequency has a logarithm.

    >>> counts_in([0, 0, 0, 1], n_classes=2)
    array([3., 1.])
    >>> counts_in([0, 0, 1, 1], n_classes=2) is None
    True
    """
    counts = np.maximum(np.bincount(check_labels(y, n_classes), minlength=n_classes), 0.5)
    return counts if counts.max() >= NEARLY_BALANCED * counts.min() else None


def difficulty(errors: ArrayLike, n_samples: ArrayLike) -> Vector:
    """Class-conditional error, smoothed to (wrong + ½)/(n + 1); an absent class (NaN) counts as n = 0.

    >>> difficulty([0.0, 0.5], [9, 9])
    array([0.05, 0.5 ])
    """
    samples = check_vector(n_samples, "n_samples", low=0)
    given = np.array(errors, dtype=object)
    if given.shape == samples.shape:
        given[samples == 0] = 0
    rates = check_vector(given, "errors", len(samples), low=0, high=1)
    return (rates * samples + 0.5) / (samples + 1)


def importance(weights: ArrayLike) -> Vector:
    """ω_test on the project's scale, Σ_k ω_k = K.

    >>> importance([1, 3])
    array([0.5, 1.5])
    """
    omega = check_counts(weights, name="weights")
    return omega * (len(omega) / omega.sum())


def noise(rates: ArrayLike) -> Vector:
    """P(y ≠ y_clean | y_clean = k), as given."""
    return check_vector(rates, "noise", low=0, high=1)


def estimate_noise(y: ArrayLike, probabilities: ArrayLike) -> Vector:
    """Label noise per class by confident learning (cleanlab), from out-of-sample probabilities on noisy labels."""
    try:
        from cleanlab.count import compute_confident_joint, estimate_latent
    except ImportError:
        message = 'estimating label noise needs cleanlab: pip install "capriors[noise]"'
        raise ModuleNotFoundError(message, name="cleanlab") from None
    p = check_scores(probabilities, "probabilities").astype(np.float64)
    labels = check_labels(y, p.shape[1], len(p))
    joint = compute_confident_joint(labels=labels, pred_probs=p)
    _, noise_matrix, _ = estimate_latent(joint, labels)  # noise_matrix[s, k] = P(label s | clean k)
    return np.clip(1 - np.diag(noise_matrix), 0.0, 1.0).astype(np.float64)


def norm(last_layer: ArrayLike) -> Vector:
    """‖w_k‖ of the last layer's weight, of shape (K, n_features).

    >>> norm([[3.0, 4.0], [0.0, 1.0]])
    array([5., 1.])
    """
    return np.linalg.norm(check_matrix(last_layer, "last_layer", "n_classes", "n_features"), axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Attributes:
    """A table of class attributes. Build it by name with `Attributes.of(freq=…, diff=…, similarity=…)`.

    ``table["diff"]`` is a column, and ``table | other`` joins the columns of two tables of the same classes.

    Parameters
    ----------
    values : ndarray of shape (K, n)
        One row per class, one column per attribute; all finite.
    names : tuple of str
        Names of the n columns.
    class_names : tuple of str
        Names of the K rows.

    Examples
    --------
    >>> table = Attributes.of(freq=[0.9, 0.1], diff=[0.05, 0.40], class_names=["cat", "lynx"])
    >>> table
    Attributes: 2 classes x 2 attributes
      class  freq  diff
      cat     0.9  0.05
      lynx    0.1   0.4
    >>> table["diff"]
    array([0.05, 0.4 ])
    """

    values: NDArray[np.float64]
    names: tuple[str, ...]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise InputError(f"attributes must have shape (n_classes, n_attributes); got {self.values.shape}.")
        if len(self.names) != self.values.shape[1]:
            raise InputError(f"{len(self.names)} names for {self.values.shape[1]} attributes; give one per column.")
        check_names(self.names, self.values.shape[1], "attribute names")
        check_names(self.class_names, self.values.shape[0])
        if not np.isfinite(self.values).all():
            k, j = np.argwhere(~np.isfinite(self.values))[0]
            raise InputError(
                f"attribute {self.names[j]!r} of class {self.class_names[k]!r} is {self.values[k, j]}; "
                "give a finite number."
            )

    @classmethod
    def of(cls, *, class_names: Sequence[str] | None = None, **columns: ArrayLike) -> Attributes:
        """A table from named columns.

        Parameters
        ----------
        class_names : sequence of str, optional
            Names of the classes; "0", "1", … by default.
        **columns : array-like of shape (K,)
            One number per class each.

        Returns
        -------
        Attributes
        """
        if not columns:
            raise InputError("attributes are empty; give at least one column, such as freq=….")
        n_classes = np.size(next(iter(columns.values())))
        values = np.column_stack([check_vector(v, name, n_classes) for name, v in columns.items()])
        return cls(values, tuple(columns), check_names(class_names, n_classes))

    @classmethod
    def identity(cls, n_classes: int, class_names: Sequence[str] | None = None) -> Attributes:
        """The identity I_K: each class its own attribute, so that W is the strategy itself (AutoBalance).

        Parameters
        ----------
        n_classes : int
            K.
        class_names : sequence of str, optional
            Names of the classes; "0", "1", … by default.

        Returns
        -------
        Attributes
            K columns, "is <class name>" each.
        """
        names = check_names(class_names, n_classes)
        return cls(np.eye(n_classes), tuple(f"is {n}" for n in names), names)

    @property
    def n_classes(self) -> int:
        """The number of classes, K."""
        return len(self.values)

    def __getitem__(self, name: str) -> Vector:
        if name not in self.names:
            raise InputError(f"no attribute {name!r}; there are {', '.join(self.names)}.")
        return self.values[:, self.names.index(name)]

    def select(self, *names: str) -> Attributes:
        """Some of the columns.

        Parameters
        ----------
        *names : str
            The columns to keep, in this order.

        Returns
        -------
        Attributes
        """
        return Attributes.of(class_names=self.class_names, **{name: self[name] for name in names})

    def __or__(self, other: Attributes) -> Attributes:
        if self.class_names != other.class_names:
            raise InputError("attribute tables are of different classes; give both the same class_names.")
        return Attributes(np.hstack([self.values, other.values]), self.names + other.names, self.class_names)

    def __repr__(self) -> str:
        rows = [("class", *self.names)]
        shown = (
            range(self.n_classes)
            if self.n_classes <= 8
            else [0, 1, 2, None, *range(self.n_classes - 3, self.n_classes)]
        )
        for k in shown:
            rows.append(
                ("…",) * (len(self.names) + 1)
                if k is None
                else (self.class_names[k], *(f"{v:.4g}" for v in self.values[k]))
            )
        widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
        lines = [f"Attributes: {self.n_classes} classes x {len(self.names)} attributes"]
        for first, *rest in rows:
            cells = [first.ljust(widths[0])] + [c.rjust(w) for c, w in zip(rest, widths[1:], strict=True)]
            lines.append("  " + "  ".join(cells))
        return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------------
# The registry


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
        found = _column(name, known)
        if found is not None:
            columns[name] = found
        elif wanted != "auto":
            entry = REGISTRY.get(name)
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

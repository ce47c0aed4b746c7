"""Attributes: what is known of each class before any tuning, as a named table (K classes × n attributes).

    freq     π_k = P(y = k)                       of the training labels
    diff     Err_k                                of the model, smoothed so that its logarithm is finite
    weights  ω_test,k                             importance at test time, Σ ω = K
    noise    P(y ≠ y_clean | y_clean = k)         given, or estimated from out-of-sample probabilities
    norm     ‖w_k‖                                of the classifier's last layer
    identity I_K                                  each class its own attribute: the AutoBalance parametrisation

Any other column that the user knows of (similarity, cost, hierarchy depth) is an attribute too. `capri.evidence` says
how each of these is made of what is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
)

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

    How often a class without samples occurs nobody knows: it counts as the (geometric) mean of the others, so that it
    is neither favoured as the rarest nor taken for a sign that the labels are unbalanced.

    >>> counts_in([0, 0, 0, 0, 1], n_classes=3)
    array([4., 1., 2.])
    >>> counts_in([0, 0, 1, 1], n_classes=2) is None
    True
    """
    counts = np.bincount(check_labels(y, n_classes), minlength=n_classes).astype(np.float64)
    seen = counts[counts > 0]
    if seen.max() < NEARLY_BALANCED * seen.min():
        return None
    return np.where(counts > 0, counts, np.exp(np.log(seen).mean()))


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

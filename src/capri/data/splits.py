"""From raw training and test data to the three parts of an experiment: train, validation, test.

Who validates? In this order: a share of the long-tailed training set (`val_fraction`, the 80/20 protocol of bilevel
search), else the data set's own validation part, else half of the official test set, balanced; the other half is then
the test set (the protocol of the paper's post-hoc tables, since head classes have no spare images at ρ = 100).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, check_labels, check_names
from capri.data.noise import add_label_noise, draw_noise_rates, noise_attribute
from capri.data.profiles import long_tail
from capri.sampling import draw, halves, share_sizes


@dataclass(frozen=True, eq=False)
class Part:
    """Samples with labels; one of the parts of an experiment.

    Parameters
    ----------
    x : ndarray of shape (n, …)
        Images, features, or paths of image files.
    y : ndarray of shape (n,)
        Classes, numbered from 0.
    index : ndarray of shape (n,)
        The position of each sample in the file that it comes from.
    """

    x: NDArray[Any]
    y: Ints
    index: Ints

    @classmethod
    def of(cls, x: NDArray[Any], y: ArrayLike, n_classes: int, name: str) -> Part:
        """A whole file, with checks.

        Parameters
        ----------
        x : ndarray of shape (n, …)
            Samples.
        y : array-like of shape (n,)
            Classes, numbered 0 … n_classes − 1.
        n_classes : int
            How many classes there are.
        name : str
            What the part is, for error messages.

        Returns
        -------
        Part
        """
        labels = check_labels(y, n_classes, len(x), name=f"labels of {name}")
        return cls(x, labels, np.arange(len(labels)))

    def take(self, positions: Ints) -> Part:
        """Some of the samples.

        Parameters
        ----------
        positions : ndarray of int
            Which, in this order.

        Returns
        -------
        Part
        """
        return Part(self.x[positions], self.y[positions], self.index[positions])

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Splits:
    """The parts of an experiment: train, validation and test. Every class must have a training sample.

    Parameters
    ----------
    train, val, test : Part
        The samples.
    class_names : tuple of str
        Names of the K classes.
    protocol : str
        Where the validation samples come from, in words.
    noise : ndarray of shape (K,), optional
        P(y ≠ y_clean) of the training labels per class, where noise was added.
    """

    train: Part
    val: Part
    test: Part
    class_names: tuple[str, ...]
    protocol: str
    noise: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        missing = self.absent(self.train)
        if missing:
            raise InputError(
                f"class {missing[0]} ({self.class_names[missing[0]]!r}) has no training sample; {len(missing)} such "
                "class(es). Check data files and number of classes, or use a milder profile or less label noise."
            )

    @property
    def n_classes(self) -> int:
        """The number of classes, K."""
        return len(self.class_names)

    @property
    def train_counts(self) -> Ints:
        """Training samples per class, by their labels as they are (with noise, if any), (K,)."""
        return np.bincount(self.train.y, minlength=self.n_classes)

    def absent(self, part: Part) -> list[int]:
        """Classes without a sample in a part.

        Parameters
        ----------
        part : Part
            One of the three.

        Returns
        -------
        list of int
            Their numbers.
        """
        return np.flatnonzero(np.bincount(part.y, minlength=self.n_classes) == 0).tolist()


def assemble(
    train: Part,
    test: Part,
    class_names: Sequence[str],
    *,
    val: Part | None = None,
    counts: ArrayLike | None = None,
    val_fraction: float = 0.0,
    noise: float = 0.0,
    exclude_true: bool = False,
    seed: int = 0,
) -> Splits:
    """Draw the long tail, add label noise, split.

    Parameters
    ----------
    train, test : Part
        The official parts.
    class_names : sequence of str
        Names of the K classes.
    val : Part, optional
        The official validation part, if there is one.
    counts : array-like of shape (K,), optional
        Samples per class to draw from `train`; all by default.
    val_fraction : float
        The share of each training class that validates; where 0, `val` does, or else half of `test`.
    noise : float
        The highest rate of label noise in training; validation stays clean.
    exclude_true : bool
        As in `add_label_noise`.
    seed : int
        The same seed draws the same long tail, whatever `val_fraction` is.

    Returns
    -------
    Splits
    """
    names = check_names(class_names, len(class_names))
    draw_seed, split_seed, rate_seed, noise_seed = _streams(seed, 4)
    drawn = train if counts is None else train.take(long_tail(train.y, counts, draw_seed))
    noisy, attribute = drawn, None
    if noise:
        rates = draw_noise_rates(len(names), noise, rate_seed)
        noisy = replace(drawn, y=add_label_noise(drawn.y, rates, noise_seed, exclude_true=exclude_true))
        attribute = noise_attribute(rates, exclude_true=exclude_true)
    if val_fraction:
        held = draw(drawn.y, share_sizes(np.bincount(drawn.y, minlength=len(names)), val_fraction), split_seed)
        kept = np.setdiff1d(np.arange(len(drawn)), held)
        return Splits(noisy.take(kept), drawn.take(held), test, names, "per-class split of train", attribute)
    if val is not None:
        return Splits(noisy, val, test, names, "official validation part", attribute)
    first, second = map(np.sort, halves(test.y, len(names), split_seed))
    return Splits(noisy, test.take(first), test.take(second), names, "balanced halves of test", attribute)


def _streams(seed: int, n: int) -> list[int]:
    """Independent seeds for independent draws, so that one draw does not shift the next."""
    return [int(child.generate_state(1)[0]) for child in np.random.SeedSequence(seed).spawn(n)]

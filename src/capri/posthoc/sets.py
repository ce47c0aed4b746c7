"""Sets of labels that hold the true one: class-conditional conformal prediction behind a policy.

How far a class lies behind the best is its gap, the best adjusted score less its own. A class is in the set of a sample
where its gap is at most

    q_c = the ⌈(n_c + 1)(1 − α)⌉-th smallest gap of the true class among n_c samples of class c,

so that samples of each class have their label in the set with probability 1 − α or more, whatever the model (Vovk
2012). Where a class has too few samples for that, similar classes stand together: they are put in order of an
attribute, such as frequency, and neighbours share a q until it rests on enough samples. The statement is then about the
group (Ding et al., "Class-conditional conformal prediction with many classes", 2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_counts, check_scores
from capri._fields import is_number
from capri.classes import Classes
from capri.policy import Policy
from capri.posthoc.account import check_unseen
from capri.posthoc.adjustment import Vector

ENOUGH = 2.0  # times the fewest samples that give a finite q: a group has so many


@dataclass(frozen=True, eq=False)
class LabelSets:
    """A policy that answers with sets of labels; what `conformal_sets` returns.

    Parameters
    ----------
    policy : Policy
        Whose adjusted scores are compared.
    limits : ndarray of shape (K,)
        q: how far behind the best a class may lie. Infinite where too little is known: the class is in every set.
    groups : ndarray of shape (K,)
        Which classes share a limit.
    samples : ndarray of shape (K,)
        Of each class, that calibrated.
    alpha : float
        The share of the samples of each class, or group, whose label may be missing.
    """

    policy: Policy
    limits: Vector
    groups: NDArray[np.int64]
    samples: NDArray[np.int64]
    alpha: float

    def predict(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """Which classes are in the set of each sample.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            As in `Policy.apply`.

        Returns
        -------
        ndarray of bool, shape (n_samples, K)
            The best class is in it always.
        """
        return np.asarray(gaps(self.policy, scores) <= self.limits)

    def labels(self, scores: ArrayLike) -> list[list[Any]]:
        """The sets as lists of labels, the likeliest first.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            As in `Policy.apply`.

        Returns
        -------
        list of lists
        """
        behind = gaps(self.policy, scores)
        inside, names = behind <= self.limits, self.policy.classes
        return [[names[k] for k in order if row[k]] for order, row in zip(behind.argsort(axis=1), inside, strict=True)]

    def __str__(self) -> str:
        pooled = [g for g in np.unique(self.groups) if (self.groups == g).sum() > 1]
        together = int(np.isin(self.groups, pooled).sum())
        said = f"Labels are in their sets with {100 * (1 - self.alpha):g} % for each class"
        if together:
            limits = "a limit" if len(pooled) == 1 else f"{len(pooled)} limits"
            said += f"; {together} classes with few samples share {limits}, and it holds for these together"
        if np.isinf(self.limits).any():
            said += f"; {int(np.isinf(self.limits).sum())} classes are in every set, for there is too little to tell"
        return said + "."


def conformal_sets(
    policy: Policy,
    scores: ArrayLike,
    y: ArrayLike,
    *,
    alpha: float = 0.1,
    similar_by: ArrayLike | Mapping[Any, float] | None = None,
) -> LabelSets:
    """Sets of labels that hold the true one in 1 − α of the samples of each class.

    Parameters
    ----------
    policy : Policy
        Tuned post-hoc.
    scores : array-like of shape (n_samples, K)
        Of samples that neither trained the model nor tuned the policy.
    y : array-like of shape (n_samples,)
        Their labels.
    alpha : float
        The share whose label may be missing.
    similar_by : per class, optional
        By what classes with few samples find their neighbours, such as training counts; by default the policy's
        attribute of frequency or else the numbers of samples here.

    Returns
    -------
    LabelSets

    Examples
    --------
    >>> from capri import Strategy
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> policy = Policy(Strategy.of(2), "balanced", ("ham", "spam"))
    >>> sets = conformal_sets(policy, rng.normal(size=(100, 2)) + np.eye(2)[y], np.array(["ham", "spam"])[y])
    >>> sets.labels([[3.0, 0.0], [0.1, 0.0]])
    [['ham'], ['ham', 'spam']]
    """
    if not is_number(alpha) or not 0 < alpha < 1:
        raise InputError(f"alpha is {alpha!r}; it must be between 0 and 1, such as 0.1.")
    policy.require_posthoc()
    classes = Classes.of(policy.classes)
    labels, behind = classes.encode(y), gaps(policy, scores)
    if len(labels) != len(behind):
        raise InputError(f"y has {len(labels)} labels for {len(behind)} samples; give one label per sample.")
    check_unseen(policy, check_scores(classes.arrange(scores)), labels, curve=None)
    samples = np.bincount(labels, minlength=len(classes))
    groups = grouped(samples, _order(policy, classes, similar_by, samples), alpha)
    own = behind[np.arange(len(labels)), labels]
    limits = np.array([_limit(own[groups[labels] == g], alpha) for g in range(int(groups.max()) + 1)])
    return LabelSets(policy, limits[groups], groups, samples, alpha)


def gaps(policy: Policy, scores: ArrayLike) -> NDArray[np.float64]:
    """How far each class lies behind the best, (n_samples, K)."""
    adjusted = policy.apply(scores)
    return np.asarray(adjusted.max(axis=1, keepdims=True) - adjusted)


def grouped(samples: NDArray[np.int64], order: Vector, alpha: float) -> NDArray[np.int64]:
    """(K,) the group of each class: its own, or that of its neighbours in order, until it has enough samples.

    >>> grouped(np.array([100, 3, 50, 12, 4]), np.array([5.0, 1, 4, 2, 3]), alpha=0.1)
    array([0, 2, 1, 2, 2])
    """
    fewest = int(np.ceil(1 / alpha)) - 1  # for a finite limit
    rich = samples >= fewest * ENOUGH
    groups = np.full(len(samples), -1)
    groups[rich] = np.arange(rich.sum())
    thin, g, have = np.flatnonzero(~rich), int(rich.sum()), 0
    thin = thin[np.argsort(order[thin], kind="stable")]
    for k in thin:
        groups[k], have = g, have + samples[k]
        if have >= fewest * ENOUGH:
            g, have = g + 1, 0
    if have and g > rich.sum():  # the last are too few by themselves: they join the group before
        groups[groups == g] = g - 1
    elif len(thin) and g == rich.sum() and rich.any():  # all of them are: they join the most similar class
        near = np.flatnonzero(rich)
        groups[groups == g] = groups[near[np.abs(order[near] - order[thin].mean()).argmin()]]
    return np.unique(groups, return_inverse=True)[1]


def _limit(own: Vector, alpha: float) -> float:
    """The ⌈(n + 1)(1 − α)⌉-th smallest gap."""
    rank = int(np.ceil((len(own) + 1) * (1 - alpha) - 1e-9))
    return float(np.partition(own, rank - 1)[rank - 1]) if rank <= len(own) else float(np.inf)


def _order(policy: Policy, classes: Classes, similar_by: Any, samples: NDArray[np.int64]) -> Vector:
    if similar_by is not None:
        return check_counts(classes.align(similar_by, "similar_by"), len(classes), name="similar_by")
    known = policy.attributes.get("freq")
    return samples.astype(np.float64) if known is None else np.asarray(known, dtype=np.float64)

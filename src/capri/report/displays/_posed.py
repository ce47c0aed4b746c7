"""What a display is asked about: a fitted estimator or a policy, with samples in the order of its classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, Ints, short
from capri.classes import Classes, as_labels
from capri.evaluation import classes_among
from capri.policy import UNDECIDED, Policy
from capri.posthoc import CAPClassifierCV, LogitAdjuster


class Posed(NamedTuple):
    """A policy, and samples to look at it with: scores (n, K) as the policy takes them, and positions of classes."""

    policy: Policy
    scores: NDArray[Any]
    y: Ints


def policy_of(estimator: Any) -> Policy:
    """The policy of a fitted estimator, or a policy itself."""
    policy = estimator if isinstance(estimator, Policy) else getattr(estimator, "policy_", None)
    if not isinstance(policy, Policy):
        raise InputError(
            f"estimator is {short(estimator)}; give a fitted LogitAdjuster or CAPClassifierCV, or a Policy."
        )
    return policy


def adjuster_of(estimator: Any) -> LogitAdjuster:
    """The adjuster of a fitted estimator."""
    policy_of(estimator)
    adjuster = getattr(estimator, "adjuster_", estimator)
    if not isinstance(adjuster, LogitAdjuster):
        raise InputError(f"estimator is {short(estimator)}, which cannot be tuned again; give an estimator.")
    return adjuster


def scores_of(estimator: Any, X: Any) -> NDArray[Any]:
    """Scores (n, K) in the order of the classes, as they are before any adjustment."""
    policy = policy_of(estimator)
    if isinstance(estimator, CAPClassifierCV):
        return estimator.scores(X)
    if isinstance(estimator, LogitAdjuster):
        return np.asarray(estimator._arranged(X))
    return np.asarray(Classes.of(policy.classes).arrange(X))


def encoded(
    y: ArrayLike, *predictions: ArrayLike, classes: Iterable[Any] | None = None
) -> tuple[Classes, Ints, list[Ints]]:
    """The classes, and labels and predictions by position; `UNDECIDED` for a prediction of None."""
    parted = [_decided(p) for p in predictions]
    known = classes_among(y, *(labels for labels, kept in parted if kept.any()), classes=classes)
    found = []
    for labels, kept in parted:
        positions = np.full(len(kept), UNDECIDED, np.int64)
        if kept.any():
            positions[kept] = known.encode(labels, "predictions")
        found.append(positions)
    return known, known.encode(y), found


def _decided(predictions: ArrayLike) -> tuple[Any, NDArray[np.bool_]]:
    """Predictions that are there, and where these are."""
    given = np.asarray(predictions, dtype=object) if isinstance(predictions, list | tuple) else np.asarray(predictions)
    kept = np.array([p is not None for p in given.tolist()] if given.dtype.kind == "O" else np.ones(len(given)), bool)
    return (predictions if kept.all() else given[kept].tolist()), kept


def posed(estimator: Any, X: Any, y: ArrayLike) -> Posed:
    """Samples in the order of the estimator's classes."""
    policy, labels = policy_of(estimator), as_labels(y)
    scores, positions = scores_of(estimator, X), Classes.of(policy.classes).encode(labels)
    if len(scores) != len(positions):
        raise InputError(f"y has {len(positions)} labels for {len(scores)} samples; give one label per sample.")
    return Posed(policy, scores, positions)

"""Class shares that nobody knows, from scores without labels, and how far to trust them.

Where the classes occur more or less often but look as they did (label shift), unlabelled samples are a mixture
Σ_k π_k p(x|k), and a calibrated posterior says p(x|k) ∝ q_k(x) / π_source,k. The likelihood of the shares,

    L(π) = Σ_i log Σ_k π_k r_ik,    r_ik = q_ik / π_source,k,

is concave, and expectation maximisation (Saerens, Latinne and Decaestecker 2002) climbs it. Its curvature on the
simplex says how much the scores can tell. Labelled samples check the rest: if only shares have changed and calibration
holds, the means of q and q² over the unlabelled samples are those of the labelled classes, mixed by the shares that are
found. Where they are not, by more than chance, no shares are right.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from capri._checks import InputError, InputWarning, check_counts, check_scores, short
from capri.attributes import frequency
from capri.classes import Classes
from capri.errors import softmax
from capri.policy import Policy, to_logits
from capri.posthoc.adjustment import Vector
from capri.posthoc.calibration import calibrate
from capri.posthoc.problem import Problem

ROUNDS, SETTLED = 5000, 1e-9  # of expectation maximisation: at most, and the change of a share that ends it
UNSURE = 0.5  # standard error of the log of a share from which on it is called unsure: a factor of 1.6 to either side
CHANCE = 0.01  # of calling two estimates different that are not
TELLS = 1e-9  # the least curvature, per sample, by which shares are told at all
NAMED = 3  # classes that a warning names


class ShareWarning(InputWarning):
    """Class shares were estimated, and are not to be trusted."""


@dataclass(frozen=True, eq=False)
class EstimatedShares:
    """Class shares by scores without labels.

    Parameters
    ----------
    shares : ndarray of shape (K,)
        In the order of the policy's classes; they sum to 1.
    error : ndarray of shape (K,)
        Standard error of each, for a calibrated model; infinite where the scores say nothing of it.
    source : ndarray of shape (K,)
        Shares of the samples for which the model was calibrated.
    temperature : float
        By how much the logits are too large, by labelled samples; 1 where none were given.
    misfit : float
        How far the unlabelled samples are from a mixture of the labelled classes, in standard errors of the mean score
        that fits least; 0 where there were no labelled ones.
    """

    shares: Vector
    error: Vector
    source: Vector
    temperature: float = 1.0
    misfit: float = 0.0


def estimate_shares(
    policy: Policy,
    X: ArrayLike,
    *,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
    class_counts: ArrayLike | Mapping[Any, float] | None = None,
) -> EstimatedShares:
    """How often each class occurs among samples without labels, if the classes look as they did.

    Parameters
    ----------
    policy : Policy
        Says what the scores are, and of which classes.
    X : array-like or DataFrame of shape (n_samples, K)
        Scores of samples from where the policy will be used.
    validation : (scores, labels), optional
        Labelled samples, such as those that tuned. They calibrate the model and check the result. Without them the
        model's probabilities are taken at their word, and nothing checks them.
    class_counts : per class, optional
        Training samples; by default as the policy's attribute "freq" says. Needed without `validation`.

    Returns
    -------
    EstimatedShares
        For ``policy.for_shares(found.shares)``.

    Warns
    -----
    ShareWarning
        Where samples are too few, or the scores tell classes apart too little, to say how often a class occurs; and
        where the labelled samples contradict the result.

    References
    ----------
    Saerens, Latinne and Decaestecker, "Adjusting the outputs of a classifier to new a priori probabilities", Neural
    Computation 2002.

    Examples
    --------
    >>> from capri import LogitAdjuster
    >>> rng = np.random.default_rng(0)
    >>> y = rng.choice(2, 4000, p=[0.9, 0.1])  # the world, unlike the balanced training set
    >>> logits = np.stack([-(rng.normal(y * 2.0) - 1), np.zeros(4000)], axis=1) * 2
    >>> policy = LogitAdjuster.from_counts([500, 500], "plain").policy_
    >>> estimate_shares(policy, logits).shares.round(2)
    array([0.91, 0.09])
    """
    classes = Classes.of(policy.classes)
    logits = _logits(policy, classes, X, "X")
    counts = policy.attributes.get("freq") if class_counts is None else classes.align(class_counts, "class_counts")
    counts = None if counts is None else check_counts(counts, len(classes))
    if validation is None:
        if counts is None or counts.min() == 0:
            raise InputError(
                "without validation=(scores, labels) training samples of every class must be known; give {argument}.",
                argument="class_counts",
            )
        q, source = softmax(logits.astype(np.float64)), frequency(counts)
        shares, error = _likeliest(q / source, source)
        found = EstimatedShares(shares, error, source)
    else:
        found = _with_labels(logits, *_labelled(policy, classes, validation), counts)
    _warn(found, classes, len(logits))
    return found


# --------------------------------------------------------------------------------------------------------------------
# What is given


def _logits(policy: Policy, classes: Classes, scores: Any, name: str) -> NDArray[Any]:
    array = check_scores(classes.arrange(scores, name), name)
    if array.shape[1] != len(classes):
        raise InputError(f"{name} has {array.shape[1]} columns, the policy {len(classes)} classes; give one per class.")
    return to_logits(array, policy.scores, policy.floor)


def _labelled(policy: Policy, classes: Classes, validation: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise InputError(f"validation is {short(validation)}; it must be a pair (scores, labels).")
    scores, y = (
        _logits(policy, classes, validation[0], "validation"),
        classes.encode(validation[1], "validation labels"),
    )
    if len(scores) != len(y):
        raise InputError(f"validation has {len(y)} labels for {len(scores)} samples; give one label per sample.")
    if (absent := np.flatnonzero(np.bincount(y, minlength=len(classes)) == 0)).size:
        raise InputError(f"validation has no sample of class {classes.names[absent[0]]!r}; give some of every class.")
    return scores, y


# --------------------------------------------------------------------------------------------------------------------
# The estimate


def _with_labels(
    logits: NDArray[Any], scores: NDArray[Any], y: NDArray[np.int64], counts: Vector | None
) -> EstimatedShares:
    usable = counts if counts is not None and counts.min() > 0 else None
    known = calibrate(Problem(scores, y, "balanced"), usable)
    here, there = (known.posterior(s.astype(np.float64)) for s in (scores, logits))
    shares, error = _likeliest(there / known.shares, known.shares)
    return EstimatedShares(shares, error, known.shares, known.temperature, _misfit(here, y, there, shares))


def _likeliest(ratio: NDArray[np.float64], start: Vector) -> tuple[Vector, Vector]:
    """The shares of the highest likelihood, r (n, K), and their standard errors.

    As many samples as there are classes stand for the start, so that no class is lost.
    """
    n, k = ratio.shape
    shares = start
    for _ in range(ROUNDS):
        mixed = ratio @ shares
        new = (shares * (ratio / mixed[:, None]).sum(axis=0) + k * start) / (n + k)
        change, shares = abs(new - shares).max(), new
        if change < SETTLED:
            break
    leaning = ratio / (ratio @ shares)[:, None]
    return shares, _standard_errors(leaning.T @ leaning)


def _standard_errors(curvature: NDArray[np.float64]) -> Vector:
    """Of shares, which sum to 1, by the curvature of their likelihood."""
    k = len(curvature)
    along = np.linalg.svd(np.ones((1, k)))[2][1:]  # directions that keep the sum
    values, vectors = np.linalg.eigh(along @ curvature @ along.T)
    told = values > TELLS * max(curvature.max(), TELLS)
    turned = (vectors.T @ along) ** 2
    variance = (turned[told] / values[told, None]).sum(axis=0)
    return np.where(turned[~told].sum(axis=0) > TELLS, np.inf, np.sqrt(variance))


def _misfit(here: NDArray[np.float64], y: NDArray[np.int64], there: NDArray[np.float64], shares: Vector) -> float:
    """The largest difference between means over the unlabelled and the mixed means of the classes, in standard errors.

    Those of the shares themselves are left out: they were chosen to fit.
    """
    here, there, n = np.hstack([here, here**2]), np.hstack([there, there**2]), np.bincount(y)
    means = np.stack([here[y == k].mean(axis=0) for k in range(len(n))])
    around = np.where((n > 1)[y, None], means[y], there.mean(axis=0))  # of one sample there is no spread
    by_class = (shares**2 / (n * np.maximum(n - 1, 1)))[y] @ (here - around) ** 2
    error = np.sqrt(by_class + there.var(axis=0) / len(there) + TELLS**2)
    return float((abs(there.mean(axis=0) - shares @ means) / error).max())


# --------------------------------------------------------------------------------------------------------------------
# What is not to be trusted


def _warn(found: EstimatedShares, classes: Classes, n_samples: int) -> None:
    unsure = found.error > UNSURE * found.shares
    if unsure.any():
        worst = np.argsort(-found.error / found.shares)[: min(NAMED, int(unsure.sum()))]
        shown = ", ".join(f"{classes.names[k]!r} ({found.shares[k]:.2g} ± {found.error[k]:.2g})" for k in worst)
        more = f" and {unsure.sum() - len(worst)} more" if unsure.sum() > len(worst) else ""
        warnings.warn(
            ShareWarning(
                f"{n_samples} samples do not say how often these classes occur: {shown}{more}. They are few, or the "
                "scores do not tell these classes from others; give more samples, or known shares."
            ),
            stacklevel=3,
        )
    if found.misfit > norm.isf(CHANCE / 4 / len(classes)):
        warnings.warn(
            ShareWarning(
                "the samples are no mixture of the labelled classes, whatever the shares (mean scores are off by "
                f"{found.misfit:.1f} standard errors): the model is badly calibrated, or more has changed than the "
                "shares. Label some of the new samples and tune again."
            ),
            stacklevel=3,
        )

"""Made-up scores that behave as a trained network's: to measure speed at sizes for which there is no network here.

    python reproduction/benchmarks/reallike.py        # how near they come to real ones

Uniform noise flatters whoever skips classes. Here features have a mean for each class, in families of related classes,
noise of the same few strong directions for all of them, and samples that are harder than others; the scores are the
log-posterior of the classifier that is best on these, trained on a long tail, as a last layer would learn it, and too
sure by a constant factor. So classes are confused with their relatives, margins spread from far below 0 to many nats,
and rare classes lose to common ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capri import packs
from capri.attributes import frequency

FEATURES, RELATED = 256, 12  # directions of the features, and classes of a family
DECAY = 0.5  # of their strength, the j-th by (1 + j)^−DECAY
KINSHIP = 0.5  # share of the variance of class means that families share
HARDNESS = 0.25  # spread of the logarithm of the noise of samples
SEPARATION = 0.83  # of class means, against the noise: top-1 is about 75 % at K = 1,000
SURE = 0.75  # by which factor the scores are too large, for a classifier whose samples were all alike
IMBALANCE = 50.0  # of the training set


class ScoreSet(NamedTuple):
    """Scores (N, K) in single precision, labels, and training samples per class."""

    scores: NDArray[np.float32]
    y: NDArray[np.int64]
    counts: NDArray[np.float64]


def made(n: int, k: int, seed: int = 0, separation: float = SEPARATION) -> ScoreSet:
    """Scores of N samples, as many of each class as of any other, give or take one."""
    rng = np.random.default_rng(seed)
    counts = np.floor(20 * IMBALANCE ** (1 - rng.permutation(k) / max(1, k - 1)))
    strength = (1.0 + np.arange(FEATURES)) ** -DECAY
    families = rng.normal(size=(-(-k // RELATED), FEATURES))[rng.permutation(k) // RELATED]
    means = np.sqrt(KINSHIP) * families + np.sqrt(1 - KINSHIP) * rng.normal(size=(k, FEATURES))
    means *= separation * np.sqrt(strength)
    y = rng.permutation(n) % k
    weights = (SURE * means).astype(np.float32)
    bias = SURE * (np.log(frequency(counts)) - (means**2).sum(axis=1) / 2)
    scores = np.empty((n, k), np.float32)
    for rows in np.array_split(np.arange(n), -(-n // 5_000)):
        noise = rng.normal(size=(len(rows), FEATURES)) * np.exp(HARDNESS * rng.normal(size=(len(rows), 1)))
        np.matmul((means[y[rows]] + noise).astype(np.float32), weights.T, out=scores[rows[0] : rows[-1] + 1])
    scores += bias.astype(np.float32)
    return ScoreSet(scores, y, counts)


def portrait(scores: NDArray[np.floating], y: NDArray[np.integer]) -> dict[str, float]:
    """What screening lives on: how right scores are, and how many classes lie how near to the best one."""
    z = scores.astype(np.float64)
    best = z.max(axis=1)
    gaps = best[:, None] - z
    own = gaps[np.arange(len(y)), y]
    likelihood = own + np.log(np.exp(-gaps).sum(axis=1))
    figures = {
        "top-1": float((own == 0).mean()),
        "top-5": float(((gaps < own[:, None]).sum(axis=1) < 5).mean()),
        "nll": float(likelihood.mean()),
        "median gap to any class": float(np.median(gaps)),
    }
    figures |= {f"classes within {nats} nats": float((gaps < nats).sum(axis=1).mean()) for nats in (2, 5, 10, 20)}
    return figures


def main() -> None:
    for k in (100, 1_000, 8_142):
        made_up = made(3_000, k)
        _print(f"made, K={k:,}", made_up.scores, made_up.y)
    pack = packs.load("cifar100-lt")
    _print("ResNet-32 on CIFAR100-LT", pack.logits, pack.y)


def _print(name: str, scores: NDArray[np.float32], y: NDArray[np.int64]) -> None:
    print(name, {key: round(value, 2) for key, value in portrait(scores, y).items()}, sep=": ")


if __name__ == "__main__":
    main()

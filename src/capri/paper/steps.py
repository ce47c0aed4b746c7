"""Post-hoc tuning by gradient descent, as the paper does it: what happens to loss and error on the way.

W of l = D w_l, or of Δ = exp(D w_Δ), goes down the balanced cross-entropy of validation; both are watched on test.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from capri.attributes import Attributes, difficulty, frequency
from capri.dictionary import build_dictionary
from capri.errors import class_errors
from capri.paper.exhibits import Size
from capri.paper.posthoc import network, split_of
from capri.paper.store import Result, Store, Unit

Array = NDArray[np.float64]
RATE, STEPS, SMOKE_STEPS = 0.2, 500, 20


def steps(scores: str, seed: int, size: Size, part: str) -> Unit:
    """One descent, of offsets ("l") or multipliers ("delta")."""
    smoke = size == "smoke"
    source = "digits" if smoke else scores
    settings = {"scores": source, "network": network(source), "split": seed, "part": part,
                "steps": SMOKE_STEPS if smoke else STEPS, "rate": RATE}  # fmt: skip
    return Unit("steps", settings, f"{source}-{part}-split{seed}")


def do_steps(unit: Unit, store: Store) -> Result:
    """Loss and error on test after each step."""
    s = unit.settings
    split = split_of(s)
    k = len(split.train_counts)
    errors = class_errors(split.val_y, split.val_scores.argmax(axis=1), k)
    table = Attributes.of(
        freq=frequency(split.train_counts), diff=difficulty(errors, np.bincount(split.val_y, minlength=k))
    )
    D = build_dictionary(table).values
    w, history = np.zeros(D.shape[1]), []
    for _ in range(s["steps"] + 1):
        test = adjusted(split.test_scores, D, w, s["part"])
        balanced = float(class_errors(split.test_y, test.argmax(axis=1), k).mean())
        history.append((balanced_loss(test, split.test_y), balanced))
        w = w - s["rate"] * gradient(split.val_scores, split.val_y, D, w, s["part"])
    loss, error = np.array(history).T
    return {"step": list(range(len(loss))), "loss": loss.round(5).tolist(), "error": error.round(5).tolist()}


def adjusted(scores: Array, D: Array, w: Array, part: str) -> Array:
    """Scores plus D w, or times exp(D w): Δ∘o − l with the sign of l turned."""
    return scores + D @ w if part == "l" else scores * np.exp(D @ w)


def balanced_loss(scores: Array, y: NDArray[np.int64]) -> float:
    """Cross-entropy, each class weighted alike."""
    losses = -log_softmax(scores, axis=1)[np.arange(len(y)), y]
    return float(np.mean(np.bincount(y, losses) / np.bincount(y)))


def gradient(scores: Array, y: NDArray[np.int64], D: Array, w: Array, part: str) -> Array:
    """Of the balanced loss by w."""
    z = adjusted(scores, D, w, part)
    slope = np.exp(log_softmax(z, axis=1))
    slope[np.arange(len(y)), y] -= 1
    slope /= np.bincount(y)[y][:, None] * z.shape[1]
    by_class = slope.sum(axis=0) if part == "l" else (slope * z).sum(axis=0)
    return np.asarray(D.T @ by_class)

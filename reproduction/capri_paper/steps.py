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
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import Part, first_order
from capri_paper import resolved
from capri_paper.exhibits import Size
from capri_paper.posthoc import split_of
from capri_paper.store import Result, Store, Unit

Array = NDArray[np.float64]
RATE, MOMENTUM, STEPS, SMOKE_STEPS = 0.2, 0.0, 500, 20


def steps(scores: str, seed: int, size: Size, part: str) -> Unit:
    """One descent, of offsets ("l") or multipliers ("delta")."""
    smoke = size == "smoke"
    source = "digits" if smoke else scores
    settings = {"scores": source, "digest": resolved.scores(source), "split": seed, "part": part,
                "steps": SMOKE_STEPS if smoke else STEPS, "rate": RATE, "momentum": MOMENTUM,
                "constants": resolved.dictionary_constants()}  # fmt: skip
    return Unit("steps", settings, f"{source}-{part}-split{seed}")


def do_steps(unit: Unit, store: Store) -> Result:
    """Loss and error on test after each step."""
    s = unit.settings
    split = split_of(s)
    k = split.n_classes
    errors = class_errors(split.val_y, split.val_scores.argmax(axis=1), k)
    table = Attributes.of(freq=frequency(split.counts), diff=difficulty(errors, np.bincount(split.val_y, minlength=k)))
    D = build_dictionary(table).values
    val, test = Problem(split.val_scores, split.val_y), Problem(split.test_scores, split.test_y)
    run = first_order(val, D, of=s["part"], steps=s["steps"] + 1, rate=s["rate"], momentum=s["momentum"],
                      watch=test, loss=CrossEntropy)  # fmt: skip
    loss, error = run.history.T
    return {"step": list(range(len(loss))), "loss": loss.round(5).tolist(), "error": error.round(5).tolist()}


class CrossEntropy:
    """Cross-entropy of Δ∘o − l, each class weighted alike: what the paper descends."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def at(self, adjustment: Adjustment) -> float:
        """The loss."""
        return self.gradient(adjustment)[0]

    def gradient(self, adjustment: Adjustment, of: Part = "l") -> tuple[float, Array]:
        """The loss, and its gradient in l or Δ."""
        scores, y = self.problem.scores, self.problem.y
        own = np.arange(len(y)), y
        weight = 1 / (np.bincount(y)[y] * self.problem.n_classes)
        logs = log_softmax(scores * adjustment.delta - adjustment.l, axis=1)
        slope = np.exp(logs)
        slope[own] -= 1
        slope *= weight[:, None]
        by_class = (slope * scores).sum(axis=0) if of == "delta" else -slope.sum(axis=0)
        return float(-(weight * logs[own]).sum()), by_class

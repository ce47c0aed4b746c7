"""Validation scores of a model that was trained on a long tail."""

from dataclasses import dataclass

import numpy as np
import pytest


@dataclass
class Tail:
    scores: np.ndarray  # logits, biased towards frequent classes
    y: np.ndarray
    counts: np.ndarray  # training samples per class

    @property
    def n_classes(self):
        return len(self.counts)

    def fitted(self, estimator, **keywords):
        return estimator.fit(self.scores, self.y, class_counts=self.counts, **keywords)


def make_tail(n_classes=5, per_class=30, signal=2.0, imbalance=50.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    counts = np.floor(500 * imbalance ** (-np.arange(n_classes) / (n_classes - 1)))
    scores = rng.normal(size=(len(y), n_classes)) + signal * np.eye(n_classes)[y] + np.log(counts / counts.sum())
    return Tail(scores, y, counts)


@pytest.fixture
def tail():
    return make_tail()


@pytest.fixture(scope="session")
def tail_of():
    return make_tail

"""Scores of models that favour common classes."""

import warnings
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pytest

from capri import LogitAdjuster

HOSTILE = ("$x_1$", "a_b^{c", "<script>alert(1)</script>", "very long " * 20, "50 % \\$", "new\nline", "…", "_hidden")


class Case(NamedTuple):
    """Two halves of some samples, and an adjuster tuned on the first."""

    names: np.ndarray
    counts: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    held_scores: np.ndarray
    held_labels: np.ndarray
    adjuster: LogitAdjuster


def case(names: Any, each: int = 12, seed: int = 0, absent: int | None = None, **settings: Any) -> Case:
    k, rng = len(names), np.random.default_rng(seed)
    names, counts = np.asarray(names), np.geomspace(1000, 10, k).round()
    y = np.repeat(np.arange(k), 2 * each)
    scores = rng.normal(size=(len(y), k)) + 2.5 * np.eye(k)[y] + np.log(counts / counts.sum())
    if absent is not None:
        scores, y = scores[y != absent], y[y != absent]
        settings["absent"] = "ignore"
    first = np.arange(len(y)) % 2 == 0
    adjuster = LogitAdjuster(**{"objective": "balanced", "classes": names.tolist(), **settings})
    adjuster.fit(scores[first], names[y[first]], class_counts=counts)
    return Case(names, counts, scores[first], names[y[first]], scores[~first], names[y[~first]], adjuster)


@pytest.fixture(autouse=True)
def _off_screen():
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="session", params=[2, 10, 100])
def of_size(request):
    return case([f"class {i}" for i in range(request.param)], bootstrap=20)


@pytest.fixture(scope="session")
def ten():
    return case([f"class {i}" for i in range(10)], objective="cvar:0.3")


@pytest.fixture(scope="session")
def lacking():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case([f"class {i}" for i in range(6)], absent=2)


@pytest.fixture(scope="session")
def hostile():
    return case(HOSTILE)


@pytest.fixture(params=HOSTILE)
def hostile_name(request):
    return request.param

"""Populations: fixed scores and labels to draw validation samples from, with replacement, so that truth is known.

"gaussian" is 200,000 samples of five classes with shares from 50 to 3 %. Other names are data sets of `realdata`:
all of their samples that gradient-boosted trees have not seen.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from realdata import load
from scoresets import divide_classes, fitted_scorer


@cache
def population(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels."""
    if name == "gaussian":
        rng = np.random.default_rng(1)
        shares = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
        y = rng.choice(5, 200_000, p=shares)
        return rng.normal(size=(len(y), 5)) + 2 * np.eye(5)[y] + np.log(shares), y
    x, y, _ = load(name)
    train, _, _ = divide_classes(y, False, 0)
    rest = np.setdiff1d(np.arange(len(y)), train)
    scores = fitted_scorer("boost", x[train], y[train], 0)
    return np.log(np.maximum(scores(x[rest]), 1e-6)), y[rest]

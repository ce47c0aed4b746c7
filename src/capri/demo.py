"""The demonstration: a real classifier with unhappy tail classes, five objectives, before and after.

`capri demo` prints one table. A column is an objective; a row is a way to choose a strategy, tuned on validation scores
for that objective where it tunes at all; a number is the objective on test scores that no choice has seen, as a mean
over splits. New rows go into `METHODS`, new data into `DATASETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from capri import packs, study
from capri.page import Report
from capri.sampling import shuffled
from capri.study import Method, Split, Study

OBJECTIVES = ("balanced", "sdev", "cvar:0.2", "quantile:0.2", "weighted")

SHOWN = "cvar:0.2"  # of these, on the page
AS_TRAINED = "as trained"
METHODS: dict[str, Method] = {
    AS_TRAINED: study.METHODS["unadjusted"],
    "LA, τ = 1": study.METHODS["la1"],
    "LA, tuned": study.METHODS["la"],
    "plain": study.METHODS["plain"],
    "CAP": study.METHODS["cap"],
    "CAP, pooled": study.METHODS["cap-pooled"],
}


def long_tailed_digits(seed: int, imbalance: float = 30.0) -> Split:
    """Handwritten digits made rare one by one (90 training images of '0' down to 3 of '9'), logistic regression."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = load_digits(return_X_y=True)
    sizes = np.floor(90 * imbalance ** (-np.arange(10) / 9)).astype(int)
    rng = np.random.default_rng(seed)
    order = list(shuffled(y, 10, rng))
    train = np.concatenate([index[:size] for index, size in zip(order, sizes, strict=True)])
    held = [index[90:] for index in order]
    val = np.concatenate([index[::2] for index in held])
    test = np.concatenate([index[1::2] for index in held])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X[train], y[train])
    return Split(
        model.decision_function(X[val]),
        y[val].astype(np.int64),
        model.decision_function(X[test]),
        y[test].astype(np.int64),
        class_names=tuple("0123456789"),
        train_counts=sizes.astype(np.float64),
        weights=rng.uniform(size=10),
    )


def pack(name: str) -> Callable[[int], Split]:
    """Scores that come with the package, half of each class to tune on and half to test on."""

    def split(seed: int) -> Split:
        scores = packs.load(name)
        val, test = scores.halves(seed)
        weights = np.random.default_rng((seed, 1)).uniform(size=len(scores.class_names))
        x, y, counts = scores.logits, scores.y, scores.train_counts.astype(np.float64)
        return Split(x[val], y[val], x[test], y[test], scores.class_names, counts, weights)

    return split


@dataclass(frozen=True)
class Dataset:
    """A named source of splits, by seed."""

    title: str
    split: Callable[[int], Split]

    def known(self, seed: int, objective: str) -> Split:
        """A split as it is known to those who tune: only the weighted error has test-time weights."""
        split = self.split(seed)
        return split if objective == "weighted" else replace(split, weights=None)


_PACKS = {
    "cifar100-lt": Dataset("CIFAR100-LT (500 to 5 training images), ResNet-32", pack("cifar100-lt")),
    "cifar10-lt": Dataset("CIFAR10-LT (5,000 to 50 training images), ResNet-32", pack("cifar10-lt")),
}
DATASETS: dict[str, Dataset] = {
    **{name: dataset for name, dataset in _PACKS.items() if name in packs.names()},
    "digits": Dataset(
        "handwritten digits, long-tailed (90 to 3 training images), logistic regression", long_tailed_digits
    ),
}
DEFAULT = next(iter(DATASETS))


def run(
    dataset: str = DEFAULT,
    n_splits: int = 5,
    methods: Mapping[str, Method] | None = None,
    objectives: Sequence[str] = OBJECTIVES,
    on_step: Callable[[], None] = lambda: None,
    jobs: int = 1,
) -> Study:
    """All methods for all objectives on all splits; `on_step` is called once per objective and split."""
    chosen = METHODS if methods is None else methods
    return study.run(DATASETS[dataset].known, range(n_splits), chosen, objectives, jobs=jobs, on_step=on_step)


def report(dataset: str = DEFAULT, objective: str = SHOWN, points: int = 9) -> Report:
    """The page of one tuning, on the first split: judged on its test samples, with a slider along the trade-offs.

    Parameters
    ----------
    dataset : str
        One of `DATASETS`.
    objective : str
        What is tuned for.
    points : int
        Of the frontier of the objective against the overall error, at most.

    Returns
    -------
    Report
    """
    from capri.posthoc import LogitAdjuster, frontier

    split = DATASETS[dataset].known(0, objective)
    names = np.array(split.class_names)
    scores, labels = split.val_scores, names[split.val_y]
    adjuster = LogitAdjuster(objective, classes=names, scores=split.kind)
    adjuster.fit(scores, labels, class_counts=split.counts)
    curve = frontier(scores, labels, adjuster=adjuster, points=points, class_counts=split.counts, bootstrap=0)
    return adjuster.report(split.test_scores, names[split.test_y], frontier=curve)

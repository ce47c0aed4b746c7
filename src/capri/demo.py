"""The demonstration: a real classifier with unhappy tail classes, five objectives, before and after.

`capri demo` prints one table. A column is an objective; a row is a way to choose a strategy, tuned on validation scores
for that objective where it tunes at all; a number is the objective on test scores that no choice has seen, as a mean
over splits. New rows go into `METHODS`, new data into `DATASETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from capri import packs
from capri.errors import class_errors
from capri.evaluation import evaluate
from capri.sampling import shuffled
from capri.strategy import Strategy

OBJECTIVES = ("balanced", "sdev", "cvar:0.2", "quantile:0.2", "weighted")


@dataclass(frozen=True)
class Split:
    """Scores of one model on validation and test samples, and what is known of the classes."""

    val_scores: NDArray[Any]
    val_y: NDArray[np.int64]
    test_scores: NDArray[Any]
    test_y: NDArray[np.int64]
    train_counts: NDArray[np.float64]
    class_names: tuple[str, ...]
    weights: NDArray[np.float64]

    def weighted(self, weights: NDArray[np.float64] | None) -> Split:
        """The same under other test-time weights, if any are given."""
        return self if weights is None else replace(self, weights=weights)

    def test_errors(self, strategy: Strategy) -> NDArray[np.float64]:
        """Class errors on test."""
        predictions = strategy.adjust(self.test_scores).argmax(axis=1)
        return class_errors(self.test_y, predictions, strategy.n_classes)

    def test_value(self, strategy: Strategy, objective: str) -> float:
        """One objective on test."""
        predictions = strategy.adjust(self.test_scores).argmax(axis=1)
        values = evaluate(self.test_y, predictions, strategy.n_classes, [objective], weights=self.weights)
        return values[objective]


Method: TypeAlias = Callable[[Split, str], Strategy]


def as_trained(split: Split, objective: str) -> Strategy:
    """The model as it is."""
    return Strategy.of(len(split.train_counts))


def logit_adjustment(split: Split, objective: str) -> Strategy:
    """Logit adjustment with τ = 1: subtract log π, without looking at any validation data."""
    return Strategy.logit_adjustment(split.train_counts, tau=1.0)


def tuned(**settings: Any) -> Method:
    """A strategy tuned on the validation scores for the column's objective."""

    def method(split: Split, objective: str) -> Strategy:
        from capri.posthoc import LogitAdjuster

        weights = split.weights if objective == "weighted" else None
        adjuster = LogitAdjuster(objective, weights=weights, bootstrap=1, **settings)
        return adjuster.fit(split.val_scores, split.val_y, class_counts=split.train_counts).strategy_

    return method


METHODS: dict[str, Method] = {
    "as trained": as_trained,
    "LA, τ = 1": logit_adjustment,
    "LA, tuned": tuned(method="la"),
    "plain": tuned(method="plain"),
    "CAP": tuned(method="cap", pooling=None),
    "CAP, pooled": tuned(method="cap", pooling="auto"),
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
        sizes.astype(np.float64),
        tuple("0123456789"),
        rng.uniform(size=10),
    )


def pack(name: str) -> Callable[[int], Split]:
    """Scores that come with the package, half of each class to tune on and half to test on."""

    def split(seed: int) -> Split:
        scores = packs.load(name)
        val, test = scores.halves(seed)
        weights = np.random.default_rng((seed, 1)).uniform(size=len(scores.class_names))
        x, y, counts = scores.logits, scores.y, scores.train_counts.astype(np.float64)
        return Split(x[val], y[val], x[test], y[test], counts, scores.class_names, weights)

    return split


@dataclass(frozen=True)
class Dataset:
    """A named source of splits, by seed."""

    title: str
    split: Callable[[int], Split]


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


@dataclass(frozen=True)
class Results:
    """Test values by method and objective, (n_splits,) each, and mean class errors for the picture."""

    values: Mapping[str, Mapping[str, NDArray[np.float64]]]
    class_errors: Mapping[str, Mapping[str, NDArray[np.float64]]]
    train_counts: NDArray[np.float64]
    class_names: tuple[str, ...]
    n_splits: int


def run(
    dataset: str = DEFAULT,
    n_splits: int = 5,
    methods: Mapping[str, Method] | None = None,
    objectives: Sequence[str] = OBJECTIVES,
    on_step: Callable[[], None] = lambda: None,
    jobs: int = 1,
) -> Results:
    """All methods for all objectives on all splits; `on_step` is called once per objective and split."""
    from joblib import Parallel, delayed

    chosen = METHODS if methods is None else methods
    tasks = [(objective, seed) for seed in range(n_splits) for objective in objectives]
    calls = (delayed(_judge)(DATASETS[dataset], objective, seed, chosen) for objective, seed in tasks)
    values: dict[str, dict[str, list[float]]] = {m: {o: [] for o in objectives} for m in chosen}
    errors: dict[str, dict[str, list[NDArray[np.float64]]]] = {m: {o: [] for o in objectives} for m in chosen}
    for (objective, _), found in zip(tasks, Parallel(n_jobs=jobs, return_as="generator")(calls), strict=True):
        for name, (value, by_class) in found.items():
            values[name][objective].append(value)
            errors[name][objective].append(by_class)
        on_step()
    first = DATASETS[dataset].split(0)
    return Results(
        {m: {o: np.array(v) for o, v in row.items()} for m, row in values.items()},
        {m: {o: np.mean(e, axis=0) for o, e in row.items()} for m, row in errors.items()},
        first.train_counts,
        first.class_names,
        n_splits,
    )


def _judge(
    dataset: Dataset, objective: str, seed: int, methods: Mapping[str, Method]
) -> dict[str, tuple[float, NDArray[np.float64]]]:
    """Objective and class errors on test, by method."""
    split = dataset.split(seed)
    strategies = {name: method(split, objective) for name, method in methods.items()}
    return {name: (split.test_value(s, objective), split.test_errors(s)) for name, s in strategies.items()}

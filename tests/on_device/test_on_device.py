"""Passes over tensors are those of the compiled kernels: here on the CPU's backend of torch, and in no other place."""

import numpy as np
import pytest
import torch

from capri import InputError, LogitAdjuster, exact_line_search
from capri.on_device import DeviceScores, line_search, tune
from capri.on_device import passes as passes_module
from capri.on_device.tuning import DeviceProblem, DeviceSurrogate
from capri.posthoc.adjustment import Adjustment, Direction
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import Surrogate

K, N = 7, 900


@pytest.fixture(params=[torch.float32, torch.float64, torch.float16])
def given(request, monkeypatch):
    """Scores with ties, of a long tail, passed over in many parts."""
    monkeypatch.setattr(passes_module, "AT_ONCE", 100 * K)
    rng = np.random.default_rng(0)
    y = rng.choice(K, N, p=0.6 ** np.arange(K) / (0.6 ** np.arange(K)).sum())
    scores = rng.normal(size=(N, K)) + 1.5 * np.eye(K)[y] + np.log(0.6) * np.arange(K)
    scores[::5] = np.round(2 * scores[::5]) / 2  # ties
    tensor = torch.tensor(scores).to(request.param)
    return tensor, torch.tensor(y), tensor.to(torch.float64).numpy(), y


def problems(given, objective="cvar:0.4"):
    tensor, labels, scores, y = given
    return DeviceProblem(DeviceScores(tensor, labels), objective), Problem(scores, y, objective)


def test_decisions_and_intervals_are_the_compiled_ones_to_the_bit(given):
    here, there = problems(given)
    rng = np.random.default_rng(1)
    for i in range(6):
        start = Adjustment(rng.uniform(0.5, 2, K), np.round(rng.normal(size=K), 1))
        way = Direction(np.zeros(K) if i % 2 else rng.normal(size=K), np.round(rng.normal(size=K)))
        np.testing.assert_array_equal(here.predict(start), there.predict(start))
        for one, other in zip(here.right_intervals(start, way), there.right_intervals(start, way), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "sdev", "worst", "plain"])
def test_the_line_is_the_exact_one(given, objective):
    tensor, labels, scores, y = given
    g = -np.arange(K, dtype=float)
    here, there = line_search(tensor, labels, g, objective), exact_line_search(scores, y, g, objective)
    assert (here.t, here.value, here.unadjusted) == (there.t, there.value, there.unadjusted)
    np.testing.assert_array_equal(here.breakpoints, there.breakpoints)
    np.testing.assert_array_equal(here.values, there.values)


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "sdev", "mix:0.5"])
def test_the_surrogate_and_its_gradient_are_those_of_numpy(given, objective):
    here, there = problems(given, objective)
    one, other = DeviceSurrogate(here), Surrogate(there)
    assert one.sharpness == pytest.approx(other.sharpness, rel=1e-12)
    rng = np.random.default_rng(2)
    for _ in range(3):
        at = Adjustment.offsets(rng.normal(size=K))
        value, slope = one.gradient(at)
        expected, slopes = other.gradient(at)
        assert value == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(slope, slopes, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "worst"])
def test_tuning_gains_what_tuning_on_the_cpu_gains(given, objective):
    tensor, labels, scores, y = given
    counts = np.bincount(y, minlength=K) * 10
    names = list("abcdefg")
    policy = tune(tensor, labels, objective, class_counts=dict(zip(names, counts, strict=True)), classes=names)
    by_cpu = LogitAdjuster(objective, method="plain", borrow=0, bootstrap=0).fit(scores, y, class_counts=counts)
    before, after = policy.validation.before[objective], policy.validation.after[objective]
    assert after < before
    assert before - after > 0.6 * by_cpu.validation_.in_sample
    assert policy.classes == tuple(names)
    assert (policy.predict(scores) == np.array(names)[policy.apply(scores).argmax(axis=1)]).all()


def test_nothing_is_the_answer_where_nothing_helps():
    y = torch.arange(60) % 3
    scores = 5 * torch.eye(3)[y]
    policy = tune(scores, y, "balanced", class_counts=[1, 10, 100])
    assert policy.validation.after["balanced"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "macro_f1"}, "made of confusions"),
        ({"scores": torch.zeros(4, 3, dtype=torch.int64)}, "must be floats"),
        ({"scores": torch.full((4, 3), torch.nan)}, "NaN or infinite"),
        ({"y": torch.zeros(3, dtype=torch.int64)}, "one class number per sample"),
        ({"y": torch.tensor([0, 1, 2, 3])}, r"outside 0 … 2"),
        ({"y": torch.tensor([0, 1, 1, 0])}, "has no sample"),
        ({"class_counts": [1, 2]}, "class_counts"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    given = {"scores": torch.randn(4, 3), "y": torch.tensor([0, 1, 2, 0])} | change
    with pytest.raises(InputError, match=message):
        tune(**given)

"""Label smoothing per class: in the loss, and from a policy into retraining."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from capri import Policy, Strategy
from capri._checks import InputError
from capri.bilevel.losses import ParametricCrossEntropy, parametric_cross_entropy
from capri.train.config import LossConfig
from capri.train.experiment import make_smoothing

K = 4


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(9, K), torch.arange(9) % K


def test_equal_smoothing_is_torchs():
    o, y = batch()
    ours = parametric_cross_entropy(o, y, label_smoothing=torch.full((K,), 0.2))
    torch.testing.assert_close(ours, F.cross_entropy(o, y, reduction="none", label_smoothing=0.2))
    omega = torch.rand(K)
    torch.testing.assert_close(
        parametric_cross_entropy(o, y, omega, label_smoothing=torch.full((K,), 0.2)),
        parametric_cross_entropy(o, y, omega, label_smoothing=0.2),
    )


def test_each_class_has_its_own():
    o, y = batch()
    epsilon = torch.tensor([0.0, 0.1, 0.2, 0.4])
    ours = parametric_cross_entropy(o, y, label_smoothing=epsilon)
    for k in range(K):
        expected = F.cross_entropy(o[y == k], y[y == k], reduction="none", label_smoothing=float(epsilon[k]))
        torch.testing.assert_close(ours[y == k], expected)
    soft = F.one_hot(y, K).float()
    torch.testing.assert_close(parametric_cross_entropy(o, soft, label_smoothing=epsilon), ours)
    module = ParametricCrossEntropy(Strategy.of(K), label_smoothing=epsilon.tolist())
    torch.testing.assert_close(module(o, y), ours.mean())


def test_smoothing_is_checked():
    for wrong in (1.0, [0.1, 0.2], [0.1, 0.1, 0.1, -0.1]):
        with pytest.raises(InputError, match=r"it must lie in \[0, 1\), one for all or per class"):
            ParametricCrossEntropy(Strategy.of(K), label_smoothing=wrong)


def test_a_policy_carries_it(tmp_path):
    path = tmp_path / "policy.json"
    names = tuple("abcd")
    policy = Policy(Strategy.of(K), "balanced", names, data={"label_smoothing": [0.0, 0.1, 0.2, 0.3]})
    policy.save(path)
    config = LossConfig(strategy="policy", policy=str(path))
    assert make_smoothing(config) == [0.0, 0.1, 0.2, 0.3]
    with pytest.raises(InputError, match="has its own per class; set it to 0"):
        make_smoothing(replace(config, label_smoothing=0.1))
    Policy(Strategy.of(K), "balanced", names).save(path)
    assert make_smoothing(replace(config, label_smoothing=0.1)) == 0.1
    assert make_smoothing(LossConfig(label_smoothing=0.05)) == 0.05

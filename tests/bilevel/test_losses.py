"""The parametric cross-entropy against torch's own, formulas written out here, and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from capri import Strategy
from capri._checks import InputError
from capri.bilevel import ParametricCrossEntropy, parametric_cross_entropy

N, K = 7, 4
COUNTS = np.array([500, 120, 30, 6])


@pytest.fixture
def sample() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(N, K, generator=generator, dtype=torch.float64)
    return logits, torch.randint(K, (N,), generator=generator)


@pytest.fixture
def parts() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    omega = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    l = torch.tensor([0.3, -0.2, 0.0, -1.0], dtype=torch.float64)
    delta = torch.tensor([1.0, 0.8, 0.6, 1.2], dtype=torch.float64)
    return omega, l, delta


def per_class(epsilon: float) -> torch.Tensor | None:
    """The same ε for each class; None is the loss without any."""
    return torch.full((K,), epsilon, dtype=torch.float64) if epsilon else None


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_neutral_is_torch_cross_entropy(sample, epsilon):
    logits, y = sample
    expected = F.cross_entropy(logits, y, reduction="none", label_smoothing=epsilon)
    torch.testing.assert_close(parametric_cross_entropy(logits, y, smoothing=per_class(epsilon)), expected)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_weights_are_those_of_torch_but_the_mean_is_over_samples(sample, parts, epsilon):
    logits, y = sample
    omega, l, delta = parts
    l = 0 * l if epsilon else l  # smoothing goes by offsets, which torch does not know
    parts, z = (omega, l, delta), delta * logits + l
    expected = F.cross_entropy(z, y, weight=omega, reduction="none", label_smoothing=epsilon)
    torch.testing.assert_close(parametric_cross_entropy(logits, y, omega, l, delta, per_class(epsilon)), expected)
    module = ParametricCrossEntropy(Strategy(*(p.numpy() for p in parts), np.full(K, epsilon)))
    torch.testing.assert_close(module(logits, y), expected.mean())
    assert not torch.isclose(module(logits, y), F.cross_entropy(z, y, weight=omega, label_smoothing=epsilon))


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_soft_labels_are_expectations(sample, parts, epsilon):
    logits, _ = sample
    q = torch.softmax(torch.randn(N, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), dim=1)
    every = [
        parametric_cross_entropy(logits, torch.full((N,), k), *parts, per_class(epsilon)) * q[:, k] for k in range(K)
    ]
    torch.testing.assert_close(parametric_cross_entropy(logits, q, *parts, per_class(epsilon)), sum(every))
    expected = F.cross_entropy(logits, q, reduction="none", label_smoothing=epsilon)
    torch.testing.assert_close(parametric_cross_entropy(logits, q, smoothing=per_class(epsilon)), expected)


def test_smoothing_goes_where_scores_that_say_nothing_go(sample, parts):
    """The target is (1 − ε) 1_y + ε softmax(l); its second part alone is least at o = 0, whatever the offsets are."""
    (logits, y), (omega, l, delta) = sample, parts
    epsilon = torch.tensor([0.0, 0.1, 0.2, 0.4], dtype=torch.float64)
    target = (1 - epsilon[y])[:, None] * F.one_hot(y, K) + epsilon[y][:, None] * torch.softmax(l, dim=0)
    expected = parametric_cross_entropy(logits, target, omega, l, delta)
    torch.testing.assert_close(parametric_cross_entropy(logits, y, omega, l, delta, epsilon), expected)
    given = Strategy(omega.numpy(), l.numpy(), delta.numpy(), epsilon.numpy())
    np.testing.assert_allclose(given.loss(logits.numpy(), y.numpy()), expected)

    nothing = torch.zeros(1, K, dtype=torch.float64, requires_grad=True)
    parametric_cross_entropy(nothing, y[:1], None, l, delta, torch.ones(K, dtype=torch.float64)).sum().backward()
    torch.testing.assert_close(nothing.grad, torch.zeros(1, K, dtype=torch.float64))


def test_each_class_has_its_own_smoothing(sample):
    logits, y = sample
    epsilon = torch.tensor([0.0, 0.1, 0.2, 0.4], dtype=torch.float64)
    ours = parametric_cross_entropy(logits, y, smoothing=epsilon)
    for k in range(K):
        expected = F.cross_entropy(logits[y == k], y[y == k], reduction="none", label_smoothing=float(epsilon[k]))
        torch.testing.assert_close(ours[y == k], expected)
    torch.testing.assert_close(parametric_cross_entropy(logits, F.one_hot(y, K).double(), smoothing=epsilon), ours)
    module = ParametricCrossEntropy(Strategy.of(K, smoothing=epsilon.numpy()))
    torch.testing.assert_close(module(logits, y), ours.mean())
    assert "smoothing" in repr(module)


def test_named_losses_from_their_papers(sample):
    """The sums are written out with explicit exponentials, as their papers print them."""
    logits, y = sample
    pi = COUNTS / COUNTS.sum()
    o = logits.numpy()
    own = o[np.arange(N), y]

    def module(strategy):
        return ParametricCrossEntropy(strategy, reduction="none").double()(logits, y).numpy()

    def double(strategy):
        tensors = (torch.from_numpy(p) for p in (strategy.omega, strategy.l, strategy.delta))
        return parametric_cross_entropy(logits, y, *tensors).numpy()

    tau, gamma = 1.3, 0.2
    # Logit adjustment: log(1 + Σ_{k≠y} (π_k/π_y)^τ exp(o_k − o_y))
    ratios = (pi[None] / pi[y.numpy()][:, None]) ** tau
    adjusted = np.log((ratios * np.exp(o - own[:, None])).sum(axis=1))
    # CDT: logits divided by a_k = (n_max/n_k)^γ
    a = (COUNTS.max() / COUNTS) ** gamma
    divided = o / a
    cdt = np.log(np.exp(divided).sum(axis=1)) - divided[np.arange(N), y]
    vs_scores = divided + tau * np.log(pi)
    vs = np.log(np.exp(vs_scores).sum(axis=1)) - vs_scores[np.arange(N), y]
    plain = np.log(np.exp(o).sum(axis=1)) - own
    weights = 1 / COUNTS
    for strategy, expected in (
        (Strategy.of(K), plain),
        (Strategy.logit_adjustment(COUNTS, tau), adjusted),
        (Strategy.cdt(COUNTS, gamma), cdt),
        (Strategy.vs(COUNTS, tau, gamma), vs),
        (Strategy.weighted(weights), (weights / weights.mean())[y] * plain),
    ):
        np.testing.assert_allclose(double(strategy), expected, rtol=1e-10)
        np.testing.assert_allclose(module(strategy), expected, rtol=1e-5)
        np.testing.assert_allclose(strategy.loss(o, y.numpy()), expected, rtol=1e-10)


def test_balanced_softmax_is_logit_adjustment_at_one(sample):
    logits, y = sample
    counts = torch.from_numpy(COUNTS).double()
    weighted = counts * logits.exp()
    expected = -torch.log(weighted[range(N), y] / weighted.sum(dim=1))
    strategy = Strategy.logit_adjustment(COUNTS)
    torch.testing.assert_close(parametric_cross_entropy(logits, y, l=torch.from_numpy(strategy.l)), expected)


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_gradients_in_everything(sample, parts, smooth, soft):
    logits, y = sample
    target = torch.softmax(logits.flip(0), dim=1) if soft else y
    epsilon = torch.tensor([0.05, 0.1, 0.2, 0.4], dtype=torch.float64)
    inputs = tuple(t.clone().requires_grad_() for t in (logits, *parts, *([epsilon] if smooth else [])))

    def loss(o, *strategy):
        return parametric_cross_entropy(o, target, *strategy)

    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
def test_half_precision_is_stable(dtype, weighted):
    logits = torch.tensor([[60_000.0, -60_000.0], [0.0, 30_000.0]], dtype=dtype, requires_grad=True)
    omega = torch.tensor([1.0, 3.0]) if weighted else None
    losses = parametric_cross_entropy(
        logits, torch.tensor([0, 1]), omega, torch.tensor([0.0, -7.0]), torch.tensor([1.0, 0.5])
    )
    assert losses.dtype == torch.float32
    assert torch.isfinite(losses).all()
    losses.sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_the_module_follows_its_strategy():
    loss = ParametricCrossEntropy(Strategy.vs(COUNTS, 1.0, 0.1))
    assert set(loss.state_dict()) == {"l", "delta"}  # ω and ε are neutral, and cost nothing
    assert "l and delta" in repr(loss)
    with pytest.raises(InputError, match="reduction is 'median'"):
        ParametricCrossEntropy(Strategy.of(3), reduction="median")

"""The outer objective on batches against the objective on all of validation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from capri._checks import InputError
from capri.bilevel.outer_objective import OuterObjective, class_sums, sample_losses
from capri.errors import AbsentClassWarning

K, COUNTS = 6, np.array([40, 21, 12, 6, 3, 2])
OBJECTIVES = [
    "plain",
    "balanced",
    "weighted",
    "sdev",
    "quantile:0.3",
    "cvar:0.5",
    "mix:0.4",
    "worst",
    "0.5*balanced+0.5*sdev",
]


def problem() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    y = torch.from_numpy(np.repeat(np.arange(K), COUNTS))[torch.randperm(int(COUNTS.sum()))]
    return nn.Linear(4, K).double(), torch.randn(len(y), 4, dtype=torch.float64), y


def make(objective: str, **settings) -> OuterObjective:
    return OuterObjective(objective, COUNTS, weights=np.arange(1, K + 1), **settings)


@pytest.mark.parametrize("class_loss", ["ce", "error"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_epoch_of_batches_is_the_full_gradient(objective, class_loss):
    model, x, y = problem()
    outer = make(objective, class_loss=class_loss)
    logits = model(x)
    outer.anchor(class_sums(logits, y, class_loss, K))

    # The objective on all of validation, differentiated by finite differences of the core's own value.
    weight = model.weight.detach().clone()
    direction = torch.randn_like(weight)

    def value(t: float) -> float:
        losses = sample_losses(x @ (weight + t * direction).T + model.bias.detach(), y, class_loss)
        errors = np.array([float(losses[y == k].mean()) for k in range(K)])
        return outer.evaluator.smooth(errors)[0]

    full = (value(1e-5) - value(-1e-5)) / 2e-5
    parts = []
    for batch in torch.arange(len(y)).split(10):
        (slope,) = torch.autograd.grad(outer.surrogate(model(x[batch]), y[batch]), model.weight)
        parts.append(len(batch) / len(y) * float((slope * direction).sum()))
    assert sum(parts) == pytest.approx(full, rel=1e-5)
    assert np.std(parts) > 1e-3 * abs(full), "batches differ; their mean is what counts"


@pytest.mark.parametrize("class_loss", ["ce", "error"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_all_at_once_has_the_value_and_the_gradient_of_the_batches(objective, class_loss):
    model, x, y = problem()
    outer = make(objective, class_loss=class_loss)
    logits = model(x)
    outer.anchor(class_sums(logits, y, class_loss, K))
    whole = outer.on_all(logits, y)
    assert float(whole.detach()) == pytest.approx(outer.value(), rel=1e-6)  # anchors are measured in single precision
    slopes = [
        torch.autograd.grad(value, model.weight, retain_graph=True) for value in (whole, outer.surrogate(logits, y))
    ]
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match="hold 39 samples of class 0, the objective counts 40"):
        outer.on_all(logits[y.argmin() != torch.arange(len(y))], y[y.argmin() != torch.arange(len(y))])


def test_balanced_is_the_balanced_cross_entropy():
    model, x, y = problem()
    outer = make("balanced")
    assert outer.class_loss == "ce"
    weights = torch.from_numpy(1 / COUNTS)
    expected = F.cross_entropy(model(x), y, weight=weights)  # torch divides by Σω: the balanced cross-entropy
    torch.testing.assert_close(outer.surrogate(model(x), y), expected)


def test_running_errors_follow():
    model, x, y = problem()
    outer = make("cvar:0.5")
    logits = model(x).detach()
    exact = torch.stack([F.cross_entropy(logits[y == k], y[y == k]) for k in range(K)])
    outer.update(logits, y)  # a batch that holds everything is a pass
    torch.testing.assert_close(outer.errors, exact)
    outer.anchor(torch.zeros(K))
    for _ in range(30):
        for batch in torch.randperm(len(y)).split(10):
            outer.update(logits[batch], y[batch])
    torch.testing.assert_close(outer.errors, exact, rtol=0.25, atol=0)
    assert outer.value() == pytest.approx(float(exact.sort(descending=True).values[:3].mean()), rel=0.2)
    outer.update(logits[y == 5], y[y == 5])
    before = outer.errors.clone()
    outer.update(logits[y == 0][:10] * 0, y[y == 0][:10])
    assert outer.errors[0] == pytest.approx(0.75 * before[0] + 0.25 * np.log(K))
    torch.testing.assert_close(outer.errors[1:], before[1:])


# -- drawing -----------------------------------------------------------------------------------------------------------


def drawn(objective: str) -> tuple[OuterObjective, torch.Tensor, torch.Tensor, torch.Tensor]:
    """An objective with its class errors, the classes of samples, q_i, and the gradient of each sample alone (N, …)."""
    model, x, y = problem()
    outer = make(objective)
    logits = model(x)
    outer.anchor(class_sums(logits, y, outer.class_loss, K))
    singles = [outer.surrogate(logits[i : i + 1], y[i : i + 1]) for i in range(len(y))]
    slopes = [torch.autograd.grad(one, model.weight, retain_graph=True)[0].flatten() for one in singles]
    return outer, y, outer.draw_probabilities()[y], torch.stack(slopes)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_importance_draws_are_unbiased_and_less_noisy(objective):
    """Exact expectations over one draw: Σ q_i (weight_i · gradient_i) is the mean over all samples."""
    _, y, q, slopes = drawn(objective)
    assert float(q.sum()) == pytest.approx(1)
    weights = 1 / (len(y) * q)
    full = slopes.mean(dim=0)
    torch.testing.assert_close(q @ (weights[:, None] * slopes), full)

    def variance(p: torch.Tensor, w: torch.Tensor) -> float:
        return float(p @ (w[:, None] * slopes - full).square().sum(dim=1))

    uniform = variance(torch.full_like(q, 1 / len(y)), torch.ones_like(q))
    if objective == "plain":  # all samples weigh alike there already
        assert variance(q, weights) == pytest.approx(uniform)
    else:
        assert variance(q, weights) < 0.8 * uniform


def test_importance_gives_samples_of_a_balanced_objective_one_weight():
    outer, y, q, _ = drawn("balanced")
    torch.testing.assert_close(outer.coefficients()[y] / (len(y) * q), torch.ones(len(y), dtype=torch.float64))
    torch.testing.assert_close(outer.draw_probabilities() * outer.counts, torch.full((K,), 1 / K, dtype=torch.float64))
    logits = torch.randn(len(y), K, dtype=torch.float64)
    weighted = outer.surrogate(logits, y, 1 / (len(y) * q))
    torch.testing.assert_close(weighted, F.cross_entropy(logits, y))


def test_classes_that_the_objective_does_not_look_at_are_drawn_a_little():
    outer, _, _, _ = drawn("worst")
    shares = outer.draw_probabilities() * outer.counts
    assert sorted(shares.tolist())[-1] > 0.9
    assert float(shares.min()) == pytest.approx(0.1 / K / (1 + 0.1 * (K - 1) / K))


def test_a_batch_that_was_replaced_may_hold_a_sample_twice():
    model, x, y = problem()
    outer = make("balanced")
    logits = model(x).detach()
    two = (y == 5).nonzero()[:1, 0].repeat(2)  # the same of two samples
    outer.update(logits[two], y[two], replaced=True)
    own = float(F.cross_entropy(logits[two], y[two]))
    assert float(outer.errors[5]) == pytest.approx(0.75 * own)
    outer.update(logits[two], y[two])
    assert float(outer.errors[5]) == pytest.approx(own)


def test_bounded_errors_where_a_spread_asks_for_them():
    names = ("balanced", "cvar:0.2", "min_recall", "sdev", "mix:0.5", "gmean")
    assert [make(o).class_loss for o in names] == ["ce"] * 3 + ["error"] * 3


def test_a_class_without_validation_samples():
    counts = COUNTS.copy()
    counts[4] = 0
    with pytest.raises(InputError, match="class 'rare' \\(4\\) has no sample here"):
        OuterObjective("balanced", counts, class_names=["a", "b", "c", "d", "rare", "f"])
    with pytest.warns(AbsentClassWarning, match="left out of the objective"):
        outer = OuterObjective("balanced", counts, absent="ignore")
    a = outer.coefficients()
    assert a[4] == 0
    assert a[0] == pytest.approx(counts.sum() / 5 / 40)


def test_objectives_without_a_gradient_are_refused():
    with pytest.raises(InputError, match="objective 'macro_f1' is made of confusions"):
        make("macro_f1")
    with pytest.raises(InputError, match="class_loss is 'hinge'"):
        make("balanced", class_loss="hinge")

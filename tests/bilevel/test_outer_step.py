"""The outer step: where it moves W, what it refuses, how it resumes."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from capri import Attributes, InputError
from capri.attributes import frequency
from capri.bilevel import (
    Dictionaries,
    DivergedError,
    InverseHessianSettings,
    MovingLoss,
    OuterObjective,
    OuterStep,
    ParametricCrossEntropy,
    StrategyMap,
    measure_classes,
    parametric_cross_entropy,
)

K, D, VAL = 4, 3, np.array([20, 12, 8, 4])
DOUBLE = {"dtype": torch.float64}
ALL = ["l", "delta", "omega", "smoothing"]


def samples(counts: np.ndarray, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.from_numpy(np.repeat(np.arange(K), counts))[torch.randperm(int(counts.sum()), generator=generator)]
    centres = torch.randn(K, D, generator=torch.Generator().manual_seed(9), **DOUBLE)
    return centres[y] + torch.randn(len(y), D, generator=generator, **DOUBLE), y


TRAIN, VALIDATION = samples(np.array([40, 20, 10, 5]), 0), samples(VAL, 1)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, K)).double()


def strategy_map(parts: list[str] = ("l", "delta")) -> StrategyMap:
    attributes = Attributes.of(freq=frequency(np.bincount(TRAIN[1])))
    return StrategyMap(Dictionaries.of(attributes, K), parts, delta_form="sigmoid", **DOUBLE)


def outer_step(parts: list[str] = ("l", "delta"), objective: str = "balanced", **settings) -> OuterStep:
    outer = OuterStep(network(), strategy_map(parts), OuterObjective(objective, VAL), **settings)
    outer.anchor([VALIDATION])
    return outer


def sgd(outer: OuterStep, lr: float = 0.1) -> OuterStep:
    outer.optimizer = torch.optim.SGD(outer.map.parameters(), lr)
    return outer


@pytest.mark.parametrize("parts", [["l", "delta"], ["l", "delta", "omega"], ALL], ids=len)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_step_goes_down_the_double_backward(parts, rate):
    """H = I: dL_val/dW = −∂/∂W [∇_θ L_train · ∇_θ L_val], here by differentiating a gradient through the network."""
    outer = sgd(outer_step(parts))
    model, made = outer.model, outer.map
    theta, (x, y) = tuple(model.parameters()), TRAIN
    before = [p.detach().clone() for p in made.parameters()]
    balanced = F.cross_entropy(model(VALIDATION[0]), VALIDATION[1], weight=torch.from_numpy(1 / VAL))
    g = torch.autograd.grad(balanced, theta)
    loss = parametric_cross_entropy(model(x), y, *made()).mean()
    inner = torch.autograd.grad(loss, theta, create_graph=True)
    slopes = torch.autograd.grad(sum((a * b).sum() for a, b in zip(inner, g, strict=True)), made.parameters())

    outer.step(TRAIN, VALIDATION, rate=rate)
    for now, w, slope in zip(made.parameters(), before, slopes, strict=True):
        torch.testing.assert_close(now.detach(), w + 0.1 * rate * slope, rtol=1e-8, atol=1e-12)
        assert slope.abs().max() > 1e-6
    assert outer.optimizer.param_groups[0]["lr"] == 0.1, "the factor is of one step"
    assert all(p.grad is None for p in theta), "the network's gradients are the inner optimizer's"


def test_the_prior_pulls_w_back_to_its_start():
    bare, held = sgd(outer_step(ALL)), sgd(outer_step(ALL, prior=0.3))
    start = [p.detach().clone() for p in held.map.parameters()]
    for outer in (bare, held):
        outer.step(TRAIN, VALIDATION)
    for a, b in zip(bare.map.parameters(), held.map.parameters(), strict=True):
        assert torch.equal(a, b), "at the start there is nothing to pull"
    away = [p.detach().clone() for p in held.map.parameters()]
    for outer in (bare, held):
        outer.step(TRAIN, VALIDATION)
    for a, b, w, first in zip(bare.map.parameters(), held.map.parameters(), away, start, strict=True):
        torch.testing.assert_close(b.detach(), a.detach() - 0.1 * 2 * 0.3 * (w - first), rtol=1e-9, atol=1e-12)


def test_trust_shortens_the_optimizer_s_step_and_follows_what_is_clear():
    plain, trusting = outer_step(), outer_step(trust=True)
    w = parameters_to_vector(trusting.map.parameters()).detach().clone()
    trusting.step(TRAIN, VALIDATION)
    assert torch.equal(parameters_to_vector(trusting.map.parameters()), w), "the first step only measures"
    plain.step(TRAIN, VALIDATION)
    for _ in range(5):  # the same batches again: gradients agree
        before = [parameters_to_vector(o.map.parameters()).detach().clone() for o in (plain, trusting)]
        for outer in (plain, trusting):
            outer.step(TRAIN, VALIDATION)
        moves = [
            (parameters_to_vector(o.map.parameters()).detach() - b).abs()
            for o, b in zip((plain, trusting), before, strict=True)
        ]
    torch.testing.assert_close(moves[1], moves[0], rtol=0.1, atol=0)


def test_importance_weighs_the_validation_batch():
    """Two samples of class 3 of one batch, once with weight ½ each and once one of them alone, make the same step."""
    (x, y), outer, twin = VALIDATION, sgd(outer_step()), sgd(outer_step())
    one = (y == 3).nonzero()[:1, 0]
    two = one.repeat(2)
    outer.step(TRAIN, (x[one], y[one]), importance=torch.ones(1))
    twin.step(TRAIN, (x[two], y[two]), importance=torch.tensor([0.5, 1.5]))
    for a, b in zip(outer.map.parameters(), twin.map.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_loss_is_at_the_strategy_as_it_stands():
    outer = outer_step(ALL)
    x, y = TRAIN
    for _ in range(3):
        outer.step(TRAIN, VALIDATION)
    expected = parametric_cross_entropy(outer.model(x), y, *outer.map()).mean()
    torch.testing.assert_close(outer.loss(outer.model(x), y), expected)
    alone = ParametricCrossEntropy(outer.strategy())
    torch.testing.assert_close(alone(outer.model(x), y), expected, rtol=1e-6, atol=0)
    assert np.ptp(outer.strategy().smoothing) > 0


def test_smoothing_that_does_not_move_costs_nothing():
    with_it, without = (MovingLoss(strategy_map(parts)()) for parts in (ALL, ["l", "delta"]))
    assert with_it.smooths
    assert not without.smooths


def test_the_objective_falls_in_a_plain_loop():
    outer = outer_step(objective="cvar:0.5", lr=0.05, inverse_hessian=InverseHessianSettings("ggn-cg", iterations=5))
    inner = torch.optim.SGD(outer.model.parameters(), lr=0.5)
    start = outer.objective.value()
    for _ in range(60):
        value = outer.step(TRAIN, VALIDATION)
        inner.zero_grad()
        outer.loss(outer.model(TRAIN[0]), TRAIN[1]).backward()
        inner.step()
    assert value == outer.objective.value()
    still = outer_step(objective="cvar:0.5")
    inner = torch.optim.SGD(still.model.parameters(), lr=0.5)
    for _ in range(60):
        inner.zero_grad()
        still.loss(still.model(TRAIN[0]), TRAIN[1]).backward()
        inner.step()
    still.anchor([VALIDATION])
    outer.anchor([VALIDATION])
    assert outer.objective.value() < still.objective.value() < start


# -- measuring ---------------------------------------------------------------------------------------------------------


def test_classes_are_measured_in_eval_mode_and_the_mode_is_kept():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, K)).double()
    state = copy.deepcopy(model.state_dict())
    objective, (x, y) = OuterObjective("balanced", VAL), VALIDATION
    errors = measure_classes(model, objective, zip(x.split(7), y.split(7), strict=True))
    assert model.training
    assert all(torch.equal(v, state[name]) for name, v in model.state_dict().items())
    model.eval()
    wrong = (model(x).argmax(dim=1) != y).double()
    np.testing.assert_allclose(errors, [wrong[y == k].mean() for k in range(K)])
    ce = F.cross_entropy(model(x).float(), y, reduction="none").double()
    torch.testing.assert_close(objective.errors, torch.stack([ce[y == k].mean() for k in range(K)]).detach())


def test_all_of_validation_is_measured():
    x, y = VALIDATION
    with pytest.raises(InputError, match=r"batches hold 0 samples of class 3, the objective counts 4; .*no drop_last"):
        measure_classes(network(), OuterObjective("balanced", VAL), [(x[y < 3], y[y < 3])])


def test_a_step_needs_class_errors():
    outer = OuterStep(network(), strategy_map(), OuterObjective("worst", VAL))
    with pytest.raises(InputError, match=r"objective has no class errors yet; call anchor\(batches\)"):
        outer.step(TRAIN, VALIDATION)
    outer.anchor([VALIDATION])
    outer.step(TRAIN, VALIDATION)
    anchored_before = OuterStep(network(), strategy_map(), outer.objective)
    anchored_before.step(TRAIN, VALIDATION)


# -- how it fails, and how it goes on ----------------------------------------------------------------------------------


def test_a_strategy_that_ran_away_leaves_the_loss_where_it_was():
    outer = sgd(outer_step(limit=2.0), lr=1000)
    before = outer.loss.l.clone()
    with pytest.raises(
        DivergedError, match=r"diverged: its offsets span .* \(limit is 2\)\. Lower lr, step less often"
    ):
        outer.step(TRAIN, VALIDATION)
    assert torch.equal(outer.loss.l, before)
    outer = sgd(outer_step(), lr=float("inf"))
    with pytest.raises(DivergedError, match=r"the strategy diverged: it is not finite \(limit is 30\)"):
        outer.step(TRAIN, VALIDATION)


@pytest.mark.parametrize("settings", [{}, {"prior": 0.1, "trust": True}], ids=["plain", "prior and trust"])
@pytest.mark.parametrize("parts", [["l", "delta"], ALL], ids=len)
def test_resumed_is_bit_identical(parts, settings):
    def go_on(outer: OuterStep, inner: torch.optim.Optimizer, steps: range) -> None:
        for i in steps:
            x, y = samples(VAL, 10 + i)
            outer.step(TRAIN, (x[:15], y[:15]), rate=1 / (1 + i))
            inner.zero_grad()
            outer.loss(outer.model(TRAIN[0]), TRAIN[1]).backward()
            inner.step()

    whole, parted = outer_step(parts, "cvar:0.5", **settings), outer_step(parts, "cvar:0.5", **settings)
    go_on(whole, torch.optim.SGD(whole.model.parameters(), 0.1), range(8))
    go_on(parted, torch.optim.SGD(parted.model.parameters(), 0.1), range(4))
    kept = io.BytesIO()
    torch.save({"model": parted.model.state_dict(), "outer": parted.state_dict()}, kept)
    kept.seek(0)
    state = torch.load(kept, weights_only=True)

    model = network(seed=1)
    model.load_state_dict(state["model"])
    made = strategy_map(parts)
    for p in made.parameters():
        nn.init.zeros_(p)  # its start comes with the state
    resumed = OuterStep(model, made, OuterObjective("cvar:0.5", VAL), **settings)
    resumed.load_state_dict(state["outer"])
    go_on(resumed, torch.optim.SGD(model.parameters(), 0.1), range(4, 8))
    for name, value in whole.map.state_dict().items():
        assert torch.equal(value, resumed.map.state_dict()[name]), name
    assert all(torch.equal(a, b) for a, b in zip(whole.loss.buffers(), resumed.loss.buffers(), strict=True))
    assert torch.equal(whole.objective.errors, resumed.objective.errors)
    assert not torch.equal(whole.map.w_l, parted.map.w_l), "there was something to go on with"

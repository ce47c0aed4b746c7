"""Heads layer by layer: the numbers are those of autograd through any network."""

from functools import partial

import pytest
import torch
from torch import nn

from capri.bilevel import side_by_side
from capri.bilevel.layers import LinearLayers, linear_layers
from capri.bilevel.side_by_side import Recipe, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.models import LinearHead, MLPHead, ResNet32

N, D, K, P = 90, 6, 5, 4
HEADS = {"linear": lambda: LinearHead(D, K), "mlp": lambda: MLPHead(D, K, (8,)), "deep": lambda: MLPHead(D, K, (8, 7))}


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(N) % K
    return torch.randn(N, D, generator=generator).double() + y[:, None], y


@pytest.fixture
def strategies():
    generator = torch.Generator().manual_seed(1)
    ones = torch.ones(P, K).double()
    l = torch.randn(P, K, generator=generator).double()
    return StrategyTensors(1 + 0.1 * l, l, ones + 0.1 * torch.arange(P)[:, None], 0.05 * ones)


def recipe(**settings):
    return Recipe(3, 16, partial(torch.optim.AdamW, lr=0.01), lambda step, steps, per_epoch: 1.0, **settings)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("left_out", [[0, 1, 2, 0], [1, 1, 1, 1]], ids=["several folds", "one fold"])
def test_training_is_that_of_autograd(data, strategies, kind, left_out, monkeypatch):
    torch.manual_seed(0)
    model, folds = HEADS[kind]().double(), torch.arange(N) // 7 % 3
    arguments = (model, strategies, *data, recipe())
    assert linear_layers(model) is not None
    ours = train_side_by_side(*arguments, left_out=torch.tensor(left_out), folds=folds)
    monkeypatch.setattr(side_by_side.LinearLayers, "of", lambda *_, **__: None)
    theirs = train_side_by_side(*arguments, left_out=torch.tensor(left_out), folds=folds)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-10, atol=1e-12)


def test_a_batch_that_is_left_out_altogether_moves_nothing(data, strategies):
    """AdamW's decay is 0 here, and Adam's moments are 0 before the first step."""
    x, y = data[0][:16], data[1][:16]
    still = Recipe(1, 16, partial(torch.optim.Adam, lr=0.01), lambda step, steps, per_epoch: 1.0)
    model = MLPHead(D, K, (8,)).double()
    nobody = torch.zeros(16, dtype=torch.long)
    found = train_side_by_side(model, strategies, x, y, still, left_out=torch.zeros(P), folds=nobody)
    for name, p in model.named_parameters():
        assert torch.equal(found[name], p.detach().expand(P, *p.shape))


def test_bf16_is_near(data, strategies):
    model = MLPHead(D, K, (8,))
    single = StrategyTensors(*(part.float() for part in strategies))
    x, y = data[0].float(), data[1]
    full, half = (train_side_by_side(model, single, x, y, recipe(bf16=bf16)) for bf16 in (False, True))
    assert not torch.equal(full["fc.weight"], half["fc.weight"])
    torch.testing.assert_close(full["fc.weight"], half["fc.weight"], rtol=0, atol=0.03)


def test_gradients_of_one_batch(data):
    """Of the sum of all logits times numbers, by autograd through the layers themselves."""
    torch.manual_seed(0)
    model = MLPHead(D, K, (8,)).double()
    parameters = {name: p.detach()[None].clone().requires_grad_() for name, p in model.named_parameters()}
    layers, slope = LinearLayers.of(model, parameters), torch.randn(1, N, K).double()
    logits = model(data[0])
    torch.testing.assert_close(layers.forward(data[0])[0], logits)
    logits.backward(slope[0])
    layers.backward(slope)
    for name, p in model.named_parameters():
        torch.testing.assert_close(parameters[name].grad[0], p.grad)


@pytest.mark.parametrize("model", [MLPHead(D, K, (8,), 0.5), ResNet32(K), nn.Linear(D, K)], ids=["drops", "net", "own"])
def test_other_networks_are_left_to_autograd(model):
    assert linear_layers(model) is None

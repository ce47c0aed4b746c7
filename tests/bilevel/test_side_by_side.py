"""Copies that are trained side by side are the networks that would be trained one by one."""

from functools import partial

import pytest
import torch

from capri import InputError
from capri.bilevel.losses import parametric_cross_entropy
from capri.bilevel.side_by_side import Recipe, logits_side_by_side, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.models import MLPHead, ResNet32

N, D, K, P = 60, 5, 4, 3


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(N) % K
    return torch.randn(N, D, generator=generator) + y[:, None], y


@pytest.fixture
def strategies():
    generator = torch.Generator().manual_seed(1)
    ones = torch.ones(P, K)
    return StrategyTensors(ones, torch.randn(P, K, generator=generator), ones + torch.arange(P)[:, None], 0.1 * ones)


ADAMW = partial(torch.optim.AdamW, lr=0.01)


def recipe(optimizer=ADAMW, epochs=3):
    return Recipe(epochs, 16, optimizer, lambda step, steps, per_epoch: 1 - step / steps)


def head():
    torch.manual_seed(0)
    return MLPHead(D, K, (8,)).double()


@pytest.mark.parametrize(
    "optimizer",
    [partial(torch.optim.AdamW, lr=0.01), partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True)],
    ids=["adamw", "sgd"],
)
def test_each_copy_is_the_network_trained_alone(data, strategies, optimizer):
    x, y = data[0].double(), data[1]
    strategies = StrategyTensors(*(t.double() for t in strategies))
    together = train_side_by_side(head(), strategies, x, y, recipe(optimizer))
    for copy in range(P):
        alone = head()
        made, how = optimizer(list(alone.parameters())), recipe(optimizer)
        highest = made.param_groups[0]["lr"]
        for batch, rate in how.steps(N):
            made.param_groups[0]["lr"] = highest * rate
            made.zero_grad()
            own = (t[copy] for t in strategies)
            parametric_cross_entropy(alone(x[batch]), y[batch], *own).mean().backward()
            made.step()
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(together[name][copy], parameter.detach(), rtol=1e-9, atol=1e-12)


def test_a_copy_does_not_see_the_fold_that_it_leaves_out(data, strategies):
    x, y = data
    folds, left_out = torch.arange(N) // 4 % 3, torch.arange(P)
    before = train_side_by_side(head().float(), strategies, x, y, recipe(), folds=folds, left_out=left_out)
    changed = torch.where((folds == 1)[:, None], 100 * x, x)
    after = train_side_by_side(head().float(), strategies, changed, y, recipe(), folds=folds, left_out=left_out)
    same = [torch.equal(before["fc.weight"][copy], after["fc.weight"][copy]) for copy in range(P)]
    assert same == [False, True, False]


def test_logits_are_those_of_the_copies(data, strategies):
    x, y = data
    model = head().float()
    start = model.fc.weight.detach().clone()
    copies = train_side_by_side(model, strategies, x, y, recipe())
    logits = logits_side_by_side(model, copies, x)
    assert logits.shape == (P, N, K)
    assert torch.equal(model.fc.weight, start)
    model.load_state_dict({name: tensor[1] for name, tensor in copies.items()})
    torch.testing.assert_close(logits[1], model(x))


def test_progress_ends_at_one_and_the_global_random_state_is_left_alone(data, strategies):
    told = []
    before = torch.random.get_rng_state()
    train_side_by_side(head().float(), strategies, *data, recipe(), progress=told.append)
    assert told[-1] == 1
    assert told == sorted(told)
    assert torch.equal(before, torch.random.get_rng_state())


def test_networks_with_batch_normalisation_are_refused(data, strategies):
    with pytest.raises(InputError, match="batch normalisation"):
        train_side_by_side(ResNet32(K), strategies, *data, recipe())

"""Steps as pure functions are the steps of torch.optim."""

from __future__ import annotations

import pytest
import torch

from capri import InputError
from capri.bilevel.updates import update_rule

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.02}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.02, "nesterov": True}),
    ("Adam", {"lr": 0.03, "weight_decay": 0.02}),
    ("AdamW", {"lr": 0.03, "weight_decay": 0.0}),
    ("AdamW", {"lr": 0.03, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}),
]


def start() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in (("a", 3), ("b", 2))}


def gradients(parameters: dict[str, torch.Tensor], t: int) -> dict[str, torch.Tensor]:
    """Those of some loss, which changes over time; none for the last number of b."""
    return {"a": torch.sin(parameters["a"] + t), "b": torch.tensor([1.0, 0.0], dtype=torch.float64) * parameters["b"]}


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_steps_are_those_of_torch(name, settings):
    ours, theirs = start(), {name: p.clone().requires_grad_() for name, p in start().items()}
    optimizer = getattr(torch.optim, name)(list(theirs.values()), **settings)
    rule = update_rule(optimizer)
    moments = rule.start(ours)
    for t in range(1, 8):
        lr = rule.lr / t
        slopes = gradients(ours, t)
        for key, p in theirs.items():
            p.grad = slopes[key].clone()
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        ours, moments = rule(ours, slopes, moments, lr, t)
        for key, p in theirs.items():
            torch.testing.assert_close(ours[key], p.detach(), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_steps_can_be_differentiated_where_a_number_has_no_gradient(name, settings):
    rule = update_rule(getattr(torch.optim, name)([torch.zeros(1, requires_grad=True)], **settings))

    def end(scale: torch.Tensor) -> torch.Tensor:
        parameters = start()
        moments = rule.start(parameters)
        for t in range(1, 4):
            slopes = {key: scale * g for key, g in gradients(parameters, t).items()}
            parameters, moments = rule(parameters, slopes, moments, rule.lr, t)
        return parameters["a"].sum() + parameters["b"].sum()

    assert torch.autograd.gradcheck(end, torch.tensor(1.3, dtype=torch.float64, requires_grad=True))


def test_other_optimizers_are_refused():
    weight = torch.zeros(1, requires_grad=True)
    with pytest.raises(InputError, match="the optimizer is RMSprop; steps of SGD, Adam and AdamW"):
        update_rule(torch.optim.RMSprop([weight]))
    with pytest.raises(InputError, match="the optimizer has amsgrad=True, which is not differentiated"):
        update_rule(torch.optim.AdamW([weight], amsgrad=True))
    with pytest.raises(InputError, match="several groups"):
        update_rule(torch.optim.SGD([{"params": [weight]}, {"params": [torch.zeros(2, requires_grad=True)]}], lr=0.1))

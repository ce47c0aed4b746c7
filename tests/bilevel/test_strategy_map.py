"""The torch map from W to the strategy is the core's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from capri import Strategy
from capri._checks import InputError
from capri.attributes import Attributes
from capri.bilevel.strategy_map import Dictionaries, StrategyMap

PI = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
TABLE = Attributes.of(freq=PI, diff=[0.1, 0.3, 0.2, 0.6, 0.5])


def random_map(attributes, delta_form, seed=0) -> StrategyMap:
    parts = ["l", "delta", "omega", "smoothing"]
    made = StrategyMap(Dictionaries.of(attributes, 5), parts, delta_form=delta_form, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return made


@pytest.mark.parametrize("attributes", [TABLE, None], ids=["cap", "plain"])
@pytest.mark.parametrize("delta_form", ["normalized", "sigmoid", "exp"])
def test_equals_from_weights(attributes, delta_form):
    made = random_map(attributes, delta_form)
    w, (bare, lifted) = made.weights(), made.dictionaries
    tensors = made()
    offsets = Strategy.from_weights(bare, w_l=w["l"])
    rest = Strategy.from_weights(
        lifted, w_delta=w["delta"], w_omega=w["omega"], w_smoothing=w["smoothing"], delta_form=delta_form
    )
    found = made.strategy()
    for part, core in (("l", offsets), ("delta", rest), ("omega", rest), ("smoothing", rest)):
        expected = getattr(core, part)
        np.testing.assert_allclose(getattr(tensors, part).detach().numpy(), expected, rtol=1e-12)
        np.testing.assert_array_equal(getattr(found, part), expected)
        assert np.ptp(expected) > 0.01
    assert tensors.omega.mean().item() == pytest.approx(1)
    assert 0 < tensors.smoothing.min() < tensors.smoothing.max() < 0.5


def test_plain_is_autobalance():
    """Identity attributes: W is l and the logit of Δ; dy starts at 1, so Δ at sigmoid(1) = 0.731."""
    plain = StrategyMap(Dictionaries.of(None, 5), delta_form="sigmoid", start_l=np.log(PI))
    ly, dy = plain.w_l.detach(), plain.w_delta.detach()
    assert dy.tolist() == pytest.approx([1] * 5)
    with torch.no_grad():
        plain.w_delta += torch.randn(5)
    o = torch.randn(7, 5)
    tensors = plain()
    torch.testing.assert_close(o * tensors.delta + tensors.l, o * torch.sigmoid(dy) + ly)  # AutoBalance's logits


@pytest.mark.parametrize("delta_form", ["normalized", "sigmoid", "exp"])
@pytest.mark.parametrize("attributes", [TABLE, None], ids=["cap", "plain"])
def test_the_start(attributes, delta_form):
    made = StrategyMap(
        Dictionaries.of(attributes, 5), ["l", "delta", "omega"], delta_form=delta_form, start_l=np.log(PI)
    )
    tensors = made()
    expected = 1.0 if delta_form == "exp" else 1 / (1 + np.exp(-1))
    assert tensors.delta.tolist() == pytest.approx([expected] * 5)
    assert tensors.omega.tolist() == pytest.approx([1] * 5)
    np.testing.assert_allclose(tensors.l.detach(), np.log(PI) - np.log(PI).mean(), atol=1e-5)


def test_parts_that_do_not_move_are_neutral():
    made = StrategyMap(Dictionaries.of(TABLE, 5), ["l"])
    assert set(made.weights()) == {"l"}
    tensors = made()
    assert tensors.delta.tolist() == [1] * 5
    assert tensors.omega.tolist() == [1] * 5
    assert tensors.smoothing.tolist() == [0] * 5
    assert tensors.l.tolist() == [0] * 5


def test_gradients_reach_w():
    made = random_map(TABLE, "normalized")
    inputs = tuple(made.parameters())

    def function(*w):
        return tuple(torch.func.functional_call(made, dict(zip(dict(made.named_parameters()), w, strict=True)), ()))

    assert torch.autograd.gradcheck(function, inputs)


def test_wrong_names():
    with pytest.raises(InputError, match="parts names 'gamma'; give some of l, delta, omega, smoothing"):
        StrategyMap(Dictionaries.of(TABLE, 5), ["gamma"])
    with pytest.raises(InputError, match="parts names nothing"):
        StrategyMap(Dictionaries.of(TABLE, 5), [])
    with pytest.raises(InputError, match="delta_form is 'linear'"):
        StrategyMap(Dictionaries.of(TABLE, 5), delta_form="linear")

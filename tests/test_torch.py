"""The adjustment as a module of torch decides as the policy does."""

import numpy as np
import pytest
import torch

from capri import InputError, Policy, Strategy


def sample(kind, rng, k=7, rows=10_000):
    l = np.concatenate([[0.25, 0.25], rng.normal(0, 1, k - 2)])
    policy = Policy(Strategy.of(k, l=l, delta=np.linspace(1, 1.5, k)), "balanced", tuple("abcdefg"), scores=kind)
    scores = rng.normal(0, 3, (rows, k)).astype(np.float32)
    scores[::10, :2] = 3 * scores[::10].max(axis=1, keepdims=True)
    return policy, torch.softmax(torch.tensor(scores), dim=1) if kind == "proba" else torch.tensor(scores)


@pytest.mark.parametrize("kind", ["logits", "proba"])
def test_decisions(kind, rng):
    policy, scores = sample(kind, rng)
    adjusted, expected = policy.as_module()(scores), policy.apply(scores.numpy())
    assert adjusted.dtype == torch.float64
    decided = policy.labels[adjusted.argmax(1)]
    if kind == "logits":
        np.testing.assert_array_equal(adjusted.numpy(), expected)
    np.testing.assert_allclose(adjusted.numpy(), expected, rtol=1e-6, atol=1e-6)
    assert (decided != policy.predict(scores.numpy())).sum() <= 1


def test_a_probability_of_zero_is_the_floor():
    policy = Policy(Strategy.of(2), "plain", (0, 1), scores="proba", floor=1e-3)
    found = policy.as_module()(torch.tensor([[0.0, 1.0]], dtype=torch.float16))
    np.testing.assert_allclose(found, [[np.log(1e-3), 0]], rtol=1e-6)


def test_it_goes_with_the_network(rng):
    policy, scores = sample("logits", rng, rows=20)
    net = torch.nn.Sequential(torch.nn.Linear(7, 7), policy.as_module())
    assert set(net.state_dict()) == {"0.weight", "0.bias", "1.delta", "1.l"}
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]
    assert net.float()(scores).dtype == torch.float32
    net(scores).sum().backward()
    assert net[0].weight.grad.abs().sum() > 0


def test_further_dimensions_stay(rng):
    policy, scores = sample("logits", rng, rows=20)
    np.testing.assert_array_equal(
        policy.as_module()(scores.reshape(4, 5, 7)).reshape(20, 7), policy.as_module()(scores)
    )


def test_what_is_traced_decides_alike(rng):
    policy, scores = sample("logits", rng, rows=20)
    exported = torch.export.export(policy.as_module(), (scores,)).module()
    np.testing.assert_array_equal(exported(scores), policy.as_module()(scores))


def test_a_loss_is_refused():
    with pytest.raises(InputError, match="this policy is a loss"):
        Policy(Strategy.of(2), "plain", (0, 1), side="loss").as_module()


def test_other_classes_are_refused():
    with pytest.raises(InputError, match="scores have 3 columns, the policy 2 classes"):
        Policy(Strategy.of(2), "plain", (0, 1)).as_module()(torch.zeros(4, 3))

"""A policy folded into the last layer decides what policy.apply decides."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from capri import InputError, LogitAdjuster, Policy, Strategy, fold


@pytest.fixture
def policy():
    strategy = Strategy.of(3, l=[0.5, -1.0, 0.25], delta=[1.0, 2.0, 0.5])
    return Policy(strategy, objective="balanced", classes=("a", "b", "c"))


def test_a_torch_layer_changes_in_place(policy, rng):
    layer = torch.nn.Linear(7, 3)
    x = torch.from_numpy(rng.normal(size=(20, 7)).astype(np.float32))
    expected = policy.apply(layer(x).detach().numpy())
    assert fold(layer, policy) is layer
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-5)
    assert layer.weight.requires_grad


def test_arrays_come_back_new(policy, rng):
    weight, bias, x = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(10, 4))
    kept = weight.copy()
    new_weight, new_bias = fold((weight, bias), policy)
    np.testing.assert_allclose(x @ new_weight.T + new_bias, policy.apply(x @ weight.T + bias))
    np.testing.assert_array_equal(weight, kept)


def test_a_fitted_linear_model_then_predicts_as_the_policy():
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:50, 50:80, 100:110]
    model = LogisticRegression(max_iter=2000).fit(X[rows], y[rows])
    logits = model.decision_function(X)
    adjuster = LogitAdjuster("worst", parameters="both").fit(logits, y, class_counts=[50, 30, 10])
    before = model.predict(X)
    fold(model, adjuster.policy_)
    np.testing.assert_array_equal(model.predict(X), adjuster.predict(logits))
    assert (model.predict(X) != before).any()


def test_policies_on_probabilities_are_refused(policy):
    proba = Policy(policy.strategy, "balanced", policy.class_names, scores="proba")
    with pytest.raises(InputError, match=r"only logits can be folded.*policy\.apply"):
        fold(torch.nn.Linear(7, 3), proba)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Linear(7, 4),
        (np.ones((2, 5)), np.ones(2)),
        (np.ones((3, 5)), np.ones(5)),
        LogisticRegression().fit([[0.0], [1.0]], [0, 1]),
    ],
    ids=["torch", "weight", "bias", "two classes"],
)
def test_layers_of_another_shape_are_refused(policy, layer):
    with pytest.raises(InputError, match=r"the policy needs \(3, n\) and \(3,\)"):
        fold(layer, policy)


def test_a_layer_without_bias_is_refused(policy):
    with pytest.raises(InputError, match="bias=True"):
        fold(torch.nn.Linear(7, 3, bias=False), policy)

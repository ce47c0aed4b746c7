"""skorch takes the loss as its criterion; timm calls it with soft targets."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch")
import torch
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from capri import CAPClassifierCV, Strategy, evaluate
from capri.bilevel import ParametricCrossEntropy

X, Y = make_classification(
    1500, 10, n_informative=6, n_classes=3, weights=[0.85, 0.1, 0.05], n_clusters_per_class=1, random_state=0
)
X = X.astype(np.float32)


def net(strategy):
    skorch = pytest.importorskip("skorch")
    torch.manual_seed(0)
    return skorch.NeuralNetClassifier(
        partial(torch.nn.Linear, 10, 3), criterion=ParametricCrossEntropy, criterion__strategy=strategy,
        predict_nonlinearity=partial(torch.softmax, dim=-1), optimizer=torch.optim.Adam, lr=0.05, max_epochs=8,
        train_split=None, verbose=0,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
class TestSkorch:
    def test_the_criterion_trains(self):
        x, x_test, y, y_test = train_test_split(X, Y, stratify=Y, random_state=0)
        errors = [
            evaluate(y_test, net(strategy).fit(x, y).predict(x_test), 3, ["balanced"])["balanced"]
            for strategy in (Strategy.of(3), Strategy.logit_adjustment(np.bincount(y)))
        ]
        assert errors[1] < errors[0] - 0.05

    def test_a_network_is_tuned_as_any_classifier(self):
        tuned = CAPClassifierCV(net(Strategy.of(3)), "balanced", cv=2, bootstrap=0).fit(X, Y)
        assert tuned.validation_.after["balanced"] < tuned.validation_.before["balanced"]
        np.testing.assert_allclose(tuned.predict_proba(X).sum(axis=1), 1, atol=1e-5)


def test_timm_s_signature_with_the_soft_targets_of_mixup():
    loss = ParametricCrossEntropy(Strategy.of(3, l=[0, -1, -2], omega=[1, 2, 3]))
    x, target = torch.randn(6, 3, requires_grad=True), torch.tensor([0, 1, 2, 0, 1, 2])
    hard = torch.nn.functional.one_hot(target, 3).float()
    mixed = 0.7 * hard + 0.3 * hard.flip(0)
    expected = 0.7 * loss(x, target) + 0.3 * loss(x, target.flip(0))
    torch.testing.assert_close(loss(x, mixed), expected)
    loss(x, mixed).backward()
    assert x.grad is not None

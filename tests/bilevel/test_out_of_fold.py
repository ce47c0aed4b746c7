"""Cross-validation side by side: folds, temperatures, and losses of decisions."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

from capri.bilevel.out_of_fold import (
    CrossValidation,
    class_means,
    decision_losses,
    sharpness,
)
from capri.bilevel.side_by_side import Recipe, logits_side_by_side, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.models import MLPHead
from capri.sampling import stratified_folds

K, D = 4, 5
COUNTS = (40, 20, 10, 5)


def samples(seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(K).repeat_interleave(torch.tensor(COUNTS))
    centres = 2 * torch.randn(K, D, generator=generator)
    return centres[y] + torch.randn(len(y), D, generator=generator), y


def neutral(copies):
    ones = torch.ones(copies, K)
    return StrategyTensors(ones, 0 * ones, ones, 0 * ones)


def judge(folds, seed=0):
    x, y = samples()
    torch.manual_seed(0)
    recipe = Recipe(4, 16, partial(torch.optim.AdamW, lr=0.02), lambda *_: 1.0, seed)
    return CrossValidation(MLPHead(D, K, (8,)), x, y, K, recipe, folds)


def test_losses_are_those_of_networks_that_did_not_see_the_sample():
    x, y = samples()
    folds = torch.from_numpy(stratified_folds(y, 3, 0))
    judging = judge(folds)
    strategies = neutral(2)._replace(l=torch.tensor([[0.0, 0, 0, 0], [1.0, 0, -1, -2]]))
    losses = judging.losses(strategies)
    for fold in range(3):
        held = folds == fold
        trained = train_side_by_side(
            judging.model, strategies, x, y, judging.recipe, left_out=torch.full((2,), fold), folds=folds
        )
        wrong = (logits_side_by_side(judging.model, trained, x[held]).argmax(dim=2) != y[held]).float()
        assert torch.equal((losses[:, held] > 0.5), wrong.bool())


def test_samples_outside_the_folds_train_and_never_judge():
    y = samples()[1]
    folds = torch.where(torch.arange(len(y)) % 2 == 0, -1, torch.from_numpy(stratified_folds(y, 3, 0)))
    judging = judge(folds)
    assert judging.losses(neutral(1)).shape == (1, int((folds >= 0).sum()))
    assert judging.counts.sum() == (folds >= 0).sum()


@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_the_temperature_is_the_best_one_whatever_the_scale(scale):
    generator = torch.Generator().manual_seed(3)
    y = samples()[1]
    o = torch.randn(len(y), K, generator=generator, dtype=torch.float64) + 1.5 * F.one_hot(y, K)
    weights = 1 / torch.bincount(y)[y]

    def balanced(log_beta):
        return float((weights * F.cross_entropy(np.exp(log_beta) * o, y, reduction="none")).sum())

    best = np.exp(minimize_scalar(balanced, bounds=(-8, 8), method="bounded").x)
    assert sharpness(scale * o, y, K) == pytest.approx(best / scale, rel=1e-3)
    torch.testing.assert_close(decision_losses(scale * o, y, K), decision_losses(o, y, K))


def test_logits_that_separate_everything_have_a_temperature_all_the_same():
    y = samples()[1]
    assert 0 < sharpness(F.one_hot(y, K).float(), y, K) < np.inf
    assert decision_losses(F.one_hot(y, K).float(), y, K).max() < 0.1
    assert torch.isfinite(decision_losses(torch.zeros(len(y), K), y, K)).all()


def test_a_wrong_decision_costs_more_than_any_right_one():
    y = samples()[1]
    o = torch.randn(len(y), K, generator=torch.Generator().manual_seed(0)) + F.one_hot(y, K)
    losses, wrong = decision_losses(o, y, K), o.argmax(dim=1) != y
    assert losses[wrong].min() > 0.5 > losses[~wrong].max()


def test_class_means_say_which_class_has_no_samples():
    found = class_means(torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0, 0, 2]), 3)
    np.testing.assert_array_equal(found, [[0.5, np.nan, 0.5]])

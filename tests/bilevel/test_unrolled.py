"""The derivative through all of training: both modes against each other and against finite differences of training."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from capri import Attributes, InputError
from capri.bilevel import (
    Dictionaries,
    JudgedTraining,
    OuterObjective,
    Recipe,
    StrategyMap,
    unrolled_gradient,
    unrolled_search,
)
from capri.bilevel.side_by_side import logits_side_by_side, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.bilevel.unrolled import Steps
from capri.models import LinearHead, MLPHead, ResNet32

K, D, COUNTS = 4, 3, (24, 12, 8, 4)
DOUBLE = {"dtype": torch.float64}
ALL = ["l", "delta", "omega", "smoothing"]
OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.2, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.03, weight_decay=0.05),
}


def samples(counts, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(K).repeat_interleave(torch.tensor(counts))
    centres = torch.randn(K, D, generator=torch.Generator().manual_seed(9), **DOUBLE)
    return centres[y] + torch.randn(len(y), D, generator=generator, **DOUBLE), y


X, Y = samples(COUNTS, 0)
VAL = samples((10,) * K, 1)
FOLDS = torch.arange(len(Y)) % 3


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    made = {
        "logistic": lambda: LinearHead(D, K),
        "mlp": lambda: nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, K)),
        "dropout": lambda: MLPHead(D, K, (6,), dropout=0.4),
    }[name]
    return made().double()


def recipe(optimizer: str = "sgd", epochs: int = 3) -> Recipe:
    return Recipe(epochs, 16, OPTIMIZERS[optimizer], lambda step, steps, per_epoch: 1 - step / (2 * steps))


def strategy_map(parts=ALL, attributes=True) -> StrategyMap:
    """W away from its start, so that nothing is neutral."""
    table = Attributes.of(freq=np.array(COUNTS) / sum(COUNTS)) if attributes else None
    made = StrategyMap(Dictionaries.of(table, K), parts, delta_form="sigmoid", **DOUBLE)
    generator = torch.Generator().manual_seed(2)
    w = parameters_to_vector(made.parameters()).detach()
    vector_to_parameters(w + 0.2 * torch.randn(len(w), generator=generator, **DOUBLE), made.parameters())
    return made


def judged(
    model: str = "mlp", optimizer: str = "sgd", objective=F.cross_entropy, epochs: int = 3, **how
) -> JudgedTraining:
    how = how or {"val": VAL}
    return JudgedTraining(network(model), X, Y, recipe(optimizer, epochs), objective, **how)


@pytest.mark.parametrize("how", ["val", "folds"])
@pytest.mark.parametrize("model", ["logistic", "mlp"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_both_modes_are_the_slope_of_training(optimizer, model, how):
    """By central differences of whole trainings, which `train_side_by_side` does with torch's own optimizers."""
    training = judged(model, optimizer, **({"folds": FOLDS} if how == "folds" else {"val": VAL}))
    made = strategy_map()
    reverse, forward = (unrolled_gradient(training, made, mode=mode) for mode in ("reverse", "forward"))
    torch.testing.assert_close(reverse.w, forward.w, rtol=1e-8, atol=1e-12)
    w = parameters_to_vector(made.parameters()).detach()
    direction = torch.randn(len(w), generator=torch.Generator().manual_seed(3), **DOUBLE)

    def value(at: torch.Tensor) -> float:
        vector_to_parameters(at, made.parameters())
        return trained_value(training, made)

    assert reverse.value == pytest.approx(value(w), rel=1e-12)
    assert forward.value == pytest.approx(reverse.value, rel=1e-12)
    h = 1e-5
    slope = (value(w + h * direction) - value(w - h * direction)) / (2 * h)
    assert float(reverse.w @ direction) == pytest.approx(slope, rel=1e-5)
    assert reverse.w.abs().min() > 1e-6, "each number of W has its say"


def trained_value(training: JudgedTraining, made: StrategyMap) -> float:
    """The objective at the end of training, without any of this module."""
    copies = 1 if training.folds is None else 3
    out = None if training.folds is None else torch.arange(copies)
    strategies = StrategyTensors(*(t.detach().expand(copies, K) for t in made()))
    ends = train_side_by_side(training.model, strategies, X, Y, training.recipe, left_out=out, folds=training.folds)
    if training.val is not None:
        return float(training.objective(logits_side_by_side(training.model, ends, VAL[0])[0], VAL[1]))
    logits = logits_side_by_side(training.model, ends, X)
    return float(training.objective(logits[FOLDS, torch.arange(len(Y))], Y))


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.5", "sdev"])
def test_any_objective_on_class_errors(objective):
    training = judged(objective=OuterObjective(objective, COUNTS).on_all, folds=FOLDS)
    made = strategy_map(["l"], attributes=False)  # plain: a number for each class
    reverse, forward = (unrolled_gradient(training, made, mode=mode) for mode in ("reverse", "forward"))
    torch.testing.assert_close(reverse.w, forward.w, rtol=1e-8, atol=1e-12)
    assert reverse.w.shape == (K,)
    assert float(reverse.w.sum()) == pytest.approx(0, abs=1e-12), "a common shift of the offsets changes nothing"


def test_dropout_is_drawn_again_as_it_was():
    training, made = judged("dropout", folds=FOLDS), strategy_map()
    before = torch.random.get_rng_state()
    reverse, forward = (unrolled_gradient(training, made, mode=mode) for mode in ("reverse", "forward"))
    assert reverse.value == pytest.approx(forward.value, rel=1e-12)
    torch.testing.assert_close(reverse.w, forward.w, rtol=1e-8, atol=1e-12)
    assert torch.equal(before, torch.random.get_rng_state())
    assert training.model.training
    training.model.eval()
    assert unrolled_gradient(training, made).value != reverse.value


def test_each_step_is_made_three_times_at_most(monkeypatch):
    """Forward, from the state before it that was kept, and with its derivative."""
    made, training, real = [], judged(epochs=12), Steps.__getitem__
    monkeypatch.setattr(Steps, "__getitem__", lambda self, i: made.append(i) or real(self, i))
    unrolled_gradient(training, strategy_map())
    steps = 12 * 3
    assert len(made) == 3 * steps - 6  # the first of a segment was kept, six segments of six
    assert made[:steps] == list(range(steps))
    assert max(map(made.count, range(steps))) == 3


def test_some_folds_alone_and_samples_that_always_train():
    some = FOLDS.where(Y != 0, -1)
    both = judged(folds=some, objective=partial(F.cross_entropy, reduction="sum"))
    parts = [
        judged(folds=some, left_out=torch.tensor([fold]), objective=partial(F.cross_entropy, reduction="sum"))
        for fold in range(3)
    ]
    made = strategy_map()
    assert both.copies == 3
    assert set(both.judges[3].tolist()) == {1, 2, 3}, "class 0 always trains"
    whole, single = unrolled_gradient(both, made), [unrolled_gradient(part, made) for part in parts]
    assert whole.value == pytest.approx(sum(one.value for one in single))
    torch.testing.assert_close(whole.w, torch.stack([one.w for one in single]).sum(dim=0))


def test_what_cannot_be_unrolled_is_refused():
    with pytest.raises(InputError, match="either val, samples that judge, or folds"):
        judged(val=VAL, folds=FOLDS)
    with pytest.raises(InputError, match="batch normalisation"):
        JudgedTraining(ResNet32(K), X, Y, recipe(), F.cross_entropy, val=VAL)
    with pytest.raises(InputError, match="mode is 'sideways'; it must be 'reverse' or 'forward'"):
        unrolled_gradient(judged(), strategy_map(), mode="sideways")  # type: ignore[arg-type]


# -- the search --------------------------------------------------------------------------------------------------------


def test_a_search_goes_down_and_leaves_the_map_where_it_ended():
    made = strategy_map(["l"])
    training = judged("logistic", objective=OuterObjective("balanced", COUNTS).on_all, folds=FOLDS)
    found = unrolled_search(training, made, steps=5)
    assert (np.diff(found.values) < 0).all()
    w = parameters_to_vector(made.parameters()).detach().numpy()
    np.testing.assert_array_equal(w, found.w[-1])
    assert unrolled_gradient(training, made).value == pytest.approx(found.values[-1], rel=1e-12)
    assert np.diff(made.strategy().l).max() < 0, "offsets fall with the frequency, as in logit adjustment"


def test_the_prior_holds_w_at_its_start():
    """In units of the spreads: λ‖(W − W₀)/s‖² enters value and gradient, and at the end they balance."""
    training, made = judged("logistic"), strategy_map(["l"])
    start, spreads = parameters_to_vector(made.parameters()).detach().numpy(), np.linspace(0.5, 1.5, 2)
    assert len(start) == 2
    prior = 0.05
    found = unrolled_search(training, made, steps=30, prior=prior, spreads=spreads, tolerance=1e-7)
    assert found.done
    bare = unrolled_gradient(training, made)
    away = (found.w[-1] - start) / spreads
    assert found.values[-1] == pytest.approx(bare.value + prior * away @ away)
    np.testing.assert_allclose(bare.w.numpy() + 2 * prior * away / spreads, 0, atol=1e-6)
    free = unrolled_search(training, strategy_map(["l"]), steps=30, spreads=spreads)
    assert np.linalg.norm(free.w[-1] - start) > np.linalg.norm(found.w[-1] - start)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_resumed_is_bit_identical(mode, tmp_path):
    def search(made, steps, **how):
        training = judged("mlp", "adamw", folds=FOLDS)
        return unrolled_search(training, made, steps=steps, prior=0.01, spreads=0.7, mode=mode, **how)

    whole_map, resumed_map, kept = strategy_map(), strategy_map(), []
    whole = search(whole_map, 4)
    part = search(strategy_map(), 2, keep=kept.append)
    assert len(kept) == 2
    np.savez(tmp_path / "state.npz", **kept[-1])
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        resumed = search(resumed_map, 2, state=dict(state))
    for name in ("w", "values"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(resumed, name))
    for name, array in whole.state.items():
        np.testing.assert_array_equal(array, resumed.state[name])
    for a, b in zip(whole_map.parameters(), resumed_map.parameters(), strict=True):
        assert torch.equal(a, b)
    assert len(part.w) < len(whole.w), "there was something to go on with"

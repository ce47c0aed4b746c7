"""The search over W: its space, its steps, and a bilevel optimum that brute force knows."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from tests.bilevel.test_hypergradient import TwoLevels

from capri import Attributes, InputError, Strategy
from capri.attributes import frequency
from capri.bilevel.population import Space, evolve
from capri.bilevel.strategy_map import Dictionaries, StrategyMap, StrategyTensors

COUNTS = np.geomspace(500, 5, 20).round().astype(int)


def space(parts=("l", "delta", "smoothing"), **more):
    attributes = Attributes.of(freq=frequency(COUNTS), **more)
    dictionaries = Dictionaries.of(attributes, len(COUNTS), "ordered")
    made = StrategyMap(dictionaries, parts, delta_form="exp", start_l=np.log(frequency(COUNTS)), dtype=torch.float64)
    return Space.of(made)


def test_points_are_strategies():
    here = space()
    z = np.random.default_rng(0).normal(size=(3, len(here)))
    stacked = here.strategies(z)
    for i, point in enumerate(z):
        alone = here.at(point).strategy()
        for name, values in stacked._asdict().items():
            np.testing.assert_allclose(values[i], getattr(alone, name), rtol=1e-9, atol=1e-12)
        here.at(-point)  # back: W₀ is where the map stands


@pytest.mark.parametrize("named", [Strategy.logit_adjustment(COUNTS, 1.5), Strategy.vs(COUNTS, 0.75, 0.2)])
def test_la_and_vs_are_points(named):
    here = space(diff=np.linspace(0.5, 0.1, len(COUNTS)) ** 2)
    found = here.strategies(here.points(tensors(named)))
    np.testing.assert_allclose(found.delta[0], named.delta, rtol=1e-9)
    np.testing.assert_allclose(np.diff(found.l[0]), np.diff(named.l), rtol=1e-9)


def tensors(*strategies):
    parts = {name: np.stack([getattr(s, name) for s in strategies]) for name in StrategyTensors._fields}
    return StrategyTensors(**{name: torch.from_numpy(values) for name, values in parts.items()})


def test_strategies_of_fewer_attributes_are_points_of_more():
    """With label smoothing, and in single precision, as judgements are kept; what D cannot say is known as such."""
    parts = ("l", "delta", "smoothing")
    few, more = space(parts), space(parts, diff=np.linspace(0.5, 0.1, len(COUNTS)) ** 2)
    z = np.random.default_rng(0).normal(size=(4, len(few)))
    found = StrategyTensors(*(t.float() for t in few.strategies(z)))
    np.testing.assert_allclose(few.points(found), z, atol=2e-5)
    assert more.says(more.points(found), found).all()
    other = more.strategies(np.ones((1, len(more))))
    assert not few.says(few.points(other), other).any()


def test_a_number_per_class_is_too_much():
    with pytest.raises(InputError, match="more than a population can search"):
        Space.of(StrategyMap(Dictionaries.of(None, 100), ["l"]))


def bowl(z):
    return 0.1 + ((z - [0.5, -0.3, 0.2, 0.0]) ** 2 * [1, 0.5, 2, 0.1]).sum(axis=1)


def test_it_finds_the_bottom_of_a_bowl_and_the_prior_draws_it_back():
    nothing = np.zeros((0, 4)), np.zeros(0)
    *_, last = evolve(bowl, nothing, generations=8, size=10, prior=0.0)
    *_, drawn = evolve(bowl, nothing, generations=8, size=10, prior=10.0)
    assert bowl(last.point[None])[0] < 0.12
    assert np.linalg.norm(drawn.point) < np.linalg.norm(last.point) / 2


def test_the_same_judgements_give_the_same_points():
    known = np.eye(4), bowl(np.eye(4))
    first, second = ([g.z for g in evolve(bowl, known, generations=3, size=5, seed=2)] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = [g.z for g in evolve(bowl, known, generations=3, size=5, seed=3)]
    assert not np.array_equal(first, other)


def test_noise_is_averaged_over():
    """A single lucky judgement far from the bottom does not win."""
    rng = np.random.default_rng(0)
    *_, last = evolve(lambda z: bowl(z) + 0.05 * rng.normal(size=len(z)), (np.zeros((0, 4)), np.zeros(0)),
                      generations=8, size=10)  # fmt: skip
    assert bowl(last.point[None])[0] < 0.17


def test_it_reaches_the_bilevel_optimum():
    """Multinomial logistic regression with a long tail, trained to its end; to 1e-2 in the objective."""
    task = TwoLevels()
    brute = minimize(lambda a: task.outer(torch.tensor(a)), [0.0, 0.0], method="Nelder-Mead")
    judged = lambda z: np.array([task.outer(torch.tensor(a)) for a in z])  # noqa: E731
    *_, last = evolve(judged, (np.zeros((0, 2)), np.zeros(0)), generations=6, size=8, prior=0.0)
    assert task.outer(torch.tensor(last.point)) == pytest.approx(brute.fun, abs=1e-2)

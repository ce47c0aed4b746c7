"""Matrices that are never there as a whole are the same as if they were."""

import numpy as np
import pytest

from capri import LogitAdjuster
from capri.posthoc import _compiled, matrices, smooth
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.calibration import Calibration
from capri.posthoc.matrices import Rows, Stacked, some_rows, stacked
from capri.posthoc.problem import Problem


@pytest.fixture
def large(monkeypatch):
    """Everything is large, and blocks are small."""

    def limit(size=1):
        monkeypatch.setattr(matrices, "LARGE", size)
        monkeypatch.setattr(_compiled, "LEAST_SUMMED", 50)

    limit()
    return limit


@pytest.fixture
def opinion(rng):
    """Of 40 samples and 6 classes, with its array."""
    scores, y, label, share = rng.normal(size=(40, 6)), rng.integers(0, 6, 40), *rng.uniform(0, 2, (2, 40))
    known = Calibration(1.3, rng.normal(size=6), rng.dirichlet(np.ones(6)), noise=0.1)
    lazy, factor = known.opinion(scores, y, label, share), rng.uniform(0.5, 2, 6)
    array = factor * (label[:, None] * np.eye(6)[y] + share[:, None] * known.posterior(scores))
    return lazy.times(factor), array


def the_same(lazy, array, rng):
    assert lazy.shape == array.shape
    assert len(lazy) == len(array)
    assert lazy.size == array.size
    rows, columns = rng.integers(0, len(array), 30), rng.integers(0, array.shape[1], 30)
    for key in (slice(3, 17), rows, np.arange(len(array)) % 3 == 0, (rows, columns), np.int64(4)):
        np.testing.assert_allclose(lazy[key], array[key], atol=1e-9)
    for axis in (0, 1):
        np.testing.assert_allclose(lazy.sum(axis=axis), array.sum(axis=axis), atol=1e-8)
    np.testing.assert_allclose(np.asarray(lazy), array, atol=1e-9)


def test_rows_are_those_of_the_matrix(rng, large):
    scores, chosen = rng.normal(size=(50, 4)), rng.uniform(size=50) < 0.6
    lazy = some_rows(scores, chosen)
    assert isinstance(lazy, Rows)
    the_same(lazy, scores[chosen], rng)
    further = rng.uniform(size=len(lazy)) < 0.5
    the_same(some_rows(lazy, further), scores[chosen][further], rng)
    large(10**6)
    assert isinstance(some_rows(scores, chosen), np.ndarray)


def test_an_opinion_is_its_formula(opinion, rng, large):
    the_same(*opinion, rng)
    weight = rng.uniform(0, 3, 40)
    the_same(opinion[0].weighted(weight), weight[:, None] * opinion[1], rng)


def test_stacks_are_joined_rows(opinion, rng, large):
    lazy, array = opinion
    both = stacked([lazy, lazy.weighted(np.full(40, 2.0))])
    assert isinstance(both, Stacked)
    the_same(both, np.concatenate([array, 2 * array]), rng)
    the_same(both.times(np.arange(6.0)), np.concatenate([array, 2 * array]) * np.arange(6.0), rng)
    weight = rng.uniform(size=80)
    the_same(both.weighted(weight), np.concatenate([array, 2 * array]) * weight[:, None], rng)
    assert isinstance(stacked([lazy, array]), np.ndarray)


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "sdev", "macro_f1", "kappa"])
def test_a_large_problem_is_tuned_as_a_small_one(tail_of, objective, large):
    tail = tail_of(n_classes=8, per_class=60)
    apart = tail.fitted(LogitAdjuster(objective, bootstrap=20))
    large(10**9)
    once = tail.fitted(LogitAdjuster(objective, bootstrap=20))
    np.testing.assert_allclose(apart.strategy_.l, once.strategy_.l, atol=1e-4)
    assert apart.validation_.before == once.validation_.before
    assert apart.validation_.after == pytest.approx(once.validation_.after)
    assert apart.validation_.improvement == pytest.approx(once.validation_.improvement, abs=1e-4)


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "macro_f1"])
def test_soft_searches_lose_next_to_nothing_where_few_classes_matter(tail, objective, large, rng):
    problem = Problem(tail.scores, tail.y, objective, constraints=["plain <= 0.3"])
    near, l = smooth.Surrogate(problem), np.log(tail.counts)
    for moved in (0.0, 0.2, 3.0):  # in the box, and beyond
        here = Adjustment.offsets(l + moved * rng.uniform(-1, 1, 5))
        value, slope = near.gradient(here)
        assert near.near.remainder.holds(here)
        large(10**9)
        expected, gradient = smooth.Surrogate(problem).gradient(here)
        large()
        assert value == pytest.approx(expected, abs=1e-4)
        np.testing.assert_allclose(slope, gradient, atol=1e-3)

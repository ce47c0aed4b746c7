"""Soft labels against hard ones: a sample of mass M_ik for each class k is K samples with weights M_ik."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import softmax

from capri import InputError
from capri.forms import on_confusion
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc.adjustment import Adjustment, Direction
from capri.posthoc.line import trace
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import Surrogate

K = 4


@confusion_objective
def lopsided(confusion):
    return float(confusion[0, 1] + 2 * np.sqrt(confusion[2, 0] + 1) - np.log1p(confusion[3, 3]))


def squares(errors):
    return float((errors**2).mean())


COST = expected_cost(np.abs(np.subtract.outer(np.arange(K), np.arange(K))) * (1 + np.arange(K)[:, None]))
ON_ERRORS = ["balanced", "plain", "weighted", "sdev", "cvar:0.5", "quantile:0.4", "worst_group", "gmean", squares]
ON_CONFUSION = ["macro_f1", "weighted_f1", "f1[2]", "precision[1]", "kappa", "mcc"]
WITHOUT_TWINS = [COST, lopsided, "macro_f1+0.5*worst"]
EVERY = ON_ERRORS + ON_CONFUSION + WITHOUT_TWINS
CONTEXT = {"weights": [1, 2, 3, 4], "groups": [0, 0, 1, 1]}


def named(objective):
    return objective if isinstance(objective, str) else getattr(objective, "name", "squares")


def pose(seed, objective, *, n=24, ties=False, shares=None, weighted=True, **keywords):
    """A hard problem with many ties, or none; every class has a sample."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (n, K)) / 4 if ties else rng.normal(size=(n, K))
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)])
    weight = rng.choice([0.0, 0.5, 1.0, 2.5], n) if weighted else np.ones(n)
    weight[:K] = 1.0
    return Problem(scores, y, objective, sample_weight=weight, shares=shares, **CONTEXT, **keywords)


def random_beliefs(problem, seed):
    """Rows that sum to the weights."""
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.5), problem.n_samples) * problem.given[:, None]


def replicated(problem, beliefs, **keywords):
    """The hard problem in which every sample occurs K times; the class totals are those of labels or of the world."""
    counts = np.bincount(problem.y, weights=problem.given, minlength=K)
    return Problem(
        np.repeat(problem.scores, K, axis=0),
        np.tile(np.arange(K), problem.n_samples),
        problem.objective_spec,
        sample_weight=beliefs.ravel(),
        shares=counts if problem.shares is None else problem.shares,
        constraints=problem.constraints,
        **CONTEXT,
        **keywords,
    )


def same(soft, hard, seed):
    """Errors, confusions and worth at some offsets, and the values on the plateaus of a line."""
    rng = np.random.default_rng(seed)
    for l in (np.zeros(K), rng.integers(-4, 5, K) / 8):
        here = Adjustment.offsets(l)
        np.testing.assert_allclose(soft.errors(here), hard.errors(here), atol=1e-12)
        np.testing.assert_allclose(soft.confusion(here), hard.confusion(here), atol=1e-12)
        assert soft.worth(here) == pytest.approx(hard.worth(here), abs=1e-10)
        way = Direction(np.zeros(K), rng.integers(-1, 2, K).astype(float))
        ours, theirs = trace(soft, here, way), trace(hard, here, way)
        for t in np.linspace(-3, 3, 25) + 1 / 256:  # on no crossing of scores with ties
            at = [int(np.searchsorted(line.breakpoints, t)) for line in (ours, theirs)]
            assert ours.values[at[0]] == pytest.approx(theirs.values[at[1]], abs=1e-10)
            assert ours.violations[at[0]] == pytest.approx(theirs.violations[at[1]], abs=1e-10)
            there = soft.worth(here.along(way, t))
            assert (ours.violations[at[0]], ours.values[at[0]]) == pytest.approx(there, abs=1e-10)


@pytest.mark.parametrize("objective", EVERY, ids=named)
@pytest.mark.parametrize("shares", [None, [0.6, 0.3, 0.05, 0.05]], ids=["of samples", "of the world"])
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_certain_beliefs_are_labels(objective, shares, seed, ties):
    hard = pose(seed, objective, ties=ties, shares=shares, constraints=["plain <= baseline", "err[1] <= 0.3"])
    certain = np.eye(K)[hard.y] * hard.given[:, None]
    soft = hard.believing(certain)
    assert soft.context.shares == pytest.approx(hard.context.shares)
    np.testing.assert_allclose(soft.weight, hard.weight)
    np.testing.assert_allclose(soft.membership, hard.membership)
    same(soft, hard, seed)


@pytest.mark.parametrize("objective", EVERY, ids=named)
@pytest.mark.parametrize("shares", [None, [0.6, 0.3, 0.05, 0.05]], ids=["of samples", "of the world"])
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), ties=st.booleans())
def test_uncertain_beliefs_are_samples_in_parts(objective, shares, seed, ties):
    problem = pose(seed, objective, ties=ties, shares=shares, constraints=["macro_f1 <= baseline", "worst <= 0.5"])
    beliefs = random_beliefs(problem, seed)
    same(problem.believing(beliefs), replicated(problem, beliefs), seed)


def test_an_absent_class_is_believed_in_by_nobody():
    problem = pose(0, "macro_f1")
    rows = problem.y != 2
    with pytest.warns(UserWarning, match="class 2"):
        some = Problem(problem.scores[rows], problem.y[rows], "macro_f1", absent="ignore", **CONTEXT)
    beliefs = random_beliefs(some, 0)
    beliefs[:, 2] = 0
    beliefs /= beliefs.sum(axis=1, keepdims=True)
    soft = some.believing(beliefs)
    assert np.isnan(soft.errors(soft.neutral)[2])
    with pytest.warns(UserWarning, match="class 2"):
        same_classes = replicated(some, beliefs, absent="ignore")
    assert soft.worth(soft.neutral) == pytest.approx(same_classes.worth(same_classes.neutral))


def test_parts_of_a_problem_keep_their_beliefs():
    problem = pose(3, "kappa", shares=[4, 3, 2, 1])
    beliefs = random_beliefs(problem, 3)
    rows = np.arange(problem.n_samples) % 4 != 3
    rows[:K] = True
    part, alone = problem.believing(beliefs).subset(rows), problem.subset(rows)
    expected = replicated(alone, beliefs[rows])
    l = Adjustment.offsets(np.array([0.3, 0.0, -0.2, 0.1]))
    np.testing.assert_allclose(part.errors(l), expected.errors(l))  # class by class, whatever the scale of a class
    assert part.worth(l).value == pytest.approx(expected.worth(l).value)


def test_soft_labels_are_searched_along_offsets_only():
    problem = pose(1, "balanced")
    soft = problem.believing(random_beliefs(problem, 1))
    with pytest.raises(InputError, match="soft labels, are searched along offsets only"):
        trace(soft, soft.neutral, Direction(np.ones(K), np.zeros(K)))


class TestSurrogate:
    @pytest.mark.parametrize("objective", ON_ERRORS + ON_CONFUSION, ids=named)
    @pytest.mark.parametrize("shares", [None, [0.6, 0.3, 0.05, 0.05]], ids=["of samples", "of the world"])
    @pytest.mark.parametrize("of", ["l", "delta"])
    def test_gradients_are_differences(self, objective, shares, of):
        problem = pose(5, objective, n=60, shares=shares, constraints=["plain <= 0.1", "f1[1] >= 0.9"])
        surrogate = Surrogate(problem.believing(random_beliefs(problem, 5)))
        here = Adjustment(np.array([0.8, 1.0, 1.3, 1.1]), np.array([0.3, -0.2, 0.1, 0.0]))
        value, gradient = surrogate.gradient(here, of)
        numeric = approx_fprime(getattr(here, of), lambda x: surrogate.at(here._replace(**{of: x})), 1e-7)
        assert value == surrogate.at(here)
        assert np.abs(gradient).max() > 1e-3
        np.testing.assert_allclose(gradient, numeric, atol=2e-4 * max(1.0, np.abs(gradient).max()))

    @pytest.mark.parametrize(
        "objective", [*ON_CONFUSION, "balanced", "plain", "weighted", "sdev", "cvar:0.5", squares], ids=named
    )
    def test_values_are_those_of_the_soft_confusion_matrix(self, objective):
        problem = pose(6, objective, n=60, shares=[0.6, 0.3, 0.05, 0.05])
        soft = problem.believing(random_beliefs(problem, 6))
        surrogate, m, l = Surrogate(soft), np.array([0.8, 1.0, 1.3, 1.1]), np.array([0.3, -0.2, 0.1, 0.0])
        decisions = softmax(surrogate.sharpness * (soft.scores * m - l), axis=1)
        confusion = soft.beliefs.T @ decisions
        assert surrogate.at(Adjustment(m, l)) == pytest.approx(on_confusion(soft.objective, confusion), abs=1e-9)
        errors = 1 - np.diag(confusion) / confusion.sum(axis=1)
        np.testing.assert_allclose(surrogate.errors(Adjustment(m, l)), errors, atol=1e-9)

"""The consistency theorem: brute force over all rules, numerical minimisers, and the sign that matters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from capri import InputError
from capri_paper.theory import fisher


def problem(seed: int, n_points: int, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A discrete x: p(x | k) in columns that sum to 1; priors, test weights and a member δ of the family."""
    rng = np.random.default_rng(seed)
    densities = rng.dirichlet(np.ones(n_points), n_classes).T
    priors = rng.dirichlet(np.full(n_classes, 0.7)) + 1e-3
    weights = rng.uniform(0.05, 2, n_classes)
    return np.log(densities), priors / priors.sum(), weights, np.exp(rng.normal(0, 2, n_classes))


def test_no_rule_has_a_smaller_weighted_error_than_the_bayes_rule():
    log_densities, _, weights, _ = problem(0, n_points=5, n_classes=3)

    def weighted_error(rule) -> float:
        hits = [np.exp(log_densities)[np.array(rule) == k, k].sum() for k in range(3)]
        return float(np.mean(weights * (1 - np.array(hits))))

    best = min(product(range(3), repeat=5), key=weighted_error)
    np.testing.assert_array_equal(fisher.bayes_rule(log_densities, weights), best)


@pytest.mark.parametrize("seed", range(4))
def test_optimal_scores_minimise_the_expected_loss(seed):
    log_densities, priors, weights, delta = problem(seed, n_points=3, n_classes=4)
    loss = fisher.consistent_loss(priors, weights, delta)
    optimal = fisher.optimal_scores(log_densities, priors, loss)

    def risk(flat: np.ndarray) -> float:
        return fisher.expected_loss(flat.reshape(3, 4), log_densities, priors, loss).sum()

    found = minimize(risk, np.zeros(12), method="BFGS", options={"gtol": 1e-9}).x.reshape(3, 4)
    centre = lambda f: f - f.mean(axis=1, keepdims=True)  # noqa: E731  scores count up to a shift of each row
    np.testing.assert_allclose(centre(found), centre(optimal), atol=1e-3)
    assert fisher.agreement(found, log_densities, weights) == 1


@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 7))
@settings(max_examples=50, deadline=None)
def test_every_member_of_the_family_reaches_the_bayes_rule(seed, n_classes):
    log_densities, priors, weights, delta = problem(seed, 40, n_classes)
    loss = fisher.consistent_loss(priors, weights, delta)
    assert fisher.agreement(fisher.optimal_scores(log_densities, priors, loss), log_densities, weights) == 1


@given(seed=st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_post_hoc_adjustment_of_the_posterior_reaches_it_too(seed):
    log_densities, priors, weights, _ = problem(seed, 40, 5)
    posterior = log_densities + np.log(priors)
    posterior -= np.logaddexp.reduce(posterior, axis=1, keepdims=True)
    adjusted = fisher.adjusted_scores(posterior, priors, weights)
    assert fisher.agreement(adjusted, log_densities, weights) == 1
    # Adjusting the posterior is the optimum of the loss that carries the same offset.
    optimal = fisher.optimal_scores(log_densities, priors, fisher.consistent_loss(priors, weights))
    assert np.ptp(adjusted - optimal, axis=1).max() < 1e-9


def test_the_corollary_has_equal_weights_and_the_printed_offset():
    loss = fisher.consistent_loss([0.7, 0.2, 0.1], [1.0, 0.5, 2.0])
    np.testing.assert_allclose(loss.weight, 1)
    np.testing.assert_allclose(loss.offset, np.log([0.7, 0.2, 0.1]) - np.log([1.0, 0.5, 2.0]))


def test_other_losses_are_not_consistent():
    """The opposite sign of the offset, no offset at all, and ω counted twice as in one line of the paper's proof."""
    log_densities, _, _, _ = problem(1, n_points=200, n_classes=3)
    priors, weights = np.array([0.9, 0.09, 0.01]), np.array([0.2, 1.0, 1.8])
    offset = np.log(priors / weights)
    ones = np.ones(3)
    for loss in (
        fisher.WeightedLoss(ones, -offset),
        fisher.WeightedLoss(ones, 0 * offset),
        fisher.WeightedLoss(weights, offset),
    ):
        scores = fisher.optimal_scores(log_densities, priors, loss)
        assert fisher.agreement(scores, log_densities, weights) < 0.95
        assert fisher.regret(scores, log_densities, weights).max() > 0.1


def test_ties_count_as_agreement():
    tied = np.log([[0.5, 0.5], [0.5, 0.5]])
    assert fisher.agreement([[1.0, 0.0], [0.0, 1.0]], tied, [1, 1]) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fisher.consistent_loss([0.5, 0.0], [1, 1]), r"priors\[1\] is 0.0; .* above 0"),
        (lambda: fisher.consistent_loss([0.5, 0.5], [1]), "test_weights has 1 entries for 2 classes"),
        (lambda: fisher.bayes_rule([[0.0, -np.inf]], [1, 1]), r"log_densities\[0, 1\] is -inf"),
        (lambda: fisher.consistent_loss([0.5, 0.5], [1, 1], [1, -2]), r"delta\[1\] is -2.0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()

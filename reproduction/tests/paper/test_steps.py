"""The paper's descent on the cross-entropy."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem
from capri_paper.steps import CrossEntropy


@pytest.fixture
def problem(rng):
    y = np.repeat(np.arange(5), [40, 30, 20, 10, 5])
    return Problem(rng.normal(size=(len(y), 5)) + np.eye(5)[y], y)


@pytest.mark.parametrize("of", ["l", "delta"])
def test_the_gradient_is_the_difference_of_the_loss(problem, rng, of):
    loss = CrossEntropy(problem)
    m, l = rng.uniform(0.7, 1.5, 5), rng.normal(size=5)
    value, gradient = loss.gradient(Adjustment(m, l), of)
    numeric = (
        approx_fprime(l, lambda x: loss.at(Adjustment(m, x)))
        if of == "l"
        else approx_fprime(m, lambda x: loss.at(Adjustment(x, l)))
    )
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    assert value == loss.at(Adjustment(m, l))


def test_classes_count_alike(problem):
    loss = CrossEntropy(problem)
    z = problem.scores - np.log(np.exp(problem.scores).sum(axis=1, keepdims=True))
    by_class = [-z[problem.y == k, k].mean() for k in range(5)]
    assert loss.at(problem.neutral) == pytest.approx(np.mean(by_class))

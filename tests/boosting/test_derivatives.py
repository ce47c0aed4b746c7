"""What the boosters are told of the loss is its derivative."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from capri import InputError, Strategy
from capri.boosting import TreeLoss
from capri.boosting.derivatives import best_constant, gradients, hessians, masses, softmax
from capri.boosting.loss import catboost_loss

K, N = 4, 7


def strategy(rng, k=K, smoothing=True):
    return Strategy.of(
        k,
        omega=rng.uniform(0.2, 3, k),
        l=rng.normal(size=k),
        delta=rng.uniform(0.5, 2, k),
        smoothing=rng.uniform(0, 0.4, k) if smoothing else None,
    )


@pytest.fixture(params=range(3))
def case(request):
    rng = np.random.default_rng(request.param)
    return strategy(rng), rng.normal(size=(N, K)), np.arange(N) % K, rng.uniform(0.1, 2, N)


def of_one(given, labels, weight, i):
    return lambda o: weight[i] * given.loss(o[None], labels[i : i + 1])[0]


def test_the_gradient_by_finite_differences(case):
    given, scores, labels, weight = case
    found, _ = gradients(given, scores, labels, weight)
    expected = [approx_fprime(scores[i], of_one(given, labels, weight, i), 1e-6) for i in range(N)]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_hessian_by_finite_differences_and_its_diagonal(case):
    given, scores, labels, weight = case
    _, diagonal = gradients(given, scores, labels, weight)
    whole = hessians(given, scores, labels, weight)
    for i in range(N):

        def slope(o, i=i):
            return gradients(given, o[None], labels[i : i + 1], weight[i : i + 1])[0][0]

        np.testing.assert_allclose(whole[i], approx_fprime(scores[i], slope, 1e-6), atol=1e-5)
    np.testing.assert_allclose(whole.diagonal(axis1=1, axis2=2), diagonal, rtol=1e-12)


def test_masses_make_the_loss(case):
    given, scores, labels, _ = case
    z = given.loss_scores(scores)
    log_p = np.log(softmax(z))
    np.testing.assert_allclose(-(masses(given, labels) * log_p).sum(axis=1), given.loss(scores, labels), rtol=1e-12)


def test_the_start_is_the_best_constant(case):
    given, _, labels, weight = case
    row = best_constant(given, labels, weight)
    slope, _ = gradients(given, np.tile(row, (N, 1)), labels, weight)
    np.testing.assert_allclose(slope.sum(axis=0), 0, atol=1e-12)
    assert abs(row.sum()) < 1e-12


def test_a_class_without_samples_has_no_start_but_by_smoothing():
    with pytest.raises(InputError, match="class 2 has no training sample"):
        TreeLoss(Strategy.of(3)).init_scores([0, 1, 1])
    assert np.isfinite(TreeLoss(Strategy.of(3, smoothing=[0.1] * 3)).init_scores([0, 1, 1])).all()


def test_catboost_s_loops_are_the_formula(case):
    given, scores, labels, weight = case
    climbed = catboost_loss(given)
    found, _ = gradients(given, scores, labels, weight)
    whole = hessians(given, scores, labels, weight)
    for i in range(N):
        first, second = climbed.calc_ders_multi(scores[i], float(labels[i]), weight[i])
        np.testing.assert_allclose(first, -found[i], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(second, -whole[i], rtol=1e-10, atol=1e-12)


def test_catboost_s_margin_of_two_classes_by_finite_differences():
    rng = np.random.default_rng(0)
    given, margins, labels = strategy(rng, 2), rng.normal(size=N), np.arange(N) % 2

    def loss(m, i):
        return given.loss(np.array([[-m[0] / 2, m[0] / 2]]), labels[i : i + 1])[0]

    found = catboost_loss(given).calc_ders_range(margins, labels.astype(np.float32), None)
    slopes = [approx_fprime(margins[i : i + 1], lambda m, i=i: loss(m, i), 1e-6)[0] for i in range(N)]
    np.testing.assert_allclose(found[:, 0], -np.array(slopes), atol=1e-5)
    step = 1e-4
    curve = [(loss([m + step], i) - 2 * loss([m], i) + loss([m - step], i)) / step**2 for i, m in enumerate(margins)]
    np.testing.assert_allclose(found[:, 1], -np.array(curve), atol=1e-5)


def test_reweighted_has_the_same_ideal_decisions():
    rng = np.random.default_rng(1)
    given, p = strategy(rng, smoothing=False), rng.dirichlet(np.ones(K))
    ideal = (np.log(given.omega) + np.log(p) - given.l) / given.delta
    other = given.reweighted(0.3)
    moved = (np.log(other.omega) + np.log(p) - other.l) / other.delta * given.delta
    difference = moved - ideal * given.delta
    np.testing.assert_allclose(difference, difference[0], atol=1e-12)
    np.testing.assert_array_equal(given.reweighted(0).omega, given.omega)
    np.testing.assert_array_equal(given.reweighted(1).l, np.zeros(K))
    with pytest.raises(InputError, match=r"share is 1\.5"):
        given.reweighted(1.5)


@pytest.mark.parametrize(
    ("scores", "y", "message"),
    [
        ([[0.0, 1.0]], [0], "2 columns|classes"),
        ([[0.0, 1.0, 2.0]], [3], "outside 0 … 2"),
        ([[0.0, 1, 2]], [0, 1], "2 labels"),
    ],
)
def test_what_cannot_be_is_refused(scores, y, message):
    with pytest.raises(InputError, match=message):
        TreeLoss(Strategy.of(3)).gradients(scores, y)

"""Gradient descent on the VS loss tends to the CS-SVM with δ = Δ₋/Δ₊, not to its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from capri import InputError
from capri_paper.theory.bridge import EQUAL, Pair, cs_svm, margin_ratio, margin_ratio_of_vs, vs_descent
from capri_paper.theory.simulation import draw

SAMPLE = draw(0.25, 1.0, 1.0, 2.0, 2.0, n=40, seed=1)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("multiplier", [Pair(0.5, 1.0), EQUAL, Pair(1.0, 0.5), Pair(0.4, 1.2)])
def test_descent_tends_to_the_cs_svm_of_the_ratio(multiplier):
    x, y = SAMPLE
    delta = margin_ratio_of_vs(multiplier)
    w = vs_descent(x, y, multiplier, steps=10_000)
    assert margin_ratio(w, x, y) == pytest.approx(delta, rel=0.05)
    assert cosine(w, cs_svm(x, y, delta)) > 0.9995
    if multiplier != EQUAL:
        assert cosine(w, cs_svm(x, y, 1 / delta)) < 0.95


def test_more_steps_come_closer():
    x, y = SAMPLE
    gaps = [abs(margin_ratio(vs_descent(x, y, Pair(0.5, 1.0), steps=steps), x, y) - 2) for steps in (300, 1000, 3000)]
    assert gaps[0] > gaps[1] > gaps[2]


def test_offsets_and_weights_do_not_move_the_limit():
    x, y = SAMPLE
    w = vs_descent(x, y, Pair(0.5, 1.0), offset=Pair(2.0, -1.0), weight=Pair(3.0, 0.2), steps=20_000)
    assert cosine(w, cs_svm(x, y, 2.0)) > 0.9995


def test_first_step_follows_the_plain_gradient():
    x, y = SAMPLE
    multiplier, offset, weight = Pair(0.5, 1.2), Pair(0.3, -0.4), Pair(2.0, 0.7)
    delta, lift, omega = (np.where(y > 0, p.plus, p.minus) for p in (multiplier, offset, weight))

    def loss(w: np.ndarray) -> float:
        return float(omega @ np.log1p(np.exp(lift - delta * y * (x @ w))))

    w = vs_descent(x, y, multiplier, offset=offset, weight=weight, steps=1)
    gradient = np.array([(loss(e) - loss(-e)) / 2e-6 for e in 1e-6 * np.eye(x.shape[1])])
    assert cosine(w, -gradient) == pytest.approx(1, abs=1e-8)
    rate = 1 / np.max(delta**2 * np.sum(x**2, axis=1))
    np.testing.assert_allclose(w, -rate * gradient / loss(np.zeros(x.shape[1])), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("delta", [0.3, 1.0, 4.0])
def test_cs_svm_against_a_general_solver(delta):
    x, y = draw(0.3, 1.0, 1.0, 1.0, 1.5, n=20, seed=3)
    wanted = np.where(y > 0, delta, 1.0)
    direct = minimize(
        lambda w: w @ w / 2,
        np.zeros(x.shape[1]),
        jac=lambda w: w,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda w: y * (x @ w) - wanted, "jac": lambda w: y[:, None] * x},
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    np.testing.assert_allclose(cs_svm(x, y, delta), direct, atol=1e-6)


def test_two_logits_do_not_feel_the_multipliers():
    """Cross-entropy on (Δ₊ o₊, Δ₋ o₋) with linear o sees only Δ₊w₊ − Δ₋w₋: the classifier is the plain SVM's.

    So the bridge belongs to the binary VS loss, where Δ goes by the sample's label.
    """
    x, y = SAMPLE

    def two_logit_descent(multiplier: Pair) -> np.ndarray:
        w_plus, w_minus = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for _ in range(2000):
            pull = (y * expit(-y * (x @ (multiplier.plus * w_plus - multiplier.minus * w_minus)))) @ x
            w_plus, w_minus = w_plus + 0.01 * multiplier.plus * pull, w_minus - 0.01 * multiplier.minus * pull
        return w_plus - w_minus

    svm = cs_svm(x, y, 1.0)
    for multiplier in (Pair(0.25, 1.0), Pair(1.0, 0.25)):
        w = two_logit_descent(multiplier)
        assert cosine(w, svm) > 0.97
        assert margin_ratio(w, x, y) == pytest.approx(1, abs=0.15)


def test_bad_input():
    x, y = SAMPLE
    with pytest.raises(InputError, match=r"y holds \[0, 1\]; label the classes"):
        vs_descent(x, (y + 1) // 2, EQUAL)
    with pytest.raises(InputError, match=r"x has shape \(40, 80\) and y \(3,\)"):
        cs_svm(x, y[:3], 1.0)
    with pytest.raises(InputError, match="not separable without an intercept"):
        cs_svm([[1.0], [2.0]], [1, -1], 1.0)

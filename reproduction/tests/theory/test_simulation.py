"""The limit against SVMs fitted at finite size, and the fitted slab against samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from capri import InputError
from capri_paper.theory import gmm, simulation
from capri_paper.theory.simulation import Sample

# π, s₊, s₋, R, d̄: strong and weak signal, easy and hard minority, δ* below 1, δ* infinite, many dimensions.
SETTINGS = [
    (0.1, 0.5**0.5, 1.0, 2.0, 1.0),
    (0.1, 1.0, 1.0, 2.0, 0.4),
    (0.1, 2.0, 1.0, 2.0, 1.0),
    (0.2, 0.5**0.5, 1.0, 2.0, 2.0),
    (0.1, 2.0**0.5, 1.0, 1.0, 1.0),
    (0.1, 1.0, 1.0, 1.0, 0.5),
    (0.4, 0.35, 1.0, 1.0, 0.5),
    (0.1, 2.0**0.5, 1.0, 2.0, 5.0),
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_fitted_svms_agree_with_the_limit(setting):
    limit, fitted = gmm.solve(*setting), simulation.measure(*setting, n=400, seeds=range(5))
    for delta in (1, 3, limit.delta_star):
        for theory, measured in zip(limit.errors(delta), fitted.errors(delta), strict=True):
            assert np.mean(measured) == pytest.approx(theory, abs=0.05)
    # κ*, not δ*: near its infinite values, δ* = (1+κ)/(1−κ) has no finite mean over draws.
    kappa = simulation.mean(fitted.free_kappa)
    assert kappa.value == pytest.approx(limit.slab.free_kappa, abs=0.1)
    assert kappa.error < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_fitted_svms_agree_with_the_limit_closely(setting):
    limit, fitted = gmm.solve(*setting), simulation.measure(*setting, n=1200, seeds=range(20))
    for delta in (1, 3, limit.delta_star):
        for theory, measured in zip(limit.errors(delta), fitted.errors(delta), strict=True):
            assert np.mean(measured) == pytest.approx(theory, abs=0.012)


def test_share_of_support_vectors():
    setting = (0.2, 1.4, 1.0, 2.0, 0.8)
    shares = []
    for seed in range(4):
        sample = simulation.draw(*setting, n=400, seed=seed)
        w, b = simulation.hard_margin_svm(sample)
        shares.append(np.mean(sample.y * (sample.x @ w + b) < 1 + 1e-3))
    assert np.mean(shares) == pytest.approx(gmm.solve(*setting).support, abs=0.02)


def test_errors_of_the_slab_against_counted_errors():
    """The fitted (w, b), moved to δ = 3 by hand, on a large test sample."""
    setting, delta = (0.3, 1.5, 0.8, 1.2, 1.5), 3.0
    w, b = simulation.hard_margin_svm(simulation.draw(*setting, n=200, seed=0))
    slab = simulation.measure(*setting, n=200, seeds=[0])
    scale = (delta + 1) / 2
    rng = np.random.default_rng(1)
    for y, s, error in ((1, setting[1], slab.errors(delta).plus), (-1, setting[2], slab.errors(delta).minus)):
        x = s * rng.standard_normal((20_000, len(w)))
        x[:, 0] += y * setting[3]
        counted = np.mean(y * (x @ (scale * w) + scale * b + (delta - 1) / 2) < 0)
        assert error[0] == pytest.approx(counted, abs=0.012)


def test_delta_shifts_the_intercept_and_nothing_else():
    """The CS-SVM solved directly at δ = 4, on data, against the SVM's (w, b) moved."""
    delta = 4.0
    x, y = sample = simulation.draw(0.3, 1.3, 1.0, 1.5, 1.2, n=20, seed=2)
    margins = np.where(y > 0, delta, 1.0)
    direct = minimize(
        lambda v: v[:-1] @ v[:-1] / 2,
        np.zeros(x.shape[1] + 1),
        jac=lambda v: np.append(v[:-1], 0.0),
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda v: y * (x @ v[:-1] + v[-1]) - margins,
            "jac": lambda v: y[:, None] * np.column_stack([x, np.ones(len(x))]),
        },
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    w, b = simulation.hard_margin_svm(sample)
    moved = np.append((delta + 1) / 2 * w, (delta + 1) / 2 * b + (delta - 1) / 2)
    np.testing.assert_allclose(direct, moved, atol=1e-4)


def test_a_sample_that_cannot_be_separated_is_nan():
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert simulation.hard_margin_svm(Sample(x, np.array([1, -1, 1, -1]))) is None
    slab = simulation.measure(0.5, 1.0, 1.0, 0.2, 0.1, n=60, seeds=range(2))
    assert np.isnan(slab.margin).all()
    assert np.isnan(slab.errors(2).risk).all()


def test_draws_are_seeded_and_have_fixed_class_counts():
    one, again = (simulation.draw(0.2, 1.0, 1.0, 2.0, 0.5, n=50, seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.x, again.x)
    assert one.x.shape == (50, 25)
    assert (one.y == 1).sum() == 10
    assert not np.array_equal(one.x, simulation.draw(0.2, 1.0, 1.0, 2.0, 0.5, n=50, seed=8).x)


def test_bad_input():
    with pytest.raises(InputError, match=r"n is 10: 0 samples of class \+1 .* Raise n"):
        simulation.draw(0.01, 1, 1, 1, 1, n=10)
    with pytest.raises(InputError, match="two seeds or more"):
        simulation.mean(np.array([1.0]))

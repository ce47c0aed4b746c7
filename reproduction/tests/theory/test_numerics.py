"""The rectified Gaussian's moments against high-precision figures, and the array-wise root finder."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from capri_paper.theory._numerics import inverse_log_psi1, log_psi1, rising_root


@pytest.mark.parametrize("h", [-6.0, -2.5, -0.1, 0.0, 0.7, 4.0, 30.0])
def test_log_psi1_and_its_slope_against_quadrature(h):
    mean, _ = quad(lambda g: (g + h) * norm.pdf(g), -h, max(-h, 0) + 12, epsabs=0, epsrel=1e-11)
    square, _ = quad(lambda g: (g + h) ** 2 * norm.pdf(g), -h, max(-h, 0) + 12, epsabs=0, epsrel=1e-11)
    if h > 12:  # the integral is cut at −h then; there the Gaussian is the whole of it
        mean, square = h, 1 + h**2
    value, slope = log_psi1(np.array(h))
    assert value == pytest.approx(np.log(mean), abs=1e-9)
    assert slope == pytest.approx(norm.cdf(h) / mean, rel=1e-9)
    assert (h + slope) * mean == pytest.approx(square, rel=1e-8)  # ψ₂ = (h + λ) ψ₁


@pytest.mark.parametrize("h", [-40.0, -99.9, -100.1, -1e4, -1e8])
def test_far_tail_against_its_asymptotic_series(h):
    x = -h
    series = -x * x / 2 - np.log(2 * np.pi) / 2 - 2 * np.log(x) + np.log1p(-3 / x**2 + 15 / x**4 - 105 / x**6)
    value, slope = log_psi1(np.array(h))
    assert value == pytest.approx(series, rel=1e-11)
    assert slope == pytest.approx(x + 2 / x, rel=10 / x**4 + 1e-10)


def test_inverse_over_the_whole_range():
    h = np.concatenate([-np.geomspace(1e-3, 1e6, 500), [0.0], np.geomspace(1e-3, 1e12, 500)])
    np.testing.assert_allclose(inverse_log_psi1(log_psi1(h)[0]), h, rtol=1e-9, atol=1e-12)


def test_the_logarithm_of_e1_has_slope_one_to_two_and_rising():
    """What makes Newton's steps on (E1) safe: 2/(λ(h+λ)) rises from 1 to 2."""
    h = np.concatenate([-np.geomspace(50, 1e-3, 400), np.geomspace(1e-3, 1e3, 400)])
    slope = log_psi1(h)[1]
    growth = 2 / (slope * (h + slope))
    assert growth[0] == pytest.approx(1, abs=2e-3)
    assert growth[-1] == pytest.approx(2, abs=2e-3)
    assert np.all(np.diff(growth) > -1e-9)


def test_root_finder_leaves_no_bracket_and_says_when_it_fails():
    # arctan throws Newton's plain steps further away each time; the bracket holds them.
    root = np.array([-3.0, 0.2, 7.5])
    found = rising_root(lambda x: (np.arctan(x - root), 1 / (1 + (x - root) ** 2)), np.full(3, 9.0), -10.0, 10.0)
    np.testing.assert_allclose(found, root, atol=1e-12)
    with pytest.raises(ArithmeticError, match="no root found"):
        rising_root(lambda x: (np.exp(x), np.exp(x)), np.zeros(1))

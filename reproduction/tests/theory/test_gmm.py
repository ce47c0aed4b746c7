"""The asymptotic solution against independent figures, direct numerical solutions and identities."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm

from capri import InputError
from capri_paper.theory import gmm
from capri_paper.theory.slab import best_threshold

SETTING = ("pi", "s_plus", "s_minus", "R", "dbar")
SHARED = Path(os.environ.get("CAPRI_SHARED", Path(__file__).parents[3].parent / "shared"))

# Facts from an independent derivation and solver, not output of this code; s₋ = 1 throughout. Columns:
# π s₊² R d̄, then d̄_sep q ρ b δ*, then Err₊ Err₋ at δ = 1, at δ = 3 and at δ*.
REFERENCE = """
0.1 0.5 2 1  0.014493 0.592411 0.438515 -0.404372 1.867198 0.129589 0.015269 0.010118 0.093581 0.032131 0.049218
0.1 1 2 1  0.027002 0.525420 0.352768 -0.576827 3.726200 0.403242 0.007331 0.115735 0.068241 0.089668 0.089668
0.2 0.5 2 1  0.018549 0.660755 0.506717 -0.233453 1.251963 0.047520 0.029576 0.003076 0.129163 0.028140 0.042923
0.2 1 2 1  0.037546 0.622967 0.445876 -0.369811 2.173654 0.201063 0.021429 0.050457 0.110764 0.076149 0.076149
0.1 0.5 2 0.4  0.014493 0.834481 0.660211 -0.490423 1.975948 0.079770 0.015002 0.012099 0.058109 0.024858 0.037781
0.1 1 2 0.4  0.027002 0.792592 0.587837 -0.621475 4.283670 0.242206 0.011682 0.091748 0.050858 0.068994 0.068994
0.2 0.5 2 2  0.018549 0.519217 0.374774 -0.198346 1.255721 0.066635 0.033954 0.002097 0.194170 0.035139 0.053997
0.2 1 2 2  0.037546 0.468230 0.307621 -0.373924 2.194500 0.303142 0.017319 0.056684 0.148077 0.094427 0.094427
0.1 0.25 2 1  0.007002 0.634343 0.499239 -0.277436 1.025734 0.011502 0.022142 0.000059 0.110631 0.010350 0.023220
0.1 4 2 1  0.058708 0.340181 0.161180 -0.932108 11.345206 0.814930 0.000113 0.564075 0.013283 0.368633 0.110425
0.2 4 2 0.5  0.095342 0.726969 0.448389 -0.773781 6.069732 0.466291 0.010782 0.334147 0.053678 0.281696 0.094836
0.1 0.5 1 1  0.142908 0.960640 0.498744 -0.736431 13.472814 0.636798 0.099259 0.349687 0.222047 0.179098 0.348763
0.1 2 1 1  0.137032 0.550580 0.190586 -1.094599 10.315653 0.877183 0.009792 0.698075 0.076919 0.541304 0.200737
0.1 1 1 0.5  0.144100 1.305629 0.664898 -1.256733 inf 0.674832 0.070537 0.528038 0.138111 0.377285 0.240128
0.1 2 4 2  0.000514 0.223870 0.162298 -0.460160 3.471481 0.275229 0.000000 0.014764 0.003245 0.009568 0.006452
0.4 0.1225 1 0.5  0.127632 2.206058 1.527009 -0.013169 0.620459 0.024961 0.242539 0.004551 0.318638 0.048731 0.210604
0.1 2 2 5  0.043216 0.196564 0.067930 -0.834108 8.666765 0.993995 0.000000 0.762129 0.008403 0.366464 0.184121
"""


def reference_row(line: str) -> tuple[dict[str, float], list[float]]:
    pi, v_plus, R, dbar, *values = map(float, line.split())
    return {"pi": pi, "s_plus": v_plus**0.5, "s_minus": 1.0, "R": R, "dbar": dbar}, values


REFERENCE_ROWS = [reference_row(line) for line in REFERENCE.strip().splitlines()]


def random_settings(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Settings from the middle of the range, separable or not."""
    rng = np.random.default_rng(seed)
    return {
        "pi": rng.uniform(0.02, 0.6, n),
        "s_plus": np.exp(rng.uniform(-1, 1, n)),
        "s_minus": np.exp(rng.uniform(-1, 1, n)),
        "R": rng.uniform(0, 4, n),
        "dbar": np.exp(rng.uniform(-2.5, 3, n)),
    }


def rows(settings: dict[str, np.ndarray]) -> list[dict[str, float]]:
    return [dict(zip(settings, map(float, values), strict=True)) for values in zip(*settings.values(), strict=True)]


# --------------------------------------------------------------------------------------------------------------------
# Independent figures


@pytest.mark.parametrize(("setting", "expected"), REFERENCE_ROWS)
def test_reference_figures(setting, expected):
    solution = gmm.solve(**setting)
    errors = [e for delta in (1, 3, solution.delta_star) for e in solution.errors(delta)[:2]]
    got = [solution.dbar_sep, solution.q, solution.rho, solution.b, solution.delta_star, *errors]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    assert solution.separable
    assert solution.status == ("infinite" if np.isinf(expected[4]) else "finite")


@pytest.mark.data
def test_every_figure_of_the_shared_reference_file():
    path = SHARED / "theory" / "reference.json"
    if not path.exists():
        pytest.skip(f"no {path}; set CAPRI_SHARED to the folder that holds theory/reference.json")
    for entry in json.loads(path.read_text())["settings"]:
        solution = gmm.solve(*(entry[name] for name in SETTING))
        limit = gmm.solve(*(entry[name] for name in SETTING[:4]), 1e10).delta_star
        got = {
            "separable": solution.separable,
            "dbar_separable": solution.dbar_sep,
            "q": solution.q,
            "rho": solution.rho,
            "b": solution.b,
            "h_plus": solution.h_plus,
            "h_minus": solution.h_minus,
            "cos_w_mu": solution.cosine,
            "margin": solution.slab.margin,
            "beta": solution.slab.offset,
            "t_star": solution.slab.offset + solution.slab.free_kappa * solution.slab.margin,
            "delta_star": solution.delta_star,
            "kappa_star_free": solution.slab.free_kappa,
        }
        for at, delta in (("d1", 1), ("d3", 3), ("opt", solution.delta_star)):
            errors = solution.errors(delta)
            got |= {f"err_plus_at_{at}": errors.plus, f"err_minus_at_{at}": errors.minus, f"bal_at_{at}": errors.risk}
        theory = entry["theory"]
        assert set(theory) == {*got, "status", "delta_star_limit_dbar_inf"}
        for name, value in got.items():
            assert float(value) == pytest.approx(float(theory[name]), rel=0, abs=1e-5), (entry["tag"], name)
        assert {"finite": "finite", "infinite": "inf"}[str(solution.status)] == theory["status"]
        assert limit == pytest.approx(theory["delta_star_limit_dbar_inf"], rel=1e-3)


# --------------------------------------------------------------------------------------------------------------------
# Direct numerical solutions, for settings unknown to the code


def direct_solution(delta: float, pi, s_plus, s_minus, R, dbar) -> np.ndarray:
    """(q, ρ, b) of min q s.t. E(qG + (m_Y − Rρ − Yb)/s_Y)₊² ≤ d̄(q² − ρ²), by SLSQP; the expectation is a sum."""
    g = np.linspace(-9, 9, 2001)
    weight = norm.pdf(g) * (g[1] - g[0])

    def slack(v: np.ndarray) -> float:
        q, rho, b = v
        plus = np.maximum(q * g + (delta - R * rho - b) / s_plus, 0) ** 2 @ weight
        minus = np.maximum(q * g + (1 - R * rho + b) / s_minus, 0) ** 2 @ weight
        return dbar * (q**2 - rho**2) - pi * plus - (1 - pi) * minus

    constraints = [{"type": "ineq", "fun": slack}, {"type": "ineq", "fun": lambda v: v[0] - abs(v[1])}]
    found = [
        minimize(
            lambda v: v[0], start, method="SLSQP", constraints=constraints, options={"ftol": 1e-13, "maxiter": 500}
        )
        for start in ([2.0, 1.0, 0.0], [0.5, 0.2, -0.5])
    ]
    best = min((f for f in found if slack(f.x) > -1e-8), key=lambda f: f.fun)
    return best.x


def separable_rows(n: int, seed: int) -> list[dict[str, float]]:
    """Random settings well inside the separable regime, where q is not huge."""
    settings = random_settings(20 * n, seed)
    clear = gmm.solve(**settings).dbar_sep < settings["dbar"] / 1.5
    return rows({name: values[clear][:n] for name, values in settings.items()})


@pytest.mark.parametrize("setting", separable_rows(12, seed=3))
@pytest.mark.parametrize("delta", [1.0, 0.4, 5.0])
def test_direct_solution_of_the_three_variable_problem(setting, delta):
    solution, (q, rho, b) = gmm.solve(**setting), direct_solution(delta, **setting)
    scale = (delta + 1) / 2  # δ scales (w, b) and shifts b
    expected = [scale * solution.q, scale * solution.rho, scale * solution.b + (delta - 1) / 2]
    np.testing.assert_allclose([q, rho, b], expected, rtol=1e-4, atol=1e-4)
    errors = [norm.cdf(-(setting["R"] * rho + b) / q / setting["s_plus"])]
    errors += [norm.cdf(-(setting["R"] * rho - b) / q / setting["s_minus"])]
    np.testing.assert_allclose(solution.errors(delta)[:2], errors, atol=1e-4)


@pytest.mark.parametrize("setting", rows(random_settings(12, seed=4)))
def test_separability_threshold_is_the_least_value_of_its_convex_problem(setting):
    g = np.linspace(-9, 9, 2001)
    weight = norm.pdf(g) * (g[1] - g[0])

    def squares(v: np.ndarray) -> float:
        t, b = v
        plus, minus = (
            np.maximum(np.hypot(1, t) * g - (setting["R"] * t + y * b) / s, 0) ** 2 @ weight
            for y, s in ((1, setting["s_plus"]), (-1, setting["s_minus"]))
        )
        return setting["pi"] * plus + (1 - setting["pi"]) * minus

    least = minimize(
        squares, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}
    )
    assert gmm.solve(**setting).dbar_sep == pytest.approx(least.fun, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (0.1, 0.9), (1.0, 40.0)])
def test_no_delta_of_a_fine_grid_beats_delta_star(weights):
    settings = random_settings(3000, seed=5)
    solution = gmm.solve(**settings, weights=weights)
    grid = np.linspace(-1, 1, 2001)[:, None]
    on_grid = solution.slab.errors_at(grid).risk
    settled = np.isin(solution.status, ["finite", "infinite", "zero"])
    best = np.nanmin(on_grid[:, settled], axis=0)
    at_star = solution.errors(solution.delta_star).risk[settled]
    assert np.all(at_star <= best + 1e-12)
    assert np.max(best - at_star) < 1e-4  # and the grid comes close: the value is attained
    assert {"finite", "not separable"} < set(solution.status)  # and an end of the slab is among the cases


def test_a_stationary_delta_agrees_with_a_scalar_minimiser():
    solution = gmm.solve(0.13, 1.7, 0.8, 2.4, 0.9, weights=(2, 1))
    found = minimize_scalar(lambda k: solution.slab.errors_at(k).risk, bounds=(-1, 1), options={"xatol": 1e-10})
    assert solution.status == "finite"
    assert solution.kappa_star == pytest.approx(found.x, abs=1e-6)


# --------------------------------------------------------------------------------------------------------------------
# Identities


def test_equal_noise_gives_delta_star_from_the_intercept_alone():
    solution = gmm.solve([0.05, 0.2, 0.4], 0.7, 0.7, 2.0, 1.3)
    np.testing.assert_allclose(solution.delta_star, (1 - solution.b) / (1 + solution.b), rtol=1e-12)
    assert np.all(solution.delta_star > 1)


@pytest.mark.parametrize("s", [0.3, 1.0, 5.0])
def test_covers_threshold_without_signal(s):
    assert gmm.solve(0.5, s, s, 0, 1).dbar_sep == pytest.approx(0.5, abs=1e-14)


def test_limit_of_many_dimensions():
    pi, s_plus, s_minus = 0.1, np.array([0.5, 1.0, 2.0]), 0.8
    limit = (1 - pi) / pi * (s_plus / s_minus) ** 2
    gaps = [np.abs(gmm.solve(pi, s_plus, s_minus, 2, dbar).delta_star / limit - 1) for dbar in (1e4, 1e6, 1e8)]
    assert np.all(gaps[2] < 2e-3)
    # The corrections are of order d̄^(−1/2): a hundred times d̄, a tenth of the gap.
    np.testing.assert_allclose(gaps[1] / gaps[2], 10, rtol=0.05)


def test_solution_satisfies_the_equations_and_counts_support_vectors():
    settings = random_settings(400, seed=6)
    pi, s_plus, s_minus, R, dbar = settings.values()
    solution = gmm.solve(**settings)
    ok = solution.separable
    hp, hm = solution.h_plus, solution.h_minus
    psi1 = lambda h: h * norm.cdf(h) + norm.pdf(h)  # noqa: E731
    psi2 = lambda h: (1 + h**2) * norm.cdf(h) + h * norm.pdf(h)  # noqa: E731
    e1 = pi * psi2(hp) + (1 - pi) * psi2(hm) - dbar * (1 - solution.cosine**2)
    e2 = pi * psi1(hp) / s_plus - (1 - pi) * psi1(hm) / s_minus
    e3 = dbar * solution.cosine - 2 * R * pi * psi1(hp) / s_plus
    np.testing.assert_allclose(np.stack([e1, e2, e3])[:, ok] / dbar[ok], 0, atol=1e-12)
    margin = (dbar - solution.support) / (2 * pi * psi1(hp) / s_plus)
    np.testing.assert_allclose(solution.slab.margin[ok], margin[ok], rtol=1e-9, atol=1e-12)


def test_threshold_and_margin_agree_on_separability():
    settings = random_settings(2000, seed=7)
    solution = gmm.solve(**settings)
    np.testing.assert_array_equal(solution.separable, settings["dbar"] > solution.dbar_sep)
    for factor, separable in ((1 + 1e-6, True), (1 - 1e-6, False)):
        just = settings | {"dbar": np.maximum(factor * solution.dbar_sep, 1e-10)}
        reached = just["dbar"] > 1e-10
        assert reached.sum() > 1900
        assert np.all(gmm.solve(**just).separable[reached] == separable)


def test_swapping_the_classes_inverts_delta_star():
    settings = random_settings(200, seed=8)
    swapped = {**settings, "pi": 1 - settings["pi"], "s_plus": settings["s_minus"], "s_minus": settings["s_plus"]}
    one, other = gmm.solve(**settings, weights=(1, 3)), gmm.solve(**swapped, weights=(3, 1))
    np.testing.assert_allclose(one.kappa_star, -other.kappa_star, atol=1e-9)
    np.testing.assert_allclose(one.errors(4).plus, other.errors(0.25).minus, atol=1e-12)


def test_only_ratios_of_lengths_matter():
    settings = random_settings(200, seed=9)
    scaled = {name: v * 37 if name in ("R", "s_plus", "s_minus") else v for name, v in settings.items()}
    np.testing.assert_allclose(gmm.solve(**scaled).kappa_star, gmm.solve(**settings).kappa_star, atol=1e-9)


def test_a_grid_equals_its_settings_one_by_one():
    pi, dbar = np.array([0.02, 0.3])[:, None], np.array([0.05, 0.5, 5.0])
    grid = gmm.solve(pi, 1.2, 1, 1.5, dbar)
    assert grid.status.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        alone = gmm.solve(pi[i, 0], 1.2, 1, 1.5, dbar[j])
        assert np.ndim(alone.q) == np.ndim(alone.dbar_sep) == np.ndim(alone.status) == 0
        assert alone.status == grid.status[i, j]
        np.testing.assert_allclose(alone.delta_star, grid.delta_star[i, j], rtol=1e-12)
        np.testing.assert_allclose(alone.errors(2), [e[i, j] for e in grid.errors(2)], rtol=1e-12)


# --------------------------------------------------------------------------------------------------------------------
# Cases and extremes


def test_cases_of_delta_star():
    assert gmm.solve(0.1, 1, 1, 1, 0.5).status == "infinite"
    assert gmm.solve(0.1, 1, 1, 1, 0.1).status == "not separable"
    assert gmm.solve(0.1, 1, 1, 0, 3).status == "undefined"
    zero = gmm.solve(0.4, 2.5, 1, 1.1, 0.31)  # a noisy minority just above the separability threshold
    assert zero.status == "zero"
    assert zero.delta_star == 0
    assert zero.errors(0).risk < zero.errors(1e-3).risk
    no_minimum = gmm.solve(0.1, 1, 1, 1, 0.5)
    assert no_minimum.errors(np.inf).risk < no_minimum.errors(1e6).risk < no_minimum.errors(1e3).risk


def test_not_separable_is_nan_throughout():
    solution = gmm.solve(0.1, 1, 1, 1, 0.1)
    for name in ("q", "rho", "b", "h_plus", "h_minus", "cosine", "support", "kappa_star", "delta_star"):
        assert np.isnan(getattr(solution, name)), name
    assert np.isnan(solution.errors(2)).all()
    assert not solution.separable
    assert solution.dbar_sep > 0.1


def test_worse_than_chance_is_flagged():
    solution = gmm.solve(0.02, 0.77, 1, 0.41, 0.53)
    assert solution.hopeless
    assert solution.errors(solution.delta_star).risk > 0.5
    # Here the end that is nearer to the free minimum is the worse one.
    assert solution.slab.free_kappa > 1
    assert solution.kappa_star == -1
    assert not gmm.solve(0.1, 1, 1, 2, 1).hopeless
    assert gmm.solve(0.1, 1, 1, 0, 3).hopeless  # no signal: every δ errs one half


def test_without_signal_and_with_equal_noise_the_weights_decide():
    assert gmm.solve(0.3, 1, 1, 0, 3, weights=(2, 1)).status == "infinite"
    assert gmm.solve(0.3, 1, 1, 0, 3, weights=(1, 2)).status == "zero"


@pytest.mark.parametrize("weights", [(1, 1), (1e-3, 1), (50, 1)])
def test_extreme_settings_are_finite_or_flagged(weights):
    pi, ratio, R, dbar = np.meshgrid(
        [1e-4, 1e-2, 0.1, 0.5, 0.9, 0.999],
        [0.05, 0.3, 1, 3, 20],
        [0, 1e-8, 0.1, 1, 3, 10, 30],
        np.geomspace(1e-3, 1e6, 19),
        indexing="ij",
    )
    solution = gmm.solve(pi, ratio, 1, R, dbar, weights=weights)
    separable = solution.status != "not separable"
    np.testing.assert_array_equal(separable, solution.separable)
    for name in ("q", "rho", "b", "cosine", "support"):
        assert np.isfinite(getattr(solution, name)[separable]).all(), name
    for delta in (0, 1, solution.delta_star, np.inf):
        for errors in solution.errors(delta):
            defined = separable & (solution.status != "undefined")
            assert ((errors[defined] >= 0) & (errors[defined] <= 1)).all()
    delta_star = solution.delta_star
    finite = solution.status == "finite"
    assert (np.isfinite(delta_star[finite]) & (delta_star[finite] > 0)).all()
    assert np.isinf(delta_star[solution.status == "infinite"]).all()
    assert (delta_star[solution.status == "zero"] == 0).all()
    assert np.isnan(delta_star[~separable | (solution.status == "undefined")]).all()
    assert (solution.dbar_sep >= 0).all()


def test_corners_of_the_domain():
    corners = np.meshgrid(
        [1e-10, 0.5, 1 - 1e-10], [1e-4, 1, 1e4], [1e-4, 1, 1e4], [0, 1e-300, 1, 1e4], [1e-10, 1, 1e10], indexing="ij"
    )
    solution = gmm.solve(*corners, weights=(1e10, 1e-10))
    assert np.isfinite(solution.q[solution.separable]).all()
    assert not np.isnan(solution.delta_star[solution.separable]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pi": 0}, r"pi is 0; it must be a probability strictly between 0 and 1"),
        ({"pi": [0.1, 1.0]}, r"pi is 1; "),
        ({"s_plus": -1}, r"s_plus is -1; it must be a standard deviation .* rescale"),
        ({"s_minus": np.nan}, r"s_minus is nan"),
        ({"R": -0.5}, r"R is -0.5; it must be a norm"),
        ({"dbar": np.inf}, r"dbar is inf; it must be a ratio d/n"),
        ({"dbar": "many"}, r"dbar is 'many'; give numbers"),
        ({"pi": [0.1, 0.2], "dbar": [1, 2, 3]}, r"shapes do not broadcast: pi \(2,\).*dbar\[:, None\]"),
        ({"weights": 3}, r"weights is 3; give two"),
        ({"weights": (1, 0)}, r"weights is 0; it must be a positive weight"),
        ({"weights": (1, [1, 2])}, r"weights of shapes \(\) and \(2,\) do not broadcast"),
    ],
)
def test_bad_input_names_argument_value_and_remedy(change, message):
    with pytest.raises(InputError, match=message):
        gmm.solve(**({"pi": 0.1, "s_plus": 1, "s_minus": 1, "R": 2, "dbar": 1} | change))


def test_a_negative_delta_is_refused():
    with pytest.raises(InputError, match=r"delta is -0.5; .* call errors_at"):
        gmm.solve(0.1, 1, 1, 2, 1).errors([1, -0.5])


# --------------------------------------------------------------------------------------------------------------------
# The paper's claims


def test_delta_star_grows_with_noise_and_imbalance_where_the_signal_is_strong():
    ratios, samples = np.geomspace(0.5, 2, 21)[:, None, None], np.geomspace(0.05, 4, 40)
    solution = gmm.solve(np.array([0.1, 0.2])[:, None], np.sqrt(ratios), 1, 2, 1 / samples)
    assert (solution.status == "finite").all()
    assert (np.diff(solution.delta_star, axis=0) > 0).all()
    assert (np.diff(solution.delta_star, axis=1) < 0).all()


def test_the_claim_reverses_where_the_signal_is_weak():
    easy, equal, hard = gmm.solve(0.1, np.sqrt([0.5, 1, 2]), 1, 1, 1).delta_star
    assert hard < easy < equal


@pytest.mark.parametrize(("R", "holds"), [(1.0, False), (1.4, False), (1.6, True), (2.0, True), (4.0, True)])
def test_how_much_signal_the_claim_takes(R, holds):
    ratios = np.geomspace(0.5, 2, 21)[:, None, None]
    solution = gmm.solve(np.array([0.1, 0.2])[:, None], np.sqrt(ratios), 1, R, np.geomspace(0.01, 100, 60))
    falls = (np.diff(solution.kappa_star, axis=0) < 0).any(axis=0) & solution.separable.all(axis=0)
    assert falls.any() != holds


def test_delta_star_has_a_minimum_in_the_sample_size_and_then_grows_without_bound():
    delta = gmm.solve(0.1, 1, 1, 2, 1 / np.array([0.05, 0.5, 1, 4, 9.3, 9.4])).delta_star
    assert np.argmin(delta) == 2
    assert delta[4] > 100
    assert np.isinf(delta[5])


def test_the_best_threshold_moves_against_the_noisier_class_under_a_weak_signal():
    for signal, direction in ((2.0, 1), (0.5, -1)):
        for ratio in (0.9, 1.1):
            shift = best_threshold(np.array(signal), ratio**0.5, ratio**-0.5)
            assert shift == pytest.approx(np.log(ratio) / 2 * (signal**2 - 1) / signal, rel=0.05)
            assert np.sign(shift) == direction * np.sign(ratio - 1)

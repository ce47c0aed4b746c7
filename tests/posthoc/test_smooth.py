"""The smooth search: gradients against differences, the paper's descent, and L-BFGS with a penalty."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from capri.errors import soft_class_errors
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import Surrogate, first_order, has_soft_twin, median_margin, minimise_offsets

OBJECTIVES = ["plain", "balanced", "weighted", "sdev", "cvar:0.4", "quantile:0.4", "worst_group", "mix:0.5", "gmean"]
ON_CONFUSION = ["macro_f1", "weighted_f1", "f1[3]", "precision[0]", "kappa", "mcc"]


def square_sum(errors):
    return float((errors**2).sum())


def pose(tail, objective="balanced", **keywords):
    k = tail.n_classes
    known = {"weights": np.linspace(1, 2, k), "groups": np.arange(k) % 2}
    return Problem(tail.scores, tail.y, objective, **known, **keywords)


class TestGradients:
    @pytest.mark.parametrize("objective", [*OBJECTIVES, "balanced+0.3*worst", square_sum, *ON_CONFUSION])
    @pytest.mark.parametrize("of", ["l", "delta"])
    def test_are_the_differences_of_the_value(self, tail, rng, objective, of):
        surrogate = Surrogate(pose(tail, objective, sample_weight=rng.uniform(0.5, 2, len(tail.y))))
        self.agrees(surrogate, Adjustment(rng.uniform(0.7, 1.5, 5), rng.normal(size=5)), of)

    @pytest.mark.parametrize("of", ["l", "delta"])
    def test_hold_where_constraints_are_violated(self, tail, rng, of):
        limits = ["plain <= 0.01", "err[0] <= baseline", "worst <= 0.1"]
        surrogate = Surrogate(pose(tail, "sdev", constraints=limits))
        adjustment = Adjustment.offsets(rng.normal(size=5))
        free = Surrogate(pose(tail, "sdev"))
        assert surrogate.gradient(adjustment)[0] > free.gradient(adjustment)[0] + 0.1
        self.agrees(surrogate, adjustment, of)

    def test_limits_are_moved_from_hard_to_soft_errors(self, tail):
        limits = ["plain <= baseline", "worst <= baseline", "err[0] <= baseline + 0.1"]
        held, free = Surrogate(pose(tail, "sdev", constraints=limits)), Surrogate(pose(tail, "sdev"))
        neutral = Adjustment.neutral(5)
        assert held.gradient(neutral)[0] == pytest.approx(free.gradient(neutral)[0])  # met at the start
        soft = free.errors(neutral)
        assert [limit for _, limit in held.limits] == pytest.approx([soft.mean(), soft.max(), soft[0] + 0.1])

    def test_of_absent_classes_count_for_their_scores_only(self, tail):
        here = tail.y != 3
        with pytest.warns(UserWarning, match="class 3"):
            problem = Problem(tail.scores[here], tail.y[here], "cvar:0.5", absent="ignore")
        surrogate = Surrogate(problem)
        assert surrogate.errors(Adjustment.neutral(5)).shape == (4,)
        self.agrees(surrogate, Adjustment.offsets(np.linspace(-1, 1, 5)), "l")

    @staticmethod
    def agrees(surrogate, here, of):
        value, gradient = surrogate.gradient(here, of)
        numeric = approx_fprime(getattr(here, of), lambda x: surrogate.gradient(here._replace(**{of: x}))[0], 1e-7)
        assert np.abs(gradient).max() > 1e-4
        np.testing.assert_allclose(gradient, numeric, atol=2e-4 * max(1.0, np.abs(gradient).max()))
        assert value == surrogate.at(here)


class TestSurrogate:
    def test_soft_errors_are_those_of_the_sharpened_scores(self, tail, rng):
        weight = rng.uniform(0.5, 2, len(tail.y))
        surrogate = Surrogate(pose(tail, sample_weight=weight))
        m, l = rng.uniform(0.5, 2, 5), rng.normal(size=5)
        expected = soft_class_errors(surrogate.sharpness * (tail.scores * m - l), tail.y, weight)
        np.testing.assert_allclose(surrogate.errors(Adjustment(m, l)), expected)

    def test_far_scores_count_for_nothing_and_do_no_harm(self, tail):
        surrogate = Surrogate(pose(tail))
        near = surrogate.gradient(Adjustment.offsets(np.array([0, 0, 0, 0, 60.0])))
        far = surrogate.gradient(Adjustment.offsets(np.array([0, 0, 0, 0, 1e6])))
        assert far[0] == pytest.approx(near[0], abs=1e-9)
        np.testing.assert_allclose(far[1], near[1], atol=1e-9)

    def test_sharpness_makes_the_unit_of_scores_irrelevant(self, tail):
        small = Problem(1e-3 * tail.scores, tail.y)
        assert median_margin(small) == pytest.approx(1e-3 * median_margin(pose(tail)))
        np.testing.assert_allclose(
            Surrogate(small).errors(Adjustment.offsets(1e-3 * np.arange(5))),
            Surrogate(pose(tail)).errors(Adjustment.offsets(np.arange(5.0))),
        )

    def test_float32_scores_give_nearly_the_same(self, tail):
        single = Problem(tail.scores.astype(np.float32), tail.y)
        adjustment = Adjustment.offsets(np.log(tail.counts))
        value, gradient = Surrogate(single).gradient(adjustment)
        expected_value, expected = Surrogate(Problem(tail.scores, tail.y)).gradient(adjustment)
        assert value == pytest.approx(expected_value, abs=1e-5)
        np.testing.assert_allclose(gradient, expected, atol=1e-5)

    def test_functions_of_the_confusion_matrix_go_by_the_balanced_error(self, tail):
        custom = confusion_objective(lambda m: float(m[0, 1]))
        value, gradient = Surrogate(pose(tail, custom)).gradient(Adjustment.neutral(5))
        expected_value, expected = Surrogate(pose(tail, "balanced")).gradient(Adjustment.neutral(5))
        assert value == expected_value
        np.testing.assert_array_equal(gradient, expected)

    def test_costs_go_by_the_error_that_they_weight(self, tail):
        prices = np.array([1.0, 2, 3, 4, 5])
        costs = expected_cost(prices[:, None] * (1 - np.eye(5)))  # whatever it is mistaken for: no more than errors
        neutral = Adjustment.neutral(5)
        cost, error = Surrogate(pose(tail, costs)), Surrogate(Problem(tail.scores, tail.y, "weighted", weights=prices))
        value, gradient = cost.gradient(neutral)
        expected_value, expected = error.gradient(neutral)
        assert value == pytest.approx(3 * expected_value)  # weights have mean 1, prices 3
        np.testing.assert_allclose(gradient, 3 * expected)
        assert not has_soft_twin(pose(tail, costs).objective)
        assert all(has_soft_twin(pose(tail, name).objective) for name in [*OBJECTIVES, *ON_CONFUSION, square_sum])


class TestFirstOrder:
    @pytest.mark.parametrize("of", ["l", "delta"])
    def test_keeps_the_history_of_every_step_and_descends(self, tail, of):
        problem = pose(tail)
        basis = np.log(tail.counts)[:, None] - np.log(tail.counts).mean()
        run = first_order(problem, basis, of=of, steps=60)
        assert run.history.shape == (60, 2)
        start = Surrogate(problem).at(problem.neutral)
        assert run.history[0] == pytest.approx([start, problem.worth(problem.neutral).value])
        assert run.history[-1, 0] < run.history[0, 0] - 0.01
        assert run.history[-1, 1] < run.history[0, 1]

    def test_a_step_goes_against_the_gradient(self, tail):
        problem, basis = pose(tail), np.eye(5)
        _, slope = Surrogate(problem).gradient(Adjustment.neutral(5))
        np.testing.assert_allclose(first_order(problem, basis, steps=1, rate=0.1).w, -0.1 * slope)
        twice = first_order(problem, basis, steps=2, rate=0.1, momentum=0.5).w
        _, second = Surrogate(problem).gradient(Adjustment.offsets(-0.1 * slope))
        np.testing.assert_allclose(twice, -0.1 * slope - 0.05 * slope - 0.1 * second)

    def test_the_history_may_watch_other_data(self, tail, tail_of):
        other = Problem(tail_of(seed=1).scores, tail.y)
        run = first_order(pose(tail), np.eye(5), steps=3, watch=other)
        unwatched = first_order(pose(tail), np.eye(5), steps=3)
        np.testing.assert_array_equal(run.w, unwatched.w)
        assert run.history[0, 1] == pytest.approx(other.worth(other.neutral).value)
        assert run.history[0, 0] != unwatched.history[0, 0]


class TestPenalty:
    @pytest.fixture
    def residual(self, tail):
        """What a shift and the line of frequencies do not express."""
        basis = np.column_stack([np.ones(5), np.log(tail.counts)])
        return np.eye(5) - basis @ np.linalg.pinv(basis)

    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4"])
    def test_a_strong_one_leaves_the_prior_alone_and_a_weak_one_the_free_optimum(self, tail, residual, objective):
        problem, eye, start = pose(tail, objective), np.eye(5), np.zeros(5)
        strong = minimise_offsets(problem, eye, start, penalty=1e3 * residual, max_iterations=200)
        assert np.abs(residual @ strong).max() < 1e-3
        free = minimise_offsets(problem, eye, start, max_iterations=200)
        weak = minimise_offsets(problem, eye, start, penalty=1e-4 * residual, max_iterations=200)
        value = Surrogate(problem).at(Adjustment.offsets(weak))
        assert value == pytest.approx(Surrogate(problem).at(Adjustment.offsets(free)), abs=2e-3)
        assert np.abs(residual @ weak).max() > 0.05

    @pytest.mark.parametrize("centre", [None, np.array([1.0, -1, 0, 2, 0])])
    def test_a_minimum_has_no_gradient(self, tail, residual, centre):
        problem, known = pose(tail), {"penalty": 0.3 * residual, "centre": centre, "max_iterations": 200}
        l = minimise_offsets(problem, np.eye(5), np.zeros(5), **known)
        pull = 2 * 0.09 * residual.T @ residual @ (l - (0 if centre is None else centre))
        assert np.abs(Surrogate(problem).gradient(Adjustment.offsets(l))[1] + pull).max() < 2e-3
        assert np.abs(pull).max() > 5e-3

    def test_a_basis_without_columns_has_nothing_to_move(self, tail):
        assert minimise_offsets(pose(tail), np.zeros((5, 0)), np.zeros(0)).shape == (0,)

"""Partial pooling: between the calibrated answer and one free offset per class."""

import numpy as np
import pytest

from capri.evidence import Evidence
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc import pooling
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.calibration import importance
from capri.posthoc.methods import Task, tune
from capri.posthoc.pooling import SHARED, Prior, default_strength, make_feasible, pool, weights
from capri.posthoc.problem import Problem


def informed(tail, objective="balanced", **keywords):
    """The task that `tune` hands to pooling."""
    problem = Problem(tail.scores, tail.y, objective, **keywords)
    return Task(problem, Evidence(class_counts=tail.counts), borrow=20.0).informed


def pooled(task, strength):
    return pool(task.problem, task.prior(), task.line, strength)


def centred(l):
    return l - l.mean()


class TestPrior:
    def test_its_penalty_is_the_mean_square_of_deviations_and_residuals(self, rng):
        columns, centre, l = rng.normal(size=(7, 2)), rng.normal(size=7), rng.normal(size=7)
        strength, scale = 3.0, 0.7
        A = Prior(columns, centre, scale).penalty(strength)
        deviation = scale * (l - centre)
        basis = np.column_stack([np.ones(7), columns])
        residual = deviation - basis @ np.linalg.lstsq(basis, deviation, rcond=None)[0]
        expected = strength * np.mean(SHARED * centred(deviation) ** 2 + residual**2)
        assert np.sum((A @ (l - centre)) ** 2) == pytest.approx(expected)
        np.testing.assert_allclose(A @ np.ones(7), 0, atol=1e-12)  # a common shift costs nothing

    def test_what_the_columns_express_costs_little(self, rng):
        columns = rng.normal(size=(7, 2))
        A = Prior(columns, np.zeros(7), 1.0).penalty(1.0)
        shared = columns @ [2.0, -1.0]
        assert np.sum((A @ shared) ** 2) == pytest.approx(SHARED * np.var(shared))

    def test_fewer_samples_per_class_pool_more(self, tail_of):
        sizes = (tail_of(per_class=5), tail_of(per_class=50))
        few, many = (default_strength(Problem(t.scores, t.y, "sdev")) for t in sizes)
        assert few == pytest.approx(pooling.UNIT / 5**2)
        assert many == pytest.approx(pooling.UNIT / 50**2)

    def test_a_sum_of_class_errors_trusts_the_calibrated_answer_longer(self, tail_of):
        tail = tail_of(per_class=50)
        linear, other = (default_strength(Problem(tail.scores, tail.y, o)) for o in ("balanced", "cvar:0.4"))
        assert linear == pytest.approx(other + pooling.SURE / 50)

    def test_samples_without_weight_do_not_count(self, tail):
        problem = Problem(tail.scores, tail.y, "sdev", sample_weight=np.arange(150) % 3 == 0)
        assert default_strength(problem) == pytest.approx(pooling.UNIT / 10**2)


class TestPool:
    def test_runs_from_the_calibrated_answer_to_free_offsets(self, tail):
        task = informed(tail, "sdev")
        centre = centred(task.prior().centre)
        found = [pooled(task, strength) for strength in (1e5, 1e-3)]
        distance = [np.linalg.norm(centred(f.adjustment.l) - centre) for f in found]
        assert distance[0] < 1e-2
        assert distance[1] > 0.1
        assert found[1].worth.better_than(found[0].worth)

    def test_says_how(self, tail):
        task = informed(tail)
        found = pooled(task, 0.5)
        known = task.calibration
        said = f"T = {known.temperature:.3g}, {known.word:.0%} at its word, λ = 0.5"
        assert found.reason == f"pooled around the calibrated answer ({said})"
        assert found.worth == task.problem.worth(found.adjustment)

    def test_is_w_and_residual_and_a_shift(self, tail):
        task = informed(tail)
        columns, found = task.prior().columns, pooled(task, 0.1)
        rest = found.weights["residual"]
        expected = columns @ found.weights["l"] + rest
        np.testing.assert_allclose(centred(expected), centred(found.adjustment.l), atol=1e-9)
        np.testing.assert_allclose(np.column_stack([np.ones(5), columns]).T @ rest, 0, atol=1e-9)

    def test_weights_are_least_squares(self, rng):
        columns, l = rng.normal(size=(6, 2)), rng.normal(size=6)
        found = weights(columns, l)
        expected = np.linalg.lstsq(columns - columns.mean(axis=0), centred(l), rcond=None)[0]
        np.testing.assert_allclose(found["l"], expected)
        np.testing.assert_allclose(weights(columns, columns @ [1.0, 2] + 3)["residual"], 0, atol=1e-12)

    @pytest.mark.parametrize(
        "objective", [expected_cost(1 - np.eye(5)), confusion_objective(lambda m: float(m[4, :4].sum() / m.sum()))]
    )
    def test_what_has_no_soft_twin_is_searched_exactly(self, tail, objective):
        task = informed(tail, objective)
        found = pooled(task, 1.0)
        smooth = pooled(informed(tail), 1.0)
        assert not task.problem.worth(smooth.adjustment).better_than(found.worth)
        np.testing.assert_array_equal(found.adjustment.l, pooled(task, 1.0).adjustment.l)

    @pytest.mark.parametrize("line", [True, False])
    @pytest.mark.parametrize("constraint", ["err[0] <= baseline + 0.05", "precision[4] >= 0.8", "plain <= baseline"])
    def test_constraints_are_met_by_the_estimate(self, tail, constraint, line):
        task = informed(tail, "worst", constraints=[constraint])
        found = pool(task.problem, task.prior(), task.line if line else None, 0.1)
        assert found.worth.feasible
        assert not task.problem.worth(task.problem.neutral).better_than(found.worth)

    @pytest.mark.parametrize("objective", ["err[4]", "balanced", "worst"])
    def test_thin_and_lone_classes_are_no_obstacle(self, tail, objective):
        rows = np.r_[0:95, 120:121]  # five samples of class 3, one of class 4
        tail.scores, tail.y = tail.scores[rows], tail.y[rows]
        task = informed(tail, objective, constraints=["err[3] <= 0.9"])
        assert np.isfinite(pooled(task, default_strength(task.problem)).adjustment.l).all()

    def test_a_sample_of_a_class_may_carry_all_its_weight(self, tail):
        weight = np.ones(len(tail.y))
        weight[tail.y == 2] = 0
        weight[60] = 1.0  # one sample speaks for class 2
        task = informed(tail, sample_weight=weight)
        assert np.isfinite(pooled(task, 1.0).adjustment.l).all()


class TestFeasible:
    def test_pooled_answers_are_brought_back_into_the_constraints(self, tail):
        problem = Problem(tail.scores, tail.y, "balanced", constraints=["err[0] <= baseline + 0.05"])
        wanted = Adjustment.offsets(np.log(tail.counts))  # costs the first class more than that
        assert not problem.worth(wanted).feasible
        held = make_feasible(problem, problem.neutral, wanted)
        worth = problem.worth(held)
        assert worth.violation == pytest.approx(0, abs=1e-12)
        assert worth.value < problem.worth(problem.neutral).value
        assert make_feasible(Problem(tail.scores, tail.y), problem.neutral, wanted) is wanted


class TestImportance:
    def test_linear_objectives_say_it_themselves(self, tail):
        shares = tail.counts / tail.counts.sum()
        known = {"weights": [1, 1, 2, 2, 4], "class_counts": tail.counts, "shares": tail.counts}
        for objective, expected in (
            ("balanced", np.ones(5)),
            ("weighted", np.array([1, 1, 2, 2, 4]) / 2),
            ("plain", np.maximum(5 * shares, 0.1)),
            ("balanced+plain", (1 + 5 * shares) / 2),
        ):
            problem = Problem(tail.scores, tail.y, objective, **known)
            np.testing.assert_allclose(importance(problem), expected, err_msg=objective)

    def test_costs_are_prices_times_shares(self, tail):
        prices = np.array([1.0, 2, 3, 4, 5])
        problem = Problem(tail.scores, tail.y, expected_cost(prices[:, None] * (1 - np.eye(5))), shares=[1, 1, 1, 1, 2])
        expected = prices * [1, 1, 1, 1, 2]
        np.testing.assert_allclose(importance(problem), expected / expected.mean())

    @pytest.mark.parametrize("objective", ["sdev", "worst", "cvar:0.4", "gmean", lambda e: float((e**2).sum())])
    def test_any_class_may_be_the_one_that_counts(self, tail, objective):
        np.testing.assert_array_equal(importance(Problem(tail.scores, tail.y, objective)), 1)

    @pytest.mark.parametrize("objective", ["macro_f1", "kappa", "mcc"])
    def test_f1_and_its_kin_lie_between(self, tail, objective):
        roots = np.sqrt(tail.counts)
        c = importance(Problem(tail.scores, tail.y, objective, shares=tail.counts))
        np.testing.assert_allclose(c, np.maximum(roots / roots.mean(), 0.1))


class TestCaution:
    def test_a_limit_is_kept_with_a_standard_error_to_spare(self, tail_of):
        tail = tail_of(per_class=40)
        limits = ["plain <= baseline + 0.05"]
        problem = Problem(tail.scores, tail.y, constraints=limits, shares=tail.counts)
        task = Task(problem, Evidence(class_counts=tail.counts), borrow=20.0)
        believed = task.informed.problem
        found = tune(task, "cap").adjustment
        error = pooling.limit_errors(believed, found)[0]
        (bound,) = believed.bounds
        value = bound.evaluator(believed.errors(found))
        assert 0.002 < error < 0.05
        assert value <= bound.limit - 0.5 * error  # of about one, which was told at another point
        assert value > bound.evaluator(believed.errors(believed.neutral))

    def test_what_the_unadjusted_scores_leave_free_is_the_most(self, tail):
        problem = Problem(tail.scores, tail.y, constraints=["plain <= baseline", "plain <= baseline + 0.001"])
        errors = pooling.limit_errors(problem, Adjustment.offsets(np.log(tail.counts)))
        assert errors == pytest.approx([0, 0.001])

"""Partial pooling: between the prior and one free offset per class."""

import numpy as np
import pytest

from capri.posthoc import pooling
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.pooling import (
    Prior,
    default_strength,
    make_feasible,
    path,
    pool_automatically,
    pooled,
)
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import median_margin
from capri.sampling import stratified_folds


def prior_of(tail):
    line = np.log(tail.counts)
    return Prior((line - line.mean())[:, None], line)


class TestPrior:
    def test_what_the_columns_and_a_shift_express_is_no_residual(self, rng):
        columns = rng.normal(size=(7, 2))
        rest = Prior(columns).residual_maker()
        np.testing.assert_allclose(rest @ (columns @ [2.0, -1.0] + 3), 0, atol=1e-12)
        np.testing.assert_allclose(rest @ rest, rest, atol=1e-12)
        assert np.trace(rest) == pytest.approx(4)

    def test_fewer_samples_per_class_pool_more(self, tail_of):
        few, many = (default_strength(Problem(t.scores, t.y)) for t in (tail_of(per_class=5), tail_of(per_class=50)))
        assert few == pytest.approx(pooling.UNIT / 5)
        assert many == pytest.approx(pooling.UNIT / 50)


class TestPooled:
    def test_runs_from_free_offsets_to_the_prior(self, tail):
        problem, prior = Problem(tail.scores, tail.y), prior_of(tail)
        rest = prior.residual_maker()
        start = np.zeros(5)
        sizes = [np.linalg.norm(rest @ pooled(problem, prior, s, start)) for s in (1e-4, 0.1, 1.0, 1e4)]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 0.2
        assert sizes[-1] < 1e-3

    def test_its_penalty_is_the_mean_square_residual_in_margins(self, tail, monkeypatch):
        problem, prior, asked = Problem(tail.scores, tail.y), prior_of(tail), {}
        monkeypatch.setattr(pooling, "minimise_offsets", lambda *a, penalty, **k: asked.update(penalty=penalty))
        pooled(problem, prior, 3.0, np.zeros(5))
        l = np.array([1.0, -1, 2, 0, 0.5])
        residual = prior.residual_maker() @ l / median_margin(problem)
        assert np.sum((asked["penalty"] @ l) ** 2) == pytest.approx(3.0 * np.mean(residual**2))

    def test_the_path_holds_line_prior_and_three_strengths(self, tail):
        problem, prior = Problem(tail.scores, tail.y), prior_of(tail)
        found = dict(path(problem, prior, 1.0))
        assert list(found) == ["line", "prior", "4 λ₀", "1 λ₀", "0.25 λ₀"]
        for name in ("line", "prior"):
            np.testing.assert_allclose(prior.residual_maker() @ found[name].l, 0, atol=1e-9)
        assert "line" not in dict(path(problem, Prior(prior.columns), 1.0))

    def test_pooled_answers_are_brought_back_into_the_constraints(self, tail):
        problem = Problem(tail.scores, tail.y, "balanced", constraints=["err[0] <= baseline + 0.05"])
        wanted = Adjustment.offsets(np.log(tail.counts))  # costs the first class more than that
        assert not problem.worth(wanted).feasible
        held = make_feasible(problem, problem.neutral, wanted)
        worth = problem.worth(held)
        assert worth.violation == pytest.approx(0, abs=1e-12)
        assert worth.value < problem.worth(problem.neutral).value
        assert make_feasible(Problem(tail.scores, tail.y), problem.neutral, wanted) is wanted


class TestAutomatically:
    def test_is_deterministic_and_reports_every_candidate(self, tail):
        problem = Problem(tail.scores, tail.y, "cvar:0.4")
        calls = []
        first = pool_automatically(problem, lambda _: prior_of(tail), seed=2, on_fold=lambda: calls.append(1))
        again = pool_automatically(problem, lambda _: prior_of(tail), seed=2)
        assert (first.reason, first.path) == (again.reason, again.path)
        np.testing.assert_array_equal(first.adjustment.l, again.adjustment.l)
        assert first.reason in [f"cross-validation chose {name}" for name in first.path]
        assert first.worth == problem.worth(first.adjustment)
        assert list(first.path) == ["line", "prior", "4 λ₀", "1 λ₀", "0.25 λ₀"]
        assert len(calls) == 5

    def test_each_fold_s_prior_sees_that_fold_s_fitting_part_alone(self, tail):
        problem, sizes = Problem(tail.scores, tail.y), []

        def watched(part):
            sizes.append((part.weight > 0).sum())
            return prior_of(tail)

        pool_automatically(problem, watched)
        assert len(sizes) == 6
        assert sum(sizes[:5]) == 4 * problem.n_samples
        assert sizes[5] == problem.n_samples

    def test_judges_each_sample_by_a_fit_that_has_not_seen_it(self, tail, monkeypatch):
        problem = Problem(tail.scores, tail.y)
        folds = stratified_folds(problem.y, 5, 0)
        fits, judged = iter(np.linspace(-2, 2, 6)), {}
        fit = lambda *_: [("1 λ₀", Adjustment.offsets(next(fits) * np.log(tail.counts)))]  # noqa: E731
        monkeypatch.setattr(pooling, "path", fit)
        monkeypatch.setattr(pooling, "_resampled", lambda _, right, __: judged.update(right) or {"1 λ₀": np.zeros(2)})
        pool_automatically(problem, lambda _: prior_of(tail))
        for fold, tau in enumerate(np.linspace(-2, 2, 6)[:5]):
            here = folds == fold
            right = (tail.scores[here] - tau * np.log(tail.counts)).argmax(axis=1) == tail.y[here]
            np.testing.assert_array_equal(judged["1 λ₀"][here], right)

    def test_another_candidate_must_win_by_a_standard_error(self):
        noise = np.array([-0.02, 0.02] * 25)
        choose = pooling._choose
        assert choose({"1 λ₀": noise * 0, "prior": noise - 0.019}) == "1 λ₀"
        assert choose({"1 λ₀": noise * 0, "prior": noise - 0.021}) == "prior"
        assert choose({"1 λ₀": noise * 0, "prior": noise - 0.03, "line": noise - 0.04}) == "line"

    @pytest.mark.parametrize("objective", ["err[4]", "balanced", "worst"])
    def test_thin_and_lone_classes_are_no_obstacle(self, tail, objective):
        rows = np.r_[0:95, 120:121]  # five samples of class 3, one of class 4
        problem = Problem(tail.scores[rows], tail.y[rows], objective, constraints=["err[3] <= 0.9"])
        assert np.isfinite(pool_automatically(problem, lambda _: prior_of(tail)).adjustment.l).all()

    def test_samples_without_weight_are_never_all_that_is_drawn(self, tail):
        weight = np.ones(len(tail.y))
        weight[tail.y == 2] = 0
        weight[60] = 1.0  # one sample speaks for class 2
        problem = Problem(tail.scores, tail.y, sample_weight=weight)
        assert [len(m) for m in problem.members()] == [30, 30, 1, 30, 30]
        scores = pool_automatically(problem, lambda _: prior_of(tail)).path
        assert np.isfinite(list(scores.values())).all()

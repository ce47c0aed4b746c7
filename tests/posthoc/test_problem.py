"""What an adjustment is worth, exactly as argmax sees it."""

import numpy as np
import pytest

from capri._checks import InputError
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.line import trace
from capri.posthoc.problem import Problem, Worth


def test_worth_compares_by_violation_first_and_beyond_rounding():
    assert Worth(0.0, 0.9).better_than(Worth(0.1, 0.1))
    assert Worth(0.0, 0.1).better_than(Worth(0.0, 0.2))
    assert Worth(1e-14, 0.1).better_than(Worth(0.0, 0.2))
    assert not Worth(0.0, 0.2 - 1e-14).better_than(Worth(0.0, 0.2))
    assert not Worth(0.2, 0.0).better_than(Worth(0.1, 1.0))


def test_what_is_known_of_the_scores_is_known_of_some_of_them_and_of_no_others(tail, rng):
    problem, chosen = Problem(tail.scores, tail.y), rng.uniform(size=len(tail.y)) < 0.5
    problem.predict(problem.neutral)
    among = problem.subset(chosen)
    np.testing.assert_array_equal(among.predict(problem.neutral), tail.scores[chosen].argmax(axis=1))
    assert among.derived().of_scores is among.of_scores
    other = problem.derived(scores=-tail.scores)
    np.testing.assert_array_equal(other.predict(problem.neutral), (-tail.scores).argmax(axis=1))


def test_a_violation_is_one_beyond_rounding(tail_of):
    assert Worth(0.0, 0.5).feasible
    assert Worth(1e-11, 0.5).feasible
    assert not Worth(1e-6, 0.5).feasible
    tail = tail_of(n_classes=3, per_class=20_001)
    problem = Problem(tail.scores, tail.y, constraints=[f"err[{k}] <= baseline" for k in range(3)])
    worth = problem.worth(problem.neutral)
    assert worth.violation > 0  # so many shares do not sum to what their count is
    assert worth.feasible


class TestProblem:
    def test_a_class_with_samples_has_a_share(self, tail):
        with pytest.raises(InputError, match="shares of class 2 is 0, but there are samples of it"):
            Problem(tail.scores, tail.y, shares=[1, 1, 0, 1, 1])

    def test_errors_and_worth_are_those_of_argmax(self, tail):
        problem = Problem(tail.scores, tail.y, "worst", constraints=["plain <= 0.1"])
        m, l = np.linspace(0.5, 2, 5), np.linspace(-1, 1, 5)
        wrong = (tail.scores * m - l).argmax(axis=1) != tail.y
        errors = np.bincount(tail.y, weights=wrong) / np.bincount(tail.y)
        np.testing.assert_allclose(problem.errors(Adjustment(m, l)), errors)
        assert problem.worth(Adjustment(m, l)) == pytest.approx((errors.mean() - 0.1, errors.max()))

    def test_the_unit_of_sample_weights_does_not_matter(self, tail, rng):
        weight = rng.uniform(0.5, 2, len(tail.y))
        adjustment = Adjustment.offsets(np.log(tail.counts))
        errors = [Problem(tail.scores, tail.y, sample_weight=u * weight).errors(adjustment) for u in (1, 1e-20)]
        np.testing.assert_allclose(*errors)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8", "longdouble"])
    def test_scores_keep_their_precision(self, tail, dtype):
        scores = tail.scores.astype(dtype)
        kept = Problem(scores, tail.y).scores
        assert kept.dtype in (np.float32, np.float64)
        np.testing.assert_array_equal(kept, scores.astype(np.float64))

    def test_float32_scores_are_not_copied(self, tail):
        scores = tail.scores.astype(np.float32)
        assert np.shares_memory(Problem(scores, tail.y).scores, scores)

    def test_a_subset_is_the_problem_of_its_rows(self, tail):
        rows = np.arange(len(tail.y)) % 3 == 0
        whole = Problem(tail.scores, tail.y, "mix:0.5", constraints=["plain <= baseline"])
        part = whole.subset(rows)
        np.testing.assert_array_equal(part.scores, tail.scores[rows])
        assert not np.shares_memory(part.scores, whole.scores)
        alone = Problem(tail.scores[rows], tail.y[rows], "mix:0.5", constraints=["plain <= baseline"])
        start = Adjustment.offsets(np.log(tail.counts))
        assert part.worth(start) == pytest.approx(alone.worth(start))
        assert [b.limit for b in part.bounds] == pytest.approx([b.limit for b in alone.bounds])
        back = start.towards(part.neutral)
        np.testing.assert_allclose(trace(part, start, back).values, trace(alone, start, back).values)

    def test_a_derived_problem_differs_in_what_is_replaced(self, tail):
        whole = Problem(tail.scores, tail.y, "plain", constraints=["worst <= 0.9"], shares=tail.counts)
        again, other = whole.derived(), whole.derived(shares=None)
        l = Adjustment.offsets(np.log(tail.counts))
        assert again.worth(l) == whole.worth(l)
        assert other.worth(l) == Problem(tail.scores, tail.y, "plain", constraints=["worst <= 0.9"]).worth(l)
        assert other.worth(l) != whole.worth(l)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_shares_weigh_classes_and_leave_the_sum_and_the_errors(self, tail, rng, weighted):
        given = rng.uniform(0.5, 2, len(tail.y)) if weighted else np.ones(len(tail.y))
        problem = Problem(tail.scores, tail.y, "plain", sample_weight=given, shares=tail.counts)
        np.testing.assert_array_equal(problem.given, given)
        np.testing.assert_allclose(problem.totals / problem.totals.sum(), tail.counts / tail.counts.sum())
        assert problem.totals.sum() == pytest.approx(given.sum())
        unweighted, l = Problem(tail.scores, tail.y, sample_weight=given), Adjustment.offsets(np.log(tail.counts))
        np.testing.assert_allclose(problem.errors(l), unweighted.errors(l))
        plain = unweighted.errors(l) @ tail.counts / tail.counts.sum()
        assert problem.worth(l).value == pytest.approx(plain)

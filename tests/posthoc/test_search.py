"""From lines to W: round after round until no line improves."""

import itertools

import numpy as np
import pytest

from capri.posthoc.line import trace
from capri.posthoc.problem import Problem, Worth
from capri.posthoc.search import MULTIPLIER_LIMIT, Space, _limits, exact_search, line_step


def test_worth_compares_by_violation_first_and_beyond_rounding():
    assert Worth(0.0, 0.9).better_than(Worth(0.1, 0.1))
    assert Worth(0.0, 0.1).better_than(Worth(0.0, 0.2))
    assert Worth(1e-14, 0.1).better_than(Worth(0.0, 0.2))
    assert not Worth(0.0, 0.2 - 1e-14).better_than(Worth(0.0, 0.2))
    assert not Worth(0.2, 0.0).better_than(Worth(0.1, 1.0))


class TestProblem:
    def test_errors_and_worth_are_those_of_argmax(self, tail):
        problem = Problem(tail.scores, tail.y, "worst", constraints=["plain <= 0.1"])
        m, l = np.linspace(0.5, 2, 5), np.linspace(-1, 1, 5)
        wrong = (tail.scores * m - l).argmax(axis=1) != tail.y
        errors = np.bincount(tail.y, weights=wrong) / np.bincount(tail.y)
        np.testing.assert_allclose(problem.errors(m, l), errors)
        assert problem.worth(m, l) == pytest.approx((errors.mean() - 0.1, errors.max()))

    def test_the_unit_of_sample_weights_does_not_matter(self, tail, rng):
        weight = rng.uniform(0.5, 2, len(tail.y))
        ones, l = np.ones(5), np.log(tail.counts)
        errors = [Problem(tail.scores, tail.y, sample_weight=unit * weight).errors(ones, l) for unit in (1, 1e-20)]
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
        assert part.scores is whole.scores
        alone = Problem(tail.scores[rows], tail.y[rows], "mix:0.5", constraints=["plain <= baseline"])
        m, l = np.ones(5), np.log(tail.counts)
        assert part.worth(m, l) == pytest.approx(alone.worth(m, l))
        assert [b.limit for b in part.bounds] == pytest.approx([b.limit for b in alone.bounds])
        g, none = -np.log(tail.counts), np.zeros(5)
        np.testing.assert_allclose(trace(part, m, l, none, g).values, trace(alone, m, l, none, g).values)


class TestSearch:
    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "macro_f1", lambda e: float((e**2).sum())])
    def test_two_directions_reach_what_a_grid_reaches(self, tail, objective):
        problem = Problem(tail.scores, tail.y, objective)
        columns = np.column_stack([np.log(tail.counts) - np.log(tail.counts).mean(), np.linspace(-1, 1, 5) ** 2])
        found = exact_search(problem, Space.of(columns))
        grid = itertools.product(np.linspace(-0.5, 2, 26), np.linspace(-2, 2, 21))
        best = min(problem.worth(np.ones(5), columns @ w).value for w in grid)
        assert found.worth.value <= best + 0.005
        assert found.worth == problem.worth(found.m, found.l)

    def test_ends_where_no_line_improves(self, tail):
        problem, space = Problem(tail.scores, tail.y), Space.of(np.eye(5))
        found = exact_search(problem, space, max_rounds=50)
        assert found.reason == "no line improves"
        for step in np.eye(5):
            w, worth = line_step(problem, space, found.w, found.worth, step)
            assert worth == found.worth
            assert (w == found.w).all()

    def test_says_when_rounds_ran_out(self, tail):
        assert exact_search(Problem(tail.scores, tail.y), Space.of(np.eye(5)), max_rounds=1).reason == "1 rounds done"

    def test_seeds_decide_the_random_directions(self, tail):
        problem = Problem(tail.scores, tail.y, "cvar:0.4")
        first, again = (exact_search(problem, Space.of(np.eye(5)), seed=3, max_rounds=2) for _ in range(2))
        other = exact_search(problem, Space.of(np.eye(5)), seed=4, max_rounds=2)
        np.testing.assert_array_equal(first.w, again.w)
        assert (other.w != first.w).any()

    def test_keeps_the_best_of_several_starts_and_counts_all_lines(self, tail):
        problem, space = Problem(tail.scores, tail.y, "worst"), Space.of(np.log(tail.counts)[:, None])
        good, bad = np.array([1.0]), np.array([-30.0])
        alone, both = exact_search(problem, space, [good]), exact_search(problem, space, [bad, good])
        assert not alone.worth.better_than(both.worth)
        assert both.lines > alone.lines

    def test_never_ends_worse_than_its_start(self, tail):
        problem = Problem(tail.scores, tail.y, "balanced", constraints=["err[0] <= baseline"])
        start = np.log(tail.counts)
        found = exact_search(problem, Space.of(np.eye(5)), [start], max_rounds=1)
        assert not problem.worth(np.ones(5), start).better_than(found.worth)

    def test_multipliers_stay_within_their_limits(self, tail):
        problem = Problem(tail.scores, tail.y, "worst")
        found = exact_search(problem, Space.of(np.eye(5), np.eye(5)))
        assert found.worth.better_than(problem.worth(*problem.neutral))
        assert found.m.min() >= 1 / MULTIPLIER_LIMIT
        assert found.m.max() <= MULTIPLIER_LIMIT
        assert (found.m != 1).any()

    def test_limits_are_where_the_first_multiplier_reaches_its_own(self, rng):
        for _ in range(20):
            m, h = rng.uniform(0.3, 4, 6), rng.normal(size=6) * (rng.uniform(size=6) < 0.7)
            h[0] = 1.0
            low, high = _limits(m, h)
            assert low < 0 < high
            for t in (low, high):
                inside, outside = m + 0.999 * t * h, m + 1.001 * t * h
                assert inside.min() > 1 / MULTIPLIER_LIMIT
                assert inside.max() < MULTIPLIER_LIMIT
                assert outside.min() < 1 / MULTIPLIER_LIMIT or outside.max() > MULTIPLIER_LIMIT
        assert _limits(np.ones(6), np.zeros(6)) == (-np.inf, np.inf)

    def test_classes_with_equal_rows_get_equal_offsets_to_the_last_bit(self, rng):
        columns = np.tile(rng.normal(size=8), (19, 1))  # so many that a matrix product would sum some in another order
        for w in rng.normal(size=(20, 16)):
            m, l = Space.of(columns, columns).adjustment(w)
            assert len(set(l)) == len(set(m)) == 1

    def test_a_space_without_directions_stays_where_it_is(self, tail):
        found = exact_search(Problem(tail.scores, tail.y), Space.of(np.zeros((5, 0))))
        assert (found.l == 0).all()
        assert found.reason == "no line improves"

"""From lines to W: round after round until no line improves."""

import itertools

import numpy as np
import pytest

from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem
from capri.posthoc.search import MULTIPLIER_LIMIT, Space, _limits, exact_search, line_step


class TestSearch:
    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "macro_f1", lambda e: float((e**2).sum())])
    def test_two_directions_reach_what_a_grid_reaches(self, tail, objective):
        problem = Problem(tail.scores, tail.y, objective)
        columns = np.column_stack([np.log(tail.counts) - np.log(tail.counts).mean(), np.linspace(-1, 1, 5) ** 2])
        found = exact_search(problem, Space.of(columns))
        grid = itertools.product(np.linspace(-0.5, 2, 26), np.linspace(-2, 2, 21))
        best = min(problem.worth(Adjustment.offsets(columns @ w)).value for w in grid)
        assert found.worth.value <= best + 0.005
        assert found.worth == problem.worth(found.adjustment)

    def test_ends_where_no_line_improves(self, tail):
        problem, space = Problem(tail.scores, tail.y), Space.of(np.eye(5))
        found = exact_search(problem, space, max_rounds=50)
        assert found.reason == "no line improves"
        for step in np.eye(5):
            w, worth = line_step(problem, space, found.weights["l"], found.worth, step)
            assert worth == found.worth
            assert (w == found.weights["l"]).all()

    @pytest.mark.parametrize("objective", ["balanced", "worst", "macro_f1"])
    def test_one_direction_takes_one_line(self, tail, objective):
        problem, space = Problem(tail.scores, tail.y, objective), Space.of(np.log(tail.counts)[:, None])
        found = exact_search(problem, space)
        assert found.lines == 1
        w, worth = line_step(problem, space, found.weights["l"], found.worth, np.ones(1))
        assert worth == found.worth
        assert (w == found.weights["l"]).all()

    def test_says_when_rounds_ran_out(self, tail):
        assert exact_search(Problem(tail.scores, tail.y), Space.of(np.eye(5)), max_rounds=1).reason == "1 rounds done"

    def test_seeds_decide_the_random_directions(self, tail):
        problem = Problem(tail.scores, tail.y, "cvar:0.4")
        first, again = (exact_search(problem, Space.of(np.eye(5)), seed=3, max_rounds=2) for _ in range(2))
        other = exact_search(problem, Space.of(np.eye(5)), seed=4, max_rounds=2)
        np.testing.assert_array_equal(first.adjustment.l, again.adjustment.l)
        assert (other.adjustment.l != first.adjustment.l).any()

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
        assert not problem.worth(Adjustment.offsets(start)).better_than(found.worth)

    def test_multipliers_stay_within_their_limits(self, tail):
        problem = Problem(tail.scores, tail.y, "worst")
        found = exact_search(problem, Space.of(np.eye(5), np.eye(5)))
        assert found.worth.better_than(problem.worth(problem.neutral))
        delta = found.adjustment.delta
        assert delta.min() >= 1 / MULTIPLIER_LIMIT
        assert delta.max() <= MULTIPLIER_LIMIT
        assert (delta != 1).any()
        np.testing.assert_allclose(delta, 1 + found.weights["delta"])
        np.testing.assert_allclose(found.adjustment.l, found.weights["l"])

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
        assert (found.adjustment.l == 0).all()
        assert found.weights == {}
        assert found.reason == "no line improves"

"""Classes without validation samples are neither banned nor favoured."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capri import AbsentClassWarning, LogitAdjuster
from capri.attributes import frequency
from capri.evidence import Evidence
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc.absent import REACH, among_present, extend, extension
from capri.posthoc.adjuster import FrequencyWarning
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.methods import BORROWING, METHODS, Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.search import MULTIPLIER_LIMIT


@pytest.fixture(autouse=True)
def known_to_be_absent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentClassWarning)
        yield


def without(tail, *absent):
    """Samples of the other classes."""
    here = ~np.isin(tail.y, absent)
    return tail.scores[here], tail.y[here]


def errors_of(tail, l, classes):
    wrong = (tail.scores - l).argmax(axis=1) != tail.y
    return np.mean([wrong[tail.y == k].mean() for k in classes])


class TestExtension:
    present = np.array([True, True, False, True, False, True])
    log_pi = np.log([0.4, 0.3, 0.15, 0.1, 0.04, 0.01])

    def test_present_classes_keep_theirs_and_a_shift_stays_one(self, rng):
        for known in (None, self.log_pi):
            E = extension(self.present, known)
            v = rng.normal(size=4)
            np.testing.assert_array_equal((E @ v)[self.present], v)
            np.testing.assert_allclose(E @ np.ones(4), 1)

    def test_absent_ones_lie_on_the_line_of_least_squares(self, rng):
        v = rng.normal(size=4)
        slope, intercept = np.polyfit(self.log_pi[self.present], v, 1)
        expected = intercept + slope * self.log_pi[~self.present]
        np.testing.assert_allclose((extension(self.present, self.log_pi) @ v)[~self.present], expected)

    @pytest.mark.parametrize("known", [None, np.log([0.2, 0.2, 0.1, 0.2, 0.1, 0.2])])
    def test_without_frequencies_that_differ_they_take_the_mean(self, known):
        v = np.array([1.0, 2.0, 3.0, 6.0])
        np.testing.assert_allclose((extension(self.present, known) @ v)[~self.present], 3)

    def test_the_line_is_not_followed_beyond_its_reach(self):
        log_pi = np.log([0.5, 0.49, 1e-6, 1e-3])
        E = extension(np.array([True, True, False, False]), log_pi)
        np.testing.assert_allclose(E @ [0.0, 1.0], [0, 1, 1 + REACH, 1 + REACH])

    @pytest.mark.parametrize(("tau", "gamma"), [(1.3, 0.0), (0.0, 0.2), (-0.7, 0.1)])
    def test_la_cdt_and_vs_are_extended_to_themselves(self, tau, gamma):
        whole = Adjustment(np.exp(gamma * (self.log_pi[0] - self.log_pi)), tau * self.log_pi)
        some = Adjustment(*(part[self.present] for part in whole))
        for part, expected in zip(extend(some, self.present, self.log_pi), whole, strict=True):
            np.testing.assert_allclose(part, expected)

    def test_multipliers_stay_within_their_limits(self):
        some = Adjustment.multipliers(np.array([0.2, 5.0]))
        delta = extend(some, np.array([False, True, True, False]), np.log([0.6, 0.2, 0.15, 0.05])).delta
        np.testing.assert_allclose(delta, [1 / MULTIPLIER_LIMIT, 0.2, 5.0, MULTIPLIER_LIMIT])


def squares(confusion):
    assert confusion.shape == (5, 5)
    return float((confusion**2).sum() - 2 * np.trace(confusion**2))


class TestAmongPresent:
    COSTS = np.arange(25.0).reshape(5, 5)

    @pytest.mark.parametrize("objective", ["balanced", "plain", "cvar:0.4", "weighted", "worst_group", "err[4]", "few",
                                           "macro_f1", "weighted_f1", "balanced+macro_f1", expected_cost(COSTS),
                                           "f1[4]", "precision[2]", "recall[4]", "gmean", "min_recall", "kappa", "mcc",
                                           confusion_objective(squares)])  # fmt: skip
    def test_is_what_happens_where_absent_classes_are_never_predicted(self, tail, objective):
        X, y = without(tail, 1, 3)
        known = {"weights": np.arange(1, 6), "groups": [0, 0, 1, 1, 1], "class_counts": tail.counts}
        problem = Problem(X, y, objective, absent="ignore", constraints=["err[2] <= 0.1"], **known)
        l, never = np.linspace(-1, 1, 5), np.array([0, 99.0, 0, 99, 0])
        some = among_present(problem)
        assert some.scores.shape == (90, 3)
        assert some.worth(Adjustment.offsets(l[[0, 2, 4]])) == pytest.approx(
            problem.worth(Adjustment.offsets(l + never))
        )
        odd = np.arange(90) % 2 == 1
        assert some.subset(odd).worth(some.neutral) == pytest.approx(
            problem.subset(odd).worth(Adjustment.offsets(never))
        )

    def test_samples_without_weight_are_left_out_with_their_class(self, tail):
        weight = np.where(tail.y == 2, 0.0, 1.0)
        some = among_present(Problem(tail.scores, tail.y, sample_weight=weight, absent="ignore"))
        np.testing.assert_array_equal(some.totals, [30] * 4)
        np.testing.assert_array_equal(some.scores, tail.scores[tail.y != 2][:, [0, 1, 3, 4]])


class TestTuning:
    @pytest.mark.parametrize("absent", [(8, 9), (4, 5), (1, 7)])
    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.2", "macro_f1"])
    @pytest.mark.parametrize("settings", [{}, {"method": "plain"}, {"pooling": None}, {"pooling": 0.5}], ids=str)
    def test_absent_classes_fare_no_worse_than_unadjusted_and_nearly_as_with_logit_adjustment(
        self, tail_of, absent, objective, settings
    ):
        tail, test = (tail_of(n_classes=10, per_class=100, seed=seed) for seed in (0, 1))
        adjuster = LogitAdjuster(objective, absent="ignore", target_shares="validation", bootstrap=0, **settings)
        l = adjuster.fit(*without(tail, *absent), class_counts=tail.counts).strategy_.l
        log_pi = np.log(frequency(tail.counts))
        found, unadjusted, la = (errors_of(test, offsets, absent) for offsets in (l, np.zeros(10), log_pi))
        assert found <= unadjusted
        assert found <= la + 0.1

    @pytest.mark.parametrize("parameters", ["delta", "both"])
    @pytest.mark.parametrize("method", ["cap", "plain"])
    def test_multipliers_do_not_ban_them_either(self, tail_of, method, parameters):
        tail, test = (tail_of(n_classes=10, per_class=100, seed=seed) for seed in (0, 1))
        adjuster = LogitAdjuster(method=method, parameters=parameters, absent="ignore", bootstrap=0)
        strategy = adjuster.fit(*without(tail, 4, 5), class_counts=tail.counts).strategy_
        test.scores *= strategy.delta
        plain = tail_of(n_classes=10, per_class=100, seed=1)
        assert errors_of(test, strategy.l, [4, 5]) <= errors_of(plain, np.zeros(10), [4, 5]) + 0.02

    def test_what_is_measured_of_them_does_not_matter(self, tail_of):
        tail = tail_of(n_classes=8)
        problem = Problem(*without(tail, 2, 6), absent="ignore")
        diff = np.linspace(0.1, 0.6, 8)
        other = np.where(np.isin(np.arange(8), [2, 6]), 0.99, diff)
        first, second = (
            tune(Task(problem, Evidence(class_counts=tail.counts, own={"diff": d}))) for d in (diff, other)
        )
        np.testing.assert_array_equal(first.adjustment.l, second.adjustment.l)

    @pytest.mark.parametrize("objective", ["balanced", "macro_f1"])
    def test_they_may_have_samples_without_weight(self, tail_of, objective):
        tail = tail_of(n_classes=6)
        weight = np.where(np.isin(tail.y, [2, 4]), 0.0, 1.0)
        adjuster = LogitAdjuster(objective, absent="ignore", bootstrap=0)
        weighted = tail.fitted(adjuster, sample_weight=weight).strategy_.l
        adjuster.set_params(target_shares="validation", classes=range(6))
        left_out = adjuster.fit(*without(tail, 2, 4), class_counts=tail.counts).strategy_.l
        np.testing.assert_allclose(weighted, left_out, atol=1e-3)

    def test_where_they_cost_too_much_part_of_the_way_is_gone(self, tail_of):
        tail = tail_of(n_classes=10, per_class=100)
        problem = Problem(*without(tail, *range(5, 10)), absent="ignore")
        task = Task(problem, Evidence(class_counts=tail.counts))
        alone = METHODS["la"](task.among_present())
        whole = extend(alone.adjustment, problem.present, task.line)
        assert problem.worth(problem.neutral).better_than(problem.worth(whole))
        found = tune(task, "la")
        assert found.worth.better_than(problem.worth(problem.neutral))
        share = found.adjustment.l / whole.centred().l
        np.testing.assert_allclose(share, share[0])
        assert 0 < share[0] < 1
        assert found.reason == f"part of the way, for the sake of absent classes, to {alone.reason}"
        assert found.weights == {}  # τ is no longer that

    @settings(max_examples=25)
    @given(
        seed=st.integers(0, 10**6),
        n_present=st.integers(1, 3),
        method=st.sampled_from(sorted(METHODS)),
        objective=st.sampled_from(["plain", "balanced", "sdev", "cvar:0.4", "macro_f1"]),
        constraints=st.sampled_from([(), ("plain <= baseline",), ("macro_f1 <= baseline",), ("worst <= 0.3",)]),
        pooling=st.sampled_from([None, "auto", 1.0]),
        frequencies=st.booleans(),
        borrow=st.sampled_from([0.0, 20.0]),
    )
    def test_no_method_ends_worse_than_the_unadjusted_scores(
        self, tail_of, seed, n_present, method, objective, constraints, pooling, frequencies, borrow
    ):
        tail = tail_of(n_classes=4, per_class=8, seed=seed)
        absent = np.random.default_rng(seed).permutation(4)[n_present:]
        problem = Problem(*without(tail, *absent), objective, constraints=constraints, absent="ignore")
        known = frequencies or method in ("la", "cdt", "vs")
        evidence = Evidence(class_counts=tail.counts if known else None)
        task = Task(problem, evidence, pooling=pooling, borrow=borrow)
        found = tune(task, method)
        problem = task.informed.problem if method in BORROWING else problem  # by the estimate that it goes by
        assert found.worth == problem.worth(found.adjustment)
        assert not problem.worth(problem.neutral).better_than(found.worth)
        assert np.isfinite(found.adjustment.l).all()


def test_an_absent_class_of_unknown_frequency_is_not_taken_for_the_rarest(rng):
    """Without training counts the labels stand in for them, and say nothing of a class that is not there."""
    y = np.repeat([0, 2, 3, 4], 50)
    scores = rng.normal(size=(200, 5)) + 2 * np.eye(5)[y] + np.array([1.5, 0.0, 0.5, 0.0, -1.0])
    with pytest.warns(FrequencyWarning, match="nearly balanced"):
        l = LogitAdjuster("balanced", absent="ignore", bootstrap=0).fit(scores, y).strategy_.l
    others = np.delete(l, 1)
    assert others.max() - others.min() > 1
    assert l[1] == pytest.approx(others.mean(), abs=1e-6)

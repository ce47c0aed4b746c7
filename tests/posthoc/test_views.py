"""Views of samples before and after: against scikit-learn, SciPy and counting by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from capri import LogitAdjuster, Policy, Strategy, as_objective, evaluate
from capri.posthoc import views
from capri.posthoc.account import pose
from capri.posthoc.views import Decided, by_policy, clear, confusions, resampled, view_of, wilson


@pytest.fixture
def policy(tail):
    names = tuple(f"c{k}" for k in range(tail.n_classes))
    return Policy(Strategy.logit_adjustment(tail.counts), "cvar:0.4", names, constraints=("plain <= baseline + 0.1",))


@pytest.fixture
def judged(tail, policy):
    return by_policy("test", policy, pose(policy, tail.scores, tail.y, class_counts=tail.counts))


class TestView:
    def test_objectives_are_those_of_evaluate(self, tail, policy, judged):
        view = view_of(judged, "cvar:0.4")
        for figures, scores in ((view.before, tail.scores), (view.after, policy.apply(tail.scores))):
            assert figures == pytest.approx(evaluate(tail.y, scores.argmax(1), 5, list(figures)))
        assert list(view.before)[-1] == "cvar:0.4"
        assert view.n_samples == len(tail.y)

    def test_shares_of_the_world_count(self, tail, policy):
        problem = pose(policy, tail.scores, tail.y, shares=tail.counts)
        view = view_of(by_policy("test", policy, problem), "cvar:0.4")
        wanted = evaluate(tail.y, tail.scores.argmax(1), 5, ["plain"], target_shares=tail.counts)
        assert view.before["plain"] == pytest.approx(wanted["plain"])

    def test_samples_that_change_are_counted_by_class(self, tail, policy, judged):
        view = view_of(judged, "cvar:0.4")
        first, second = tail.scores.argmax(1) == tail.y, policy.apply(tail.scores).argmax(1) == tail.y
        for k in range(5):
            mine = tail.y == k
            assert view.fixed[k] == (mine & ~first & second).sum()
            assert view.broken[k] == (mine & first & ~second).sum()
            assert view.second.values[k] == pytest.approx(1 - second[mine].mean())
            assert view.first.low[k] <= view.first.values[k] <= view.first.high[k]

    def test_constraints_are_held_against_the_same_samples(self, judged):
        view = view_of(judged, "cvar:0.4")
        (limit,) = view.limits
        assert limit.limit == pytest.approx(view.before["plain"] + 0.1)
        assert limit.value == pytest.approx(view.after["plain"])
        assert limit.kept == (limit.value <= limit.limit)

    def test_a_floor_is_told_as_the_quality_that_it_is(self, tail):
        rule = Policy(Strategy.of(5), "balanced", tuple(range(5)), constraints=("recall[0] >= 0.5",))
        (limit,) = view_of(by_policy("test", rule, pose(rule, tail.scores, tail.y)), "balanced").limits
        assert limit.value == pytest.approx((tail.scores.argmax(1) == 0)[tail.y == 0].mean())
        assert limit.limit == pytest.approx(0.5)

    def test_a_class_without_samples_has_no_error(self, tail, policy):
        here = tail.y != 2
        with pytest.warns(UserWarning, match="no sample"):
            problem = pose(policy, tail.scores[here], tail.y[here], absent="ignore")
        view = view_of(by_policy("test", policy, problem), "cvar:0.4")
        assert view.samples[2] == 0
        assert view.first.values[2] is view.second.low[2] is None

    def test_weights_count_as_samples_and_widen_intervals(self, tail, policy):
        weight = np.where(tail.y == 0, np.arange(len(tail.y)) % 3 * 1.0, 2.0)
        view = view_of(by_policy("test", policy, pose(policy, tail.scores, tail.y, sample_weight=weight)), "cvar:0.4")
        repeated = np.repeat(np.arange(len(tail.y)), weight.astype(int))
        wanted = evaluate(tail.y[repeated], tail.scores[repeated].argmax(1), 5, ["plain", "balanced"])
        assert view.before["plain"] == pytest.approx(wanted["plain"])
        assert view.samples[1] == 60
        low, high = wilson(np.array(view.first.values[1:2]), np.array([30.0]))  # as many as there are, not 60
        assert (view.first.low[1], view.first.high[1]) == pytest.approx((low[0], high[0]))

    def test_an_objective_that_nobody_knows_is_left_out(self, tail):
        rule = Policy(Strategy.of(5), "somebody's own", tuple(range(5)), constraints=("somebody's own <= 0.4",))
        view = view_of(by_policy("test", rule, pose(rule, tail.scores, tail.y)), rule.objective)
        assert "somebody's own" not in view.before
        assert view.limits == []


class TestUndecided:
    @pytest.fixture
    def abstaining(self, policy):
        return replace(policy, thresholds=(0.2, 0.0, 1.0, 0.5, 0.3))

    @pytest.fixture
    def view(self, tail, abstaining):
        problem = pose(abstaining, tail.scores, tail.y, shares=tail.counts)
        return view_of(by_policy("test", abstaining, problem), "cvar:0.4")

    def test_figures_after_are_those_of_evaluate(self, tail, abstaining, view):
        names = np.array(abstaining.class_names)
        decided = abstaining.predict(tail.scores)
        known = {"target_shares": tail.counts, "objectives": list(view.after)}
        wanted = evaluate(names[tail.y], decided, names, **known)
        assert 0 < wanted["min_coverage"] < wanted["coverage"] < 1
        assert view.coverage == pytest.approx((wanted.pop("coverage"), wanted.pop("min_coverage")))
        assert view.after == pytest.approx(wanted)
        assert view.before == pytest.approx(evaluate(names[tail.y], names[tail.scores.argmax(1)], names, **known))

    def test_errors_by_class_are_of_what_is_decided(self, tail, abstaining, view):
        decided, names = abstaining.predict(tail.scores), np.array(abstaining.class_names)
        there = np.array([d is not None for d in decided])
        for k in range(5):
            mine = there & (tail.y == k)
            error = (decided[mine] != names[k]).mean()
            low, high = wilson(np.array([error]), np.array([mine.sum()]))
            assert view.decided[k] == pytest.approx(mine.sum() / (tail.y == k).sum())
            assert view.second.values[k] == pytest.approx(error)
            assert (view.second.low[k], view.second.high[k]) == pytest.approx((low[0], high[0]))
        assert np.sum(view.confusions.after) == there.sum() < np.sum(view.confusions.before) == len(tail.y)
        assert view.clear == []

    def test_blocks_of_rows_are_decided_as_one(self, tail, abstaining, view, monkeypatch):
        monkeypatch.setattr(views, "BLOCK", 35)  # scores, so 7 rows of 5
        problem = pose(abstaining, tail.scores, tail.y, shares=tail.counts)
        assert view_of(by_policy("test", abstaining, problem), "cvar:0.4") == view

    def test_the_interval_is_about_the_same_change(self, tail, abstaining, view):
        judged = by_policy("test", abstaining, pose(abstaining, tail.scores, tail.y, shares=tail.counts))
        low, high = resampled(judged, as_objective("balanced"), draws=50)
        assert low < view.before["balanced"] - view.after["balanced"] < high

    def test_a_class_of_which_nothing_is_decided_has_no_error_after(self, tail, policy):
        rule = replace(policy, thresholds=(100.0, 0.0, 0.0, 0.0, 0.0))
        judged = by_policy("test", rule, pose(rule, tail.scores, tail.y))
        judged = replace(judged, after=np.where(tail.y == 0, -1, judged.after))
        view = view_of(judged, "cvar:0.4")
        assert (view.decided[0], view.second.values[0]) == (0.0, None)
        assert view.after["worst"] == pytest.approx(max(view.second.values[1:]))


def test_intervals_are_those_of_scipy():
    wrong, n = np.array([0, 1, 7, 30]), np.array([10, 3, 20, 30])
    low, high = wilson(wrong / n, n.astype(float))
    for k in range(4):
        wanted = binomtest(wrong[k], n[k]).proportion_ci(0.9, method="wilson")
        assert (low[k], high[k]) == pytest.approx((wanted.low, wanted.high), abs=1e-4)


def test_a_clear_change_is_that_of_a_sign_test():
    fixed, broken = np.meshgrid(np.arange(12), np.arange(12))
    found = clear(fixed.ravel(), broken.ravel())
    for a, b, told in zip(fixed.ravel(), broken.ravel(), found, strict=True):
        assert told == (a + b > 0 and binomtest(int(a), int(a + b)).pvalue < 0.05)


class TestConfusions:
    @pytest.mark.parametrize("k", [4, 45])
    def test_pairs_and_matrices_are_those_of_scikit_learn(self, rng, k):
        y, before, after = rng.integers(0, k, (3, 900))
        weight = rng.integers(0, 3, 900).astype(float)
        found = confusions(y, before, after, weight, k)
        was, now = (confusion_matrix(y, d, sample_weight=weight, labels=range(k)) for d in (before, after))
        for pair in found.pairs:
            assert (pair.before, pair.after) == (was[pair.true, pair.predicted], now[pair.true, pair.predicted])
            assert pair.true != pair.predicted
        off = was - np.diag(np.diag(was))
        assert max(pair.before for pair in found.pairs) == off.max()
        assert found.complete == (k <= 30)
        n, shown = len(found.classes), np.array(found.classes)
        assert np.array(found.before)[:n, :n] == pytest.approx(was[np.ix_(shown, shown)])
        assert np.sum(found.after) == pytest.approx(weight.sum())

    def test_without_errors_there_are_no_pairs(self):
        y = np.arange(6) % 3
        assert confusions(y, y, y, np.ones(6), 3).pairs == []


class TestTestInterval:
    def test_it_holds_the_truth_as_often_as_it_says(self, tail_of, policy):
        """The improvement of the mean error on 20,000 samples is the truth; intervals are of 150 each."""
        truth, held = tail_of(per_class=4000, seed=1), 0
        objective = view_of(by_policy("test", policy, pose(policy, truth.scores, truth.y)), "balanced")
        wanted = objective.before["balanced"] - objective.after["balanced"]
        rng = np.random.default_rng(0)
        for _ in range(60):
            rows = np.concatenate([rng.choice(np.flatnonzero(truth.y == k), 30) for k in range(5)])
            some = by_policy("test", policy, pose(policy, truth.scores[rows], truth.y[rows]))
            low, high = resampled(some, as_objective("balanced"), draws=100)
            held += low <= wanted <= high
        assert 46 <= held <= 59  # of 60 at 90 %

    def test_no_change_is_no_interval(self, judged):
        same = Decided("test", judged.problem, judged.rows, judged.before, judged.before)
        assert resampled(same, as_objective("worst")) == (0.0, 0.0)


def test_the_samples_judged_out_of_fold_are_in_their_place(tail):
    adjuster = tail.fitted(LogitAdjuster("balanced"))
    out_of_fold = next(view for view in adjuster.report_.content.views if view.kind == "out of fold")
    in_sample = next(view for view in adjuster.report_.content.views if view.kind == "in sample")
    assert out_of_fold.first == in_sample.first  # the model is the same, whoever judges
    assert out_of_fold.second != in_sample.second

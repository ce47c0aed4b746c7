"""Out of fold: samples are judged by tunings that have not seen them, and intervals have the width of binomials."""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import gamma

from capri import LogitAdjuster
from capri.evidence import Evidence
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc import heldout
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.calibration import calibrate
from capri.posthoc.heldout import TUNED, UNADJUSTED, UNSTEADY, Judged, gained, judge, ladder
from capri.posthoc.methods import Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.search import Found


def task_of(tail, objective="balanced", **keywords):
    return Task(Problem(tail.scores, tail.y, objective, **keywords), Evidence(class_counts=tail.counts), borrow=20.0)


def decided(tail, l, posterior=None):
    """Every sample judged, by fixed offsets."""
    decisions = {UNADJUSTED: tail.scores.argmax(axis=1), TUNED: (tail.scores - l).argmax(axis=1)}
    q = softmax(2 * (tail.scores - np.log(tail.counts)), axis=1) if posterior is None else posterior
    return Judged(np.arange(len(tail.y)), decisions, q)


def ladder_of(method):
    return partial(ladder, method=method)


class TestJudge:
    def test_every_sample_is_decided_by_a_tuning_that_has_not_seen_it(self, tail, monkeypatch):
        seen, signs = [], iter(np.linspace(0.5, 2, 5))

        def marked(task, method="cap"):
            if method == "la":
                return tune(task, "la")
            seen.append((task, next(signs) * np.log(tail.counts)))
            return Found(Adjustment.offsets(seen[-1][1]), task.problem.worth(task.problem.neutral), "marked")

        monkeypatch.setattr(heldout, "tune", marked)
        judged = judge(task_of(tail), ladder_of("plain"))
        assert sorted(judged.rows.tolist()) == list(range(len(tail.y)))
        assert len(seen) == 5
        for row, unadjusted, after, q in zip(
            judged.rows, judged.decisions[UNADJUSTED], judged.decisions[TUNED], judged.posterior, strict=True
        ):
            own = tail.scores[row]
            blind = [(t, l) for t, l in seen if not (t.problem.scores == own).all(axis=1).any()]
            assert len(blind) == 1
            task, l = blind[0]
            assert unadjusted == own.argmax()
            assert after == (own - l).argmax()
            np.testing.assert_allclose(q, task.calibration.posterior(own[None])[0], atol=1e-9)

    def test_posteriors_are_calibrated_on_the_other_folds(self, tail):
        task = task_of(tail)
        judged = judge(task, ladder_of("la"), folds=2)
        for half in (judged.rows[:75], judged.rows[75:]):
            others = np.setdiff1d(np.arange(150), half)
            known = calibrate(Problem(tail.scores[others], tail.y[others]), tail.counts)
            np.testing.assert_allclose(
                judged.posterior[np.isin(judged.rows, half)], known.posterior(tail.scores[half]), atol=1e-9
            )

    def test_rungs_are_what_they_say(self, tail):
        judged = judge(task_of(tail), ladder_of("cap"))
        assert list(judged.decisions) == [UNADJUSTED, "τ = 1", "calibrated", "LA, tuned", TUNED]
        by_frequency = (tail.scores - np.log(tail.counts))[judged.rows].argmax(axis=1)
        np.testing.assert_array_equal(judged.decisions["τ = 1"], by_frequency)
        unknown = Task(Problem(tail.scores, tail.y), Evidence(), borrow=20.0)
        assert list(judge(unknown, ladder_of("cap")).decisions) == [UNADJUSTED, "calibrated", TUNED]

    def test_lone_samples_and_samples_without_weight_are_not_judged(self, tail):
        rows = np.r_[0:95, 120:121]  # one sample of class 4
        weight = np.ones(len(rows))
        weight[:10] = 0
        problem = Problem(tail.scores[rows], tail.y[rows], sample_weight=weight)
        calls = []
        judged = judge(
            Task(problem, Evidence(class_counts=tail.counts)), ladder_of("la"), on_fold=lambda: calls.append(1)
        )
        assert sorted(judged.rows.tolist()) == list(range(10, 95))
        assert len(calls) == 5

    def test_where_every_class_has_one_sample_nothing_is_judged(self, tail):
        rows = np.arange(0, 150, 30)
        task = Task(Problem(tail.scores[rows], tail.y[rows]), Evidence(class_counts=tail.counts), borrow=20.0)
        assert judge(task, ladder_of("cap")) is None

    def test_a_class_may_be_missing_from_a_tuning(self, tail):
        """Of the two samples of class 4 one carries no weight: the other is held out at some time."""
        rows = np.r_[0:122]
        weight = np.ones(122)
        weight[121] = 0
        problem = Problem(tail.scores[rows], tail.y[rows], sample_weight=weight)
        judged = judge(Task(problem, Evidence(class_counts=tail.counts), borrow=20.0), ladder_of("cap"))
        assert 120 in judged.rows
        gain = gained(problem, judged, draws=20)
        assert np.isfinite([gain.mean, *gain.interval]).all()


class TestGained:
    def test_the_interval_has_the_width_of_binomials(self, tail_of):
        tail = tail_of(per_class=400)
        problem, l = Problem(tail.scores, tail.y), np.log(tail.counts)
        gain = gained(problem, decided(tail, l), draws=2000)
        first, second = tail.scores.argmax(axis=1), (tail.scores - l).argmax(axis=1)
        step = (first != tail.y).astype(float) - (second != tail.y)
        deviation = np.sqrt(sum(step[tail.y == k].var() / 400 for k in range(5))) / 5
        assert gain.mean == pytest.approx(step.mean(), abs=deviation)
        wider = np.sqrt(2 * (1 + UNSTEADY / 400))  # another sample varies as much again, and so do tunings with few
        assert gain.interval[1] - gain.interval[0] == pytest.approx(2 * 1.645 * deviation * wider, rel=0.1)

    @pytest.mark.parametrize("objective", ["balanced", "macro_f1"])
    def test_it_covers_what_another_sample_shows(self, tail_of, objective):
        l, covered = np.log(tail_of().counts), 0
        for seed in range(60):
            tail, other = (tail_of(per_class=40, seed=s) for s in (seed, 1000 + seed))
            low, high = gained(Problem(tail.scores, tail.y, objective), decided(tail, l), draws=100).interval
            at = Problem(other.scores, other.y, objective)
            covered += low <= at.worth(at.neutral).value - at.worth(Adjustment.offsets(l)).value <= high
        assert covered >= 50  # nine in ten, give or take

    @pytest.mark.parametrize(
        "objective",
        [
            "balanced", "plain", "cvar:0.4", "sdev", "gmean", "macro_f1", "precision[4]", "kappa", "mcc",
            expected_cost(np.abs(np.subtract.outer(np.arange(5), np.arange(5)))),
            lambda errors: float(errors.max()),
            confusion_objective(lambda m: float(m[0, 1:].sum() / m.sum())),
        ],
        ids=lambda o: getattr(o, "name", getattr(o, "__name__", o)),
    )  # fmt: skip
    @pytest.mark.parametrize("shares", [None, [50, 20, 10, 5, 1]], ids=["of samples", "of the world"])
    def test_with_many_samples_it_is_what_happened(self, tail_of, objective, shares):
        tail = tail_of(per_class=2000)
        problem, l = Problem(tail.scores, tail.y, objective, shares=shares), np.log(tail.counts)
        gain = gained(problem, decided(tail, l), draws=30)
        happened = problem.worth(problem.neutral).value - problem.worth(Adjustment.offsets(l)).value
        low, high = gain.interval
        assert low < gain.mean < high
        assert gain.mean == pytest.approx(happened, abs=0.02 * max(1.0, abs(happened)))

    def test_depends_on_the_seed_alone(self, tail):
        problem, judged = Problem(tail.scores, tail.y), decided(tail, np.log(tail.counts))
        first, again, other = (gained(problem, judged, draws=20, seed=s) for s in (1, 1, 2))
        assert first == again != other

    def test_weights_are_those_of_copies_in_the_mean_and_less_certain(self, tail):
        judged = decided(tail, np.log(tail.counts))
        weight = np.where(np.arange(150) % 2, 1.0, 9.0)
        even = gained(Problem(tail.scores, tail.y), judged, draws=400)
        uneven = gained(Problem(tail.scores, tail.y, sample_weight=weight), judged, draws=400)
        scaled = gained(Problem(tail.scores, tail.y, sample_weight=1e3 * weight), judged, draws=400)
        width = [g.interval[1] - g.interval[0] for g in (even, uneven)]
        assert width[1] > 1.03 * width[0]
        assert scaled.mean == pytest.approx(uneven.mean)

    def test_nothing_is_gained_where_decisions_are_the_same(self, tail):
        gain = gained(Problem(tail.scores, tail.y), decided(tail, np.zeros(5)), draws=50)
        assert gain.mean == pytest.approx(0, abs=3e-3)
        assert gain.interval == pytest.approx((0, 0), abs=0.02)  # what has not been seen may still happen

    def test_a_class_that_nobody_has_seen_is_uncertain(self, tail):
        judged = decided(tail, np.log(tail.counts))
        seen, lost = tail.y != 4, judged.posterior.copy()
        lost[:, 4] = 0
        less = Judged(judged.rows[seen], {name: d[seen] for name, d in judged.decisions.items()}, lost[seen])
        problem = Problem(tail.scores, tail.y, "worst")
        known, unknown = (gained(problem, j, draws=200) for j in (judged, less))
        assert unknown.interval[1] - unknown.interval[0] > 1.5 * (known.interval[1] - known.interval[0])


class TestFit:
    @pytest.mark.parametrize("objective", ["balanced", "macro_f1", confusion_objective(lambda m: float(-np.trace(m)))])
    @pytest.mark.parametrize("per_class", [1, 2])
    def test_one_or_two_samples_of_each_class_will_do(self, tail_of, objective, per_class):
        tail = tail_of(per_class=per_class)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            kept = tail.fitted(LogitAdjuster(objective, bootstrap=20)).validation_
        assert (kept.improvement is None) == (kept.interval is None) == (per_class == 1)
        assert kept.improvement is None or np.isfinite([kept.improvement, *kept.interval]).all()

    @pytest.mark.parametrize("objective", ["cvar:0.4", "macro_f1"])
    def test_absent_classes_and_samples_without_weight(self, tail, objective):
        weight = np.where((tail.y == 2) | (np.arange(150) % 5 == 0), 0.0, 1.0)
        with pytest.warns(UserWarning, match="'2'"):
            adjuster = tail.fitted(LogitAdjuster(objective, absent="ignore", bootstrap=20), sample_weight=weight)
        low, high = adjuster.validation_.interval
        assert low <= adjuster.validation_.improvement <= high

    def test_the_improvement_is_that_of_the_tuned_rung(self, tail):
        adjuster = tail.fitted(LogitAdjuster("cvar:0.4", bootstrap=50, random_state=3))
        problem = Problem(tail.scores, tail.y, "cvar:0.4", shares=tail.counts, class_counts=tail.counts)
        task = Task(problem, Evidence(class_counts=tail.counts), borrow=20.0, seed=3)
        gain = gained(problem, judge(task, ladder_of("cap")), draws=50, seed=3)
        assert adjuster.validation_.improvement == pytest.approx(gain.mean)
        assert adjuster.validation_.interval == pytest.approx(gain.interval)
        assert adjuster.path_[TUNED] == pytest.approx(gain.mean)
        assert set(adjuster.path_) == {"τ = 1", "calibrated", "LA, tuned", TUNED}

    def test_it_is_less_than_what_the_samples_that_tuned_show(self, tail_of):
        """On the labels that chose it an adjustment looks better than it is; out of fold, on the whole it does not."""
        seen, expected, true = [], [], []
        whole = tail_of(per_class=2000, seed=99)
        at = Problem(whole.scores, whole.y)
        for seed in range(8):
            tail = tail_of(per_class=8, seed=seed)
            adjuster = tail.fitted(LogitAdjuster(method="plain", borrow=0, bootstrap=20))
            seen.append(adjuster.validation_.in_sample)
            expected.append(adjuster.validation_.improvement)
            l = Adjustment.offsets(adjuster.strategy_.l)
            true.append(at.worth(at.neutral).value - at.worth(l).value)
        assert np.mean(seen) > np.mean(true) + 0.02
        assert abs(np.mean(expected) - np.mean(true)) < abs(np.mean(seen) - np.mean(true))

    def test_without_draws_nothing_is_judged(self, tail, monkeypatch):
        monkeypatch.setattr("capri.posthoc.adjuster.judge", None)
        adjuster = tail.fitted(LogitAdjuster(bootstrap=0))
        assert adjuster.validation_.improvement is adjuster.validation_.interval is None
        assert adjuster.validation_.in_sample > 0.1
        assert adjuster.path_ == {}


@pytest.mark.parametrize("mass", [0.002, 0.03, 0.5])
def test_draws_for_many_cells_are_of_the_gamma_distribution(rng, mass):
    drawn = heldout._gamma(rng, np.full(2 * heldout.MANY, mass))
    for least in (1e-9, 1e-3, 0.1, 1.0):
        share = gamma(mass).sf(least)
        assert (drawn > least).mean() == pytest.approx(share, abs=5 * np.sqrt(share / len(drawn)))
    assert drawn.mean() == pytest.approx(mass, rel=5 / np.sqrt(mass * len(drawn)))

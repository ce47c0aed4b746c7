"""What is kept of the validation set, and when tuning speaks up."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from capri import evaluate
from capri.evaluation import STANDARD
from capri.posthoc import DegenerateWarning, ThinClassWarning
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.problem import Problem
from capri.posthoc.trust import validate, warn_if_degenerate, warn_if_thin


class TestValidation:
    def test_holds_all_objectives_before_and_after(self, tail, rng):
        weight = rng.uniform(0.5, 2, len(tail.y))
        problem = Problem(tail.scores, tail.y, "cvar:0.4", sample_weight=weight)
        l = np.log(tail.counts)
        kept = validate(problem, Adjustment.offsets(l))
        for figures, scores in ((kept.before, tail.scores), (kept.after, tail.scores - l)):
            expected = evaluate(tail.y, scores.argmax(axis=1), 5, [*STANDARD, "cvar:0.4"], sample_weight=weight)
            assert figures == pytest.approx(expected)
        assert kept.objective == "cvar:0.4"
        assert kept.improvement == pytest.approx(kept.before["cvar:0.4"] - kept.after["cvar:0.4"])
        assert kept.samples == pytest.approx(np.bincount(tail.y, weights=weight))
        wrong = (tail.scores - l).argmax(axis=1) != tail.y
        errors = np.bincount(tail.y, weights=weight * wrong) / np.bincount(tail.y, weights=weight)
        assert kept.errors_after == pytest.approx(errors)

    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "sdev", "macro_f1", lambda e: float(e.max())])
    def test_the_interval_holds_the_improvement_and_narrows_with_samples(self, tail_of, objective):
        widths = []
        for per_class in (20, 320):
            tail = tail_of(per_class=per_class)
            kept = validate(Problem(tail.scores, tail.y, objective), Adjustment.offsets(np.log(tail.counts)))
            low, high = kept.interval
            assert low < kept.improvement < high
            widths.append(high - low)
        assert widths[1] < widths[0] / 2

    def test_the_interval_has_the_spread_of_binomials(self, tail_of):
        tail = tail_of(per_class=200)
        kept = validate(Problem(tail.scores, tail.y), Adjustment.offsets(np.log(tail.counts)), resamples=2000)
        first, second = tail.scores.argmax(axis=1), (tail.scores - np.log(tail.counts)).argmax(axis=1)
        gain = (first != tail.y).astype(float) - (second != tail.y)
        deviation = np.sqrt(sum(gain[tail.y == k].var() / 200 for k in range(5))) / 5
        assert kept.interval[1] - kept.interval[0] == pytest.approx(2 * 1.645 * deviation, rel=0.1)

    def test_the_interval_depends_on_the_seed_alone(self, tail):
        problem, l = Problem(tail.scores, tail.y), np.log(tail.counts)
        first, again, other = (validate(problem, Adjustment.offsets(l), seed=s).interval for s in (1, 1, 2))
        assert first == again != other

    def test_an_absent_class_has_no_error(self, tail):
        here = tail.y != 2
        with pytest.warns(UserWarning, match="class 2"):
            problem = Problem(tail.scores[here], tail.y[here], absent="ignore")
        kept = validate(problem, Adjustment.offsets(np.log(tail.counts)))
        assert kept.errors_before[2] is None
        assert kept.errors_after[2] is None
        assert kept.samples[2] == 0
        assert kept.after["balanced"] == pytest.approx(np.mean([e for e in kept.errors_after if e is not None]))

    def test_samples_without_weight_do_not_break_resampling(self, tail):
        weight = np.where(np.arange(len(tail.y)) % 30 == 0, 1.0, 0.0)  # one of each class counts
        kept = validate(Problem(tail.scores, tail.y, sample_weight=weight), Adjustment.neutral(5))
        assert kept.interval == (0, 0)

    def test_without_resamples_there_is_no_interval(self, tail):
        problem, l = Problem(tail.scores, tail.y), np.log(tail.counts)
        kept, resampled = (validate(problem, Adjustment.offsets(l), resamples=n) for n in (0, 20))
        assert kept.interval is None
        assert kept == replace(resampled, interval=None)

    def test_violations_are_recorded(self, tail):
        problem = Problem(tail.scores, tail.y, constraints=["worst <= 0.01"])
        assert not validate(problem, Adjustment.neutral(5)).feasible


class TestWarnings:
    def test_thin_classes_are_named(self, tail):
        rows = np.r_[0:90, 90:94, 120:121]
        problem = Problem(tail.scores[rows], tail.y[rows], class_names=["a", "b", "c", "d", "e"])
        with pytest.warns(ThinClassWarning, match=r"2 of 5 classes have fewer than 5 .*'d', 'e'"):
            warn_if_thin(problem)

    def test_five_samples_are_enough(self, tail_of):
        tail = tail_of(per_class=5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_if_thin(Problem(tail.scores, tail.y))

    def test_a_collapse_onto_few_classes_is_said(self, tail):
        problem, l = Problem(tail.scores, tail.y, "sdev"), np.array([0, 9.0, 9, 9, 9])
        with pytest.warns(DegenerateWarning, match=r"sdev only 1 classes are ever predicted \(before: 5\)"):
            warn_if_degenerate(problem, Adjustment.offsets(l))

    def test_a_change_that_keeps_the_classes_is_not(self, tail):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_if_degenerate(Problem(tail.scores, tail.y), Adjustment.offsets(np.log(tail.counts)))

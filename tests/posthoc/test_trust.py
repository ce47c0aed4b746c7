"""What is kept of the validation set, and when tuning speaks up."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from capri import evaluate
from capri.evaluation import STANDARD
from capri.posthoc import DegenerateWarning, ThinClassWarning
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.heldout import TUNED, Gain
from capri.posthoc.problem import Problem
from capri.posthoc.trust import validate, warn_if_degenerate, warn_if_thin


class TestValidation:
    def test_holds_all_objectives_before_and_after(self, tail, rng):
        weight = rng.uniform(0.5, 2, len(tail.y))
        problem = Problem(tail.scores, tail.y, "cvar:0.4", sample_weight=weight)
        l = np.log(tail.counts)
        kept = validate(problem, Adjustment.offsets(l), feasible=True)
        for figures, scores in ((kept.before, tail.scores), (kept.after, tail.scores - l)):
            expected = evaluate(tail.y, scores.argmax(axis=1), 5, [*STANDARD, "cvar:0.4"], sample_weight=weight)
            assert figures == pytest.approx(expected)
        assert kept.objective == "cvar:0.4"
        assert kept.in_sample == pytest.approx(kept.before["cvar:0.4"] - kept.after["cvar:0.4"])
        assert kept.samples == pytest.approx(np.bincount(tail.y, weights=weight))
        wrong = (tail.scores - l).argmax(axis=1) != tail.y
        errors = np.bincount(tail.y, weights=weight * wrong) / np.bincount(tail.y, weights=weight)
        assert kept.errors_after == pytest.approx(errors)

    def test_figures_are_in_the_shares_of_the_world_and_samples_are_counted(self, tail):
        problem, l = Problem(tail.scores, tail.y, shares=tail.counts), np.log(tail.counts)
        kept = validate(problem, Adjustment.offsets(l), feasible=True)
        predictions = (tail.scores - l).argmax(axis=1)
        assert kept.after == pytest.approx(evaluate(tail.y, predictions, 5, STANDARD, target_shares=tail.counts))
        assert kept.samples == [30] * 5

    def test_what_was_gained_out_of_fold_is_kept(self, tail):
        problem, l = Problem(tail.scores, tail.y), Adjustment.offsets(np.log(tail.counts))
        kept = validate(problem, l, feasible=True, gains={TUNED: Gain(0.1, (0.05, 0.2))})
        assert (kept.improvement, kept.interval) == (0.1, (0.05, 0.2))
        alone = validate(problem, l, feasible=True)
        assert alone.improvement is alone.interval is None
        assert alone == replace(kept, improvement=None, interval=None, ladder={})

    def test_an_absent_class_has_no_error(self, tail):
        here = tail.y != 2
        with pytest.warns(UserWarning, match="class 2"):
            problem = Problem(tail.scores[here], tail.y[here], absent="ignore")
        kept = validate(problem, Adjustment.offsets(np.log(tail.counts)), feasible=True)
        assert kept.errors_before[2] is None
        assert kept.errors_after[2] is None
        assert kept.samples[2] == 0
        assert kept.after["balanced"] == pytest.approx(np.mean([e for e in kept.errors_after if e is not None]))

    @pytest.mark.parametrize("feasible", [True, False])
    def test_whether_constraints_are_met_is_recorded(self, tail, feasible):
        assert validate(Problem(tail.scores, tail.y), Adjustment.neutral(5), feasible=feasible).feasible is feasible


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

"""Methods are configurations of one evaluator, and none ends worse than doing nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capri import InputError, exact_line_search
from capri.attributes import frequency
from capri.evidence import Evidence
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.methods import BORROWING, METHODS, Task, _temperatures, tune
from capri.posthoc.problem import Problem
from capri.posthoc.search import MULTIPLIER_LIMIT


def task_of(tail, objective="balanced", known=("freq",), constraints=(), **keywords):
    problem = Problem(tail.scores, tail.y, objective, constraints=constraints)
    return Task(problem, Evidence(class_counts=tail.counts if known else None), **keywords)


def unadjusted(task):
    return task.problem.worth(task.problem.neutral)


class TestLogitAdjustment:
    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "macro_f1"])
    def test_is_the_exact_line_along_log_frequencies(self, tail, objective):
        found = tune(task_of(tail, objective), "la")
        line = exact_line_search(tail.scores, tail.y, np.log(frequency(tail.counts)), objective)
        assert found.worth.value == pytest.approx(line.value)
        assert found.worth.value < line.unadjusted
        log_pi = np.log(frequency(tail.counts))
        tau = found.weights["l"][0]
        np.testing.assert_allclose(found.adjustment.l, tau * (log_pi - log_pi.mean()), atol=1e-12)
        assert found.reason == f"τ = {tau:.4g}"
        assert (found.adjustment.delta == 1).all()

    def test_needs_frequencies(self, tail):
        for method in ("la", "cdt", "vs"):
            with pytest.raises(InputError, match="class_counts"):
                tune(task_of(tail, known=()), method)


class TestTemperatures:
    def test_cdt_is_the_best_power_of_relative_frequencies(self, tail):
        found = tune(task_of(tail), "cdt")
        m, l = found.adjustment
        pi = frequency(tail.counts)
        assert (l == 0).all()
        gamma = np.log(m[2]) / np.log(pi.max() / pi[2])
        np.testing.assert_allclose(m, np.minimum((pi.max() / pi) ** gamma, MULTIPLIER_LIMIT))
        problem = task_of(tail).problem
        for other in np.linspace(0, 0.6, 25):
            rival = Adjustment.multipliers(np.minimum((pi.max() / pi) ** other, MULTIPLIER_LIMIT))
            assert found.worth.value <= problem.worth(rival).value + 1e-12

    def test_temperatures_are_capped_as_all_multipliers_are(self, tail_of):
        tail = tail_of(imbalance=500.0)
        task, pi = task_of(tail), frequency(tail.counts)
        assert ((pi.max() / pi) ** 0.6).max() > 5
        np.testing.assert_allclose(_temperatures(task, 0.6), np.minimum((pi.max() / pi) ** 0.6, 5))

    @pytest.mark.parametrize("objective", ["balanced", "worst", "macro_f1"])
    def test_vs_is_at_least_as_good_as_logit_adjustment(self, tail, objective):
        vs, la = (tune(task_of(tail, objective), method) for method in ("vs", "la"))
        assert not la.worth.better_than(vs.worth)

    def test_vs_has_both_offsets_and_multipliers_of_frequencies(self, tail_of):
        tail = tail_of(seed=3)
        tail.scores[:, 2:] *= 0.3  # rare classes speak softly: temperatures help
        m, l = tune(task_of(tail), "vs").adjustment
        pi = frequency(tail.counts)
        assert np.ptp(m) > 0
        assert np.corrcoef(l, np.log(pi))[0, 1] ** 2 == pytest.approx(1)


class TestPlain:
    def test_is_one_free_offset_per_class(self, tail):
        found = tune(task_of(tail, known=()), "plain")
        assert found.worth.value < unadjusted(task_of(tail)).value
        l = found.weights["l"]
        np.testing.assert_allclose(found.adjustment.l, l - l.mean())

    @pytest.mark.parametrize("objective", ["balanced", "worst", "sdev", "macro_f1", "kappa", "plain"])
    @pytest.mark.parametrize("constraints", [(), ("err[0] <= baseline + 0.1",)])
    def test_is_never_worse_than_what_it_contains(self, tail_of, objective, constraints):
        for seed in range(3):
            tail = tail_of(per_class=12, seed=seed)
            whole = tune(task_of(tail, objective, constraints=constraints), "plain")
            for method, pooling in (("la", None), ("cap", None), ("cap", "auto")):
                part = tune(task_of(tail, objective, constraints=constraints, pooling=pooling), method)
                assert not part.worth.better_than(whole.worth), (seed, method, pooling)


class TestCap:
    @pytest.mark.parametrize("parameters", ["delta", "both"])
    @pytest.mark.parametrize("objective", ["balanced", "worst"])
    def test_multipliers_stay_within_a_factor_of_five(self, tail, parameters, objective):
        tail.scores *= [1.0, 0.7, 0.5, 0.35, 0.25]  # rare classes speak softly
        found = tune(task_of(tail, objective, parameters=parameters, pooling=None), "cap")
        assert found.worth.better_than(unadjusted(task_of(tail, objective)))
        m, l = found.adjustment
        assert m.min() >= 0.2
        assert m.max() <= 5
        assert np.ptp(m) > 0
        assert (parameters == "delta") == (l == 0).all()
        assert set(found.weights) == ({"delta"} if parameters == "delta" else {"l", "delta"})

    def test_the_prior_alone_is_the_dictionary_times_w(self, tail_of):
        tail = tail_of(n_classes=9)
        task = task_of(tail, pooling=None)
        found = tune(task, "cap")
        expected = task.dictionary(task.problem) @ found.weights["l"]
        np.testing.assert_allclose(found.adjustment.l, expected - expected.mean(), atol=1e-12)

    @pytest.mark.parametrize("pooling", ["auto", 0.5])
    @pytest.mark.parametrize("scaling", ["whiten", "standardize", "raw"])
    def test_pooled_is_the_dictionary_times_w_plus_a_residual(self, tail_of, pooling, scaling):
        tail = tail_of(n_classes=9)
        task = task_of(tail, pooling=pooling, scaling=scaling, wanted=["freq"])
        found = tune(task, "cap")
        D = task.dictionary(task.problem)
        expected = D @ found.weights["l"] + found.weights["residual"]
        np.testing.assert_allclose(found.adjustment.l, expected - expected.mean(), atol=1e-7)
        np.testing.assert_allclose(D.project(found.weights["residual"]), 0, atol=1e-7)

    @pytest.mark.parametrize("borrow", [0.0, 20.0])
    def test_a_stronger_penalty_stays_nearer_to_the_calibrated_answer(self, tail_of, borrow):
        tail = tail_of(n_classes=9)
        centre = task_of(tail, wanted=["freq"], borrow=borrow).informed.prior().centre
        weak, strong = (
            tune(task_of(tail, pooling=p, wanted=["freq"], borrow=borrow), "cap").adjustment.l for p in (0.01, 1e3)
        )
        far, near = (np.linalg.norm(l - (centre - centre.mean())) for l in (weak, strong))
        assert near < 0.1 * far

    def test_equal_rows_of_attributes_get_equal_offsets(self, tail_of):
        for n_classes in (13, 19, 21):
            tail = tail_of(n_classes=n_classes, per_class=5)
            tail.counts[6:] = tail.counts[6]
            l = tune(task_of(tail, pooling=None, wanted=["freq"]), "cap").adjustment.l
            assert l[6] != l[0]
            assert (l[6:] == l[6]).all()

    def test_attributes_that_tell_nothing_leave_offsets_to_pooling(self, tail_of):
        tail = tail_of(imbalance=1.0)  # equal counts
        prior = tune(task_of(tail, wanted=["freq"], pooling=None), "cap")
        assert (prior.adjustment.l == 0).all()
        tail.scores[:, 0] += 1.0
        free = tune(task_of(tail, wanted=["freq"], pooling=0.01), "cap")
        assert free.worth.better_than(unadjusted(task_of(tail)))
        assert free.adjustment.l.argmax() == 0

    def test_difficulty_is_measured_unless_the_user_knows_it(self, tail):
        measured = task_of(tail).attributes(task_of(tail).problem)["diff"]
        wrong = np.bincount(tail.y, weights=tail.scores.argmax(axis=1) != tail.y)
        np.testing.assert_allclose(measured, (wrong + 0.5) / 31)
        task = Task(task_of(tail).problem, Evidence(own={"diff": np.linspace(0.1, 0.5, 5)}))
        np.testing.assert_array_equal(task.attributes(task.problem)["diff"], np.linspace(0.1, 0.5, 5))

    @pytest.mark.parametrize("pooling", [0, -1.0, "some", True, [1]])
    def test_unusable_pooling_is_refused(self, tail, pooling):
        with pytest.raises(InputError, match="pooling is"):
            tune(task_of(tail, pooling=pooling), "cap")

    def test_needs_some_attribute(self, tail):
        with pytest.raises(InputError, match="attributes is empty"):
            tune(task_of(tail, known=(), wanted=[]), "cap")


def test_unknown_methods_are_refused(tail):
    with pytest.raises(InputError, match="'magic'; it must be one of cap, plain, la, cdt, vs"):
        tune(task_of(tail), "magic")


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    method=st.sampled_from(sorted(METHODS)),
    objective=st.sampled_from(["plain", "balanced", "sdev", "cvar:0.4", "quantile:0.4", "mix:0.5", "macro_f1"]),
    constraints=st.sampled_from([(), ("plain <= baseline",), ("err[0] <= 0.2", "balanced <= baseline - 0.1")]),
    pooling=st.sampled_from([None, "auto", 1.0]),
    signal=st.sampled_from([0.0, 1.0, 4.0]),
    borrow=st.sampled_from([0.0, 20.0]),
    ties=st.booleans(),
)
def test_no_method_ends_worse_than_the_unadjusted_scores(
    tail_of, seed, method, objective, constraints, pooling, signal, borrow, ties
):
    tail = tail_of(n_classes=4, per_class=8, seed=seed, signal=signal)
    tail.scores = np.round(2 * tail.scores) / 2 if ties else tail.scores
    task = task_of(tail, objective, constraints=constraints, pooling=pooling, borrow=borrow)
    found = tune(task, method)
    task = task.informed if method in BORROWING else task  # by the estimate that it goes by
    assert (task.problem.beliefs is None) == (borrow == 0 or method not in BORROWING)
    here, there = unadjusted(task), task.problem.worth(found.adjustment)
    assert found.worth == there
    assert found.adjustment.l.mean() == pytest.approx(0, abs=1e-9)
    assert not here.better_than(there)
    if not there.better_than(here):
        assert (found.adjustment.l == 0).all()  # no better: nothing is changed
        assert (found.adjustment.delta == 1).all()
        assert found.reason.startswith("nothing found beats")

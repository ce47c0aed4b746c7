"""Calibration: known posteriors are found again, and soft labels lie between them and the labels."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import expit, softmax

from capri import LogitAdjuster, evaluate
from capri._checks import InputError
from capri.evidence import Evidence
from capri.posthoc import calibration
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.calibration import (
    BIAS_SPREAD,
    NOISE_MEAN,
    NOISE_SPREAD,
    SCALE_FREEDOM,
    SCALE_SPREAD,
    SLOPE_SPREAD,
    UNKNOWN_SPREAD,
    calibrate,
    in_their_shares,
    labels_per_class,
    soft_labels,
    spread_opinion,
)
from capri.posthoc.methods import Task
from capri.posthoc.problem import Problem
from capri.posthoc.smooth import descend


def drawn(n=4000, k=4, temperature=1.0, bias=None, seed=0):
    """Labels drawn from a known posterior p, and scores T (log p − bias)."""
    rng = np.random.default_rng(seed)
    p = softmax(1.5 * rng.normal(size=(n, k)), axis=1)
    y = (p.cumsum(axis=1) < rng.uniform(size=(n, 1))).sum(axis=1)
    y[:k] = np.arange(k)
    return temperature * (np.log(p) - (0.0 if bias is None else bias)), y, p


def gaussians(per_class, counts, seed=0):
    """x ~ N(μ_k, 1): the scores of a model that was trained on these counts and knows the posterior."""
    rng, k = np.random.default_rng(seed), len(counts)
    y = np.repeat(np.arange(k), per_class)
    means = 1.2 * rng.normal(size=(k, 2))
    x = means[y] + rng.normal(size=(len(y), 2))
    likelihood = -((x[:, None] - means) ** 2).sum(axis=2) / 2
    return likelihood + np.log(counts / counts.sum()), y


def freely(problem, counts):
    """Calibrated without asking whether the model may be taken at its word."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "WORD_ODDS", 1e-300)
        return calibrate(problem, counts)


class TestLikelihood:
    @pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
    def test_temperature_and_posterior_are_found(self, temperature):
        bias = np.array([0.4, -0.2, -0.3, 0.1])
        scores, y, p = drawn(
            n=40_000, temperature=temperature, bias=bias
        )  # with fewer, the prior of ε sharpens a little
        found = calibrate(Problem(scores, y), np.bincount(y))
        assert found.temperature == pytest.approx(temperature, rel=0.03)
        assert np.abs(found.posterior(scores) - p).mean() < 0.005
        between = found.bias - bias
        np.testing.assert_allclose(between - between.mean(), 0, atol=0.15)

    @pytest.mark.parametrize("known", [True, False])
    def test_its_value_and_gradient_are_those_of_the_posterior(self, tail, rng, monkeypatch, known):
        weight = rng.uniform(0, 2, len(tail.y))
        kept = {}
        monkeypatch.setattr(calibration, "descend", lambda f, start, *_: kept.update(loss=f) or start)
        found = calibrate(Problem(tail.scores, tail.y, sample_weight=weight), tail.counts if known else None)
        weight = weight / weight.mean()
        totals = np.bincount(tail.y, weights=weight) + 0.5
        np.testing.assert_allclose(found.shares, totals / totals.sum())
        shift = np.log(found.shares / (tail.counts / tail.counts.sum())) if known else np.zeros(5)
        line = np.log(tail.counts) if known else np.zeros(5)
        monkeypatch.setattr(kept["loss"], "spread", BIAS_SPREAD if known else UNKNOWN_SPREAD)  # before it is learnt
        spread = kept["loss"].spread

        def minus_log_posterior(theta):
            bias = shift + theta[2] * (line - line.mean()) + theta[3:]
            q = softmax(np.exp(theta[0]) * tail.scores + bias, axis=1)
            mixed = (1 - expit(theta[1])) * q[np.arange(len(tail.y)), tail.y] + expit(theta[1]) * found.shares[tail.y]
            prior = stats.norm.logpdf(theta[3:], 0, spread).sum() + stats.norm.logpdf(
                theta[1], NOISE_MEAN, NOISE_SPREAD
            )
            prior += stats.norm.logpdf(theta[2], max(0, 1 - np.exp(theta[0])), SLOPE_SPREAD)
            prior += stats.t.logpdf(theta[0], SCALE_FREEDOM, 0, SCALE_SPREAD)
            return -prior - weight @ np.log(mixed)

        start = np.zeros(8)
        start[0] = 0.2
        constant = minus_log_posterior(start) - kept["loss"](start)[0]  # densities are normalised
        for theta in (start, np.array([-0.4, -1.0, 0.3, *rng.normal(size=5)]), rng.normal(size=8) / 2):
            value, gradient = kept["loss"](theta)
            assert value + constant == pytest.approx(minus_log_posterior(theta))
            np.testing.assert_allclose(gradient, approx_fprime(theta, minus_log_posterior, 1e-6), atol=2e-3)

    def test_the_optimum_has_no_slope(self, tail, monkeypatch):
        ends = []
        monkeypatch.setattr(calibration, "descend", lambda f, *rest: ends.append((f, descend(f, *rest))) or ends[-1][1])
        found = calibrate(Problem(tail.scores, tail.y), tail.counts)
        loss, theta = ends[-1]
        assert np.abs(loss(theta)[1]).max() < 0.3
        q = softmax(found.scale * tail.scores + found.bias, axis=1)
        mixed = (1 - found.noise) * q + found.noise * found.shares
        np.testing.assert_allclose(found.posterior(tail.scores), mixed, atol=1e-9)

    @pytest.mark.parametrize("known", [True, False])
    def test_of_many_scores_a_part_says_where_to_start_and_the_end_is_the_same(self, tail_of, monkeypatch, known):
        tail, passes = tail_of(n_classes=20, per_class=100), []
        counts = tail.counts if known else None
        alone = calibrate(Problem(tail.scores, tail.y), counts)
        monkeypatch.setattr(calibration, "LARGE", 1)
        called = calibration._Likelihood.__call__

        def counted(likelihood, theta):
            passes.append(len(likelihood.y))
            return called(likelihood, theta)

        monkeypatch.setattr(calibration._Likelihood, "__call__", counted)
        found = calibrate(Problem(tail.scores, tail.y), counts)
        assert set(passes) == {2000, 250}
        np.testing.assert_allclose(found.posterior(tail.scores), alone.posterior(tail.scores), atol=2e-3)

    @pytest.mark.parametrize("scale", [0.2, 1.0, 3.0, 8.0])
    def test_certain_odds_are_told_without_passes_and_are_what_passes_would_tell(self, scale, monkeypatch):
        (scores, y, _), found = drawn(k=5, seed=2), {}
        for certain in (40.0, np.inf):
            monkeypatch.setattr(calibration, "CERTAIN", certain)
            likelihood = calibration._Likelihood(Problem(scale * scores, y), np.full(5, 100.0))
            passes, seen = [], likelihood._seen
            monkeypatch.setattr(
                likelihood, "_seen", lambda theta, s=seen, p=passes: p.append(1) or s(theta), raising=False
            )
            theta = descend(likelihood, np.zeros(8), 60)
            reached, most = likelihood(theta), likelihood.most_seen()
            assert seen(theta).sum() <= most
            p = likelihood.probability(likelihood.at_its_word()[1], theta, reached, most)
            found[certain] = p, len(passes)
        assert found[40.0][0] == pytest.approx(found[np.inf][0], abs=1e-15)
        assert found[np.inf][1] == 1
        assert found[40.0][1] == (scale == 1)

    def test_the_spread_of_biases_is_learnt(self):
        even, uneven = (drawn(k=8, bias=b * np.tile([1.0, -1.0], 4), seed=5) for b in (0.0, 0.8))
        spreads = []
        for scores, y, _ in (even, uneven):
            likelihood = calibration._Likelihood(Problem(scores, y), np.bincount(y))
            theta = descend(likelihood, np.zeros(11), 60)
            spreads.append(likelihood.learnt_spread(theta))
        assert spreads[0] < 0.15 < 0.5 < spreads[1]

    def test_a_model_too_sure_of_its_evidence_is_not_so_of_its_shares(self):
        counts = np.array([900.0, 90.0, 10.0])
        scores, y = gaussians(4000, counts)
        evidence = scores - np.log(counts / counts.sum())
        found = calibrate(Problem(3 * evidence + np.log(counts / counts.sum()), y), counts)
        offsets = found.offsets() - found.offsets().mean()
        np.testing.assert_allclose(offsets, np.log(counts) - np.log(counts).mean(), atol=0.5)

    def test_labels_that_scores_say_nothing_of_are_noise(self):
        scores, y, _ = drawn(seed=3)
        before = calibrate(Problem(scores, y), np.bincount(y))
        lost = np.random.default_rng(0).uniform(size=len(y)) < 0.1
        scores[lost] = 3 * np.random.default_rng(1).permutation(scores[lost])
        after = calibrate(Problem(scores, y), np.bincount(y))
        assert before.noise < 0.03
        assert after.noise > 0.1

    def test_a_model_of_a_long_tail_is_corrected_for_balanced_labels(self, tail_of):
        tail = tail_of(per_class=400)
        shares = np.full(5, 0.2)
        unadjusted = softmax(tail.scores, axis=1).mean(axis=0)
        assert np.abs(unadjusted - shares).max() > 0.2
        for counts in (tail.counts, None):
            q = calibrate(Problem(tail.scores, tail.y), counts).posterior(tail.scores)
            np.testing.assert_allclose(q.mean(axis=0), shares, atol=0.01)

    def test_with_few_labels_the_training_counts_say_it(self):
        counts = np.array([900.0, 300, 90, 30])
        scores, y = gaussians(400, counts)
        few = np.arange(len(y)) % 200 == 0
        found = calibrate(Problem(scores[few], y[few]), counts)
        unadjusted = np.abs(softmax(scores, axis=1).mean(axis=0) - 0.25).max()
        assert np.abs(found.posterior(scores).mean(axis=0) - 0.25).max() < unadjusted / 4

    def test_few_labels_leave_the_model_at_its_word(self):
        counts = np.array([500.0, 100, 20, 5])
        scores, y = gaussians(2, counts)
        found, free = calibrate(Problem(scores, y), counts), freely(Problem(scores, y), counts)
        word = np.log(counts / counts.sum())

        def away(calibration):
            between = calibration.offsets() - word
            return np.abs(between - between.mean()).max()

        assert away(found) < away(free) / 2

    @pytest.mark.parametrize(("unit", "per_class"), [(8.0, 8), (0.1, 30)])
    def test_labels_that_insist_are_heard(self, unit, per_class):
        counts = np.array([500.0, 100, 20, 5])
        scores, y = gaussians(per_class, counts)
        problem = Problem(unit * scores, y)
        assert calibrate(problem, counts).scale == pytest.approx(freely(problem, counts).scale, rel=0.1)

    def test_the_model_at_its_word_is_logit_adjustment(self):
        counts = np.array([500.0, 100, 20, 5])
        scores, y = gaussians(3, counts)
        likelihood = calibration._Likelihood(Problem(scores, y), counts)
        offsets = likelihood.calibration(likelihood.at_its_word()[0]).offsets()
        np.testing.assert_allclose(offsets - offsets.mean(), np.log(counts) - np.log(counts).mean(), atol=1e-9)

    def test_float32_scores_are_calibrated_nearly_alike(self, tail):
        single, double = (
            calibrate(Problem(tail.scores.astype(dtype), tail.y), tail.counts) for dtype in (np.float32, np.float64)
        )
        assert single.temperature == pytest.approx(double.temperature, rel=1e-2)
        np.testing.assert_allclose(single.bias, double.bias, atol=1e-2)
        assert single.posterior(tail.scores.astype(np.float32)).dtype == np.float32

    def test_weights_count_as_copies_and_their_unit_does_not_matter(self):
        counts = np.array([900.0, 300, 90, 30])
        scores, y = gaussians(200, counts)
        weight = np.where(np.arange(len(y)) % 2, 1.0, 3.0)
        first, scaled = (calibrate(Problem(scores, y, sample_weight=u * weight), counts) for u in (1, 1e-6))
        assert first.scale == pytest.approx(scaled.scale, rel=1e-3)
        rows = np.repeat(np.arange(len(y)), weight.astype(int))
        copied = calibrate(Problem(scores[rows], y[rows]), counts)
        assert first.scale == pytest.approx(copied.scale, rel=0.02)  # copies are more labels, so priors say less
        np.testing.assert_allclose(first.bias - first.bias[0], copied.bias - copied.bias[0], atol=0.1)

    def test_samples_without_weight_do_not_count(self, tail):
        here = np.arange(len(tail.y)) % 3 != 0
        some = calibrate(Problem(tail.scores, tail.y, sample_weight=here.astype(float)), tail.counts)
        alone = calibrate(Problem(tail.scores[here], tail.y[here]), tail.counts)
        assert some.scale == pytest.approx(alone.scale, rel=1e-2)
        np.testing.assert_allclose(some.bias, alone.bias, atol=1e-2)

    @pytest.mark.parametrize("confidence", [1.0, 1e3])
    def test_scores_that_are_never_wrong_have_a_finite_temperature(self, rng, confidence):
        y = np.repeat(np.arange(3), 10)
        found = calibrate(Problem(confidence * np.eye(3)[y] + 1e-3 * rng.normal(size=(30, 3)), y))
        assert 0 < found.temperature < np.inf
        assert np.isfinite(found.bias).all()


class TestOffsets:
    @pytest.mark.parametrize("unit", [0.01, 0.3, 20.0])
    def test_are_in_the_unit_of_the_scores(self, tail_of, unit):
        tail = tail_of(per_class=60)
        plain, scaled = (calibrate(Problem(u * tail.scores, tail.y), tail.counts).offsets() for u in (1.0, unit))
        np.testing.assert_allclose(scaled / unit - (scaled / unit).mean(), plain - plain.mean(), atol=0.15)

    def test_are_those_of_bayes_where_the_posterior_is_known(self):
        counts, c = np.array([900.0, 300, 90, 30]), np.array([1.0, 0.5, 2.0, 1.5])
        scores, y = gaussians(2000, counts)
        problem = Problem(scores, y, "weighted", weights=c)
        task = Task(problem, Evidence(class_counts=counts), borrow=20.0)
        bayes = np.log(counts) - np.log(c)  # of log p(x | k) + log π_k it leaves log c_k p(x | k)
        l = task.prior().centre
        np.testing.assert_allclose(l - l.mean(), bayes - bayes.mean(), atol=0.12)
        found, best = (problem.worth(Adjustment.offsets(o)).value for o in (l, bayes))
        assert found == pytest.approx(best, abs=0.003)
        assert best < problem.worth(problem.neutral).value - 0.1


class TestSoftLabels:
    @settings(max_examples=15)
    @given(seed=st.integers(0, 10**6), worth=st.sampled_from([0.5, 20.0, 1e6]), weighted=st.booleans())
    def test_sum_to_the_weights(self, tail_of, seed, worth, weighted):
        tail = tail_of(n_classes=4, per_class=6, seed=seed)
        weight = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], len(tail.y)) if weighted else np.ones(len(tail.y))
        weight[::6] = 1.0
        problem = Problem(tail.scores, tail.y, sample_weight=weight)
        known = calibrate(problem, tail.counts)
        mass = soft_labels(problem, known, worth)
        np.testing.assert_allclose(mass.sum(axis=1), weight)
        assert mass.min() >= 0
        alpha = labels_per_class(problem) / (labels_per_class(problem) + worth)
        a = alpha[tail.y][:, None]
        expected = weight[:, None] * (a * np.eye(4)[tail.y] + (1 - a) * known.posterior(tail.scores))
        np.testing.assert_allclose(mass, expected)

    def test_many_labels_outweigh_the_model(self, tail_of):
        own = []
        for per_class in (2, 20, 2000):
            tail = tail_of(per_class=per_class)
            problem = Problem(tail.scores, tail.y)
            own.append(1 - np.abs(soft_labels(problem, calibrate(problem), 20.0) - np.eye(5)[tail.y]).max())
        assert own == sorted(own)
        assert own[0] < 0.5
        assert own[-1] > 0.98

    def test_labels_of_unequal_weight_are_fewer(self):
        y, weight = np.repeat([0, 1, 2], 4), np.array([1.0, 1, 1, 1, 1, 0, 0, 0, 4, 1, 1, 1])
        problem = Problem(np.eye(3)[y], y, sample_weight=weight)
        np.testing.assert_allclose(labels_per_class(problem), [4, 1, 49 / 19])


class TestBorrowing:
    def task(self, tail, **keywords):
        return Task(Problem(tail.scores, tail.y, "cvar:0.4"), Evidence(class_counts=tail.counts), **keywords)

    def test_nothing_means_labels_alone(self, tail):
        task = self.task(tail, borrow=0.0)
        assert task.informed is task
        assert task.problem.beliefs is None

    def test_little_means_nearly_the_labels(self, tail):
        task, l = self.task(tail, borrow=1e-9).informed, Adjustment.offsets(np.log(tail.counts))
        np.testing.assert_allclose(task.problem.errors(l), self.task(tail).problem.errors(l), atol=1e-9)

    def test_informs_methods_of_offsets_by_soft_labels(self, tail):
        task = self.task(tail, borrow=20.0)
        mass = soft_labels(task.problem, calibrate(task.problem, tail.counts), 20.0)
        totals = mass.sum(axis=0)
        np.testing.assert_allclose(task.informed.problem.beliefs, mass * (30 / totals))  # classes keep their shares
        assert task.informed.informed is task.informed
        assert task.informed.calibration is task.calibration
        for parameters in ("delta", "both"):
            assert replace(task, parameters=parameters).informed.problem.beliefs is None

    def test_absent_classes_are_believed_in_by_nobody(self, tail):
        here = tail.y != 2
        with pytest.warns(UserWarning, match="class 2"):
            problem = Problem(tail.scores[here], tail.y[here], absent="ignore")
        beliefs = Task(problem, Evidence(class_counts=tail.counts), borrow=20.0).informed.problem.beliefs
        assert (beliefs[:, 2] == 0).all()
        np.testing.assert_allclose(beliefs.sum(axis=0)[[0, 1, 3, 4]], 30)
        with pytest.warns(UserWarning, match="class 2"):
            unweighted = Problem(tail.scores, tail.y, sample_weight=here.astype(float), absent="ignore")
        some = Task(unweighted, Evidence(class_counts=tail.counts), borrow=20.0).informed.problem.beliefs
        np.testing.assert_allclose(some[here], beliefs, atol=1e-6)
        assert (some[~here] == 0).all()


class TestUnlabelled:
    counts = np.array([500.0, 100, 20, 5])

    def test_the_opinion_is_worth_as_much_and_spread_over_more(self):
        scores, y = gaussians(5, self.counts)
        more, _ = gaussians(100, self.counts, seed=0)
        problem = Problem(scores, y)
        known, alone = calibrate(problem, self.counts), soft_labels(problem, calibrate(problem, self.counts), 20.0)
        here, there = spread_opinion(problem, known, more, 20.0)
        np.testing.assert_allclose(here.sum(axis=0) + there.sum(axis=0), alone.sum(axis=0))
        assert there.sum() > 10 * (here.sum() - (5 / 25) * len(y))
        assert here.min() >= 0
        assert there.min() >= 0

    def test_their_shares_are_found(self):
        scores, y, _ = drawn(n=4000, temperature=1.0)
        known = replace(calibrate(Problem(scores, y), np.bincount(y)), noise=0.0)
        rng = np.random.default_rng(1)
        chosen = rng.choice(len(y), 3000, p=(w := np.array([8.0, 1, 1, 4])[y]) / w.sum())
        found = in_their_shares(known, scores[chosen], np.ones(4))
        np.testing.assert_allclose(found.shares, np.bincount(y[chosen]) / 3000, atol=0.05)

    def test_shares_that_stay_change_nothing(self):
        scores, y = gaussians(5, self.counts)
        known = calibrate(Problem(scores, y), self.counts)
        np.testing.assert_allclose(known.under(known.shares).posterior(scores), known.posterior(scores))

    def test_steady_what_few_labels_say_of_the_worst_class(self):
        """Over draws of few labels, the answer varies less, and is better on other samples."""
        more, _ = gaussians(300, self.counts, seed=0)
        test, truth = gaussians(2000, self.counts, seed=0)
        worst = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            rows = np.concatenate([k * 2000 + rng.choice(2000, 5, replace=False) for k in range(4)])
            fits = [LogitAdjuster("worst", bootstrap=0) for _ in range(2)]
            for fit, unlabelled in zip(fits, (None, more), strict=True):
                fit.fit(test[rows], truth[rows], class_counts=self.counts, X_unlabelled=unlabelled)
            worst.append([evaluate(truth, fit.predict(test))["worst"] for fit in fits])
        alone, together = np.array(worst).T
        assert together.mean() < alone.mean()
        assert together.std() < alone.std()

    def test_labels_alone_take_no_notice(self, tail):
        one, other = (LogitAdjuster("worst", borrow=0, bootstrap=0) for _ in range(2))
        one.fit(tail.scores, tail.y, class_counts=tail.counts)
        other.fit(tail.scores, tail.y, class_counts=tail.counts, X_unlabelled=tail.scores)
        np.testing.assert_array_equal(one.strategy_.l, other.strategy_.l)

    @pytest.mark.parametrize("absent", [0, 4])
    def test_go_with_absent_classes_folds_and_weights(self, tail, absent):
        here = tail.y != absent
        fit = LogitAdjuster("cvar:0.4", absent="ignore", classes=range(5), bootstrap=20)
        weight = np.linspace(0, 2, here.sum())
        with pytest.warns(UserWarning, match="no sample"):
            fit.fit(tail.scores[here], tail.y[here], weight, class_counts=tail.counts, X_unlabelled=tail.scores)
        assert np.isfinite(fit.strategy_.l).all()
        assert fit.validation_.interval is not None

    def test_samples_of_no_weight_are_as_if_not_there(self, tail):
        weight = np.append(np.ones(len(tail.y)), np.zeros(500))
        many = np.concatenate([tail.scores, np.zeros((500, 5))])
        one, other = (LogitAdjuster("worst", bootstrap=0, target_shares="validation") for _ in range(2))
        one.fit(tail.scores, tail.y, weight[: len(tail.y)], class_counts=tail.counts, X_unlabelled=tail.scores)
        y = np.append(tail.y, np.zeros(500, int))
        other.fit(many, y, weight, class_counts=tail.counts, X_unlabelled=tail.scores)
        np.testing.assert_allclose(one.strategy_.l, other.strategy_.l, atol=1e-6)

    def test_are_told_in_the_policy(self, tail):
        fit = LogitAdjuster(bootstrap=0).fit(
            tail.scores, tail.y, class_counts=tail.counts, X_unlabelled=tail.scores[:9]
        )
        assert fit.policy_.data["unlabelled"]["n_samples"] == 9

    def test_columns_are_named_in_messages(self, tail):
        frame = pd.DataFrame(tail.scores, columns=list("abcde"))
        with pytest.raises(InputError, match="X_unlabelled"):
            LogitAdjuster(classes=list("abcde")).fit(
                frame,
                np.array(list("abcde"))[tail.y],
                class_counts=tail.counts,
                X_unlabelled=frame.rename(columns={"a": "z"}),
            )

    def test_of_other_classes_are_refused(self, tail):
        with pytest.raises(InputError, match="X_unlabelled has 4 columns"):
            LogitAdjuster().fit(tail.scores, tail.y, class_counts=tail.counts, X_unlabelled=tail.scores[:, :4])

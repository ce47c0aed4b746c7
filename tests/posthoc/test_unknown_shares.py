"""Shares by scores without labels, where the truth is known."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from capri import InputError, LogitAdjuster, Policy, Strategy, estimate_shares
from capri.posthoc import ShareWarning

TRUTH = np.array([0.7, 0.2, 0.1])


def world(rng, shares, n, scale=1.0):
    """Scores are log posteriors under equal shares, on any scale."""
    y = rng.choice(len(shares), n, p=shares)
    return y, scale * 2 * (rng.normal(size=(n, len(shares))) + 2 * np.eye(len(shares))[y])


def balanced(rng, n, k=3, scale=1.0):
    y = np.repeat(np.arange(k), n)
    return scale * 2 * (rng.normal(size=(n * k, k)) + 2 * np.eye(k)[y]), y


POLICY = LogitAdjuster.from_counts([100, 100, 100], "plain").policy_


class TestEstimate:
    def test_is_the_maximum_of_the_likelihood(self, rng):
        _, scores = world(rng, TRUTH, 300)
        q = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

        def cost(z):
            shares = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            return -np.log(q @ shares).sum() - 3 * np.log(shares).mean()  # and as many samples as classes

        z = minimize(cost, np.zeros(3), tol=1e-12).x
        found = estimate_shares(POLICY, scores)
        np.testing.assert_allclose(found.shares, np.exp(z) / np.exp(z).sum(), atol=1e-5)

    @pytest.mark.parametrize("labelled", [False, True])
    def test_its_errors_are_told_in_truth(self, labelled):
        """Over 200 worlds the estimate is right in the mean, and as far off as it says."""
        rng, off = np.random.default_rng(3), []
        for _ in range(200):
            _, scores = world(rng, TRUTH, 400)
            found = estimate_shares(POLICY, scores, validation=balanced(rng, 100) if labelled else None)
            off.append((found.shares - TRUTH) / found.error)
        assert np.abs(np.mean(off, axis=0)).max() < 0.35
        assert np.all((np.std(off, axis=0) > 0.85) & (np.std(off, axis=0) < 1.2))

    @pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
    def test_labels_tell_the_scale_of_the_scores(self, rng, scale):
        _, scores = world(rng, TRUTH, 4000, scale)
        found = estimate_shares(POLICY, scores, validation=balanced(rng, 300, scale=scale))
        np.testing.assert_allclose(found.shares, TRUTH, atol=0.03)
        assert found.temperature == pytest.approx(scale, rel=0.15)

    def test_probabilities_and_labels_of_any_kind(self, rng):
        _, scores = world(rng, TRUTH, 4000)
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        policy = LogitAdjuster.from_counts({"a": 1, "b": 1, "c": 1}, "plain", scores="proba").policy_
        X, y = balanced(rng, 100)
        X = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
        for known in (
            {},
            {"validation": (X, np.array(["a", "b", "c"])[y])},
            {"class_counts": {"c": 5, "a": 5, "b": 5}},
        ):
            np.testing.assert_allclose(estimate_shares(policy, p, **known).shares, TRUTH, atol=0.03)

    def test_of_a_model_that_was_trained_on_other_shares(self, rng):
        _, scores = world(rng, TRUTH, 4000)
        trained = np.array([0.05, 0.15, 0.8])
        found = estimate_shares(POLICY, scores + np.log(trained), class_counts=trained)
        np.testing.assert_allclose(found.shares, TRUTH, atol=0.03)
        np.testing.assert_allclose(found.source, trained)

    def test_with_the_policy_it_comes_near_to_knowing_them(self, rng):
        y, scores = world(rng, TRUTH, 4000)
        policy = LogitAdjuster.from_counts([1, 1, 1], "plain").policy_
        moved = [policy.for_shares(s) for s in (estimate_shares(policy, scores).shares, TRUTH)]
        before, found, known = (np.mean(p.predict(scores) != y) for p in (policy, *moved))
        assert known < before
        assert abs(found - known) < 0.3 * (before - known)

    def test_on_digits_that_are_drawn_otherwise(self, rng):
        X, y = load_digits(return_X_y=True)
        X, order = X + rng.normal(0, 6, X.shape), rng.permutation(len(y))
        train, val, test = order[:600], order[600:1200], order[1200:]
        model = LogisticRegression(C=1e-3, max_iter=500).fit(X[train], y[train])
        shares = np.linspace(1, 10, 10) / 55
        drawn = rng.choice(test, 3000, p=(shares / np.bincount(y[test]))[y[test]])
        scores = [model.predict_log_proba(X[part]) for part in (val, drawn)]
        tuned = LogitAdjuster("plain", bootstrap=0).fit(scores[0], y[val], class_counts=np.bincount(y[train])).policy_
        found = estimate_shares(tuned, scores[1], validation=(scores[0], y[val]))
        equal = np.full(10, 0.1)
        assert np.abs(found.shares - shares).sum() < 0.4 * np.abs(equal - shares).sum()
        before, after = (np.mean(p.predict(scores[1]) != y[drawn]) for p in (tuned, tuned.for_shares(found.shares)))
        assert after < before - 0.01


def warned(policy, scores, **known):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimate_shares(policy, scores, **known)
    assert all(w.category is ShareWarning for w in caught)
    return found, [str(w.message) for w in caught]


class TestTrust:
    def test_few_samples_are_named(self, rng):
        _, said = warned(POLICY, world(rng, [0.9, 0.08, 0.02], 60)[1])
        assert len(said) == 1
        assert said[0].startswith("60 samples do not say how often these classes occur: '2' (")

    def test_classes_that_the_scores_do_not_tell_apart_are_named(self, rng):
        _, scores = world(rng, TRUTH, 20_000)
        scores[:, 2] = scores[:, 1]
        found, said = warned(POLICY, scores)
        assert np.isinf(found.error[1:]).all()
        assert found.error[0] < 0.05
        assert all(f"{name!r}" in said[0] for name in ("1", "2"))
        assert "'0'" not in said[0]

    def test_enough_samples_are_not_warned_of(self, rng):
        assert warned(POLICY, world(rng, TRUTH, 2000)[1], validation=balanced(rng, 200))[1] == []

    def test_false_alarms_are_rare(self):
        rng, alarms = np.random.default_rng(4), 0
        for _ in range(200):
            alarms += bool(warned(POLICY, world(rng, TRUTH, 500)[1], validation=balanced(rng, 50))[1])
        assert alarms <= 6

    def test_scores_that_have_become_surer_are_noticed(self):
        rng = np.random.default_rng(5)
        said = warned(POLICY, world(rng, TRUTH, 5000, scale=1.7)[1], validation=balanced(rng, 200))[1]
        assert len(said) == 1
        assert said[0].startswith("the samples are no mixture of the labelled classes, whatever the shares")

    def test_a_class_of_one_labelled_sample_raises_no_false_alarm(self, rng):
        scores, y = balanced(rng, 100)
        few = np.flatnonzero((y < 2) | (np.arange(300) == 299))
        _, said = warned(POLICY, world(rng, TRUTH, 500)[1], validation=(scores[few], y[few]))
        assert not any("no mixture" in text for text in said)


class TestMistakes:
    @pytest.mark.parametrize(
        ("known", "says"),
        [
            ({"validation": 3}, r"validation is 3; it must be a pair \(scores, labels\)"),
            ({"validation": (np.zeros((4, 3)), [0, 1, 2])}, "validation has 3 labels for 4 samples"),
            (
                {"validation": (np.zeros((2, 3)), [0, 1])},
                "validation has no sample of class '2'; give some of every class",
            ),
            ({"validation": (np.zeros((3, 2)), [0, 1, 2])}, "validation has 2 columns, the policy 3 classes"),
            ({"validation": (np.zeros((1, 3)), [7])}, "validation labels holds 7, which is not in the class list"),
            ({"class_counts": [1, 2]}, "class_counts has 2 entries for 3 classes"),
            ({"class_counts": [1, 2, 0]}, "training samples of every class must be known; give class_counts"),
        ],
    )
    def test_are_named(self, rng, known, says):
        with pytest.raises(InputError, match=says):
            estimate_shares(POLICY, rng.normal(size=(5, 3)), **known)

    def test_scores_of_other_classes(self):
        with pytest.raises(InputError, match="X has 2 columns, the policy 3 classes"):
            estimate_shares(POLICY, [[1.0, 2.0]])

    def test_a_policy_without_frequencies(self, rng):
        with pytest.raises(InputError, match="must be known; give class_counts="):
            estimate_shares(Policy(Strategy.of(3), "plain", (0, 1, 2)), rng.normal(size=(5, 3)))

"""A policy in a world of other shares: the best decision there, by Bayes' rule and by tuning again."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from capri import InputError, LogitAdjuster, Policy, Strategy
from capri.objectives import expected_cost

OLD, NEW = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6])


def world(rng, shares, n, scale=1.0):
    """Normal clouds at the corners; the scores are log posteriors under OLD, on any scale."""
    y = rng.choice(3, n, p=shares)
    x = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
    return y, scale * (1.5 * x + np.log(OLD))


def bayes(scores, shares, costs=None):
    """What decides best, written down independently."""
    density = np.exp(scores - np.log(OLD))
    expected = density * shares
    wrong = np.ones((3, 3)) - np.eye(3) if costs is None else costs
    return (expected @ wrong).argmin(axis=1)


def policy(objective="plain", **changes):
    given = {"strategy": Strategy.of(3), "data": {"target_shares": OLD.tolist()}} | changes
    return Policy(objective=objective, classes=("a", "b", "c"), **given)


ON_ERRORS = ["balanced", "weighted", "worst", "cvar:0.4", "quantile:0.4", "sdev", "gmean", "min_recall", "err[b]"]
ON_ERRORS += ["recall[c]", "worst_group", "few", "0.5*balanced+0.5*cvar:0.4", "mix:0"]


class TestKnownShares:
    def test_of_a_calibrated_model_it_is_bayes_rule(self, rng):
        y, scores = world(rng, NEW, 4000)
        moved = policy().for_shares(NEW)
        decided = moved.apply(scores).argmax(axis=1)
        np.testing.assert_array_equal(decided, bayes(scores, NEW))
        assert np.mean(decided != y) < np.mean(scores.argmax(axis=1) != y) - 0.1

    def test_costs_of_the_true_class_stay(self, rng):
        prices = np.array([1.0, 2.0, 10.0])
        costs = prices[:, None] * (1 - np.eye(3))
        objective = expected_cost(costs)
        tuned = policy(objective.name, strategy=Strategy.of(3, l=-np.log(prices)))
        _, scores = world(rng, NEW, 2000)
        np.testing.assert_array_equal(tuned.apply(scores).argmax(axis=1), bayes(scores, OLD, costs))
        moved = tuned.for_shares(NEW, objective=objective)
        np.testing.assert_array_equal(moved.apply(scores).argmax(axis=1), bayes(scores, NEW, costs))

    def test_half_a_balanced_and_half_a_plain_error_move_half_way(self):
        """Σ (½/K + ½π_k) Err_k, whose best decision is by the densities times these."""
        moved = policy("0.5*balanced+0.5*plain").for_shares(NEW)
        expected = -np.log((1 / 6 + NEW / 2) / (1 / 6 + OLD / 2))
        np.testing.assert_allclose(moved.strategy.l, expected - expected.mean())

    @pytest.mark.parametrize("objective", ON_ERRORS)
    def test_of_class_errors_alone_it_stays_as_it_is(self, objective):
        one = policy(objective, attributes={"weights": [1.0, 2.0, 3.0]})
        assert one.for_shares(NEW) is one

    def test_limits_on_class_errors_are_kept(self):
        one = policy("balanced", constraints=("recall[c] >= 0.5", "worst <= baseline"))
        assert one.for_shares(NEW) is one

    @pytest.mark.parametrize("objective", ["macro_f1", "f1[b]", "kappa", "mcc", "mix:0.5", "0.5*plain+0.5*worst"])
    def test_what_has_no_closed_form_is_refused(self, objective):
        with pytest.raises(InputError, match=r"objective .* no closed form; tune again .* --target-shares"):
            policy(objective).for_shares(NEW)

    @pytest.mark.parametrize("constraint", ["plain <= baseline + 0.01", "precision[b] >= 0.9"])
    def test_a_limit_that_depends_on_shares_is_refused(self, constraint):
        with pytest.raises(InputError, match=r"the constraint on .* no closed form"):
            policy("balanced", constraints=(constraint,)).for_shares(NEW)

    def test_there_and_back_is_nothing(self):
        one = policy(strategy=Strategy.of(3, l=[0.5, -0.2, -0.3]))
        again = one.for_shares(NEW).for_shares(OLD)
        np.testing.assert_allclose(again.strategy.l, one.strategy.l, atol=1e-12)
        assert again.data["target_shares"] == pytest.approx(OLD)

    def test_shares_by_label_and_on_any_scale(self):
        by_label = policy().for_shares({"c": 60, "a": 10, "b": 30})
        np.testing.assert_array_equal(by_label.strategy.l, policy().for_shares(NEW * 100).strategy.l)
        assert by_label.data["target_shares"] == pytest.approx(NEW)
        assert by_label.data["tuned_for"] == pytest.approx(OLD)
        assert by_label.validation is None
        assert Policy.from_json(by_label.to_json()).digest == by_label.digest

    def test_common_multipliers_are_a_scale(self, rng):
        _, scores = world(rng, NEW, 1000, scale=0.5)
        doubled = policy(strategy=Strategy.of(3, delta=[2, 2, 2]))
        decided = doubled.for_shares(NEW, temperature=0.5).apply(scores).argmax(axis=1)
        np.testing.assert_array_equal(decided, bayes(2 * scores, NEW))

    @pytest.mark.parametrize(
        ("changes", "arguments", "says"),
        [
            ({"data": {}}, {}, "does not say which class shares it was tuned for; give old=…"),
            ({}, {"shares": [1, 2]}, "shares has 2 entries for 3 classes"),
            ({}, {"shares": [1, 2, 0]}, "shares of class 'c' is 0"),
            ({}, {"shares": [1, 2, np.nan]}, r"shares\[2\] is nan"),
            ({}, {"old": [1, 0, 1]}, "old of class 'b' is 0"),
            ({}, {"temperature": -1.0}, "temperature is -1.0; it must be a positive number"),
            ({"side": "loss"}, {}, "this policy is a loss"),
            ({"objective": "mine"}, {}, "unknown objective 'mine'"),
            ({"strategy": Strategy.of(3, delta=[1, 2, 1])}, {}, "the policy has multipliers"),
        ],
    )
    def test_mistakes_are_named(self, changes, arguments, says):
        given = {"objective": "plain"} | changes
        with pytest.raises(InputError, match=says):
            policy(**given).for_shares(**({"shares": NEW} | arguments))


class TestTuned:
    @pytest.mark.parametrize("scale", [1.0, 0.3, 3.0])
    def test_it_is_as_good_as_tuning_again_whatever_the_scale_of_the_scores(self, rng, scale):
        y, scores = world(rng, [1 / 3, 1 / 3, 1 / 3], 3000, scale)
        test_y, test = world(rng, NEW, 5000, scale)
        settings = {"objective": "plain", "bootstrap": 0}
        tuned = LogitAdjuster(target_shares=OLD, **settings).fit(scores, y, class_counts=OLD)
        again = LogitAdjuster(target_shares=NEW, **settings).fit(scores, y, class_counts=OLD)
        moved = tuned.policy_.for_shares(NEW)
        wrong = [np.mean(one.predict(test) != test_y) for one in (tuned, moved, again)]
        assert wrong[1] < wrong[0] - 0.05
        assert wrong[1] < wrong[2] + 0.01
        assert tuned.policy_.data["temperature"] == pytest.approx(scale, rel=0.25)

    def test_of_counts_alone(self, rng):
        _, scores = world(rng, NEW, 4000)
        moved = LogitAdjuster.from_counts(OLD * 1000, "plain").policy_.for_shares(NEW)
        np.testing.assert_array_equal(moved.predict(scores), bayes(scores, NEW))

    def test_digits_that_are_drawn_otherwise(self, rng):
        """Odd digits become rare; the plain error of the test images falls, and the balanced policy stays."""
        X, y = load_digits(return_X_y=True)
        X = X + rng.normal(0, 6, X.shape)  # else there is nothing to gain
        order = rng.permutation(len(y))
        train, val, test = order[:600], order[600:1200], order[1200:]
        model = LogisticRegression(C=1e-3, max_iter=500).fit(X[train], y[train])
        shares = np.where(np.arange(10) % 2, 0.005, 0.195)
        drawn = rng.choice(test, 6000, p=(shares / np.bincount(y[test]))[y[test]])
        scores = [model.predict_log_proba(X[part]) for part in (val, drawn)]
        counts = np.bincount(y[train])
        tuned = LogitAdjuster("plain", bootstrap=0).fit(scores[0], y[val], class_counts=counts).policy_
        before, after = (np.mean(p.predict(scores[1]) != y[drawn]) for p in (tuned, tuned.for_shares(shares)))
        assert after < before - 0.02
        balanced = LogitAdjuster("balanced", bootstrap=0).fit(scores[0], y[val], class_counts=counts).policy_
        assert balanced.for_shares(shares) is balanced

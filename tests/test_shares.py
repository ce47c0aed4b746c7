"""Class shares of the world: in what is evaluated and in what is tuned."""

import numpy as np
import pytest
from sklearn import metrics

from capri import InputError, LogitAdjuster, evaluate
from capri.objectives import expected_cost

COUNTS = np.array([900.0, 90, 10])
SHARES = COUNTS / COUNTS.sum()
ON_ERRORS = ["balanced", "cvar:0.34", "worst", "sdev", "gmean", "err[1]"]


@pytest.fixture
def data(rng):
    y = np.repeat([0, 1, 2], [40, 30, 20])
    return rng.normal(size=(90, 3)) + 1.5 * np.eye(3)[y] + np.log(SHARES), y


def weights_of(y, shares=SHARES):
    """One weight per sample, so that the classes have their shares."""
    return (shares / np.bincount(y))[y]


class TestEvaluate:
    def test_plain_error_is_class_errors_times_shares(self, data):
        scores, y = data
        predictions = scores.argmax(axis=1)
        errors = 1 - metrics.recall_score(y, predictions, average=None)
        for wanted in ("train", COUNTS, {0: 900, 2: 10, 1: 90}):
            found = evaluate(y, predictions, 3, ["plain"], class_counts=COUNTS, target_shares=wanted)
            assert found["plain"] == pytest.approx(SHARES @ errors)
        for unwanted in (None, "validation"):
            found = evaluate(y, predictions, 3, ["plain"], class_counts=COUNTS, target_shares=unwanted)
            assert found["plain"] == pytest.approx(np.mean(predictions != y))

    def test_scores_are_those_of_scikit_learn_with_weights(self, data):
        scores, y = data
        predictions, weight = (scores - np.log(SHARES)).argmax(axis=1), weights_of(y)
        costs = np.array([[0, 1, 2], [3, 0, 1], [9, 5, 0.0]])
        chosen = ["macro_f1", "weighted_f1", "precision[1]", "kappa", "mcc", expected_cost(costs)]
        found = list(evaluate(y, predictions, 3, chosen, target_shares=COUNTS).values())
        known = {"sample_weight": weight}
        confusion = metrics.confusion_matrix(y, predictions, **known)
        expected = [
            1 - metrics.f1_score(y, predictions, average="macro", **known),
            1 - metrics.f1_score(y, predictions, average="weighted", **known),
            1 - metrics.precision_score(y, predictions, average=None, **known)[1],
            1 - metrics.cohen_kappa_score(y, predictions, **known),
            1 - metrics.matthews_corrcoef(y, predictions, **known),
            (costs * confusion).sum() / confusion.sum(),
        ]
        assert found == pytest.approx(expected)

    def test_class_errors_do_not_depend_on_them(self, data):
        scores, y = data
        first, second = (
            evaluate(y, scores.argmax(axis=1), 3, ON_ERRORS, target_shares=s) for s in (None, [1.0, 5.0, 2.0])
        )
        assert first == pytest.approx(second)

    def test_sample_weights_still_count_within_classes(self, data, rng):
        scores, y = data
        weight, predictions = rng.uniform(0.5, 2, 90), scores.argmax(axis=1)
        errors = np.bincount(y, weights=weight * (predictions != y)) / np.bincount(y, weights=weight)
        found = evaluate(y, predictions, 3, ["plain"], sample_weight=weight, target_shares=COUNTS)
        assert found["plain"] == pytest.approx(SHARES @ errors)

    def test_absent_classes_have_none(self, data):
        scores, y = data
        here = y != 1
        with pytest.warns(UserWarning, match="'1'|class 1"):
            found = evaluate(
                y[here], scores[here].argmax(axis=1), 3, ["plain"], absent="ignore", target_shares=[2.0, 5.0, 1.0]
            )
        errors = 1 - metrics.recall_score(y[here], scores[here].argmax(axis=1), labels=[0, 2], average=None)
        assert found["plain"] == pytest.approx((2 * errors[0] + errors[1]) / 3)


class TestTuning:
    def test_default_is_training_counts_where_they_are_given_and_samples_are_not_weighted(self, data):
        scores, y = data
        settings = {"objective": "plain", "method": "la", "bootstrap": 0}
        errors = 1 - metrics.recall_score(y, scores.argmax(axis=1), average=None)
        given = LogitAdjuster(**settings).fit(scores, y, class_counts=COUNTS).validation_
        assert given.before["plain"] == pytest.approx(SHARES @ errors)
        ones = LogitAdjuster(**settings).fit(scores, y, np.ones(90), class_counts=COUNTS).validation_
        assert ones.before["plain"] == pytest.approx(np.mean(scores.argmax(axis=1) != y))
        unknown = LogitAdjuster("plain", bootstrap=0).fit(scores, y).validation_
        assert unknown.before["plain"] == ones.before["plain"]

    @pytest.mark.parametrize("objective", ["plain", "macro_f1", "kappa", "weighted_f1"])
    @pytest.mark.parametrize("method", ["la", "cap"])  # "plain" also starts from calibration, where weights are labels
    def test_shares_are_weights(self, data, objective, method):
        scores, y = data
        settings = {"objective": objective, "method": method, "borrow": 0, "bootstrap": 0, "pooling": None}
        by_shares = LogitAdjuster(target_shares="train", **settings).fit(scores, y, class_counts=COUNTS)
        by_weights = LogitAdjuster(target_shares="validation", **settings)
        by_weights.fit(scores, y, 90 * weights_of(y), class_counts=COUNTS)
        np.testing.assert_allclose(by_shares.strategy_.l, by_weights.strategy_.l, atol=1e-6)
        assert by_shares.validation_.after == pytest.approx(by_weights.validation_.after)

    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.34", "sdev"])
    @pytest.mark.parametrize("borrow", [0, 20])
    def test_class_errors_are_tuned_alike(self, data, objective, borrow):
        scores, y = data
        first, second = (
            LogitAdjuster(objective, target_shares=s, borrow=borrow, bootstrap=0).fit(scores, y, class_counts=COUNTS)
            for s in ("train", "validation")
        )
        np.testing.assert_allclose(first.strategy_.l, second.strategy_.l, atol=1e-6)

    def test_f1_after_tuning_is_scikit_learn_s(self, data):
        scores, y = data
        adjuster = LogitAdjuster("macro_f1", bootstrap=0).fit(scores, y, class_counts=COUNTS)
        f1 = metrics.f1_score(y, adjuster.predict(scores), average="macro", sample_weight=weights_of(y))
        assert adjuster.validation_.after["macro_f1"] == pytest.approx(1 - f1)

    def test_a_rare_world_asks_for_less_adjustment(self, data):
        scores, y = data
        ranges = [
            np.ptp(LogitAdjuster("plain", target_shares=s, bootstrap=0).fit(scores, y, class_counts=COUNTS).strategy_.l)
            for s in ([1, 1, 1], "train")
        ]
        assert ranges[0] > ranges[1] + 1

    def test_shares_by_label_are_aligned(self, data):
        scores, y = data
        names = np.array(["cat", "dog", "lynx"])
        by_label = LogitAdjuster("plain", method="la", target_shares={"lynx": 5, "cat": 1, "dog": 2}, bootstrap=0)
        by_column = LogitAdjuster("plain", method="la", target_shares=[1, 2, 5], bootstrap=0)
        first = by_label.fit(scores, names[y], class_counts=COUNTS)
        second = by_column.fit(scores, names[y], class_counts=COUNTS)
        np.testing.assert_array_equal(first.strategy_.l, second.strategy_.l)
        assert first.validation_.before == second.validation_.before


class TestMistakes:
    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            ("train", "target_shares is 'train', and the training counts are unknown; give class_counts"),
            ([1, 2], "target_shares has 2 entries for 3 classes"),
            ([1, -2, 1], "target_shares"),
            ([1, np.nan, 1], "target_shares"),
            ({0: 1, 1: 2}, "class 2 has no entry in target_shares; there are"),
        ],
    )
    def test_are_named(self, data, wanted, message):
        scores, y = data
        with pytest.raises(InputError, match=message):
            evaluate(y, scores.argmax(axis=1), 3, target_shares=wanted)
        with pytest.raises(InputError, match=message):
            LogitAdjuster(target_shares=wanted, bootstrap=0).fit(scores, y)

    def test_unknown_words(self, data):
        scores, y = data
        with pytest.raises(InputError, match="target_shares is 'test'; it must be 'train', 'validation', or"):
            evaluate(y, scores.argmax(axis=1), 3, target_shares="test")
        with pytest.raises(ValueError, match="'target_shares' parameter of LogitAdjuster"):
            LogitAdjuster(target_shares="test").fit(scores, y)

    @pytest.mark.parametrize("shares", [[1, 1, 0], "train"])
    def test_a_share_of_zero_is_refused(self, data, shares):
        scores, y = data
        adjuster = LogitAdjuster("plain", method="plain", target_shares=shares, bootstrap=0)
        with pytest.raises(InputError, match="target_shares of class '2' is 0"):
            adjuster.fit(scores, y, class_counts=[90, 10, 0])

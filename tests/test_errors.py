"""Class errors against scikit-learn, and what an absent class means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from capri import AbsentClassWarning, InputError, class_errors
from capri.errors import class_totals, confusion_matrix, predict, resolve_absent, soft_class_errors, softmax


@st.composite
def decisions(draw):
    """Labels in which every class occurs, predictions, weights."""
    k = draw(st.integers(2, 6))
    extra = draw(st.lists(st.integers(0, k - 1), max_size=20))
    y = np.array([*range(k), *extra])
    predicted = draw(st.lists(st.integers(0, k - 1), min_size=len(y), max_size=len(y)))
    weight = draw(st.lists(st.floats(0.1, 10), min_size=len(y), max_size=len(y)))
    return k, y, np.array(predicted), np.array(weight)


@given(decisions())
def test_confusion_is_that_of_scikit_learn(case):
    k, y, predicted, weight = case
    labels = range(k)
    np.testing.assert_array_equal(
        confusion_matrix(y, predicted, k), metrics.confusion_matrix(y, predicted, labels=labels)
    )
    np.testing.assert_allclose(
        confusion_matrix(y, predicted, k, weight),
        metrics.confusion_matrix(y, predicted, labels=labels, sample_weight=weight),
    )


@given(decisions())
def test_class_errors_are_one_minus_recall(case):
    k, y, predicted, weight = case
    recall = metrics.recall_score(y, predicted, labels=range(k), average=None, zero_division=0, sample_weight=weight)
    np.testing.assert_allclose(class_errors(y, predicted, k, weight), 1 - recall, atol=1e-12)


@given(decisions(), st.randoms(use_true_random=False))
def test_class_errors_do_not_depend_on_the_order_of_samples(case, random):
    k, y, predicted, _ = case
    order = random.sample(range(len(y)), len(y))
    np.testing.assert_array_equal(class_errors(y[order], predicted[order], k), class_errors(y, predicted, k))


def test_an_absent_class_has_no_error():
    np.testing.assert_array_equal(class_errors([0, 0], [0, 1], 3), [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(soft_class_errors([[0.0, 0.0]], [1]), [np.nan, 0.5])


def test_totals_count_samples_or_weigh_them():
    assert class_totals([0, 2, 2], 3).tolist() == [1, 0, 2]
    assert class_totals([0, 2, 2], 3, [0.5, 1, 2]).tolist() == [0.5, 0, 3]


def test_the_lower_index_wins_a_tie():
    assert predict([[1.0, 1.0], [0.0, 1.0]]).tolist() == [0, 1]


def test_softmax_rows_are_probabilities_even_of_large_scores():
    p = softmax([[1000.0, 0.0], [-1000.0, -1000.0]])
    np.testing.assert_allclose(p, [[1, 0], [0.5, 0.5]], atol=1e-12)


def test_soft_errors_become_hard_ones_as_scores_sharpen(rng):
    scores, y = rng.normal(size=(200, 4)), rng.integers(4, size=200)
    weight = rng.uniform(0.5, 2, 200)
    hard = class_errors(y, predict(scores), 4, weight)
    np.testing.assert_allclose(soft_class_errors(1e4 * scores, y, weight), hard, atol=1e-9)
    assert not np.allclose(soft_class_errors(scores, y, weight), hard, atol=0.05)


def test_soft_errors_average_the_probability_of_being_wrong():
    scores = np.log([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    np.testing.assert_allclose(soft_class_errors(scores, [0, 0, 1]), [0.25, 0.3])
    np.testing.assert_allclose(soft_class_errors(scores, [0, 0, 1], [3, 1, 1]), [0.175, 0.3])


@pytest.mark.parametrize(
    ("predictions", "says"),
    [([0], "predictions has 1 labels for 2 samples"), ([0, 5], r"predictions\[1\] is 5, outside 0 … 1")],
)
def test_unusable_predictions_are_named(predictions, says):
    with pytest.raises(InputError, match=says):
        class_errors([0, 1], predictions, 2)


class TestAbsentClasses:
    def test_of_several_classes_the_message_speaks_of_several(self):
        with pytest.raises(InputError, match="classes 1, 3 have no sample here, so their errors are undefined"):
            resolve_absent([3, 0, 2, 0])
        with pytest.warns(AbsentClassWarning, match="classes 1, 3 have no sample here and are left out"):
            resolve_absent([3, 0, 2, 0], "ignore")

    def test_are_an_error_that_names_them_and_the_way_out(self):
        with pytest.raises(InputError, match=r"class 1 has no sample.*absent=\"ignore\""):
            resolve_absent([3, 0, 2])

    def test_are_named_as_the_user_names_them(self):
        with pytest.raises(InputError, match=r"class 'lynx' \(1\)"):
            resolve_absent([3, 0], class_names=["cat", "lynx"])

    def test_are_left_out_with_a_warning_on_request(self):
        with pytest.warns(AbsentClassWarning, match="class 1 has no sample here and is left out"):
            assert resolve_absent([3, 0, 2], "ignore").tolist() == [True, False, True]

    def test_are_counted_when_there_are_many(self):
        with pytest.raises(InputError, match="classes 1, 2, 3, 4, 5 and 2 more have no sample"):
            resolve_absent([1] + [0] * 7)

    def test_cannot_be_all_of_them(self):
        with pytest.raises(InputError, match="no class has any sample"):
            resolve_absent([0.0, 0.0], "ignore")

    def test_are_treated_in_one_of_two_ways(self):
        with pytest.raises(InputError, match="absent is 'drop'; it must be 'error' or 'ignore'"):
            resolve_absent([1, 1], "drop")

    def test_need_one_name_per_class(self):
        with pytest.raises(InputError, match="class_names has 1 entries for 2 classes"):
            resolve_absent([1, 0], class_names=["cat"])

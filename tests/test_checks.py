"""Bad input: one error that names the argument, the value and the remedy."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from capri._checks import (
    InputError,
    as_array,
    check_counts,
    check_labels,
    check_matrix,
    check_names,
    check_sample_weight,
    check_scores,
    check_vector,
    short,
    shortest,
)


def refuses(check, *args, says, **kwargs):
    with pytest.raises(InputError) as caught:
        check(*args, **kwargs)
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        ([[0.0, np.nan], [np.inf, 1.0]], ["scores[0, 1] is nan", "2 entries are NaN or infinite", "Remove"]),
        ([[0.0, 1.0], [-np.inf, 1.0]], ["scores[1, 0] is -inf", "clip"]),
        ([0.1, 0.9], ["scores must have shape (n_samples, n_classes)", "got shape (2,)"]),
        (np.zeros((2, 2, 2)), ["got shape (2, 2, 2)"]),
        (np.zeros((0, 3)), ["scores is empty", "(0, 3)"]),
        (np.zeros((3, 0)), ["scores is empty", "(3, 0)"]),
        (np.zeros((3, 1)), ["scores has 1 column", "at least 2, one per class"]),
        ([["a", "b"]], ["scores must be real numbers", "'a'"]),
        ([[1.0, 2.0], [3.0]], ["scores must be real numbers"]),
        ([[1j, 2.0]], ["scores must be real numbers"]),
        (None, ["scores must have shape"]),
    ],
)
def test_unusable_scores_are_refused(scores, says):
    refuses(check_scores, scores, says=says)


MASKED = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (MASKED, ["x has 1 masked entries", "drop them, or give values for them with .filled(…)"]),
        (scipy.sparse.csr_matrix(np.eye(2)), ["x is a sparse matrix", "give a dense one, x.toarray()"]),
        (scipy.sparse.coo_array(np.eye(2)), ["x is a sparse matrix", "give a dense one, x.toarray()"]),
        (torch.ones(2, 2, requires_grad=True), ["x is a tensor", "requires grad", "give x.detach().cpu().float()"]),
        (torch.ones(2, 2, dtype=torch.bfloat16), ["x is a tensor", "BFloat16", "give x.detach().cpu().float()"]),
        (list(torch.ones(2, 2, requires_grad=True)), ["x is a tensor", "give x.detach().cpu().float()"]),
        ([[1.0, 2.0], [3.0]], ["x must be an array", "[[1.0, 2.0], [3.0]]"]),
    ],
)
def test_what_numpy_would_misread_is_refused_with_the_remedy(values, says):
    refuses(as_array, values, "x", says=says)


@pytest.mark.parametrize("check", [check_scores, check_counts, lambda values: check_labels(values, 5)])
def test_every_check_looks_at_masks(check):
    values = MASKED if check is check_scores else MASKED[0]
    refuses(check, values, says=["has 1 masked entries"])


def test_what_hides_nothing_is_read():
    np.testing.assert_array_equal(as_array(np.ma.array([1.0, 2.0], mask=[False, False]), "x"), [1, 2])
    np.testing.assert_array_equal(as_array(torch.ones(2), "x"), [1, 1])


def test_scores_whose_sum_overflows_are_finite_all_the_same():
    scores = np.full((4, 2), 1e308)
    assert check_scores(scores) is scores


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_scores_are_not_copied(dtype):
    scores = np.ones((2, 3), dtype)
    assert check_scores(scores) is scores


@pytest.mark.parametrize("scores", [[[1, 2]], [[True, False]], np.array([[1, 2.5]], dtype=object)])
def test_other_numbers_become_floats(scores):
    assert check_scores(scores).dtype == np.float64


def test_a_matrix_names_its_own_axes():
    refuses(
        check_matrix, [1.0], "last_layer", "n_classes", "n_features", says=["last_layer", "(n_classes, n_features)"]
    )


@pytest.mark.parametrize(
    ("y", "says"),
    [
        ([0, 3], ["y[1] is 3", "outside 0 … 2", "3 classes"]),
        ([-1, 0], ["y[0] is -1", "starting at 0"]),
        ([0, 1.5], ["y[1] is 1.5 of type float64", "Encode"]),
        ([0, np.nan], ["y[1] is nan"]),
        ([0.0, np.inf], ["y[1] is inf"]),
        (["cat", "dog"], ["y[0] is 'cat'", "class indices 0 … 2", "Encode names as indices"]),
        ([True, False], ["y[0] is True of type bool"]),
        ([None, 1], ["y[0] is None of type object"]),
        ([[0, 1]], ["y must be one-dimensional", "(1, 2)"]),
        ([[0], [1, 2]], ["y must hold one class index per sample"]),
        ([], ["y is empty", "at least one"]),
    ],
)
def test_unusable_labels_are_refused(y, says):
    refuses(check_labels, y, 3, says=says)


def test_one_label_per_sample():
    refuses(check_labels, [0, 1], 3, 5, says=["y has 2 labels for 5 samples", "one label per sample"])


@pytest.mark.parametrize("y", [[0, 2, 1], [0.0, 2.0, 1.0], np.array([0, 2, 1], np.uint8)])
def test_whole_numbers_are_labels(y):
    labels = check_labels(y, 3, 3)
    assert labels.dtype == np.int64
    assert labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("values", "keywords", "says"),
    [
        ([1, 2], {"n_classes": 3}, ["x has 2 entries for 3 classes", "one per class"]),
        ([1, 2], {"n_classes": 3, "per": "sample"}, ["2 entries for 3 samples"]),
        ([1, np.nan], {}, ["x[1] is nan", "finite"]),
        ([1, -2], {"low": 0}, ["x[1] is -2.0", "at least 0"]),
        ([1, 0], {"low": 0, "strict": True}, ["x[1] is 0.0", "above 0"]),
        ([0, 2], {"low": 0, "high": 1}, ["x[1] is 2.0", "at most 1"]),
        ([], {}, ["x must be a non-empty vector"]),
        (3.0, {}, ["x must be a non-empty vector", "shape ()"]),
        (["a"], {}, ["x must hold one number per class", "'a'"]),
        ([1j], {}, ["x must hold one number per class"]),
    ],
)
def test_unusable_vectors_are_refused(values, keywords, says):
    refuses(check_vector, values, "x", says=says, **keywords)


def test_bounds_are_inclusive():
    assert check_vector([0, 1], "x", low=0, high=1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ([5, -1], ["class_counts[1] is -1.0", "at least 0"]),
        ([0, 0], ["class_counts sums to 0", "positive"]),
        ([], ["class_counts", "non-empty"]),
    ],
)
def test_unusable_counts_are_refused(counts, says):
    refuses(check_counts, counts, says=says)


def test_sample_weights_are_optional_and_not_negative():
    assert check_sample_weight(None, 3) is None
    assert check_sample_weight([1, 0, 2], 3).tolist() == [1, 0, 2]
    refuses(check_sample_weight, [1, -1], 2, says=["sample_weight[1] is -1.0"])
    refuses(check_sample_weight, [1], 2, says=["sample_weight has 1 entries for 2 samples"])


def test_names_default_to_indices_and_must_differ():
    assert check_names(None, 3) == ("0", "1", "2")
    assert check_names([1, "b"], 2) == ("1", "b")
    refuses(check_names, ["a"], 2, says=["class_names has 1 entries for 2 classes"])
    refuses(check_names, ["a", "b", "a"], 3, says=["class_names holds 'a' twice", "differ"])


def test_long_values_are_cut_in_messages():
    assert short([1]) == "[1]"
    assert len(short(list(range(100)))) == 60


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_shortest_text_reads_back_exactly(number):
    assert float(shortest(number)) == number


@pytest.mark.parametrize(("number", "text"), [(0.5, "0.5"), (2.0, "2"), (1, "1"), (0.1, "0.1")])
def test_the_shortest_text_is_what_people_write(number, text):
    assert shortest(number) == text


@pytest.mark.parametrize("names", [3, True, np.array(5)])
def test_names_that_are_no_list(names):
    with pytest.raises(InputError, match=r"class_names is .*; it must hold one name per class\."):
        check_names(names, 3)


def test_numbers_beyond_any_float():
    with pytest.raises(InputError, match="must hold one number per class"):
        check_vector([10**400, 1], "weights")
    with pytest.raises(InputError, match="scores must be real numbers"):
        check_scores([[10**400, 1]])


def test_counts_whose_sum_overflows():
    with pytest.raises(InputError, match=r"class_counts reaches 1e\+308, and its sum overflows"):
        check_counts([1e308] * 3)

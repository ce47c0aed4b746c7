"""Which label belongs to which column: by name where there are names, asked for where it is ambiguous."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from capri import InputError
from capri.classes import Classes, as_labels, column_names


class TestFound:
    @pytest.mark.parametrize(
        ("y", "n_columns", "expected"),
        [
            ([0, 2, 1], 3, [0, 1, 2]),
            ([0, 2], 3, [0, 1, 2]),  # positions: the labels begin at 0
            ([1, 2, 3], 3, [1, 2, 3]),
            ([10, 20], 2, [10, 20]),
            ([-1, 1], 2, [-1, 1]),
            (["b", "a"], 2, ["a", "b"]),
            ([True, False], 2, [False, True]),
            ([1.0, 2.0], 2, [1.0, 2.0]),
        ],
    )
    def test_labels_speak_for_themselves(self, y, n_columns, expected):
        assert Classes.found(y, n_columns).labels.tolist() == expected

    @pytest.mark.parametrize("y", [[1, 2], [2], [1, 1]])
    def test_numbers_that_may_begin_at_zero_or_one_are_asked_for(self, y):
        with pytest.raises(InputError, match=r"may stand for classes 0 … 2 or 1 … 3; give classes=…"):
            Classes.found(y, 3)
        assert Classes.found(y, 3, given=[1, 2, 3]).encode(y).tolist() == [label - 1 for label in y]

    def test_columns_that_are_named_settle_it(self):
        assert Classes.found(["b"], 3, columns=["c", "b", "a"]).labels.tolist() == ["c", "b", "a"]
        assert Classes.found([1, 2], 3, columns=[3, 1, 2]).encode([1, 2]).tolist() == [1, 2]

    def test_names_of_columns_take_the_labels_type(self):
        found = Classes.found([7, 8], 2, columns=["8", "7"])
        assert found.labels.tolist() == [8, 7]

    def test_columns_that_do_not_name_the_labels_are_asked_for(self):
        with pytest.raises(InputError, match="y holds 0, but the score columns are named"):
            Classes.found([0, 1], 2, columns=["cat", "dog"])

    @pytest.mark.parametrize("y", [["a", "b"], [5, 9]])
    def test_too_few_labels_are_asked_for(self, y):
        with pytest.raises(InputError, match="there are 2 classes but 3 score columns; give classes=…"):
            Classes.found(y, 3)

    def test_no_label_twice(self):
        with pytest.raises(InputError, match="label '1' twice"):
            Classes.of([1, 1])


class TestEncode:
    def test_is_the_position_of_the_column(self, rng):
        labels = np.array(["z", "a", "m"])
        y = rng.integers(3, size=50)
        np.testing.assert_array_equal(Classes.of(labels).encode(labels[y]), y)
        np.testing.assert_array_equal(Classes.of(range(3)).encode(y), y)

    def test_unknown_labels_are_named(self):
        with pytest.raises(InputError, match="predictions holds 'cow', which is not in the class list; classes are"):
            Classes.of(["cat", "dog"]).encode(["cat", "cow"], "predictions")
        with pytest.raises(InputError, match="y holds 3"):
            Classes.of(range(3)).encode([0, 3])

    def test_whole_floats_are_the_same_labels(self):
        assert Classes.of([0, 1, 2]).encode([2.0, 0.0]).tolist() == [2, 0]

    @pytest.mark.parametrize(
        ("y", "says"),
        [
            ([1, None], "y contains missing labels"),
            ([[1, 2], [3]], "y must hold one label per sample"),
            (np.array([[1, 2], [3], 4], dtype=object), "y must hold one label per sample"),
            (np.ma.array([1, 2], mask=[True, False]), "y has 1 masked entries"),
            (scipy.sparse.csr_matrix([[1, 2]]), "y is a sparse matrix"),
            (torch.ones(2, requires_grad=True), "y is a tensor that NumPy cannot read"),
            (3, "y must be one-dimensional"),
        ],
    )
    def test_labels_that_are_none_are_refused(self, y, says):
        with pytest.raises(InputError, match=says):
            as_labels(y)

    @pytest.mark.parametrize("container", [list, pd.Series, lambda labels: np.array(labels, dtype=object)])
    @pytest.mark.parametrize(
        ("labels", "kinds"), [(["a", 1, 2], "text and numbers, such as 'a' and 2"), ([True, 2, 3], "truth values and")]
    )
    def test_numbers_among_text_have_no_order_and_stay_numbers(self, container, labels, kinds):
        with pytest.raises(InputError, match=f"y mixes {kinds}.*give classes=… with the label of each column, or"):
            Classes.found(container(labels), 3)
        classes = Classes.found(container(labels), 3, given=labels)
        assert classes.labels.tolist() == labels
        assert classes.encode(container(labels[::-1])).tolist() == [2, 1, 0]

    @pytest.mark.parametrize("labels", [[True, 0, 2], [2, "a", False], [np.True_, 1.0, 0]])
    def test_truth_values_are_numbers_to_python_and_that_is_said(self, labels):
        with pytest.raises(
            InputError, match=r"y mixes .*, such as .*(True|False).*, and True is 1 and False is 0"
        ) as e:
            Classes.found(labels, 3)
        assert "no order" not in str(e.value)

    def test_labels_that_are_equal_are_one(self):
        with pytest.raises(InputError, match="classes holds the label True twice"):
            Classes.of([True, 1])

    def test_numbers_of_any_type_are_numbers(self):
        assert as_labels([1, 2.0, np.int8(3), np.float32(4)]).tolist() == [1, 2, 3, 4]
        assert as_labels(list(torch.tensor([1, 2]))).tolist() == [1, 2]

    @pytest.mark.parametrize(("columns", "y"), [(["0", "1", "2"], [0, 1]), ([0, 1, 2], ["0", "1"])])
    def test_a_column_without_samples_has_a_label_of_the_others_kind(self, columns, y):
        classes = Classes.found(y, 3, columns=columns)
        assert classes.labels.tolist() == [*y, type(y[0])(2)]
        assert classes.encode(y).tolist() == [0, 1]

    def test_a_column_that_can_have_no_such_label_keeps_its_name(self):
        assert Classes.found([0, 1], 3, columns=["0", "1", "other"]).labels.tolist() == [0, 1, "other"]


class TestAlign:
    classes = Classes.of(["cat", "dog", "lynx"])

    @pytest.mark.parametrize(
        "counts",
        [
            [900, 90, 10],
            {"lynx": 10, "dog": 90, "cat": 900},
            pd.Series({"lynx": 10, "dog": 90, "cat": 900}),
            pd.Series(["dog"] * 90 + ["cat"] * 900 + ["lynx"] * 10).value_counts().sort_values(),
            pd.Series([900, 90, 10]),  # numbered as any Series: by position
        ],
    )
    def test_whatever_carries_labels_goes_by_them(self, counts):
        assert list(self.classes.align(counts, "class_counts")) == [900, 90, 10]

    def test_numbers_as_labels(self):
        classes = Classes.of([0, 1, 2])
        assert list(classes.align(pd.Series({2: 5, 0: 7, 1: 6}), "class_counts")) == [7, 6, 5]
        assert list(classes.align({"2": 5, "0": 7, "1": 6}, "class_counts")) == [7, 6, 5]
        assert list(Classes.of([2, 0, 1]).align(pd.Series([7, 6, 5]), "class_counts")) == [5, 7, 6]

    def test_missing_and_unknown_classes_are_named(self):
        with pytest.raises(InputError, match="class 'lynx' has no entry in class_counts; there are"):
            self.classes.align({"cat": 1, "dog": 2}, "class_counts")
        with pytest.raises(InputError, match="'cow' in class_counts is none of the 3 classes"):
            self.classes.align({"cat": 1, "dog": 2, "lynx": 3, "cow": 4}, "class_counts")
        with pytest.raises(InputError, match="'cat' occurs twice in class_counts; give one entry per class"):
            self.classes.align(pd.Series([1, 2, 3, 4], index=["cat", "dog", "lynx", "cat"]), "class_counts")

    def test_columns_of_scores_go_by_name(self, rng):
        scores = rng.normal(size=(4, 3))
        frame = pd.DataFrame(scores[:, [2, 0, 1]], columns=["lynx", "cat", "dog"])
        np.testing.assert_array_equal(self.classes.arrange(frame), scores)
        np.testing.assert_array_equal(self.classes.arrange(pd.DataFrame(scores)), scores)
        own = pd.DataFrame(scores, columns=list("xyz"))
        np.testing.assert_array_equal(self.classes.arrange(own, strict=False), scores)
        with pytest.raises(InputError, match="class 'cat' has no entry in the columns of scores; there are"):
            self.classes.arrange(own)
        with pytest.raises(InputError, match="class 'dog' has no entry in the columns of scores"):
            self.classes.arrange(frame.rename(columns={"dog": "wolf"}))


def test_numbered_columns_are_positions_unless_the_classes_are_others_of_these_numbers(rng):
    frame = pd.DataFrame(rng.normal(size=(4, 3)))
    np.testing.assert_array_equal(Classes.of([0, 1, 2]).arrange(frame), frame)
    np.testing.assert_array_equal(Classes.of(["a", "b", "c"]).arrange(frame), frame)
    with pytest.raises(InputError, match="is a number a position or a class"):
        Classes.of([2, 1, 0]).arrange(frame)


def test_column_names_are_names_not_numbers():
    assert column_names(np.zeros((1, 2))) is None
    assert column_names(pd.DataFrame([[1, 2]])) is None
    assert column_names(pd.DataFrame([[1, 2]], columns=[1, 0])) == [1, 0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "target y is None"),
        (np.zeros((2, 2)), "one-dimensional"),
        ([0.5, 1], "continuous"),
        (np.array([np.nan]), "NaN"),
        (["a", None], "missing labels"),
        (["a", np.nan], "missing labels"),
        (pd.Series([1, None], dtype="Int64"), "NaN|missing labels"),
    ],
)
def test_what_is_no_label_is_refused(y, message):
    with pytest.raises(InputError, match=message):
        Classes.found(y, 2)


@pytest.mark.parametrize(
    "y", [5, 10**60, object(), np.array(3), "cat"], ids=["number", "huge", "object", "0-d", "text"]
)
def test_a_lone_thing_is_no_list_of_labels(y):
    with pytest.raises(InputError, match="y must be one-dimensional"):
        as_labels(y)

"""Which label belongs to which column: by name where there are names, asked for where it is ambiguous."""

import numpy as np
import pandas as pd
import pytest

from capri import InputError
from capri.classes import Classes, column_names


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

    def test_numbers_and_text_together(self):
        mixed = np.array([1, "a"], dtype=object)
        assert Classes.of(mixed).encode(np.array(["a", 1, 1], dtype=object)).tolist() == [1, 0, 0]


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
        with pytest.raises(InputError, match="class_counts has no entry for class 'lynx'"):
            self.classes.align({"cat": 1, "dog": 2}, "class_counts")
        with pytest.raises(InputError, match="class_counts names 'cow', which is none of the 3 classes"):
            self.classes.align({"cat": 1, "dog": 2, "lynx": 3, "cow": 4}, "class_counts")

    def test_columns_of_scores_go_by_name(self, rng):
        scores = rng.normal(size=(4, 3))
        frame = pd.DataFrame(scores[:, [2, 0, 1]], columns=["lynx", "cat", "dog"])
        np.testing.assert_array_equal(self.classes.arrange(frame), scores)
        np.testing.assert_array_equal(self.classes.arrange(pd.DataFrame(scores)), scores)
        own = pd.DataFrame(scores, columns=list("xyz"))
        np.testing.assert_array_equal(self.classes.arrange(own, strict=False), scores)
        with pytest.raises(InputError, match="the columns of scores has no entry for class 'cat'; its labels are"):
            self.classes.arrange(own)
        with pytest.raises(InputError, match="the columns of scores has no entry for class 'dog'"):
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

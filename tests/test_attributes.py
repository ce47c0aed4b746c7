"""Attributes: the columns of the paper's table, and the table itself."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capri import Attributes, InputError
from capri.attributes import (
    counts_in,
    difficulty,
    estimate_noise,
    frequency,
    importance,
    noise,
    norm,
)


class TestColumns:
    @given(st.lists(st.integers(1, 10**6), min_size=2, max_size=20))
    def test_frequencies_are_shares(self, counts):
        pi = frequency(counts)
        assert pi.sum() == pytest.approx(1)
        np.testing.assert_allclose(pi * sum(counts), counts)

    @pytest.mark.parametrize(
        ("samples", "known"),
        [([14, 10], None), ([15, 10], [15, 10]), ([2, 0], None), ([4, 1, 0], [4, 1, 2]), ([1, 1, 1], None)],
    )
    def test_labels_tell_training_counts_unless_they_are_nearly_balanced(self, samples, known):
        found = counts_in(np.repeat(np.arange(len(samples)), samples), len(samples))
        assert (found if found is None else found.tolist()) == known

    @pytest.mark.parametrize(
        ("counts", "says"),
        [
            ([5, 0, 1], r"class_counts\[1\] is 0: a class that never occurs has no frequency. Drop the class"),
            ([5, -1], r"class_counts\[1\] is -1.0; each entry must be at least 0"),
            ([0, 0], "class_counts sums to 0; at least one class must have a positive entry"),
            ([], "class_counts must be a non-empty vector"),
        ],
    )
    def test_unusable_counts_are_explained(self, counts, says):
        with pytest.raises(InputError, match=says):
            frequency(counts)

    @given(st.integers(1, 1000), st.floats(0, 1))
    def test_difficulty_is_the_error_smoothed_by_half_a_sample(self, n, rate):
        smoothed = difficulty([rate], [n])[0]
        assert smoothed == pytest.approx((rate * n + 0.5) / (n + 1))
        assert 0 < smoothed < 1

    def test_the_difficulty_of_an_unseen_class_is_a_half(self):
        assert difficulty([0.2, np.nan], [4, 0]).tolist() == [0.26, 0.5]

    @pytest.mark.parametrize(
        ("errors", "n", "says"),
        [
            ([0.1, np.nan], [4, 4], r"errors\[1\] is nan"),
            ([0.1, 1.2], [4, 4], r"errors\[1\] is 1.2; each entry must be at most 1"),
            ([0.1, 0.2, 0.3], [4, 4], "errors has 3 entries for 2 classes"),
            (["a", "b"], [4, 4], "errors must hold one number per class"),
            ([0.1], [-1], r"n_samples\[0\] is -1.0"),
        ],
    )
    def test_unusable_errors_are_explained(self, errors, n, says):
        with pytest.raises(InputError, match=says):
            difficulty(errors, n)

    @given(st.lists(st.floats(0, 1), min_size=2, max_size=20).filter(lambda w: sum(w) > 1e-6))
    def test_importance_sums_to_the_number_of_classes(self, weights):
        omega = importance(weights)
        assert omega.sum() == pytest.approx(len(weights))
        np.testing.assert_allclose(omega * sum(weights), np.array(weights) * len(weights), rtol=1e-9, atol=1e-300)

    def test_importance_needs_some_weight(self):
        with pytest.raises(InputError, match="weights sums to 0; at least one class must have a positive entry"):
            importance([0, 0])

    def test_noise_is_a_probability(self):
        assert noise([0, 0.5, 1]).tolist() == [0, 0.5, 1]
        with pytest.raises(InputError, match=r"noise\[0\] is 1.5; each entry must be at most 1"):
            noise([1.5])

    @pytest.mark.parametrize("layer", [[[3, 4], [0, 1]], [[5], [-1]]])
    def test_norms_are_those_of_the_rows_of_the_last_layer(self, layer):
        assert norm(layer).tolist() == [5, 1]

    def test_a_last_layer_has_a_row_per_class(self):
        with pytest.raises(InputError, match=r"last_layer must have shape \(n_classes, n_features\)"):
            norm([1.0, 2.0])


class TestEstimatedNoise:
    def test_confident_learning_finds_the_rates(self, rng):
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import cross_val_predict

        rates = np.array([0.05, 0.2, 0.35])
        clean = rng.integers(3, size=3000)
        X = rng.normal(size=(3000, 2)) + 4 * np.eye(3, 2)[clean] - 4 * (clean == 2)[:, None]
        flipped = rng.uniform(size=3000) < rates[clean]
        noisy = np.where(flipped, (clean + rng.integers(1, 3, 3000)) % 3, clean)
        probabilities = cross_val_predict(LogisticRegression(), X, noisy, method="predict_proba", cv=3)
        np.testing.assert_allclose(estimate_noise(noisy, probabilities), rates, atol=0.04)

    def test_labels_and_probabilities_are_checked(self):
        with pytest.raises(InputError, match=r"probabilities\[0, 1\] is nan"):
            estimate_noise([0], [[0.5, np.nan]])
        with pytest.raises(InputError, match=r"y\[0\] is 2, outside"):
            estimate_noise([2], [[0.5, 0.5]])

    def test_without_cleanlab_it_says_how_to_get_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "cleanlab.count", None)
        with pytest.raises(ImportError, match=r'needs cleanlab: pip install "capriors\[noise\]"'):
            estimate_noise([0, 1], [[0.9, 0.1], [0.2, 0.8]])


class TestTable:
    @pytest.fixture
    def table(self):
        return Attributes.of(freq=[0.7, 0.2, 0.1], diff=[0.1, 0.2, 0.5], class_names=["cat", "dog", "lynx"])

    def test_columns_go_by_name(self, table):
        assert table.names == ("freq", "diff")
        assert table.n_classes == 3
        assert table["diff"].tolist() == [0.1, 0.2, 0.5]

    def test_selection_keeps_the_order_asked_for(self, table):
        chosen = table.select("diff", "freq")
        assert chosen.names == ("diff", "freq")
        assert chosen.class_names == table.class_names
        np.testing.assert_array_equal(chosen.values, table.values[:, ::-1])

    def test_tables_of_the_same_classes_join(self, table):
        both = table | Attributes.of(cost=[1, 2, 3], class_names=table.class_names)
        assert both.names == ("freq", "diff", "cost")
        assert both["cost"].tolist() == [1, 2, 3]

    def test_identity_gives_each_class_its_own_column(self):
        table = Attributes.identity(2, ["cat", "dog"])
        assert table.names == ("is cat", "is dog")
        np.testing.assert_array_equal(table.values, np.eye(2))
        assert table.select("is dog")["is dog"].tolist() == [0, 1]

    def test_it_prints_as_a_table(self, table):
        assert repr(table).splitlines()[1:3] == ["  class  freq  diff", "  cat     0.7   0.1"]

    def test_a_long_table_prints_its_ends(self):
        lines = repr(Attributes.of(freq=np.arange(1, 101) / 5050)).splitlines()
        assert lines[0] == "Attributes: 100 classes x 1 attributes"
        assert [line.split()[0] for line in lines[2:]] == ["0", "1", "2", "…", "97", "98", "99"]

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda t: Attributes.of(), "attributes are empty; give at least one column"),
            (lambda t: Attributes.of(a=[1, 2], b=[1]), "b has 1 entries for 2 classes"),
            (lambda t: Attributes.of(a=[1, np.nan]), r"a\[1\] is nan"),
            (lambda t: Attributes.of(a=[1, 2], class_names=["x"]), "class_names has 1 entries for 2 classes"),
            (lambda t: Attributes.of(a=[1, 2], class_names=["x", "x"]), "class_names holds 'x' twice"),
            (lambda t: t["size"], "no attribute 'size'; there are freq, diff"),
            (lambda t: t | t, "attribute names holds 'freq' twice; names must differ"),
            (lambda t: t | Attributes.of(cost=[1, 2, 3]), "tables are of different classes; give both the same"),
            (lambda t: Attributes(np.ones(3), ("a",), ("x", "y", "z")), "must have shape"),
            (lambda t: Attributes(np.ones((2, 2)), ("a",), ("x", "y")), "1 names for 2 attributes"),
            (
                lambda t: Attributes(np.array([[1.0], [np.inf]]), ("a",), ("x", "y")),
                "attribute 'a' of class 'y' is inf; give a finite number",
            ),
        ],
    )
    def test_unusable_tables_are_explained(self, table, make, says):
        with pytest.raises(InputError, match=says):
            make(table)

"""The dictionary: its columns, what scaling keeps, and what it can express."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from capri import Attributes, InputError, build_dictionary
from capri.attributes import frequency
from capri.dictionary import BASIS, BETA, FLOOR, _signed, identity_dictionary


@pytest.fixture
def table(counts, rng):
    return Attributes.of(freq=frequency(counts), diff=np.clip(np.linspace(0.1, 0.8, 10) + rng.normal(0, 0.1, 10), 0, 1))


def test_the_basis_is_the_paper_s():
    a = np.array([0.5, 0.02])
    expected = [np.log(a), a, a**0.075, a**0.15, a**0.3]
    assert BETA == 0.075
    for function, column in zip(BASIS.values(), expected, strict=True):
        np.testing.assert_allclose(function(a), column)


def test_columns_are_stitched_attribute_by_attribute(table):
    D = build_dictionary(table, scaling="raw")
    assert D.shape == (10, 10)
    assert D.columns[:5] == tuple(("freq", f) for f in BASIS)
    assert D.columns[5:] == tuple(("diff", f) for f in BASIS)
    for j, (attribute, function) in enumerate(D.columns):
        np.testing.assert_allclose(D.values[:, j], BASIS[function](np.maximum(table[attribute], FLOOR)))


class TestScaling:
    def test_raw_columns_are_nearly_collinear_and_whitened_ones_orthogonal(self, table):
        raw, white = build_dictionary(table, scaling="raw"), build_dictionary(table)
        assert np.linalg.cond(raw.values) > 1e4
        assert 2 <= white.shape[1] <= 4
        np.testing.assert_allclose(white.values.T @ white.values / 10, np.eye(white.shape[1]), atol=1e-9)
        np.testing.assert_allclose(white.values.mean(axis=0), 0, atol=1e-12)

    def test_standardised_columns_have_mean_0_and_deviation_1(self, table):
        D = build_dictionary(table, scaling="standardize")
        np.testing.assert_allclose(D.values.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(D.values.std(axis=0), 1)

    @pytest.mark.parametrize("scaling", ["raw", "standardize", "whiten"])
    @pytest.mark.parametrize("intercept", [False, True])
    def test_raw_weights_give_the_same_map(self, table, scaling, intercept, rng):
        raw = build_dictionary(table, scaling="raw", intercept=intercept).values
        D = build_dictionary(table, scaling=scaling, intercept=intercept)
        w = rng.normal(size=D.shape[1])
        np.testing.assert_allclose((raw - D.centre) @ D.raw_weights(w), D @ w, atol=1e-8)

    def test_standardised_and_raw_express_the_same(self, table, rng):
        raw, standard = (build_dictionary(table, ["log", "id"], scaling=s) for s in ("raw", "standardize"))
        v = rng.normal(size=10)
        np.testing.assert_allclose(standard.project(v), raw.project(v), atol=1e-9)

    def test_whitening_two_attributes_by_one_function_loses_nothing(self, table, rng):
        raw, white = (build_dictionary(table, ["log"], scaling=s) for s in ("raw", "whiten"))
        v = rng.normal(size=10)
        np.testing.assert_allclose(white.project(v), raw.project(v), atol=1e-9)

    @pytest.mark.parametrize(("n_classes", "imbalance"), [(10, 100), (100, 100), (1000, 256)])
    def test_the_default_reaches_logit_adjustment_within_4_percent(self, n_classes, imbalance):
        pi = frequency(np.floor(1280 * float(imbalance) ** (-np.arange(n_classes) / (n_classes - 1))))
        D = build_dictionary(Attributes.of(freq=pi))
        assert np.abs(D.project(np.log(pi)) - np.log(pi)).max() < 0.04 * np.ptp(np.log(pi))

    def test_constant_columns_are_dropped(self):
        table = Attributes.of(freq=[0.5, 0.3, 0.2], cost=[1, 1, 1])
        alone = build_dictionary(table.select("freq"), ["log"])
        np.testing.assert_allclose(build_dictionary(table, ["log"]).values, alone.values)

    def test_attributes_that_are_the_same_everywhere_are_refused(self):
        with pytest.raises(InputError, match="attributes cost are the same for all classes"):
            build_dictionary(Attributes.of(cost=[1, 1, 1]))

    def test_ordered_columns_are_orthogonal_and_the_first_is_the_logarithm_of_the_first_attribute(self, table):
        D = build_dictionary(table, scaling="ordered").values
        np.testing.assert_allclose(D.T @ D / len(D), np.eye(D.shape[1]), atol=1e-9)
        np.testing.assert_allclose(D.mean(axis=0), 0, atol=1e-12)
        log = np.log(table.values[:, 0])
        np.testing.assert_allclose(D[:, 0], (log - log.mean()) / log.std())
        assert D.shape[1] < 2 * len(BASIS)

    def test_ordered_columns_hold_vs_which_whitened_ones_do_not(self):
        counts = np.geomspace(500, 5, 100)
        for gamma in (0.1, 0.3):
            wanted = gamma * np.log(counts / counts.max())
            away = {}
            for scaling in ("ordered", "whiten"):
                D = build_dictionary(Attributes.of(freq=counts / counts.sum()), scaling=scaling, intercept=True).values
                away[scaling] = np.abs(D @ np.linalg.lstsq(D, wanted, rcond=None)[0] - wanted).max()
            assert away["ordered"] < 1e-12 < away["whiten"]

    @pytest.mark.parametrize("scaling", ["whiten", "ordered", "standardize", "raw"])
    def test_classes_with_equal_attributes_have_equal_rows_to_the_last_bit(self, scaling, rng):
        for n_classes in range(10, 60):
            freq, diff = rng.uniform(0.01, 1, (2, n_classes))
            freq[4:], diff[4:] = freq[4], diff[4]
            D = build_dictionary(Attributes.of(freq=freq, diff=diff), scaling=scaling).values
            assert (D[4:] == D[4]).all()
            assert (D[4] != D[3]).any()

    def test_scaling_is_one_of_three(self, table):
        with pytest.raises(InputError, match="scaling is 'pca'; it must be 'whiten', 'ordered', "):
            build_dictionary(table, scaling="pca")


class TestSigns:
    @given(arrays(float, (3, 4), elements=st.floats(-1, 1)), st.lists(st.sampled_from([-1, 1]), min_size=3, max_size=3))
    def test_do_not_depend_on_those_of_the_singular_vectors(self, directions, signs):
        np.testing.assert_array_equal(_signed(directions * np.array(signs)[:, None]), _signed(directions))

    def test_are_not_left_to_rounding_where_entries_cancel(self):
        pair = np.array([[1.0, -1.0]]) / np.sqrt(2)
        for nudge in ([1e-16, 0], [0, 1e-16], [-1e-16, 0], [0, -1e-16]):
            np.testing.assert_allclose(_signed(-(pair + nudge)), pair, atol=1e-12)

    @pytest.mark.parametrize("first", [0.0, 1e-17, -1e-17])
    def test_ignore_entries_that_are_rounding(self, first):
        np.testing.assert_allclose(_signed(np.array([[first, -0.8, 0.6]])), [[0, 0.8, -0.6]], atol=1e-12)

    def test_are_the_same_for_attributes_that_differ_by_rounding(self, counts):
        pi = frequency(counts)
        first = build_dictionary(Attributes.of(freq=pi, other=pi[::-1]), ["log"])
        second = build_dictionary(Attributes.of(freq=pi * (1 + 1e-15), other=pi[::-1]), ["log"])
        np.testing.assert_allclose(first.values, second.values, atol=1e-9)


class TestIntercept:
    @pytest.mark.parametrize("scaling", ["raw", "whiten"])
    def test_is_the_first_column(self, table, scaling):
        D = build_dictionary(table, scaling=scaling, intercept=True)
        without = build_dictionary(table, scaling=scaling)
        assert D.columns[0] == ("", "1")
        assert D.columns[1:] == without.columns
        np.testing.assert_array_equal(D.values[:, 0], np.ones(10))
        np.testing.assert_array_equal(D.values[:, 1:], without.values)
        assert D.raw_weights(np.eye(D.shape[1])[0])[0] == 1


class TestFunctions:
    def test_of_the_user_work_beside_the_attributes(self):
        table = Attributes.of(depth=[-1.0, 2.0, 3.0])
        D = build_dictionary(table, {"square": np.square, "id": lambda a: a}, scaling="raw")
        assert D.columns == (("depth", "square"), ("depth", "id"))
        assert D.values.tolist() == [[1, -1], [4, 2], [9, 3]]

    def test_one_name_is_enough(self, table):
        assert build_dictionary(table, "log", scaling="raw").columns == (("freq", "log"), ("diff", "log"))

    @pytest.mark.parametrize(
        ("basis", "says"),
        [
            (["log", "cube"], "unknown basis function 'cube'; there are log, id, β, 2β, 4β, or pass a mapping"),
            ([], "basis is empty; give at least one function"),
            ({"inverse": lambda a: 1 / (a - a)}, "'inverse' of attribute 'freq' must give one finite number per class"),
            ({"sum": np.sum}, "'sum' of attribute 'freq' must give one finite number"),
        ],
    )
    def test_that_cannot_be_used_are_named(self, table, basis, says):
        with pytest.raises(InputError, match=says):
            build_dictionary(table, basis)


class TestFloor:
    def test_lifts_attributes_before_logarithms_but_not_before_the_identity(self):
        D = build_dictionary(Attributes.of(weights=[0.0, 1.0]), ["log", "id"], scaling="raw")
        np.testing.assert_allclose(D.values, [[np.log(FLOOR), 0], [0, 1]])

    def test_is_the_user_s_to_choose(self):
        D = build_dictionary(Attributes.of(weights=[0.0, 1.0]), ["log"], scaling="raw", floor=0.1)
        assert D.floor == 0.1
        np.testing.assert_allclose(D @ [1.0], [np.log(0.1), 0])

    def test_of_zero_lets_an_infinite_logarithm_be_refused(self):
        with pytest.raises(InputError, match="'log' of attribute 'weights' must give one finite number"):
            build_dictionary(Attributes.of(weights=[0.0, 1.0]), ["log"], floor=0)

    def test_negative_attributes_need_another_basis(self):
        table = Attributes.of(depth=[-1.0, 2.0])
        with pytest.raises(InputError, match=r"'depth' is negative \(-1\).*shift it, or use basis=\[\"id\"\]"):
            build_dictionary(table)
        assert build_dictionary(table, ["id"], scaling="raw").values.tolist() == [[-1], [2]]


class TestUse:
    def test_identity_attributes_make_w_the_strategy_itself(self, rng):
        w = rng.normal(size=5)
        np.testing.assert_array_equal(identity_dictionary(5) @ w, w)

    def test_projection_finds_what_can_be_expressed_and_leaves_it_alone(self, table, rng):
        D = build_dictionary(table)
        v = rng.normal(size=10)
        inside = D.project(v)
        np.testing.assert_allclose(D.project(inside), inside, atol=1e-9)
        np.testing.assert_allclose(D.project(D @ np.ones(D.shape[1]) + 7), D @ np.ones(D.shape[1]) + 7, atol=1e-9)
        np.testing.assert_allclose(D.values.T @ (v - inside), 0, atol=1e-9)
        assert (v - inside).sum() == pytest.approx(0, abs=1e-9)

    def test_w_has_an_entry_per_column(self, table):
        with pytest.raises(InputError, match=r"w has shape \(2,\); this dictionary has 10 columns"):
            build_dictionary(table, scaling="raw") @ [1.0, 2.0]

    def test_it_says_what_it_is_made_of(self, table):
        assert repr(build_dictionary(table, ["log"], scaling="raw", intercept=True)) == (
            "Dictionary(10 classes x 3 columns, raw, of 1, log(freq), log(diff))"
        )
        assert repr(build_dictionary(table, scaling="raw")).endswith("4β(freq), log(diff), …)")

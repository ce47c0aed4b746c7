"""Draws within classes: parts of the right sizes, and the same positions as ever."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capri import InputError, packs
from capri.data import Part, assemble, long_tail
from capri.sampling import divide, draw, halves, share_sizes, shuffled, stratified_folds

labels = st.lists(st.integers(0, 4), min_size=5, max_size=80).map(lambda y: np.array([*y, 0, 1, 2, 3, 4]))
COUNTS = [168, 122, 66, 27, 14, 3, 1, 1, 2, 3]
UNEVEN = np.random.default_rng(42).permutation(np.repeat(np.arange(10), COUNTS))


def digest(*positions) -> str:
    return hashlib.sha256(b"".join(np.asarray(p, np.int64).tobytes() for p in positions)).hexdigest()[:16]


@given(labels, st.floats(0.05, 0.9), st.integers(0, 5))
def test_a_share_leaves_every_class_in_both_parts(y, share, seed):
    n = np.bincount(y, minlength=5)
    drawn, rest = divide(y, share_sizes(n, share), seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([drawn, rest])), np.arange(len(y)))
    n_drawn, n_rest = (np.bincount(y[part], minlength=5) for part in (drawn, rest))
    assert (n_rest >= 1).all()
    assert (n_drawn[n >= 2] >= 1).all()
    inner = (n_drawn > 1) & (n_rest > 1)
    assert (np.abs(n_drawn - share * n)[inner] <= 0.5 + 1e-9).all()


@given(labels, st.floats(0.05, 0.9))
def test_the_size_of_a_share_is_that_of_plain_python(y, share):
    n = np.bincount(y).tolist()
    expected = [min(max(round(share * m), 1), m - 1) if m > 1 else 0 for m in n]
    assert share_sizes(n, share).tolist() == expected


@pytest.mark.parametrize("share", [0.0, 1.0, -1, float("nan")])
def test_a_share_of_nothing_or_all_is_refused(share):
    with pytest.raises(InputError, match=f"share is {share}; it must lie between 0 and 1"):
        share_sizes([5, 5], share)


@given(labels, st.integers(0, 5))
def test_halves_are_balanced(y, seed):
    first, second = halves(y, 5, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(len(y)))
    difference = np.bincount(y[second], minlength=5) - np.bincount(y[first], minlength=5)
    assert set(difference.tolist()) <= {0, 1}


@given(labels, st.integers(0, 5))
def test_a_draw_is_a_sorted_set_of_the_sizes_asked_for(y, seed):
    sizes = (np.bincount(y) + 1) // 2
    drawn = draw(y, sizes, seed)
    assert (np.diff(drawn) > 0).all()
    np.testing.assert_array_equal(np.bincount(y[drawn], minlength=5), sizes)


def test_draws_differ_by_seed_alone():
    y = np.repeat(np.arange(4), 10)
    calls = (lambda s: stratified_folds(y, 5, s), lambda s: halves(y, 4, s)[0], lambda s: draw(y, [5] * 4, s))
    for call in calls:
        np.testing.assert_array_equal(call(1), call(1))
        assert (call(1) != call(2)).any()


class TestFolds:
    def test_spread_each_class_evenly(self):
        y = np.random.default_rng(0).choice(4, 200, p=[0.7, 0.2, 0.06, 0.04])
        folds = stratified_folds(y, 5, seed=1)
        for k in range(4):
            sizes = np.bincount(folds[y == k], minlength=5)
            assert sizes.max() - sizes.min() <= 1

    def test_a_lone_sample_is_never_held_out(self):
        folds = stratified_folds(np.array([0, 0, 1, 2, 2]), 2, 0)
        assert folds[2] == -1
        assert set(folds[[0, 1]]) == set(folds[[3, 4]]) == {0, 1}


class TestStoredResultsDependOnThem:
    """Digests of positions drawn as they were for the results in store: they must never change."""

    @pytest.mark.parametrize(
        ("name", "expected"), [("cifar10-lt", "34bf65fe7bf7e52a"), ("cifar100-lt", "88f32ac92e2f8985")]
    )
    def test_halves_of_packs(self, name, expected):
        assert digest(*packs.load(name).halves(3)) == expected

    def test_folds_of_pooling(self):
        assert digest(stratified_folds(UNEVEN, 5, 3)) == "8e2c250a73bf4be6"

    def test_folds_do_not_mind_a_class_without_samples(self):
        assert digest(stratified_folds(2 * UNEVEN, 5, 3)) == "8e2c250a73bf4be6"

    def test_long_tails(self):
        assert digest(long_tail(UNEVEN, (np.array(COUNTS) + 1) // 2, 3)) == "3a88657645d31499"

    @pytest.mark.parametrize(("share", "expected"), [(0.2, "2b529a56db97ee95"), (0.0, "9a4556b63bee4166")])
    def test_parts_of_data_sets(self, share, expected):
        part = Part.of(np.zeros((len(UNEVEN), 1)), UNEVEN, 10, "train")
        splits = assemble(part, part, list("abcdefghij"), val_fraction=share, seed=3)
        assert digest(splits.train.index, splits.val.index, splits.test.index) == expected

    def test_digits_of_the_demonstration(self):
        from sklearn.datasets import load_digits

        assert digest(*shuffled(load_digits(return_X_y=True)[1], 10, 3)) == "95140278fd8a4c37"

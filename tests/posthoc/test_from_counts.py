"""The closed form from class counts, without a validation set."""

import numpy as np
import pandas as pd
import pytest

from capri import InputError, LogitAdjuster
from capri.objectives import expected_cost

COUNTS = np.array([900.0, 90.0, 10.0])


def offsets(*args, **settings):
    return LogitAdjuster.from_counts(*args, **settings).strategy_.l


def centred(l):
    return l - l.mean()


def test_for_the_balanced_error_it_is_logit_adjustment_with_tau_one():
    np.testing.assert_allclose(offsets(COUNTS), centred(np.log(COUNTS)))


def test_for_the_plain_error_nothing_changes():
    np.testing.assert_allclose(offsets(COUNTS, "plain"), 0, atol=1e-12)


def test_weights_and_costs_of_the_true_class_are_the_same():
    weights = np.array([1.0, 2.0, 7.0])
    expected = centred(np.log(COUNTS) - np.log(weights))
    np.testing.assert_allclose(offsets(COUNTS, "weighted", weights=weights), expected)
    costs = np.where(np.eye(3), 0.0, (weights / COUNTS)[:, None])  # per sample, so that classes count by their weight
    np.testing.assert_allclose(offsets(COUNTS, expected_cost(costs)), expected)


def test_it_is_bayes_on_a_known_posterior():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 500)
    decided = LogitAdjuster.from_counts(COUNTS, scores="proba").predict(p)
    np.testing.assert_array_equal(decided, (p / COUNTS).argmax(axis=1))


@pytest.mark.parametrize("counts", [{"a": 900, "b": 90, "c": 10}, pd.Series([900, 90, 10], index=list("abc"))])
def test_labels_come_with_the_counts(counts, tmp_path):
    adjuster = LogitAdjuster.from_counts(counts)
    assert adjuster.classes_.tolist() == ["a", "b", "c"]
    assert adjuster.predict([[0.0, 0.0, 0.0]]).tolist() == ["c"]
    adjuster.policy_.save(tmp_path / "policy.json")


@pytest.mark.parametrize(
    "objective", ["worst", "cvar:0.2", "macro_f1", expected_cost([[0, 1, 2], [1, 0, 1], [1, 1, 0]])]
)
def test_what_has_no_closed_form_is_refused(objective):
    with pytest.raises(InputError, match="has no closed form; give validation scores"):
        LogitAdjuster.from_counts(COUNTS, objective)


@pytest.mark.parametrize("counts", [5, None, np.array(5), iter(())])
def test_counts_that_are_no_list_are_refused(counts):
    with pytest.raises(InputError, match=r"class_counts is .*; it must hold one number per class\."):
        LogitAdjuster.from_counts(counts)


def test_it_can_be_looked_at_though_it_has_no_report():
    """`dir` asks for each attribute; only an AttributeError says that one is not there."""
    adjuster = LogitAdjuster.from_counts(COUNTS)
    assert not hasattr(adjuster, "report_")
    assert "report_" not in dir(adjuster)

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score

from capri import CAPClassifierCV, InputError
from capri.posthoc.views import wilson
from capri.report import ClassErrorDisplay


def test_errors_are_what_recall_leaves(of_size):
    given = of_size
    display = ClassErrorDisplay.from_estimator(given.adjuster, given.held_scores, given.held_labels)
    predicted = given.names[given.held_scores.argmax(1)], given.adjuster.predict(given.held_scores)
    for errors, p in zip((display.before, display.after), predicted, strict=True):
        recall = recall_score(given.held_labels, p, labels=given.names, average=None, zero_division=0)
        assert errors == pytest.approx(1 - recall)
    assert list(display.class_names) == given.names.tolist()
    assert display.samples.sum() == len(given.held_labels)


def test_predictions_and_estimator_agree(ten):
    weight = np.random.default_rng(0).uniform(size=len(ten.held_labels))
    one = ClassErrorDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels, sample_weight=weight)
    decided = ten.names[ten.held_scores.argmax(1)], ten.adjuster.predict(ten.held_scores)
    other = ClassErrorDisplay.from_predictions(ten.held_labels, *decided, sample_weight=weight)
    k = ten.names.tolist().index("class 3")
    here = ten.held_labels == "class 3"
    assert one.after[k] == pytest.approx(np.average(decided[1][here] != "class 3", weights=weight[here]))
    assert (one.after == other.after).all()


def test_weighted_samples_are_worth_as_many_equal_ones(ten):
    decided = ten.names[ten.held_scores.argmax(1)], ten.adjuster.predict(ten.held_scores)
    plain = ClassErrorDisplay.from_predictions(ten.held_labels, *decided).samples
    for scale in (1, 7):
        weight = np.where(np.arange(len(ten.held_labels)) % 2, scale, 0)
        half = ClassErrorDisplay.from_predictions(ten.held_labels, *decided, sample_weight=weight).samples
        assert half.tolist() == [(weight[ten.held_labels == name] > 0).sum() for name in ten.names]
        assert (half < plain).all()


def test_classifier_shows_its_own_scores_before_and_after():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], [200, 60, 20])
    X = rng.normal(size=(280, 3)) + 1.5 * np.eye(3)[np.unique(y, return_inverse=True)[1]]
    model = CAPClassifierCV(LogisticRegression(), bootstrap=0).fit(X, y)
    display = ClassErrorDisplay.from_estimator(model, X, y)
    for errors, p in ((display.before, model.estimator_.predict(X)), (display.after, model.predict(X))):
        assert errors == pytest.approx(1 - recall_score(y, p, average=None))


def test_order_is_from_common_to_rare_or_from_worst_to_best(ten):
    held = ten.held_scores, ten.held_labels
    counts = dict(zip(ten.names[::-1].tolist(), ten.counts[::-1], strict=True))
    assert ClassErrorDisplay.from_estimator(ten.adjuster, *held, class_counts=counts).order.tolist() == list(range(10))
    free = ClassErrorDisplay.from_estimator(ten.adjuster, *held)
    assert (np.diff(free.before[free.order]) <= 0).all()


def test_intervals_hold_the_errors_and_a_class_without_samples_has_none(lacking):
    display = ClassErrorDisplay.from_estimator(lacking.adjuster, lacking.held_scores, lacking.held_labels)
    assert np.flatnonzero(np.isnan(display.before)).tolist() == [2]
    for errors, (low, high) in zip((display.before, display.after), display.intervals, strict=True):
        here = ~np.isnan(errors)
        assert ((low <= errors + 1e-12) & (errors <= high + 1e-12))[here].all()
        assert np.isnan(low[2])
    assert ClassErrorDisplay(display.before, display.after, display.class_names).intervals is None


def test_labels_that_do_not_fit_the_samples_are_refused(ten):
    with pytest.raises(InputError, match="3 labels for"):
        ClassErrorDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels[:3])
    with pytest.raises(InputError, match="give both in one kind"):
        ClassErrorDisplay.from_predictions(["a", "b"], ["a", "b"], [0, 1])


def test_what_is_left_undecided_is_out_of_the_errors_and_of_their_intervals(ten):
    rule = replace(ten.adjuster.policy_, thresholds=(0.5,) * 10)
    decided = rule.predict(ten.held_scores)
    display = ClassErrorDisplay.from_estimator(rule, ten.held_scores, ten.held_labels)
    there = np.array([d is not None for d in decided])
    for k, name in enumerate(ten.names):
        mine = there & (ten.held_labels == name)
        assert display.decided[k] == mine.sum() <= display.samples[k]
        assert display.after[k] == pytest.approx((decided[mine] != name).mean())
    assert display.intervals[1][1] == pytest.approx(wilson(display.after, display.decided)[1])
    assert "of what is decided" in display.ax_.get_legend().get_texts()[1].get_text()
    listed = ClassErrorDisplay.from_predictions(
        ten.held_labels.tolist(), ten.names[ten.held_scores.argmax(1)], list(decided)
    )
    assert listed.after == pytest.approx(display.after)

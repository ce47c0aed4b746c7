from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from capri.report import ConfusionDifferenceDisplay


def test_matrices_are_those_of_scikit_learn(ten):
    display = ConfusionDifferenceDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels)
    decided = ten.names[ten.held_scores.argmax(1)], ten.adjuster.predict(ten.held_scores)
    for matrix, p in zip((display.before, display.after), decided, strict=True):
        assert (matrix == confusion_matrix(ten.held_labels, p, labels=ten.names)).all()
    rates = [confusion_matrix(ten.held_labels, p, labels=ten.names, normalize="true") for p in decided]
    assert display.change == pytest.approx(rates[1] - rates[0])
    assert not display.grouped
    other = ConfusionDifferenceDisplay.from_predictions(ten.held_labels, *decided, classes=ten.names)
    assert (other.change == display.change).all()


def test_rows_are_shares_of_what_is_decided(ten):
    rule = replace(ten.adjuster.policy_, thresholds=(0.5,) * 10)
    decided = rule.predict(ten.held_scores)
    there = np.array([d is not None for d in decided])
    display = ConfusionDifferenceDisplay.from_estimator(rule, ten.held_scores, ten.held_labels)
    known = {"labels": ten.names, "normalize": "true"}
    before = confusion_matrix(ten.held_labels, ten.names[ten.held_scores.argmax(1)], **known)
    after = confusion_matrix(ten.held_labels[there], decided[there].astype(str), **known)
    assert display.change == pytest.approx(after - before)


def test_of_many_classes_the_others_are_one(of_size):
    display = ConfusionDifferenceDisplay.from_estimator(of_size.adjuster, of_size.held_scores, of_size.held_labels)
    decided = of_size.adjuster.predict(of_size.held_scores)
    whole = confusion_matrix(of_size.held_labels, decided, labels=of_size.names)
    assert display.grouped == (len(of_size.names) == 100)
    assert display.after.sum() == whole.sum()
    if display.grouped:
        assert display.names[-1] == "all others"
        shown = [of_size.names.tolist().index(name) for name in display.names[:-1]]
        rest = np.setdiff1d(np.arange(100), shown)
        assert (display.after[:-1, :-1] == whole[np.ix_(shown, shown)]).all()
        assert (display.after[:-1, -1] == whole[np.ix_(shown, rest)].sum(axis=1)).all()
        assert display.after[-1, -1] == whole[np.ix_(rest, rest)].sum()


def test_weights_count(ten):
    weight = np.random.default_rng(0).uniform(size=len(ten.held_labels))
    known = {"sample_weight": weight}
    display = ConfusionDifferenceDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels, **known)
    decided = ten.adjuster.predict(ten.held_scores)
    expected = confusion_matrix(ten.held_labels, decided, labels=ten.names, sample_weight=weight)
    assert display.after == pytest.approx(expected)


def test_a_class_without_samples_has_no_change(lacking):
    display = ConfusionDifferenceDisplay.from_estimator(lacking.adjuster, lacking.held_scores, lacking.held_labels)
    assert np.flatnonzero(np.isnan(display.change).all(axis=1)).tolist() == [2]


def test_right_decisions_and_wrong_ones_are_told_apart(ten):
    display = ConfusionDifferenceDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels)
    shown = np.asarray(display.ax_.get_images()[0].get_array())
    hits = np.eye(10, dtype=bool)
    assert shown[hits] == pytest.approx(100 * display.change[hits])
    assert shown[~hits] == pytest.approx(-100 * display.change[~hits])

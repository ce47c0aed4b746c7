import numpy as np
import pytest

from capri import InputError, LogitAdjuster, evaluate
from capri.report import LineDisplay


def brute_force(case, tau, y, scores):
    decided = case.names[(scores - tau * np.log(case.counts / case.counts.sum())).argmax(1)]
    shares = dict(zip(case.names.tolist(), case.counts, strict=True))
    return evaluate(y, decided, case.names, ["cvar:0.3"], target_shares=shares)["cvar:0.3"]


def test_every_step_is_what_a_grid_says(ten):
    display = LineDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels)
    found = display.profile
    assert found.exact
    inner = (found.tau[1:] + found.tau[:-1]) / 2
    for i in np.linspace(0, len(inner) - 1, 40).astype(int):
        assert found.low[i + 1] == pytest.approx(brute_force(ten, inner[i], ten.held_labels, ten.held_scores))


def test_marks_are_the_values_of_their_decisions(ten):
    found = LineDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels).profile
    assert found.unadjusted.value == pytest.approx(brute_force(ten, 0, ten.held_labels, ten.held_scores))
    assert found.la.value == pytest.approx(brute_force(ten, 1, ten.held_labels, ten.held_scores))
    decided = ten.adjuster.predict(ten.held_scores)
    chosen = evaluate(ten.held_labels, decided, ten.names, ["cvar:0.3"])["cvar:0.3"]
    assert found.chosen.value == pytest.approx(chosen)
    assert found.tuned.value == pytest.approx(min(found.low))


def test_predictions_and_estimator_agree(ten):
    one = LineDisplay.from_estimator(ten.adjuster, ten.held_scores, ten.held_labels).profile
    counts = dict(zip(ten.names.tolist(), ten.counts, strict=True))
    known = {"class_counts": counts, "classes": ten.names.tolist(), "objective": "cvar:0.3"}
    other = LineDisplay.from_predictions(ten.held_labels, ten.held_scores, **known).profile
    assert other.chosen is None
    assert other.tau == pytest.approx(one.tau)
    assert other.low == pytest.approx(one.low)


def test_the_curve_and_its_marks_are_in_sight(of_size):
    display = LineDisplay.from_estimator(of_size.adjuster, of_size.held_scores, of_size.held_labels)
    (left, right), (low, high) = display.ax_.get_xlim(), display.ax_.get_ylim()
    for mark in display.profile.marks.values():
        assert left < mark.tau < right
        assert low < mark.value < high


def test_without_frequencies_there_is_no_line(ten):
    settings = {"method": "plain", "classes": ten.names.tolist(), "bootstrap": 0}
    adjuster = LogitAdjuster(**settings).fit(ten.scores, ten.labels)
    with pytest.raises(InputError, match="class_counts"):
        LineDisplay.from_estimator(adjuster, ten.scores, ten.labels)

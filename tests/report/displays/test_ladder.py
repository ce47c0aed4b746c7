import numpy as np
import pytest

from capri import InputError, LogitAdjuster
from capri.report import LadderDisplay


def test_rungs_are_those_of_the_path_with_intervals_about_them(ten):
    display, found = LadderDisplay.from_estimator(ten.adjuster), ten.adjuster.validation_
    assert dict(zip(display.rungs, display.gains, strict=True)) == ten.adjuster.path_
    assert display.values[-1] == pytest.approx(found.before["cvar:0.3"] - found.improvement)
    assert (display.low[-1], display.high[-1]) == found.interval
    assert (display.low <= display.gains).all()
    assert (display.gains <= display.high).all()
    drawn = [line.get_xdata()[0] for line in display.ax_.get_lines()]
    assert set(np.round(display.values, 12)) <= set(np.round(drawn, 12))


def test_predictions_are_tuned_on(ten):
    settings = {"objective": "cvar:0.3", "class_counts": ten.counts, "classes": ten.names.tolist()}
    display = LadderDisplay.from_predictions(ten.labels, ten.scores, **settings)
    assert display.gains.tolist() == list(ten.adjuster.path_.values())


def test_without_judging_out_of_fold_there_is_no_ladder(ten):
    settings = {"bootstrap": 0, "classes": ten.names.tolist()}
    adjuster = LogitAdjuster(**settings).fit(ten.scores, ten.labels, class_counts=ten.counts)
    with pytest.raises(InputError, match="bootstrap"):
        LadderDisplay.from_estimator(adjuster)

import warnings
from itertools import pairwise

import numpy as np
import pytest

from capri import Attributes, InputError, LogitAdjuster, build_dictionary
from capri.report import OffsetsDisplay
from capri.report.displays.offsets import offset_parts


def test_parts_add_up_and_the_map_is_one_of_attributes(of_size):
    display, policy = OffsetsDisplay.from_estimator(of_size.adjuster), of_size.adjuster.policy_
    assert display.offsets.tolist() == policy.strategy.l.tolist()
    assert display.mapped + display.residual == pytest.approx(display.offsets)
    columns = build_dictionary(Attributes.of(**display.attributes)).values
    basis = np.column_stack([np.ones(len(columns)), columns])
    assert basis @ np.linalg.lstsq(basis, display.mapped, rcond=None)[0] == pytest.approx(display.mapped)
    assert basis.T @ display.residual == pytest.approx(0, abs=1e-8)


def test_without_pooling_the_map_is_everything(ten):
    settings = {"pooling": None, "classes": ten.names.tolist(), "bootstrap": 0}
    adjuster = LogitAdjuster(**settings).fit(ten.scores, ten.labels, class_counts=ten.counts)
    mapped, residual = offset_parts(adjuster.policy_)
    assert mapped.tolist() == adjuster.strategy_.l.tolist()
    assert not residual.any()


def test_one_free_offset_per_class_has_no_map(ten):
    settings = {"method": "plain", "classes": ten.names.tolist(), "bootstrap": 0}
    adjuster = LogitAdjuster(**settings).fit(ten.scores, ten.labels)
    assert offset_parts(adjuster.policy_) == (None, None)
    assert OffsetsDisplay.from_estimator(adjuster).ax_.get_xlabel() == "class"


def test_a_class_without_samples_has_no_part_of_its_own(lacking):
    display = OffsetsDisplay.from_estimator(lacking.adjuster)
    assert np.flatnonzero(np.isnan(display.residual)).tolist() in ([2], [])
    here = ~np.isnan(display.residual)
    assert (display.mapped + display.residual)[here] == pytest.approx(display.offsets[here])


def test_predictions_are_tuned_on(ten):
    settings = {"objective": "cvar:0.3", "class_counts": ten.counts, "classes": ten.names.tolist()}
    display = OffsetsDisplay.from_predictions(ten.labels, ten.scores, **settings)
    assert display.offsets.tolist() == ten.adjuster.strategy_.l.tolist()


@pytest.mark.parametrize("attribute", ["freq", "diff"])
def test_points_stand_at_the_attribute(ten, attribute):
    display = OffsetsDisplay.from_estimator(ten.adjuster, attribute=attribute)
    points = next(line for line in display.ax_.get_lines() if line.get_label() == "offset")
    assert points.get_xdata().tolist() == ten.adjuster.policy_.attributes[attribute]
    assert points.get_ydata().tolist() == ten.adjuster.strategy_.l.tolist()


def test_frequencies_are_read_in_percent_and_do_not_run_into_each_other(ten):
    axes = OffsetsDisplay.from_estimator(ten.adjuster).ax_
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    shown = [tick for tick in axes.get_xticklabels(which="both") if low <= tick.get_position()[0] <= high]
    shown = sorted((tick for tick in shown if tick.get_text()), key=lambda tick: tick.get_position()[0])
    assert [float(tick.get_text()) for tick in shown] == pytest.approx([100 * t.get_position()[0] for t in shown])
    boxes = [tick.get_window_extent() for tick in shown]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    assert len(boxes) >= 2


def test_unknown_attributes_are_refused(ten):
    with pytest.raises(InputError, match="knows are: freq, diff"):
        OffsetsDisplay.from_estimator(ten.adjuster, attribute="size")


def test_closed_form_is_shown_too(ten):
    adjuster = LogitAdjuster.from_counts(ten.counts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        display = OffsetsDisplay.from_estimator(adjuster)
    assert display.offsets.tolist() == adjuster.strategy_.l.tolist()

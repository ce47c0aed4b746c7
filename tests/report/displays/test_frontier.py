import numpy as np
import pytest

from capri import evaluate
from capri.report import FrontierDisplay


@pytest.fixture(scope="module")
def display(ten):
    known = {"class_counts": ten.counts, "points": 4, "against": "err[class 0]"}
    return FrontierDisplay.from_estimator(ten.adjuster, ten.scores, ten.labels, **known)


def test_points_are_what_their_policies_reach(display, ten):
    found = display.frontier
    shares = dict(zip(ten.names.tolist(), ten.counts, strict=True))
    for i, point in enumerate(found.points):
        decided = found.policy(i).predict(ten.scores)
        figures = evaluate(ten.labels, decided, ten.names, ["cvar:0.3", "err[class 0]"], target_shares=shares)
        assert (point.value, point.price) == pytest.approx(tuple(figures.values()))


def test_curves_and_landmarks_are_drawn_where_they_are(display):
    found, lines = display.frontier, {line.get_label(): line for line in display.ax_.get_lines()}
    assert lines["on the samples that tuned"].get_xdata().tolist() == found.prices.tolist()
    assert lines["on the samples that tuned"].get_ydata().tolist() == found.values.tolist()
    assert lines["out of fold"].get_ydata() == pytest.approx(found.held_values, nan_ok=True)
    unadjusted = found.landmarks["unadjusted"]
    place = (*lines["as trained"].get_xdata(), *lines["as trained"].get_ydata())
    assert place == pytest.approx((unadjusted.held_price, unadjusted.held_value))


def test_predictions_are_tuned_on(display, ten):
    known = {"class_counts": ten.counts, "points": 4, "against": "err[class 0]", "classes": ten.names.tolist()}
    other = FrontierDisplay.from_predictions(ten.labels, ten.scores, objective="cvar:0.3", **known)
    assert np.allclose(other.frontier.values, display.frontier.values)


def test_without_others_there_is_one_curve(ten):
    known = {"class_counts": ten.counts, "points": 3, "bootstrap": 0}
    display = FrontierDisplay.from_estimator(ten.adjuster, ten.scores, ten.labels, **known)
    assert "out of fold" not in [line.get_label() for line in display.ax_.get_lines()]


def test_a_frontier_is_drawn_again_from_what_it_holds(display, tmp_path):
    assert FrontierDisplay(display.frontier).save(tmp_path / "f.svg").stat().st_size < 100_000

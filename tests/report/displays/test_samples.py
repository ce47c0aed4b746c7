import numpy as np
import pytest

from capri import InputError, evaluate
from capri.report import SamplesDisplay, samples_curve
from capri.sampling import divide


def test_all_that_is_not_held_out_tunes_as_an_ordinary_fit_does(ten):
    curve = samples_curve(ten.adjuster, ten.scores, ten.labels, class_counts=ten.counts, sizes=[6], repeats=1)
    k = np.searchsorted(ten.names, ten.labels)
    judging, tuning = divide(k, np.full(10, 6), np.random.default_rng((0, 0)))
    again = type(ten.adjuster)("cvar:0.3", bootstrap=0, classes=ten.names.tolist())
    again.fit(ten.scores[tuning], ten.labels[tuning], class_counts=ten.counts)
    shares = dict(zip(ten.names.tolist(), ten.counts, strict=True))

    def of(decided):
        y = ten.labels[judging]
        return evaluate(y, decided, ten.names, ["cvar:0.3"], target_shares=shares)["cvar:0.3"]

    assert curve.values[0, 0] == pytest.approx(of(again.predict(ten.scores[judging])))
    assert curve.unadjusted[0] == pytest.approx(of(ten.names[ten.scores[judging].argmax(1)]))
    la = ten.scores[judging] - np.log(ten.counts)
    assert curve.la[0] == pytest.approx(of(ten.names[la.argmax(1)]))


def test_sizes_are_nested_and_cost_is_as_said(ten):
    steps = []
    known = {"class_counts": ten.counts, "on_progress": lambda: steps.append(1)}
    curve = samples_curve(ten.adjuster, ten.scores, ten.labels, sizes=[4, 2, 4], repeats=3, **known)
    assert curve.sizes.tolist() == [2, 4]
    assert curve.values.shape == (3, 2)
    assert len(steps) == 6
    again = samples_curve(ten.adjuster, ten.scores, ten.labels, sizes=[2, 4], repeats=3, class_counts=ten.counts)
    assert (again.values == curve.values).all()
    assert curve.deviation == pytest.approx(curve.values.std(axis=0, ddof=1))


def test_without_counts_there_is_no_logit_adjustment(lacking):
    curve = samples_curve(lacking.adjuster, lacking.scores, lacking.labels, sizes=[3], repeats=1)
    assert curve.la is None
    assert curve.deviation.tolist() == [0.0]


def test_default_sizes_go_up_to_all_that_is_not_held_out(ten):
    curve = samples_curve(ten.adjuster, ten.scores, ten.labels, class_counts=ten.counts, repeats=1)
    assert (curve.sizes[0], curve.sizes[-1]) == (3, 6)


def test_display_holds_the_curve(ten):
    counts = dict(zip(ten.names.tolist(), ten.counts.tolist(), strict=True))
    known = {"class_counts": counts, "sizes": [2, 5], "repeats": 2}
    display = SamplesDisplay.from_estimator(ten.adjuster, ten.scores, ten.labels, **known)
    curve = samples_curve(ten.adjuster, ten.scores, ten.labels, **known)
    assert (display.curve.values == curve.values).all()
    settings = {"objective": "cvar:0.3", "classes": ten.names.tolist()}
    other = SamplesDisplay.from_predictions(ten.labels, ten.scores, **settings, **known)
    assert (other.curve.values == curve.values).all()
    drawn = next(line for line in display.ax_.get_lines() if line.get_label().startswith("tuned"))
    assert drawn.get_ydata() == pytest.approx(curve.mean)


@pytest.mark.parametrize("wrong", [{"sizes": []}, {"sizes": [0, 3]}, {"repeats": 0}])
def test_what_cannot_be_tried_is_refused(ten, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        samples_curve(ten.adjuster, ten.scores, ten.labels, **wrong)


@pytest.mark.parametrize("sizes", [5, ["few"], [0, 5], [], [2.5], [[3], [5]]])
def test_sizes_are_whole_numbers_in_a_row(ten, sizes):
    with pytest.raises(InputError, match="sizes is"):
        samples_curve(ten.adjuster, ten.scores, ten.labels, sizes=sizes)

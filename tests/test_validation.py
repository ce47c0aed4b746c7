"""What tuning changed, as people read it."""

from dataclasses import replace

import numpy as np
import pytest

import capri
from capri import InputError
from capri.validation import Validation, movers, summary, text

FOUND = Validation(
    objective="cvar:0.5",
    before={"cvar:0.5": 0.9, "plain": 0.2, "balanced": 0.5},
    after={"cvar:0.5": 0.5, "plain": 0.25, "balanced": 0.4},
    errors_before=[0.1, 0.2, None, 1.0, 0.8],
    errors_after=[0.3, 0.25, None, 0.4, 0.7],
    samples=[40, 3, 0, 20, 30],
    in_sample=0.4,
    improvement=0.35,
    interval=(0.2, 0.5),
    feasible=True,
    ladder={"τ = 1": (0.1, 0.0, 0.2), "LA, tuned": (0.3, 0.1, 0.4), "tuned": (0.35, 0.2, 0.5)},
    limits={"plain <= 0.3": (0.25, 0.3), "worst <= 0.5": (0.7, 0.5)},
    class_names=("cat", "dog", "elk", "fox", "a very long name of a class that goes on and on"),
)


def test_the_summary_says_who_gains_who_pays_and_how_sure_that_is():
    said = summary(FOUND)
    assert said["headline"].startswith("CVaR 0.5 falls from 90.0 % to 55.0 %, out of fold, by 35.0 points (90 %")
    assert said["gain"] == "2 of 4 classes, fox: 100 → 40 %, a very long name of a c…: 80 → 70 %"
    assert said["pay"] == "2 of 4 classes, cat: 10 → 30 %, dog: 20 → 25 %"
    assert said["samples"] == "none of elk; fewer than 5 of dog, whose errors are rough"
    assert (
        said["simpler"]
        == "“LA, tuned” gains most of the simpler ways: 30.0 points out of fold (90 % interval 10.0 to 40.0)"
    )
    assert said["limits"] == "plain <= 0.3 is kept by 5.0 points; worst <= 0.5 is broken by 20.0 points"
    assert said["in sample"].startswith("CVaR 0.5 90.0 → 50.0 %, overall error 20.0 → 25.0 %")


def test_movers_are_the_most_affected_first():
    gainers, payers = movers(FOUND)
    assert [m.name for m in payers] == ["cat", "dog"]
    assert [round(m.after - m.before, 2) for m in gainers] == [-0.6, -0.1]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_and_nothing_is_lost(width):
    lines = text(FOUND, width)
    assert max(map(len, lines.splitlines())) <= width
    for sentence in summary(FOUND).values():
        assert sentence.split() == [w for w in sentence.split() if w in lines.split()]
    assert lines.isprintable() or "\n" in lines


def test_repr_is_about_ten_lines():
    assert 6 <= len(repr(FOUND).splitlines()) <= 12


def test_what_nobody_knows_is_left_out():
    bare = replace(FOUND, improvement=None, interval=None, ladder={}, limits={}, class_names=())
    assert set(summary(bare)) == {"headline", "gain", "pay", "samples", "in sample"}
    assert "3: 100 → 40 %" in repr(bare)
    assert "not known" in repr(replace(bare, before={}, after={}))


def test_constraints_that_cannot_all_be_kept_are_said_so():
    assert "no adjustment was found that keeps all" in summary(replace(FOUND, feasible=False))["limits"]


@pytest.mark.parametrize(
    ("field", "value"), [("ladder", {"τ = 1": [0.1]}), ("limits", {"a": 1}), ("class_names", "abc"), ("ladder", [1])]
)
def test_fields_are_checked(field, value):
    with pytest.raises(InputError, match=rf"validation\.{field} is"):
        replace(FOUND, **{field: value})


@pytest.fixture(scope="module")
def tuned():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    logits = rng.normal(size=(180, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01])
    names = np.array(["cat", "dog", "lynx"])
    limits = ["plain <= baseline + 0.3", "precision[dog] >= 0.2"]
    known = {"objective": "worst", "classes": names, "constraints": limits, "target_shares": "validation"}
    return capri.LogitAdjuster(**known).fit(logits, names[y], class_counts=[900, 90, 10]), logits, names[y]


class TestOfAnEstimator:
    def test_the_ladder_has_an_interval_about_each_mean(self, tuned):
        found, path = tuned[0].validation_, tuned[0].path_
        assert {rung: mean for rung, (mean, _, _) in found.ladder.items()} == path
        assert all(low <= mean <= high for mean, low, high in found.ladder.values())
        assert found.ladder["tuned"] == (found.improvement, *found.interval)

    def test_limits_are_what_evaluation_says(self, tuned):
        adjuster, logits, y = tuned
        plain, precision = adjuster.validation_.limits.values()
        before, after = (np.mean(p != y) for p in (adjuster.classes_[logits.argmax(1)], adjuster.predict(logits)))
        assert plain == pytest.approx((after, before + 0.3))
        predicted = adjuster.predict(logits) == "dog"
        assert precision == pytest.approx((1 - np.mean(y[predicted] == "dog"), 0.8))

    def test_names_are_those_of_the_classes_and_are_kept_once(self, tuned):
        policy = capri.Policy.from_json(tuned[0].policy_.to_json())
        assert policy.validation.class_names == ("cat", "dog", "lynx")
        assert policy.to_json().count("lynx") == 1
        assert policy.validation == tuned[0].validation_
        assert repr(policy.validation) == repr(tuned[0].validation_)

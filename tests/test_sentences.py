"""Sentences that people read first."""

import pytest

from capri.sentences import called, headline, meaning

BEFORE = {"cvar:0.2": 0.986, "plain": 0.300, "balanced": 0.5}
AFTER = {"cvar:0.2": 0.790, "plain": 0.312, "balanced": 0.4}


def test_out_of_fold_counts_more_than_the_samples_that_tuned():
    found = headline("cvar:0.2", BEFORE, AFTER, improvement=0.176, interval=(0.121, 0.220))
    assert found.gain == "CVaR 0.2 falls from 98.6 % to 81.0 %"
    assert found.evidence == "out of fold"
    assert found.sureness == "by 17.6 points (90 % interval 12.1 to 22.0)"
    assert found.price == "the overall error rises by 1.2 points on the samples that tuned"


def test_test_samples_count_more_than_anything():
    found = headline("cvar:0.2", BEFORE, AFTER, interval=(0.18, 0.21), test=5000)
    assert str(found) == (
        "CVaR 0.2 falls from 98.6 % to 79.0 %, on 5,000 test samples, by 19.6 points (90 % interval 18.0 to 21.0); "
        "the overall error rises by 1.2 points."
    )


def test_the_price_is_out_of_fold_where_that_is_known():
    held = BEFORE, {**AFTER, "plain": 0.32}
    found = headline("cvar:0.2", BEFORE, AFTER, improvement=0.176, interval=(0.121, 0.220), held=held)
    assert found.price == "the overall error rises by 2.0 points"


def test_figures_of_the_samples_that_tuned_are_called_so():
    assert "on the samples that tuned, which may not hold on others" in str(headline("cvar:0.2", BEFORE, AFTER))


def test_an_interval_that_includes_none_says_so():
    found = headline("cvar:0.2", BEFORE, AFTER, improvement=0.01, interval=(-0.02, 0.04))
    assert "90 % interval -2.0 to 4.0, which includes none" in found.sureness


def test_a_loss_is_a_rise():
    found = headline("balanced", BEFORE, BEFORE, improvement=-0.02, interval=(-0.05, -0.01))
    assert found.gain == "Balanced error rises from 50.0 % to 52.0 %"
    assert found.sureness == "by 2.0 points (90 % interval 1.0 to 5.0)"
    assert found.price.startswith("the overall error stays as it was")


def test_what_stays_has_an_interval_but_no_points():
    found = headline("balanced", BEFORE, {**BEFORE, "plain": 0.312}, interval=(-0.01, 0.02), test=90)
    assert str(found) == (
        "Balanced error stays at 50.0 %, on 90 test samples, the 90 % interval of the improvement being -1.0 to 2.0 "
        "points; the overall error rises by 1.2 points."
    )


def test_the_overall_error_is_no_price_of_itself():
    assert headline("plain", BEFORE, AFTER).price == ""


@pytest.mark.parametrize(
    ("objective", "words"),
    [("cvar:0.05", "CVaR 0.05"), ("worst", "worst class error"), ("err[cat]", "err[cat]"), ("mine", "mine")],
)
def test_objectives_are_called_as_people_call_them(objective, words):
    assert called(objective) == words


def test_what_has_a_phrase_means_something():
    assert meaning("cvar:0.05") == "the mean error of the worst 5 % of the classes"
    assert meaning("0.5*balanced+0.5*worst") == ""

import numpy as np
import pytest

from capri import InputError, LogitAdjuster, evaluate
from capri.posthoc import profile


def value_at(tail, tau, objective="balanced"):
    """The objective there, by argmax and `evaluate` alone."""
    log_frequency = np.log(tail.counts / tail.counts.sum())
    predictions = (tail.scores - tau * log_frequency).argmax(axis=1)
    return evaluate(tail.y, predictions, tail.n_classes, [objective])[objective]


def band_of(found, tau):
    return int(np.searchsorted(found.tau, tau))


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "sdev", "macro_f1"])
def test_every_plateau_has_the_value_that_argmax_gives(tail, objective):
    found = profile(tail.scores, tail.y, tail.counts, objective)
    assert found.exact
    assert found.n_plateaus == len(found.low) == len(found.tau) + 1
    middles = np.concatenate([[found.tau[0] - 1], (found.tau[1:] + found.tau[:-1]) / 2, [found.tau[-1] + 1]])
    expected = [value_at(tail, tau, objective) for tau in middles]
    np.testing.assert_allclose(found.low, expected, atol=1e-12)
    np.testing.assert_array_equal(found.low, found.high)


def test_marks_lie_where_they_say(tail):
    adjuster = tail.fitted(LogitAdjuster("cvar:0.4", bootstrap=0))
    found = profile(tail.scores, tail.y, tail.counts, "cvar:0.4", chosen=adjuster.strategy_)
    for mark in (found.unadjusted, found.la, found.tuned):
        assert mark.value == pytest.approx(value_at(tail, mark.tau, "cvar:0.4"))
        assert mark.value == pytest.approx(found.low[band_of(found, mark.tau)])
    assert (found.unadjusted.tau, found.la.tau) == (0.0, 1.0)
    assert found.tuned.value == pytest.approx(found.low.min())
    assert found.chosen.value == pytest.approx(adjuster.validation_.after["cvar:0.4"])


def test_an_answer_on_the_line_is_marked_at_its_own_tau(tail):
    adjuster = tail.fitted(LogitAdjuster(method="la", borrow=0, bootstrap=0))
    chosen = profile(tail.scores, tail.y, tail.counts, chosen=adjuster.strategy_).chosen
    assert f"τ = {chosen.tau:.4g}" == adjuster.reason_


@pytest.mark.parametrize("bands", [1, 7, 40])
def test_a_thinned_profile_hides_no_value(tail, bands):
    whole, thin = (profile(tail.scores, tail.y, tail.counts, bands=n) for n in (10_000, bands))
    assert len(thin.low) == len(thin.high) == len(thin.tau) + 1 == bands
    assert not thin.exact
    assert thin.n_plateaus == whole.n_plateaus
    middles = np.concatenate([[whole.tau[0] - 1], (whole.tau[1:] + whole.tau[:-1]) / 2, [whole.tau[-1] + 1]])
    band = np.searchsorted(thin.tau, middles)
    for b in range(bands):  # the band is as wide as its plateaus need, and no wider
        assert (thin.low[b], thin.high[b]) == (whole.low[band == b].min(), whole.low[band == b].max())


def test_a_range_shows_its_own_plateaus_only(tail):
    whole, part = (profile(tail.scores, tail.y, tail.counts, within=w) for w in ((-np.inf, np.inf), (0.2, 0.9)))
    inside = (whole.tau > 0.2) & (whole.tau < 0.9)
    np.testing.assert_array_equal(part.tau, whole.tau[inside])
    np.testing.assert_array_equal(part.low, whole.low[band_of(whole, 0.2) : band_of(whole, 0.9) + 1])


def test_the_tuned_place_keeps_to_the_constraints(tail):
    bound = value_at(tail, 0.0, "err[0]") + 0.05
    free = profile(tail.scores, tail.y, tail.counts)
    kept = profile(tail.scores, tail.y, tail.counts, constraints=[("err[0]", bound)])
    assert value_at(tail, free.tuned.tau, "err[0]") > bound >= value_at(tail, kept.tuned.tau, "err[0]")
    assert kept.tuned.value > free.tuned.value


def test_a_profile_is_plain_data(tail):
    found = profile(tail.scores, tail.y, tail.counts).to_dict()
    assert found["objective"] == "balanced"
    assert set(found["marks"]) == {"unadjusted", "τ = 1", "LA, tuned"}
    assert isinstance(found["low"][0], float)
    assert len(found["low"]) == len(found["tau"]) + 1


def test_ties_between_samples_make_no_plateau_of_their_own():
    scores = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # the first two are decided alike, and labelled apart
    found = profile(scores, [0, 1, 1], class_counts=[10, 1])
    assert found.n_plateaus == 3
    assert len(found.low) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"class_counts": [5, 5, 5, 5, 5]}, "the same for all classes"),
        ({"class_counts": [5, 5, 5, 5, 0]}, "never occurred"),
        ({"bands": 0}, "bands is 0"),
        ({"within": (1.0, 1.0)}, "from low to high"),
    ],
)
def test_what_has_no_line_is_refused(tail, wrong, message):
    with pytest.raises(InputError, match=message):
        profile(tail.scores, tail.y, **{"class_counts": tail.counts, **wrong})

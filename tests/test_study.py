"""Studies: what is tuned where, judged where, and what comes out of many splits."""

import hashlib
import math
import statistics

import numpy as np
import pytest

from capri import InputError, LogitAdjuster, Strategy, evaluate, study
from capri.study import METHODS, SETTINGS, Split, Spread, Study, hold_out, judge, possible_methods, tuned

NAMES = ("cat", "dog", "lynx")
COUNTS = np.array([900.0, 90.0, 10.0])


def samples(n=40, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], n)
    return rng.normal(size=(3 * n, 3)) + 2 * np.eye(3)[y] + np.log(COUNTS / COUNTS.sum()), y


@pytest.fixture(scope="module")
def split():
    return hold_out(*samples(), NAMES, share=0.5, seed=1, train_counts=COUNTS)


def offset_of(k):
    """A method that favours class k so much that it is always predicted."""
    return lambda split, objective: Strategy.of(split.n_classes, l=-1e6 * np.eye(split.n_classes)[k])


class TestSplits:
    def test_validation_is_never_test(self):
        y = samples()[1]
        scores = np.column_stack([np.arange(120.0)] * 3)  # each sample's scores are its position
        for seed in range(3):
            split = hold_out(scores, y, NAMES, 0.4, seed)
            positions = np.concatenate([split.val_scores[:, 0], split.test_scores[:, 0]])
            np.testing.assert_array_equal(np.sort(positions), np.arange(120))
            np.testing.assert_array_equal(y[split.test_scores[:, 0].astype(int)], split.test_y)
            assert np.bincount(split.test_y).tolist() == [16, 16, 16]
            assert split.seed == seed

    def test_holds_out_the_samples_that_it_always_did(self):
        sizes = [168, 122, 66, 27, 14, 3, 1, 1, 2, 3]
        y = np.random.default_rng(42).permutation(np.repeat(np.arange(10), sizes))
        scores = np.arange(len(y))[:, None]
        split = hold_out(scores, y, tuple("abcdefghij"), 0.3, 3, absent="ignore")
        drawn = np.concatenate([split.val_scores, split.test_scores]).astype(np.int64)
        assert hashlib.sha256(drawn.tobytes()).hexdigest()[:16] == "33d3863df5caa134"

    def test_a_class_that_cannot_be_in_both_parts_is_refused_or_left_out(self):
        scores, y = samples()
        with pytest.raises(InputError, match="class 'lynx' has 1 samples; comparing needs 2 or more"):
            hold_out(scores[:81], y[:81], NAMES, 0.5, 0)
        assert hold_out(scores[:81], y[:81], NAMES, 0.5, 0, absent="ignore").test_y.max() == 1

    def test_counts_are_given_or_those_of_unbalanced_labels(self):
        x = np.zeros((4, 2))
        known = Split(x, np.array([0, 0, 0, 1]), x, np.array([0, 0, 0, 1]), ("a", "b"))
        assert known.counts.tolist() == [3, 1]
        with pytest.raises(InputError, match="training frequencies are unknown; give class_counts=…"):
            _ = Split(x, np.array([0, 0, 1, 1]), x, np.array([0, 0, 1, 1]), ("a", "b")).counts


class TestMethods:
    def test_unadjusted_is_the_model_itself(self, split):
        outcome = judge(split, "worst", METHODS["unadjusted"])
        expected = evaluate(split.test_y, split.test_scores.argmax(1), 3, ["worst", "balanced"])
        assert outcome.test == pytest.approx(expected)
        assert outcome.strategy.l.tolist() == [0, 0, 0]

    def test_logit_adjustment_takes_the_log_frequency_away(self, split):
        l = METHODS["la1"](split, "balanced").l
        np.testing.assert_allclose(l, np.log(COUNTS / 1000))

    @pytest.mark.parametrize("name", SETTINGS)
    def test_tuned_methods_are_those_of_the_estimator(self, split, name):
        outcome = judge(split, "balanced", METHODS[name])
        adjuster = LogitAdjuster("balanced", **SETTINGS[name], random_state=split.seed)
        adjuster.fit(split.val_scores, split.val_y, class_counts=COUNTS)
        np.testing.assert_allclose(outcome.strategy.l, adjuster.strategy_.l)
        np.testing.assert_allclose(outcome.strategy.delta, adjuster.strategy_.delta)
        assert outcome.validation == pytest.approx(adjuster.validation_.after["balanced"])
        expected = evaluate(split.test_y, adjuster.predict(split.test_scores), 3, ["balanced"])
        assert outcome.test == pytest.approx(expected)

    def test_settings_stand_above_what_the_split_says(self, split):
        given = tuned(method="la", objective="cvar:0.34", random_state=split.seed + 1)(split, "balanced")
        same, other = (METHODS["la"](split, objective) for objective in ("cvar:0.34", "balanced"))
        np.testing.assert_array_equal(given.l, same.l)
        assert (given.l != other.l).any()

    def test_probabilities_are_tuned_as_such(self, split):
        def proba(scores):
            return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

        given = proba(split.val_scores), split.val_y, proba(split.test_scores), split.test_y
        known = Split(*given, NAMES, COUNTS, kind="proba", seed=split.seed)
        one, other = (judge(s, "balanced", METHODS["la"]).test for s in (known, split))
        assert one == pytest.approx(other)
        with pytest.raises(InputError, match="multipliers act on logits only"):
            judge(known, "balanced", METHODS["cdt"])

    def test_objectives_may_speak_of_names_and_weights(self, split):
        known = Split(split.val_scores, split.val_y, split.test_scores, split.test_y, NAMES, weights=[0, 0, 1])
        outcome = judge(known, "err[lynx]", METHODS["unadjusted"], beside=("weighted",))
        assert outcome.test["err[lynx]"] == outcome.test["weighted"] == pytest.approx(outcome.class_errors[2])

    def test_those_that_need_frequencies_are_left_out_with_a_warning(self):
        y = samples()[1]
        with pytest.warns(UserWarning, match="la1, vs left out: training frequencies are unknown"):
            assert possible_methods(["unadjusted", "la1", "vs", "cap"], y, 3, None) == ["unadjusted", "cap"]
        assert possible_methods(["plain", "cap"], y, 3, None) == ["plain", "cap"]
        assert possible_methods(["la1", "vs"], y, 3, COUNTS) == ["la1", "vs"]
        assert possible_methods(["la1", "vs"], y[:100], 3, None) == ["la1", "vs"]


class TestRun:
    """Two methods whose errors are known by hand: always predicting class k errs on all classes but k."""

    METHODS = {"all 0": offset_of(0), "all 1": offset_of(1)}  # noqa: RUF012

    @staticmethod
    def source(seed, objective):
        weights = [seed, 1, 0] if objective == "weighted" else None
        return hold_out(*samples(4, seed), NAMES, 0.5, seed, weights=weights)

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_a_table_of_methods_objectives_and_splits(self, jobs):
        steps = []
        methods, goals = self.METHODS, ("weighted", "err[0]")
        found = study.run(self.source, [1, 3], methods, goals, jobs=jobs, on_step=lambda: steps.append(1))
        assert len(steps) == 4
        # weighted error of "all 0" is what class 1 weighs: 1/(1 + 1) for seed 1 and 1/(3 + 1) for seed 3
        assert {m: {o: v.tolist() for o, v in row.items()} for m, row in found.values.items()} == {
            "all 0": {"weighted": [0.5, 0.25], "err[0]": [0, 0]},
            "all 1": {"weighted": [0.5, 0.75], "err[0]": [1, 1]},
        }
        assert found.validation["all 1"]["weighted"].tolist() == [0.5, 0.75]
        np.testing.assert_allclose(found.balanced["all 1"]["weighted"], [2 / 3, 2 / 3])
        assert found.class_errors["all 0"]["err[0]"].tolist() == [[0, 1, 1], [0, 1, 1]]
        assert found.difference("all 1", "all 0", "weighted").tolist() == [0, 0.5]
        assert found.best("weighted") == {"all 0"}

    def test_a_method_sees_the_split_and_the_objective_in_its_own_words(self):
        seen = []

        def curious(split, objective):
            seen.append((split.seed, objective))
            return Strategy.of(3)

        goal = "0.5*balanced + 0.5*worst"
        found = study.run(self.source, [1, 3], {"curious": curious}, [goal])
        assert seen == [(1, goal), (3, goal)]
        assert found.values["curious"][goal].shape == (2,)

    def test_several_may_be_best(self):
        values = {"a": {"worst": np.array([0.1, 0.3])}, "b": {"worst": np.array([0.2, 0.2])}}
        assert Study(values, {}, {}, {}).best("worst") == {"a", "b"}


class TestSpread:
    @pytest.mark.parametrize("values", [[0.1, 0.2, 0.6], [-0.25, 0.5]])
    def test_is_that_of_the_standard_library(self, values):
        found = Spread.of(values)
        assert found.n == len(values)
        assert found.mean == pytest.approx(statistics.mean(values))
        assert found.deviation == pytest.approx(statistics.stdev(values))
        assert found.of_mean().deviation == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)))

    @pytest.mark.parametrize(
        ("values", "how", "text"),
        [
            ([0.611, 0.623], {}, "61.7 ± 0.8"),
            ([0.611, 0.623], {"signed": True}, "+61.7 ± 0.8"),
            ([-0.05, -0.05], {"signed": True}, "-5.0 ± 0.0"),
            ([30.0, 31.0], {"digits": 2, "scale": 1}, "30.50 ± 0.71"),
            ([0.5], {}, "50.0"),
        ],
    )
    def test_as_text(self, values, how, text):
        assert Spread.of(values).text(**how) == text

    def test_a_single_number_has_no_deviation(self):
        assert Spread.of([0.5]) == Spread.of([0.5]).of_mean() == Spread(0.5, None, 1)


def test_the_default_among_the_methods_is_the_estimator_s():
    from capri.posthoc import LogitAdjuster

    default = LogitAdjuster().get_params()
    assert all(default[name] == value for name, value in study.SETTINGS["cap-pooled"].items())

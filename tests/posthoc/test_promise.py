"""Constraints that are promised: what is asked, how it is tested, and what is said."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from capri import AbsentClassWarning, CAPClassifierCV, InputError, LogitAdjuster, Policy, evaluate
from capri.constraints import as_constraint
from capri.forms import ClassContext
from capri.posthoc import conformal_sets
from capri.posthoc.promise import (
    Promise,
    PromiseWarning,
    Proof,
    divided,
    learn_then_test,
    promised,
    requirements,
    stricter,
)

SHARES = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
NAMES = list("abcde")


def draw(n, seed, names=None):
    rng = np.random.default_rng(seed)
    y = rng.choice(5, n, p=SHARES)
    scores = rng.normal(size=(n, 5)) + 2 * np.eye(5)[y] + np.log(SHARES)
    return scores, y if names is None else np.array(names)[y]


def context(groups=None):
    return ClassContext.of([50, 25, 15, 7, 3], class_names=NAMES, groups=groups)


def needs(*texts, groups=None):
    return requirements([as_constraint(t) for t in texts], context(groups))


class TestRequirements:
    @pytest.mark.parametrize(
        ("text", "names", "floor"),
        [
            ("recall[e] >= 0.6", ["recall[e]"], 0.6),
            ("err[e] <= 0.3", ["recall[e]"], 0.7),
            ("recall[*] >= 0.5", [f"recall[{n}]" for n in NAMES], 0.5),
            ("worst <= 0.4", [f"recall[{n}]" for n in NAMES], 0.6),
            ("min_recall >= 0.4", [f"recall[{n}]" for n in NAMES], 0.4),
            ("precision[*] >= 0.5", [f"precision[{n}]" for n in NAMES], 0.5),
            ("f1[b] >= 0.5", ["f1[b]"], 0.5),
            ("plain <= 0.1", ["accuracy"], 0.9),
            ("precision[group:rare] >= 0.5", ["precision[group:rare]"], 0.5),
        ],
    )
    def test_what_constraints_come_down_to(self, text, names, floor):
        found = needs(text, groups=["common", "common", "common", "rare", "rare"])
        assert [part.name for part in found] == names
        assert [part.floor for part in found] == [pytest.approx(floor)] * len(names)

    @pytest.mark.parametrize("quality", ["recall", "precision", "f1", "plain"])
    def test_rates_of_hits_are_the_quality(self, quality):
        scores, y = draw(3000, 0)
        decided = scores.argmax(axis=1)
        text = "plain <= 0.5" if quality == "plain" else f"{quality}[c] >= 0.5"
        [part] = needs(text)
        hits, trials = part.count(y, decided)
        objective = "plain" if quality == "plain" else f"{quality}[c]"
        [error] = evaluate(y, decided, 5, [objective], class_names=NAMES).values()
        assert part.of_rate(hits / trials) == pytest.approx(1 - error)
        assert part.of_rate(part.rate) == pytest.approx(part.floor)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("plain <= baseline", "needs a number, not the baseline"),
            ("balanced <= 0.2", "cannot be promised: there are exact tests for"),
            ("macro_f1 >= 0.5", "cannot be promised"),
            ("f1[group:rare] >= 0.5", "the F1 of a group has no exact test"),
            ("recall[lynx] >= 0.5", "no such class with samples"),
            ("recall[group:small] >= 0.5", "no such group with samples; there are common, rare"),
        ],
    )
    def test_what_cannot_be_promised_is_refused(self, text, message):
        with pytest.raises(InputError, match=message.replace("[", r"\[")):
            needs(text, groups=["common", "common", "common", "rare", "rare"])

    def test_p_values_are_exact(self):
        [part] = needs("recall[e] >= 0.6")
        chances = binom.pmf(np.arange(11), 10, 0.6)
        assert part.p_value(8, 10) == pytest.approx(chances[8:].sum())
        assert part.p_value(0, 0) == 1


class TestTheTest:
    def test_the_first_failure_ends_it(self):
        needed, y = needs("recall[a] >= 0.5"), np.zeros(60, int)
        good, bad = np.zeros(60, int), np.ones(60, int)
        tuning, testing = np.arange(30), np.arange(30, 60)
        later_bad = np.where(np.arange(60) < 30, good, bad)
        hopeful = [good, later_bad, np.where(np.arange(60) < 2, 1, 0)]
        found = learn_then_test(needed, y, hopeful, [3.0, 1.0, 2.0], tuning, testing, 0.95)
        assert (found.best, found.held, found.tried) == (0, True, 2)  # the third is never tried
        none = learn_then_test(needed, y, [bad], [0.0], tuning, testing, 0.95)
        assert (none.best, none.held) == (0, False)

    def test_all_floors_of_a_policy_must_be_proved(self):
        needed, y = needs("recall[a] >= 0.5", "recall[b] >= 0.5"), np.repeat([0, 1], 40)
        only_one = np.zeros(80, int)
        found = learn_then_test(needed, y, [only_one], [0.0], np.arange(0, 80, 2), np.arange(1, 80, 2), 0.95)
        assert not found.held

    def test_a_path_is_proved_wrongly_as_seldom_as_was_said(self):
        """Policies whose floors are all just broken: whichever is proved, is proved wrongly."""
        needed, rng, wrong = needs("recall[a] >= 0.5"), np.random.default_rng(0), 0
        y = np.zeros(200, int)
        for _ in range(1000):
            right = rng.random((6, 200)) < 0.5
            decided = list(np.where(right, 0, 1))
            wrong += learn_then_test(needed, y, decided, [0.0] * 6, np.arange(100), np.arange(100, 200), 0.9).held
        assert wrong <= binom.ppf(0.999, 1000, 0.1)
        assert wrong > 40  # and not absurdly seldom

    def test_recall_divides_within_classes_and_precision_at_random(self):
        y = np.repeat(np.arange(5), [50, 25, 15, 7, 3])
        tuning, testing = divided(needs("recall[*] >= 0.5"), y, 5, seed=0)
        assert (abs(np.bincount(y[tuning], minlength=5) - np.bincount(y[testing], minlength=5)) <= 1).all()
        tuning, testing = divided(needs("precision[a] >= 0.5"), y, 5, seed=0)
        assert sorted([*tuning, *testing]) == list(range(100))

    def test_the_path_comes_down_to_what_was_asked(self):
        y = np.repeat(np.arange(5), 40)
        for text in ("recall[*] >= 0.5", "worst <= 0.4", "precision[b] >= 0.3"):
            path = stricter([as_constraint(text)], needs(text), y)
            floors = [min(c.bound if c.floor else 1 - c.bound for c in level) for level in path]
            assert floors == sorted(floors, reverse=True)
            asked = as_constraint(text)
            assert floors[-1] == pytest.approx(asked.bound if asked.floor else 1 - asked.bound)


class TestFit:
    def test_a_promise_is_kept_and_said(self, tmp_path):
        scores, y = draw(2000, 0, NAMES)
        adjuster = LogitAdjuster("plain", constraints=["recall[*] >= 0.4"], guarantee=0.95, bootstrap=0)
        adjuster.fit(scores, y)
        assert adjuster.promise_.held
        assert str(adjuster.promise_).startswith("With 95 % confidence, recall[*] >= 0.4 on future samples")
        S, Y = draw(50_000, 1, NAMES)
        assert evaluate(Y, adjuster.predict(S), NAMES, ["recall[*]"])["recall[*]"] < 0.6
        adjuster.policy_.save(tmp_path / "policy.json")
        policy = Policy.load(tmp_path / "policy.json")
        assert policy.constraints == ("recall[*] >= 0.4",)
        assert policy.data["promise"]["held"] is True
        assert policy.data["n_samples"] == len(y) - adjuster.promise_.samples
        assert policy.validation.limits["recall[*] >= 0.4"][1] == pytest.approx(0.6)

    @pytest.mark.parametrize(("share", "said"), [(0.9, "90"), (0.9999999, "99.99999"), (0.575, "57.5")])
    def test_confidence_is_not_rounded_up(self, share, said):
        promise = Promise(share, True, 10, 1, ("recall[*] >= 0.4",), ("recall[*] >= 0.4",), ())
        assert promise.headline.startswith(f"With {said} % confidence, recall[*] >= 0.4")

    def test_what_cannot_be_promised_says_what_can_and_how_many_samples_would_do(self):
        scores, y = draw(600, 0, NAMES)
        adjuster = LogitAdjuster("plain", constraints=["recall[*] >= 0.6"], guarantee=0.95, bootstrap=0)
        with pytest.warns(PromiseWarning, match=r"Not promised: recall\[\*\] >= 0\.6"):
            adjuster.fit(scores, y)
        promise = adjuster.promise_
        assert not promise.held
        floor = as_constraint(promise.nearest[0]).bound
        assert 0 < floor < 0.6
        assert floor <= min(t.lower for t in promise.tests) + 1e-9
        asked = [t for t in promise.tests if not t.proved and t.more]
        assert asked
        for test in asked:  # so many samples would prove it, and hardly fewer
            enough = round(test.trials * (1 + test.more / np.count_nonzero(y == test.of)))
            assert binom.sf(np.floor(enough * test.value) - 1, enough, test.floor) < 0.07
        assert adjuster.policy_.constraints == promise.nearest
        assert adjuster.validation_.feasible  # of what is promised

    def test_precision_is_about_the_samples_shares(self):
        scores, y = draw(1000, 0)
        how = {"constraints": ["precision[0] >= 0.5"], "guarantee": 0.9, "bootstrap": 0}
        with pytest.raises(InputError, match="those of the world are said to be others"):
            LogitAdjuster(**how).fit(scores, y, class_counts=[1, 1, 1, 1, 1])
        adjuster = LogitAdjuster(**how, target_shares="validation").fit(scores, y, class_counts=[1, 1, 1, 1, 1])
        assert adjuster.promise_.held
        LogitAdjuster(constraints=["recall[0] >= 0.5"], guarantee=0.9, bootstrap=0).fit(
            scores, y, class_counts=[1, 1, 1, 1, 1]
        )

    def test_the_recall_of_a_group_is_about_the_shares_within_it(self):
        """Most samples of the group were of an easy class; in the world they are of a hard one."""
        rng = np.random.default_rng(0)
        y = rng.choice(3, 600, p=[0.4, 0.5, 0.1])
        scores = rng.normal(size=(600, 3)) + np.array([3, 3, 1])[y][:, None] * np.eye(3)[y]
        how = {"constraints": ["recall[group:g] >= 0.6"], "guarantee": 0.95, "bootstrap": 0, "groups": list("fgg")}
        with pytest.raises(InputError, match="or ask for the recall of classes"):
            LogitAdjuster("plain", **how, target_shares=[0.4, 0.1, 0.5]).fit(scores, y)
        of_group = np.bincount(y) * [3, 1, 1]  # other shares than here, but not within the group
        assert LogitAdjuster("plain", **how, target_shares=of_group).fit(scores, y).promise_.held

    @pytest.mark.parametrize(
        ("settings", "more", "message"),
        [
            ({}, {}, "a promise about constraints, and there are none"),
            ({"constraints": ["recall[0] >= 0.5"]}, {"sample_weight": np.ones(300)}, "each sample counting once"),
            ({"constraints": ["recall[0] >= 0.5"], "guarantee": 1.0}, {}, "guarantee"),
        ],
    )
    def test_what_stands_in_the_way_is_refused(self, settings, more, message):
        scores, y = draw(300, 0)
        with pytest.raises(ValueError, match=message):
            LogitAdjuster(**{"guarantee": 0.95} | settings).fit(scores, y, **more)

    def test_all_samples_took_part(self):
        """Neither those that tuned nor those that tested are a test of the policy any more."""
        scores, y = draw(1000, 0)
        how = {"constraints": ["recall[0] >= 0.4"], "guarantee": 0.9, "bootstrap": 0}
        adjuster = LogitAdjuster("plain", **how).fit(scores, y)
        with pytest.raises(InputError, match="these samples tuned the policy"):
            adjuster.report(scores, y)
        with pytest.raises(InputError, match="these samples tuned the policy"):
            conformal_sets(adjuster.policy_, scores, y)

    def test_long_names_and_numbers_are_said_in_full(self):
        scores, y = draw(1500, 0)
        how = {"groups": list("xxxyy"), "guarantee": 0.9, "bootstrap": 0}
        texts = ["recall[group:x] >= 0.4", "precision[group:x] >= 0.5", f"worst <= {1 - 1 / 9}"]
        adjuster = LogitAdjuster("plain", constraints=texts, **how).fit(scores, y)
        assert all(str(as_constraint(text)) in str(adjuster.promise_) for text in texts)

    def test_a_class_of_the_name_of_all(self):
        scores, y = draw(1200, 0)
        names = np.array(["*", "b", " c", "d+e", "e"])
        how = {"constraints": ["worst <= 0.6"], "guarantee": 0.9, "bootstrap": 0, "classes": names.tolist()}
        adjuster = LogitAdjuster("plain", **how).fit(scores, names[y])
        assert [test.name for test in adjuster.promise_.tests] == [f"recall[{name}]" for name in names]
        assert adjuster.promise_.held

    def test_a_class_with_one_sample_is_not_promised(self):
        scores, y = draw(800, 0)
        keep = np.append(np.flatnonzero(y != 4), np.flatnonzero(y == 4)[:1])
        how = {"constraints": ["recall[*] >= 0.1"], "guarantee": 0.9, "bootstrap": 0}
        with pytest.warns(PromiseWarning, match="Nothing can be promised"):
            adjuster = LogitAdjuster("plain", **how).fit(scores[keep], y[keep])
        assert not adjuster.promise_.held

    def test_too_few_samples_are_told_from_a_rate_that_is_too_low(self):
        needed, asked = needs("recall[*] >= 0.5"), [as_constraint("recall[*] >= 0.5")]
        y = np.repeat([0, 1, 2, 3], [10, 3, 10, 10])
        decisions = np.where((y == 1) | (y == 2), 0, y)
        seen = np.array([20, 6, 20, 20, 2])
        said = str(promised(needed, asked, Proof(0, False, 1, 0.95, y, decisions), seen, NAMES))
        assert "recall[b] is 0.0 % in 3 of them; it takes 5 of them at least." in said  # 0.5 ** 5 < 0.05 < 0.5 ** 4
        assert "recall[c] is 0.0 % in 10 of them; that is not above 0.5, so no number of samples would do." in said
        assert "recall[e] is unknown; it takes 5 of them at least." in said

    def test_a_promise_for_every_class_names_those_without_samples(self):
        scores, y = draw(800, 0, NAMES)
        scores, y = scores[y != "e"], y[y != "e"]
        how = {"guarantee": 0.9, "bootstrap": 0, "classes": NAMES, "absent": "ignore"}
        for texts, silent in ((["recall[*] >= 0.1"], ("e",)), (["worst <= 0.9"], ("e",)), (["plain <= 0.9"], ())):
            with pytest.warns(AbsentClassWarning):
                promise = LogitAdjuster("plain", constraints=texts, **how).fit(scores, y).promise_
            assert promise.held
            assert promise.silent == silent
            assert ("none of which is of e, so nothing is said of that." in str(promise)) == bool(silent)

    def test_columns_of_unlabelled_scores_are_found_by_name(self):
        scores, y = draw(600, 0)
        named = pd.DataFrame(scores, columns=[f"s{k}" for k in range(5)])
        how = {"constraints": ["recall[0] >= 0.4"], "guarantee": 0.9, "bootstrap": 0, "classes": range(5)}
        one = LogitAdjuster(**how).fit(named, y, X_unlabelled=named)
        other = LogitAdjuster(**how).fit(named, y, X_unlabelled=named[named.columns[::-1]])
        np.testing.assert_array_equal(one.strategy_.l, other.strategy_.l)

    def test_other_shares_take_the_promise_back(self):
        scores, y = draw(1000, 0)
        how = {"constraints": ["recall[0] >= 0.4"], "guarantee": 0.9, "bootstrap": 0}
        policy = LogitAdjuster("plain", **how).fit(scores, y).policy_
        assert "promise" in policy.data
        other = policy.for_shares(SHARES[::-1], old=SHARES)
        assert "promise" not in other.data

    def test_a_classifier_promises_of_the_model_that_was_tested(self):
        X, y = draw(1500, 0)
        how = {"constraints": ["recall[0] >= 0.5"], "guarantee": 0.95, "bootstrap": 0}
        with pytest.raises(InputError, match="refit=True trains another one"):
            CAPClassifierCV(LogisticRegression(), "balanced", **how).fit(X, y)
        model = CAPClassifierCV(LogisticRegression(), "balanced", cv=0.4, refit=False, **how).fit(X, y)
        assert model.adjuster_.promise_.held

    def test_the_same_again(self):
        scores, y = draw(800, 0)
        how = {"constraints": ["recall[*] >= 0.3"], "guarantee": 0.9, "bootstrap": 10}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            first, second = (LogitAdjuster("plain", **how).fit(scores, y) for _ in range(2))
        assert first.policy_.digest == second.policy_.digest
        assert json.loads(first.policy_.to_json())["policy"]["data"]["promise"]["confidence"] == 0.9


@pytest.mark.slow
def test_promises_are_broken_as_seldom_as_was_said():
    """On new samples each time: at most 5 % of 300, with room for chance."""
    S, Y = draw(100_000, 10**6)
    broken = 0
    for seed in range(300):
        scores, y = draw(600, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            how = {"constraints": ["recall[*] >= 0.6"], "guarantee": 0.95, "bootstrap": 0, "classes": range(5)}
            adjuster = LogitAdjuster("plain", **how).fit(scores, y)
        floor = as_constraint(adjuster.promise_.nearest[0]).bound
        broken += evaluate(Y, adjuster.predict(S), 5, ["recall[*]"])["recall[*]"] > 1 - floor
    assert broken <= binom.ppf(0.999, 300, 0.05)

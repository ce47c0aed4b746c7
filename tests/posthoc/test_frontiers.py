"""The frontier against brute force, its policies against `evaluate`, and held-out figures against their samples."""

import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from capri import InputError, LogitAdjuster, Policy, evaluate, frontier
from capri._checks import AbsentClassWarning
from capri.objectives import confusion_objective
from capri.posthoc import Frontier, heldout
from capri.posthoc.frontiers import CHOSEN, LA, UNADJUSTED

FREE = {"method": "plain", "borrow": 0, "bootstrap": 0, "constraints": ()}  # each class by itself, by labels alone
PAIRS = [
    ("worst", "plain"),
    ("sdev", "plain"),
    ("balanced", "err[0]"),
    ("macro_f1", "worst"),
    ("plain", "precision[1]"),
]


def curve_of(tail, of, against="plain", **keywords):
    return frontier(tail.scores, tail.y, of, against, class_counts=tail.counts, **keywords)


def figures(tail, predictions, *objectives):
    """By `evaluate` alone, where classes are as frequent as they were in training."""
    known = {"class_counts": tail.counts, "target_shares": "train"}
    found = evaluate(tail.y, predictions, tail.n_classes, list(objectives), **known)
    return [found[name] for name in objectives]


def grid(tail, of, against, steps=33, reach=6.0):
    """(value, price) of every policy of a grid of offsets, the first class's being 0."""
    offsets = itertools.product(np.linspace(-reach, reach, steps), repeat=tail.n_classes - 1)
    decisions = {tuple((tail.scores - np.array([0.0, *l])).argmax(axis=1)) for l in offsets}
    return np.array([figures(tail, np.array(decided), of, against) for decided in sorted(decisions)])


def best_within(values, prices, bound):
    return values[prices <= bound + 1e-9].min()


def assert_none_is_better(found, every, bounds):
    """Of all policies (value, price) that keep a bound, none is better than the curve's."""
    for bound in bounds:
        assert best_within(found.values, found.prices, bound) <= best_within(*every.T, bound) + 1e-9


class TestAgainstBruteForce:
    @pytest.mark.parametrize("pair", PAIRS)
    def test_no_policy_of_a_fine_grid_is_better_for_its_price(self, tail_of, pair):
        tail = tail_of(n_classes=3, per_class=12, signal=1.5, imbalance=10)
        every = grid(tail, *pair)
        bounds = np.quantile(every[:, 1], [0, 0.1, 0.2, 0.4, 0.6, 1.0])
        found = curve_of(tail, *pair, points=bounds, **FREE)
        assert_none_is_better(found, every, bounds)

    @pytest.mark.parametrize("seed", range(3))
    def test_four_classes(self, tail_of, seed):
        tail = tail_of(n_classes=4, per_class=8, signal=1.5, imbalance=10, seed=seed)
        every = grid(tail, "worst", "plain", steps=11)
        bounds = np.quantile(every[:, 1], [0, 0.05, 0.2, 0.5, 1.0])
        assert_none_is_better(curve_of(tail, "worst", points=bounds, **FREE), every, bounds)

    @pytest.mark.parametrize(
        ("pair", "votes"), [(("precision[2]", "balanced"), False), (("quantile:0.4", "balanced"), True)]
    )
    def test_what_is_as_good_is_had_at_its_least_price(self, tail_of, pair, votes):
        """Objectives that stay the same over wide ranges, and scores that tie."""
        tail = tail_of(n_classes=3, per_class=12, signal=1.5, imbalance=10, seed=1)
        tail = replace(tail, scores=tail.scores.round()) if votes else tail
        every = grid(tail, *pair, steps=24)  # no whole numbers, which would tie with the scores
        found = curve_of(tail, *pair, points=np.quantile(every[:, 1], [0, 0.05, 0.15, 0.3, 0.6, 1.0]), **FREE)
        for value, price in zip(found.values, found.prices, strict=True):
            assert price <= every[every[:, 0] <= value + 1e-9, 1].min(initial=np.inf) + 1e-9

    @pytest.mark.parametrize("pair", PAIRS)
    def test_two_classes_are_one_line_and_every_one_of_its_plateaus_is_known(self, tail_of, pair):
        tail = tail_of(n_classes=2, per_class=25, signal=1.0)
        gaps = np.sort(tail.scores[:, 1] - tail.scores[:, 0])
        between = [gaps[0] - 1, *((gaps[1:] + gaps[:-1]) / 2), gaps[-1] + 1]
        every = np.array([figures(tail, (tail.scores - [0.0, t]).argmax(axis=1), *pair) for t in between])
        bounds = np.unique(every[:, 1].round(9))[::4]
        found = curve_of(tail, *pair, points=bounds, **FREE)
        best = [best_within(*every.T, b) for b in bounds]
        reached = [best_within(found.values, found.prices, b) for b in bounds]
        np.testing.assert_allclose(reached, best, atol=1e-9)

    def test_mixes_of_both_lie_on_or_above_the_frontier(self, tail):
        """The paper's λ: on one line of offsets, no optimum of λ·plain + (1−λ)·sdev is below the curve."""
        how = {"method": "la", "borrow": 0, "bootstrap": 0, "constraints": ()}
        mixed = [tail.fitted(LogitAdjuster(f"mix:{x}", **how)).validation_.after for x in np.linspace(0, 1, 11)]
        found = curve_of(tail, "sdev", points=[m["plain"] for m in mixed], **how)
        for mix in mixed:
            assert best_within(found.values, found.prices, mix["plain"]) <= mix["sdev"] + 1e-9
        assert len({m["sdev"] for m in mixed}) > 2  # so that there is something to compare


class TestCurve:
    @pytest.mark.parametrize("method", ["cap", "plain", "la", "cdt", "vs"])
    @pytest.mark.parametrize("borrow", [0, 20])
    def test_it_is_monotone_and_its_policies_have_its_numbers(self, tail, method, borrow):
        found = curve_of(tail, "cvar:0.4", method=method, borrow=borrow, bootstrap=0, points=7)
        assert (np.diff(found.prices) >= -1e-9).all()
        assert (np.diff(found.values) <= 1e-9).all()
        if borrow == 0 or method in ("cdt", "vs"):  # then the labels are what tuning goes by
            assert (np.diff(found.prices) > 0).all()
            assert (np.diff(found.values) < 0).all()
        assert len(found) == len(found.points) == len(found.policies) == len(found.bounds) > 1
        for i, (point, policy) in enumerate(zip(found.points, found.policies, strict=True)):
            assert found.policy(i) is policy
            told = figures(tail, policy.predict(tail.scores), "cvar:0.4", "plain")
            np.testing.assert_allclose(told, [point.value, point.price], atol=1e-12)
            assert (policy.validation.after["cvar:0.4"], policy.validation.after["plain"]) == pytest.approx(told)

    def test_bounds_hold_where_labels_are_what_tuning_goes_by(self, tail):
        found = curve_of(tail, "worst", method="cap", pooling=None, borrow=0, bootstrap=0)
        assert (found.prices <= np.array(found.bounds) + 1e-9).all()
        assert found.bounds[-1] == np.inf
        for bound, policy in zip(found.bounds, found.policies, strict=True):
            assert policy.constraints == (() if bound == np.inf else (f"plain <= {bound:g}",))

    def test_landmarks_are_what_they_say(self, tail):
        adjuster = LogitAdjuster("balanced", bootstrap=0)
        found = curve_of(tail, "worst", adjuster=adjuster)
        chosen = tail.fitted(adjuster).validation_
        expected = {
            UNADJUSTED: figures(tail, tail.scores.argmax(axis=1), "worst", "plain"),
            LA: figures(tail, (tail.scores - np.log(tail.counts)).argmax(axis=1), "worst", "plain"),
            CHOSEN: [chosen.after["worst"], chosen.after["plain"]],
        }
        told = {name: [point.value, point.price] for name, point in found.landmarks.items()}
        assert told == {name: pytest.approx(pair) for name, pair in expected.items()}

    def test_nothing_that_is_known_is_better_and_cheaper(self, tail):
        found = curve_of(tail, "worst", "sdev", borrow=0, bootstrap=0)
        for mark in found.landmarks.values():
            assert not ((mark.value < found.values - 1e-9) & (mark.price < found.prices - 1e-9)).any()

    def test_other_constraints_hold_at_every_point(self, tail):
        def first_errors(curve):
            return [figures(tail, policy.predict(tail.scores), "err[0]")[0] for policy in curve.policies]

        free = curve_of(tail, "cvar:0.4", borrow=0, bootstrap=0)
        limit = (min(first_errors(free)) + max(first_errors(free))) / 2
        kept = curve_of(tail, "cvar:0.4", constraints=[("err[0]", limit)], borrow=0, bootstrap=0)
        assert max(first_errors(free)) > limit >= max(first_errors(kept)) - 1e-9
        assert len(kept) > 1
        assert all(policy.constraints[0].startswith("err[0] <= ") for policy in kept.policies)

    def test_a_constraint_on_the_price_gives_way(self, tail):
        adjuster = LogitAdjuster("worst", constraints=["plain <= 0.1"], borrow=0, bootstrap=0)
        found = curve_of(tail, None, adjuster=adjuster)
        assert found.of == "worst"
        assert found.landmarks[CHOSEN].price <= 0.1 < found.prices[-1]
        assert found.landmarks[CHOSEN].value > found.values[-1]
        assert found.policies[-1].constraints == ()

    def test_ties_and_coarse_scores(self):
        rng = np.random.default_rng(0)
        y = np.repeat([0, 1, 2], 40)
        votes = rng.multinomial(5, [0.5, 0.3, 0.2], size=120) + 2.0 * np.eye(3)[y]
        found = frontier(votes, y, "worst", "err[0]", class_counts=[90, 30, 10], **FREE)
        for point, policy in zip(found.points, found.policies, strict=True):
            predictions = policy.predict(votes)
            assert evaluate(y, predictions, 3, ["worst"])["worst"] == pytest.approx(point.value)
            assert evaluate(y, predictions, 3, ["err[0]"])["err[0]"] == pytest.approx(point.price)

    def test_a_price_that_is_no_price_leaves_one_point(self, tail_of):
        tail = tail_of(n_classes=2)  # the worst class and its error fall together until they meet
        found = curve_of(tail, "balanced", lambda errors: float(np.mean(errors)), **FREE)
        assert len(found) == 1
        assert found.bounds == (np.inf,)

    @pytest.mark.parametrize("borrow", [0, 20])
    def test_a_class_without_samples(self, tail, borrow):
        here = tail.y != 2
        with pytest.warns(UserWarning, match="'2'"):
            found = frontier(
                tail.scores[here],
                tail.y[here],
                "worst",
                class_counts=tail.counts,
                absent="ignore",
                borrow=borrow,
                points=5,
            )
        assert len(found) > 1
        assert np.isfinite(found.held_values).all()
        assert found.policy(0).strategy.n_classes == 5
        assert found.policy(0).validation.errors_after[2] is None

    def test_attributes_classes_and_probabilities(self, tail):
        names = list("abcde")
        odds = np.exp(tail.scores)
        proba = odds / odds.sum(axis=1, keepdims=True)
        known = {"class_attributes": {"size": [1.0, 5.0, 2.0, 4.0, 3.0]}, "class_counts": tail.counts}
        found = frontier(
            proba,
            np.array(names)[tail.y],
            "cvar:0.4",
            scores="proba",
            attributes=["freq", "size"],
            classes=names,
            **known,
        )
        assert set(found.policy(0).attributes) == {"freq", "size"}
        assert set(found.policy(-1).predict(proba)) <= set(names)

    def test_functions_and_confusions(self, tail):
        costs = confusion_objective(lambda m: float(m[1:, 0].sum() / m.sum()), name="to common")
        found = curve_of(tail, costs, lambda errors: float(errors.max()), method="la", bootstrap=0, points=4)
        assert found.of == "to common"
        assert (np.diff(found.values) <= 0).all()


class TestHeldOut:
    def test_given_samples_are_judged_as_evaluate_does(self, tail, tail_of):
        others = tail_of(seed=1)
        found = curve_of(tail, "cvar:0.4", held_out=(others.scores, others.y), points=5)
        assert found.held_out == "held-out samples"
        for point, policy in zip(found.points, found.policies, strict=True):
            told = figures(others, policy.predict(others.scores), "cvar:0.4", "plain")
            np.testing.assert_allclose(told, [point.held_value, point.held_price])
            for level, (low, high) in (
                (point.held_value, point.value_interval),
                (point.held_price, point.price_interval),
            ):
                assert low - 0.1 < level < high + 0.1  # the interval also hears the model
        mark = found.landmarks[UNADJUSTED]
        told = figures(others, others.scores.argmax(axis=1), "cvar:0.4", "plain")
        assert [mark.held_value, mark.held_price] == pytest.approx(told)

    def test_given_samples_need_no_draws(self, tail):
        found = curve_of(tail, "cvar:0.4", held_out=(tail.scores[::-1], tail.y[::-1]), points=3, bootstrap=0)
        np.testing.assert_allclose(found.held_values, found.values)
        assert found.points[0].value_interval is None

    def test_the_samples_that_tune_are_no_test(self, tail):
        with pytest.raises(InputError, match="held_out holds the samples that tune"):
            curve_of(tail, "cvar:0.4", held_out=(tail.scores.copy(), tail.y.copy()), points=3, bootstrap=0)

    def test_a_class_without_given_samples_is_refused_unless_told(self, tail, tail_of):
        others = tail_of(seed=1)
        here = others.y < 4
        some = {"held_out": (others.scores[here], others.y[here]), "points": 3, "bootstrap": 0}
        with pytest.raises(InputError, match=r"class '4' .* has no sample here"):
            curve_of(tail, "cvar:0.4", **some)
        with pytest.warns(AbsentClassWarning, match="left out"):
            assert curve_of(tail, "cvar:0.4", absent="ignore", **some).held_out == "held-out samples"

    def test_folds_are_decided_by_curves_that_have_not_seen_them(self, tail, monkeypatch):
        """Every curve gets its samples; those that it then decides are others, and all are decided once."""
        judged, real = [], heldout.decided

        def spied(task, found, there, rows):
            judged.append((task.problem.scores, there.scores, rows, found))
            return real(task, found, there, rows)

        monkeypatch.setattr(heldout, "decided", spied)
        found = curve_of(tail, "cvar:0.4", points=4)
        assert found.held_out == "out of fold"
        assert sorted(np.concatenate([rows for _, _, rows, _ in judged]).tolist()) == list(range(len(tail.y)))
        for tuned_on, decided_on, _, by_name in judged:
            assert not {row.tobytes() for row in tuned_on} & {row.tobytes() for row in decided_on}
            assert list(by_name) == [UNADJUSTED, LA, CHOSEN, *map(str, found.bounds)]

    def test_out_of_fold_an_overfitted_curve_looks_worse_than_as_tuned(self, tail_of):
        tail = tail_of(n_classes=8, per_class=10, signal=1.0, seed=2)
        found = curve_of(tail, "worst", method="plain", borrow=0, points=6)
        assert (found.held_values > found.values).mean() > 0.6
        assert found.held_values.mean() > found.values.mean() + 0.05

    def test_of_the_answer_itself_it_is_what_fit_says(self, tail):
        adjuster = tail.fitted(LogitAdjuster("cvar:0.4"))
        found = curve_of(tail, None, adjuster=adjuster, points=3)
        chosen = found.landmarks[CHOSEN]
        gain = found.landmarks[UNADJUSTED].held_value - chosen.held_value
        assert gain == pytest.approx(adjuster.validation_.improvement, abs=0.02)  # by fewer draws
        assert found.policy(-1).validation.improvement == pytest.approx(
            found.landmarks[UNADJUSTED].held_value - found.points[-1].held_value
        )

    def test_without_draws_there_are_none(self, tail):
        found = curve_of(tail, "cvar:0.4", bootstrap=0, points=3)
        assert found.held_out is None
        assert np.isnan(found.held_values).all()
        assert found.policy(0).validation.improvement is None

    def test_progress(self, tail):
        calls = []
        curve_of(tail, "cvar:0.4", points=3, on_progress=lambda: calls.append(1))
        assert len(calls) == 1 + heldout.FOLDS


class TestBounds:
    def test_bounds_that_nothing_meets_are_left_out_with_a_warning(self, tail):
        with pytest.warns(UserWarning, match=r"keeps plain to 0.01; these points are left out"):
            found = curve_of(tail, "worst", points=[0.01, 0.5], bootstrap=0)
        assert found.bounds == (0.5,)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"points": [0.01]}, "no adjustment found meets plain <= 0.01"),
            ({"constraints": ["sdev <= 0", "err[0] <= 0"]}, "no adjustment found meets sdev <= 0, err"),
            ({"points": 1}, "points is 1"),
            ({"points": 10**9}, "points is 1000000000; a frontier has at most 1,000"),
            ({"points": 10**30}, "a frontier has at most 1,000"),
            ({"points": True}, "points is True"),
            ({"points": []}, "points is"),
            ({"points": [0.1, np.nan]}, "points is"),
            ({"points": "many"}, "points is 'many'"),
            ({"points": [[0.1, 0.2], [0.3]]}, "points is"),
            ({"against": "worst"}, "both 'worst'"),
            ({"against": "worst_group"}, "groups"),
            ({"held_out": [[0.0] * 5]}, "held_out is"),
            ({"held_out": (np.zeros((2, 4)), [0, 1])}, r"shape \(2, 4\)"),
            ({"method": "best"}, "method"),
            ({"taste": 1}, "taste"),
            ({"adjuster": "mine"}, "adjuster is 'mine'; give a LogitAdjuster"),
        ],
    )
    def test_what_cannot_be_is_refused(self, tail, wrong, message):
        with pytest.raises((InputError, ValueError), match=message):
            curve_of(tail, "worst", **{"bootstrap": 0, **wrong})

    def test_the_adjuster_is_left_as_it_was(self, tail):
        adjuster = LogitAdjuster("balanced")
        before = adjuster.get_params()
        curve_of(tail, "worst", adjuster=adjuster, method="la", bootstrap=0, points=3)
        assert adjuster.get_params() == before
        assert not hasattr(adjuster, "policy_")


@pytest.fixture(scope="module")
def found(tail_of):
    return curve_of(tail_of(), "cvar:0.4", points=5)


class TestFrontier:
    def test_nearest(self, found):
        for i, price in enumerate(found.prices):
            assert found.prices[found.nearest(price)] == pytest.approx(price)
            assert found.nearest(price) <= i
        assert found.nearest(-1.0) == 0
        assert found.prices[found.nearest(2.0)] == found.prices[-1]

    def test_it_returns_from_its_file_as_it_was(self, found, tmp_path):
        found.save(tmp_path / "frontier.json")
        again = Frontier.load(tmp_path / "frontier.json")
        assert (again.of, again.against, again.held_out) == (found.of, found.against, found.held_out)
        assert (again.points, again.bounds) == (found.points, found.bounds)
        assert dict(again.landmarks) == dict(found.landmarks)
        assert [p.digest for p in again.policies] == [p.digest for p in found.policies]

    def test_its_file_is_json_for_everyone(self, found, tmp_path):
        found.save(tmp_path / "frontier.json")
        text = (tmp_path / "frontier.json").read_text(encoding="utf-8")

        def refuse(name):
            raise AssertionError(name)

        content = json.loads(text, parse_constant=refuse)
        assert content == found.to_dict()
        assert content["points"][-1]["bound"] is None

    def test_a_saved_policy_keeps_what_its_point_says(self, found, tmp_path):
        found.policy(1).save(tmp_path / "policy.json")
        kept = Policy.load(tmp_path / "policy.json").data["frontier"]
        assert kept["against"] == "plain"
        assert (kept["value"], kept["held_price"]) == (found.points[1].value, found.points[1].held_price)

    def test_it_shows_itself(self, found):
        lines = repr(found).splitlines()
        assert lines[0] == "Frontier of cvar:0.4 against plain, in %: as tuned   out of fold"
        assert len(lines) == 1 + len(found.landmarks) + len(found)
        assert f"{100 * found.values[0]:.1f} for" in lines[1 + len(found.landmarks)]

    def test_there_is_no_point_beyond_its_ends(self, found):
        with pytest.raises(InputError, match="i is 99"):
            found.policy(99)

    @pytest.mark.parametrize(
        ("text", "message"),
        [("{", "not complete JSON"), ("[]", "not a frontier"), ('{"schema": 1}', "does not make a frontier")],
    )
    def test_other_files_are_refused(self, tmp_path, text, message):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(InputError, match=message):
            Frontier.load(tmp_path / "other.json")

    @pytest.mark.parametrize(
        ("where", "value"),
        [
            ("value", 10**400), ("value", None), ("price", "1"), ("price", True), ("held_value", [1, 2]),
            ("value_interval", [0.1]), ("value_interval", []), ("value_interval", [1, 2, 3]), ("value_interval", 3),
            ("price_interval", ["1", "2"]), ("price_interval", {"a": 1, "b": 2}), ("bound", [1]), ("bound", 10**400),
            ("policy", None), ("policy", []),
        ],
    )  # fmt: skip
    def test_figures_that_are_none_are_refused(self, found, tmp_path, where, value):
        content = found.to_dict()
        content["points"][0][where] = value
        (tmp_path / "forged.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"forged\.json"):
            Frontier.load(tmp_path / "forged.json")

    def test_a_folder_in_its_place_is_named(self, tmp_path):
        with pytest.raises(InputError, match=f"{tmp_path}: cannot be read"):
            Frontier.load(tmp_path)
        with pytest.raises(InputError, match=r"absent\.json: no such file"):
            Frontier.load(tmp_path / "absent.json")


def test_it_warns_once_of_what_fit_warns_of(tail_of):
    tail = tail_of(per_class=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        curve_of(tail, "worst", bootstrap=0, points=3, adjuster=LogitAdjuster("balanced"))
    assert [str(w.message)[:5] for w in caught if "validation samples" in str(w.message)] == ["5 of "]

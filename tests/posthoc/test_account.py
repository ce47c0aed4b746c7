"""The account of a tuning: what a report says, from what is at hand."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from capri import CAPClassifierCV, InputError, LogitAdjuster, Policy, Strategy, evaluate, frontier
from capri._checks import AbsentClassWarning
from capri.page.words import objective_rows
from capri.posthoc import line_profile
from capri.posthoc.account import account, pose, shares_asked
from capri.posthoc.views import by_policy, errors_of


@pytest.fixture(scope="module")
def tuned(tail_of):
    tail = tail_of()
    names = [f"c{k}" for k in range(5)]
    adjuster = LogitAdjuster("cvar:0.4", classes=names, constraints=["plain <= baseline + 0.2"], bootstrap=40)
    return tail, adjuster.fit(tail.scores, np.array(names)[tail.y], class_counts=tail.counts)


class TestWhatSpeaksFirst:
    def test_the_adjuster_speaks_out_of_fold(self, tuned):
        _, adjuster = tuned
        content = adjuster.report_.content
        assert [view.kind for view in content.views] == ["out of fold", "in sample"]
        assert str(content.headline).split(", out of fold")[0] == repr(adjuster.validation_).split(", out of fold")[0]
        assert ["in the class shares of the world" in note for note in content.notes] == [True]  # those of training

    def test_test_samples_go_before_all_others(self, tuned, tail_of):
        _, adjuster = tuned
        test = tail_of(seed=1)
        content = adjuster.report(test.scores, np.array([f"c{k}" for k in range(5)])[test.y]).content
        assert [view.kind for view in content.views] == ["test", "out of fold", "in sample"]
        assert "on 150 test samples" in str(content.headline)
        assert "90 % interval" in content.headline.sureness

    def test_the_samples_that_tuned_are_no_test(self, tuned):
        tail, adjuster = tuned
        with pytest.raises(InputError, match="these samples tuned the policy, so they are no test of it"):
            adjuster.report(tail.scores, adjuster.classes_[tail.y])

    def test_nor_are_those_that_tuned_a_frontier(self, tuned, tail_of):
        _, adjuster = tuned
        test = tail_of(seed=1)
        labels, known = adjuster.classes_[test.y], {"classes": adjuster.classes_, "class_counts": test.counts}
        curve = frontier(test.scores, labels, of="cvar:0.4", points=2, bootstrap=0, **known)
        with pytest.raises(InputError, match="these samples tuned the frontier, so they are no test of it"):
            adjuster.report(test.scores, labels, frontier=curve)
        assert "frontier was made of other samples" in adjuster.report(frontier=curve).content.notes[-1]

    def test_labels_without_scores_and_what_is_no_frontier_are_refused(self, tuned):
        tail, adjuster = tuned
        with pytest.raises(InputError, match="X is None"):
            adjuster.report(y=adjuster.classes_[tail.y])
        with pytest.raises(InputError, match=r"frontier is 'frontier\.json'"):
            adjuster.report(frontier="frontier.json")

    @pytest.mark.parametrize("pickled", [False, True])
    def test_test_samples_keep_their_own_shares_where_none_were_asked_for(self, tuned, tail_of, pickled):
        tail, test = tuned[0], tail_of(seed=1)
        kept = test.y < 3
        adjuster = LogitAdjuster("worst", method="plain", bootstrap=0).fit(tail.scores, tail.y)
        assert adjuster.policy_.data["target_shares"] is None
        adjuster = pickle.loads(pickle.dumps(adjuster)) if pickled else adjuster
        some = np.flatnonzero(kept | (np.arange(len(test.y)) % 3 == 0))
        (view, *_) = adjuster.report(test.scores[some], test.y[some]).content.views
        assert view.after["plain"] == pytest.approx((adjuster.predict(test.scores[some]) != test.y[some]).mean())

    def test_a_class_that_only_test_samples_have_counts(self, tail, tail_of):
        test, here = tail_of(seed=1), tail.y != 2
        adjuster = LogitAdjuster("worst", method="plain", bootstrap=0, absent="ignore", classes=range(5))
        with pytest.warns(AbsentClassWarning):
            adjuster.fit(tail.scores[here], tail.y[here])
        old = replace(adjuster.policy_, data={**adjuster.policy_.data, "target_shares": [0.3, 0.3, 0.0, 0.2, 0.2]})
        for policy in (adjuster.policy_, old):
            judged = by_policy("test", policy, pose(policy, test.scores, test.y, shares=shares_asked(policy)))
            (view, *_) = account(policy, [judged]).views
            assert view.after["worst"] == pytest.approx(max(view.second.values))
        (view, *_) = adjuster.report(test.scores, test.y).content.views
        assert view.after["worst"] == pytest.approx(max(view.second.values))

    def test_a_policy_alone_has_the_figures_that_it_keeps(self, tuned):
        _, adjuster = tuned
        content = account(adjuster.policy_)
        (view,) = content.views
        assert view.kind == "in sample"
        assert view.after == adjuster.validation_.after
        assert content.line is None
        assert "out of fold" in str(content.headline)
        assert "bright side" in content.notes[0]

    def test_a_pickled_adjuster_takes_no_samples_along(self, tuned):
        _, adjuster = tuned
        again = pickle.loads(pickle.dumps(adjuster))
        assert not hasattr(again, "_seen")
        assert [view.kind for view in again.report_.content.views] == ["in sample"]
        assert str(again.report_.content.headline).startswith(str(adjuster.report_.content.headline).split(";")[0])

    def test_a_pickled_adjuster_judges_test_samples_as_the_first_one_does(self, tuned, tail_of):
        _, adjuster = tuned
        test = tail_of(seed=1)
        labels = np.array([f"c{k}" for k in range(5)])[test.y]
        here, there = (a.report(test.scores, labels).content for a in (adjuster, pickle.loads(pickle.dumps(adjuster))))
        assert here.views[0].second == there.views[0].second
        assert here.views[0].after == pytest.approx(there.views[0].after)

    def test_a_policy_without_figures_needs_samples(self):
        bare = Policy(Strategy.of(2), "balanced", ("a", "b"))
        with pytest.raises(InputError, match="give samples with labels"):
            account(bare)

    def test_a_policy_without_figures_says_what_samples_say(self, tail):
        bare = Policy(Strategy.logit_adjustment(tail.counts), "balanced", tuple(range(5)))
        content = account(bare, [by_policy("in sample", bare, pose(bare, tail.scores, tail.y))])
        assert "on the samples that tuned, which may not hold on others" in str(content.headline)
        assert content.ladder == []


class TestClasses:
    def test_map_and_residual_add_up_to_the_offset(self, tuned):
        _, adjuster = tuned
        classes = adjuster.report_.content.classes
        l, residual = np.array(classes.offsets), np.array(classes.residual)
        freq, diff = (np.array(adjuster.policy_.attributes[name]) for name in ("freq", "diff"))
        assert l == pytest.approx(adjuster.strategy_.l)
        assert len({len(freq), len(diff), len(residual)}) == 1
        w = adjuster.policy_.weights
        assert residual == pytest.approx(w["residual"])

    def test_a_class_without_samples_has_no_part_of_its_own(self, tail):
        here = tail.y != 2
        with pytest.warns(AbsentClassWarning):
            adjuster = LogitAdjuster("worst", bootstrap=0, absent="ignore", classes=range(5)).fit(
                tail.scores[here], tail.y[here], class_counts=tail.counts
            )
        found = adjuster.report_.content.classes.residual
        assert np.flatnonzero(np.isnan(found)).tolist() == [2]
        assert np.delete(found, 2) == pytest.approx(adjuster.policy_.weights["residual"])

    @pytest.mark.parametrize(
        ("counts", "groups", "group"),
        [
            ([500, 50, 5, 200, 10], 3, [0, 1, 2, 0, 2]),
            ([9000, 8000, 7000, 600, 500], 3, [0, 0, 1, 1, 2]),
            ([50, 50, 50, 50, 50], 0, []),
            (None, 0, []),
        ],
    )
    def test_groups_tell_classes_apart(self, counts, groups, group, tail):
        rule = Policy(Strategy.of(5), "balanced", tuple(range(5)))
        judged = [by_policy("in sample", rule, pose(rule, tail.scores, tail.y))]
        found = account(rule, judged, class_counts=counts).classes
        assert len(found.groups) == groups
        assert found.group == group


class TestLine:
    def test_it_is_the_profile_and_reaches_all_marks(self, tuned):
        tail, adjuster = tuned
        line = adjuster.report_.content.line
        known = {"chosen": adjuster.strategy_, "constraints": ["plain <= baseline + 0.2"], "shares": tail.counts}
        wanted = line_profile.profile(tail.scores, tail.y, tail.counts, "cvar:0.4", **known)
        assert line["marks"] == {name: mark._asdict() for name, mark in wanted.marks.items()}
        taus = [mark["tau"] for mark in line["marks"].values()]
        assert min(line["tau"]) <= min(taus)
        assert max(line["tau"]) >= min(2.4, max(taus)) or line["n_plateaus"] == wanted.n_plateaus

    def test_objectives_and_constraints_may_name_classes(self, tail):
        names = np.array([f"c{k}" for k in range(5)])
        objective, constraints = "0.5*balanced+0.5*err[c4]", ["recall[c0] >= 0.2"]
        adjuster = LogitAdjuster(objective, method="plain", constraints=constraints, bootstrap=0)
        content = adjuster.fit(tail.scores, names[tail.y], class_counts=tail.counts).report_.content
        assert content.line["marks"]["chosen"]["value"] == pytest.approx(content.views[0].after[objective])

    def test_without_frequencies_there_is_none(self, tail):
        rule = Policy(Strategy.of(5), "balanced", tuple(range(5)))
        judged = [by_policy("in sample", rule, pose(rule, tail.scores, tail.y))]
        assert account(rule, judged).line is None
        assert account(rule, judged, class_counts=[9, 9, 9, 9, 9]).line is None


@pytest.fixture(scope="module")
def curve(tuned):
    tail, adjuster = tuned
    known = {"classes": adjuster.classes_, "class_counts": tail.counts, "bootstrap": 0}
    return frontier(tail.scores, adjuster.classes_[tail.y], of="cvar:0.4", against="plain", points=4, **known)


class TestFrontier:
    def test_points_have_the_figures_and_class_errors_of_their_policies(self, tuned, curve):
        tail, adjuster = tuned
        found = adjuster.report(frontier=curve).content.frontier
        assert found["kind"] == "in sample"
        assert len(found["points"]) == len(curve)
        for point, rule, figures in zip(found["points"], curve.policies, curve.points, strict=True):
            wrong = rule.predict(tail.scores) != adjuster.classes_[tail.y]
            assert point["errors"] == [pytest.approx(wrong[tail.y == k].mean(), abs=1e-3) for k in range(5)]
            assert (point["value"], point["price"]) == pytest.approx((figures.value, figures.price))

    def test_test_samples_judge_the_points_where_there_are_any(self, tuned, curve, tail_of):
        _, adjuster = tuned
        test = tail_of(seed=1)
        found = adjuster.report(test.scores, adjuster.classes_[test.y], frontier=curve).content.frontier
        assert found["kind"] == "test"
        problem = pose(curve.policies[0], test.scores, test.y)
        judged = by_policy("test", curve.policies[0], problem)
        assert found["points"][0]["errors"] == pytest.approx(errors_of(judged, judged.after), abs=1e-3)

    def test_a_curve_of_other_classes_is_refused(self, tuned, curve):
        _, adjuster = tuned
        others = tuple(replace(rule, classes=tuple("vwxyz")) for rule in curve.policies)
        with pytest.raises(InputError, match="of other classes than the policy"):
            adjuster.report(frontier=replace(curve, policies=others))


def test_a_promise_is_told_with_the_constraints_that_it_names(tail_of):
    tail = tail_of(per_class=60)
    names, asked = np.array([f"c{k}" for k in range(5)]), {"constraints": ["recall[*] >= 0.1"], "guarantee": 0.9}
    adjuster = LogitAdjuster("worst", bootstrap=0, **asked).fit(tail.scores, names[tail.y], class_counts=tail.counts)
    content = adjuster.report_.content
    assert [limit.text for view in content.views for limit in view.limits] == list(adjuster.policy_.constraints)
    assert content.facts["promise"] == str(adjuster.promise_)
    assert adjuster.report_.to_html()


@pytest.fixture(scope="module")
def abstaining(tail_of):
    tail = tail_of(per_class=60)
    return tail, LogitAdjuster("worst", reject=0.2).fit(tail.scores, tail.y, class_counts=tail.counts)


class TestAbstention:
    def test_test_samples_are_told_as_evaluate_tells_them(self, abstaining, tail_of):
        _, adjuster = abstaining
        test = tail_of(seed=1)
        report = adjuster.report(test.scores, test.y)
        figures = evaluate(test.y, adjuster.predict(test.scores), 5, ["worst"])
        told = str(report.content.headline)
        assert f"to {100 * figures['worst']:.1f} %" in told
        assert f"on 150 test samples, {100 * figures['coverage']:.1f} % of them decided" in told
        share = f"{100 * figures['coverage']:.1f} % of them are decided, {100 * figures['min_coverage']:.1f} % or more"
        assert share in report.to_html()

    def test_out_of_fold_every_sample_is_decided(self, abstaining):
        _, adjuster = abstaining
        content = adjuster.report_.content
        assert "out of fold, with every sample decided" in str(content.headline)
        assert [view.decided is None for view in content.views] == [True, False]

    def test_a_policy_with_its_samples_is_told_as_it_decides(self, abstaining):
        tail, adjuster = abstaining
        policy = adjuster.policy_
        content = account(policy, [by_policy("in sample", policy, pose(policy, tail.scores, tail.y))])
        view, told = content.views[0], str(content.headline)
        assert f"to {100 * view.after['worst']:.1f} %, on the samples that tuned" in told
        assert "% of them decided, which may not hold on others" in told
        assert objective_rows(content)[0].after == f"{100 * view.after['worst']:.1f}"


def test_a_wrapped_model_reports_on_its_own_samples():
    X, y = make_classification(600, weights=[0.8, 0.15], n_classes=3, n_informative=4, random_state=0)
    names = np.array(["common", "rare", "rarest"])[y]
    model = CAPClassifierCV(LogisticRegression(), objective="worst").fit(X[:400], names[:400])
    assert [view.kind for view in model.report_.content.views] == ["out of fold", "in sample"]
    first, *_ = model.report(X[400:], names[400:]).content.views
    assert first.kind == "test"
    assert first.after["worst"] == pytest.approx(
        evaluate(names[400:], model.predict(X[400:]), model.classes_, ["worst"])["worst"]
    )


def test_the_content_is_plain_json_without_scores(tuned):
    tail, adjuster = tuned
    content = adjuster.report_.content.to_dict()
    text = json.dumps(content, allow_nan=False)
    assert json.loads(text) == content
    assert len(text) < 30_000 < tail.scores.size * 50
    for score in tail.scores.ravel()[:40]:
        assert f"{score:.5g}" not in text

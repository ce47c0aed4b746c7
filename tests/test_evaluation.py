"""Objectives of predictions, with absent classes, and as scikit-learn scorers."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from capri import AbsentClassWarning, InputError, as_objective, evaluate, make_scorer
from capri.evaluation import STANDARD, evaluate_confusion
from capri.objectives import confusion_objective, cvar, expected_cost, plain


def test_the_standard_objectives_come_by_name():
    assert tuple(evaluate([0, 1], [0, 0], 2)) == STANDARD


def test_objectives_and_functions_come_under_their_own_names():
    values = evaluate([0, 1], [0, 0], 2, ["err[1]", "2*cvar:0.5", max])
    assert values == {"err[1]": 1.0, "2*cvar:0.5": 2.0, "max": 1.0}


class TestLabels:
    @pytest.mark.parametrize("names", [np.array(["cow", "ant", "bee"]), np.array([7, -1, 3]), np.array([2, 0, 1])])
    def test_of_any_kind(self, names, rng):
        y, predicted = rng.integers(3, size=(2, 60))
        expected = evaluate(y, predicted, 3)
        assert evaluate(names[y], names[predicted], names) == pytest.approx(expected)
        assert evaluate(names[y], names[predicted]) == pytest.approx(expected)  # in sorted order: none depends on it

    def test_lists_and_what_is_known_of_classes_go_by_label(self):
        y, predicted = ["b", "b", "a", "c"], ["b", "a", "a", "c"]
        values = evaluate(y, predicted, objectives=["weighted", "err[b]"], weights={"c": 0, "b": 3, "a": 1})
        assert values == pytest.approx({"weighted": 0.375, "err[b]": 0.5})

    def test_two_kinds_do_not_mix(self):
        with pytest.raises(InputError, match="give both in one kind"):
            evaluate([0, 1], ["0", "1"])
        with pytest.raises(InputError, match="predictions holds '1', which is not in the class list"):
            evaluate([0, 1], ["1", "1"], 2)


class TestAbsentClass:
    y, predicted = np.array([0, 0, 2, 2, 3, 3]), np.array([0, 1, 2, 2, 0, 1])

    def values(self, *objectives, **known):
        with pytest.warns(AbsentClassWarning, match="left out"):
            return list(evaluate(self.y, self.predicted, 4, objectives, absent="ignore", **known).values())

    def test_is_an_error_by_default(self):
        with pytest.raises(InputError, match=r"class '1' \(1\) has no sample here"):
            evaluate(self.y, self.predicted, 4)

    def test_is_left_out_of_averages_and_ranks(self):
        assert self.values("balanced", "cvar:1", "quantile:1", "sdev") == pytest.approx(
            [0.5, 0.5, 0.0, np.std([0.5, 0.0, 1.0])]
        )

    def test_leaves_the_other_weights_groups_and_counts_in_place(self):
        known = {"weights": [1, 9, 1, 0], "groups": list("aabb"), "class_counts": [200, 200, 50, 5]}
        assert self.values("weighted", "worst_group", "few", **known) == pytest.approx([0.25, 0.5, 1.0])

    def test_does_not_renumber_the_others(self):
        assert self.values("err[0]", "err[2]", "err[3]") == [0.5, 0.0, 1.0]
        assert self.values("err[2]", "err[d]", class_names=list("abcd")) == [0.0, 1.0]

    def test_has_no_error_to_ask_for(self):
        with pytest.warns(AbsentClassWarning), pytest.raises(InputError, match=r"err\[1\]: no such class"):
            evaluate(self.y, self.predicted, 4, ["err[1]"], absent="ignore")

    def test_is_left_out_of_f1_but_counts_where_it_was_predicted(self):
        expected = 1 - f1_score(self.y, self.predicted, labels=[0, 2, 3], average="macro", zero_division=0)
        assert self.values("macro_f1") == pytest.approx([expected])

    def test_is_left_out_of_composites_on_the_confusion_matrix(self):
        f1, balanced, both = self.values("macro_f1", "balanced", "macro_f1+balanced")
        assert both == pytest.approx(f1 + balanced)

    def test_costs_nothing(self):
        assert self.values(expected_cost(1 - np.eye(4))) == pytest.approx([3 / 6])

    def test_may_hold_all_the_weight(self):
        with pytest.warns(AbsentClassWarning), pytest.raises(InputError, match="weights sums to 0 over the classes"):
            evaluate(self.y, self.predicted, 4, ["weighted"], absent="ignore", weights=[0, 1, 0, 0])


@pytest.mark.parametrize("confusion", [np.ones((2, 3)), np.ones(4)])
def test_a_confusion_matrix_is_square(confusion):
    with pytest.raises(InputError, match="confusion must be square"):
        evaluate_confusion(confusion)


def test_without_any_weight_there_is_nothing_to_evaluate():
    with pytest.raises(InputError, match="no class has any sample"):
        evaluate([0, 1], [0, 1], 2, sample_weight=[0, 0])


@pytest.mark.parametrize(
    "pair",
    [
        (expected_cost(np.ones((2, 2))), expected_cost(5 * np.ones((2, 2)))),
        (2 * expected_cost(np.ones((2, 2))), 2 * expected_cost(5 * np.ones((2, 2)))),
        ("balanced", confusion_objective(lambda confusion: 7.0, "balanced")),
        (as_objective(lambda errors: 1.0), as_objective(lambda errors: 2.0)),
    ],
)
def test_objectives_that_only_share_a_name_are_refused(pair):
    with pytest.raises(InputError, match=r"two different objectives are called '.+'; give them names of their own"):
        evaluate([0, 1], [0, 1], 2, pair)


def test_objectives_that_are_the_same_are_given_once():
    same = expected_cost(np.ones((2, 2)))
    found = evaluate([0, 1], [0, 1], 2, [same, same, cvar(0.2), "cvar:0.2", cvar("0.2"), "2*plain", 2 * plain()])
    assert found == {"cost": 1, "cvar:0.2": 0, "2*plain": 0}


def test_costs_may_have_names():
    both = [expected_cost(k * np.ones((2, 2)), name) for k, name in ((1, "pennies"), (5, "pounds"))]
    assert evaluate([0, 1], [0, 1], 2, both) == {"pennies": 1, "pounds": 5}


@pytest.mark.parametrize("objectives", ["balanced", None, 3, as_objective("balanced")])
def test_objectives_are_a_list(objectives):
    with pytest.raises(InputError, match=r"objectives is .+; give a list of them, such as \['balanced'\]"):
        evaluate([0, 1], [0, 1], 2, objectives)


def test_what_an_objective_does_to_its_argument_is_its_own_affair():
    def worst(errors):
        errors.sort()
        return errors[-1]

    def hits(confusion):
        confusion[:] = 0
        return 0.0

    y, predictions = [0, 0, 1, 1, 2, 2], [1, 0, 1, 1, 2, 0]
    found = evaluate(y, predictions, 3, [confusion_objective(hits), worst, 1.0 * as_objective(worst), "err[1]"])
    assert found == {"hits": 0, "own worst": 0.5, "1*own worst": 0.5, "err[1]": 0}


def test_two_objectives_of_one_name_are_told_apart_or_refused():
    with pytest.raises(InputError, match="two different objectives are called '<lambda>'"):
        evaluate([0, 1], [0, 0], 2, [lambda e: e.max(), lambda e: e.min()])

    def worst(errors):
        return -1.0

    assert evaluate([0, 1], [0, 0], 2, ["worst", worst, "worst"]) == {"worst": 1.0, "own worst": -1.0}


class TestScorer:
    def test_survives_pickling(self, data):
        model = LogisticRegression().fit(*data)
        scorer = make_scorer("cvar:0.3", weights=[1, 2, 3])
        for again in (pickle.loads(pickle.dumps(scorer)), copy.deepcopy(scorer)):
            assert again(model, *data) == scorer(model, *data)

    @pytest.mark.parametrize("objective", ["cvar:0.3", lambda errors: float(errors.max())])
    def test_is_sent_to_other_processes(self, data, objective):
        scorer = make_scorer(objective)
        here = cross_val_score(LogisticRegression(), *data, scoring=scorer, cv=3)
        there = cross_val_score(LogisticRegression(), *data, scoring=scorer, cv=3, n_jobs=2)
        np.testing.assert_array_equal(here, there)

    @pytest.fixture
    def data(self):
        X, y = make_classification(300, 8, n_informative=5, n_classes=3, weights=[0.6, 0.3, 0.1], random_state=0)
        return X, np.array(["ant", "bee", "cow"])[y]

    def test_agrees_with_scikit_learn_in_cross_validation(self, data):
        ours = cross_val_score(LogisticRegression(), *data, scoring=make_scorer("balanced"), cv=3)
        theirs = cross_val_score(LogisticRegression(), *data, scoring="balanced_accuracy", cv=3)
        np.testing.assert_allclose(ours, theirs - 1)

    def test_greater_is_better_in_a_grid_search(self, data):
        grid = {"class_weight": [None, {"ant": 1e6, "bee": 1, "cow": 1}]}
        search = GridSearchCV(LogisticRegression(), grid, scoring=make_scorer("cvar:0.3"), cv=3).fit(*data)
        assert search.best_params_ == {"class_weight": None}

    def test_knows_the_classes_by_the_model_s_own_names(self, data):
        model = LogisticRegression().fit(*data)
        X, y = data
        expected = (model.predict(X[y == "cow"]) == "cow").mean() - 1
        assert make_scorer("err[cow]")(model, *data) == pytest.approx(expected)
        with pytest.raises(InputError, match=r"class 'bee' \(1\) has no sample"):
            make_scorer("balanced")(model, X[y != "bee"], y[y != "bee"])

    def test_takes_sample_weights(self, data, rng):
        X, y = data
        weight = rng.uniform(size=len(y))
        model = LogisticRegression().fit(X, y)
        expected = balanced_accuracy_score(y, model.predict(X), sample_weight=weight) - 1
        assert make_scorer("balanced")(model, X, y, sample_weight=weight) == pytest.approx(expected)

    def test_takes_what_the_objective_asks_for(self, data):
        model = LogisticRegression().fit(*data)
        scorer = make_scorer("weighted", weights=[0, 0, 1])
        assert scorer(model, *data) == pytest.approx(make_scorer("err[2]")(model, *data))

    def test_refuses_labels_the_model_was_not_trained_on(self, data):
        model = LogisticRegression().fit(*data)
        with pytest.raises(InputError, match="y holds 'dog', which is not in the class list"):
            make_scorer("balanced")(model, data[0][:1], ["dog"])

    def test_reads_its_objective_when_made(self):
        with pytest.raises(InputError, match="did you mean 'balanced'"):
            make_scorer("balancd")

"""XGBoost, LightGBM and CatBoost grow the trees of their own softmax by the neutral strategy, and others by others."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

from capri import CAPClassifierCV, InputError, Policy, Strategy, evaluate
from capri._checks import InputWarning
from capri.boosting import CAPBoostingClassifier, ClassErrorMetric, TreeLoss

NAMES = np.array(["common", "rare", "Ärmel"])
CATBOOST = {"learning_rate": 0.1, "depth": 3, "verbose": 0, "allow_writing_files": False, "random_seed": 0}


def data(k=3, n=1200):
    X, y = make_classification(
        n, n_classes=k, n_informative=6, weights=[0.8, 0.15, 0.05][:k], class_sep=0.7, random_state=1
    )
    return X, y


LIBRARIES = {
    "xgboost": ("XGBClassifier", {"n_estimators": 15, "max_depth": 3, "n_jobs": 1}),
    "lightgbm": ("LGBMClassifier", {"n_estimators": 15, "num_leaves": 7, "verbose": -1, "n_jobs": 1}),
    "catboost": ("CatBoostClassifier", {"iterations": 15, "thread_count": 1, **CATBOOST}),
}


def trees(name):
    """Of a library, which the test is skipped without."""
    kind, settings = LIBRARIES[name]
    return getattr(pytest.importorskip(name), kind)(**settings)


class TestTheNeutralStrategyIsTheBuiltInSoftmax:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_of_xgboost(self, weighted):
        xgboost = pytest.importorskip("xgboost")
        X, y = data()
        weight = np.random.default_rng(0).uniform(0.5, 2, len(y)) if weighted else None
        loss = TreeLoss(Strategy.of(3))
        matrix = xgboost.DMatrix(X, y, weight=weight, base_margin=loss.init_scores(y, weight))
        settings = {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "nthread": 1}
        theirs = xgboost.train(settings, matrix, 15)
        ours = xgboost.train(settings | {"disable_default_eval_metric": True}, matrix, 15, obj=loss.xgboost)
        margins = (m.predict(matrix, output_margin=True) for m in (theirs, ours))
        np.testing.assert_allclose(*margins, atol=1e-5)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_of_lightgbm(self, weighted):
        lightgbm = pytest.importorskip("lightgbm")
        X, y = data()
        weight = np.random.default_rng(0).uniform(0.5, 2, len(y)) if weighted else None
        loss = TreeLoss(Strategy.of(3))
        settings = {"num_class": 3, "num_leaves": 7, "verbose": -1, "num_threads": 1, "boost_from_average": False}

        def trained(objective):
            samples = lightgbm.Dataset(X, y, weight=weight, init_score=loss.init_scores(y, weight))
            return lightgbm.train({**settings, "objective": objective}, samples, 15)

        scores = [trained(o).predict(X, raw_score=True) for o in ("multiclass", loss.lightgbm)]
        np.testing.assert_allclose(*scores, atol=1e-5)

    @pytest.mark.parametrize("k", [2, 3])
    def test_of_catboost(self, k):
        catboost = pytest.importorskip("catboost")
        X, y = data(k)
        loss, metric = TreeLoss(Strategy.of(k)), ClassErrorMetric("balanced")
        row = loss.init_scores(y)
        baseline = row if k > 2 else row[:, 1] - row[:, 0]
        settings = {
            **CATBOOST,
            "iterations": 15,
            "thread_count": 1,
            "bootstrap_type": "No",
            "leaf_estimation_iterations": 1,
        }
        settings["leaf_estimation_backtracking"] = "No"
        theirs = catboost.CatBoostClassifier(**settings, loss_function="MultiClass" if k > 2 else "Logloss")
        ours = catboost.CatBoostClassifier(
            **settings, loss_function=loss.catboost(), eval_metric=metric.catboost(), classes_count=k
        )
        scores = [
            m.fit(catboost.Pool(X, y, baseline=baseline)).predict(X, prediction_type="RawFormulaVal")
            for m in (theirs, ours)
        ]
        np.testing.assert_allclose(*scores, atol=1e-8)


class TestClassifier:
    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize("name", LIBRARIES)
    def test_the_start_is_neither_forgotten_nor_counted_twice(self, name, k):
        X, y = data(k)
        model = CAPBoostingClassifier(trees(name), strategy=Strategy.of(k)).fit(X, y)
        shares = np.bincount(y) / len(y)
        np.testing.assert_allclose(model.predict_proba(X).mean(axis=0), shares, atol=0.03)
        assert (model.classes_[model.predict_proba(X).argmax(axis=1)] == model.predict(X)).all()
        margins = model.decision_function(X)
        assert margins.shape == ((len(y),) if k == 2 else (len(y), k))

    @pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
    def test_offsets_alone_are_post_hoc_adjustment(self, name):
        """Trees that start from the best constant do not see offsets: they end where the plain ones do, less l."""
        X, y = data()
        l = np.array([1.5, -0.5, -1.0])
        plain, moved = (
            CAPBoostingClassifier(trees(name), strategy=Strategy.of(3, l=given)).fit(X, y).decision_function(X)
            for given in (np.zeros(3), l)
        )
        difference = plain - moved - l
        np.testing.assert_allclose(difference, np.broadcast_to(difference[:, :1], difference.shape), atol=1e-4)

    @pytest.mark.parametrize("name", LIBRARIES)
    def test_post_hoc_and_retrain_lowers_the_objective_on_other_samples(self, name):
        X, y = data(n=2400)
        X, X_test, y, y_test = train_test_split(X, NAMES[y], stratify=y, random_state=0)
        model = CAPBoostingClassifier(trees(name), "balanced", cv=3).fit(X, y)
        assert isinstance(model.tuned_, CAPClassifierCV)
        assert set(model.predict(X_test)) <= set(NAMES)
        before, after = (
            evaluate(y_test, labels, NAMES, ["balanced"])["balanced"]
            for labels in (model.tuned_.estimator_.predict(X_test), model.predict(X_test))
        )
        assert after < before - 0.03

    @pytest.mark.parametrize("name", LIBRARIES)
    def test_growth_ends_where_the_objective_is_best(self, name):
        X, y = data()
        X, X_val, y, y_val = train_test_split(X, NAMES[y], stratify=y, random_state=0)
        given = trees(name).set_params(
            **{"lightgbm": {"early_stopping_round": 5}}.get(name, {"early_stopping_rounds": 5}),
            **({"iterations": 300} if name == "catboost" else {"n_estimators": 300}),
        )
        model = CAPBoostingClassifier(given, "balanced").fit(X, y, eval_set=(X_val, y_val))
        inner = model.estimator_
        best = {"xgboost": "best_iteration", "lightgbm": "best_iteration_", "catboost": "best_iteration_"}[name]
        assert 0 <= getattr(inner, best) < 295
        seen = {
            "xgboost": lambda: inner.best_score,
            "lightgbm": lambda: inner.best_score_["valid_0"]["balanced"],
            "catboost": lambda: min(next(iter(inner.evals_result_["validation"].values()))),
        }[name]()
        value = evaluate(y_val, model.predict(X_val), model.classes_, ["balanced"])["balanced"]
        assert value == pytest.approx(seen, abs=1e-6)

    @pytest.mark.parametrize("name", LIBRARIES)
    def test_it_is_kept_and_copied(self, name):
        X, y = data(n=300)
        model = CAPBoostingClassifier(trees(name), strategy=Strategy.logit_adjustment([80, 15, 5])).fit(X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
        clone(model).fit(X, y)

    def test_weights_are_repetitions(self):
        X, y = data(n=300)
        counts = np.random.default_rng(0).integers(1, 4, len(y))
        how = {"strategy": Strategy.of(3, omega=[0.5, 1, 3], l=[0.5, 0, -0.5])}
        estimator = trees("lightgbm").set_params(
            n_estimators=5, num_leaves=31, min_child_samples=1, min_child_weight=0.5
        )
        weighted = CAPBoostingClassifier(estimator, **how).fit(X, y, counts)
        repeated = CAPBoostingClassifier(estimator, **how).fit(X.repeat(counts, axis=0), y.repeat(counts))
        np.testing.assert_allclose(weighted.start_, repeated.start_, atol=1e-12)
        agree = weighted.predict(X) == repeated.predict(X)
        assert agree.mean() > 0.95  # bins of features differ

    def test_a_policy_is_matched_by_label_and_transferred(self):
        X, y = data()
        policy = Policy(Strategy.of(3, l=[2.0, 0.0, -2.0]), "balanced", ("rare", "common", "Ärmel"))
        how = {"strategy": policy, "weighting": 0}
        model = CAPBoostingClassifier(trees("lightgbm"), **how).fit(X, NAMES[y])
        expected = dict(zip(policy.classes, policy.strategy.l, strict=True))
        assert dict(zip(model.classes_.tolist(), model.strategy_.l, strict=True)) == expected

    @pytest.mark.parametrize("names", [NAMES, np.array([1, 2, 3])])
    @pytest.mark.parametrize("watching", [False, True])
    def test_what_was_tuned_knows_the_labels(self, names, watching):
        X, y = data()
        more = {"eval_set": (X[::2], names[y[::2]])} if watching else {}
        objective = f"0.5*err[{names[2]}]+0.5*balanced"
        model = CAPBoostingClassifier(trees("lightgbm"), objective, cv=3).fit(X, names[y], **more)
        scores = X if not watching else model.predict_proba(X)
        assert set(model.tuned_.predict(scores)) <= set(names)
        assert model.strategy_.omega.argmax() == 2

    def test_other_estimators_are_refused(self):
        with pytest.raises(InputError, match="XGBClassifier, an LGBMClassifier or a CatBoostClassifier"):
            CAPBoostingClassifier(HistGradientBoostingClassifier()).fit(*data())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"strategy": Strategy.of(4)}, "strategy is for 4 classes; y holds 3"),
            ({"strategy": "best"}, "strategy"),
            ({"weighting": 2}, "weighting"),
        ],
    )
    def test_wrong_settings_are_refused(self, change, message):
        with pytest.raises(ValueError, match=message):
            CAPBoostingClassifier(trees("lightgbm"), **change).fit(*data())

    def test_not_fitted(self):
        with pytest.raises(NotFittedError):
            CAPBoostingClassifier(trees("lightgbm")).predict([[0.0]])

    def test_unknown_labels_to_watch_are_refused(self):
        X, y = data()
        with pytest.raises(InputError, match="the y of eval_set holds 'lynx'"):
            CAPBoostingClassifier(trees("lightgbm")).fit(X, NAMES[y], eval_set=(X[:2], ["rare", "lynx"]))
        with pytest.raises(InputError, match="one pair"):
            CAPBoostingClassifier(trees("lightgbm")).fit(X, NAMES[y], eval_set=X)

    def test_catboost_without_a_learning_rate_says_so(self):
        model = pytest.importorskip("catboost").CatBoostClassifier(iterations=2, verbose=0, allow_writing_files=False)
        with pytest.warns(InputWarning, match="set learning_rate"):
            CAPBoostingClassifier(model, strategy=Strategy.of(3)).fit(*data(n=200))


class TestMetric:
    @pytest.mark.parametrize("objective", ["balanced", "cvar:0.4", "macro_f1", "worst", "err[rare]"])
    def test_is_the_objective_of_decisions(self, objective):
        y = data()[1]
        scores = np.random.default_rng(0).normal(size=(len(y), 3)) + 2 * np.eye(3)[y]
        metric = ClassErrorMetric(objective, class_names=NAMES.tolist())
        expected = evaluate(NAMES[y], NAMES[scores.argmax(axis=1)], NAMES, [objective])[metric_name(objective)]
        assert metric.value(scores, y) == pytest.approx(expected)
        assert metric.lightgbm_sklearn(y, scores) == (metric.name, metric.value(scores, y), False)

    def test_names_suit_xgboost_s_log(self):
        xgboost = pytest.importorskip("xgboost")
        assert ClassErrorMetric("0.5*cvar:0.2 + 0.5*plain").name == "0.5*cvar@0.2+0.5*plain"
        X, y = data(n=300)
        loss, metric = TreeLoss(Strategy.of(3)), ClassErrorMetric("cvar:0.4")
        matrix, log = xgboost.DMatrix(X, y, base_margin=loss.init_scores(y)), {}
        settings = {"num_class": 3, "disable_default_eval_metric": True}
        xgboost.train(
            settings, matrix, 3, obj=loss.xgboost, custom_metric=metric.xgboost, evals=[(matrix, "seen")],
            evals_result=log, verbose_eval=False,
        )  # fmt: skip
        assert len(log["seen"]["cvar@0.4"]) == 3

    def test_classes_that_are_not_watched_are_left_out(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ClassErrorMetric("worst").value([[1.0, 0, 0], [0, 1, 0]], [0, 1]) == 0


def metric_name(objective):
    from capri import as_objective

    return as_objective(objective).name

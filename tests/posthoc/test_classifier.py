"""CAPClassifierCV: any scikit-learn classifier, tuned."""

import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score, f1_score, get_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from capri import CAPClassifierCV, InputError, LogitAdjuster
from capri._checks import InputWarning
from capri.posthoc.classifier import _scores

FOLDS = "a sample of weight 0 still takes a place in a fold, as in scikit-learn's own TunedThresholdClassifierCV"
EXPECTED_FAILURES = {
    "cap": {f"check_sample_weight_equivalence_on_{kind}_data": FOLDS for kind in ("dense", "sparse")},
    "la": {},
}
POOLED, LINE = (
    CAPClassifierCV(LogisticRegression(), cv=3, bootstrap=0),
    CAPClassifierCV(DecisionTreeClassifier(max_depth=3, random_state=0), "macro_f1", method="la", cv=2, bootstrap=2),
)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([POOLED, LINE], expected_failed_checks=lambda e: EXPECTED_FAILURES[e.method])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def skewed(n=500, classes=3, seed=0, **keywords):
    share = 0.4 ** np.arange(classes)
    settings = {"n_features": 6, "n_informative": 5, "n_redundant": 0, "flip_y": 0.05, "class_sep": 0.8} | keywords
    return make_classification(
        n, n_classes=classes, weights=share / share.sum(), n_clusters_per_class=1, random_state=seed, **settings
    )


@pytest.fixture(scope="module")
def data():
    return skewed()


@pytest.fixture(scope="module")
def fitted(data):
    return CAPClassifierCV(LogisticRegression(), store_cv_results=True).fit(*data)


class TestAgainstTunedThreshold:
    @pytest.mark.parametrize(
        ("model", "seed"),
        [
            (LogisticRegression(), 0),
            (LogisticRegression(), 1),
            (RandomForestClassifier(10, random_state=0), 2),
            (GaussianNB(), 3),
            (RidgeClassifier(), 4),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_two_classes_prefit_are_tuned_at_least_as_well(self, model, seed):
        X, y = skewed(600, 2, seed, flip_y=0.1, class_sep=0.5)
        X_train, X_val, y_train, y_val = train_test_split(X, y, stratify=y, random_state=seed)
        frozen = FrozenEstimator(clone(model).fit(X_train, y_train))
        theirs = TunedThresholdClassifierCV(
            frozen, thresholds=1000, cv="prefit", refit=False, scoring="balanced_accuracy"
        ).fit(X_val, y_val)
        ours = CAPClassifierCV(frozen, method="la", borrow=0, bootstrap=0).fit(X_val, y_val)  # one exact line
        reached = balanced_accuracy_score(y_val, ours.predict(X_val))
        assert reached >= balanced_accuracy_score(y_val, theirs.predict(X_val)) - 1e-12
        assert reached == pytest.approx(1 - ours.validation_.after["balanced"])


class TestFit:
    def test_tunes_out_of_fold_scores_and_refits_on_everything(self, data, fitted):
        X, y = data
        whole = LogisticRegression().fit(X, y)
        np.testing.assert_array_equal(fitted.estimator_.coef_, whole.coef_)
        wrong = np.zeros(len(y), bool)
        for train, test in StratifiedKFold(5).split(X, y):
            fold_model = LogisticRegression().fit(X[train], y[train])
            wrong[test] = fold_model.predict(X[test]) != y[test]
        errors = np.bincount(y, weights=wrong) / np.bincount(y)
        assert fitted.validation_.errors_before == pytest.approx(errors)
        assert fitted.validation_.improvement > 0.01
        np.testing.assert_allclose(fitted.policy_.attributes["freq"], np.bincount(y) / len(y))

    def test_predicts_by_the_policy_on_the_refitted_model(self, data, fitted):
        X, _ = data
        p = fitted.estimator_.predict_proba(X)
        np.testing.assert_array_equal(fitted.predict(X), fitted.policy_.apply(p).argmax(axis=1))
        np.testing.assert_array_equal(fitted.decision_function(X), fitted.policy_.apply(p))
        assert (fitted.predict(X) != fitted.estimator_.predict(X)).any()

    def test_probabilities_are_the_wrapped_model_s_own(self, data, fitted):
        X, _ = data
        np.testing.assert_array_equal(fitted.predict_proba(X), fitted.estimator_.predict_proba(X))
        np.testing.assert_array_equal(fitted.predict_log_proba(X), fitted.estimator_.predict_log_proba(X))
        assert not hasattr(CAPClassifierCV(RidgeClassifier()), "predict_proba")

    @pytest.mark.parametrize("response", ["predict_proba", "decision_function"])
    def test_the_response_may_be_chosen(self, data, response):
        X, y = data
        model = CAPClassifierCV(LogisticRegression(), response_method=response, cv=3).fit(X, y)
        assert model.policy_.scores == ("proba" if response == "predict_proba" else "logits")
        expected = model.policy_.apply(getattr(model.estimator_, response)(X))
        np.testing.assert_array_equal(model.predict(X), expected.argmax(axis=1))

    def test_models_with_margins_alone_are_tuned_on_them(self, data):
        X, y = data
        model = CAPClassifierCV(RidgeClassifier(), cv=3).fit(X, y)
        assert model.policy_.scores == "logits"
        assert model.validation_.improvement > 0.05

    def test_string_labels_keep_their_names(self, data, fitted):
        X, y = data
        names = np.array(["common", "middling", "rare"])
        model = CAPClassifierCV(LogisticRegression(), constraints=["err[common] <= 0.5"]).fit(X, names[y])
        assert model.classes_.tolist() == names.tolist()
        assert model.policy_.class_names == tuple(names)
        assert set(model.predict(X)) <= set(names)
        assert model.validation_.errors_after[0] <= 0.5

    def test_pandas_frames_go_through_to_pipelines(self, data):
        X, y = data
        frame = pd.DataFrame(X, columns=list("abcdef"))
        frame["kind"] = pd.Categorical(np.where(X[:, 0] > 0, "up", "down"))
        labels = pd.Series(np.array(["x", "y", "z"])[y], index=np.arange(len(y))[::-1])
        columns = make_column_transformer(
            (StandardScaler(), list("abcdef")), (OneHotEncoder(), ["kind"]), remainder="drop"
        )
        model = CAPClassifierCV(make_pipeline(columns, LogisticRegression()), cv=3).fit(frame, labels)
        assert model.feature_names_in_.tolist() == [*"abcdef", "kind"]
        assert model.n_features_in_ == 7
        assert set(model.predict(frame)) == {"x", "y", "z"}

    def test_sample_weights_reach_model_and_tuning(self, data):
        X, y = data
        weight = np.where(y == 2, 5.0, 1.0)
        model = CAPClassifierCV(LogisticRegression(), "plain", cv=3).fit(X, y, sample_weight=weight)
        whole = LogisticRegression().fit(X, y, sample_weight=weight)
        np.testing.assert_array_equal(model.estimator_.coef_, whole.coef_)
        assert model.validation_.samples == pytest.approx(np.bincount(y, weights=weight))

    @pytest.mark.filterwarnings("ignore::capri.posthoc.ThinClassWarning")
    @pytest.mark.parametrize("base", [LogisticRegression(), RidgeClassifier()], ids=lambda m: type(m).__name__)
    def test_fold_models_that_lack_a_class_are_aligned(self, data, base):
        X, y = data
        order = np.argsort(y, kind="stable")  # unshuffled folds of sorted labels: some never see the last class
        X, y = X[order], y[order]
        first_of_last = np.flatnonzero(y == 2)[0]
        rows = np.r_[0 : first_of_last + 4]
        cv = [(rows[rows < first_of_last], rows[rows >= first_of_last - 100]), (rows, rows[: first_of_last - 100])]
        model = CAPClassifierCV(base, cv=cv).fit(X[rows], y[rows])
        assert model.classes_.tolist() == [0, 1, 2]
        assert model.validation_.errors_before[2] == 1  # the fold's model knows nothing of it
        assert np.isfinite(model.policy_.strategy.l).all()

    def test_other_splitters_may_leave_samples_out_or_repeat_them(self, data):
        X, y = data
        split = CAPClassifierCV(LogisticRegression(), cv=ShuffleSplit(3, test_size=0.3, random_state=0)).fit(X, y)
        assert sum(split.validation_.samples) == 3 * 150
        assert CAPClassifierCV(LogisticRegression(), cv=KFold(4)).fit(X, y).validation_.improvement > 0

    def test_a_macro_f1_that_scikit_learn_confirms(self):
        X, y = skewed(seed=2)
        base = RandomForestClassifier(30, max_depth=4, random_state=0).fit(X[:250], y[:250])
        model = CAPClassifierCV(base, "macro_f1", cv="prefit").fit(X[250:], y[250:])
        f1 = f1_score(y[250:], model.predict(X[250:]), average="macro")
        assert model.validation_.after["macro_f1"] == pytest.approx(1 - f1)
        assert f1 > f1_score(y[250:], base.predict(X[250:]), average="macro")

    def test_jobs_do_not_change_the_result(self, data, fitted):
        X, y = data
        with parallel_config(backend="threading"):
            parallel = CAPClassifierCV(LogisticRegression(), n_jobs=2).fit(X, y)
        np.testing.assert_array_equal(parallel.decision_function(X), fitted.decision_function(X))

    def test_is_a_scikit_learn_citizen(self, data, fitted):
        X, y = data
        twin = clone(fitted).set_params(estimator__C=0.5, objective="worst")
        assert twin.get_params()["estimator__C"] == 0.5
        loaded = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
        search = GridSearchCV(
            CAPClassifierCV(LogisticRegression(), cv=2), {"method": ["cap", "la"]}, scoring="balanced_accuracy", cv=2
        ).fit(X, y)
        assert search.best_score_ > 0.5


class TestMetadata:
    """Weights and groups go where they are asked for, through pipelines and searches too."""

    class Weighed(LogisticRegression):
        """Remembers the weights of every fit in this process."""

        seen: ClassVar[list] = []

        def fit(self, X, y, sample_weight=None):
            type(self).seen.append(None if sample_weight is None else np.asarray(sample_weight))
            return super().fit(X, y, sample_weight)

    @pytest.fixture
    def groups(self, data):
        return np.arange(len(data[1])) % 7

    @pytest.fixture
    def routing(self):
        with config_context(enable_metadata_routing=True):
            yield

    def test_groups_reach_the_splitter(self, data, groups):
        X, y = data
        model = CAPClassifierCV(LogisticRegression(), cv=GroupKFold(3)).fit(X, y, groups=groups)
        wrong = np.zeros(len(y), bool)
        for train, test in GroupKFold(3).split(X, y, groups):
            assert not set(groups[train]) & set(groups[test])
            wrong[test] = LogisticRegression().fit(X[train], y[train]).predict(X[test]) != y[test]
        assert model.validation_.errors_before == pytest.approx(np.bincount(y, weights=wrong) / np.bincount(y))

    def test_groups_are_routed_to_the_splitter(self, data, groups, routing):
        X, y = data
        plain = CAPClassifierCV(LogisticRegression(), cv=GroupKFold(3))
        with config_context(enable_metadata_routing=False):
            expected = clone(plain).fit(X, y, groups=groups)
        routed = clone(plain).fit(X, y, groups=groups)
        assert routed.policy_.to_json() == expected.policy_.to_json()

    def test_weights_of_a_length_are_not_guessed_to_be_per_sample(self, data):
        X, y = data
        with pytest.raises(ValueError, match="enable_metadata_routing=True"):
            CAPClassifierCV(LogisticRegression(), cv=3).fit(X, y, something=np.ones(len(y)))

    def test_models_without_weights_are_tuned_with_them_all_the_same(self, data):
        X, y = data
        weight = np.where(y == 2, 5.0, 1.0)
        with pytest.warns(InputWarning, match="KNeighborsClassifier.fit takes no sample_weight"):
            model = CAPClassifierCV(KNeighborsClassifier(), cv=3).fit(X, y, sample_weight=weight)
        assert model.validation_.samples == pytest.approx(np.bincount(y, weights=weight))

    def test_weights_go_through_a_pipeline_and_a_grid_search(self, data, routing):
        X, y = data
        weight = np.where(y == 2, 5.0, 1.0)
        inner = self.Weighed(C=0.5).set_fit_request(sample_weight=True)
        model = CAPClassifierCV(inner, "plain", cv=3).set_fit_request(sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        scoring = get_scorer("balanced_accuracy").set_score_request(sample_weight=True)
        search = GridSearchCV(pipe, {"capclassifiercv__method": ["cap", "la"]}, cv=2, scoring=scoring)
        self.Weighed.seen.clear()
        search.fit(X, y, sample_weight=weight)
        assert all(seen is not None and set(seen) == {1.0, 5.0} for seen in self.Weighed.seen)
        best = search.best_estimator_[-1]
        assert best.validation_.samples == pytest.approx(np.bincount(y, weights=weight))

    def test_weights_that_nobody_requested_are_an_error_as_in_scikit_learn(self, data, routing):
        X, y = data
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            CAPClassifierCV(LogisticRegression(), cv=3).fit(X, y, sample_weight=np.ones(len(y)))

    def test_class_attributes_reach_the_tuning(self, data):
        X, y = data
        model = CAPClassifierCV(LogisticRegression(), attributes=["size"], cv=3)
        model.fit(X, y, class_attributes={"size": {2: 9.0, 0: 1.0, 1: 4.0}})
        assert model.policy_.attributes == {"size": [1.0, 4.0, 9.0]}


class TestPrefit:
    @pytest.mark.parametrize("how", ["frozen", "prefit"])
    def test_the_model_is_kept_as_it_is(self, data, how):
        X, y = data
        base = LogisticRegression().fit(X[:250], y[:250])
        kept = base.coef_.copy()
        model = CAPClassifierCV(FrozenEstimator(base)) if how == "frozen" else CAPClassifierCV(base, cv="prefit")
        model.fit(X[250:], y[250:])
        np.testing.assert_array_equal(base.coef_, kept)
        np.testing.assert_array_equal(model.predict_proba(X), base.predict_proba(X))
        before = np.mean([np.mean(base.predict(X[250:])[y[250:] == k] != k) for k in range(3)])
        assert model.validation_.before["balanced"] == pytest.approx(before)

    def test_training_counts_may_be_given(self, data):
        X, y = data
        base = FrozenEstimator(LogisticRegression().fit(X[:250], y[:250]))
        counts = np.bincount(y[:250])
        model = CAPClassifierCV(base).fit(X[250:], y[250:], class_counts=counts)
        np.testing.assert_allclose(model.policy_.attributes["freq"], counts / 250)

    def test_an_unfitted_model_is_an_error(self, data):
        with pytest.raises(NotFittedError):
            CAPClassifierCV(LogisticRegression(), cv="prefit").fit(*data)

    def test_labels_that_the_model_does_not_know_are_named(self, data):
        X, y = data
        base = LogisticRegression().fit(X[y < 2], y[y < 2])
        with pytest.raises(InputError, match="y holds 2, which is not in the class list"):
            CAPClassifierCV(base, cv="prefit").fit(X, y)

    def test_fold_results_divide_the_samples_at_hand(self, data):
        X, y = data
        base = FrozenEstimator(LogisticRegression().fit(X[:250], y[:250]))
        results = CAPClassifierCV(base, store_cv_results=True).fit(X[250:], y[250:]).cv_results_
        assert results["after_balanced"].shape == (5,)


class TestRefit:
    def test_false_keeps_the_model_of_the_one_split(self, data):
        X, y = data
        cv = ShuffleSplit(1, test_size=0.4, random_state=1)
        model = CAPClassifierCV(LogisticRegression(), cv=cv, refit=False, store_cv_results=True).fit(X, y)
        train, _ = next(cv.split(X))
        np.testing.assert_array_equal(model.estimator_.coef_, LogisticRegression().fit(X[train], y[train]).coef_)
        assert sum(model.validation_.samples) == 200
        assert len(model.cv_results_["before_plain"]) == 5

    @pytest.mark.parametrize("cv", [0.4, StratifiedShuffleSplit(1, test_size=0.4), StratifiedShuffleSplit(1)])
    def test_false_tunes_the_scores_of_the_very_model_that_is_kept(self, data, cv, monkeypatch):
        """Splitters may draw anew when they are asked again, and models when they are fitted (scikit-learn #33540)."""
        X, y = data
        asked, tuned_on = [], []
        split = StratifiedShuffleSplit.split

        def noted(self, X, y, groups=None):
            asked.append(list(split(self, X, y, groups)))
            return iter(asked[-1])

        fit = LogitAdjuster.fit

        def seen(self, scores, *others, **known):
            tuned_on.append(np.array(scores))
            return fit(self, scores, *others, **known)

        monkeypatch.setattr(StratifiedShuffleSplit, "split", noted)
        monkeypatch.setattr(LogitAdjuster, "fit", seen)
        model = CAPClassifierCV(RandomForestClassifier(5), cv=cv, refit=False, bootstrap=0).fit(X, y)
        ((_, held),) = asked[0]
        assert len(asked) == 1
        np.testing.assert_array_equal(tuned_on[0], model.estimator_.predict_proba(X[held]))

    @pytest.mark.parametrize("cv", [0.0, 1.0, 1.5, -0.3])
    def test_a_share_lies_between_0_and_1(self, data, cv):
        with pytest.raises(ValueError, match="'cv' parameter of CAPClassifierCV"):
            CAPClassifierCV(LogisticRegression(), cv=cv).fit(*data)

    def test_false_with_several_splits_is_refused(self, data):
        with pytest.raises(InputError, match="cv has 5"):
            CAPClassifierCV(LogisticRegression(), refit=False).fit(*data)


class TestFoldResults:
    def test_hold_every_objective_before_and_after_for_each_fold(self, data, fitted):
        X, y = data
        results = fitted.cv_results_
        assert {len(v) for v in results.values()} == {5}
        assert {n.removeprefix("before_") for n in results if n.startswith("before_")} == set(fitted.validation_.before)
        plain = [
            np.mean(LogisticRegression().fit(X[train], y[train]).predict(X[test]) != y[test])
            for train, test in StratifiedKFold(5).split(X, y)
        ]
        np.testing.assert_allclose(results["before_plain"], plain)
        assert results["after_balanced"].mean() < results["before_balanced"].mean()

    def test_are_tuned_without_the_fold_that_they_judge(self, data, fitted):
        X, y = data
        splits = list(StratifiedKFold(5).split(X, y))
        p = [LogisticRegression().fit(X[train], y[train]).predict_proba(X[test]) for train, test in splits]
        labels = [y[test] for _, test in splits]
        adjuster = LogitAdjuster(scores="proba").fit(
            np.concatenate(p[1:]), np.concatenate(labels[1:]), class_counts=np.bincount(y)
        )
        balanced = 1 - balanced_accuracy_score(labels[0], adjuster.predict(p[0]))
        assert fitted.cv_results_["after_balanced"][0] == pytest.approx(balanced)

    @pytest.mark.parametrize("objective", ["err[rare]", "few", "weighted", "worst_group"])
    def test_know_names_counts_weights_and_groups(self, data, objective):
        X, y = data
        model = CAPClassifierCV(
            LogisticRegression(),
            objective,
            constraints=["plain <= baseline + 0.1"],
            weights=[1, 2, 3],
            groups=[0, 1, 1],
            cv=3,
            store_cv_results=True,
        )
        model.fit(X, np.array(["common", "middling", "rare"])[y], class_counts=[500, 90, 10])
        assert np.isfinite(model.cv_results_[f"after_{objective}"]).all()

    def test_no_sample_judges_what_it_helped_to_tune_when_splits_repeat(self, data, monkeypatch):
        X, y = data
        cv = RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0)
        sizes, fit = [], LogitAdjuster.fit

        def counted(self, X, *arguments, **known):
            sizes.append(len(X))
            return fit(self, X, *arguments, **known)

        monkeypatch.setattr(LogitAdjuster, "fit", counted)
        CAPClassifierCV(LogisticRegression(), cv=cv, store_cv_results=True).fit(X, y)
        assert sizes == [2 * len(y)] + 4 * [len(y)]  # both judgements of the held half are left out

    def test_are_not_kept_unless_asked_for(self, data):
        assert not hasattr(CAPClassifierCV(GaussianNB(), cv=2).fit(*data), "cv_results_")


class TestAlignment:
    class Model(ClassifierMixin, BaseEstimator):
        def __init__(self, classes, response):
            self.classes_, self.response = np.array(classes), response

        def predict_proba(self, X):
            return self.response[: len(X)]

        def decision_function(self, X):
            return self.response[: len(X)]

    def test_missing_probabilities_are_zero(self):
        model = self.Model(["a", "c"], np.array([[0.3, 0.7]]))
        aligned = _scores(model, [0], "predict_proba", np.array(["a", "b", "c"]))
        np.testing.assert_array_equal(aligned, [[0.3, 0.0, 0.7]])

    def test_missing_scores_are_far_below_and_do_not_depend_on_other_rows(self):
        response = np.array([[1.0, 2.0], [-50.0, 70.0]])
        model, classes = self.Model([0, 2], response), np.array([0, 1, 2])
        both, one = (_scores(model, np.zeros(n), "decision_function", classes) for n in (2, 1))
        np.testing.assert_array_equal(both[:1], one)
        np.testing.assert_array_equal(both[:, [0, 2]], response)
        assert (both[:, 1] < response.min(axis=1) - 9).all()

    def test_one_margin_is_the_second_class_s(self):
        model = self.Model([0, 1], np.array([-1.0, 2.0]))
        aligned = _scores(model, np.zeros(2), "decision_function", np.array([0, 1]))
        np.testing.assert_array_equal(aligned, [[0, -1], [0, 2]])


class TestMistakes:
    @pytest.mark.parametrize(
        ("y", "message"),
        [(np.zeros(500), "1 class only"), (np.linspace(0, 1, 500), "continuous"), (np.zeros(20), "inconsistent")],
    )
    def test_unusable_targets(self, data, y, message):
        with pytest.raises(ValueError, match=message):
            CAPClassifierCV(LogisticRegression()).fit(data[0], y)

    def test_nan_features_are_the_model_s_to_refuse(self, data):
        X, y = data
        with pytest.raises(ValueError, match="NaN"):
            CAPClassifierCV(LogisticRegression()).fit(np.where(X > 2, np.nan, X), y)

    def test_pairwise_margins_are_refused(self, data):
        X, y = data
        for model in (SVC(decision_function_shape="ovo"), make_pipeline(SVC(decision_function_shape="ovo"))):
            with pytest.raises(InputError, match=r'gives 3 scores for 3 classes.*decision_function_shape="ovr"'):
                CAPClassifierCV(model, cv=2).fit(X, y)
        assert CAPClassifierCV(SVC(), borrow=0, cv=2, bootstrap=0).fit(X, y).validation_.in_sample > 0

    def test_models_without_scores(self, data):
        class Silent(ClassifierMixin, BaseEstimator):
            def fit(self, X, y):
                self.classes_ = np.unique(y)
                return self

        with pytest.raises(InputError, match="neither predict_proba nor decision_function"):
            CAPClassifierCV(Silent()).fit(*data)

    def test_predicting_before_fitting(self, data):
        with pytest.raises(NotFittedError):
            CAPClassifierCV(LogisticRegression()).predict(data[0])

    def test_a_model_without_any_signal_is_left_alone(self, data):
        model = CAPClassifierCV(DummyClassifier(strategy="prior"), "plain", cv=3, borrow=0, bootstrap=0).fit(*data)
        assert (model.policy_.strategy.l == 0).all()
        assert model.adjuster_.reason_.startswith("nothing found beats the unadjusted scores")

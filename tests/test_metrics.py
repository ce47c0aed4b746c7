"""Metrics and scorers of scikit-learn as objectives: the same figures as by a direct call."""

from functools import partial

import numpy as np
import pytest
from sklearn import metrics

from capri import AbsentClassWarning, CAPClassifierCV, InputError, LogitAdjuster, as_objective, evaluate
from capri.forms import ClassContext, ConfusionForm, Form
from capri.metrics import as_metric, refuse_scores

NAMES = ("cat", "dog", "lynx", "wolf")


@pytest.fixture
def decisions(rng):
    y = np.concatenate([np.arange(4), rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])])
    predicted = np.where(rng.uniform(size=len(y)) < 0.6, y, rng.integers(4, size=len(y)))
    return y, predicted, rng.uniform(0.2, 3, len(y))


def value(metric, y, predicted, **known):
    (found,) = evaluate(y, predicted, known.pop("n_classes", 4), [metric], **known).values()
    return found


def weighted_kappa(y, p, sample_weight=None):
    return metrics.cohen_kappa_score(y, p, weights="quadratic", sample_weight=sample_weight)


class TestValues:
    @pytest.mark.parametrize("with_weights", [False, True])
    @pytest.mark.parametrize("with_names", [False, True])
    @pytest.mark.parametrize(
        ("metric", "direct", "greater"),
        [
            (metrics.accuracy_score, metrics.accuracy_score, True),
            (metrics.balanced_accuracy_score, metrics.balanced_accuracy_score, True),
            (metrics.cohen_kappa_score, metrics.cohen_kappa_score, True),
            (metrics.matthews_corrcoef, metrics.matthews_corrcoef, True),
            (metrics.zero_one_loss, metrics.zero_one_loss, False),
            (metrics.hamming_loss, metrics.hamming_loss, False),
            (metrics.get_scorer("f1_macro"), partial(metrics.f1_score, average="macro"), True),
            (metrics.get_scorer("f1_weighted"), partial(metrics.f1_score, average="weighted"), True),
            (metrics.get_scorer("accuracy"), metrics.accuracy_score, True),
            (metrics.get_scorer("jaccard_macro"), partial(metrics.jaccard_score, average="macro"), True),
            (metrics.make_scorer(metrics.hamming_loss, greater_is_better=False), metrics.hamming_loss, False),
            (metrics.make_scorer(weighted_kappa), weighted_kappa, True),
            (
                partial(metrics.precision_score, average="macro"),
                partial(metrics.precision_score, average="macro"),
                True,
            ),
            (
                metrics.make_scorer(metrics.fbeta_score, beta=2, average="macro"),
                partial(metrics.fbeta_score, beta=2, average="macro"),
                True,
            ),
        ],
    )
    def test_are_those_of_a_direct_call(self, decisions, metric, direct, greater, with_names, with_weights):
        y, predicted, weight = decisions
        weight = weight if with_weights else None
        labels = np.array(NAMES) if with_names else np.arange(4)
        expected = direct(labels[y], labels[predicted], sample_weight=weight)
        known = {"class_names": NAMES} if with_names else {}
        found = value(metric, y, predicted, sample_weight=weight, **known)
        assert found == pytest.approx(1 - expected if greater else expected)

    @pytest.mark.parametrize(
        ("metric", "ours"),
        [
            (metrics.accuracy_score, "plain"),
            (metrics.zero_one_loss, "plain"),
            (metrics.balanced_accuracy_score, "balanced"),
            (metrics.get_scorer("balanced_accuracy"), "balanced"),
            (metrics.make_scorer(metrics.f1_score, average="macro"), "macro_f1"),
            (metrics.get_scorer("f1_weighted"), "weighted_f1"),
        ],
    )
    def test_that_are_objectives_here_are_searched_as_these(self, metric, ours):
        context = ClassContext.of([50, 30, 20])
        found, named = as_objective(metric).on(context), as_objective(ours).on(context)
        assert isinstance(found, Form | ConfusionForm)
        for part in vars(named):
            np.testing.assert_array_equal(getattr(found, part), getattr(named, part))

    def test_of_another_setting_are_not(self, decisions):
        y, predicted, _ = decisions
        adjusted = partial(metrics.balanced_accuracy_score, adjusted=True)
        assert value(adjusted, y, predicted) == pytest.approx(1 - adjusted(y, predicted))

    @pytest.mark.parametrize("name", ["f1_macro", "balanced_accuracy", "jaccard_macro"])
    @pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
    def test_where_a_class_is_absent_but_predicted(self, name):
        y, predicted, scorer = np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, 0]), metrics.get_scorer(name)
        with pytest.warns(AbsentClassWarning):
            found = value(scorer, y, predicted, n_classes=3, absent="ignore")
        assert found == pytest.approx(1 - scorer._score_func(y, predicted, **scorer._kwargs))

    def test_for_two_classes_1_is_the_positive_one(self):
        y, predicted = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0])
        assert value(metrics.f1_score, y, predicted, n_classes=2) == pytest.approx(1 - metrics.f1_score(y, predicted))

    def test_of_whole_numbers_as_labels_know_their_order(self):
        assert value(metrics.mean_absolute_error, [0, 1, 2, 3], [3, 1, 2, 3]) == pytest.approx(0.75)

    def test_without_sample_weight_are_of_repeated_cells(self, decisions):
        def share_of_lynx_score(y_true, y_pred):
            assert len(y_true) == 304
            return np.mean(y_pred == "lynx")

        y, predicted, weight = decisions
        found = value(share_of_lynx_score, y, predicted, class_names=NAMES)
        assert found == pytest.approx(1 - np.mean(predicted == 2))
        with pytest.raises(InputError, match="share_of_lynx_score takes no sample_weight, and samples have fractions"):
            value(share_of_lynx_score, y, predicted, class_names=NAMES, sample_weight=weight)

    def test_add_up(self, decisions):
        y, predicted, _ = decisions
        both = as_objective(metrics.hamming_loss) + 0.5 * as_objective("worst")
        parts = evaluate(y, predicted, 4, [metrics.hamming_loss, "worst"])
        assert value(both, y, predicted) == pytest.approx(parts["hamming_loss"] + 0.5 * parts["worst"])


class TestReading:
    @pytest.mark.parametrize(
        ("metric", "name"),
        [
            (metrics.balanced_accuracy_score, "balanced_accuracy_score"),
            (metrics.get_scorer("accuracy"), "accuracy_score"),
            (metrics.get_scorer("f1_macro"), "f1_score(average='macro')"),
            (partial(metrics.fbeta_score, beta=2, average="macro"), "fbeta_score(beta=2, average='macro')"),
        ],
    )
    def test_names(self, metric, name):
        assert as_objective(metric).name == name

    @pytest.mark.parametrize("function", [np.max, max, np.add.reduce, lambda e, power=2: e.max() ** power])
    def test_functions_of_one_argument_are_of_the_class_errors(self, function):
        assert as_metric(function) is None
        assert as_objective(function).on(ClassContext.of([1, 1]))(np.array([0.0, 1.0])) == 1.0

    @pytest.mark.parametrize(
        ("metric", "says"),
        [
            (metrics.roc_auc_score, r"roc_auc_score judges probabilities \(it takes y_score\)"),
            (metrics.log_loss, "log_loss judges probabilities"),
            (metrics.brier_score_loss, "brier_score_loss judges probabilities"),
            (metrics.get_scorer("roc_auc_ovr"), "judges probabilities .* give a metric of labels"),
            (
                metrics.get_scorer("neg_log_loss"),
                r"log_loss judges probabilities \(this scorer asks for predict_proba\)",
            ),
            (
                lambda y_true, y_pred: 0,
                r"is a greater <lambda> better\? .*make_scorer\(<lambda>, greater_is_better=…\)",
            ),
            (lambda estimator, X, y: 0, r"<lambda> takes 3 arguments; give .* metric\(y_true, y_pred\)"),
        ],
    )
    def test_what_is_no_metric_of_labels_is_refused(self, metric, says):
        with pytest.raises(InputError, match=says):
            as_objective(metric)

    def test_what_a_metric_says_of_these_classes_is_told(self, decisions):
        with pytest.raises(InputError, match=r"f1_score cannot be computed of these classes: Target is multiclass"):
            value(metrics.f1_score, *decisions[:2])
        with pytest.raises(InputError, match=r"f1_score\(average='no'\) cannot be computed"):
            value(partial(metrics.f1_score, average="no"), *decisions[:2])

    @pytest.mark.parametrize("name", ["f1_micro", "jaccard_macro"])
    def test_names_of_scorers_are_known(self, name):
        with pytest.raises(
            InputError, match=rf"unknown objective '{name}'.*pass sklearn.metrics.get_scorer\('{name}'\)"
        ):
            as_objective(name)

    @pytest.mark.parametrize(
        ("name", "judged"),
        [
            ("roc_auc", "how the scores rank the samples"),
            ("roc_auc_ovr_weighted", "how the scores rank the samples"),
            ("AUC", "how the scores rank the samples"),
            ("average_precision", "how the scores rank the samples"),
            ("log_loss", "probabilities"),
            ("neg_log_loss", "probabilities"),
            ("brier", "probabilities"),
            ("neg_brier_score", "probabilities"),
            ("top_k_accuracy", "the k best classes of a sample"),
            ("top5", "the k best classes of a sample"),
        ],
    )
    def test_names_of_what_decisions_cannot_change_are_refused(self, name, judged):
        says = (
            f"objective '{name}' judges {judged}, and a policy changes decisions only; give an objective of decisions"
        )
        with pytest.raises(InputError, match=says):
            as_objective(name)
        with pytest.raises(InputError, match=says):
            as_objective(f"0.5*balanced+0.5*{name}")

    def test_what_judges_decisions_is_not_taken_for_such(self):
        for name in metrics.get_scorer_names():
            metric = metrics.get_scorer(name)
            if metric._response_method == "predict":
                assert as_objective(metric).name.startswith(metric._score_func.__name__)
                refuse_scores(name)


class TestTuning:
    @pytest.fixture
    def data(self, rng):
        y = np.repeat([0, 1, 2], 20)
        return rng.normal(size=(60, 3)) + 2 * np.eye(3)[y] + np.log([0.9, 0.09, 0.01]), y

    def test_by_a_metric_is_tuning_by_the_objective_that_it_is(self, data):
        by_metric = LogitAdjuster(metrics.balanced_accuracy_score, bootstrap=0).fit(*data, class_counts=[90, 9, 1])
        by_name = LogitAdjuster("balanced", bootstrap=0).fit(*data, class_counts=[90, 9, 1])
        np.testing.assert_array_equal(by_metric.strategy_.l, by_name.strategy_.l)
        reached = metrics.balanced_accuracy_score(data[1], by_metric.predict(data[0]))
        assert by_metric.validation_.after["balanced_accuracy_score"] == pytest.approx(1 - reached)

    def test_by_any_metric_lowers_it(self, data):
        scorer = metrics.get_scorer("jaccard_macro")
        adjuster = LogitAdjuster(scorer, method="la", borrow=0, target_shares="validation", bootstrap=0)
        adjuster.fit(*data, class_counts=[90, 9, 1])
        before, after = (
            metrics.jaccard_score(data[1], predicted, average="macro")
            for predicted in (data[0].argmax(axis=1), adjuster.predict(data[0]))
        )
        assert after > before + 0.1
        assert adjuster.validation_.in_sample == pytest.approx(after - before)
        assert adjuster.policy_.objective == "jaccard_score(average='macro')"

    def test_wrapped_models_take_metrics(self, rng):
        from sklearn.linear_model import LogisticRegression

        y = np.repeat([0, 1, 2], [200, 60, 20])
        X = rng.normal(size=(280, 2)) + y[:, None]
        scorer = metrics.get_scorer("f1_macro")
        model = CAPClassifierCV(LogisticRegression(), objective=scorer, borrow=0, cv=3, bootstrap=0).fit(X, y)
        assert model.validation_.in_sample > 0


def test_numbers_are_sorted_as_numbers(rng):
    y, predicted = rng.integers(1, 13, size=(2, 300))
    quadratic = metrics.make_scorer(metrics.cohen_kappa_score, weights="quadratic")
    value = evaluate(y, predicted, range(1, 13), [quadratic])
    expected = 1 - metrics.cohen_kappa_score(y, predicted, weights="quadratic")
    assert list(value.values()) == pytest.approx([expected])

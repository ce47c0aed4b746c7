"""What skl2onnx makes of capri's estimators decides as they do."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("skl2onnx")
from onnxruntime import InferenceSession
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from capri import CAPClassifierCV, InputError, LogitAdjuster
from capri.onnx import register_converters

register_converters()
NAMES = np.array(["cat", "Ärmel", "lynx"])


def data(k, names=None):
    X, y = make_classification(400, n_classes=k, n_informative=6, weights=[0.7, 0.2, 0.1][:k], random_state=0)
    return X.astype(np.float32), y if names is None else names[y]


def run(model, X, **options):
    session = InferenceSession(to_onnx(model, X[:1], options=options or {"zipmap": False}).SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"X": X}), strict=True))


MODELS = {
    "logistic": (LogisticRegression(), "auto"),
    "logistic, margins": (LogisticRegression(), "decision_function"),
    "linear SVM": (LinearSVC(), "auto"),
    "SVM": (SVC(), "auto"),
    "ridge": (RidgeClassifier(), "auto"),
    "forest": (RandomForestClassifier(20, random_state=0), "auto"),
    "boosting": (GradientBoostingClassifier(n_estimators=5), "auto"),
    "boosting, margins": (GradientBoostingClassifier(n_estimators=5), "decision_function"),
    "bayes": (GaussianNB(), "auto"),
    "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), "auto"),
    "pipeline, margins": (make_pipeline(StandardScaler(), LinearSVC()), "auto"),
}


@pytest.mark.filterwarnings("ignore:Attribute `prob:FutureWarning")  # which skl2onnx looks at, of SVC
@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("which", MODELS)
def test_classifiers_of_every_kind(which, k, names):
    (X, y), (model, kind) = data(k, names), MODELS[which]
    tuned = CAPClassifierCV(model, response_method=kind, cv=2, bootstrap=0).fit(X, y)
    found = run(tuned, X)
    assert list(found) == ["label", "probabilities"]
    expected = tuned.predict(X)
    margin = np.sort(tuned.adjuster_.transform(own_scores(tuned, X)), axis=1)
    sure = margin[:, -1] - margin[:, -2] > 1e-4  # beyond the float32 of the converted model
    assert sure.mean() > 0.95
    np.testing.assert_array_equal(found["label"][sure], expected[sure])
    np.testing.assert_array_equal(found["label"], tuned.policy_.predict(found["probabilities"]))
    np.testing.assert_allclose(found["probabilities"], own_scores(tuned, X), atol=2e-4)
    assert (expected != tuned.estimator_.predict(X)).any()


def own_scores(tuned, X):
    method = "predict_proba" if tuned.policy_.scores == "proba" else "decision_function"
    scores = getattr(tuned.estimator_, method)(X)
    return np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else scores


def test_at_the_end_of_a_pipeline_and_with_maps():
    X, y = data(3, NAMES)
    pipeline = make_pipeline(StandardScaler(), CAPClassifierCV(LogisticRegression(), bootstrap=0)).fit(X, y)
    found = run(pipeline, X, zipmap=True)
    assert np.mean(found["output_label"] == pipeline.predict(X)) > 0.99
    assert set(found["output_probability"][0]) == set(NAMES)


def test_a_frozen_model():
    X, y = data(3)
    tuned = CAPClassifierCV(FrozenEstimator(LogisticRegression().fit(X, y)), bootstrap=0).fit(X, y)
    assert np.mean(run(tuned, X)["label"] == tuned.predict(X)) > 0.99


def test_labels_by_position():
    X, y = data(3, NAMES)
    tuned = CAPClassifierCV(LogisticRegression(), bootstrap=0).fit(X, y)
    label = run(tuned, X, zipmap=False, nocl=True)["label"]
    assert np.mean(tuned.classes_[label] == tuned.predict(X)) > 0.99


def test_truth_values_are_whole_numbers_as_skl2onnx_has_them():
    X, y = data(2, np.array([False, True]))
    tuned = CAPClassifierCV(LogisticRegression(), bootstrap=0).fit(X, y)
    label = run(tuned, X)["label"]
    assert label.dtype == np.int64
    assert np.mean(label == tuned.predict(X)) > 0.99


def test_labels_that_it_does_not_have_are_refused():
    X, _ = data(2)
    tuned = LogitAdjuster.from_counts({0.5: 9, 1.5: 1})
    with pytest.raises(InputError, match="labels of whole numbers or of text only; convert with the option nocl"):
        to_onnx(tuned, X[:1, :2], options={"zipmap": False})


def test_a_model_that_has_not_met_every_class_is_refused():
    X, y = data(3)
    split = [(np.flatnonzero(y[:200] < 2), np.arange(200, 400))]
    tuned = CAPClassifierCV(LogisticRegression(), cv=split, refit=False, bootstrap=0).fit(X, y)
    with pytest.raises(InputError, match="the model has not met every class"):
        to_onnx(tuned, X[:1])


@pytest.mark.parametrize("kind", ["logits", "proba"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_adjuster_takes_scores(kind, dtype, rng):
    scores = rng.dirichlet([1, 1, 1], 2000).astype(dtype)
    scores = np.log(scores) if kind == "logits" else scores
    adjuster = LogitAdjuster.from_counts({"cat": 70, "dog": 20, "lynx": 10}, scores=kind)
    found = run(adjuster, scores)
    np.testing.assert_array_equal(found["label"], adjuster.predict(scores))
    np.testing.assert_allclose(found["probabilities"], adjuster.transform(scores), rtol=1e-5, atol=1e-5)
    assert found["probabilities"].dtype == dtype

"""A policy that may leave samples undecided, in ONNX and in torch: open where Python leaves them open."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from capri import CAPClassifierCV, InputError, Policy, Strategy
from capri.onnx import register_converters, with_policy
from capri.onnx.graph import LEAST_OPSET

from .test_graph import TYPES, identity, run, sample


def opened(k, kind, rng, dtype=np.float32, rows=10_000):
    policy, scores = sample(k, kind, rng, dtype, rows)
    return replace(policy, thresholds=(0.0, *rng.uniform(0, 1.5, k - 1).tolist())), scores


def expected(policy, scores, none=""):
    return np.array([none if label is None else label for label in policy.predict(scores)])


@pytest.mark.parametrize("k", [2, 3, 10, 100, 1000])
def test_of_any_number_of_classes(k, rng):
    policy, scores = opened(k, "logits", rng, rows=10_000 if k <= 100 else 2000)
    found = run(with_policy(identity(k), policy), scores)
    np.testing.assert_array_equal(found["label"], expected(policy, scores))
    np.testing.assert_array_equal(found["accepted"], policy.accepts(scores))
    assert 0.005 < 1 - found["accepted"].mean() < 0.9
    assert list(found) == ["logits", "label", "adjusted_scores", "accepted"]


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("opset", [LEAST_OPSET, 9, 11, 13, 18, 21])
def test_of_any_opset_and_number_type(opset, dtype, rng):
    policy, scores = opened(4, "logits", rng, dtype, rows=2000)
    found = run(with_policy(identity(4, dtype, opset), policy), scores)
    np.testing.assert_array_equal(found["label"], expected(policy, scores))


def test_of_probabilities_but_for_a_logarithm_s_rounding(rng):
    policy, scores = opened(5, "proba", rng)
    found = run(with_policy(identity(5), policy), scores)
    assert (found["label"] != expected(policy, scores)).mean() < 1e-3


@pytest.mark.parametrize(
    ("labels", "none"), [((3, 1, 7), -1), ((-1, 0, 1), np.iinfo(np.int64).min), ((0.5, 1.5, 2.5), np.nan)]
)
def test_undecided_is_the_label_of_no_class(labels, none, rng):
    policy = Policy(Strategy.of(3), "plain", labels, thresholds=(1.0, 1.0, 1.0))
    scores = rng.normal(size=(500, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        run(with_policy(identity(3), policy), scores)["label"], expected(policy, scores, none)
    )


@pytest.mark.parametrize("labels", [(True, False), ("", "a")])
def test_labels_that_leave_no_room_are_refused(labels):
    policy = Policy(Strategy.of(2), "plain", labels, thresholds=(1.0, 1.0))
    with pytest.raises(InputError, match="leave no label for undecided samples"):
        with_policy(identity(2), policy)


@pytest.mark.parametrize("names", [None, np.array(["cat", "dog", "lynx"])])
def test_a_classifier_goes_through_skl2onnx(names):
    onnx = pytest.importorskip("skl2onnx")
    X, y = make_classification(600, n_classes=3, n_informative=6, weights=[0.7, 0.2, 0.1], random_state=0)
    X, y = X.astype(np.float32), y if names is None else names[y]
    tuned = CAPClassifierCV(LogisticRegression(), "worst", cv=2, bootstrap=0, reject=0.2).fit(X, y)
    register_converters()
    model = onnx.to_onnx(tuned, X[:1], options={"zipmap": False})
    label = run_first(model, X)
    wanted = expected(tuned, X, -1 if names is None else "")
    assert (label == wanted).mean() > 0.99  # the model itself is computed in float32
    assert (label == wanted.dtype.type(-1 if names is None else "")).any()


def run_first(model, X):
    from onnxruntime import InferenceSession

    session = InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: X})[0]


def test_torch_says_which_are_decided(rng):
    torch = pytest.importorskip("torch")
    policy, scores = opened(6, "logits", rng)
    adjusted, accepted = policy.as_module()(torch.tensor(scores))
    np.testing.assert_array_equal(accepted.numpy(), policy.accepts(scores))
    np.testing.assert_array_equal(adjusted.numpy(), policy.apply(scores))

"""A policy folded into the last layer decides what the policy decides, and leaves the layer that was given alone."""

import numpy as np
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from torch.nn.utils.parametrizations import weight_norm

from capri import CAPClassifierCV, InputError, LogitAdjuster, Policy, Strategy, fold


@pytest.fixture
def policy():
    strategy = Strategy.of(3, l=[0.5, -1.0, 0.25], delta=[1.0, 2.0, 0.5])
    return Policy(strategy, objective="balanced", classes=("a", "b", "c"))


def softmax(scores):
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def offsets(k, *, scores="proba", spread=4.0, **fields):
    """A policy on probabilities (or logits) with random offsets and whole numbers as labels."""
    l = np.random.default_rng(3).uniform(-spread / 2, spread / 2, k)
    return Policy(Strategy.of(k, l=l), "balanced", classes=tuple(range(k)), scores=scores, **fields)


def columns(margins):
    """Scores (n, K); one margin for two classes stands for (0, z)."""
    return np.column_stack([np.zeros(len(margins)), margins]) if margins.ndim == 1 else margins


class TestTorch:
    def test_a_new_layer_gives_the_adjusted_scores(self, policy, rng):
        layer = torch.nn.Linear(7, 3)
        x = torch.from_numpy(rng.normal(size=(20, 7)).astype(np.float32))
        expected = policy.apply(layer(x).detach().numpy())
        folded = fold(layer, policy)
        np.testing.assert_allclose(folded(x).detach().numpy(), expected, atol=1e-5)
        assert folded.weight.requires_grad
        assert folded.weight.dtype == torch.float32
        assert set(folded.state_dict()) == {"weight", "bias"}

    def test_the_layer_stays_as_it_was(self, policy, rng):
        """So that folding and then applying the policy to the old layer's scores adjusts once."""
        layer = torch.nn.Linear(7, 3)
        x = torch.from_numpy(rng.normal(size=(20, 7)).astype(np.float32))
        before = layer(x).detach().numpy()
        folded = fold(layer, policy)
        np.testing.assert_array_equal(layer(x).detach().numpy(), before)
        np.testing.assert_allclose(policy.apply(layer(x).detach().numpy()), folded(x).detach().numpy(), atol=1e-5)

    def test_a_layer_without_bias_gets_one(self, policy, rng):
        layer = torch.nn.Linear(7, 3, bias=False).double()
        x = torch.from_numpy(rng.normal(size=(20, 7)))
        folded = fold(layer, policy)
        np.testing.assert_allclose(folded(x).detach().numpy(), policy.apply(layer(x).detach().numpy()))
        assert layer.bias is None

    def test_before_a_softmax_policies_on_probabilities_fold(self, rng):
        layer, policy = torch.nn.Linear(7, 5).double(), offsets(5)
        x = torch.from_numpy(rng.normal(size=(4000, 7), scale=5))
        decided = fold(layer, policy, softmax=True)(x).argmax(dim=1)
        np.testing.assert_array_equal(decided, policy.predict(torch.softmax(layer(x), 1).detach().numpy()))

    @pytest.mark.parametrize(
        ("network", "says"),
        [
            (
                torch.nn.Sequential(torch.nn.Linear(7, 3)),
                r"a Sequential, .*net\[-1\] = capri\.fold\(net\[-1\], policy\)",
            ),
            (torch.nn.TransformerEncoderLayer(4, 2), r"last Linear can be folded .* net\.fc = capri\.fold"),
            (torch.nn.Embedding(3, 7), "last Linear can be folded"),
            (weight_norm(torch.nn.Linear(7, 3)), "weight is computed anew each time .* remove the parametrization"),
        ],
        ids=["sequential", "network", "embedding", "weight norm"],
    )
    def test_what_does_not_fold_is_named(self, policy, network, says):
        with pytest.raises(InputError, match=says):
            fold(network, policy)

    def test_in_a_network_the_last_layer_is_put_back(self, policy, rng):
        net = torch.nn.Sequential(torch.nn.Linear(7, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)).double()
        x = torch.from_numpy(rng.normal(size=(20, 7)))
        expected = policy.apply(net(x).detach().numpy())
        net[-1] = fold(net[-1], policy)
        np.testing.assert_allclose(net(x).detach().numpy(), expected)


class TestArrays:
    def test_come_back_new(self, policy, rng):
        weight, bias, x = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=(10, 4))
        kept = weight.copy(), bias.copy()
        new_weight, new_bias = fold((weight, bias), policy)
        np.testing.assert_allclose(x @ new_weight.T + new_bias, policy.apply(x @ weight.T + bias))
        np.testing.assert_array_equal(weight, kept[0])
        np.testing.assert_array_equal(bias, kept[1])

    def test_without_bias_get_one(self, policy, rng):
        weight, x = rng.normal(size=(3, 4)), rng.normal(size=(10, 4))
        new_weight, new_bias = fold((weight, None), policy)
        np.testing.assert_allclose(x @ new_weight.T + new_bias, policy.apply(x @ weight.T))

    @pytest.mark.parametrize("scores", ["logits", "proba"])
    def test_of_one_score_for_two_classes(self, rng, scores):
        strategy = Strategy.of(2, l=[0.3, -0.9], delta=[3.0, 0.5] if scores == "logits" else None)
        policy = Policy(strategy, "balanced", classes=("no", "yes"), scores=scores)
        weight, bias, x = rng.normal(size=(1, 4)), rng.normal(size=1), rng.normal(size=(4000, 4))
        given = columns((x @ weight.T + bias)[:, 0])
        new_weight, new_bias = fold((weight, bias), policy, softmax=True)
        yes = (x @ new_weight.T + new_bias)[:, 0] > 0
        expected = policy.predict(softmax(given) if scores == "proba" else given)
        np.testing.assert_array_equal(np.where(yes, "yes", "no"), expected)
        assert 0 < yes.mean() < 1

    @pytest.mark.parametrize(
        "layer",
        [
            (np.ones((2, 5)), np.ones(2)),
            (np.ones((3, 5)), np.ones(5)),
            (np.ones((1, 5)), np.ones(1)),
            (np.ones(3), None),
        ],
        ids=["weight", "bias", "one row", "flat"],
    )
    def test_of_another_shape_are_refused(self, policy, layer):
        with pytest.raises(InputError, match=r"the policy needs \(3, n\) and \(3,\)"):
            fold(layer, policy)

    @pytest.mark.parametrize(
        ("layer", "says"),
        [
            ((1j * np.ones((3, 4)), np.zeros(3)), "weight must be real numbers; got"),
            ((np.full((3, 4), "a"), np.zeros(3)), "weight must be real numbers; got"),
            ((np.full((3, 4), np.nan), np.zeros(3)), r"weight\[0, 0\] is nan; 12 entries are NaN or infinite"),
            ((np.ones((3, 4)), np.zeros(3) * 1j), "bias must hold one number per class"),
            ((np.ones((3, 4)), [0, np.inf, 0]), r"bias\[1\] is inf"),
        ],
    )
    def test_of_no_real_numbers_are_refused(self, policy, layer, says):
        with pytest.raises(InputError, match=says):
            fold(layer, policy)

    @pytest.mark.parametrize("other", [None, "policy.json", {}])
    def test_what_is_no_policy_is_refused(self, other):
        with pytest.raises(InputError, match=r"policy is .+; give a Policy, such as Policy.load"):
            fold((np.ones((3, 4)), np.zeros(3)), other)

    @pytest.mark.parametrize("layer", [(np.ones((3, 5)),), [1, 2], "fc", None])
    def test_what_is_no_layer_is_refused(self, policy, layer):
        with pytest.raises(InputError, match=r"cannot be folded; give a torch\.nn\.Linear, a linear classifier"):
            fold(layer, policy)


def imbalanced(k, n=3000):
    shares = np.array([0.9, 0.1] if k == 2 else [0.7, 0.2, 0.07, 0.03])
    return make_classification(n, n_classes=k, n_informative=6, weights=shares, class_sep=0.7, random_state=0)


class TestModels:
    @pytest.mark.parametrize("k", [2, 4])
    @pytest.mark.parametrize(
        "model",
        [
            LogisticRegression(),
            LogisticRegression(fit_intercept=False),
            RidgeClassifier(fit_intercept=False),
            SGDClassifier(random_state=0),
            LinearSVC(random_state=0),
            LinearDiscriminantAnalysis(),
        ],
        ids=lambda m: type(m).__name__,
    )
    def test_predict_as_the_policy_on_their_scores(self, model, k):
        X, y = imbalanced(k)
        model.fit(X, y)
        scores, before = columns(model.decision_function(X)), model.predict(X)
        rng = np.random.default_rng(1)
        strategy = Strategy.of(k, l=rng.normal(size=k) * scores.std(), delta=rng.uniform(0.5, 2, k))
        policy = Policy(strategy, "balanced", classes=model.classes_)
        folded = fold(model, policy)
        np.testing.assert_array_equal(folded.predict(X), policy.predict(scores), strict=True)
        np.testing.assert_array_equal(model.predict(X), before)
        assert (folded.predict(X) != before).any()
        assert type(folded) is type(model)

    @pytest.mark.parametrize("k", [2, 4])
    @pytest.mark.parametrize("model", [LogisticRegression(C=100), LinearDiscriminantAnalysis()])
    def test_that_are_softmax_fold_policies_on_probabilities(self, model, k):
        X, y = imbalanced(k)
        model.fit(X, y)
        proba = model.predict_proba(X)
        policy = LogitAdjuster("worst", scores="proba", pooling=None, bootstrap=1).fit(proba, y).policy_
        folded = fold(model, policy)
        np.testing.assert_array_equal(folded.predict(X), policy.predict(proba), strict=True)
        assert (folded.predict(X) != model.predict(X)).any()

    def test_sparse_coefficients_fold(self, rng):
        X, y = imbalanced(4)
        model = LogisticRegression().fit(X, y)
        policy = offsets(4, scores="logits")
        expected = policy.predict(model.decision_function(X))
        np.testing.assert_array_equal(fold(model.sparsify(), policy).predict(X), expected)

    def test_what_a_wrapped_model_was_tuned_to_is_folded_into_it(self):
        X, y = imbalanced(4, 800)
        tuned = CAPClassifierCV(LogisticRegression(), pooling=None).fit(X, y)
        folded = fold(tuned.estimator_, tuned.policy_)
        np.testing.assert_array_equal(folded.predict(X), tuned.predict(X))

    @pytest.mark.parametrize(
        ("model", "says"),
        [
            (
                SGDClassifier(loss="log_loss", random_state=0),
                r"SGDClassifier's scores: .* not their softmax \(one class",
            ),
            (OneVsRestClassifier(LinearDiscriminantAnalysis()), "a OneVsRestClassifier, whose scores are not X coef_ᵀ"),
            (
                CalibratedClassifierCV(LinearDiscriminantAnalysis(), cv=2),
                r"a CalibratedClassifierCV, .* use policy\.apply",
            ),
            (RandomForestClassifier(5, random_state=0), r"a RandomForestClassifier, .* use policy\.apply"),
            (SVC(kernel="linear"), "a SVC, whose scores are not X coef_ᵀ"),
            (make_pipeline(StandardScaler(), LogisticRegression()), r"a Pipeline, .*capri\.fold\(pipe\[-1\], policy\)"),
        ],
        ids=lambda m: type(m).__name__ if hasattr(m, "fit") else "",
    )
    def test_that_do_not_fold_are_named(self, model, says):
        X, y = load_iris(return_X_y=True)
        with pytest.raises(InputError, match=says):
            fold(model.fit(X, y), offsets(3))

    def test_in_a_pipeline_the_last_step_is_folded(self):
        X, y = load_iris(return_X_y=True)
        pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
        policy = offsets(3)
        folded = make_pipeline(*pipe[:-1], fold(pipe[-1], policy))
        np.testing.assert_array_equal(folded.predict(X), policy.predict(pipe.predict_proba(X)))

    def test_that_are_not_fitted_are_refused(self, policy):
        with pytest.raises(InputError, match="this LogisticRegression is not fitted"):
            fold(LogisticRegression(), policy)

    def test_of_other_classes_are_refused(self, policy):
        X, y = load_iris(return_X_y=True)
        with pytest.raises(InputError, match="is of classes 0, 1, 2 …, the policy of a, b, c …"):
            fold(LinearDiscriminantAnalysis().fit(X, y), policy)

    @pytest.mark.parametrize(
        ("model", "multi_class", "k", "folds"),
        [
            (LogisticRegression(), "ovr", 4, False),
            (LogisticRegression(), "ovr", 2, True),
            (LogisticRegression(), "multinomial", 4, True),
            (LogisticRegression(), "multinomial", 2, False),
            (LogisticRegression(), "deprecated", 4, True),
        ],
    )
    def test_of_an_older_scikit_learn_that_were_told_otherwise(self, model, multi_class, k, folds):
        X, y = imbalanced(k, 400)
        model.fit(X, y).multi_class = multi_class
        if folds:
            fold(model, offsets(k))
            return
        with pytest.raises(InputError, match="not their softmax"):
            fold(model, offsets(k))


class TestProbabilities:
    def test_need_a_softmax(self):
        for layer in (torch.nn.Linear(7, 3), (np.ones((3, 7)), np.ones(3))):
            with pytest.raises(InputError, match=r"adjusts probabilities and cannot .* say softmax=True"):
                fold(layer, offsets(3))

    def test_take_no_multipliers(self, policy):
        proba = Policy(policy.strategy, "balanced", policy.classes, scores="proba")
        with pytest.raises(InputError, match=r"multiplies logarithms of probabilities.*use policy\.apply"):
            fold((np.ones((3, 7)), np.ones(3)), proba, softmax=True)

    @pytest.mark.parametrize("k", [2, 3, 10])
    def test_are_decided_alike_up_to_the_widest_offsets_that_the_floor_allows(self, k, rng):
        floor = 1e-3
        l = np.linspace(0, -np.log(floor * k), k)  # as wide as may be
        policy = Policy(Strategy.of(k, l=l), "balanced", classes=tuple(range(k)), scores="proba", floor=floor)
        weight, bias, x = rng.normal(size=(k, 4), scale=3), rng.normal(size=k), rng.normal(size=(20_000, 4))
        o = x @ weight.T + bias
        assert (softmax(o) < floor).any()
        new_weight, new_bias = fold((weight, bias), policy, softmax=True)
        np.testing.assert_array_equal((x @ new_weight.T + new_bias).argmax(axis=1), policy.predict(softmax(o)))

    def test_beyond_that_the_floor_could_decide(self):
        wider = Policy(Strategy.of(3, l=[0.0, 1.0, 8.0]), "balanced", classes=tuple("abc"), scores="proba", floor=1e-3)
        p = np.array([[2e-5, 0.0, 1 - 2e-5]])  # 'a' wins by its floor; by its own p it would not
        assert wider.predict(p) == "a"
        assert (np.log(p[:, [0, 2]]) - wider.strategy.l[[0, 2]]).argmax() == 1
        with pytest.raises(
            InputError, match=r"differ by up to 8, so probabilities below its floor of 0\.001 could decide"
        ):
            fold((np.eye(3), np.zeros(3)), wider, softmax=True)


class TestTwice:
    def test_is_refused(self, policy):
        X, y = load_iris(return_X_y=True)
        model, numbered = LinearDiscriminantAnalysis().fit(X, y), offsets(3)
        for layer, rule in ((torch.nn.Linear(7, 3), policy), (model, numbered)):
            folded = fold(layer, rule)
            assert folded.capri_policy_ == rule.digest
            with pytest.raises(InputError, match=f"this {type(layer).__name__} holds a policy already"):
                fold(folded, rule)

    def test_is_no_matter_for_what_was_given(self, policy):
        layer = torch.nn.Linear(7, 3)
        first, second = fold(layer, policy), fold(layer, policy)
        torch.testing.assert_close(first.weight, second.weight)


def test_a_loss_is_refused(policy):
    loss = Policy(policy.strategy, "balanced", policy.classes, side="loss")
    with pytest.raises(InputError, match="this policy is a loss"):
        fold(torch.nn.Linear(7, 3), loss)

"""Strategies: signs, named special cases as identities, and the paper's Fisher corollary."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from torch.nn.functional import cross_entropy

from capri import Attributes, InputError, Strategy, build_dictionary, class_errors, evaluate
from capri.attributes import frequency
from capri.dictionary import identity_dictionary
from capri.errors import softmax
from capri.strategy import DELTA_FORMS, omega_from


@pytest.fixture
def batch(rng):
    return rng.normal(0, 3, (64, 10)), rng.integers(10, size=64)


def torch_loss(scores, y, weight=None):
    weight = None if weight is None else torch.tensor(weight)
    return cross_entropy(torch.tensor(scores), torch.tensor(y), weight=weight, reduction="none").numpy()


def same(first, second):
    for part in ("omega", "l", "delta", "smoothing"):
        np.testing.assert_allclose(getattr(first, part), getattr(second, part), rtol=1e-12, atol=1e-12)


class TestLoss:
    def test_is_the_paper_s_formula(self, batch, rng):
        omega, l, delta = rng.uniform(0.5, 2, 10), rng.normal(size=10), rng.uniform(0.5, 2, 10)
        f, y = batch
        expected = []
        for row, k in zip(f, y, strict=True):
            others = [np.exp(l[j] - l[k]) * np.exp(delta[j] * row[j] - delta[k] * row[k]) for j in range(10) if j != k]
            expected.append(omega[k] * np.log1p(sum(others)))
        np.testing.assert_allclose(Strategy(omega, l, delta).loss(f, y), expected)

    def test_of_the_neutral_strategy_is_cross_entropy(self, batch):
        np.testing.assert_allclose(Strategy.of(10).loss(*batch), torch_loss(*batch))

    @pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
    def test_of_logit_adjustment_is_cross_entropy_of_shifted_logits(self, batch, counts, tau):
        scores, y = batch
        shifted = scores + tau * np.log(counts / counts.sum())
        np.testing.assert_allclose(Strategy.logit_adjustment(counts, tau).loss(scores, y), torch_loss(shifted, y))

    def test_of_cdt_divides_logits_as_the_public_code_does(self, batch, counts):
        scores, y = batch
        divided = scores / (counts.max() / counts) ** 0.3
        np.testing.assert_allclose(Strategy.cdt(counts, 0.3).loss(scores, y), torch_loss(divided, y))

    def test_of_vs_both_scales_and_shifts(self, batch, counts):
        scores, y = batch
        moved = scores * (counts / counts.max()) ** 0.2 + 1.5 * np.log(counts / counts.sum())
        np.testing.assert_allclose(Strategy.vs(counts, 1.5, 0.2).loss(scores, y), torch_loss(moved, y))

    def test_of_weights_is_weighted_cross_entropy_without_torch_s_division(self, batch, rng):
        omega = rng.uniform(0.1, 3, 10)
        expected = torch_loss(*batch, weight=omega / omega.mean())
        np.testing.assert_allclose(Strategy.weighted(omega).loss(*batch), expected)

    @pytest.mark.parametrize("weighted", [False, True])
    def test_of_equal_smoothing_is_torch_s(self, batch, rng, weighted):
        omega = rng.uniform(0.1, 3, 10) if weighted else None
        scores, y = torch.tensor(batch[0]), torch.tensor(batch[1])
        weight = None if omega is None else torch.tensor(omega)
        expected = cross_entropy(scores, y, weight=weight, reduction="none", label_smoothing=0.2)
        np.testing.assert_allclose(Strategy.of(10, omega=omega, smoothing=np.full(10, 0.2)).loss(*batch), expected)

    def test_of_smoothing_by_class_is_the_cross_entropy_of_mixed_targets(self, batch, rng):
        (scores, y), epsilon = batch, rng.uniform(0, 0.9, 10)
        targets = (1 - epsilon[y])[:, None] * np.eye(10)[y] + epsilon[y][:, None] / 10
        expected = cross_entropy(torch.tensor(scores), torch.tensor(targets), reduction="none")
        np.testing.assert_allclose(Strategy.of(10, smoothing=epsilon).loss(scores, y), expected)

    def test_stays_finite_for_large_scores(self):
        np.testing.assert_allclose(Strategy.of(2).loss([[1e4, -1e4]], [1]), [2e4])

    @pytest.mark.parametrize(
        ("scores", "y", "says"),
        [
            ([[0.0, np.nan]], [0], r"scores\[0, 1\] is nan"),
            ([[0.0, 1.0, 2.0]], [0], "scores have 3 columns, the strategy 2 classes; give one score per class"),
            ([[0.0, 1.0]], [2], r"y\[0\] is 2, outside 0 … 1"),
            ([[0.0, 1.0]], [-1], r"y\[0\] is -1"),
            ([[0.0, 1.0]], [0.5], r"y\[0\] is 0.5 of type float64"),
            ([[0.0, 1.0]], [0, 1], "y has 2 labels for 1 samples"),
        ],
    )
    def test_refuses_unusable_input(self, scores, y, says):
        with pytest.raises(InputError, match=says):
            Strategy.of(2).loss(scores, y)


class TestIdentities:
    """Class-attribute priors with the right attributes, basis and W are the strategies of the literature."""

    @pytest.fixture
    def log_freq(self, counts):
        return build_dictionary(Attributes.of(freq=frequency(counts)), ["log"], scaling="raw")

    @pytest.mark.parametrize("tau", [-1.0, 0.5, 1.0, 2.5])
    def test_logit_adjustment(self, log_freq, counts, tau):
        cap = Strategy.from_weights(log_freq, w_l=[tau])
        np.testing.assert_array_equal(cap.l, tau * np.log(counts / counts.sum()))
        same(cap, Strategy.logit_adjustment(counts, tau))

    def test_logit_adjustment_through_a_standardised_dictionary_up_to_a_common_shift(self, counts, batch):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), ["log"])
        target = Strategy.logit_adjustment(counts)
        w = np.linalg.lstsq(D.values, target.l - target.l.mean(), rcond=None)[0]
        cap = Strategy.from_weights(D, w_l=w)
        np.testing.assert_allclose(cap.loss(*batch), target.loss(*batch))
        np.testing.assert_array_equal(cap.adjust(batch[0]).argmax(1), target.adjust(batch[0]).argmax(1))

    def test_cdt_in_the_free_form(self, counts):
        pi = frequency(counts)
        D = build_dictionary(Attributes.of(freq=pi), ["log"], scaling="raw", intercept=True)
        cap = Strategy.from_weights(D, w_delta=[-0.3 * np.log(pi.max()), 0.3], delta_form="exp")
        same(cap, Strategy.cdt(counts, 0.3))

    def test_vs_in_the_free_form(self, counts):
        pi = frequency(counts)
        D = build_dictionary(Attributes.of(freq=pi), ["log"], scaling="raw", intercept=True)
        w_delta = [-0.2 * np.log(pi.max()), 0.2]
        cap = Strategy.from_weights(D, w_l=[0, 1.5], w_delta=w_delta, delta_form="exp")
        same(cap, Strategy.vs(counts, 1.5, 0.2))

    def test_identity_attributes_are_the_plain_parametrisation(self, rng):
        D, l, dy = identity_dictionary(10), rng.normal(size=10), rng.normal(size=10)
        cap = Strategy.from_weights(D, w_l=l, w_delta=dy, delta_form="sigmoid")
        same(cap, Strategy.of(10, l=l, delta=1 / (1 + np.exp(-dy))))

    def test_autobalance_s_start(self, counts, rng):
        table = Attributes.of(freq=frequency(counts), diff=rng.uniform(0.1, 0.9, 10))
        D = build_dictionary(table, intercept=True)
        start = Strategy.from_weights(D, w_delta=np.eye(D.shape[1])[0])
        np.testing.assert_allclose(start.delta, 0.7310585786)
        plain = Strategy.from_weights(identity_dictionary(10), w_delta=np.ones(10), delta_form="sigmoid")
        same(start, plain)

    def test_autobalance_s_loss(self, batch):
        scores, y = batch
        dy, ly = np.full(10, 1.0), np.linspace(-1, 1, 10)
        cap = Strategy.from_weights(identity_dictionary(10), w_l=ly, w_delta=dy, delta_form="sigmoid")
        expected = torch_loss(scores * torch.sigmoid(torch.tensor(dy)).numpy() + ly, y)
        np.testing.assert_allclose(cap.loss(scores, y), expected)

    def test_no_w_is_no_change(self, log_freq):
        same(Strategy.from_weights(log_freq), Strategy.of(10))


class TestFisherCorollary:
    """Attributes [freq, weights], basis [log], W = [1, −1]: the Bayes rule of the weighted error."""

    @staticmethod
    def strategy(pi, omega):
        D = build_dictionary(Attributes.of(freq=pi, weights=omega), ["log"], scaling="raw")
        return Strategy.from_weights(D, w_l=[1.0, -1.0])

    def test_offsets_are_log_frequency_minus_log_weight(self, rng):
        pi, omega = rng.dirichlet(np.ones(10)), rng.uniform(0.1, 2, 10)
        np.testing.assert_array_equal(self.strategy(pi, omega).l, np.log(pi) - np.log(omega))

    def test_on_two_gaussians_the_weighted_error_is_the_analytic_optimum(self, rng):
        pi, omega, n = np.array([0.9, 0.1]), np.array([0.4, 1.6]), 400_000
        y = (rng.uniform(size=n) < pi[1]).astype(int)
        x = rng.normal(2 * y - 1, 1)
        log_joint = np.log(pi) + norm.logpdf(x[:, None], [-1, 1])
        log_posterior = log_joint - logsumexp(log_joint, axis=1, keepdims=True)
        predicted = self.strategy(pi, omega).adjust(log_posterior).argmax(axis=1)

        threshold = np.log(omega[0] / omega[1]) / 2  # where ω₀ p(x|0) = ω₁ p(x|1)
        optimum = omega @ [norm.sf(threshold + 1), norm.cdf(threshold - 1)] / 2
        np.testing.assert_array_equal(predicted, x > threshold)
        value = evaluate(y, predicted, 2, ["weighted"], weights=omega)["weighted"]
        assert value == pytest.approx(optimum, abs=0.004)
        unadjusted = evaluate(y, log_posterior.argmax(1), 2, ["weighted"], weights=omega)["weighted"]
        assert unadjusted > optimum + 0.1

    def test_on_four_gaussians_no_other_offsets_do_better(self, rng):
        pi, omega = np.array([0.6, 0.25, 0.1, 0.05]), np.array([0.4, 0.8, 1.8, 1.0])
        means, n = np.array([[0, 0], [1.5, 0], [0, 1.5], [1.2, 1.2]]), 60_000
        y = rng.choice(4, n, p=pi)
        x = rng.normal(means[y], 1)
        log_density = np.column_stack([multivariate_normal(m).logpdf(x) for m in means])
        log_joint = np.log(pi) + log_density
        log_posterior = log_joint - logsumexp(log_joint, axis=1, keepdims=True)
        strategy = self.strategy(pi, omega)
        predicted = strategy.adjust(log_posterior).argmax(axis=1)
        np.testing.assert_array_equal(predicted, (np.log(omega) + log_density).argmax(axis=1))

        def weighted_error(l):
            return omega @ class_errors(y, Strategy.of(4, l=l).adjust(log_posterior).argmax(1), 4) / 4

        best = weighted_error(strategy.l)
        others = [weighted_error(strategy.l + rng.normal(0, s, 4)) for s in (0.5, 1.0) for _ in range(10)]
        assert min(others) > best - 0.002
        assert np.mean(others) > best + 0.01


class TestSigns:
    """One sign: the loss adds l, post-hoc takes it away, and either side corrects the same bias."""

    @pytest.fixture
    def mixture(self, rng):
        pi, n = np.array([0.95, 0.05]), 200_000
        y = (rng.uniform(size=n) < pi[1]).astype(int)
        log_density = norm.logpdf(rng.normal(2 * y - 1, 1)[:, None], [-1, 1])
        log_joint = np.log(pi) + log_density
        return pi, y, log_density, log_joint - logsumexp(log_joint, axis=1, keepdims=True)

    def test_post_hoc_with_plus_log_pi_is_the_balanced_optimum_and_minus_is_worse_than_nothing(self, mixture):
        pi, y, _, log_posterior = mixture

        def balanced_error(tau):
            predicted = Strategy.logit_adjustment(pi, tau).adjust(log_posterior).argmax(1)
            return class_errors(y, predicted, 2).mean()

        assert balanced_error(1.0) == pytest.approx(norm.cdf(-1), abs=0.005)  # 0.159
        assert balanced_error(1.0) < balanced_error(0.0) - 0.1 < balanced_error(-1.0) - 0.15

    def test_the_loss_with_plus_log_pi_is_least_for_scores_without_the_prior(self, mixture):
        pi, y, log_density, log_posterior = mixture
        adjusted = Strategy.logit_adjustment(pi)
        np.testing.assert_allclose(adjusted.loss(log_density, y), -log_posterior[np.arange(len(y)), y], atol=1e-9)
        assert adjusted.loss(log_density, y).mean() < adjusted.loss(log_posterior, y).mean()

    def test_adjust_undoes_what_the_loss_adds(self, batch, counts):
        strategy = Strategy.logit_adjustment(counts)
        np.testing.assert_allclose(strategy.adjust(strategy.loss_scores(batch[0])), batch[0])

    def test_post_hoc_multiplies_and_subtracts(self, batch, rng):
        l, delta = rng.normal(size=10), rng.uniform(0.5, 2, 10)
        np.testing.assert_allclose(Strategy.of(10, l=l, delta=delta).adjust(batch[0]), delta * batch[0] - l)

    def test_post_hoc_leaves_weights_and_smoothing_to_the_loss(self, batch, rng):
        loss_only = Strategy.of(10, omega=rng.uniform(size=10), smoothing=rng.uniform(size=10))
        np.testing.assert_array_equal(loss_only.adjust(batch[0]), batch[0])


class TestTransfer:
    def test_there_and_back_is_the_same_strategy(self, rng):
        strategy = Strategy(rng.uniform(size=10), rng.normal(size=10), rng.uniform(0.3, 3, 10), rng.uniform(size=10))
        same(strategy.transferred().transferred(), strategy)

    def test_without_multipliers_it_changes_nothing(self, counts):
        same(Strategy.logit_adjustment(counts).transferred(), Strategy.logit_adjustment(counts))

    @pytest.mark.parametrize("equal", [True, False])
    def test_a_trained_model_decides_as_post_hoc_would_exactly_for_equal_multipliers(self, rng, equal):
        log_p = np.log(softmax(rng.normal(0, 2, (500, 10))))
        delta = np.full(10, 1.7) if equal else np.linspace(0.5, 2, 10)
        post_hoc = Strategy.of(10, l=rng.normal(size=10), delta=delta)
        loss = post_hoc.transferred()
        free_shift = rng.normal(0, 5, (500, 1))  # cross-entropy does not see it, so training may end anywhere along it
        trained = (log_p - loss.l + free_shift) / loss.delta
        np.testing.assert_allclose(softmax(loss.loss_scores(trained)), np.exp(log_p), atol=1e-12)
        agree = trained.argmax(1) == post_hoc.adjust(log_p).argmax(1)
        assert agree.all() == equal


class TestForms:
    def test_the_paper_s_form_has_a_root_mean_square_of_one_whatever_w(self, counts, rng):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), scaling="raw", intercept=True)
        for size in (1e-3, 1.0, 1e3):
            w = size * rng.normal(size=6)
            delta = Strategy.from_weights(D, w_delta=w).delta
            x = D @ w
            np.testing.assert_allclose(delta, 1 / (1 + np.exp(-np.sqrt(10) * x / np.linalg.norm(x))))
            assert np.mean(np.log(delta / (1 - delta)) ** 2) == pytest.approx(1)

    def test_the_paper_s_form_is_a_half_where_it_is_undefined(self, counts):
        D = build_dictionary(Attributes.of(freq=frequency(counts)))
        np.testing.assert_array_equal(Strategy.from_weights(D, w_delta=np.zeros(D.shape[1])).delta, np.full(10, 0.5))

    @pytest.mark.parametrize(
        ("form", "expected"),
        [("sigmoid", [0.2689414214, 0.5, 0.880797078]), ("exp", np.exp([-1.0, 0.0, 2.0])), ("linear", [0, 1, 3])],
    )
    def test_free_forms(self, form, expected):
        np.testing.assert_allclose(DELTA_FORMS[form](np.array([-1.0, 0.0, 2.0])), expected)

    def test_the_sigmoid_of_a_large_number_is_quiet_and_positive(self):
        low, high = DELTA_FORMS["sigmoid"](np.array([-700.0, 1000.0]))
        assert low == pytest.approx(np.exp(-700.0))
        assert high == 1

    def test_weights_are_positive_with_mean_one(self, counts, rng):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), intercept=True)
        w = rng.normal(0, 3, D.shape[1])
        omega = Strategy.from_weights(D, w_omega=w).omega
        assert omega.mean() == pytest.approx(1)
        assert (omega > 0).all()
        np.testing.assert_allclose(omega, torch.nn.functional.softplus(torch.tensor(D @ w)) / omega_scale(D @ w))

    def test_equal_weights_are_neutral(self):
        np.testing.assert_allclose(omega_from(np.full(3, -2.0)), 1)

    def test_smoothing_is_half_a_sigmoid(self, counts, rng):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), intercept=True)
        w = rng.normal(0, 3, D.shape[1])
        expected = 0.5 * torch.sigmoid(torch.tensor(D @ w))
        np.testing.assert_allclose(Strategy.from_weights(D, w_smoothing=w).smoothing, expected)

    def test_unknown_forms_are_named(self, counts):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), ["log"])
        with pytest.raises(
            InputError, match="delta_form is 'relu'; it must be one of normalized, sigmoid, exp, linear"
        ):
            Strategy.from_weights(D, w_delta=[1.0], delta_form="relu")


def omega_scale(x):
    return torch.nn.functional.softplus(torch.tensor(x)).mean().item()


class TestValidation:
    @pytest.mark.parametrize(
        ("parts", "says"),
        [
            ({"omega": [1, -1, 1]}, r"omega\[1\] is -1.0; each entry must be at least 0"),
            ({"delta": [1, 0, 1]}, r"delta\[1\] is 0.0; each entry must be above 0"),
            ({"l": [0, np.inf, 0]}, r"l\[1\] is inf; each entry must be a finite number"),
            ({"l": [0, 0]}, "l has 2 entries for 3 classes"),
            ({"smoothing": [0, -0.1, 0]}, r"smoothing\[1\] is -0.1; each entry must be at least 0"),
            ({"smoothing": [0, 0, 1]}, r"smoothing\[2\] is 1.0; each entry must be below 1"),
            ({"smoothing": [0, 0.1]}, "smoothing has 2 entries for 3 classes"),
        ],
    )
    def test_parts_are_checked(self, parts, says):
        with pytest.raises(InputError, match=says):
            Strategy.of(3, **parts)

    def test_parts_are_of_the_same_classes(self):
        with pytest.raises(InputError, match="delta has 3 entries for 2 classes"):
            Strategy([1, 1], [0, 0], [1, 1, 1])

    def test_lists_become_vectors(self):
        assert Strategy([1, 1], [0, 0], [1, 2]).delta.dtype == np.float64

    def test_labels_are_as_they_are_unless_said(self):
        np.testing.assert_array_equal(Strategy([1, 1], [0, 0], [1, 2]).smoothing, [0, 0])

    def test_weights_need_one_positive(self):
        with pytest.raises(InputError, match="weights sum to 0; give at least one class a positive weight"):
            Strategy.weighted([0, 0])

    def test_a_class_that_never_occurs_has_no_logit_adjustment(self):
        with pytest.raises(InputError, match=r"class_counts\[1\] is 0: a class that never occurs"):
            Strategy.logit_adjustment([3, 0])

    def test_w_has_an_entry_per_column(self, counts):
        D = build_dictionary(Attributes.of(freq=frequency(counts)), ["log"])
        with pytest.raises(InputError, match=r"w has shape \(3,\)"):
            Strategy.from_weights(D, w_l=[1, 2, 3])


@pytest.mark.data
def test_on_real_long_tailed_logits_logit_adjustment_lowers_the_balanced_error(shared):
    with np.load(shared / "data" / "cifar100_lt_resnet32_logits.npz") as real:
        scores, y, train_counts = real["logits"], real["y"], real["train_counts"]
    before = class_errors(y, scores.argmax(1), 100).mean()
    after = class_errors(y, Strategy.logit_adjustment(train_counts).adjust(scores).argmax(1), 100).mean()
    assert after < before - 0.02


def test_what_the_caller_does_to_an_array_afterwards_is_no_change_of_the_strategy():
    parts = {"omega": np.ones(3), "l": np.zeros(3), "delta": np.ones(3), "smoothing": np.zeros(3)}
    made = [Strategy(**parts), Strategy.of(3, **parts), Strategy.weighted(parts["omega"])]
    for values in parts.values():
        values[:] = 0.5
    for strategy in made:
        same(strategy, Strategy.of(3))

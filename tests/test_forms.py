"""Forms: value, gradient and algebra; and objectives that have no form."""

import numpy as np
import pytest

from capri import InputError, as_objective, objective_names
from capri.forms import (
    LIFT,
    ClassContext,
    ConfusionForm,
    ConfusionFunction,
    ErrorFunction,
    Form,
    MarginFunction,
    add,
    precision_scores,
    scale,
)

K = 7
EXAMPLES = {"a": "0.3", "λ": "0.4", "class": "2"}
COMPOSITES = [
    "0.5*balanced+0.3*cvar:0.4+0.2*sdev",
    "quantile:0.2+cvar:0.5",
    "cvar:0.5+quantile:0.2+quantile:0.9",
    "2*mix:0.5+0.5*worst_group",
    "worst_group+worst",
    "-1*err[2]+3*sdev",
    "0.5*gmean+0.25*gmean+sdev",
]
ON_CONFUSION = ("macro_f1", "weighted_f1", "kappa", "mcc", "f1[2]", "precision[2]")


@pytest.fixture
def context():
    return ClassContext.of(
        np.arange(1, K + 1),
        weights=np.linspace(2, 0.5, K),
        groups=["a", "b", "a", "c", "c", "b", "a"],
        class_counts=[500, 150, 100, 60, 20, 19, 5],
    )


def names_of_error_objectives():
    names = []
    for shown in objective_names():
        for parameter, example in EXAMPLES.items():
            shown = shown.replace(f":{parameter}", f":{example}").replace(f"[{parameter}]", f"[{example}]")
        names.append(shown)
    return [name for name in names if name not in ON_CONFUSION]


def central_differences(function, at, step=1e-6):
    return np.array([(function(at + e) - function(at - e)) / (2 * step) for e in step * np.eye(len(at))])


@pytest.mark.parametrize("name", names_of_error_objectives() + COMPOSITES)
def test_gradients_of_smooth_twins_are_their_differences(name, context, rng):
    twin = as_objective(name).on(context)
    for _ in range(5):
        errors = rng.permutation(np.linspace(0.05, 0.9, K)) + rng.uniform(0, 0.02, K)
        value, gradient = twin.smooth(errors)
        assert value == pytest.approx(twin.smooth(errors)[0])
        np.testing.assert_allclose(gradient, central_differences(lambda e: twin.smooth(e)[0], errors), atol=1e-7)


ITS_OWN_TWIN = [n for n in names_of_error_objectives() + COMPOSITES if "quantile" not in n and "gmean" not in n]


@pytest.mark.parametrize("name", ITS_OWN_TWIN)
def test_smooth_twins_equal_the_objective_of_soft_errors(name, context, rng):
    objective = as_objective(name).on(context)
    errors = rng.uniform(size=K)
    assert objective.smooth(errors)[0] == pytest.approx(objective(errors))


def test_the_smooth_quantile_averages_over_neighbours_in_rank(rng):
    errors = rng.permutation(np.linspace(0.99, 0.0, 100))
    twin = as_objective("quantile:0.2").on(ClassContext.of(np.ones(100)))
    value, gradient = twin.smooth(errors)
    moved = np.sort(errors[gradient > 0])
    assert twin(errors) == pytest.approx(0.8)
    assert value == pytest.approx(0.8)  # symmetric about the rank
    np.testing.assert_allclose(moved, [0.78, 0.79, 0.8, 0.81, 0.82])
    assert gradient.sum() == pytest.approx(1)


def test_the_smooth_twin_of_a_sum_is_the_sum_of_twins(rng):
    context, errors = ClassContext.of(np.ones(100)), rng.uniform(size=100)
    for pair in (("quantile:0.2", "cvar:0.3"), ("cvar:0.3", "quantile:0.2"), ("quantile:0.1", "quantile:0.6")):
        first, second = (as_objective(name).on(context) for name in pair)
        value, gradient = as_objective("+".join(pair)).on(context).smooth(errors)
        assert value == pytest.approx(first.smooth(errors)[0] + second.smooth(errors)[0])
        np.testing.assert_allclose(gradient, first.smooth(errors)[1] + second.smooth(errors)[1])


def test_the_smooth_twin_of_a_multiple_is_the_multiple_of_the_twin(rng):
    context, errors = ClassContext.of(np.ones(100)), rng.uniform(size=100)
    once, twice = (as_objective(name).on(context).smooth(errors) for name in ("quantile:0.2", "2*quantile:0.2"))
    assert twice[0] == pytest.approx(2 * once[0])
    np.testing.assert_allclose(twice[1], 2 * once[1])


def test_the_spread_of_equal_errors_has_gradient_zero():
    value, gradient = as_objective("sdev").on(ClassContext.of([1, 1, 1])).smooth(np.full(3, 0.2))
    assert value == pytest.approx(0)
    np.testing.assert_array_equal(gradient, np.zeros(3))


class TestGeometricMean:
    @pytest.fixture
    def gmean(self):
        return as_objective("gmean").on(ClassContext.of(np.ones(4)))

    def test_is_near_its_smooth_twin(self, gmean, rng):
        errors = rng.uniform(0, 0.9, 4)
        assert gmean(errors) == pytest.approx(1 - float(np.prod(1 - errors)) ** 0.25)
        assert gmean.smooth(errors)[0] == pytest.approx(gmean(errors), abs=LIFT)
        assert gmean.smooth(np.full(4, 0.3))[0] == pytest.approx(0.3)

    @pytest.mark.parametrize("n_missed", [1, 2, 4])
    def test_has_a_bounded_gradient_that_leads_away_from_a_recall_of_0(self, gmean, n_missed):
        errors = np.where(np.arange(4) < n_missed, 1.0, 0.2)
        value, gradient = gmean.smooth(errors)
        assert gmean(errors) == 1
        assert 0.5 < value <= 1
        assert (gradient > 0).all()
        assert gradient.max() < 0.25 * LIFT**-0.75 * 1.01
        assert gradient[0] >= gradient.max()

    def test_rounding_is_no_recall(self, gmean):
        assert gmean(np.array([1 - 1e-16, 0, 0, 0])) == 1
        assert gmean(np.array([1 + 1e-15, 0, 0, 0])) == 1


class TestMargins:
    def test_the_diagonal_and_the_sums_of_rows_and_columns_are_enough(self, context, rng):
        confusion = rng.integers(0, 9, (K, K)).astype(float)
        hits, rows, columns = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
        for name in ("kappa", "mcc", "0.5*kappa+2*mcc"):
            objective = as_objective(name).on(context)
            assert isinstance(objective, MarginFunction)
            assert objective.of_margins(hits, rows, columns) == objective(confusion)
        first, second = (as_objective(name).on(context)(confusion) for name in ("kappa", "mcc"))
        assert objective(confusion) == pytest.approx(0.5 * first + 2 * second)

    def test_sums_with_others_are_functions_of_the_confusion_matrix(self, context, rng):
        confusion = rng.integers(1, 9, (K, K)).astype(float)
        total = as_objective("kappa+macro_f1").on(context)
        assert isinstance(total, ConfusionFunction)
        parts = (as_objective(name).on(context)(confusion) for name in ("kappa", "macro_f1"))
        assert total(confusion) == pytest.approx(sum(parts))


def test_a_class_that_is_never_predicted_has_precision_0():
    np.testing.assert_allclose(precision_scores(np.array([[3.0, 0, 1], [1, 0, 0], [0, 0, 1]])), [0.75, 0, 0.5])


class TestAlgebra:
    @pytest.mark.parametrize("name", COMPOSITES)
    def test_composites_are_the_sums_of_their_terms(self, name, context, rng):
        errors = rng.uniform(size=K)
        expected = 0.0
        for term in name.split("+"):
            factor, _, body = term.rpartition("*")
            expected += float(factor or 1) * as_objective(body).on(context)(errors)
        assert as_objective(name).on(context)(errors) == pytest.approx(expected)

    @pytest.mark.parametrize("name", [c for c in COMPOSITES if c != "worst_group+worst"])
    def test_sums_and_multiples_of_forms_are_forms(self, name, context):
        assert isinstance(as_objective(name).on(context), Form)

    def test_forms_that_rank_different_groups_add_as_functions(self, context):
        assert isinstance(as_objective("worst_group+worst").on(context), ErrorFunction)

    def test_a_function_of_the_confusion_matrix_takes_the_others_along(self, context, rng):
        confusion = rng.integers(1, 9, (K, K)).astype(float)
        errors = 1 - np.diag(confusion) / confusion.sum(axis=1)
        total = as_objective("2*macro_f1+balanced+worst_group").on(context)
        assert isinstance(total, ConfusionFunction)
        parts = (as_objective(name).on(context) for name in ("macro_f1", "balanced", "worst_group"))
        f1, balanced, worst = next(parts)(confusion), *(part(errors) for part in parts)
        assert total(confusion) == pytest.approx(2 * f1 + balanced + worst)

    def test_sums_and_multiples_of_forms_on_the_confusion_matrix_are_such_forms(self, context, rng):
        confusion = rng.integers(1, 9, (K, K)).astype(float)
        names = ("macro_f1", "weighted_f1", "precision[1]", "f1[3]")
        total = as_objective("2*macro_f1+weighted_f1+3*precision[1]+-1*f1[3]").on(context)
        assert isinstance(total, ConfusionForm)
        values = [as_objective(name).on(context)(confusion) for name in names]
        assert total(confusion) == pytest.approx(np.dot([2, 1, 3, -1], values))

    def test_multiples_of_functions_scale_value_and_gradient(self):
        doubled = scale(2.0, ErrorFunction(lambda e: float(e @ e)))
        value, gradient = doubled.smooth(np.array([0.1, 0.3]))
        assert value == pytest.approx(0.2)
        np.testing.assert_allclose(gradient, [0.4, 1.2])

    def test_addition_commutes(self, context, rng):
        errors = rng.uniform(size=K)
        first, second = as_objective("cvar:0.4").on(context), as_objective("mix:0.3").on(context)
        assert add(first, second)(errors) == pytest.approx(add(second, first)(errors))


class TestClassContext:
    def test_shares_sum_to_one(self):
        np.testing.assert_allclose(ClassContext.of([1, 3]).shares, [0.25, 0.75])

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"weights": [1]}, "weights has 1 entries for 2 classes"),
            ({"weights": [0, 0]}, "weights sums to 0"),
            ({"class_counts": [1, -1]}, r"class_counts\[1\] is -1.0"),
            ({"groups": ["a"]}, r"groups has shape \(1,\) for 2 classes; give one label per class"),
            ({"class_names": ["a"]}, "class_names has 1 entries for 2 classes"),
        ],
    )
    def test_what_is_known_of_the_classes_is_checked(self, given, says):
        with pytest.raises(InputError, match=says):
            ClassContext.of([1, 1], **given)

    def test_the_classes_that_have_samples_keep_everything_in_step(self, context):
        here = np.array([True, False, True, True, False, True, True])
        part = context.with_totals(3 * here).present()
        assert part.total == 15
        np.testing.assert_allclose(part.shares, 0.2)
        np.testing.assert_array_equal(part.weights, context.weights[here])
        assert part.groups.tolist() == ["a", "a", "c", "b", "a"]
        assert part.class_counts.tolist() == [500, 100, 60, 19, 5]
        assert part.index.tolist() == [0, 2, 3, 5, 6]
        assert part.class_names == ("0", "2", "3", "5", "6")

    def test_where_all_classes_have_samples_they_are_all_there(self, context):
        assert context.present() is context

    def test_other_samples_are_of_the_same_classes(self, context):
        with pytest.raises(InputError, match="totals has 2 entries for 7 classes"):
            context.with_totals([1, 2])

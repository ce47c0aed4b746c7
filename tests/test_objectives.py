"""Objectives against independent oracles, the order that must hold, and their names."""

import copy
import math
import pickle
import statistics
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib.externals.loky.backend.reduction import dumps as cloudpickled
from sklearn import metrics

from capri import (
    AbsentClassWarning,
    InputError,
    as_objective,
    evaluate,
    make_scorer,
    objective_names,
    register_objective,
)
from capri.constraints import as_constraint
from capri.forms import ClassContext, Form
from capri.objectives import (
    balanced,
    class_error,
    confusion_objective,
    cvar,
    expected_cost,
    mix,
    plain,
    quantile,
    sdev,
    tail_size,
    unregister_objective,
    weighted,
    worst,
    worst_group,
)

error_vectors = st.lists(st.floats(0, 1), min_size=2, max_size=30).map(np.array)
levels = st.floats(0, 1, exclude_min=True)


def value(objective, errors, **known):
    totals = known.pop("totals", np.ones(len(errors)))
    return as_objective(objective).on(ClassContext.of(totals, **known))(np.asarray(errors, float))


class TestOracles:
    @pytest.fixture
    def decisions(self, rng):
        y = np.concatenate([np.arange(6), rng.choice(6, 300, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])])
        predicted = np.where(rng.uniform(size=len(y)) < 0.6, y, rng.integers(6, size=len(y)))
        return y, predicted, rng.uniform(0.2, 3, len(y))

    @pytest.mark.parametrize(
        ("name", "oracle"),
        [
            ("plain", lambda y, p, w: 1 - metrics.accuracy_score(y, p, sample_weight=w)),
            ("balanced", lambda y, p, w: 1 - metrics.balanced_accuracy_score(y, p, sample_weight=w)),
            ("macro_f1", lambda y, p, w: 1 - metrics.f1_score(y, p, average="macro", sample_weight=w)),
            ("weighted_f1", lambda y, p, w: 1 - metrics.f1_score(y, p, average="weighted", sample_weight=w)),
            ("kappa", lambda y, p, w: 1 - metrics.cohen_kappa_score(y, p, sample_weight=w)),
            ("mcc", lambda y, p, w: 1 - metrics.matthews_corrcoef(y, p, sample_weight=w)),
            ("worst", lambda y, p, w: 1 - min(metrics.recall_score(y, p, average=None, sample_weight=w))),
            (
                "sdev",
                lambda y, p, w: statistics.pstdev(
                    map(float, metrics.recall_score(y, p, average=None, sample_weight=w))
                ),
            ),
            ("err[2]", lambda y, p, w: 1 - metrics.recall_score(y, p, average=None, sample_weight=w)[2]),
            ("recall[2]", lambda y, p, w: 1 - metrics.recall_score(y, p, average=None, sample_weight=w)[2]),
            ("precision[2]", lambda y, p, w: 1 - metrics.precision_score(y, p, average=None, sample_weight=w)[2]),
            ("f1[2]", lambda y, p, w: 1 - metrics.f1_score(y, p, average=None, sample_weight=w)[2]),
            ("min_recall", lambda y, p, w: 1 - min(metrics.recall_score(y, p, average=None, sample_weight=w))),
            (
                "gmean",
                lambda y, p, w: (
                    1 - statistics.geometric_mean(metrics.recall_score(y, p, average=None, sample_weight=w))
                ),
            ),
        ],
    )
    @pytest.mark.parametrize("with_weights", [False, True])
    def test_scikit_learn_agrees(self, decisions, name, oracle, with_weights):
        y, predicted, weight = decisions
        weight = weight if with_weights else None
        ours = evaluate(y, predicted, 6, [name], sample_weight=weight)[name]
        assert ours == pytest.approx(oracle(y, predicted, weight))

    def test_one_class_alone_is_no_agreement_beyond_chance(self):
        assert evaluate([0, 0, 1], [0, 0, 0], 2, ["kappa", "mcc"]) == {"kappa": 1.0, "mcc": 1.0}
        with pytest.warns(AbsentClassWarning):
            alone = evaluate([0, 0, 0], [0, 0, 0], 3, ["kappa", "mcc"], absent="ignore")
        assert alone == {"kappa": 0.0, "mcc": 1.0}  # nothing is wrong, and nothing can correlate

    def test_a_class_that_is_never_predicted_has_neither_precision_nor_f1(self):
        y, predicted = [0, 0, 1, 2], [0, 0, 0, 2]
        found = evaluate(y, predicted, 3, ["precision[1]", "f1[1]", "recall[1]", "gmean"])
        assert found == {"precision[1]": 1, "f1[1]": 1, "recall[1]": 1, "gmean": 1}
        assert metrics.precision_score(y, predicted, average=None, zero_division=0)[1] == 0

    def test_weighted_error_is_the_mean_over_samples_weighted_by_class(self, decisions):
        y, predicted, _ = decisions
        omega = np.array([1.0, 2, 0, 1, 5, 3])
        per_sample = (omega / np.bincount(y))[y]
        ours = evaluate(y, predicted, 6, ["weighted"], weights=omega)["weighted"]
        assert ours == pytest.approx(1 - metrics.accuracy_score(y, predicted, sample_weight=per_sample))

    @given(error_vectors, levels)
    def test_quantile_and_cvar_are_what_sorting_says(self, errors, a):
        tail = sorted(errors.tolist(), reverse=True)[: max(1, math.ceil(len(errors) * a - 1e-9))]
        assert value(quantile(a), errors) == pytest.approx(tail[-1])
        assert value(cvar(a), errors) == pytest.approx(statistics.fmean(tail))

    @given(error_vectors, st.floats(0, 1))
    def test_mix_trades_plain_error_against_deviation(self, errors, lam):
        totals = np.arange(1, len(errors) + 1)
        expected = lam * np.average(errors, weights=totals) + (1 - lam) * statistics.pstdev(errors.tolist())
        assert value(mix(lam), errors, totals=totals) == pytest.approx(expected, abs=1e-9)

    def test_worst_group_averages_within_groups_first(self):
        errors, groups = [0.9, 0.1, 0.3, 0.4], ["a", "a", "b", "b"]
        assert value("worst_group", errors, groups=groups) == pytest.approx(0.5)
        assert value("worst_group", errors, groups=[1, 2, 1, 1]) == pytest.approx(1.6 / 3)

    def test_shots_split_at_20_and_100_training_samples(self):
        errors, train_counts = [0.1, 0.2, 0.4, 0.6, 0.9], [101, 100, 20, 19, 1]
        assert value("many", errors, class_counts=train_counts) == pytest.approx(0.1)
        assert value("medium", errors, class_counts=train_counts) == pytest.approx(0.3)
        assert value("few", errors, class_counts=train_counts) == pytest.approx(0.75)

    def test_expected_cost_is_the_mean_cost_of_a_sample(self, decisions, rng):
        y, predicted, _ = decisions
        costs = rng.uniform(size=(6, 6))
        ours = evaluate(y, predicted, 6, [expected_cost(costs)])["cost"]
        assert ours == pytest.approx(np.mean([costs[i, j] for i, j in zip(y, predicted, strict=True)]))


class TestOrder:
    @given(error_vectors, levels)
    def test_worst_bounds_cvar_bounds_quantile_and_balanced(self, errors, a):
        tail = value(cvar(a), errors)
        assert value(worst(), errors) >= tail - 1e-12
        assert tail >= max(value(quantile(a), errors), value(balanced(), errors)) - 1e-12

    @given(error_vectors)
    def test_cvar_of_all_classes_is_balanced_and_of_one_the_worst(self, errors):
        assert value("cvar:1", errors) == pytest.approx(value("balanced", errors))
        assert value(cvar(1e-12), errors) == pytest.approx(errors.max())
        assert value(quantile(1e-12), errors) == pytest.approx(errors.max())
        assert value("quantile:1", errors) == pytest.approx(errors.min())

    @given(error_vectors, levels, levels)
    def test_cvar_and_quantile_fall_as_the_tail_grows(self, errors, a, b):
        for objective in (cvar, quantile):
            assert value(objective(min(a, b)), errors) >= value(objective(max(a, b)), errors) - 1e-12

    @given(error_vectors, st.data())
    def test_averages_and_ranks_lie_between_best_and_worst(self, errors, data):
        per_class = st.lists(st.integers(1, 9), min_size=len(errors), max_size=len(errors))
        known = {"totals": data.draw(per_class), "weights": data.draw(per_class), "groups": data.draw(per_class)}
        for objective in (plain(), balanced(), weighted(), worst(), worst_group(), cvar(0.3), quantile(0.3)):
            assert errors.min() - 1e-9 <= value(objective, errors, **known) <= errors.max() + 1e-9

    @given(error_vectors)
    def test_deviation_is_at_most_half_the_range(self, errors):
        assert 0 <= value(sdev(), errors) <= np.ptp(errors) / 2 + 1e-9

    @given(error_vectors, st.data())
    def test_renumbering_the_classes_changes_nothing(self, errors, data):
        k = len(errors)
        order = np.array(data.draw(st.permutations(range(k))))
        per_class = st.lists(st.integers(1, 200), min_size=k, max_size=k)
        known = {name: np.array(data.draw(per_class)) for name in ("totals", "weights", "groups", "class_counts")}
        known["class_counts"][:3] = [500, 50, 5][: min(k, 3)]
        names = [str(f"class {j}") for j in range(k)]
        objectives = ["plain", "balanced", "weighted", "sdev", "quantile:0.3", "cvar:0.3", "mix:0.3", "worst"]
        objectives += ["worst_group", "many", "medium", "err[class 1]", "0.5*cvar:0.4+2*sdev"]
        for objective in objectives:
            before = value(objective, errors, class_names=names, **known)
            renumbered = {name: values[order] for name, values in known.items()}
            after = value(objective, errors[order], class_names=[names[j] for j in order], **renumbered)
            assert after == pytest.approx(before, abs=1e-12)

    @pytest.mark.parametrize(("a", "size"), [(0.07, 7), (0.14, 14), (0.28, 28), (0.55, 55), (0.2, 20), (0.071, 8)])
    def test_tails_are_not_one_class_too_long(self, a, size):
        assert tail_size(100, a) == size
        errors = np.linspace(0.99, 0, 100)
        assert value(quantile(a), errors) == pytest.approx(errors[size - 1])
        assert value(f"cvar:{a}", errors) == pytest.approx(errors[:size].mean())

    def test_a_tail_has_a_class(self):
        assert tail_size(10, 1e-12) == 1

    @given(error_vectors, st.floats(0.1, 9))
    def test_weights_matter_only_by_their_ratios(self, errors, scale):
        omega = np.arange(1.0, len(errors) + 1)
        assert value("weighted", errors, weights=scale * omega) == pytest.approx(
            value("weighted", errors, weights=omega)
        )
        assert value("weighted", errors, weights=np.full(len(errors), scale)) == pytest.approx(errors.mean())


class TestNames:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("balanced", "balanced"),
            (" cvar : 0.2 ", "cvar:0.2"),
            ("0.5*balanced + 0.5*cvar:0.2", "0.5*balanced+0.5*cvar:0.2"),
            ("1e+1*balanced+1e-1*sdev", "10*balanced+0.1*sdev"),
            ("2*0.5*plain", "2*0.5*plain"),
            ("err[sea lion]+0.1*err[a+b*c]", "err[sea lion]+0.1*err[a+b*c]"),
            ("f1[ sea lion ]+2*precision[a+b]", "f1[sea lion]+2*precision[a+b]"),
        ],
    )
    def test_text_is_read(self, text, name):
        assert as_objective(text).name == name
        assert str(as_objective(text)) == name

    @pytest.mark.parametrize(
        "objective",
        [
            0.5 * (balanced() + 2 * sdev()),
            0.123456789 * cvar(0.2) + quantile(0.5),
            3 * (0.1 * (worst() + plain()) + mix(0.25)),
            2 * class_error("sea lion"),
        ],
    )
    def test_the_name_of_a_composite_reads_back_as_itself(self, objective, rng):
        context = ClassContext.of([1, 2, 3], class_names=["cat", "sea lion", "dog"])
        errors = rng.uniform(size=3)
        again = as_objective(objective.name)
        assert again == objective
        assert again.on(context)(errors) == pytest.approx(objective.on(context)(errors), rel=1e-14)

    def test_a_name_that_ends_in_e_can_be_added_to(self):
        try:
            register_objective("spare")(lambda errors: errors.min())
            assert value("spare+balanced", [0.1, 0.3]) == pytest.approx(0.3)
        finally:
            unregister_objective("spare")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("balnced", "unknown objective 'balnced'; did you mean 'balanced'?"),
            ("quantil:0.2", "did you mean 'quantile'?"),
            ("zzz", "known: plain, balanced"),
            ("", "unknown objective ''"),
            ("balanced+", "unknown objective ''"),
            ("cvar", "takes a parameter, as in 'cvar:a'; got none"),
            ("err", r"as in 'err\[class\]'"),
            ("precision", r"as in 'precision\[class\]'"),
            ("balanced[3]", r"unknown objective 'balanced\[3\]'; did you mean 'balanced'"),
            ("balanced:0.2", r"takes no parameter; got \('0.2',\)"),
            ("x*balanced", r"objective term 'x\*balanced': 'x' is not a number"),
            ("nan*balanced", "times nan: the factor must be a finite number"),
            ("inf*balanced", "times inf"),
        ],
    )
    def test_unreadable_text_is_explained(self, text, says):
        with pytest.raises(InputError, match=says):
            as_objective(text)

    @pytest.mark.parametrize("thing", [3, None, ["balanced"]])
    def test_other_things_are_refused(self, thing):
        with pytest.raises(InputError, match=r"objective is .*; give a name such as 'balanced'"):
            as_objective(thing)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("cvar:0", r"cvar's a is 0; it must lie in \(0, 1\]"),
            ("cvar:1.5", "cvar's a is 1.5"),
            ("quantile:-1", "quantile's a is -1"),
            ("quantile:nan", "quantile's a is nan"),
            ("quantile:half", "quantile's a is 'half'; it must be a number"),
            ("mix:2", r"mix's λ is 2; it must lie in \[0, 1\]"),
            ("weighted", "needs weights=…: one test-time weight per class"),
            ("worst_group", "needs groups=…: the group of each class"),
            ("few", "'few' needs class_counts=…"),
            ("err[9]", r"err\[9\]: no such class with samples; give an index 0 … 1 or a class name"),
            ("err[-1]", r"err\[-1\]: no such class"),
            ("f1[9]", r"f1\[9\]: no such class with samples; give an index 0 … 1 or a class name"),
            ("precision[cat]", r"precision\[cat\]: no such class"),
        ],
    )
    def test_what_an_objective_lacks_is_named(self, text, says):
        with pytest.raises(InputError, match=says):
            value(text, [0.1, 0.2])

    def test_shots_need_a_class_of_that_size(self):
        with pytest.raises(InputError, match="'many': no class has that many training samples"):
            value("many", [0.1, 0.2], class_counts=[5, 5])

    def test_classes_go_by_name_before_index(self):
        known = {"class_names": ["cat", "1", "dog"]}
        assert value("err[1]", [0.1, 0.2, 0.3], **known) == pytest.approx(0.2)
        assert value("err[cat]", [0.1, 0.2, 0.3], **known) == pytest.approx(0.1)
        assert value(class_error(2), [0.1, 0.2, 0.3], **known) == pytest.approx(0.3)

    @pytest.mark.parametrize("name", ["err", "recall", "precision", "f1"])
    def test_every_objective_of_one_class_knows_it_by_name_and_by_index(self, name):
        names, y, predicted = ["cat", "dog", "lynx"], [0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 0, 2]
        found = evaluate(y, predicted, 3, [f"{name}[lynx]", f"{name}[2]"], class_names=names)
        assert len(set(found.values())) == 1

    @pytest.mark.parametrize("name", ["err", "recall", "precision", "f1"])
    def test_a_class_without_samples_is_no_class_to_ask_for(self, name):
        with pytest.warns(AbsentClassWarning), pytest.raises(InputError, match="no such class with samples"):
            evaluate([0, 1], [0, 2], 3, [f"{name}[2]"], absent="ignore")

    def test_a_function_of_the_class_errors_is_an_objective(self):
        def median(errors):
            return np.median(errors)

        assert as_objective(median).name == "median"
        assert value(median, [0.1, 0.2, 0.9]) == pytest.approx(0.2)

    def test_a_function_of_the_confusion_matrix_is_an_objective(self):
        def rejected(confusion):
            return confusion[:, 0].sum() / confusion.sum()

        assert evaluate([0, 1, 1], [0, 0, 1], 2, [confusion_objective(rejected)]) == {"rejected": pytest.approx(2 / 3)}
        assert confusion_objective(rejected, "share of 0").name == "share of 0"

    @pytest.mark.parametrize(
        ("costs", "says"),
        [
            ([[0, 1]], r"costs must be a square matrix, .+; got shape \(1, 2\)"),
            ([1, 2], r"costs must have shape \(n_classes, n_classes\); got shape \(2,\)"),
            (np.zeros((0, 0)), "costs is empty"),
            ([[0, np.nan], [1, 0]], r"costs\[0, 1\] is nan; 1 entries are NaN or infinite. Give finite numbers."),
            ([[0, np.longdouble("1e4000")], [1, 0]], r"costs\[0, 1\] is inf"),
            ([["0", "1"], ["1", "0"]], "costs must be real numbers; got"),
            ([[0, "dear"], [1, 0]], "costs must be real numbers; got"),
            ([[0, 1j], [1, 0]], "costs must be real numbers; got"),
            (np.array([[0, {}], [1, 0]], dtype=object), "costs must be real numbers; got"),
            ([[10**400, 1], [1, 0]], "costs must be real numbers; got"),
            (np.zeros((2, 2), "M8[D]"), "costs must be real numbers; got"),
            ({"cat": 1}, "costs must be real numbers; got"),
        ],
    )
    def test_costs_are_a_finite_square(self, costs, says):
        with pytest.raises(InputError, match=says):
            expected_cost(costs)

    def test_costs_are_kept_as_they_were_given(self):
        costs = np.array([[0.0, 1.0], [5.0, 0.0]])
        objective = expected_cost(costs)
        costs[:] = 0
        assert evaluate([0, 0, 1, 1], [0, 0, 0, 1], 2, [objective]) == {"cost": 1.25}

    @pytest.mark.parametrize("names", [["cat", "dog"], None, [1, 2]])
    def test_costs_with_labels_go_by_them(self, names):
        labels = names or [0, 1]
        table = pd.DataFrame([[0.0, 5.0], [1.0, 0.0]], index=labels[::-1], columns=labels[::-1])
        found = evaluate([0, 0, 1, 1], [0, 0, 0, 1], 2, [expected_cost(table)], class_names=names)
        assert found == evaluate([0, 0, 1, 1], [0, 0, 0, 1], 2, [expected_cost([[0, 1], [5, 0]])]) == {"cost": 1.25}

    def test_costs_that_are_only_numbered_are_in_order(self):
        costs = pd.DataFrame([[0.0, 1.0], [5.0, 0.0]])
        found = evaluate([0, 0, 1, 1], [0, 0, 0, 1], 2, [expected_cost(costs)], class_names=["cat", "dog"])
        assert found == {"cost": 1.25}

    def test_costs_of_other_classes_are_refused(self):
        table = pd.DataFrame([[0.0, 5.0], [1.0, 0.0]], index=["cat", "dog"], columns=["cat", "elk"])
        with pytest.raises(InputError, match="class 'dog' has no entry in the columns of costs; there are"):
            evaluate([0, 1], [0, 1], 2, [expected_cost(table)], class_names=["cat", "dog"])

    def test_costs_are_of_all_classes(self):
        with pytest.raises(InputError, match=r"costs is \(2, 2\) for 3 classes"):
            evaluate([0, 1, 2], [0, 1, 2], 3, [expected_cost([[0, 1], [1, 0]])])


class TestArithmetic:
    """With what is neither a number nor an objective, it is Python that refuses."""

    @pytest.mark.parametrize("factor", [None, "2", "a", 1j, [2]])
    def test_a_factor_is_a_number(self, factor):
        with pytest.raises(TypeError, match=r"unsupported operand type|can't multiply"):
            factor * balanced()

    @pytest.mark.parametrize("other", [None, "plain", 1, lambda errors: errors.max()])
    def test_objectives_are_added_to_objectives(self, other):
        with pytest.raises(TypeError, match="unsupported operand type"):
            balanced() + other

    @pytest.mark.parametrize("factor", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0), Fraction(2)])
    def test_numbers_of_any_kind_are_factors(self, factor):
        assert (factor * balanced()).name == "2*balanced"

    def test_a_number_beyond_any_float_is_no_factor(self):
        with pytest.raises(InputError, match=r"times 1000.+\.\.\.: the factor must be a finite number"):
            10**400 * balanced()

    def test_nor_a_parameter(self):
        with pytest.raises(InputError, match=r"cvar's a is 1000.+; it must be a number"):
            value(cvar(10**400), [0.1, 0.2])


class TestManyTerms:
    @pytest.fixture
    def built(self):
        calls = []

        @register_objective("counted", on="classes")
        def counted(classes):
            "The mean error, and a note that it was built."
            calls.append(classes.n_classes)
            return Form(np.full(classes.n_classes, 1 / classes.n_classes))

        yield calls
        unregister_objective("counted")

    @pytest.mark.parametrize("text", ["+".join(["counted"] * 40), "1*" * 40 + "counted"])
    def test_a_term_is_built_once_for_all_classes_and_once_for_those_with_samples(self, built, text):
        objective, n_terms = as_objective(text), text.count("counted")
        assert objective.on(ClassContext.of([1, 1, 0]))(np.array([0.0, 0.5])) == pytest.approx(0.25 * n_terms)
        assert sorted(built) == [2] * n_terms + [3] * n_terms

    @pytest.mark.parametrize("totals", [[1, 1, 1], [1, 1, 0]])
    def test_a_sum_that_is_added_to_itself_grows_up_to_the_cap(self, totals):
        objective, errors = balanced(), np.full(sum(totals), 0.5)
        for _ in range(6):
            objective = objective + objective
        assert objective.on(ClassContext.of(totals))(errors) == pytest.approx(32)
        with pytest.raises(InputError, match="an objective may have 64 terms, and this one has more"):
            objective + objective

    @pytest.mark.parametrize("text", ["+".join(["balanced"] * 900), "+" * 2000 + "["])
    def test_too_many_terms_are_refused(self, text):
        with pytest.raises(InputError, match="an objective may have 64 terms, and this one has more; give a function"):
            as_objective(text)

    @pytest.mark.parametrize("text", ["err[" + "+" * 100_000 + "]", "1*" * 100_000 + "plain"])
    def test_text_that_is_too_long_is_refused(self, text):
        with pytest.raises(InputError, match="is longer than 10000 characters; give a function instead"):
            as_objective(text)

    def test_as_many_factors_as_there_is_room_for_are_read(self):
        assert evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, ["1*" * 1000 + "balanced"]) == {"1*" * 1000 + "balanced": 0.25}

    def test_factors_that_overflow_are_refused(self):
        with pytest.raises(InputError, match=r"times 1e\+200: the factor must be a finite number"):
            as_objective("1e200*1e200*balanced")


class TestNoNumber:
    """A function of the user's that has no value somewhere says so, and where."""

    @pytest.mark.parametrize(
        ("objective", "name"),
        [
            (lambda errors: np.nan, "<lambda>"),
            (0.5 * as_objective(lambda errors: np.nan) + balanced(), "<lambda>"),
            (confusion_objective(lambda confusion: float("nan"), "own"), "own"),
            (metrics.make_scorer(lambda truth, predicted: np.nan), "<lambda>"),
        ],
    )
    def test_nan_is_refused_with_the_name(self, objective, name):
        with pytest.raises(InputError, match=f"objective '{name}' returned nan; it must return a number"):
            evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, [objective])

    def test_nan_of_a_registered_objective_is_refused(self):
        try:
            register_objective("torn", parameter="p")(lambda errors, p: np.nan)
            with pytest.raises(InputError, match="objective 'torn:1' returned nan"):
                value("torn:1", [0.1, 0.2])
        finally:
            unregister_objective("torn")

    @pytest.mark.parametrize(
        "returned",
        [None, "a", [1.0, 2.0], "0.5", b"0.5", bytearray(b"0.5"), np.str_("0.5"), np.array("0.5"), 1j, 10**400],
    )
    def test_what_is_no_number_is_refused_with_the_name(self, returned):
        with pytest.raises(InputError, match=r"objective '<lambda>' returned .+; it must return a number"):
            evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, [lambda errors: returned])

    @pytest.mark.parametrize("returned", ["0.5", [0.5, 0.5], None])
    def test_nor_does_a_metric_return_anything_else(self, returned):
        with pytest.raises(InputError, match=r"objective '<lambda>' returned .+; it must return a number"):
            evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, [metrics.make_scorer(lambda truth, predicted: returned)])

    def test_what_the_function_itself_raises_is_not_hidden(self):
        with pytest.raises(ZeroDivisionError):
            evaluate([0, 0, 1, 1], [0, 1, 1, 1], 2, [lambda errors: 1 / 0])

    @pytest.mark.parametrize("errors", [[0.0, 0.5], [1.0, 0.5]])
    def test_the_gradient_asks_for_errors_between_0_and_1_only(self, errors):
        smooth = as_objective(lambda errors: np.sqrt(errors * (1 - errors)).sum()).on(ClassContext.of([1, 1])).smooth
        assert np.isfinite(smooth(np.array(errors))[1]).all()


def second_worst(errors):
    return float(np.sort(errors)[-2])


class TestCopies:
    """Objectives and constraints are sent to other processes."""

    @pytest.mark.parametrize(
        "objective",
        [
            "0.5*balanced+0.5*cvar:0.2",
            "err[1]",
            second_worst,
            2 * as_objective(second_worst) + expected_cost([[0, 1], [5, 0]]),
            confusion_objective(np.trace),
            metrics.cohen_kappa_score,
            metrics.get_scorer("f1_macro"),
            partial(metrics.fbeta_score, beta=2, average="macro"),
        ],
    )
    @pytest.mark.parametrize(
        "copied",
        [lambda x: pickle.loads(pickle.dumps(x)), lambda x: pickle.loads(cloudpickled(x)), copy.deepcopy],
        ids=["pickle", "cloudpickle", "deepcopy"],
    )
    def test_a_copy_has_the_same_values(self, objective, copied):
        whole, limited = as_objective(objective), as_constraint((objective, 0.3))
        y, predicted = [0, 0, 1, 1], [0, 1, 1, 1]
        values = evaluate(y, predicted, 2, [whole])
        assert evaluate(y, predicted, 2, [copied(whole)]) == values
        assert evaluate(y, predicted, 2, [copied(limited).objective]) == values
        assert str(copied(limited)) == str(limited)

    def test_functions_without_a_name_go_to_other_processes(self):
        objective = as_objective(lambda errors: float(errors.max()))
        assert pickle.loads(cloudpickled(objective)).on(ClassContext.of([1, 1]))(np.array([0.1, 0.3])) == 0.3

    def test_a_process_that_does_not_know_the_name_says_so(self):
        constructor = register_objective("local")(lambda errors: errors.max())
        objective = constructor()
        unregister_objective("local")
        with pytest.raises(InputError, match="'local' is not registered in this process; register it in a module that"):
            evaluate([0, 1], [0, 1], 2, [objective])


class TestRegistry:
    @pytest.mark.parametrize("name", [None, 3, b"gap"])
    def test_a_name_is_text(self, name):
        with pytest.raises(InputError, match=r"objective name .+ cannot be parsed"):
            register_objective(name)(lambda errors: 0.0)

    @pytest.mark.parametrize("make", [register_objective("gap"), confusion_objective])
    def test_an_objective_is_a_function(self, make):
        with pytest.raises(InputError, match="3 is no function"):
            make(3)

    @pytest.fixture
    def gap(self):
        @register_objective("gap", parameter="p")
        def gap(errors, p):
            "The gap between the worst and the best class, to a power."
            return (errors.max() - errors.min()) ** float(p)

        yield gap
        unregister_objective("gap")

    def test_a_new_objective_works_wherever_names_do(self, gap):
        from sklearn.dummy import DummyClassifier

        y, predicted = [0, 0, 1, 1], [0, 1, 1, 1]
        assert evaluate(y, predicted, 2, ["gap:2", "balanced"]) == {"gap:2": 0.25, "balanced": 0.25}
        assert evaluate(y, predicted, 2, ["2*gap:1+balanced"]) == {"2*gap:1+balanced": 1.25}
        assert evaluate(y, predicted, 2, [gap(1)]) == {"gap:1": 0.5}
        assert as_constraint("gap:2 <= 0.1").objective.name == "gap:2"
        constant = DummyClassifier(strategy="constant", constant=0).fit([[0], [1]], [0, 1])
        assert make_scorer("gap:1")(constant, [[0], [1]], [0, 1]) == -1
        assert objective_names()["gap:p"] == "The gap between the worst and the best class, to a power."

    def test_a_name_is_taken_once(self, gap):
        with pytest.raises(InputError, match="'gap' is registered already; choose another name"):
            register_objective("gap")(lambda errors: 0.0)

    def test_a_forgotten_name_is_unknown_again(self, gap):
        unregister_objective("gap")
        with pytest.raises(InputError, match="unknown objective 'gap'"):
            as_objective("gap:2")

    @pytest.mark.parametrize("name", ["a b", "a+b", "a*b", "a:b", "a[b]", ""])
    def test_a_name_that_could_not_be_read_is_refused(self, name):
        with pytest.raises(InputError, match="cannot be parsed; leave out spaces"):
            register_objective(name)(lambda errors: 0.0)

    def test_what_it_is_a_function_of_is_one_of_three(self):
        with pytest.raises(InputError, match="on is 'scores'; it must be 'classes', 'errors' or 'confusion'"):
            register_objective("odd", on="scores")(lambda errors: 0.0)

    def test_an_objective_on_classes_returns_a_form(self):
        try:
            register_objective("odd", on="classes")(lambda classes: 0.0)
            with pytest.raises(InputError, match="'odd' on classes must return a form; got float"):
                value("odd", [0.1, 0.2])
        finally:
            unregister_objective("odd")

    def test_an_own_objective_of_one_class_is_written_with_brackets(self):
        try:
            twice = register_objective("twice", on="confusion", parameter="class")(lambda m, k: 2 * m[int(k), int(k)])
            assert twice(1).name == "twice[1]"
            assert evaluate([0, 1, 1], [0, 1, 1], 2, ["twice[1]"]) == {"twice[1]": 4}
        finally:
            unregister_objective("twice")

    def test_every_objective_is_described(self):
        assert all(objective_names().values())
        assert {"plain", "balanced", "weighted", "sdev", "quantile:a", "cvar:a", "mix:λ"} <= set(objective_names())

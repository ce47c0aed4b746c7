"""The exact line search against brute force: argmax between all crossings of all pairs of classes."""

import warnings
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from capri import AbsentClassWarning, InputError, as_objective, exact_line_search
from capri.constraints import as_constraint
from capri.forms import ClassContext, on_confusion
from capri.objectives import confusion_objective, expected_cost
from capri.posthoc.line import Line, choose


def squares(errors):
    return float(np.mean(errors**2))


def error_range(errors):
    return float(errors.max() - errors.min())


@confusion_objective
def share_of_column_0(confusion):
    return float(confusion[:, 0].sum() / confusion.sum())


def some_costs(n_classes):
    i = np.arange(n_classes)
    return expected_cost(np.abs(i[:, None] - i) * (1 + i[:, None] % 3))


LINEAR = ["plain", "balanced", "weighted", "err[0]", "0.25*plain+2*balanced"]
SPREAD = ["sdev", "mix:0.5", "balanced+0.5*sdev"]
RANKED = ["quantile:0.3", "cvar:0.3", "worst", "0.5*balanced+0.5*cvar:0.5", "cvar:0.6+0.2*sdev"]
GROUPED = ["worst_group", "worst_group+0.3*plain", "worst+worst_group"]
FUNCTIONS = [squares, error_range]
GEOMETRIC = ["gmean", "gmean+0.3*worst"]
ON_CONFUSION = ["macro_f1", "weighted_f1", "cost", share_of_column_0, "macro_f1+0.5*worst"]
ON_ONE_CLASS = ["precision[0]", "f1[0]", "recall[0]", "0.5*f1[0]+0.5*precision[0]+macro_f1"]
ON_MARGINS = ["kappa", "mcc", "0.5*kappa+mcc"]


EVERY = LINEAR + SPREAD + RANKED + GROUPED + FUNCTIONS + GEOMETRIC + ON_CONFUSION + ON_ONE_CLASS + ON_MARGINS


@dataclass
class Case:
    """A line to search, with everything that brute force needs to know."""

    scores: np.ndarray
    y: np.ndarray
    g: np.ndarray
    l: np.ndarray
    m: np.ndarray
    h: np.ndarray
    weight: np.ndarray | None
    context: dict = field(default_factory=dict)
    bounds: tuple[float, float] = (-np.inf, np.inf)

    @property
    def n_classes(self):
        return self.scores.shape[1]

    def objective(self, objective):
        return some_costs(self.n_classes) if isinstance(objective, str) and objective == "cost" else objective

    def search(self, objective, **keywords):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AbsentClassWarning)
            return exact_line_search(
                self.scores,
                self.y,
                self.g,
                self.objective(objective),
                offsets=self.l,
                multipliers=self.m,
                multiplier_direction=self.h if self.h.any() else None,
                bounds=self.bounds,
                sample_weight=self.weight,
                absent="ignore",
                **self.context,
                **keywords,
            )


class BruteForce:
    """Objective and violation at any t, by argmax; the oracle."""

    def __init__(self, case, objective, constraints=()):
        self.case = case
        self.weight = np.ones(len(case.y)) if case.weight is None else case.weight
        totals = np.bincount(case.y, weights=self.weight, minlength=case.n_classes)
        classes = ClassContext.of(totals, **case.context)
        self.objective = as_objective(case.objective(objective)).on(classes)
        unadjusted = self._confusion(case.scores.argmax(axis=1))
        self.bounds = []
        for constraint in map(as_constraint, constraints):
            evaluator = constraint.objective.on(classes)
            self.bounds.append((evaluator, constraint.limit(on_confusion(evaluator, unadjusted))))

    def __call__(self, t):
        """(violation, value)."""
        case = self.case
        z = case.scores.astype(np.float64) * (case.m + t * case.h) - (case.l + t * case.g)
        return self._judge(z.argmax(axis=1).tobytes())

    @cache  # noqa: B019 - the same predictions come again and again
    def _judge(self, predictions):
        confusion = self._confusion(np.frombuffer(predictions, np.int64))
        violation = sum(max(0.0, on_confusion(e, confusion) - limit) for e, limit in self.bounds)
        return violation, on_confusion(self.objective, confusion)

    def _confusion(self, predictions):
        confusion = np.zeros((self.case.n_classes, self.case.n_classes))
        np.add.at(confusion, (self.case.y, predictions), self.weight)
        return confusion

    def best(self):
        """Least violation, then least value, over t = 0 and the middles of all plateaus of positive width."""
        judged = [self(t) for t in (0.0, *self.middles())]
        least = min(violation for violation, _ in judged)
        return least, min(value for violation, value in judged if violation <= least + 1e-12)

    def middles(self):
        case = self.case
        z = case.scores.astype(np.float64) * case.m - case.l
        slope = case.scores.astype(np.float64) * case.h - case.g
        a, b = np.triu_indices(case.n_classes, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossings = ((z[:, a] - z[:, b]) / (slope[:, b] - slope[:, a])).ravel()
        low, high = case.bounds
        crossings = np.unique(crossings[np.isfinite(crossings)])
        crossings = crossings[(crossings > low) & (crossings < high)]
        if not len(crossings):
            return [np.clip(0.0, low, high)]
        first = low if np.isfinite(low) else crossings[0] - 2
        last = high if np.isfinite(high) else crossings[-1] + 2
        ends = np.concatenate([[first], crossings, [last]])
        wide = np.diff(ends) > 1e-8 * np.maximum(1, np.abs(ends[1:]))
        return ((ends[1:] + ends[:-1]) / 2)[wide].tolist()


@st.composite
def cases(draw, multipliers=False, on_grid=None):
    """Lines with ties, duplicated samples under other labels, equal slopes, equal scores, absent classes, weights."""
    n_classes = draw(st.sampled_from([2, 3, 4, 5, 8, 13, 20]))
    n_samples = draw(st.integers(2, max(6, 800 // n_classes**2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.booleans()) if on_grid is None else on_grid:  # few different numbers, many ties, and no rounding
        scores, g = rng.integers(-3, 4, (n_samples, n_classes)) / 4, rng.integers(-1, 2, n_classes).astype(float)
        l = rng.integers(-2, 3, n_classes) / 8
    else:
        scores, g, l = rng.normal(size=(n_samples, n_classes)), rng.normal(size=n_classes), rng.normal(size=n_classes)
    m, h, bounds = np.ones(n_classes), np.zeros(n_classes), (-np.inf, np.inf)
    if multipliers:
        m, h = rng.uniform(0.5, 2, n_classes), rng.normal(size=n_classes) * (rng.uniform(size=n_classes) < 0.7)
        h[0] = 0.3
        ends = np.sort([(0.2 - m[h != 0]) / h[h != 0], (5 - m[h != 0]) / h[h != 0]], axis=0)
        bounds = float(ends[0].max()), float(ends[1].min())
    if draw(st.booleans()):  # two classes that nothing tells apart
        for array in (g, l, m, h):
            array[-1] = array[0]
        scores[:, -1] = scores[:, 0]
    absent = draw(st.integers(0, max(0, n_classes - 2)))
    y = rng.integers(0, n_classes - absent, n_samples)
    y[0] = 0
    copies = draw(st.integers(0, min(4, n_samples - 1)))  # the same scores under another label
    scores[n_samples - copies :] = scores[rng.integers(0, n_samples - copies, copies)]
    weight = rng.choice([0.0, 0.5, 1.0, 2.5], n_samples) if draw(st.booleans()) else None
    if weight is not None:
        weight[0] = 1.0
    context = {"weights": rng.uniform(0.1, 2, n_classes), "groups": rng.integers(0, 3, n_classes)}
    scores = scores.astype(draw(st.sampled_from([np.float32, np.float64])))
    return Case(scores, y, g, l, m, h, weight, context, bounds)


def agrees(case, objective, constraints=()):
    found = case.search(objective, constraints=constraints)
    brute = BruteForce(case, objective, constraints)
    violation, value = brute(found.t)
    assert found.value == pytest.approx(value, abs=1e-12)  # what predict gives there
    least, best = brute.best()
    assert violation == pytest.approx(least, abs=1e-11)
    assert value == pytest.approx(best, abs=1e-10)
    assert found.feasible == (least <= 1e-12)
    here = brute(0.0)
    assert found.unadjusted == pytest.approx(here[1], abs=1e-12)
    if abs(here[0] - least) < 1e-12 and abs(here[1] - best) < 1e-11:
        assert found.t == 0  # nothing is strictly better
    return found, brute


def steps_agree(found, brute):
    """The whole step function: values at the middle of each plateau, and breakpoints nowhere else."""
    assert len(found.values) == len(found.breakpoints) + 1
    assert (np.diff(found.breakpoints) > 0).all()
    for t in brute.middles():
        assert found.values[np.searchsorted(found.breakpoints, t)] == pytest.approx(brute(t)[1], abs=1e-10)


class TestBruteForce:
    @pytest.mark.parametrize("objective", EVERY)
    @settings(max_examples=20)
    @given(case=cases())
    def test_finds_the_same_optimum_and_steps_along_offsets(self, case, objective):
        steps_agree(*agrees(case, objective))

    @pytest.mark.parametrize("objective", ["balanced", "mix:0.3", "cvar:0.3", "worst_group", squares])
    @settings(max_examples=25)
    @given(case=cases(multipliers=True, on_grid=False))
    def test_finds_the_same_optimum_and_steps_along_bounded_multipliers(self, case, objective):
        found, brute = agrees(case, objective)
        steps_agree(found, brute)
        assert case.bounds[0] < found.t < case.bounds[1]

    @pytest.mark.parametrize("objective", ["balanced", "sdev", "cvar:0.4", squares, "macro_f1", share_of_column_0])
    @pytest.mark.parametrize(
        "constraints",
        [
            ["plain <= baseline + 0.05"],
            ["balanced <= 0.4", "err[0] <= 0.5"],
            ["worst <= 0.2"],
            ["macro_f1 <= baseline", "sdev <= baseline + 0.1"],
            ["precision[0] >= 0.6", "recall[0] >= baseline - 0.2"],
            ["kappa >= baseline", "gmean >= 0.2"],
            [(error_range, 0.5)],
        ],
    )
    @settings(max_examples=6)
    @given(case=cases())
    def test_finds_the_same_optimum_under_constraints(self, case, objective, constraints):
        agrees(case, objective, constraints)

    @pytest.mark.parametrize("objective", LINEAR + SPREAD + RANKED + GROUPED)
    @settings(max_examples=10)
    @given(case=cases())
    def test_a_python_function_gives_what_its_form_gives(self, case, objective):
        weight = np.ones(len(case.y)) if case.weight is None else case.weight
        totals = np.bincount(case.y, weights=weight, minlength=case.n_classes)
        form = as_objective(objective).on(ClassContext.of(totals, **case.context))
        by_form, by_function = case.search(objective), case.search(lambda errors: form(errors))
        np.testing.assert_array_equal(by_form.breakpoints, by_function.breakpoints)
        np.testing.assert_allclose(by_form.values, by_function.values, atol=1e-11)
        assert by_form.value == pytest.approx(by_function.value, abs=1e-11)
        assert by_form.t == pytest.approx(by_function.t)

    @settings(max_examples=15)
    @given(case=cases())
    def test_any_function_of_the_confusion_matrix_gives_what_its_form_gives(self, case):
        def one_minus_mean_f1(confusion):
            both = confusion.sum(axis=0) + confusion.sum(axis=1)
            f1 = 2 * np.diag(confusion) / np.maximum(both, 1e-300)
            return 1 - f1[confusion.sum(axis=1) > 0].mean()

        by_form, by_function = case.search("macro_f1"), case.search(confusion_objective(one_minus_mean_f1))
        np.testing.assert_allclose(by_form.values, by_function.values, atol=1e-11)
        assert (by_form.t, by_form.value) == pytest.approx((by_function.t, by_function.value), abs=1e-11)


class TestScikitLearn:
    @pytest.fixture
    def validation(self, rng):
        y = rng.choice(4, 200, p=[0.6, 0.25, 0.1, 0.05])
        return rng.normal(size=(200, 4)) + 1.5 * np.eye(4)[y] + np.log([0.6, 0.25, 0.1, 0.05]), y

    @pytest.mark.parametrize("average", ["macro", "weighted"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_f1_at_the_optimum(self, validation, average, weighted, rng):
        scores, y = validation
        weight, g = rng.uniform(0.1, 2, len(y)) if weighted else None, np.log([0.6, 0.25, 0.1, 0.05])
        found = exact_line_search(scores, y, g, f"{average}_f1", sample_weight=weight)
        predictions = (scores - found.t * g).argmax(axis=1)
        f1 = metrics.f1_score(y, predictions, average=average, sample_weight=weight)
        assert found.value == pytest.approx(1 - f1, abs=1e-12)
        assert found.value < found.unadjusted

    @pytest.mark.parametrize(
        ("objective", "oracle"),
        [
            ("precision[2]", lambda y, p, w: metrics.precision_score(y, p, average=None, sample_weight=w)[2]),
            ("recall[3]", lambda y, p, w: metrics.recall_score(y, p, average=None, sample_weight=w)[3]),
            ("f1[3]", lambda y, p, w: metrics.f1_score(y, p, average=None, sample_weight=w)[3]),
            ("kappa", lambda y, p, w: metrics.cohen_kappa_score(y, p, sample_weight=w)),
            ("mcc", lambda y, p, w: metrics.matthews_corrcoef(y, p, sample_weight=w)),
        ],
    )
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.filterwarnings("ignore:Precision is ill-defined")
    def test_on_every_plateau(self, validation, objective, oracle, weighted, rng):
        scores, y = validation
        weight, g = rng.uniform(0.1, 2, len(y)) if weighted else None, np.log([0.6, 0.25, 0.1, 0.05])
        found = exact_line_search(scores, y, g, objective, sample_weight=weight)
        ends = np.concatenate([[found.breakpoints[0] - 1], found.breakpoints, [found.breakpoints[-1] + 1]])
        middles = (ends[1:] + ends[:-1]) / 2
        expected = [1 - oracle(y, (scores - t * g).argmax(axis=1), weight) for t in middles]
        np.testing.assert_allclose(found.values, expected, atol=1e-10)
        assert found.value == pytest.approx(min(expected))

    def test_cost_at_the_optimum(self, validation):
        scores, y = validation
        costs, g = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [5, 2, 0, 1], [9, 5, 3, 0.0]]), np.array([1.0, 0.5, 0, -1])
        found = exact_line_search(scores, y, g, expected_cost(costs))
        confusion = metrics.confusion_matrix(y, (scores - found.t * g).argmax(axis=1))
        assert found.value == pytest.approx((costs * confusion).sum() / len(y))
        assert found.value < found.unadjusted

    def test_f1_on_scores_with_fixed_multipliers(self, validation):
        scores, y = validation
        m, g = np.array([1.0, 1.2, 1.5, 2.0]), np.array([1.0, 0, 0, 0])
        found = exact_line_search(scores, y, g, "macro_f1", multipliers=m)
        predictions = (scores * m - found.t * g).argmax(axis=1)
        assert found.value == pytest.approx(1 - metrics.f1_score(y, predictions, average="macro"))


class TestPlateaus:
    def test_equal_scores_under_different_labels_are_never_both_right(self):
        found = exact_line_search([[0.0, 0.0], [0.0, 0.0]], [0, 1], [1.0, 0.0], "balanced")
        assert found.values.min() == found.value == 0.5
        assert found.t == 0

    def test_the_lower_index_wins_where_slopes_and_scores_are_equal(self):
        scores = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 5.0]]
        found = exact_line_search(scores, [0, 1, 2], [0.0, 0.0, -1.0], "worst_group", groups=[0, 1, 1])
        np.testing.assert_allclose(found.breakpoints, [-5.0, 1.0])
        np.testing.assert_allclose(found.values, [1.0, 0.5, 1.0])  # the second is never right

    def test_a_tie_in_the_middle_of_a_plateau_is_stepped_aside(self):
        # All are wrong from t = 1 to 3, except that at 2 exactly the first sample's scores tie and index 0 wins.
        scores = np.array([[0.0, 2.0, -2.0], [0.0, 1.0, -9.0], [0.0, -9.0, -3.0]])
        found = exact_line_search(scores, [0, 1, 2], [0.0, 1.0, -1.0], objective="sdev")
        np.testing.assert_array_equal(found.breakpoints, [1.0, 3.0])
        assert 1 < found.t < 3
        assert found.t != 2
        assert found.value == 0

    def test_a_direction_that_moves_nothing_has_one_plateau(self):
        found = exact_line_search([[1.0, 0.0], [0.0, 1.0]], [1, 0], [2.0, 2.0], "plain")
        assert found.t == 0
        assert found.value == found.unadjusted == 1
        assert len(found.breakpoints) == 0

    @pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
    @pytest.mark.parametrize("objective", ["balanced", "macro_f1"])
    def test_units_of_scores_and_direction_do_not_matter(self, rng, scale, objective):
        y = rng.integers(0, 4, 120)
        scores, g = rng.normal(size=(120, 4)) + np.eye(4)[y], rng.normal(size=4)
        plain = exact_line_search(scores, y, g, objective)
        for found, unit in (
            (exact_line_search(scale * scores, y, g, objective), scale),
            (exact_line_search(scores, y, scale * g, objective), 1 / scale),
        ):
            assert found.value == pytest.approx(plain.value)
            assert found.t == pytest.approx(plain.t * unit)

    def test_among_equals_the_wider_plateau_is_preferred(self):
        line = Line(np.array([1.0, 2.0, 3.0, 6.0]), np.array([0.5, 0.1, 0.3, 0.1, 0.5]), np.zeros(5))
        assert choose(line)[0] == 4.5

    def test_among_equally_wide_ones_the_nearer(self):
        line = Line(np.array([-3.0, -2.0, 1.0, 2.0]), np.array([0.5, 0.1, 0.3, 0.1, 0.5]), np.zeros(5))
        assert choose(line)[0] == 1.5

    def test_widths_beyond_the_bulk_of_the_breakpoints_count_alike(self):
        breakpoints = np.concatenate([np.linspace(1, 2, 40), [1e6, 1e7]])
        values = np.full(43, 0.5)
        values[[40, 41]] = 0.1  # from 2 to 10⁶ and from 10⁶ to 10⁷: both wider than the bulk
        assert choose(Line(breakpoints, values, np.zeros(43)))[0] < 1e6

    def test_an_infinite_plateau_is_entered_only_if_nothing_equals_it_and_by_a_median_gap(self):
        breakpoints = np.array([0.5, 1.0, 3.0])
        assert choose(Line(breakpoints, np.array([0.5, 0.1, 0.3, 0.1]), np.zeros(4)))[0] == 0.75
        assert choose(Line(breakpoints, np.array([0.5, 0.2, 0.3, 0.1]), np.zeros(4)))[0] == 3 + 1.25
        assert choose(Line(breakpoints, np.array([0.1, 0.2, 0.3, 0.5]), np.zeros(4)))[0] == 0.5 - 1.25

    def test_plateaus_as_narrow_as_rounding_are_passed_over(self):
        line = Line(np.array([1.0, 1.0 + 1e-12, 2.0]), np.array([0.5, 0.0, 0.2, 0.5]), np.zeros(4))
        assert choose(line)[0] == pytest.approx(1.5)

    def test_bounds_cut_plateaus(self):
        line = Line(np.array([1.0, 2.0]), np.array([0.1, 0.5, 0.0]), np.zeros(3))
        assert choose(line, (-4.0, 1.5))[0] == -1.5
        assert choose(line, (1.2, 1.5))[0] == pytest.approx(1.35)

    def test_violation_counts_before_the_objective(self):
        line = Line(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.4, 0.2, 0.1]), np.array([0.3, 0.1, 0.1, 0.2]))
        t, worth = choose(line)
        assert t == 2.5
        assert worth == (0.1, 0.2)


class TestMistakes:
    def test_directions_must_have_one_finite_number_per_class(self):
        for name, bad in (("direction", [1.0]), ("offsets", [0.0, np.nan]), ("multiplier_direction", [1, 2, 3])):
            with pytest.raises(InputError, match=name):
                exact_line_search([[1.0, 0.0], [0.0, 1.0]], [0, 1], **{"direction": [1.0, 0.0], name: bad})

    def test_confusion_objectives_cannot_follow_moving_multipliers(self):
        with pytest.raises(InputError, match="offsets only"):
            exact_line_search([[1.0, 0.0]] * 2, [0, 1], [0, 0], "macro_f1", multiplier_direction=[1.0, 0.0])

    def test_nan_scores_are_named(self):
        with pytest.raises(InputError, match=r"scores\[0, 1\] is nan"):
            exact_line_search([[1.0, np.nan], [0, 1]], [0, 1], [1, 0])

    def test_an_absent_class_is_an_error_unless_ignored(self):
        with pytest.raises(InputError, match="class 1 has no sample"):
            exact_line_search([[1.0, 0.0]], [0], [1, 0])
        with pytest.warns(AbsentClassWarning, match="class 1"):
            exact_line_search([[1.0, 0.0]], [0], [1, 0], absent="ignore")

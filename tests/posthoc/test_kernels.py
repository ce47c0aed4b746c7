"""The compiled passes against their definitions, and against themselves as plain Python."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from capri import LogitAdjuster
from capri.forms import ConfusionForm, Form
from capri.posthoc import _kernels
from capri.posthoc.line import stack_forms

both = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "plain Python"])


def pick(kernel, compiled):
    return kernel if compiled else kernel.py_func


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):  # plain Python divides by equal slopes as the compiled code does, with a warning
        yield


def random_line(seed, n=40, k=5, multipliers=True):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-4, 5, (n, k)) / 4 if seed % 2 else rng.normal(size=(n, k))
    g = rng.integers(-1, 2, k).astype(float)
    h = rng.normal(size=k) if multipliers and not seed % 2 else np.zeros(k)
    return scores, rng.integers(0, k, n), np.ones(k), rng.integers(-2, 3, k) / 8, h, g


@both
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sample_is_right_inside_its_interval_and_wrong_outside(compiled, seed, dtype):
    scores, y, m, l, h, g = random_line(seed)
    scores = scores.astype(dtype)
    low, high = np.empty(len(y)), np.empty(len(y))
    pick(_kernels.right_intervals, compiled)(scores, y, low, high, m, l, h, g)
    inside = 0
    for t in np.linspace(-3, 3, 97) + 1 / 256:  # exact in binary, and on none of the crossings of the grid
        z = scores.astype(np.float64) * (m + t * h) - (l + t * g)
        right = z.argmax(axis=1) == y
        np.testing.assert_array_equal(right, (low < t) & (t < high))
        inside += right.sum()
    assert inside > 50


@both
def test_a_sample_that_is_never_right_has_an_empty_interval(compiled):
    scores = np.array([[1.0, 0.0], [0.5, 0.5]])
    low, high = np.empty(2), np.empty(2)
    one, none = np.ones(2), np.zeros(2)
    pick(_kernels.right_intervals, compiled)(scores, np.array([1, 1]), low, high, one, none, none, none)
    assert (low == np.inf).all()
    assert (high == -np.inf).all()
    pick(_kernels.right_intervals, compiled)(scores, np.array([0, 0]), low, high, one, none, none, none)
    assert (low == -np.inf).all()  # the first by its score, the second by its index
    assert (high == np.inf).all()


def forms_of(k, rng):
    groups = rng.integers(0, 3, k)
    groups[:3] = [0, 1, 2]
    return [
        Form(rng.normal(size=k)),
        Form(np.zeros(k), deviation=1.0),
        Form(rng.normal(size=k), 0.5, rng.normal(size=k), np.arange(k)),
        Form(np.zeros(k), 0.0, np.array([1.0, 0.5, -0.2]), groups),
        Form(rng.normal(size=k), 0.5, geometric=0.7),
    ]


@both
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_swept_values_are_those_of_the_errors_on_each_plateau(compiled, seed):
    rng = np.random.default_rng(seed)
    k, n_events = int(rng.integers(3, 9)), int(rng.integers(0, 40))
    errors, forms = rng.integers(0, 5, k) / 4, forms_of(k, rng)
    slots = np.sort(rng.integers(0, 12, n_events))
    classes, steps = rng.integers(0, k, n_events), rng.choice([-0.25, 0.25, 0.125], n_events)
    values = np.empty((len(forms), 14))
    pick(_kernels.sweep_errors, compiled)(slots, classes, steps, errors.copy(), *stack_forms(forms), values)
    for plateau in range(14):
        now = errors.copy()
        np.add.at(now, classes[slots < plateau], steps[slots < plateau])
        np.testing.assert_allclose(values[:, plateau], [form(now) for form in forms], atol=1e-12)


@both
def test_the_spread_of_equal_errors_is_zero_after_many_steps(compiled):
    k, rng = 7, np.random.default_rng(0)
    steps = rng.uniform(0.01, 0.02, 300)
    there = np.tile(steps, 2)
    there[300:] *= -1  # up and down again, in other words back to equal errors
    classes = np.concatenate([rng.integers(0, k, 300)] * 2)
    classes[300:] = classes[:300]
    values = np.empty((1, 601))
    forms = stack_forms([Form(np.zeros(k), deviation=1.0)])
    pick(_kernels.sweep_errors, compiled)(np.arange(600), classes, there, np.full(k, 0.3), *forms, values)
    assert values[0, 0] == pytest.approx(0, abs=1e-13)
    assert values[0, 300] > 0.01
    assert values[0, -1] == pytest.approx(0, abs=1e-13)


@both
@pytest.mark.parametrize("seed", range(6))
def test_envelopes_hold_the_predicted_class_of_every_t(compiled, seed):
    scores, _, m, l, _, g = random_line(seed, multipliers=False)
    n, k = scores.shape
    m = np.linspace(1, 2, k) if seed % 2 == 0 else m
    order = np.lexsort((np.arange(k), -g))
    sizes, first = np.empty(n, np.int64), np.empty(n, np.int64)
    times, after = np.empty((n, k - 1)), np.empty((n, k - 1), np.int64)
    pick(_kernels.envelope_events, compiled)(scores, sizes, first, times, after, order, m, l, g)
    for t in np.linspace(-3, 3, 61) + 1 / 256:
        expected = (scores * m - (l + t * g)).argmax(axis=1)
        for i in range(n):
            own = times[i, : sizes[i] - 1]
            assert (np.diff(own) > 0).all()
            passed = np.searchsorted(own, t)
            assert (after[i, passed - 1] if passed else first[i]) == expected[i]
    few_times, few_after = np.empty((n, 1)), np.empty((n, 1), np.int64)  # as many changes as there is room for
    pick(_kernels.envelope_events, compiled)(scores, sizes, first, few_times, few_after, order, m, l, g)
    changed = sizes > 1
    assert changed.any()
    np.testing.assert_array_equal(few_times[changed, 0], times[changed, 0])
    np.testing.assert_array_equal(few_after[changed, 0], after[changed, 0])


def one_envelope(kernel, scores, order, m, l, g):
    """By looking at all classes."""
    k = scores.shape[1]
    z, top, since = (m * scores[0] - l)[order], np.zeros(k, np.int64), np.zeros(k)
    size = kernel(z, g[order], order, k, top, since)
    return top[:size].tolist(), since[:size].tolist()


@both
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), slopes=st.sampled_from(["any", "few", "two far apart"]), ties=st.booleans())
def test_among_many_classes_the_envelope_is_that_of_its_contenders(compiled, seed, slopes, ties):
    rng = np.random.default_rng(seed)
    n, k = 4, int(rng.integers(_kernels.FEW + 1, 200))
    scores = rng.integers(-4, 5, (n, k)) / 4 if ties else rng.normal(size=(n, k))
    g = {"any": rng.normal(size=k), "few": rng.integers(-2, 3, k) / 2, "two far apart": 1e-3 * rng.integers(-1, 2, k)}
    g = g[slopes] + (50.0 * (rng.uniform(size=k) < 0.02) if slopes == "two far apart" else 0.0)
    m, l, order = rng.choice([0.5, 1.0], k), rng.integers(-2, 3, k) / 8, np.lexsort((np.arange(k), -g))
    sizes, first = np.empty(n, np.int64), np.empty(n, np.int64)
    times, after = np.empty((n, k)), np.empty((n, k), np.int64)
    pick(_kernels.envelope_events, compiled)(scores, sizes, first, times, after, order, m, l, g)
    for i in range(n):
        top, since = one_envelope(_kernels._envelope, scores[i : i + 1], order, m, l, g)
        assert (sizes[i], first[i]) == (len(top), top[0])
        assert after[i, : len(top) - 1].tolist() == top[1:]
        assert times[i, : len(top) - 1].tolist() == since[1:]


@both
def test_a_class_that_leads_at_one_point_only_is_not_on_the_envelope(compiled):
    scores, g = np.array([[0.0, 1.0, 2.0], [0.0, 1.5, 2.0]]), np.array([1.0, 0.0, -1.0])
    sizes, first, times, after = (
        np.empty(2, np.int64),
        np.empty(2, np.int64),
        np.empty((2, 2)),
        np.empty((2, 2), np.int64),
    )
    kernel = pick(_kernels.envelope_events, compiled)
    kernel(scores, sizes, first, times, after, np.array([0, 1, 2]), np.ones(3), np.zeros(3), g)
    assert sizes.tolist() == [2, 3]  # all three lines of the first meet at t = −1


def test_the_envelope_of_one_sample_in_plain_python_is_the_compiled_one():
    for seed in range(20):
        scores, _, m, l, _, g = random_line(seed, n=1, k=7, multipliers=False)
        order = np.lexsort((np.arange(7), -g))
        ours, theirs = (
            one_envelope(e, scores, order, m, l, g) for e in (_kernels._envelope, _kernels._envelope.py_func)
        )
        assert ours == theirs


@both
@pytest.mark.parametrize("seed", range(5))
def test_swept_margins_and_moments_are_those_of_each_plateau(compiled, seed):
    rng = np.random.default_rng(seed)
    k, n = 4, 30
    before, after = rng.integers(0, k, n), rng.integers(0, k, n)
    slots = np.sort(rng.integers(0, 10, n))
    mass = rng.dirichlet(np.ones(k), n) * rng.choice([0.5, 1.0, 2.0], n)[:, None]  # soft labels
    mass[::3] = np.eye(k)[rng.integers(0, k, n)[::3]]  # and hard ones
    weights, events = mass.sum(axis=1), np.arange(n)

    def confusion_at(plateau):
        confusion = np.zeros((k, k))
        np.add.at(confusion.T, np.where(slots < plateau, after, before), mass)
        return confusion

    costs, f1, precision = rng.normal(size=(k, k)), rng.normal(size=k), rng.normal(size=k)
    form, start = ConfusionForm(costs, f1, precision, constant=0.5), confusion_at(0)
    values, sums = np.full(12, 0.5 + (costs * start).sum()), np.empty((3, 12))
    moved = slots, before, after, mass[events, before], mass[events, after], weights
    prices = (mass @ costs)[events, after] - (mass @ costs)[events, before]
    pick(_kernels.sweep_margins, compiled)(*moved, prices, *margins(start), f1, precision, values)
    pick(_kernels.sweep_moments, compiled)(*moved, *margins(start), sums)
    for plateau in range(12):
        confusion = confusion_at(plateau)
        assert values[plateau] == pytest.approx(form(confusion))
        rows, columns = confusion.sum(axis=1), confusion.sum(axis=0)
        np.testing.assert_allclose(sums[:, plateau], [np.trace(confusion), rows @ columns, columns @ columns])


def margins(confusion):
    return np.diag(confusion).copy(), confusion.sum(axis=1), confusion.sum(axis=0)


@both
def test_a_class_that_is_left_again_has_no_precision(compiled):
    weights = np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.3])  # 0.1 + 0.2 + 0.3 − 0.1 − 0.2 − 0.3 is not 0
    there = np.array([0, 0, 0, 1, 1, 1])
    values, nothing, precision = np.zeros(7), np.zeros(2), np.array([1.0, 0.0])
    moved = np.arange(6), 1 - there, there, weights * (there == 1), weights * (there == 0), weights  # all of class 0
    start = margins(np.array([[0.0, 0.6], [0.0, 1.0]]))
    pick(_kernels.sweep_margins, compiled)(*moved, np.zeros(6), *start, nothing, precision, values)
    np.testing.assert_allclose(values, [0, 1, 1, 1, 1, 1, 0])


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_soft_decisions_are_a_softmax(compiled, rng, dtype):
    scores = (3 * rng.normal(size=(50, 6))).astype(dtype)
    scale, shift, p = rng.uniform(0.5, 2, 6), rng.normal(size=6), np.empty((50, 6), dtype)
    unit = 2.0**-_kernels.SQUARINGS
    soft = pick(_kernels.soft_decisions, compiled)
    soft(scores, p, (unit * scale).astype(dtype), (unit * shift).astype(dtype))
    np.testing.assert_allclose(p, softmax(scores * scale - shift, axis=1), atol=1e-5 if dtype == np.float32 else 1e-10)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_opinions_and_variances_are_sums_over_the_posterior(compiled, rng, dtype):
    scores, y, weight = (2 * rng.normal(size=(150, 6))).astype(dtype), rng.integers(0, 6, 150), rng.uniform(0, 2, 150)
    scale, shift, chance = np.full(6, 1.5), rng.normal(size=6), rng.dirichlet(np.ones(6))
    q = softmax(scores * scale - shift, axis=1)
    units = [(2.0**-_kernels.SQUARINGS * v).astype(dtype) for v in (scale, shift)]
    own, sums, seen, tolerance = np.empty(150), np.ones(7), np.ones(6), 2e-4 if dtype == np.float32 else 1e-8
    pick(_kernels.opinions, compiled)(np.arange(150), y, weight, own, sums, scores, *units, 0.1, chance)
    pick(_kernels.variances, compiled)(scores, weight, seen, *units)
    given = q[np.arange(150), y]
    np.testing.assert_allclose(own, given, atol=tolerance)
    trusted = weight * 0.9 * given / (0.9 * given + 0.1 * chance[y])
    np.testing.assert_allclose(sums[:6] - 1, trusted @ q, atol=tolerance)
    assert sums[6] - 1 == pytest.approx(trusted @ (q * scores).sum(axis=1), abs=10 * tolerance)
    np.testing.assert_allclose(seen - 1, weight @ (q * (1 - q)), atol=tolerance)


@both
def test_soft_margins_and_slopes_are_their_sums(compiled, rng):
    p, mass = rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.ones(4), 30) * rng.choice([0.0, 1, 2], 30)[:, None]
    weight, by_hits, by_columns, scores = mass.sum(axis=1), *rng.normal(size=(2, 4)), rng.normal(size=(30, 4))
    hits, columns = np.zeros(4), np.zeros(4)
    pick(_kernels.soft_margins, compiled)(p, mass, weight, hits, columns)
    np.testing.assert_allclose(hits, (mass * p).sum(axis=0))
    np.testing.assert_allclose(columns, weight @ p)
    v = mass * by_hits + weight[:, None] * by_columns
    slopes = p * (v - (p * v).sum(axis=1, keepdims=True))
    for by in (np.ones((1, 1)), scores):
        found = np.zeros(4)
        pick(_kernels.soft_slopes, compiled)(p, mass, weight, by_hits, by_columns, by, found)
        np.testing.assert_allclose(found, (slopes * by).sum(axis=0), atol=1e-12)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_are_those_of_argmax(compiled, rng, dtype):
    scores = (rng.integers(-2, 3, (200, 4)) / 2).astype(dtype)  # many ties
    m, l = np.array([1.0, 2.0, 1.0, 0.5]), np.array([0.0, 0.5, 0.0, -0.25])
    predictions = np.empty(200, np.int64)
    pick(_kernels.predict, compiled)(scores, predictions, m, l)
    np.testing.assert_array_equal(predictions, (scores * m - l).argmax(axis=1))


def test_where_arrays_lie_in_memory_changes_no_bit(tail):
    def fit():
        return tail.fitted(LogitAdjuster(bootstrap=0)).strategy_.l.tobytes()

    def elsewhere():
        with ThreadPoolExecutor(1) as pool:  # a thread has a heap of its own
            return pool.submit(fit).result()

    assert {fit(), *(elsewhere() for _ in range(100))} == {fit()}

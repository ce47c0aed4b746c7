"""What screening leaves decides as everything does, and searches on it find what they find without."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capri.evidence import Evidence
from capri.posthoc import _compiled, line, matrices, smooth
from capri.posthoc.adjustment import Adjustment
from capri.posthoc.line import least_beyond, trace_near
from capri.posthoc.methods import Task, tune
from capri.posthoc.problem import Problem
from capri.posthoc.screening import Remainder, screen


def drawn(seed, dtype=np.float64, ties=True):
    """Scores and a box; with ties, of scores as of sums of scores and offsets."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 31)), int(rng.integers(2, 41))
    scores = rng.integers(-8, 9, (n, k)) / 4 if ties else 3 * rng.normal(size=(n, k))
    centre = Adjustment(rng.choice([0.5, 1.0, 2.0], k), rng.integers(-4, 5, k) / 4)
    return rng, scores.astype(dtype), centre, float(rng.choice([0.0, 0.25, 1.0, 3.0]))


@settings(max_examples=200)
@given(seed=st.integers(0, 10**9), ties=st.booleans(), double=st.booleans())
def test_decisions_in_the_box_are_those_of_all_scores(seed, ties, double):
    rng, scores, centre, radius = drawn(seed, np.float64 if double else np.float32, ties)
    left = screen(scores, centre, radius)
    y = rng.integers(0, scores.shape[1], len(scores))
    for _ in range(5):
        moved = (
            rng.choice([-radius, 0.0, radius], len(centre.l)) if ties else rng.uniform(-radius, radius, len(centre.l))
        )
        here = centre._replace(l=centre.l + moved)
        expected = (scores * here.delta - here.l).argmax(axis=1)
        assert left.holds(here._replace(l=centre.l + 0.999 * moved))
        assert left.decides(here._replace(l=centre.l + 0.999 * moved))
        np.testing.assert_array_equal(left.predict(here), expected)
        assert ((left.predict(here) == y) == (expected == y)).all()


@pytest.mark.parametrize("k", [2, 3, 4, 5])
@pytest.mark.parametrize("radius", [0.25, 1.0])
def test_every_corner_edge_and_middle_of_the_box_on_small_cases_with_ties(k, radius):
    """Exhaustively: all offsets of a grid over the box, on samples whose scores are of the same grid."""
    rng = np.random.default_rng(k)
    scores = rng.integers(-4, 5, (30, k)) / 4
    y = rng.integers(0, k, 30)
    problem = Problem(scores, y, "balanced", absent="ignore") if len(set(y)) < k else Problem(scores, y, "balanced")
    left = screen(problem.scores, problem.neutral, radius)
    for corner in product((-radius, -radius / 2, 0.0, radius / 2, radius), repeat=k):
        here = Adjustment.offsets(np.array(corner))
        expected = (scores - here.l).argmax(axis=1)
        np.testing.assert_array_equal(left.predict(here), expected)
        np.testing.assert_array_equal(problem.errors_of(left.predict(here)), problem.errors_of(expected))


def test_what_cannot_win_is_left_out():
    scores = np.array([[5.0, 0.0, 4.0], [1.0, 1.0, 1.0], [9.0, 0.0, 0.0]])
    left = screen(scores, Adjustment.neutral(3), 0.5)
    assert np.diff(left.starts).tolist() == [2, 3, 1]
    assert left.classes.tolist() == [0, 2, 0, 1, 2, 0]
    assert left.samples.tolist() == [0, 0, 1, 1, 1, 2]
    assert left.scores.tolist() == [5, 4, 1, 1, 1, 9]
    assert left.share == 6 / 9
    reaching = screen(scores, Adjustment.neutral(3), 0.5, reach=4.0)
    assert np.diff(reaching.starts).tolist() == [3, 3, 1]


def test_a_box_holds_what_is_in_it_up_to_a_shift():
    left = screen(np.zeros((1, 3)), Adjustment.offsets(np.array([1.0, 2.0, 3.0])), 0.5)
    assert left.holds(Adjustment.offsets(np.array([8.5, 8.5, 9.5])))
    assert not left.holds(Adjustment.offsets(np.array([1.0, 2.0, 4.1])))
    assert not left.holds(Adjustment(np.array([1.0, 1.0, 1.1]), np.array([1.0, 2.0, 3.0])))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_blocks_of_samples_make_the_remainder_of_all(rng, monkeypatch, n_threads):
    scores, centre = rng.normal(size=(100, 7)), Adjustment.offsets(rng.normal(size=7))
    whole = screen(scores, centre, 0.3)
    monkeypatch.setattr(_compiled, "LEAST_SUMMED", 70)
    monkeypatch.setattr(_compiled, "PARALLEL_FROM", 1)
    monkeypatch.setattr(_compiled, "threads", lambda: n_threads)
    for parts in (
        screen(scores, centre, 0.3),
        Remainder.merged([screen(scores[:33], centre, 0.3), screen(scores[33:], centre, 0.3)]),
    ):
        for name in ("starts", "classes", "scores"):
            np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_a_problem_judges_by_what_is_left_and_leaves_nothing_else_to_it(tail, rng):
    problem, plain = Problem(tail.scores, tail.y), Problem(tail.scores, tail.y)
    problem.screen(Adjustment.offsets(np.log(tail.counts)), 0.4)
    for spread in (0.1, 3.0):  # in the box, and beyond
        for _ in range(10):
            there = Adjustment.offsets(np.log(tail.counts) + spread * rng.uniform(-1, 1, 5))
            assert problem.remainder.decides(there) == (spread < 1)
            np.testing.assert_array_equal(problem.predict(there), plain.predict(there))
            assert problem.worth(there) == plain.worth(there)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), ties=st.booleans(), soft=st.booleans())
def test_a_line_in_the_box_is_that_part_of_the_whole(seed, ties, soft):
    rng, scores, centre, radius = drawn(seed, ties=ties)
    n, k = scores.shape
    centre, y = Adjustment.offsets(centre.l), rng.integers(0, k, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some classes have no sample
        problem, g = Problem(scores, y, "cvar:0.4", absent="ignore"), rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], k)
    if soft:
        problem = problem.believing(rng.dirichlet(np.ones(k), n) * problem.present)
    left = problem.screen(centre, radius, reach=0.5)
    start = Adjustment.offsets(centre.l + rng.choice([-radius, 0, radius], k) / 2)
    reach = left.room(start, g)
    near, full = trace_near(problem, left, start, g, reach), trace_decisions(problem, start, g)
    for t in rng.uniform(-reach, reach, 30):
        ours, theirs = (line.values[np.searchsorted(line.breakpoints, t)] for line in (near.line, full))
        assert ours == pytest.approx(theirs, abs=1e-9)
    inside = np.abs(full.breakpoints) < 0.999 * reach
    assert np.isin(full.breakpoints[inside], near.line.breakpoints).all()
    slopes = ((near.first, g, full.breakpoints < -reach), (near.last, -g, full.breakpoints > reach))
    for decisions, slope, beyond in slopes:
        values = full.values[:-1][beyond] if slope is g else full.values[1:][beyond]
        assert (values >= least_beyond(problem, left, decisions, slope) - 1e-9).all()


def trace_decisions(problem, start, g):
    """By what samples are decided to be, as soft labels need it."""
    breakpoints, values = line._trace_decisions(problem, start, g)
    return line.Line(breakpoints, values[0], np.zeros(values.shape[1]))


smooth_lost = smooth.LOST


@pytest.mark.parametrize("objective", ["balanced", "cvar:0.5", "worst", "gmean", "quantile:0.3", "sdev"])
@pytest.mark.parametrize(("lost", "same"), [(40.0, 1e-9), (smooth.LOST, 1e-5)], ids=["no mass lost", "as it is"])
def test_screened_searches_find_what_others_find(objective, lost, same, monkeypatch):
    """Small cases: 2 to 5 classes, few samples, half of them with ties. Offsets are the same if no mass is lost."""
    monkeypatch.setattr(smooth, "LOST", lost)
    near = []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        k = 2 + seed % 4
        n, y = 30 - seed % 6, np.append(np.arange(k), rng.integers(0, k, 30 - k - seed % 6))
        scores = rng.integers(-4, 5, (n, k)) / 4 + np.eye(k)[y] if seed % 2 else rng.normal(size=(n, k)) + np.eye(k)[y]
        found = []
        for large in (10**9, 1):
            monkeypatch.setattr(matrices, "LARGE", large)
            known = Evidence(class_counts=np.arange(k, 0, -1.0) * 10)
            task = Task(Problem(scores, y, objective), known, borrow=20.0)
            found.append(tune(task, "cap"))
            if large == 1:
                near.append(task.informed.problem.remainder is not None)
        assert found[1].worth == pytest.approx(found[0].worth, abs=same)
        if lost > smooth_lost:
            np.testing.assert_allclose(found[1].adjustment.l, found[0].adjustment.l, atol=same)
    assert all(near)

"""Floors on all classes and on groups: exact along lines, with a smooth twin."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from capri import AbsentClassWarning, InputError, LogitAdjuster, as_objective, evaluate
from capri.forms import ClassContext, LeastForm
from capri.posthoc.adjustment import Adjustment, Direction
from capri.posthoc.line import trace
from capri.posthoc.problem import Problem

GROUPS = ["x", "x", "y", "y", "y", "z"]
SPECS = ["precision[*]", "f1[*]", "recall[*]", "err[*]", "precision[group:y]", "f1[group:x]", "recall[group:y]"]


def samples(n=400, k=6, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    return rng.normal(size=(n, k)) + 1.3 * np.eye(k)[y], y


def by_hand(spec, y, decided):
    name, which = spec[:-1].split("[")
    sets = [[k] for k in range(6)] if which == "*" else [[k for k, g in enumerate(GROUPS) if g == which[-1]]]
    found = []
    for classes in sets:
        true, chosen, right = np.isin(y, classes), np.isin(decided, classes), y == decided
        hits = (right & true).sum()
        whole = {"precision": chosen.sum(), "f1": (true.sum() + chosen.sum()) / 2}.get(name, true.sum())
        found.append(hits / whole if whole else 0.0)
    return 1 - min(found)


@pytest.mark.parametrize("spec", SPECS)
def test_the_definition(spec):
    scores, y = samples()
    decided = scores.argmax(axis=1)
    assert evaluate(y, decided, 6, [spec], groups=GROUPS)[spec] == pytest.approx(by_hand(spec, y, decided))


@pytest.mark.parametrize("beliefs", [False, True])
@pytest.mark.parametrize("spec", SPECS)
def test_lines_are_exact(spec, beliefs):
    scores, y = samples()
    problem = Problem(scores, y, spec, groups=GROUPS)
    if beliefs:
        soft = np.random.default_rng(1).dirichlet(np.ones(6), len(y))
        problem = problem.believing(soft)
    rng = np.random.default_rng(2)
    l, g = rng.normal(size=(2, 6))
    line = trace(problem, Adjustment.offsets(l), Direction(np.zeros(6), g))
    middles = (line.breakpoints[1:] + line.breakpoints[:-1]) / 2
    wide = np.flatnonzero(np.diff(line.breakpoints) > 1e-9)
    for i in rng.choice(wide, 25):
        assert problem.worth(Adjustment.offsets(l + middles[i] * g)).value == pytest.approx(
            line.values[i + 1], abs=1e-9
        )


@pytest.mark.parametrize("spec", ["precision[*]", "f1[*]", "precision[group:y]", "f1[group:x]"])
def test_the_smooth_twin_is_near_and_has_its_derivatives(spec):
    y = samples()[1]
    form = as_objective(spec).on(ClassContext.of(np.bincount(y), groups=GROUPS))
    assert isinstance(form, LeastForm)
    rows, margins = np.bincount(y).astype(float), np.random.default_rng(0).uniform(20, 40, 12)
    value, by_hits, by_columns = form.smooth(margins[:6], rows, margins[6:] + 30)
    slopes = approx_fprime(margins, lambda m: form.smooth(m[:6], rows, m[6:] + 30)[0], 1e-6)
    np.testing.assert_allclose(np.append(by_hits, by_columns), slopes, atol=1e-6)
    assert 0 <= value - form.of_margins(margins[:6], rows, margins[6:] + 30) <= 0.02 * np.log(6)


@pytest.mark.parametrize("text", ["precision[*] >= 0.45", "f1[*] >= 0.5", "recall[group:y] >= 0.55"])
def test_floors_are_kept(text):
    scores, y = samples(1500)
    with_floor = LogitAdjuster("plain", constraints=[text], groups=GROUPS, bootstrap=0, borrow=0)
    with_floor.fit(scores, y, class_counts=[1] * 6)
    name, floor = text.split(" >= ")
    assert 1 - evaluate(y, with_floor.predict(scores), 6, [name], groups=GROUPS)[name] >= float(floor)


def test_absent_classes_have_no_floor():
    scores, y = samples()
    scores, y = scores[y != 3], y[y != 3]
    with pytest.warns(AbsentClassWarning):
        value = evaluate(y, scores.argmax(axis=1), 6, ["recall[*]", "precision[*]"], absent="ignore")
    assert value["recall[*]"] < 1
    assert value["precision[*]"] < 1


def test_a_class_of_that_name_comes_first():
    assert evaluate(["*", "*", "a"], ["*", "a", "a"], objectives=["recall[*]"]) == {"recall[*]": 0.5}


def test_groups_must_be_given():
    with pytest.raises(InputError, match=r"precision\[group:x\] needs groups="):
        evaluate([0, 1], [0, 1], 2, ["precision[group:x]"])

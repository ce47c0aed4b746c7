"""Constraints: read, written back, bounded."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capri import Constraint, InputError, as_objective
from capri.constraints import as_constraint


@pytest.mark.parametrize(
    ("text", "written", "limit"),
    [
        ("plain <= 0.2", "plain <= 0.2", 0.2),
        ("err[3]<=.2", "err[3] <= 0.2", 0.2),
        ("err[sea lion] <= 2e-1", "err[sea lion] <= 0.2", 0.2),
        ("plain <= baseline", "plain <= baseline", 0.3),
        ("plain <= unadjusted + 0.01", "plain <= baseline + 0.01", 0.31),
        ("cvar:0.2 <= baseline - 0.05", "cvar:0.2 <= baseline - 0.05", 0.25),
        ("0.5*plain + 0.5*sdev <= 1", "0.5*plain+0.5*sdev <= 1", 1.0),
        ("macro_f1 <= 0.4", "macro_f1 <= 0.4", 0.4),
        ("macro_f1 >= 0.6", "macro_f1 >= 0.6", 0.4),
        ("precision[lynx]>=.9", "precision[lynx] >= 0.9", 0.1),
        ("recall[a+b >= c] >= 0.5", "recall[a+b >= c] >= 0.5", 0.5),
        ("f1[3] >= baseline", "f1[3] >= baseline", 0.3),
        ("f1[3] >= baseline + 0.02", "f1[3] >= baseline + 0.02", 0.28),
        ("gmean >= unadjusted - 0.02", "gmean >= baseline - 0.02", 0.32),
        ("0.5*f1[a]+0.5*f1[b] <= 0.3", "0.5*f1[a]+0.5*f1[b] <= 0.3", 0.3),
    ],
)
def test_text_is_read_and_written_back(text, written, limit):
    constraint = as_constraint(text)
    assert str(constraint) == written
    assert constraint.limit(0.3) == pytest.approx(limit)
    assert as_constraint(written) == constraint


@given(st.floats(0, 1), st.booleans(), st.sampled_from(["plain", "kappa", "precision[sea lion]", "min_recall"]))
def test_the_text_of_a_constraint_is_exact(bound, relative, name):
    constraint = Constraint(as_objective(name), bound, relative, floor=name != "plain")
    assert as_constraint(str(constraint)) == constraint


@pytest.mark.parametrize("name", ["plain", "err[3]", "worst", "sdev", "2*kappa", "f1[a]+f1[b]", "macro_f1+recall[b]"])
def test_errors_have_no_floor(name):
    with pytest.raises(
        InputError, match=re.escape(f"constraint '{name} >= 0.2': {name} is an error, which is limited")
    ):
        as_constraint(f"{name} >= 0.2")
    with pytest.raises(InputError, match=re.escape(f"write '{name} <= <number>'")):
        as_constraint(f"{name} >= baseline")


@pytest.mark.parametrize("name", ["precision[3]", "recall[sea lion]", "f1[a+b]", "gmean", "min_recall"])
def test_what_reads_as_a_quality_is_not_limited_as_an_error(name):
    for unclear in (f"{name} <= 0.1", f"{name} <= baseline", (name, 0.1)):
        with pytest.raises(
            InputError, match=re.escape(f"{name} reads as a quality, which is bounded from below; write")
        ):
            as_constraint(unclear)


def test_a_floor_is_a_share():
    with pytest.raises(
        InputError, match=r"constraint 'precision\[3\] >= 90': precision\[3\] is at most 1; give a share"
    ):
        as_constraint("precision[3] >= 90")


def test_pairs_and_constraints_are_constraints():
    constraint = as_constraint(("sdev", np.float32(0.25)))
    assert constraint == Constraint(as_objective("sdev"), 0.25)
    assert as_constraint(constraint) is constraint


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "plain < 0.2",
        "plain => 0.2",
        "plain <= much",
        "kappa >= high",
        "plain <= baseline * 2",
        "plain <=",
        3,
        ("plain",),
    ],
)
def test_unreadable_constraints_say_how_to_write_one(text):
    with pytest.raises(InputError, match="cannot be read; write '<objective> <= <number>'"):
        as_constraint(text)


def test_an_unknown_objective_in_a_constraint_is_named():
    with pytest.raises(InputError, match="did you mean 'plain'"):
        as_constraint("plan <= 0.2")


def test_the_objective_may_go_by_its_name():
    assert Constraint("plain", 0.2) == as_constraint("plain <= 0.2")


@pytest.mark.parametrize("bound", [np.nan, np.inf, "0.2", None, 1j])
@pytest.mark.parametrize(
    "make", [lambda bound: Constraint(as_objective("plain"), bound), lambda bound: ("plain", bound)]
)
def test_a_bound_that_bounds_nothing_is_refused(make, bound):
    with pytest.raises(InputError, match=r"the bound of plain is .+; it must be a finite number"):
        as_constraint(make(bound))


def test_neither_does_one_beyond_any_float():
    with pytest.raises(InputError, match="the bound of plain is inf; it must be a finite number"):
        as_constraint("plain <= 1e999")

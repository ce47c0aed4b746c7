"""Constraints: read, written back, bounded."""

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
    ],
)
def test_text_is_read_and_written_back(text, written, limit):
    constraint = as_constraint(text)
    assert str(constraint) == written
    assert constraint.limit(0.3) == pytest.approx(limit)
    assert as_constraint(written) == constraint


@given(st.floats(0, 10), st.booleans())
def test_the_text_of_a_constraint_is_exact(bound, relative):
    constraint = Constraint(as_objective("plain"), bound, relative)
    assert as_constraint(str(constraint)) == constraint


def test_pairs_and_constraints_are_constraints():
    constraint = as_constraint(("sdev", np.float32(0.25)))
    assert constraint == Constraint(as_objective("sdev"), 0.25)
    assert as_constraint(constraint) is constraint


@pytest.mark.parametrize(
    "text",
    ["plain", "plain < 0.2", "plain >= 0.2", "plain <= much", "plain <= baseline * 2", "plain <=", 3, ("plain",)],
)
def test_unreadable_constraints_say_how_to_write_one(text):
    with pytest.raises(InputError, match="cannot be read; write '<objective> <= <number>'"):
        as_constraint(text)


def test_an_unknown_objective_in_a_constraint_is_named():
    with pytest.raises(InputError, match="did you mean 'plain'"):
        as_constraint("plan <= 0.2")


@pytest.mark.parametrize("bound", ["0.2", None, float("nan"), float("inf")])
def test_bounds_are_finite_numbers(bound):
    with pytest.raises(InputError, match=r"the bound is .*; it must be a finite number"):
        as_constraint(("plain", bound))

"""Doing what is missing: unit by unit through joblib, a line for each, with the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import joblib

from capri import InputError
from capri_paper.posthoc import do_posthoc
from capri_paper.steps import do_steps
from capri_paper.store import Store, Unit, Work
from capri_paper.training import do_bilevel, do_grid, do_pretrain, do_rival, do_train, do_transfer

WORKS: Mapping[str, Work] = {
    "train": do_train,
    "pretrain": do_pretrain,
    "grid": do_grid,
    "rival": do_rival,
    "bilevel": do_bilevel,
    "transfer": do_transfer,
    "posthoc": do_posthoc,
    "steps": do_steps,
}


def run(units: Sequence[Unit], store: Store, jobs: int = 1) -> list[tuple[Unit, str]]:
    """Do what is missing; returns what could not be done, and why. Any joblib backend in force is used."""
    missing = [unit for unit in units if store.find(unit) is None]
    problems, start = [], time.monotonic()
    calls = (joblib.delayed(_one)(unit, store) for unit in missing)
    for i, (unit, problem) in enumerate(joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")(calls), 1):
        spent = time.monotonic() - start
        left = timedelta(seconds=round(spent / i * (len(missing) - i)))
        done = f"{len(units) - len(missing) + i}/{len(units)}"
        print(f"[{done}] {unit.kind} {unit.label}: {problem or 'done'}, left {left}", file=sys.stderr, flush=True)
        if problem:
            problems.append((unit, problem))
    return problems


def _one(unit: Unit, store: Store) -> tuple[Unit, str]:
    """The unit, and what was wrong with it where a user can mend that."""
    try:
        store.need(unit)
    except (InputError, OSError, FloatingPointError) as error:
        return unit, str(error)
    return unit, ""

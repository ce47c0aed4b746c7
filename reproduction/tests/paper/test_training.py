"""A run that has ended in a unit's folder is taken up, if it is that unit's and unchanged."""

import shutil

import pytest

from capri import InputError
from capri_paper.runner import WORKS
from capri_paper.store import Store
from capri_paper.training import bilevel, train


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results", tmp_path / "data", WORKS)


@pytest.fixture
def done(store):
    """`done(unit)`: its result, and its line deleted; the folder stays."""

    def do(unit):
        result = store.need(unit)
        store.path(unit.kind).unlink()
        return result

    return do


def test_a_run_that_has_ended_is_taken_up(store, done):
    unit = train("digits", 0, "smoke")
    assert done(unit) == store.need(unit)


def test_a_changed_digit_is_refused(store, done):
    unit = train("digits", 0, "smoke")
    value = str(done(unit)["val"]["balanced"])
    summary = store.folder(unit) / "summary.json"
    summary.write_text(summary.read_text().replace(value, "0.0123"))
    with pytest.raises(InputError, match=r"summary\.json was changed: its sha256"):
        store.need(unit)


def test_the_logits_of_another_run_are_refused(store, done):
    unit, other = (train("digits", seed, "smoke") for seed in (0, 1))
    done(unit)
    store.need(other)
    shutil.copy(store.folder(other) / "logits.npz", store.folder(unit))
    with pytest.raises(InputError, match=r"logits\.npz was changed since the run ended"):
        store.need(unit)


@pytest.mark.parametrize(
    ("mine", "other", "differs"),
    [
        (train("digits", 0, "smoke"), train("digits", 1, "smoke"), "seed, data.seed"),
        (bilevel("digits", 0, "smoke", ["freq"]), bilevel("digits", 0, "smoke", ["identity"]), "search.attributes"),
    ],
)
def test_the_run_of_another_unit_is_refused(store, done, mine, other, differs):
    done(other)
    store.folder(other).rename(store.root / "runs" / mine.digest)
    with pytest.raises(InputError, match=f"holds a run with other {differs}; delete it"):
        store.need(mine)

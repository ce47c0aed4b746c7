"""A run that has ended in a unit's folder is taken up, if it is that unit's and unchanged."""

import shutil

import numpy as np
import pytest
from sklearn.metrics import recall_score

from capri import InputError
from capri_paper import training
from capri_paper.runner import WORKS
from capri_paper.store import Store
from capri_paper.training import bilevel, grid, rival, train


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


@pytest.fixture
def told(tmp_path):
    """A store whose trainings end at once: the larger τ, the worse by `balanced`, and the better by `sdev`."""

    def trained(unit, store):
        loss = unit.settings["run"]["loss"]
        errors = {"balanced": 0.1 * loss["tau"], "sdev": 1 / (1 + loss["tau"] + loss["gamma"])}
        return {"val": errors, "test": {name: value / 2 for name, value in errors.items()}}

    def searched(unit, store):
        return {"finalists": [["cross-entropy", 0.5, 0.0], ["LA, τ = 1.5", 0.4, 0.0], ["VS, τ = 2, γ = 0.2", 0.3, 0.0]]}

    return Store(tmp_path / "results", tmp_path, {**WORKS, "train": trained, "bilevel": searched})


def test_a_grid_is_tuned_for_its_objective(told):
    grids = [grid("clinc150-lt", 0, "cpu", "la", *objective) for objective in ((), ("sdev",))]
    plain, spread = map(told.need, grids)
    assert (plain["chosen"], spread["chosen"]) == (0.5, 3.0)
    assert spread["test"]["sdev"] == pytest.approx(1 / (1 + 3.0 + 0.15) / 2)
    assert grids[0].digest != grids[1].digest
    assert grid("clinc150-lt", 0, "cpu", "la", "balanced") == grids[0]
    assert "objective" not in grids[0].settings


@pytest.mark.parametrize(("strategy", "chosen"), [("la", [1.5]), ("vs", [2.0, 0.2])])
def test_a_rival_has_the_numbers_that_the_judge_of_the_search_chose(told, strategy, chosen):
    search = bilevel("clinc150-lt", 0, "cpu", ["freq"], "search.method=population", "search.objective=sdev")
    found = told.need(rival("clinc150-lt", 0, "cpu", strategy, search))
    tau, gamma = (*chosen, 0.15)[:2]
    assert list(found["chosen"]) == chosen
    assert found["test"]["sdev"] == pytest.approx(1 / (1 + tau + gamma) / 2)
    assert len(told.records("train")) == 1  # of the twelve pairs


@pytest.mark.filterwarnings("ignore")
def test_an_error_that_was_not_stored_comes_from_the_logits(store):
    """Of all test images where halves of them stood for validation and test."""
    unit = train("digits", 0, "smoke")
    result = store.need(unit)
    with np.load(store.folder(unit) / "logits.npz") as file:
        y, logits = (np.concatenate([file[f"{part}_{name}"] for part in ("val", "test")]) for name in ("y", "logits"))
    recalls = recall_score(y, logits.argmax(axis=1), average=None)
    assert result["test"]["worst"] == pytest.approx(1 - recalls.min())
    assert training._error(unit, store, "test", "cvar:0.5") == pytest.approx(1 - np.sort(recalls)[:5].mean())
    assert training._error(unit, store, "test", "worst") == result["test"]["worst"]

"""Ranking by proxy, on digits as images: full trainings from a store, and only the proxy is run."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from capri import InputError
from capri_paper.runner import WORKS
from capri_paper.store import Store
from capri_paper.tables import LOSSES, LOSSES_TABLE
from capri_paper.training import FIFTH, train

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "proxy_rank.py"))
DATA = "digits-images"


def unit(row: str):
    strategy, *numbers = row.split()
    given = [f"loss.{name}={number}" for name, number in zip(LOSSES[strategy], numbers, strict=True)]
    return train(DATA, 0, "smoke", f"loss.strategy={strategy}", *given)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With a made-up error for each loss of the table, and runs that must not count."""
    units = [unit(row) for row in LOSSES_TABLE.rows]
    errors = {u.digest: 0.2 + 0.01 * i for i, u in enumerate(units)}
    others = [train(DATA, 1, "smoke"), train(DATA, 0, "smoke", FIFTH), train("digits", 0, "smoke")]
    store = Store(tmp_path, tmp_path, {"train": lambda u, _: {"test": {"balanced": errors.get(u.digest, 0.9)}}})
    for one in [*units, *others]:
        store.need(one)
    return store


def test_full_trainings_are_those_that_differ_in_the_loss_alone(store):
    found = SCRIPT["trained_in_full"](store, DATA, 0, "smoke")
    assert sorted(found.values()) == [0.2 + 0.01 * i for i in range(len(LOSSES_TABLE.rows))]
    names = {SCRIPT["title"](loss) for loss in found}
    assert {"ce", "la, tau 1.5", "cdt, gamma 0.15", "vs, tau 1.25, gamma 0.15"} <= names


@pytest.mark.filterwarnings("ignore")
def test_the_proxy_ranks_them_and_comes_out_the_same_again(store, tmp_path):
    trained = Store(store.root, store.data, WORKS)
    rows, again = (SCRIPT["measure"](trained, DATA, 0, "smoke", tmp_path / "out", heads=2) for _ in range(2))
    assert rows == again
    assert len({row.proxy for row in rows}) > 1
    assert all(0 < row.proxy < 1 for row in rows)
    assert (tmp_path / "out" / f"{DATA}-seed0" / "features.safetensors").exists()
    assert -1 <= SCRIPT["correlation"](rows) <= 1


def test_the_correlation_is_one_where_the_order_is_the_same():
    rows = [SCRIPT["Judged"](str(i), 0.1 * i**3, 0.0, 0.2 + 0.01 * i) for i in range(7)]
    assert SCRIPT["correlation"](rows) == pytest.approx(1)
    reversed_ = [replace(row, full=-row.full) for row in rows]
    assert SCRIPT["correlation"](reversed_) == pytest.approx(-1)


def test_too_few_are_refused(tmp_path):
    with pytest.raises(InputError, match="0 losses of cifar10-lt, seed 0"):
        SCRIPT["measure"](Store(tmp_path, tmp_path, {}), "cifar10-lt", 0, "cpu", tmp_path)

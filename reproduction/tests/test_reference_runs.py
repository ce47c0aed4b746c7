"""The table of reference runs, from results made up here."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from capri_paper.store import Store
from capri_paper.training import SOURCES, train

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "training_runs.py"))


def done(unit, store):
    """Work that ends at once."""
    folder = store.folder(unit)
    folder.mkdir(parents=True)
    (folder / "curves.png").write_bytes(b"\x89PNG")
    return {
        "test": {"balanced": 0.2976, "sdev": 0.125, "worst": 0.75},
        "seconds": 5000.0,
        "threads": 1,
        "commit": "0123456789abcdef0123+changes",
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results", tmp_path, {"train": done})


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "docs" / "training.md"
    path.parent.mkdir()
    path.write_text(f"before\n{SCRIPT['BEGIN']}\nold\n{SCRIPT['END']}\nafter\n")
    return path


def test_runs_become_a_table_with_commands_and_curves(store, page):
    for data, seed, changes in [
        ("cifar10-lt", 0, []),
        ("cifar10-lt", 3, ["loss.strategy=la", "loss.tau=2.0", "schedule.milestones=[1, 2]"]),
        ("cifar10-lt", 0, ["data.val_fraction=0.2"]),
        ("clinc150-lt", 0, []),
    ]:
        store.need(train(data, seed, "cpu", *changes))
    store.need(train("cifar10-lt", 0, "strong", "trainer.max_epochs=7"))
    assert SOURCES["clinc150-lt"].preset is not None  # a head on features, which the table leaves out
    for _ in range(2):  # twice is as once
        SCRIPT["main"](store.root, page)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], "old" in lines) == ("before", "after", False)
    assert (
        "| cifar10-lt | ce | cpu | 29.76 % | 12.50 % | 75.00 % | 40 | 1 h 23 min | 1 | 0 | `0123456789` with changes |"
    ) in lines
    assert sum(line.startswith("| c") for line in lines) == 3  # no head on features, nothing of a part of the samples
    assert "capri train --preset cpu --out runs/cifar10-lt-ce-seed0" in lines
    assert (
        "capri train --preset cpu --set seed=3 --set data.seed=3 --set loss.strategy=la --set loss.tau=2.0 "
        "--set schedule.milestones=[1,2] --out runs/cifar10-lt-la-2.0-seed3"
    ) in lines
    strong = "cifar10-lt-ce-seed0-strong-7-epochs"
    assert f"capri train --preset strong --set trainer.max_epochs=7 --out runs/{strong}" in lines
    assert f"![Learning curves: cifar10-lt, ce, preset strong, seed 0](figures/{strong}.png)" in lines
    drawn = [path.name for path in (page.parent / "figures").iterdir()]  # of the first seed
    assert sorted(drawn) == ["cifar10-lt-ce-seed0-strong-7-epochs.png", "cifar10-lt-ce-seed0.png"]


def test_the_page_has_the_markers(store, page):
    real = SCRIPT["PAGE"].read_text(encoding="utf-8")
    before, _, after = SCRIPT["insert"](real, "THE NEW SECTION").partition("THE NEW SECTION")
    assert before.rstrip().endswith(SCRIPT["BEGIN"])
    assert after.lstrip().startswith(SCRIPT["END"])
    assert SCRIPT["HEAD"][0] not in before + after  # the old section is gone
    with pytest.raises(SystemExit, match="holds no training run on CIFAR"):
        SCRIPT["main"](store.root, page)
    store.need(train("cifar10-lt", 0, "cpu"))
    page.write_text("no markers")
    with pytest.raises(SystemExit, match="lacks the markers"):
        SCRIPT["main"](store.root, page)


def test_every_curve_that_the_page_shows_is_there():
    page = SCRIPT["PAGE"]
    shown = re.findall(r"\]\((figures/cifar\S+)\)", page.read_text(encoding="utf-8"))
    assert shown
    assert all((page.parent / figure).exists() for figure in shown)

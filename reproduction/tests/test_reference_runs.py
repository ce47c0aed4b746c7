"""The table of reference runs, from folders made up here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from capri.train.config import Config, resolve

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "training_runs.py"))


def write_run(folder: Path, config: Config, balanced: float) -> Path:
    folder.mkdir(parents=True)
    summary = {
        "test": {"balanced": balanced, "sdev": 0.125, "worst": 0.75},
        "epochs": 40,
        "seconds": 5000.0,
        "threads": 1,
        "commit": "0123456789abcdef0123+changes",
        "config": config.to_mapping(),
    }
    del summary["config"]["data"]["absent"]  # a run from before that setting
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "curves.png").write_bytes(b"\x89PNG")
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "docs" / "training.md"
    path.parent.mkdir()
    path.write_text(f"before\n{SCRIPT['BEGIN']}\nold\n{SCRIPT['END']}\nafter\n")
    return path


def test_runs_become_a_table_with_commands_and_curves(tmp_path, page, capsys):
    sets = ["loss.strategy=la", "data.root=/somewhere/else", "schedule.milestones=[1, 2]", "seed=3"]
    folders = [
        write_run(tmp_path / "results/cifar10-lt-ce-seed0", resolve(preset="cpu"), 0.2976),
        write_run(tmp_path / "results/cifar10-lt-la-seed3", resolve(preset="cpu", assignments=sets), 0.224),
    ]
    for _ in range(2):  # twice is as once
        SCRIPT["main"]([*folders, tmp_path / "results/unfinished"], page)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], "old" in lines) == ("before", "after", False)
    assert (
        "| cifar10-lt | ce | cpu | 29.76 % | 12.50 % | 75.00 % | 40 | 1 h 23 min | 1 | 0 | `0123456789` with changes |"
    ) in lines
    assert "capri train --preset cpu --out reproduction/results/train/cifar10-lt-ce-seed0" in lines
    assert (
        "capri train --preset cpu --set seed=3 --set loss.strategy=la --set schedule.milestones=[1,2] "
        "--out reproduction/results/train/cifar10-lt-la-seed3"
    ) in lines
    assert "![Learning curves: cifar10-lt, la, seed 3](figures/cifar10-lt-la-seed3.png)" in lines
    assert (page.parent / "figures/cifar10-lt-ce-seed0.png").exists()
    assert "unfinished: no summary.json" in capsys.readouterr().out


def test_the_page_has_the_markers(tmp_path, page):
    real = SCRIPT["PAGE"].read_text(encoding="utf-8")
    assert SCRIPT["insert"](real, "table").count("table") >= 1
    page.write_text("no markers")
    folder = write_run(tmp_path / "results/run", resolve(), 0.3)
    with pytest.raises(SystemExit, match="lacks the markers"):
        SCRIPT["main"]([folder], page)
    with pytest.raises(SystemExit, match="no finished run"):
        SCRIPT["main"]([], page)

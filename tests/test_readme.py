"""README.md names things that exist, and the examples run. Its code runs as doctests."""

import re
import runpy
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest

import capri
from capri.cli import _app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip().split("   ")[0] for line in README.splitlines() if line.startswith("    capri ")]


def test_objectives_of_the_table_exist_and_none_is_missing():
    rows = README[README.index("## What it can tune for") : README.index("Objectives add up")]
    named = [re.split(r"[:\[]", name)[0] for row in rows.splitlines() for name in re.findall(r"`([^`]+)`", row[:40])]
    assert set(named) == {re.split(r"[:\[]", name)[0] for name in capri.objective_names()}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    _, name, *arguments = shlex.split(command)
    registered = {info.name or info.callback.__name__: info.callback for info in _app.registered_commands}
    options = {"o": "output"} | {option: option for option in registered[name].__annotations__}
    used = {word.lstrip("-").replace("-", "_") for word in arguments if word.startswith("-")}
    assert used <= set(options)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((\S+?\.md|LICENSE)\)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).is_file()


def test_the_forest_gets_better_where_it_was_bad(capsys):
    mpl.use("Agg")
    story = runpy.run_path(str(ROOT / "examples" / "plot_forest.py"))
    before, after = (
        capri.evaluate(story["y"][story["test"]], story[when], 10)["cvar:0.2"] for when in ("before", "after")
    )
    assert after < before / 2
    assert len(story["axes"].lines) == 2
    mpl.pyplot.close("all")

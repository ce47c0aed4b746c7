"""README.md and the quickstart: what they show runs as pasted, and what they name exists."""

import doctest
import re
import runpy
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner

import capri
import capri.packs
from capri.cli import commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip().split("   ")[0] for line in README.splitlines() if line.startswith("    capri ")]


def test_the_first_snippet_runs_as_pasted_and_prints_what_it_says(capsys, tmp_path, monkeypatch):
    snippet, printed = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", README, re.DOTALL).groups()
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out.split() == printed.split()
    assert capri.Policy.load("policy.json").objective == "cvar:0.2"


def test_the_quickstart_in_python_and_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "quickstart.md"
    like_pytest = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testfile(str(page), module_relative=False, optionflags=like_pytest).failed == 0
    typed = re.findall(r"^    capri (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(typed) == 4
    for command in typed:
        done = CliRunner().invoke(commands, shlex.split(command))
        assert done.exit_code == 0, done.output
    predicted = (tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()
    assert len(predicted) == 1 + 5000
    assert set(predicted[1:]) == set(capri.packs.load("cifar10-lt").class_names)


def test_objectives_of_the_table_exist_and_none_is_missing():
    rows = README[README.index("## What it can tune for") : README.index("Objectives can be added up")]
    named = [re.split(r"[:\[]", name)[0] for row in rows.splitlines() for name in re.findall(r"`([^`]+)`", row[:40])]
    assert set(named) == {re.split(r"[:\[]", name)[0] for name in capri.objective_names()}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    _, name, *arguments = shlex.split(command)
    registered = {info.name or info.callback.__name__: info.callback for info in commands.registered_commands}
    options = {"o": "output"} | {option: option for option in registered[name].__annotations__}
    used = {word.lstrip("-").replace("-", "_") for word in arguments if word.startswith("-")}
    assert used <= set(options)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((\S+?\.md|\S+?\.cff|LICENSE)\)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).is_file()


def test_estimated_shares_undo_most_of_what_a_season_cost(capsys):
    mpl.use("Agg")
    story = runpy.run_path(str(ROOT / "examples" / "plot_label_bias.py"))
    raw, spring, found, true = story["errors"].values()
    assert raw > spring > found
    assert spring - found > 0.8 * (spring - true)
    assert len(story["axes"].containers) == 3
    mpl.pyplot.close("all")


def test_the_forest_gets_better_where_it_was_bad(capsys):
    mpl.use("Agg")
    story = runpy.run_path(str(ROOT / "examples" / "plot_forest.py"))
    before, after = (
        capri.evaluate(story["y"][story["test"]], story[when], 10)["cvar:0.2"] for when in ("before", "after")
    )
    assert after < before / 2
    assert (story["display"].after < story["display"].before).any()
    mpl.pyplot.close("all")

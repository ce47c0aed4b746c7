"""Every table and figure of the paper runs end to end, in a size that takes seconds."""

import io
import re
import shutil
import tomllib
from importlib import resources

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from capri import InputError
from capri.cli import commands
from capri_paper import reference, training
from capri_paper.cli import exhibits
from capri_paper.exhibits import Only, Table
from capri_paper.grids import Block, Entry, latex, markdown, rich
from capri_paper.runner import WORKS
from capri_paper.store import VERSIONS, Store, write_records

EXHIBITS = exhibits()
TABLES = [name for name, e in EXHIBITS.items() if isinstance(e, Table)]
FIGURES = [name for name in EXHIBITS if name not in TABLES]
LONG = ("searches", "search-objectives", "warmup", "attributes")  # 10 seconds and more, of what others show as well


def invoke(*arguments):
    return CliRunner().invoke(commands, ["paper", *arguments])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where all smoke runs of this module keep their results."""
    return tmp_path_factory.mktemp("paper")


def smoke(place, command, name, *more):
    folders = ["--results", str(place / "results"), "--data", str(place / "data")]
    return invoke(command, name, "--preset", "smoke", "--seeds", "1", *folders, *more)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in EXHIBITS])
@pytest.mark.filterwarnings("ignore")
def test_runs_and_shows_in_smoke_size(place, name):
    first = smoke(place, "run", name)
    assert first.exit_code == 0, first.output
    store = Store(place / "results" / "smoke", place / "data", {})  # which can do no work: all is there
    units = EXHIBITS[name].units([0], "smoke", Only.parse())
    assert all(store.find(unit) is not None for unit in units)
    again = smoke(place, "run", name)
    assert f"all {len(units)} units are there" in again.output
    assert "done" not in again.output
    if name in TABLES:
        for form in ("rich", "markdown", "latex"):
            shown = smoke(place, "show", name, "--format", form)
            assert shown.exit_code == 0, shown.output
            assert len(re.findall(r"\d+\.\d\d", shown.output)) >= len(EXHIBITS[name].rows) - 1
    else:
        picture = place / f"{name}.png"
        shown = smoke(place, "show", name, "--out", str(picture))
        assert shown.exit_code == 0, shown.output
        assert picture.stat().st_size > 10_000


def test_list_names_all():
    listed = invoke("list").output
    assert [line.split()[0] for line in listed.splitlines()] == list(EXHIBITS)


def test_every_number_of_the_paper_has_its_cell():
    typed = tomllib.loads((resources.files("capri_paper") / "reference.toml").read_text(encoding="utf-8"))
    assert set(typed) == {name for name in TABLES if not EXHIBITS[name].beyond}
    for name, rows in typed.items():
        table = EXHIBITS[name]
        for row, cells in rows.items():
            if row == "title":
                continue
            assert row in table.rows, (name, row)
            assert set(cells) <= set(table.columns), (name, row)


def test_reference_figures():
    assert reference.figure("balanced", "cap", "cifar10-lt") == (20.22, 0.35)
    assert reference.figure("balanced", "la", "imagenet-lt") == (52.46, None)
    assert reference.figure("balanced", "la", "clinc150-lt") is None
    assert str(reference.figure("balanced", "cap", "cifar10-lt")) == "20.22 ± 0.35"


def test_a_block_as_text():
    ce, la = Entry(np.array([30.0, 31.0]), reference.Figure(30.45, 0.49)), Entry(np.array([]), None)
    block = Block("CIFAR10-LT", ["balanced"], [("CE", [ce]), ("LA & Δ", [la])])
    assert markdown(block).splitlines()[2] == "| CE | 30.50 ± 0.71 [30.45, +0.05] |"
    assert r"LA \& $\Delta$ & -- \\" in latex(block)
    assert block.seeds == "n = 2"


def test_a_terminal_of_80_columns_shows_all_of_a_wide_table():
    entries = [Entry(np.array([-14.1, -14.9]), reference.Figure(-13.92, 0.2))] * 5
    block = Block("CIFAR100-LT", ["balanced", "sdev", "CVaR", "quantile", "weighted"], [("CAP (default)", entries)])
    console = Console(width=80, record=True, file=io.StringIO())
    for grid in rich(block, 80):
        console.print(grid)
    shown = console.export_text()
    assert "…" not in shown
    assert shown.count("-14.50 ± 0.57") == shown.count("[-13.92, -0.58]") == 5
    assert shown.count("CAP (default)") == 2


@pytest.mark.filterwarnings("ignore")
def test_a_deleted_run_is_the_only_one_that_is_done_again(place):
    """Of real units: two trainings, a grid that rests on one of them, a post-hoc policy and its retraining."""
    select = ["--only", "method=ce,la,posthoc,retrain", "--only", "data=clinc150-lt"]
    assert smoke(place, "run", "balanced", *select).exit_code == 0
    store = Store(place / "results" / "smoke", place / "data", {})
    units = EXHIBITS["balanced"].units([0], "smoke", Only.parse(select[1::2]))
    kinds = {unit.kind for unit in units} | {"train"}
    before = {kind: store.path(kind).read_bytes() for kind in kinds}
    retrained = next(u for u in units if u.kind == "transfer" and "run" in u.settings)
    write_records(store.path("transfer"), [r for d, r in store.records("transfer").items() if d != retrained.digest])
    shutil.rmtree(store.folder(retrained))
    again = smoke(place, "run", "balanced", *select)
    assert again.exit_code == 0, again.output
    assert again.output.count(": done") == 1
    assert f"transfer {retrained.label}: done" in again.output
    assert {kind for kind in kinds if store.path(kind).read_bytes() != before[kind]} == {"transfer"}


def test_images_of_imagenet_are_asked_for_by_the_preset_that_can_pay_them():
    only = Only.parse(["data=imagenet-lt"])
    assert EXHIBITS["balanced"].units([0], "cpu", only) == []
    of_one_network = [row for row in EXHIBITS["balanced"].rows if not row.startswith("proxy")]
    assert len(EXHIBITS["balanced"].units([0], "paper", only)) == len(of_one_network)


def test_only():
    table = EXHIBITS["balanced"]
    assert {u.kind for u in table.units([0], "cpu", Only.parse(["method=ce", "data=cifar10-lt"]))} == {"train"}
    some = table.units([0, 1], "cpu", Only.parse(["method=ce,la", "data=cifar10-lt"]))
    assert len(some) == 4
    result = invoke("run", "balanced", "--only", "method=nothing")
    assert result.exit_code != 0
    assert "--only names method=nothing; 'balanced' has ce, la" in result.output
    assert Only.parse(["method=ce", "method=la"]).admits("method", "ce")
    assert "is a figure" in invoke("run", "scatter", "--only", "method=cap").output
    with pytest.raises(Exception, match="write method=cap,la"):
        Only.parse(["cap"])


def test_a_name_that_does_not_exist_and_a_figure_without_results(tmp_path):
    assert "there is no table or figure 'tab5'" in invoke("show", "tab5").output
    shown = invoke("show", "scatter", "--results", str(tmp_path))
    assert "results of 'scatter' are missing" in shown.output


def test_elsewhere_it_says_that_nothing_is_stored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = invoke("show", "balanced", "--format", "markdown")
    folder = tmp_path / "reproduction" / "results"
    assert f"nothing is stored in {folder}; what comes with the repository is found from its root" in shown.output
    assert not folder.exists()


def test_set_makes_other_units_all_the_way_down():
    changes = ["trainer.max_epochs=5"]
    for unit in (
        training.train("cifar10-lt", 0, "cpu"),
        training.bilevel("cifar10-lt", 0, "cpu", ["freq"]),
        training.grid("digits", 0, "cpu", "la"),
    ):
        other = training.adapted(unit, changes)
        assert other != unit
        runs = [u.settings["run"] for u in (other, *other.needs) if "run" in u.settings]
        assert {run["trainer"]["max_epochs"] for run in runs} == {5}
    with pytest.raises(InputError, match=r"--set loss.tau=3 sets what clinc150-lt-la-seed0 tries out"):
        training.adapted(training.grid("clinc150-lt", 0, "cpu", "la"), ["loss.tau=3"])


@pytest.mark.parametrize("name", TABLES)
def test_set_is_for_tables_that_train(name):
    units = EXHIBITS[name].units([0], "paper", Only.parse())
    assert EXHIBITS[name].trains == any(training.adapted(unit, ["optimizer.lr=0.5"]) != unit for unit in units)


@pytest.mark.parametrize("name", ["objectives", "scatter"])
def test_set_is_refused_where_nothing_trains(name):
    said = invoke("show", name, "--set", "trainer.max_epochs=5").output
    assert f"--set is for tables of trained networks, and '{name}' is not one." in said


def test_every_kind_of_unit_has_its_work():
    kinds = {u.kind for e in EXHIBITS.values() for u in e.units([0], "smoke", Only.parse())}
    assert kinds | {"train"} == set(WORKS) == set(VERSIONS)


def test_the_paper_s_column_on_a_tiny_tree(imagenet_tree):
    settings = ["data.n_classes=3", "data.image_size=32", "data.workers=0", "model.name=resnet32"]
    settings += ["trainer.max_epochs=1", "trainer.batch_size=4", "trainer.accelerator=cpu"]
    options = ["--preset", "paper", "--seeds", "1", "--only", "data=imagenet-lt", "--only", "method=ce,la"]
    options += [
        "--data",
        str(imagenet_tree),
        "--results",
        str(imagenet_tree / "results"),
        *(f"--set={s}" for s in settings),
    ]
    done = invoke("run", "balanced", *options)
    assert done.exit_code == 0, done.output
    shown = invoke("show", "balanced", "--format", "markdown", *options)
    assert "| ImageNet-LT, n = 1 | balanced error |" in shown.output
    assert "[55.59, " in shown.output

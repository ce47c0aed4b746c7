"""The gallery runs, without a warning, and each example ends in a picture and a report."""

import ast
import runpy
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest

GALLERY = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))
NEEDS = {"plot_lightgbm": "lightgbm", "plot_torch": "torch"}
REPORTING = [path for path in GALLERY if "\nreport = " in path.read_text(encoding="utf-8")]


@pytest.fixture(scope="module", params=REPORTING, ids=lambda path: path.stem)
def story(request):
    if request.param.stem in NEEDS:
        pytest.importorskip(NEEDS[request.param.stem])
    mpl.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = runpy.run_path(str(request.param))
    yield found
    mpl.pyplot.close("all")


def test_ends_in_a_picture_and_a_report(story):
    assert story["display"].ax_.has_data()
    page = story["report"].to_html()
    assert "test samples" in page
    assert len(page) < 1_500_000


def test_tuning_is_worth_showing(story):
    found = story["tuned"].validation_
    assert found.improvement > 0.05
    assert found.interval[0] > 0


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_nothing_is_downloaded(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert not {name for name in names if name.startswith("fetch_") or name in ("urlopen", "requests")}


def test_the_gallery_is_whole():
    stems = {path.stem.removeprefix("plot_") for path in REPORTING}
    assert stems == {"forest", "lightgbm", "torch", "sentences", "cifar100"}

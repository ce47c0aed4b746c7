"""The map from equations to code and tests names things that exist."""

import importlib
import re
from pathlib import Path

import pytest

import capri

TESTS = Path(__file__).parent
EQUATIONS = (TESTS.parent / "docs" / "equations.md").read_text(encoding="utf-8")
CELLS = [c.strip() for line in EQUATIONS.splitlines() if line.startswith("| ") for c in re.findall(r"`([^`]+)`", line)]
CODE = sorted({c for c in CELLS if re.fullmatch(r"_?[A-Za-z]+(\.\w+)+|[A-Z]\w+|build_dictionary|class_errors", c)})


@pytest.mark.parametrize("cited", sorted(set(re.findall(r"`((?:\w+/)?test_\w+\.py::[\w:]+)`", EQUATIONS))))
def test_cited_tests_exist(cited):
    file, *names = cited.split("::")
    homes = (TESTS, TESTS.parent / "reproduction" / "tests")
    source = next(home / file for home in homes if (home / file).exists()).read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf"^\s*(def|class) {name}\b", source, re.MULTILINE), cited


@pytest.mark.parametrize("cited", CODE)
def test_cited_code_exists(cited):
    first, *rest = cited.removeprefix("capri_paper.").split(".")
    home = "capri_paper" if cited.startswith("capri_paper.") else "capri"
    thing = getattr(capri, first) if first in capri.__all__ else importlib.import_module(f"{home}.{first}")
    for name in rest:
        if not hasattr(thing, name) and hasattr(thing, "__path__"):  # a submodule that nothing has imported yet
            importlib.import_module(f"{thing.__name__}.{name}")
        assert hasattr(thing, name) or name in getattr(thing, "__dataclass_fields__", {}), cited
        thing = getattr(thing, name, None)


def test_every_row_cites_a_test():
    rows = [line for line in EQUATIONS.splitlines() if re.match(r"\| (?!paper|the paper|---)", line)]
    assert all("test_" in row for row in rows)


def test_files_of_tests_that_pages_cite_exist():
    text = "".join(page.read_text(encoding="utf-8") for page in (TESTS.parent / "docs").glob("*.md"))
    cited = set(re.findall(r"`([\w/]*tests/[\w/]+\.py)`", text))
    assert {name for name in cited if not (TESTS.parent / name).is_file()} == set()
    assert cited

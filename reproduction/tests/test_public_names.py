"""The reproduction stands on the library's public names alone, as any extension can."""

import ast
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1]


def private(source: str) -> list[str]:
    """What a module imports of capri that begins with an underscore, or lies in a module that does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name for name in found if name.startswith("capri.") and "._" in name]


@pytest.mark.parametrize("path", sorted(HOUSE.rglob("*.py")), ids=lambda path: str(path.relative_to(HOUSE)))
def test_no_private_name_of_the_library_is_imported(path):
    assert private(path.read_text(encoding="utf-8")) == []


def test_what_counts_as_private():
    source = "from capri._files import a\nfrom capri.cli import _b, c\nimport capri._d\nfrom capri_paper._e import f"
    assert private(source) == ["capri._files.a", "capri.cli._b", "capri._d"]

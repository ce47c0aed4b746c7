"""docs/architecture.md tells the truth: every part is listed, and imports only what stands above it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "capri"
LISTED = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
PARTS = sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")})


def imported_parts(source: str) -> set[str]:
    """The parts of capri that a module imports, at its top or later."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "capri":
            names += [f"capri.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [alias.name if alias.name != "capri" else "capri.whole" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("capri.")}


def test_every_part_is_listed_once():
    assert sorted(LISTED) == [part for part in PARTS if part not in ("__init__", "__main__")]


@pytest.mark.parametrize("part", LISTED)
def test_a_part_imports_only_what_stands_above_it(part):
    above = LISTED[: LISTED.index(part) + 1]
    modules = [PACKAGE / f"{part}.py", *(PACKAGE / part).rglob("*.py")]
    for module in filter(Path.is_file, modules):
        assert imported_parts(module.read_text(encoding="utf-8")) <= set(above), module


def test_arrays_in_files_have_one_reader():
    reading = [path.name for path in PACKAGE.rglob("*.py") if re.search(r"np\.load\(", path.read_text())]
    assert reading == []  # but by `_arrays`


WALK = """
import sys
import numpy as np
import capri.cli
import capri.posthoc

rng = np.random.default_rng(0)
y = np.arange(60) % 3
np.savez("val.npz", logits=rng.normal(size=(60, 3)) + 2 * np.eye(3)[y], y=y, train_counts=[90, 30, 10])
visited = {}


def visit(frame, event, _):
    if event == "call":
        visited.setdefault(frame.f_globals.get("__name__", ""))


sys.setprofile(visit)
try:
    capri.cli.app(["tune", "val.npz", "--objective", "cvar:0.4", "-o", "policy.json"])
finally:
    sys.setprofile(None)
    print("\\n", [name.removeprefix("capri.") for name in visited if name.startswith("capri.")])
"""


def test_the_walk_of_capri_tune_visits_the_modules_that_are_named_in_their_order(tmp_path):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page[page.index("1. `cli.options`") : page.index("## Inside the paper")]
    named = re.findall(r"`([\w.]+)`", section)
    done = subprocess.run([sys.executable, "-c", WALK], cwd=tmp_path, capture_output=True, text=True)
    visited = ast.literal_eval(done.stdout.splitlines()[-1].strip())
    others = {"cli", *(f"cli.{path.stem}" for path in (PACKAGE / "cli").glob("*.py"))} - set(named)  # other commands
    assert [name for name in visited if name not in others] == named, done.stderr

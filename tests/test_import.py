"""What `import capri` brings with it, and what it shows."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import capri

HEAVY = ("torch", "numba", "matplotlib", "pandas", "sklearn", "scipy", "cleanlab", "typer", "onnx")
CORE = ("_checks", "_files", "_provenance", "attributes", "classes", "constraints", "demo", "dictionary", "errors")
CORE += ("evaluation", "extension", "forms", "metrics", "objectives", "policy", "sampling", "strategy", "study")


@pytest.mark.parametrize("statement", ["import capri", *(f"import capri.{name}" for name in CORE)])
def test_the_core_imports_nothing_heavy(statement):
    code = f"{statement}; import sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names_are_listed_once_and_in_order():
    assert capri.__all__ == sorted(set(capri.__all__))
    assert dir(capri) == capri.__all__


@pytest.mark.parametrize("name", sorted(set(capri.__all__) - capri._POSTHOC))
def test_the_public_names_of_the_core_are_there(name):
    assert getattr(capri, name) is not None


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="module 'capri' has no attribute 'LogitAdjustor'"):
        capri.LogitAdjustor  # noqa: B018


def test_the_version_is_that_of_the_package():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert capri.__version__ == project["version"]

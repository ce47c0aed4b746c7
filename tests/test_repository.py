"""What the files around the code promise: bounds, versions, workflows, the API reference."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
YAML = sorted([*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff", ROOT / ".pre-commit-config.yaml"])
API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def _pins(text, relation):
    return dict(re.findall(rf"^([A-Za-z][\w.-]*){relation}([\d.]+)", text, re.MULTILINE))


def _listed():
    """The names in the tables of the API reference, in full."""
    module, names = "", []
    for line in API.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   [A-Za-z][\w.]*", line):
            names.append(f"{module}.{line.strip()}")
    return names


class TestBounds:
    def test_minimum_is_the_lower_bounds_of_what_runs(self):
        extras = PROJECT["optional-dependencies"]
        runs = [
            *PROJECT["dependencies"],
            *(r for name, needs in extras.items() if name not in ("docs", "test") for r in needs),
        ]
        bounds = _pins("\n".join(r for r in runs if not r.startswith(PROJECT["name"])), ">=")
        assert _pins((ROOT / "requirements" / "minimum.txt").read_text(), "==") == bounds

    def test_every_direct_requirement_is_pinned_where_we_test(self):
        extras = PROJECT["optional-dependencies"].values()
        wanted = _pins(
            "\n".join([*PROJECT["dependencies"], *(r for needs in extras for r in needs)]), r"(?:\[[\w,]+\])?>="
        )
        pinned = _pins((ROOT / "requirements" / "constraints.txt").read_text(), "==")
        plain = {name.lower().replace("_", "-") for name in pinned}
        assert {name.lower() for name in wanted} <= plain

    def test_pythons_are_those_of_the_workflow(self):
        workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
        tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
        named = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
        assert named == tested
        assert PROJECT["requires-python"] == f">={tested[0]}"


class TestFiles:
    @pytest.mark.parametrize("path", YAML, ids=lambda p: str(p.relative_to(ROOT)))
    def test_yaml_parses(self, path):
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)

    @pytest.mark.parametrize(
        "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda p: p.stem
    )
    def test_issue_forms_have_what_a_form_needs(self, path):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        fields = [field["id"] for field in form["body"]]
        assert len(set(fields)) == len(fields)
        assert all(field["attributes"]["label"] for field in form["body"])

    def test_the_version_is_the_same_everywhere(self):
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
        paper = tomllib.loads((ROOT / "reproduction" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        changes = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert {citation["version"], paper["version"], changes[0]} == {PROJECT["version"]}


def _object(name):
    home, _, last = name.rpartition(".")
    return getattr(importlib.import_module(home), last)


def _is_raised(thing):
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _section(thing, title):
    return (inspect.getdoc(thing) or "").partition(f"{title}\n{'-' * len(title)}\n")[2].partition("\n\n")[0]


def _undocumented(thing):
    """What the sections of a docstring leave out: parameters by name, and what a function returns."""
    signature = inspect.signature(thing)
    headings = [line for line in _section(thing, "Parameters").splitlines() if not line.startswith(" ")]
    missing = set(signature.parameters) - set(re.findall(r"\w+", " ".join(headings)))
    returns = not isinstance(thing, type) and signature.return_annotation not in (None, "None")
    return missing | ({"Returns"} if returns and not _section(thing, "Returns") else set())


class TestReference:
    @pytest.mark.parametrize("name", _listed())
    def test_listed_names_exist_and_say_what_they_are(self, name):
        thing = _object(name)
        assert thing.__doc__
        if not _is_raised(thing):
            assert not _undocumented(thing)

    @pytest.mark.parametrize(
        "package",
        [
            "capri",
            *(
                f"capri.{n}"
                for n in (
                    "blocks",
                    "posthoc",
                    "bilevel",
                    "train",
                    "models",
                    "data",
                    "onnx",
                    "boosting",
                    "integrations",
                    "on_device",
                )
            ),
        ],
    )
    def test_no_public_name_is_missing(self, package):
        # By the thing itself, since last names may be shared: `capri.posthoc.fold` is listed, as `capri.fold`.
        listed = {id(_object(name)) for name in _listed()}
        public = (f"{package}.{name}" for name in importlib.import_module(package).__all__)
        assert not [name for name in public if id(_object(name)) not in listed]

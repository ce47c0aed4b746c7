"""Where a figure comes from: the commit is that of capri's own source, or none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capri import _provenance

PACKAGE = Path(_provenance.__file__).parent


def git(folder, *arguments):
    said = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *said, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def project(tmp_path):
    """A repository with a commit of its own."""
    git(tmp_path, "init", "-q")
    (tmp_path / "own.py").write_text("")
    git(tmp_path, "add", "own.py")
    git(tmp_path, "commit", "-q", "-m", "own")
    return tmp_path


def commit_of(source, **environment):
    """What the copy of capri in that folder says."""
    code = "from capri._provenance import commit; print(commit())"
    variables = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run([sys.executable, "-c", code], cwd=source, env=variables, check=True, capture_output=True)
    return done.stdout.decode().strip()


def copied(folder):
    files = ("__init__.py", "_lazy.py", "_checks.py", "_version.py", "_provenance.py")
    (folder / "capri").mkdir(parents=True)
    for name in files:
        shutil.copy(PACKAGE / name, folder / "capri" / name)
    (folder / "capri" / "__init__.py").write_text("")
    return folder


def test_an_environment_inside_another_project_has_no_commit(project):
    assert commit_of(copied(project / "env" / "site-packages")) == "None"


def test_a_source_that_another_project_does_not_hold_has_no_commit(project):
    assert commit_of(copied(project / "src")) == "None"


def test_a_clone_has_the_commit_and_says_whether_it_was_changed(project):
    source = copied(project / "src")
    git(project, "add", "src")
    git(project, "commit", "-q", "-m", "capri")
    head = git(project, "rev-parse", "HEAD")
    assert commit_of(source) == head
    (source / "capri" / "__init__.py").write_text("changed = True")
    assert commit_of(source) == f"{head}+changes"


def test_a_repository_that_the_environment_names_is_not_ours(project, tmp_path_factory):
    elsewhere = copied(tmp_path_factory.mktemp("elsewhere") / "src")
    named = {"GIT_DIR": str(project / ".git"), "GIT_WORK_TREE": str(project)}
    assert commit_of(elsewhere, **named) == "None"

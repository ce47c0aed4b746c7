"""The readings of docs/elsewhere.md, run as they stand there, decide as Python does."""

import json
import re
import shutil
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capri import Policy, Strategy

PAGE = (Path(__file__).parents[1] / "docs" / "elsewhere.md").read_text(encoding="utf-8")
ROWS, K = 10_000, 7
LABELS = ("cat", "Ärmel", "c", "d'or", "e", "f", "g")
NODE = shutil.which("node")
node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def block(language, at=0):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[at]


def sample(kind, dtype, rng, thresholds=None):
    """A policy and scores of which every tenth row has ties."""
    l = np.concatenate([[0.25, 0.25], rng.normal(0, 2, K - 2)])  # the first two classes tie where their scores do
    policy = Policy(Strategy.of(K, l=l, delta=[1, 1, 1.5, 0.8, 1, 1.2, 1]), "balanced", LABELS, scores=kind)
    policy = replace(policy, thresholds=thresholds)
    scores = rng.normal(0, 3, (ROWS, K))
    if kind == "proba":
        scores = np.exp(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
        scores[::7] *= rng.random((len(scores[::7]), K)) > 0.3  # below the floor
    scores[::10, 1] = scores[::10, 0] = scores[::10].max(axis=1)
    return policy, scores.astype(dtype)


SOME = (0.0, 0.5, 1.0, 0.3, 0.8, 0.2, 0.6)  # the first class, to which ties go, is always decided
KINDS = [("logits", np.float64), ("logits", np.float32), ("proba", np.float64), ("proba", np.float32)]


def check(policy, scores, decisions):
    """Equal, but where the two best are so near that a logarithm's rounding decides."""
    expected, adjusted = policy.predict(scores), np.sort(policy.apply(scores), axis=1)
    assert len(decisions) == ROWS
    differ = np.flatnonzero(np.array(decisions, dtype=object) != expected)
    if policy.scores == "logits":
        assert differ.size == 0
    gap, size = adjusted[:, -1] - adjusted[:, -2], np.abs(adjusted).max(axis=1)
    at = (
        np.zeros(len(gap)) if policy.thresholds is None else np.array(policy.thresholds)[policy.apply(scores).argmax(1)]
    )
    near = np.minimum(gap, abs(gap - at))  # another class, or undecided
    assert (near[differ] <= (1e-15 if scores.dtype == np.float64 else 1e-6) * size[differ]).all()
    assert len(differ) < 5
    ties = gap == 0
    assert ties.sum() > 200
    assert set(expected[ties]) == {"cat"}
    assert len(set(expected)) > 4


@node
@pytest.mark.parametrize("thresholds", [None, SOME])
@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_javascript(kind, dtype, thresholds, rng, tmp_path):
    policy, scores = sample(kind, dtype, rng, thresholds)
    policy.save(tmp_path / "policy.json")
    (tmp_path / "scores.json").write_text(json.dumps(scores.astype(float).tolist()))
    array = "Float32Array" if dtype == np.float32 else "Float64Array"
    program = block("js") + (
        'const read = (name) => JSON.parse(require("fs").readFileSync(name, "utf8"));\n'
        'const decide = decider(read("policy.json"));\n'
        f'console.log(JSON.stringify(read("scores.json").map((row) => decide({array}.from(row)))));\n'
    )
    done = subprocess.run([NODE, "-e", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    check(policy, scores, json.loads(done.stdout))


@node
@pytest.mark.parametrize(
    ("change", "row", "says"),
    [
        ({"schema": 4}, "[1, 2]", "not a post-hoc policy"),
        ({"policy": {"side": "loss"}}, "[1, 2]", "not a post-hoc policy"),
        ({}, "[1, 2, 3]", "give 2 finite scores"),
        ({}, "[1, NaN]", "give 2 finite scores"),
    ],
)
def test_javascript_refuses_what_it_cannot_decide(change, row, says):
    document = json.loads(Policy(Strategy.of(2), "plain", (0, 1)).to_json()) | change
    program = f"{block('js')}decider({json.dumps(document)})({row});"
    done = subprocess.run([NODE, "-e", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert says in done.stderr


def test_the_javascript_is_short():
    assert len(block("js").splitlines()) <= 17


@pytest.mark.parametrize("thresholds", [None, SOME])
@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_sql(kind, dtype, thresholds, rng):
    policy, scores = sample(kind, dtype, rng, thresholds)
    base = sqlite3.connect(":memory:")
    base.execute(block("sql").replace(":file", "'" + policy.to_json().replace("'", "''") + "'"))
    assert base.execute("SELECT * FROM policy ORDER BY position").fetchall() == [
        (k, *row)
        for k, row in enumerate(
            zip(LABELS, policy.strategy.delta, policy.strategy.l, thresholds or [0] * K, strict=True)
        )
    ]
    base.execute("CREATE TABLE scores (sample INTEGER, class TEXT, score DOUBLE PRECISION)")
    rows = [(i, LABELS[k], v) for i, row in enumerate(scores.astype(float).tolist()) for k, v in enumerate(row)]
    base.executemany("INSERT INTO scores VALUES (?, ?, ?)", rows)
    query = block("sql", 1)
    if kind == "proba":
        try:
            base.execute("SELECT ln(2.0)")
        except sqlite3.OperationalError:
            base.create_function("ln", 1, lambda x: float(np.log(x)), deterministic=True)
        query = query.replace("* score", f"* {re.search(r'`(ln[^`]*)`', PAGE)[1]}").replace(
            ":floor", repr(policy.floor)
        )
    check(policy, scores, [label for _, label in sorted(base.execute(query))])


@pytest.mark.parametrize("change", [{"schema": 4}, {"side": "loss"}])
def test_sql_decides_nothing_by_what_it_cannot_read(change):
    document = json.loads(Policy(Strategy.of(2), "plain", (0, 1), side=change.get("side", "posthoc")).to_json())
    base = sqlite3.connect(":memory:")
    base.execute(block("sql").replace(":file", f"'{json.dumps(document | change)}'"))
    assert base.execute("SELECT * FROM policy").fetchall() == []

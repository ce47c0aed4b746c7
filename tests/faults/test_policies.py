"""Policies as strangers may write them: the digest fits, the content need not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from capri import InputError, Policy
from capri.posthoc import Frontier

pytestmark = pytest.mark.faults

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2.5, 1e308, -1e308, 5e-324, 10**400, -(10**400), 2**64, "", "cat", "1.0", "\ud800",
    "\x1b[2J", "\0", "\u202e", "a" * 10**5, [], {}, [[]], [1], ["1", "2", "3"], [1, 2, 3], [1e308] * 3, [True] * 3,
    [None] * 3, [10**400] * 3, ["a", "b", "c"], ["a", "a", "a"], ["\ud800", "b", "c"], ["\x1b[2J", "b", "c"],
    [1, "1", 2], {"l": [1, 2, 3]}, {"a": {"b": {}}}, {"\ud800": 1}, [0.1] * 4, list(range(1000)), [[1, 2, 3]] * 3,
    "posthoc", "loss", "proba", "logits", "balanced", "cvar:0.2", "err[cat]", "err[\x1b]", "exec('1')", "0*balanced",
]  # fmt: skip


def places(content: Any, here: tuple = ()) -> list[tuple]:
    """The path to everything inside."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [here, *(place for key, value in inner for place in places(value, (*here, key)))]


def changed(content: Any, place: tuple, value: Any) -> Any:
    if not place:
        return value
    copy = dict(content) if isinstance(content, dict) else list(content)
    if value is ... and len(place) == 1:
        del copy[place[0]]
    else:
        copy[place[0]] = changed(content[place[0]], place[1:], value)
    return copy


def forge(content: Any, everywhere: list[tuple], rng: np.random.Generator) -> Any:
    """One or two values in the place of others."""
    for _ in range(rng.integers(1, 3)):
        known = places(content)[1:]
        place = everywhere[rng.integers(len(everywhere))]
        place = place if place in known else known[rng.integers(len(known))] if known else ()
        value = ... if place and rng.random() < 0.1 else VALUES[rng.integers(len(VALUES))]
        content = changed(content, place, value) if place else content
    return content


def signed(schema: Any, content: Any) -> dict[str, Any]:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"schema": schema, "digest": digest, "policy": content}


@pytest.mark.parametrize(("name", "cases"), [("policy", 3000), ("abstaining", 600), ("promising", 600)])
def test_forged_policies(capri, good, tally, tmp_path, rng, name, cases):
    document = json.loads((good / f"{name}.json").read_text())
    everywhere = places(document["policy"])[1:]
    scores, path = np.load(good / "scores.npy"), tmp_path / "p.json"
    commands = [
        ["evaluate", good / "scores.npz", "--policy", path], ["apply", good / "scores.npz", path],
        ["evaluate", good / "scores.npz", "--policy", path, "--json"], ["apply", good / "scores.npz", path, "--json"],
        ["report", good / "scores.npz", path, "-o", "page.html"], ["fold", good / "layer.npz", path, "-o", "f.npz"],
        ["export", good / "model.onnx", path, "-o", "tuned.onnx"],
    ]  # fmt: skip
    with tally("forged policies") as check:
        for case in range(cases):
            content = forge(document["policy"], everywhere, rng)
            schema = document["schema"] if rng.random() < 0.9 else VALUES[rng.integers(20)]
            path.write_text(json.dumps(signed(schema, content)))
            problem = load(path, scores)
            if problem is None and case % 2:
                words = commands[case // 2 % len(commands)]
                problem = capri(*words).problem
                problem = problem and f"{words[0]}: {problem}"
            check(problem, f"{name} {case}")


def test_forged_frontiers(capri, good, tally, tmp_path, rng):
    """Their policies have digests, which fit; the figures have none."""
    document, path = json.loads((good / "frontier.json").read_text()), tmp_path / "f.json"
    everywhere = [place for place in places(document)[1:] if "policy" not in place]
    with tally("forged frontiers") as check:
        for case in range(600):
            path.write_text(json.dumps(forge(document, everywhere, rng)))
            try:
                repr(Frontier.load(path))
                problem = None
            except InputError:
                problem = None
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is None and case % 10 == 0:
                words = ("report", good / "scores.npz", good / "policy.json", "--frontier", path, "-o", "page.html")
                problem = capri(*words).problem
            check(problem, case)


def load(path, scores) -> str | None:
    try:
        policy = Policy.load(path)
    except InputError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    try:
        again = Policy.from_json(policy.to_json())
        if again.to_json() != policy.to_json():
            return "not the same when it is saved again"
        decided = policy.apply(scores)
    except InputError:
        return None
    except Exception as error:
        return f"in use, {type(error).__name__}: {error}"
    return None if np.isfinite(decided).all() else "infinite scores, in silence"

"""Policies as strangers may write them: the digest fits, the content need not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from capri import InputError, Policy

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


def test_forged_policies(capri, good, tally, tmp_path, rng):
    document = json.loads((good / "policy.json").read_text())
    everywhere = places(document["policy"])[1:]
    scores = np.load(good / "scores.npy")
    with tally("forged policies") as check:
        for case in range(3000):
            content = document["policy"]
            for _ in range(rng.integers(1, 3)):
                known = places(content)[1:]
                place = everywhere[rng.integers(len(everywhere))]
                place = place if place in known else known[rng.integers(len(known))] if known else ()
                value = ... if place and rng.random() < 0.1 else VALUES[rng.integers(len(VALUES))]
                content = changed(content, place, value) if place else content
            schema = document["schema"] if rng.random() < 0.9 else VALUES[rng.integers(20)]
            digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
            (tmp_path / "p.json").write_text(json.dumps({"schema": schema, "digest": digest, "policy": content}))
            problem = load(tmp_path / "p.json", scores)
            if problem is None and case % 3 == 0:
                problem = capri(
                    "evaluate", good / "scores.npz", "--policy", "p.json", *(["--json"] * (case % 2))
                ).problem
            if problem is None and case % 3 == 1:
                problem = capri("apply", good / "scores.npz", "p.json").problem
            check(problem, f"case {case}")


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

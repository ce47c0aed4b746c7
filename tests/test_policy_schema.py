"""The published schema of policies: it takes what capri writes, and refuses what capri refuses."""

import copy
import hashlib
import json
from dataclasses import fields

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capri import LogitAdjuster, Policy, PolicyError, Strategy
from capri.policy import ABSTAINING, SCHEMA, json_schema
from capri.validation import Validation

VALIDATOR = jsonschema.Draft202012Validator(json_schema())
COUNTS = [60, 20, 10]

LATER = {"ladder", "limits", "thresholds"}  # fields that files of schema 2 lack which were written before them

VALIDATION = Validation(
    objective="balanced",
    before={"balanced": 0.4, "own": np.nan},
    after={"balanced": 0.2, "own": 0.1},
    errors_before=[0.1, None, 0.8],
    errors_after=[0.2, None, 0.2],
    samples=[3.0, 0.0, 6.0],
    in_sample=0.2,
    improvement=None,
    interval=(0.1, np.nan),
    feasible=True,
    ladder={"tuned": (0.1, np.nan, 0.2)},
    limits={"plain <= baseline": (0.2, 0.3)},
)
POLICY = Policy(
    Strategy.of(3, l=[0.1, 1 / 3, -2e-7], delta=[1, 1.5, 0.7]),
    objective="cvar:0.2",
    classes=("cat", "sea lion", "Ärmel\nkanal"),
    scores="proba",
    constraints=("plain <= baseline + 0.01",),
    attributes={"freq": [0.7, 0.2, 0.1]},
    dictionary={"basis": ["log", "β"], "floor": 1e-6},
    weights={"l": [1 / 3, -0.1]},
    validation=VALIDATION,
    data={"digest": "0123", "n_samples": 9, "means": [0.1, None], "given": {"noise": True}},
    seed=7,
)


def document(policy):
    return json.loads(policy.to_json())


def signed(changed):
    """With a digest that fits."""
    content = json.dumps(changed.get("policy"), sort_keys=True).encode()
    return {**changed, "digest": hashlib.sha256(content).hexdigest()}


class TestWhatIsWritten:
    def test_the_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(json_schema())

    @pytest.mark.parametrize("method", ["cap", "plain", "la", "cdt", "vs"])
    def test_of_every_method(self, rng, method):
        y = np.repeat([0, 1, 2], 20)
        scores = rng.normal(size=(60, 3)) + 2 * np.eye(3)[y]
        adjuster = LogitAdjuster("cvar:0.4", method=method, parameters="both" if method == "cap" else "l", bootstrap=20)
        VALIDATOR.validate(document(adjuster.fit(scores, y, class_counts=COUNTS, X_unlabelled=scores).policy_))

    def test_without_a_validation_set_or_for_a_loss(self):
        VALIDATOR.validate(document(LogitAdjuster.from_counts({"a": 9, "b": 1}).policy_))
        VALIDATOR.validate(document(Policy(Strategy.vs([9, 1], 1, 0.2), "balanced", (0, 1), side="loss")))

    def test_with_every_field(self):
        VALIDATOR.validate(document(POLICY))

    @given(
        st.lists(st.floats(-1e308, 1e308), min_size=1, max_size=4),
        st.sampled_from([("é", "b\t", "c", "d"), (True, 1.5, -7, "x"), (10**25, 0, 2, 3)]),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.booleans() | st.integers()),
    )
    def test_of_any_strategy_labels_and_data(self, l, labels, data):
        VALIDATOR.validate(document(Policy(Strategy.of(len(l), l=l), "plain", labels[: len(l)], data={"x": data})))

    def test_the_fields_are_those_of_the_classes(self):
        parts = json_schema()["$defs"]
        for name, kind in {"policy": Policy, "strategy": Strategy, "validation": Validation}.items():
            names = {f.name for f in fields(kind) if f.metadata.get("kept", True)}
            assert set(parts[name]["properties"]) == names
            assert set(parts[name]["required"]) == names - LATER
        assert json_schema()["properties"]["schema"]["enum"] == [SCHEMA, ABSTAINING]


ODD = [None, True, -1, 0, 0.5, 1, 3, 1e308, 10**400, "x", "\x1b[2J", [], [1], ["a"], [None], [[1]], {}, {"a": 1}]
ODD += [{"a": "b"}, [1, 2, 3], [1, None, 3], ["a", "b", "c"], ["a", "b", "a"], ["1", 1, 2], [0.1, 0.2], "posthoc"]


def places(value, path=()):
    """Every place in a document; of lists the first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [path, *(place for key, v in inner for place in places(v, (*path, key)))]


def changed_at(path, change):
    changed = copy.deepcopy(document(POLICY))
    at = changed
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return changed if path[0] == "digest" else signed(changed)


def mutations():
    """Every place with each odd value in it, with something added, and without it."""
    for path in places(document(POLICY))[1:]:
        for odd in ODD:
            yield path, changed_at(path, lambda at, key, odd=odd: at.__setitem__(key, copy.deepcopy(odd)))
        yield path, changed_at(path, lambda at, key: at.__delitem__(key))
        if isinstance(path[-1], str):
            yield path, changed_at(path, lambda at, key: at.__setitem__(key + "2", 1))


def read(changed):
    try:
        return Policy.from_json(json.dumps(changed))
    except PolicyError as error:
        return error


#: What no JSON Schema can say: lists of one length, names that differ as text, digests, and that 1e308 is no integer.
BEYOND = ("for 3 classes", "for 2 classes", "for 1 classes", "twice", "not match its digest", "seed is 1e+308")
#: What is read for the sake of old files or passed over, and is never written.
STRICTER = {("policy", "strategy"), ("policy", "validation", "in_sample")}


def test_every_change_that_capri_refuses_the_schema_refuses_as_far_as_it_can_and_no_other():
    taken, refused, stricter = [], 0, []
    for path, changed in mutations():
        valid, outcome = VALIDATOR.is_valid(changed), read(changed)
        if isinstance(outcome, PolicyError):
            refused += not valid
            taken += [str(outcome)] if valid else []
        elif not valid:
            stricter.append(path)
    assert [reason for reason in taken if not any(beyond in reason for beyond in BEYOND)] == []
    assert {path if path[-1] == "in_sample" else path[:-1] for path in stricter} == STRICTER
    assert refused > 800 > 5 * len(taken)


REFUSED = {
    ("schema",): (1, 3),
    ("digest",): ("0123",),
    ("policy", "strategy", "delta", 1): (0,),
    ("policy", "strategy", "omega", 1): (-1,),
    ("policy", "classes", 0): ("\x1b[2J", 10**400),
    ("policy", "floor"): (1,),
    ("policy", "side"): ("left",),
    ("policy", "command"): ("rm",),
}


@pytest.mark.parametrize(("path", "odd"), [(path, odd) for path, values in REFUSED.items() for odd in values])
def test_what_is_refused(path, odd):
    assert not VALIDATOR.is_valid(changed_at(path, lambda at, key: at.__setitem__(key, odd)))

"""Policies: exact round trips, and files that cannot be trusted."""

import hashlib
import json
import os
import pickle
import string
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import capri
from capri import InputError, Policy, PolicyError, Strategy
from capri._provenance import data_digest
from capri.policy import SCHEMA, to_logits

finite = st.floats(-1e300, 1e300)


def make_policy(**changes):
    given = {
        "objective": "0.5*balanced+0.5*cvar:0.2",
        "class_names": ("cat", "sea lion", "Ärmelkanal"),
        "scores": "proba",
        "floor": 1e-9,
        "method": "exact",
        "constraints": ("plain <= baseline + 0.01",),
        "attributes": {"freq": [0.7, 0.2, 0.1]},
        "dictionary": {"basis": ["log", "β"], "scaling": "whiten", "floor": 1e-6},
        "weights": {"l": np.array([1 / 3, -0.1])},
        "validation": {"before": {"balanced": np.float64(0.4), "errors": np.array([0.1, 0.3, 0.8])}, "n": np.int64(9)},
        "data": {"digest": "0123", "n_samples": 9},
        "seed": 7,
    }
    return Policy(Strategy([1, 1, 1], [0.1, 1 / 3, -2e-7], [1, 1.5, 0.7]), **(given | changes))


def forged(policy, **changes):
    """A policy file with other content and a digest that fits."""
    document = json.loads(policy.to_json())
    document["policy"] |= changes
    content = {k: v for k, v in document["policy"].items() if v is not ...}
    document["policy"] = content
    document["digest"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps(document)


class TestUse:
    def test_it_adjusts_probabilities_through_their_logarithm(self):
        policy, p = make_policy(), np.array([[0.6, 0.3, 0.1], [1.0, 0.0, 0.0]])
        expected = policy.strategy.delta * np.log(np.maximum(p, 1e-9)) - policy.strategy.l
        np.testing.assert_allclose(policy.apply(p), expected)

    def test_it_adjusts_logits_as_they_are(self, rng):
        policy, scores = make_policy(scores="logits"), rng.normal(0, 9, (5, 3))
        np.testing.assert_allclose(policy.apply(scores), policy.strategy.adjust(scores))

    def test_it_predicts_class_names(self):
        policy = Policy(Strategy.of(2), "plain", ("no", "yes"))
        assert policy.predict([[0.0, 1.0], [1.0, 0.0]]).tolist() == ["yes", "no"]

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_a_probability_of_zero_stays_finite_in_every_precision(self, dtype):
        logits = to_logits(np.array([[0, 1]], dtype), "proba", 1e-12)
        np.testing.assert_allclose(logits, [[np.log(1e-12), 0]], rtol=1e-6)

    @pytest.mark.parametrize("scores", [[[-0.1, 1.1]], [[0.5, 3.0]]])
    def test_declared_probabilities_lie_between_0_and_1(self, scores):
        with pytest.raises(
            InputError, match=r"declared probabilities but range from .* For logits use scores=\"logits\""
        ):
            to_logits(scores, "proba", 1e-12)

    def test_scores_of_other_classes_are_refused(self):
        with pytest.raises(InputError, match="scores have 2 columns, the strategy 3 classes"):
            make_policy().apply([[0.5, 0.5]])

    def test_scores_that_are_not_finite_are_refused(self):
        with pytest.raises(InputError, match=r"scores\[0, 2\] is nan"):
            make_policy().apply([[0.5, 0.5, np.nan]])


class TestFields:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"scores": "margins"}, "scores is 'margins'; it must be 'logits' or 'proba'"),
            ({"class_names": ("a", "b")}, "class_names has 2 entries for 3 classes"),
            ({"class_names": ("a", "b", "a")}, "class_names holds 'a' twice"),
            ({"floor": 0.0}, "floor is 0.0; it must be a probability above 0 and below 1"),
            ({"floor": "small"}, "floor is 'small'; it must be a number"),
            ({"objective": 3}, "objective is 3; it must be text"),
            ({"constraints": "plain <= 1"}, "constraints is 'plain <= 1'; it must be a tuple of texts"),
            ({"weights": [1, 2]}, r"weights is \[1, 2\]; it must be a mapping"),
            ({"seed": 0.5}, "seed is 0.5; it must be a whole number or None"),
        ],
    )
    def test_are_checked(self, changes, says):
        with pytest.raises(InputError, match=says):
            make_policy(**changes)

    def test_record_what_computed_the_policy(self):
        assert make_policy().versions["capri"] == capri.__version__
        assert make_policy().versions["numpy"] == np.__version__


class TestRoundTrip:
    def test_is_exact(self, tmp_path):
        policy, path = make_policy(), tmp_path / "policy.json"
        policy.save(path)
        again = Policy.load(path)
        assert again.to_json() == policy.to_json()
        for part in ("omega", "l", "delta"):
            np.testing.assert_array_equal(getattr(again.strategy, part), getattr(policy.strategy, part))
        assert again.class_names == policy.class_names
        assert again.constraints == policy.constraints
        assert again.weights == {"l": [1 / 3, -0.1]}
        assert again.validation == {"before": {"balanced": 0.4, "errors": [0.1, 0.3, 0.8]}, "n": 9}
        assert again.seed == 7

    @given(arrays(float, 4, elements=finite), arrays(float, 4, elements=st.floats(1e-300, 1e300)))
    def test_keeps_every_bit_of_the_strategy(self, l, delta):
        policy = Policy(Strategy.of(4, l=l, delta=delta), "plain", tuple("abcd"))
        again = Policy.from_json(policy.to_json()).strategy
        np.testing.assert_array_equal(again.l, policy.strategy.l)
        np.testing.assert_array_equal(again.delta, policy.strategy.delta)

    def test_the_file_is_plain_json_with_a_schema(self):
        document = json.loads(make_policy().to_json())
        assert document["schema"] == SCHEMA == 1
        assert document["policy"]["strategy"]["l"] == [0.1, 1 / 3, -2e-7]
        assert document["policy"]["class_names"][2] == "Ärmelkanal"

    def test_undefined_figures_become_null(self):
        policy = make_policy(validation={"errors": np.array([0.1, np.nan])})
        assert Policy.from_json(policy.to_json()).validation == {"errors": [0.1, None]}

    @pytest.mark.parametrize(
        ("validation", "says"),
        [
            ({"loss": [0.1, np.inf]}, r"policy.validation.loss\[1\] is inf, which has no place in a policy"),
            ({"model": object}, "policy.validation.model is <class 'object'>"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_before_writing(self, tmp_path, validation, says):
        path = tmp_path / "policy.json"
        with pytest.raises(InputError, match=says):
            make_policy(validation=validation).save(path)
        assert not path.exists()

    def test_a_failing_save_leaves_the_old_policy(self, tmp_path, monkeypatch):
        path = tmp_path / "policy.json"
        make_policy(seed=1).save(path)

        def full(_):
            raise OSError("disk full")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            make_policy(seed=2).save(path)
        assert Policy.load(path).seed == 1
        assert list(tmp_path.iterdir()) == [path]


class TestUntrustworthyFiles:
    def refuses(self, tmp_path, text, says):
        path = tmp_path / "policy.json"
        path.write_text(text, encoding="utf-8") if isinstance(text, str) else path.write_bytes(text)
        with pytest.raises(PolicyError, match=says) as caught:
            Policy.load(path)
        assert str(path) in str(caught.value)

    def test_that_do_not_exist(self, tmp_path):
        with pytest.raises(PolicyError, match=r"no such file; `capri tune … -o .* makes one"):
            Policy.load(tmp_path / "policy.json")

    def test_that_are_folders(self, tmp_path):
        with pytest.raises(PolicyError, match="cannot be read as text"):
            Policy.load(tmp_path)

    @pytest.mark.parametrize("keep", [0, 1, 10, 200, -1])
    def test_that_are_truncated(self, tmp_path, keep):
        self.refuses(tmp_path, make_policy().to_json()[:keep], "the file is truncated or not a policy")

    @pytest.mark.parametrize("schema", [0, 2, "1", None])
    def test_of_another_version(self, tmp_path, schema):
        document = json.loads(make_policy().to_json()) | {"schema": schema}
        self.refuses(tmp_path, json.dumps(document), rf"schema version {schema!r}, this capri reads 1; use a capri")

    @pytest.mark.parametrize(("old", "new"), [("0.7", "0.8"), ("cat", "dog"), ('"seed": 7', '"seed": 8')])
    def test_that_were_tampered_with(self, tmp_path, old, new):
        text = make_policy().to_json()
        assert old in text
        self.refuses(tmp_path, text.replace(old, new), "does not match its digest; it was changed after it was saved")

    @pytest.mark.parametrize("text", ["[]", "{}", "3", '"policy"', '{"schema": 1, "policy": {}}'])
    def test_that_are_not_policies(self, tmp_path, text):
        self.refuses(tmp_path, text, "not a capri policy; it lacks schema, digest or policy")

    def test_whose_content_is_no_object(self, tmp_path):
        self.refuses(tmp_path, '{"schema": 1, "digest": "", "policy": []}', "does not match its digest")

    @pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
    def test_with_numbers_that_are_none(self, tmp_path, constant):
        text = make_policy().to_json().replace("0.7", constant, 1)
        self.refuses(tmp_path, text, f"{constant} is not allowed")

    def test_nested_beyond_reason(self, tmp_path):
        self.refuses(tmp_path, "[" * 200_000, "not complete JSON")

    def test_that_are_not_text(self, tmp_path):
        self.refuses(tmp_path, b"\xff\xfe\x00policy", "cannot be read as text")

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"strategy": {"omega": [1, 1, 1], "l": [0, 0, 0]}}, "does not make a policy"),
            ({"strategy": {"omega": [1, 1, 1], "l": [0, 0, 0], "delta": [1, 0, 1]}}, r"delta\[1\] is 0.0"),
            ({"strategy": {"omega": [1, 1, 1], "l": [0, 0, None], "delta": [1, 1, 1]}}, r"l\[2\] is nan"),
            ({"strategy": 3}, "does not make a policy"),
            ({"class_names": ["a", "b"]}, "class_names has 2 entries for 3 classes"),
            ({"class_names": None}, "does not make a policy"),
            ({"scores": "margins"}, "scores is 'margins'"),
            ({"floor": -1.0}, "floor is -1.0"),
            ({"weights": 3}, "weights is 3; it must be a mapping"),
            ({"command": "rm"}, "unexpected keyword argument 'command'"),
            ({"floor": ...}, "it lacks floor; save it again"),
        ],
    )
    def test_whose_digest_fits_but_whose_content_does_not(self, tmp_path, changes, says):
        self.refuses(tmp_path, forged(make_policy(), **changes), says)

    @given(st.data())
    def test_with_any_one_character_changed(self, data):
        text = make_policy().to_json()
        i = data.draw(st.integers(0, len(text) - 1))
        changed = text[:i] + data.draw(st.sampled_from(string.printable)) + text[i + 1 :]
        try:
            assert Policy.from_json(changed).to_json() == text
        except PolicyError:
            assert changed != text

    def test_are_never_executed(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return Path.touch, (tmp_path / "exploded",)

        self.refuses(tmp_path, pickle.dumps(Bomb()), "cannot be read as text|not complete JSON")
        code = f"__import__('pathlib').Path({str(tmp_path / 'exploded')!r}).touch()"
        policy = Policy.from_json(make_policy(objective=code, method=code, constraints=(code,)).to_json())
        policy.predict([[0.2, 0.3, 0.5]])
        assert policy.objective == code
        assert not (tmp_path / "exploded").exists()


class TestDigest:
    def test_tells_values_shapes_and_types_apart(self):
        base = np.arange(6.0)
        others = [base + 1e-12, base.reshape(2, 3), base.astype(np.float32), base[:5], base[::-1]]
        digests = {data_digest(base), *(data_digest(other) for other in others)}
        assert len(digests) == 6
        assert data_digest(base, base) != data_digest(base)

    def test_does_not_depend_on_the_layout_in_memory(self):
        base = np.arange(6.0).reshape(2, 3)
        assert data_digest(np.asfortranarray(base)) == data_digest(base)

    @pytest.mark.parametrize(
        "array", [["a", "bc"], np.array(["2020-01-01"], "M8[D]"), np.array([1, None], object), np.zeros((0, 3)), 3]
    )
    def test_takes_any_array(self, array):
        assert len(data_digest(array)) == 16
        assert data_digest(array) == data_digest(array)

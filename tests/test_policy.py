"""Policies: exact round trips, and files that cannot be trusted."""

import hashlib
import json
import os
import pickle
import re
import string
from contextlib import suppress
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import capri
from capri import InputError, LogitAdjuster, Policy, PolicyError, Strategy
from capri._provenance import data_digest
from capri.policy import FLOOR, SCHEMA, Validation, to_logits

finite = st.floats(-1e300, 1e300)

NEUTRAL = {"omega": [1, 1, 1], "l": [0, 0, 0], "delta": [1, 1, 1], "smoothing": [0, 0, 0]}


def make_validation(**changes):
    given = {
        "objective": "balanced",
        "before": {"balanced": np.float64(0.4), "worst": 0.8},
        "after": {"balanced": 0.2, "worst": 0.3},
        "errors_before": [0.1, 0.3, 0.8],
        "errors_after": [0.2, None, 0.2],
        "samples": [3.0, 0.0, 6.0],
        "in_sample": 0.2,
        "improvement": 0.15,
        "interval": (0.1, 0.3),
        "feasible": True,
    }
    return Validation(**(given | changes))


def make_policy(**changes):
    given = {
        "objective": "0.5*balanced+0.5*cvar:0.2",
        "classes": ("cat", "sea lion", "Ärmelkanal"),
        "scores": "proba",
        "floor": 1e-9,
        "method": "exact",
        "constraints": ("plain <= baseline + 0.01",),
        "attributes": {"freq": [0.7, 0.2, 0.1]},
        "dictionary": {"basis": ["log", "β"], "scaling": "whiten", "floor": 1e-6},
        "weights": {"l": np.array([1 / 3, -0.1])},
        "reason": "no line improves",
        "validation": make_validation(),
        "data": {"digest": "0123", "n_samples": np.int64(9), "means": np.array([0.1, 0.3, np.nan])},
        "seed": 7,
    }
    given["strategy"] = Strategy.of(3, l=[0.1, 1 / 3, -2e-7], delta=[1, 1.5, 0.7])
    return Policy(**(given | changes))


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

    @pytest.mark.parametrize(
        ("classes", "dtype"),
        [
            ((7, -2), np.int64),
            (("no", "yes"), np.dtype("<U3")),
            ((False, True), np.bool_),
            ((0.5, 1.5), np.float64),
            (("no", 1), object),
            (np.array([7, -2], np.int32), np.int64),
            (np.array(["no", "yes"]), np.dtype("<U3")),
            ([np.True_, np.False_], np.bool_),
        ],
    )
    def test_labels_keep_their_type_on_disk_and_in_predictions(self, classes, dtype):
        policy = Policy(Strategy.of(2), "plain", classes)
        for one in (policy, Policy.from_json(policy.to_json())):
            predicted = one.predict([[0.0, 1.0], [1.0, 0.0]])
            assert predicted.dtype == dtype
            assert predicted.tolist() == list(classes)[::-1]
            assert [type(c) for c in one.classes] == [type(c) for c in np.asarray(classes, dtype).tolist()]
            assert one.class_names == tuple(str(c) for c in classes)

    def test_what_an_estimator_predicts_its_policy_predicts(self, rng):
        y = np.repeat([2, 5, 11], 30)
        scores = rng.normal(size=(90, 3)) + np.eye(3)[np.repeat([0, 1, 2], 30)]
        adjuster = LogitAdjuster(pooling=None).fit(scores, y, class_counts=[9, 3, 1])
        predicted = Policy.from_json(adjuster.policy_.to_json()).predict(scores)
        np.testing.assert_array_equal(predicted, adjuster.predict(scores), strict=True)

    @pytest.mark.parametrize("use", ["apply", "predict"])
    def test_a_loss_is_refused(self, use):
        policy = make_policy(side="loss", scores="logits")
        with pytest.raises(
            InputError, match=r"this policy is a loss.*`capri retrain --policy` trains with it.*tune post-hoc"
        ):
            getattr(policy, use)([[1.0, 2.0, 3.0]])

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_a_probability_of_zero_stays_finite_in_every_precision(self, dtype):
        logits = to_logits(np.array([[0, 1]], dtype), "proba", 1e-12)
        np.testing.assert_allclose(logits, [[np.log(1e-12), 0]], rtol=1e-6)

    def test_a_probability_that_rounding_put_below_zero_is_zero(self):
        np.testing.assert_array_equal(to_logits([[-1e-7, 1.0]], "proba", 1e-12), to_logits([[0, 1.0]], "proba", 1e-12))

    @pytest.mark.parametrize("scores", [[[-0.1, 1.1]], [[0.5, 3.0]]])
    def test_declared_probabilities_lie_between_0_and_1(self, scores):
        with pytest.raises(
            InputError, match=r"declared probabilities but range from .* If they are logits, give scores=\"logits\""
        ):
            to_logits(scores, "proba", 1e-12)

    def test_scores_of_other_classes_are_refused(self):
        with pytest.raises(InputError, match="scores have 2 columns, the strategy 3 classes"):
            make_policy().apply([[0.5, 0.5]])

    @pytest.mark.parametrize("changes", [{"delta": [1, 1e308, 1]}, {"l": [-1.7e308, 0, 0]}])
    def test_what_overflows_is_refused(self, changes):
        policy = make_policy(strategy=Strategy.of(3, **changes), scores="logits")
        with pytest.raises(InputError, match="the adjusted scores overflow"):
            policy.predict([[1e307, 5.0, 1.0]])

    def test_scores_that_are_not_finite_are_refused(self):
        with pytest.raises(InputError, match=r"scores\[0, 2\] is nan"):
            make_policy().apply([[0.5, 0.5, np.nan]])


class TestFields:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"scores": "margins"}, "scores is 'margins'; it must be 'logits' or 'proba'"),
            ({"side": "left"}, "side is 'left'; it must be 'posthoc' or 'loss'"),
            ({"classes": ("a", "b")}, "classes has 2 entries for 3 classes"),
            ({"classes": ("a", "b", "a")}, "classes holds 'a' twice"),
            ({"classes": (1, "1", 2)}, "classes holds '1' twice; names must differ"),
            (
                {"classes": ("a", "b", (1, 2))},
                r"classes\[2\] is \(1, 2\), which a policy file cannot keep.*str\(label\)",
            ),
            ({"classes": (date(2020, 1, 2), 1, 2)}, r"classes\[0\] is datetime.date\(2020, 1, 2\), which"),
            ({"classes": (0.5, np.nan, 2)}, r"classes\[1\] is nan, which a policy file cannot keep"),
            ({"classes": (None, 1, 2)}, r"classes\[0\] is None, which a policy file cannot keep"),
            ({"classes": None}, "classes is None; it must be one label per class"),
            ({"classes": "abc"}, "classes is 'abc'; it must be one label per class"),
            ({"scores": np.zeros((2, 0))}, "it must be 'logits' or 'proba'"),
            ({"floor": 0.0}, "floor is 0.0; it must be a probability above 0 and below 1"),
            ({"floor": "small"}, "floor is 'small'; it must be a probability"),
            ({"objective": 3}, "objective is 3; it must be text"),
            ({"reason": None}, "reason is None; it must be text"),
            ({"constraints": "plain <= 1"}, "constraints is 'plain <= 1'; it must be a tuple of texts"),
            ({"weights": [1, 2]}, r"weights is \[1, 2\]; it must be a mapping"),
            ({"constraints": (3,)}, r"constraints is \(3,\); it must be a tuple of texts"),
            ({"seed": 0.5}, "seed is 0.5; it must be a whole number or None"),
            ({"validation": {"before": 3}}, "validation is {'before': 3}; it must be a Validation or None"),
        ],
    )
    def test_are_checked(self, changes, says):
        with pytest.raises(InputError, match=says):
            make_policy(**changes)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"objective": 3}, "validation.objective is 3; it must be text"),
            (
                {"before": {"balanced": "low"}},
                "validation.before is {'balanced': 'low'}; it must be a mapping to numbers",
            ),
            ({"after": [0.1]}, r"validation.after is \[0.1\]; it must be a mapping to numbers"),
            ({"errors_after": [0.1, "x", 0]}, "it must be a number or None per class"),
            ({"samples": [1, None, 2]}, r"validation.samples is \[1, None, 2\]; it must be a number per class"),
            ({"in_sample": None}, "validation.in_sample is None; it must be a number"),
            ({"improvement": "much"}, "validation.improvement is 'much'; it must be a number or None"),
            ({"interval": (0.1,)}, r"validation.interval is \(0.1,\); it must be two numbers or None"),
            ({"feasible": 1}, "validation.feasible is 1; it must be True or False"),
        ],
    )
    def test_of_the_validation_are_checked(self, changes, says):
        with pytest.raises(InputError, match=says):
            make_validation(**changes)

    @pytest.mark.parametrize("name", ["errors_before", "errors_after", "samples"])
    def test_of_the_validation_are_of_the_same_classes(self, name):
        with pytest.raises(InputError, match=f"validation.{name} has 2 entries for 3 classes; give one per class"):
            make_policy(validation=make_validation(**{name: [0.1, 0.2]}))

    def test_one_floor_serves_policies_and_estimators(self):
        assert Policy(Strategy.of(2), "plain", (0, 1)).floor == LogitAdjuster().floor == FLOOR

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
        assert again.classes == policy.classes
        assert again.digest == policy.digest == json.loads(path.read_text())["digest"]
        assert again.constraints == policy.constraints
        assert again.weights == {"l": [1 / 3, -0.1]}
        assert again.validation == policy.validation
        assert again.reason == "no line improves"
        assert again.data == {"digest": "0123", "n_samples": 9, "means": [0.1, 0.3, None]}
        assert again.seed == 7

    @given(arrays(float, 4, elements=finite), arrays(float, 4, elements=st.floats(1e-300, 1e300)))
    def test_keeps_every_bit_of_the_strategy(self, l, delta):
        policy = Policy(Strategy.of(4, l=l, delta=delta), "plain", tuple("abcd"))
        again = Policy.from_json(policy.to_json()).strategy
        np.testing.assert_array_equal(again.l, policy.strategy.l)
        np.testing.assert_array_equal(again.delta, policy.strategy.delta)

    def test_the_file_is_plain_json_with_a_schema(self):
        document = json.loads(make_policy().to_json())
        assert document["schema"] == SCHEMA == 2
        assert document["policy"]["strategy"]["l"] == [0.1, 1 / 3, -2e-7]
        assert document["policy"]["classes"][2] == "Ärmelkanal"

    def test_undefined_figures_become_null(self):
        undefined = {"before": {"own": np.nan}, "after": {"own": 0.5}, "in_sample": np.nan, "interval": (np.nan, 0.1)}
        policy = make_policy(validation=make_validation(**undefined))
        document = json.loads(policy.to_json())["policy"]["validation"]
        assert (document["before"], document["interval"]) == ({"own": None}, [None, 0.1])
        again = Policy.from_json(policy.to_json())
        assert np.isnan(
            [again.validation.before["own"], again.validation.in_sample, again.validation.interval[0]]
        ).all()
        assert again.to_json() == policy.to_json()

    def test_an_improvement_that_was_not_told_from_that_of_the_tuning_samples_is_theirs(self):
        """Files of before `in_sample`: what they call improvement was none out of fold."""
        old = json.loads(make_policy().to_json())["policy"]["validation"]
        assert old.pop("in_sample") == 0.2
        read = Policy.from_json(forged(make_policy(), validation=old)).validation
        assert read == make_validation(in_sample=0.15, improvement=None, interval=None)
        nothing = Policy.from_json(forged(make_policy(), validation=old | {"improvement": None})).validation
        assert np.isnan(nothing.in_sample)

    def test_a_validation_may_be_missing(self):
        assert Policy.from_json(make_policy(validation=None).to_json()).validation is None
        assert (
            Policy.from_json(make_policy(validation=make_validation(interval=None)).to_json()).validation.interval
            is None
        )

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            ({"loss": [0.1, np.inf]}, r"policy.data.loss\[1\] is inf, which has no place in a policy"),
            ({"model": object}, "policy.data.model is <class 'object'>"),
            ({"model": Strategy}, "policy.data.model is <class 'capri.strategy.Strategy'>"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_before_writing(self, tmp_path, data, says):
        path = tmp_path / "policy.json"
        with pytest.raises(InputError, match=says):
            make_policy(data=data).save(path)
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

    @pytest.mark.parametrize("schema", [0, 4, "1", None, [2], True, 2.0])
    def test_of_another_version(self, tmp_path, schema):
        document = json.loads(make_policy().to_json()) | {"schema": schema}
        self.refuses(
            tmp_path, json.dumps(document), rf"schema version {re.escape(repr(schema))}, this capri reads 1 to 3; use"
        )

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

    @pytest.mark.parametrize("depth", [100, 300, 500, 700, 900])
    def test_nested_at_the_edge_of_reason(self, depth):
        nested = 1
        for _ in range(depth):
            nested = [nested]
        with suppress(PolicyError):
            assert Policy.from_json(forged(make_policy(), data={"deep": nested})).data == {"deep": nested}

    def test_with_a_number_that_overflows(self, tmp_path):
        text = forged(make_policy(), data={"n": 12345.5}).replace("12345.5", "1e999")
        self.refuses(tmp_path, text, "does not match its digest|has no place")

    def test_that_are_not_text(self, tmp_path):
        self.refuses(tmp_path, b"\xff\xfe\x00policy", "cannot be read as text")

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"strategy": {"omega": [1, 1, 1], "l": [0, 0, 0]}}, "does not make a policy"),
            (
                {"strategy": {"omega": [1, 1, 1], "l": [0, 0, 0], "delta": [1, 0, 1], "smoothing": [0, 0, 0]}},
                r"delta\[1\] is 0.0",
            ),
            (
                {"strategy": {"omega": [1, 1, 1], "l": [0, 0, None], "delta": [1, 1, 1], "smoothing": [0, 0, 0]}},
                r"l\[2\] is nan",
            ),
            ({"strategy": 3}, "does not make a policy"),
            ({"classes": ["a", "b"]}, "classes has 2 entries for 3 classes"),
            ({"classes": None}, "classes is None; it must be a list"),
            ({"classes": ["a", "b", ["c"]]}, r"classes\[2\] is \['c'\]"),
            ({"validation": 3}, "does not make a policy"),
            ({"validation": {"objective": "balanced"}}, "does not make a policy"),
            ({"side": "left"}, "side is 'left'"),
            ({"scores": "margins"}, "scores is 'margins'"),
            ({"floor": -1.0}, "floor is -1.0"),
            ({"weights": 3}, "weights is 3; it must be a mapping"),
            ({"command": "rm"}, "unexpected keyword argument 'command'"),
            ({"classes": "abc"}, "classes is 'abc'; it must be a list"),
            ({"constraints": "abc"}, "constraints is 'abc'; it must be a list"),
            ({"strategy": NEUTRAL | {"l": ["1", "2", "3"]}}, r"l is \['1', '2', '3'\]; it must be a list of numbers"),
            ({"strategy": NEUTRAL | {"l": "123"}}, "l is '123'; it must be a list of numbers"),
            ({"strategy": NEUTRAL | {"l": [True, 2, 3]}}, "it must be a list of numbers"),
            ({"strategy": NEUTRAL | {"l": [[1], [2], [3]]}}, "it must be a list of numbers"),
            ({"strategy": NEUTRAL | {"l": [10**400, 2, 3]}}, r"l\[0\] is 1000.*, which has no place in a policy"),
            ({"data": {"n": -(10**400)}}, r"policy\.data\.n is -1000.*, which has no place"),
            ({"seed": 10**400}, r"policy\.seed is 1000.*, which has no place"),
            ({"classes": ["a", "b", "\ud800"]}, r"policy\.classes\[2\] is '\\ud800', which has no place"),
            ({"reason": "\udfff"}, r"policy\.reason is '\\udfff', which has no place"),
            ({"data": {"\ud800": 1}}, "which has no place"),
            ({"classes": ["a", "b", "\x1b[2J"]}, r"classes\[2\] is '\\x1b\[2J', which holds control characters"),
            ({"classes": ["a", "b", "c\0"]}, r"classes\[2\] is 'c\\x00', which holds control characters"),
            ({"classes": ["a", "b", "\x9b2J"]}, "which holds control characters"),
            ({"attributes": {"freq": "abc"}}, "attributes is .* it must be a mapping to lists of numbers"),
            ({"attributes": {"freq": [[1], [2]]}}, "it must be a mapping to lists of numbers"),
            ({"weights": {"l": [1, "2"]}}, "it must be a mapping to lists of numbers"),
            ({"floor": ...}, "it lacks floor; save it again"),
            ({"data": {"target_shares": ["a", "b", "c"]}}, r"data\['target_shares'\] is \['a', 'b', 'c'\]; it must be"),
            ({"data": {"target_shares": [0, 0, 0]}}, "it must be a list of numbers, at least 0, not all 0"),
            ({"data": {"target_shares": [1, 2]}}, "has 2 entries for 3 classes"),
            ({"data": {"target_shares": 3}}, "it must be a list of numbers"),
            ({"data": {"digest": ["a"]}}, r"data\['digest'\] is \['a'\]; it must be text"),
            ({"data": {"temperature": "hot"}}, r"data\['temperature'\] is 'hot'; it must be a number"),
            ({"data": {"path": {"tuned": "far"}}}, r"data\['path'\] is .* it must be a mapping to numbers"),
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


FILES = Path(__file__).parent / "files"


class TestSchema1:
    """Files of the schema before, as they were written then."""

    def read(self, name):
        path = FILES / f"policy_schema1_{name}.json"
        return json.loads(path.read_text(encoding="utf-8"))["policy"], Policy.load(path)

    @pytest.mark.parametrize("name", ["logits", "proba"])
    def test_post_hoc_ones_adjust_and_decide_as_before(self, rng, name):
        old, policy = self.read(name)
        assert (policy.side, policy.scores) == ("posthoc", name)
        scores = rng.dirichlet([0.02, 1, 1], 500) if name == "proba" else rng.normal(size=(500, 3))  # some at the floor
        inner = np.log(np.maximum(scores, old["floor"])) if name == "proba" else scores
        expected = inner * old["strategy"]["delta"] - old["strategy"]["l"]
        np.testing.assert_array_equal(policy.apply(scores), expected)
        np.testing.assert_array_equal(policy.predict(scores), np.array(old["class_names"])[expected.argmax(axis=1)])

    @pytest.mark.parametrize("name", ["logits", "proba"])
    def test_nothing_is_lost(self, name):
        old, policy = self.read(name)
        new = json.loads(policy.to_json())["policy"]
        assert policy.classes == tuple(old["class_names"])
        assert policy.reason == old["validation"].pop("reason") != ""
        optimistic = {"in_sample": old["validation"]["improvement"], "improvement": None, "interval": None}
        optimistic |= {"ladder": {}, "limits": {}}
        assert new["validation"] == old["validation"] | optimistic
        for field in set(old) - {"class_names", "strategy", "validation"}:
            assert new[field] == old[field], field
        for part, values in old["strategy"].items():
            assert new["strategy"][part] == values

    def test_what_a_search_found_is_a_loss(self):
        old, policy = self.read("bilevel")
        assert policy.side == "loss"
        np.testing.assert_array_equal(policy.strategy.omega, old["strategy"]["omega"])
        assert policy.validation is None
        assert policy.data["validation"] == old["validation"]
        assert "side" not in policy.data
        smoothing = getattr(policy.strategy, "smoothing", policy.data.get("label_smoothing"))
        assert list(smoothing) == old["data"]["label_smoothing"]

    def test_a_loss_is_known_by_its_method_alone(self):
        document = {"schema": 1, "policy": self.read("bilevel")[0]}
        del document["policy"]["data"]["side"]
        content = json.dumps(document["policy"], sort_keys=True).encode()
        text = json.dumps(document | {"digest": hashlib.sha256(content).hexdigest()})
        assert Policy.from_json(text).side == "loss"

    def test_saved_again_they_are_of_the_present_schema(self):
        _, policy = self.read("logits")
        assert json.loads(policy.to_json())["schema"] == SCHEMA
        assert Policy.from_json(policy.to_json()).digest == policy.digest


class TestDigest:
    def test_of_a_policy_is_of_its_content(self):
        assert make_policy().digest == make_policy().digest
        assert make_policy(seed=8).digest != make_policy().digest
        assert make_policy(strategy=Strategy.of(3)).digest != make_policy().digest

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

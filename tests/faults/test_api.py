"""Whatever the library is handed: a result, or an error that it raises on purpose."""

from __future__ import annotations

import math
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from sklearn.utils._param_validation import InvalidParameterError

import capri
from capri import InputError, LogitAdjuster, Policy, Strategy, evaluate

pytestmark = pytest.mark.faults
HOME = str(Path(capri.__file__).parent)
EXAMPLES = 600  # of each of the functions below

DTYPES = ["f2", "f4", "f8", "g", "i1", "i8", "u1", "u8", "?", "c16", "O", "U3", "S3", "M8[s]", ">f8"]
ODD = st.sampled_from([None, True, 0, -1, 1, 3, 2.5, math.nan, math.inf, 10**400, "", "a", "balanced", b"x", [], [[]],
                       [1], (1, 2, 3), {}, {"a": 1}, {0: 1, 1: 2, 2: 3}, [None, 1, 2], [1, "a", None], [10**400, 1, 1],
                       ["\ud800", "b", "c"], [[1, 2], [3]], np.array(5), np.zeros(0), np.zeros((2, 0)), range(3),
                       iter(()), object(), lambda x: x, np.nan, [np.nan] * 3, [1e308] * 3, [-1, 1, 1], [0, 0, 0],
                       [5e-324] * 3, np.ma.masked_array([1, 2, 3], [0, 1, 0]), {"x": [1, 2, 3]}, "1,2,3"])  # fmt: skip
OBJECTIVES = st.one_of(
    st.sampled_from(["balanced", "plain", "worst", "cvar:0.2", "quantile:0.5", "sdev", "macro_f1", "kappa", "mcc",
                     "gmean", "mix:0.5", "err[0]", "f1[a]", "recall[1]", "0.5*balanced+0.5*worst", "weighted", "few",
                     "worst_group", "roc_auc", "cvar:0", "cvar:nan", "cvar:1e-300", "balanced*", "*", "+",
                     "1e999*plain", "-1*plain", "err[", "err[]", "mix:", "\0", "plain\n", "nan*plain"]),
    ODD,
)  # fmt: skip


@st.composite
def scores(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    n, k = draw(st.integers(0, 24)), draw(st.sampled_from([3, 3, 3, 2, 4, 1, 0]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = rng.normal(size=(n, k)) * draw(st.sampled_from([1, 1, 1, 0, 1e-300, 1e30, 1e300]))
    if draw(st.integers(0, 6)) == 0 and made.size:
        made.flat[draw(st.integers(0, made.size - 1))] = draw(st.sampled_from([np.nan, np.inf, -np.inf, 1e308, 0.0]))
    kind = draw(st.sampled_from(["f8", "f8", "f8", "f4", *DTYPES]))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = made.astype(kind)
    shape = draw(st.sampled_from(["", "", "", "", "list", "F", "stack", "flat", "slice"]))
    return {"": made, "list": made.tolist(), "F": np.asfortranarray(made), "stack": made[None], "flat": made.ravel(),
            "slice": made[::-1]}[shape]  # fmt: skip


@st.composite
def labels(draw: st.DrawFn, n: int) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    y = np.resize([0, 1, 2], n + draw(st.sampled_from([0, 0, 0, 0, 0, 1, 5])))
    kind = draw(st.sampled_from(["i8", "i8", "i8", "u1", "f8", "?", "U1", "O", "S1", "M8[s]", "c16", "names", "list",
                                 "mixed", "column", "shift"]))  # fmt: skip
    made = {"names": np.array(["a", "b", "c"])[y], "list": y.tolist(), "mixed": ["a", 1, 2.0] * (len(y) // 3),
            "column": y[:, None], "shift": y + 1}  # fmt: skip
    return made[kind] if kind in made else y.astype(kind)


def meant(work) -> str | None:
    """None for a result or an error that capri raises on purpose, with a message; else what happened."""
    try:
        with warnings.catch_warnings(), np.errstate(all="warn"):
            warnings.simplefilter("ignore")
            work()
    except InvalidParameterError:  # scikit-learn checks what estimators declare
        return None
    except InputError as error:
        return None if str(error).strip() else "an InputError without a message"
    except (TypeError, ValueError) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        on_purpose = frame.filename.startswith(HOME) and (frame.line or "").lstrip().startswith("raise")
        called_wrongly = frame.filename == __file__  # Python's own words for arguments that do not fit
        return None if on_purpose or called_wrongly else _where(error)
    except Exception as error:
        return _where(error)
    return None


def _where(error: Exception) -> str:
    ours = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(HOME)]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(error).__name__}: {str(error)[:120]} ({place})"


def campaign(examples: int):
    def decorate(test):
        quiet = settings(max_examples=examples, deadline=None, database=None, derandomize=False,
                         suppress_health_check=list(HealthCheck))  # fmt: skip
        return seed(20261)(quiet(test))

    return decorate


def test_fit_and_predict(tally):
    with tally("API: LogitAdjuster") as check:

        @campaign(2 * EXAMPLES)
        @given(st.data())
        def fuzz(data):
            x = data.draw(scores())
            y = data.draw(labels(len(x) if hasattr(x, "__len__") else 9))
            extra = data.draw(st.sampled_from(["", "", "sample_weight", "class_counts", "class_attributes", "classes",
                                               "objective", "pooling", "borrow", "floor", "random_state", "weights",
                                               "groups", "scores", "attributes", "constraints", "target_shares",
                                               "absent", "method"]))  # fmt: skip
            value = data.draw(OBJECTIVES if extra in ("objective", "constraints") else ODD)
            fits = {extra: value} if extra in ("sample_weight", "class_counts", "class_attributes") else {}
            given = {extra: value} if extra and not fits else {}
            base = {"method": "la", "bootstrap": 0} if data.draw(st.booleans()) else {"bootstrap": 0}
            counts = {} if "class_counts" in fits else {"class_counts": [9, 3, 1]}

            def work():
                adjuster = LogitAdjuster(**{**base, **given}).fit(x, y, **counts, **fits)
                predicted = adjuster.predict(x)
                assert len(predicted) == len(x)
                Policy.from_json(adjuster.policy_.to_json())

            check(meant(work), (extra, repr(value)[:60], np.shape(x) if isinstance(x, np.ndarray) else repr(x)[:40],
                                getattr(x, "dtype", ""), repr(y)[:40]))  # fmt: skip

        fuzz()


def test_evaluate(tally):
    with tally("API: evaluate") as check:

        @campaign(EXAMPLES)
        @given(st.data())
        def fuzz(data):
            y, p = data.draw(labels(9)), data.draw(labels(9))
            classes = data.draw(st.one_of(st.just(3), ODD))
            objectives = data.draw(st.lists(OBJECTIVES, min_size=1, max_size=2))
            name = data.draw(st.sampled_from(["", "weights", "groups", "class_counts", "class_names", "absent",
                                              "sample_weight", "target_shares"]))  # fmt: skip
            extra = {name: data.draw(ODD)} if name else {}
            check(meant(lambda: evaluate(y, p, classes, objectives, **extra)),
                  tuple(repr(v)[:50] for v in (y, p, classes, objectives, extra)))  # fmt: skip

        fuzz()


def test_policies_and_strategies(tally):
    with tally("API: Policy and Strategy") as check:

        @campaign(EXAMPLES)
        @given(st.data())
        def fuzz(data):
            part = data.draw(st.sampled_from(["omega", "l", "delta", "smoothing"]))
            name = data.draw(st.sampled_from(["objective", "classes", "scores", "side", "floor", "method", "data",
                                              "attributes", "dictionary", "weights", "validation", "constraints",
                                              "seed", "versions"]))  # fmt: skip
            value, vector, x = data.draw(ODD), data.draw(st.one_of(st.just([1.0, 1.0, 0.5]), ODD)), data.draw(scores())

            def work():
                strategy = Strategy.of(3, **{part: vector})
                given = {"objective": "balanced", "classes": ("a", "b", "c")} | {name: value}
                policy = Policy(strategy, **given)
                Policy.from_json(policy.to_json())
                policy.predict(x)

            check(meant(work), (part, repr(vector)[:40], name, repr(value)[:40], repr(x)[:40]))

        fuzz()


def test_from_counts(tally):
    with tally("API: from_counts") as check:

        @campaign(EXAMPLES)
        @given(st.data())
        def fuzz(data):
            counts = data.draw(st.one_of(st.just([90, 9, 1]), ODD, st.lists(st.floats(), max_size=4)))
            name = data.draw(st.sampled_from(["objective", "classes", "scores", "weights", "floor", "nothing"]))
            extra = {} if name == "nothing" else {name: data.draw(OBJECTIVES if name == "objective" else ODD)}
            x = data.draw(scores())
            check(meant(lambda: LogitAdjuster.from_counts(counts, **extra).predict(x)),
                  (repr(counts)[:40], repr(extra)[:60], repr(x)[:40]))  # fmt: skip

        fuzz()

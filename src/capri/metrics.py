"""Metrics of scikit-learn, and others of their kind, as functions of the confusion matrix.

A metric of labels, ``metric(y_true, y_pred)``, sees no more of the samples than how many of each class are taken for
which. It is evaluated on the K² cells of the confusion matrix, weighted by what they hold.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._checks import InputError
from capri.forms import ClassContext, ConfusionFunction, returned

GREATER, SMALLER = ("_score", "_corrcoef"), ("_loss", "_error")  # how names of metrics end, and what is better
_WHOLE = re.compile(r"-?\d+")
#: What metrics judge, where not decisions, by a part of their names.
OF_SCORES = {
    "how the scores rank the samples": r"(au)?roc|auc|auprc|average_precision|n?dcg",
    "probabilities": r"log_loss|cross_entropy|nll|brier|calibration_error|ece",
    "the k best classes of a sample": r"top_?(k|\d+)",
}
OF_PROBABILITIES = {"y_score", "y_proba", "y_prob", "pred_decision"}  # what they call predictions that are no labels


@dataclass(frozen=True)
class Metric:
    """A metric of labels with its settings. As an objective it is lowered: 1 − metric where greater is better."""

    function: Callable[..., float]
    greater_is_better: bool
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's own, and its settings: ``f1_score(average='macro')``."""
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items() if value is not None)
        return _name(self.function) + (f"({settings})" if settings else "")

    def on(self, classes: ClassContext) -> ConfusionFunction:
        """The objective on these classes. Labels are numbers where all names are whole numbers, else the names."""
        k, labels = classes.n_classes, self._labels(classes.class_names)
        truth, predictions = np.repeat(labels, k), np.tile(labels, k)

        def value(confusion: NDArray[np.float64]) -> float:
            found = self(truth, predictions, confusion.ravel())
            return 1 - found if self.greater_is_better else found

        return ConfusionFunction(value, self.name)

    def _labels(self, names: Sequence[str]) -> NDArray[Any]:
        """Names as the metric sorts and names them: 10 comes after 2, unless its settings speak of text."""
        told = [self.settings.get("pos_label"), *np.ravel(self.settings.get("labels") or [])]
        if any(isinstance(label, str) for label in told) or not all(_WHOLE.fullmatch(name) for name in names):
            return np.array(names)
        return np.array([int(name) for name in names])

    def __call__(self, truth: NDArray[Any], predictions: NDArray[Any], weight: NDArray[np.float64]) -> float:
        """The metric itself, of weighted pairs of labels."""
        here = np.flatnonzero(weight > 0)
        weights = {"sample_weight": weight[here]}
        if "sample_weight" not in _parameters(self.function):
            here, weights = np.repeat(here, self._counts(weight[here])), {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a search goes through many confusions, ill-defined ones among them
                found = self.function(truth[here], predictions[here], **weights, **self.settings)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.name} cannot be computed of these classes: {error}") from None
        return returned(found, self.name)

    def _counts(self, weight: NDArray[np.float64]) -> NDArray[np.int64]:
        counts = np.rint(weight)
        if not np.allclose(weight, counts, rtol=0, atol=1e-9):
            raise InputError(
                f"{self.name} takes no sample_weight, and samples have fractions for weights here; give the metric "
                "a parameter sample_weight, or do without weights."
            )
        return counts.astype(np.int64)


def as_metric(thing: Any) -> Metric | None:
    """The metric of a scorer, or of a function of two arguments; None for a function of one (of the class errors)."""
    if all(hasattr(thing, name) for name in ("_score_func", "_sign", "_kwargs")):
        response = getattr(thing, "_response_method", "predict")
        if response not in ("predict", "default"):
            raise _of_probabilities(_name(thing._score_func), f"this scorer asks for {response}")
        return Metric(thing._score_func, thing._sign > 0, thing._kwargs)
    parameters = _parameters(thing)
    if asked := sorted(OF_PROBABILITIES & set(parameters)):
        raise _of_probabilities(_name(thing), f"it takes {asked[0]}")
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = sum(p.default is p.empty and p.kind in positional for p in parameters.values())
    if required < 2:
        return None
    if required > 2:
        raise InputError(
            f"objective {_name(thing)} takes {required} arguments; give a function of the class errors, f(errors), "
            "or a metric, metric(y_true, y_pred)."
        )
    if not _name(thing).endswith(GREATER + SMALLER):
        raise InputError(
            f"is a greater {_name(thing)} better? Its name does not say; pass "
            f"sklearn.metrics.make_scorer({_name(thing)}, greater_is_better=…)."
        )
    greater = _name(thing).endswith(GREATER)
    if isinstance(thing, partial) and not thing.args:
        return Metric(thing.func, greater, thing.keywords)
    return Metric(thing, greater)


def refuse_scores(name: str) -> None:
    """Raise if a metric of this name judges scores: no change of decisions can serve it."""
    for judged, part in OF_SCORES.items():
        if re.search(rf"(?<![a-z])({part})(?![a-z])", name.lower()):
            raise InputError(
                f"objective {name!r} judges {judged}, and a policy changes decisions only; give an objective of "
                "decisions, such as 'balanced', 'macro_f1' or 'f1[class]'."
            )


def is_scorer_name(name: str) -> bool:
    """Does scikit-learn know a scorer by this name?"""
    from sklearn.metrics import get_scorer_names

    return name in get_scorer_names()


def _name(function: Any) -> str:
    function = function.func if isinstance(function, partial) else function
    return str(getattr(function, "__name__", type(function).__name__))


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some built-in functions do not tell
        return {}


def _of_probabilities(name: str, why: str) -> InputError:
    return InputError(
        f"{name} judges probabilities ({why}), and a policy changes decisions; give a metric of labels, such as "
        "balanced_accuracy_score."
    )

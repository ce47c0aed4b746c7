"""How XGBoost, LightGBM and CatBoost are told to grow trees by a loss of ours, each through its scikit-learn estimator.

An estimator is copied and keeps its settings; the loss, the number of classes and the metric are ours. Trees start from
a row of scores that the library does not keep, so it is added again to what they say.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from capri._checks import InputTypeError, InputWarning, Ints
from capri.boosting.loss import TreeLoss
from capri.boosting.metric import ClassErrorMetric

Floats = NDArray[np.float64]
LEAF_STEPS = 10  # of CatBoost for two classes, as it does by its own Logloss


@dataclass(frozen=True)
class Samples:
    """What trees grow on, or are watched on."""

    X: Any
    labels: Ints
    weight: Floats | None = None


@dataclass(frozen=True)
class Library:
    """One library: how its trees grow, and what they say of a sample, (n_samples, K) without the start."""

    grow: Callable[[Any, TreeLoss, ClassErrorMetric, Floats, Samples, Samples | None], Any]
    scores: Callable[[Any, Any], Floats]
    watching: Callable[[Any, Samples], Mapping[str, Any]]  # what `fit` is told of the samples that are watched

    def grow_plainly(self, estimator: Any, seen: Samples, watched: Samples) -> Any:
        """The estimator as its user has set it, fitted while the other samples are watched."""
        model = clone(estimator)
        return model.fit(seen.X, seen.labels, sample_weight=seen.weight, **self.watching(model, watched))


def library_of(estimator: Any) -> Library:
    """The library that an estimator comes from."""
    homes = {kind.__module__.split(".")[0] for kind in type(estimator).__mro__}
    for name, library in LIBRARIES.items():
        if name in homes and hasattr(estimator, "predict_proba"):
            return library
    raise InputTypeError(
        f"estimator is a {type(estimator).__name__}; boosting with a loss of its own needs an XGBClassifier, an "
        "LGBMClassifier or a CatBoostClassifier. For any other classifier there is CAPClassifierCV."
    )


def _xgboost(
    estimator: Any, loss: TreeLoss, metric: ClassErrorMetric, row: Floats, seen: Samples, watched: Samples | None
) -> Any:
    model = clone(estimator).set_params(
        objective=loss.xgboost_sklearn,
        num_class=len(row),
        base_score=0.0,
        eval_metric=metric.xgboost_sklearn,
        disable_default_eval_metric=True,
    )
    more: dict[str, Any] = {"verbose": False}
    if watched is not None:
        more = _watched_by_xgboost(model, watched) | {"base_margin_eval_set": [_rows(row, watched)]}
        more["sample_weight_eval_set"] = None if watched.weight is None else [watched.weight]
    return model.fit(seen.X, seen.labels, sample_weight=seen.weight, base_margin=_rows(row, seen), **more)


def _lightgbm(
    estimator: Any, loss: TreeLoss, metric: ClassErrorMetric, row: Floats, seen: Samples, watched: Samples | None
) -> Any:
    model = clone(estimator).set_params(objective=loss.lightgbm_sklearn, num_class=len(row), metric="None")
    more: dict[str, Any] = {}
    if watched is not None:
        more = _watched_by_lightgbm(model, watched) | {"eval_init_score": [_rows(row, watched)]}
        more["eval_sample_weight"] = None if watched.weight is None else [watched.weight]
        more["eval_metric"] = metric.lightgbm_sklearn
    return model.fit(seen.X, seen.labels, sample_weight=seen.weight, init_score=_rows(row, seen), **more)


def _catboost(
    estimator: Any, loss: TreeLoss, metric: ClassErrorMetric, row: Floats, seen: Samples, watched: Samples | None
) -> Any:
    from catboost import Pool

    model = clone(estimator).set_params(
        loss_function=loss.catboost(), eval_metric=metric.catboost(), classes_count=len(row)
    )
    if model.get_params().get("learning_rate") is None:
        warnings.warn(
            "CatBoost chooses a learning rate for losses that it knows, and takes 0.03 for others; set learning_rate, "
            "for instance to what get_all_params() of a plain model says.",
            InputWarning,
            stacklevel=4,
        )
    if len(row) == 2 and model.get_params().get("leaf_estimation_iterations") is None:
        model.set_params(leaf_estimation_iterations=LEAF_STEPS)
    start = row if len(row) > 2 else row[1:] - row[:1]  # two classes are one margin
    more: dict[str, Any] = {}
    if watched is not None:
        kinds = {name: model.get_params().get(name) for name in ("cat_features", "text_features", "embedding_features")}
        more["eval_set"] = Pool(
            watched.X, watched.labels, weight=watched.weight, baseline=_rows(start, watched), **kinds
        )
    return model.fit(seen.X, seen.labels, sample_weight=seen.weight, baseline=_rows(start, seen), **more)


def _watched_by_xgboost(_: Any, watched: Samples) -> dict[str, Any]:
    return {"eval_set": [(watched.X, watched.labels)], "verbose": False}


def _watched_by_lightgbm(model: Any, watched: Samples) -> dict[str, Any]:
    if "eval_X" in signature(model.fit).parameters:  # from 4.7 on, where eval_set is deprecated
        return {"eval_X": (watched.X,), "eval_y": (watched.labels,)}
    return {"eval_set": [(watched.X, watched.labels)]}


def _watched_by_catboost(_: Any, watched: Samples) -> dict[str, Any]:
    return {"eval_set": [(watched.X, watched.labels)]}


def _rows(row: Floats, samples: Samples) -> Floats:
    return np.tile(row, (len(samples.labels), 1))


def _of_xgboost(model: Any, X: Any) -> Floats:
    return np.asarray(model.predict(X, output_margin=True), dtype=np.float64)


def _of_lightgbm(model: Any, X: Any) -> Floats:
    return np.asarray(model.predict(X, raw_score=True), dtype=np.float64)


def _of_catboost(model: Any, X: Any) -> Floats:
    raw = np.asarray(model.predict(X, prediction_type="RawFormulaVal"), dtype=np.float64)
    return raw if raw.ndim == 2 else np.outer(raw, [-0.5, 0.5])


LIBRARIES = {
    "xgboost": Library(_xgboost, _of_xgboost, _watched_by_xgboost),
    "lightgbm": Library(_lightgbm, _of_lightgbm, _watched_by_lightgbm),
    "catboost": Library(_catboost, _of_catboost, _watched_by_catboost),
}

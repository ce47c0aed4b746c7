"""Units that tune scores after training: on which scores, by which method, for which objective.

Scores are packs of our own trained networks; all test images, half of each class to tune on and half to test on, by the
seed. In smoke size they are those of handwritten digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri import InputError, demo, study
from capri.study import Split
from capri_paper import resolved
from capri_paper.exhibits import Size
from capri_paper.store import Result, Store, Unit

DRAWS = 10  # of test-time weights, for the objective "weighted"

#: Settings of `LogitAdjuster` by method; None is the model as it was trained.
METHODS: Mapping[str, Mapping[str, Any] | None] = {
    "pretrained": None,
    "plain": study.SETTINGS["plain"],
    "la": study.SETTINGS["la"],
    "cap": study.SETTINGS["cap"],
    "pooled": study.SETTINGS["cap-pooled"],
}


def posthoc(
    scores: str, seed: int, size: Size, method: str, objective: str, parameters: str = "l", constraint: str = ""
) -> Unit:
    """One method for one objective on one split, in terms of the estimator that tunes; None tunes nothing."""
    source = "digits" if size == "smoke" else scores
    draws = DRAWS if objective == "weighted" else 1
    constraints = (constraint,) if constraint else None
    given = METHODS[method]
    tuner = given and resolved.tuner(objective, **given, parameters=parameters, constraints=constraints)
    settings = {"scores": source, "digest": resolved.scores(source), "split": seed, "objective": objective,
                "draws": draws, "tuner": tuner}  # fmt: skip
    return Unit("posthoc", settings, f"{source}-{method}-{parameters}-{objective}-split{seed}")


def split_of(settings: Mapping[str, Any]) -> Split:
    """The scores and the split that a unit names."""
    if settings["scores"] not in demo.DATASETS:
        raise InputError(f"there are no scores {settings['scores']!r}; there are {', '.join(demo.DATASETS)}.")
    return demo.DATASETS[settings["scores"]].split(settings["split"])


def do_posthoc(unit: Unit, store: Store) -> Result:
    """Tune on one half, judge on the other: errors tuned and unadjusted, and the strategy."""
    s = unit.settings
    split = split_of(s)
    found = [_one(split, s, weights) for weights in _draws(split, s)]
    means = {
        kind: {name: float(np.mean([f[kind][name] for f in found])) for name in found[0][kind]}
        for kind in ("test", "unadjusted")
    }
    return {**means, "l": found[0]["l"], "delta": found[0]["delta"], "draws": len(found)}


def _draws(split: Split, s: Mapping[str, Any]) -> list[NDArray[np.float64] | None]:
    """Test-time weights, where the objective has any: U(0, 1) per class, as the paper draws them."""
    if s["objective"] != "weighted":
        return [None]
    rng = np.random.default_rng((s["split"], 2))
    return [rng.uniform(size=split.n_classes) for _ in range(s["draws"])]


def _one(split: Split, s: Mapping[str, Any], weights: NDArray[np.float64] | None) -> Result:
    known, tuner = replace(split, weights=weights), s["tuner"]
    method = study.unadjusted if tuner is None else study.tuned(**resolved.parameters(tuner))
    chosen, trained = (
        study.judge(known, s["objective"], m, beside=("plain", "balanced", "sdev")) for m in (method, study.unadjusted)
    )
    return {
        "test": dict(chosen.test),
        "unadjusted": dict(trained.test),
        "l": chosen.strategy.l.round(6).tolist(),
        "delta": chosen.strategy.delta.round(6).tolist(),
    }

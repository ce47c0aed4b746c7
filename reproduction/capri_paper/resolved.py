"""Settings with every default among them: what results are stored under, so that a changed default finds no old number.

Nothing here needs torch, and each answer is worked out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from capri import dictionary, packs
from capri.extension import data_digest
from capri.train.config import Config, resolve
from capri.train.search_config import POPULATIONS, PROXIES, SPREAD_GUARD, WHOLE, SearchRun, resolve_search
from capri.train.settings import build, merge, parse_assignments

DIGITS = "digits"  # the folder of data that come from scikit-learn and lie with the results
ELSEWHERE = ("classes", "weights", "groups", "bootstrap")  # of the data, and of an interval that no table shows

#: Where tuning goes by the labels as they are, it does what it did before these could be set: they are not in the key.
NEUTRAL: Mapping[str, Any] = {
    "borrow": 0, "target_shares": "validation", "guarantee": None, "reject": None, "min_coverage": 0.5,
}  # fmt: skip

#: Settings of a search that decide nothing where it goes by one step.
OF_POPULATIONS = ("folds", "generations", "population")

#: Settings of a run that came later, at which it does what it did before: then they are not in the key.
NEUTRAL_RUN: Mapping[str, Mapping[str, Any]] = {
    "data": {"operations": "none", "cutout": 0},
    "loss": {"scale": 1.0},
    "optimizer": {"sam": 0.0, "sam_every": 1},
    "trainer": {"ema": 0.0},
    "search": {
        "draw": "uniform",
        "average": 0.0,
        "prior": 0.0,
        "trust": False,
        "network_epochs": 0,
        "precision": "32-true",
        "known": "",
    },
}


@cache
def run(preset: str, changes: tuple[str, ...], *, searches: bool = False) -> Mapping[str, Any]:
    """A training run, or a search: a preset and what is changed in it, as on the command line."""
    return _anywhere((resolve_search if searches else resolve)(preset=preset, assignments=changes))


def changed(settings: Mapping[str, Any], changes: Sequence[str]) -> Mapping[str, Any]:
    """The same run with changes."""
    return _anywhere(as_config(merge(settings, parse_assignments(changes))))


def as_config(settings: Mapping[str, Any]) -> Config:
    """The configuration that `run` has resolved."""
    filled = merge({name: neutral for name, neutral in NEUTRAL_RUN.items() if name in settings}, settings)
    if "search" not in settings:
        return build(Config, filled)
    return build(SearchRun, merge({"search": {"method": "one-step"}}, filled))


def _anywhere(config: Config) -> Mapping[str, Any]:
    """Without where files lie, which decides nothing, and what is neutral; only digits in place of data are named."""
    settings = config.to_mapping()
    for section in NEUTRAL_RUN.keys() & settings.keys():
        for name, value in NEUTRAL_RUN[section].items():
            if settings[section][name] == value:
                del settings[section][name]
    del settings["out"]
    if settings["data"]["root"] != DIGITS:
        del settings["data"]["root"]
    if "search" in settings:
        _leave_out_what_came_later(settings["search"])
    return settings


def _leave_out_what_came_later(search: dict[str, Any]) -> None:
    """A search by one step, the only method at first, keeps the key that it had."""
    if search["method"] == "one-step":
        for name in ("method", *OF_POPULATIONS):
            del search[name]


@cache
def tuner(objective: str, **given: Any) -> Mapping[str, Any]:
    """Post-hoc tuning: the parameters of the `LogitAdjuster` that runs, and the constants that decide its answer."""
    from capri.posthoc import LogitAdjuster

    parameters = LogitAdjuster(objective, **{**NEUTRAL, **given}).get_params()
    for name in ELSEWHERE:
        del parameters[name]
    constants = _tuning_constants(parameters)
    kept = {name: value for name, value in parameters.items() if name not in NEUTRAL or value != NEUTRAL[name]}
    return {"parameters": kept, "constants": constants}


def parameters(tuner: Mapping[str, Any]) -> dict[str, Any]:
    """Of the `LogitAdjuster` that runs."""
    return {**NEUTRAL, **tuner["parameters"]}


def _tuning_constants(given: Mapping[str, Any]) -> dict[str, Any]:
    """By method: a constant of pooling does not touch logit adjustment. Training counts are always known here."""
    from capri.posthoc import adjuster, calibration, line, methods, pooling, problem, search, smooth

    method, parameters = given["method"], given["parameters"]
    pools = method == "plain" or (method == "cap" and given["pooling"] is not None)
    pools = pools and parameters == "l"
    found = _constants(problem, "TOLERANCE", "ROUNDING") | _constants(line, "RESOLUTION")
    if given["constraints"] is None:
        found |= _constants(adjuster, "SPREAD_GUARD")
    if method == "cap" or pools:
        found |= dictionary_constants()
    if method in ("cap", "plain"):
        found |= _constants(search, "DIRECTIONS")
    if method == "plain":
        found |= _constants(methods, "FREE_ROUNDS", "FREE_ITERATIONS")
    if method != "cdt" and pools == (method == "plain"):
        found |= _constants(methods, "METHOD_ROUNDS")
    if method == "plain" or pools:
        found |= _constants(smooth, "SHARPNESS", "HINGE", "MARGIN_SAMPLES", "PRECISION")
    if pools:
        found |= _constants(pooling, "UNIT", "RARE", "SURE", "SHARED", "TOGETHER", "FEW", "CARE", "CAUTION", "OPINION")
        found |= _constants(search, "ROUNDS") | _constants(smooth, "ITERATIONS") | calibration_constants(calibration)
    if method in ("cdt", "vs"):
        found |= {"GAMMAS": methods.GAMMAS.tolist()}
    if method in ("cdt", "vs") or parameters != "l":
        found |= _constants(search, "MULTIPLIER_LIMIT")
    return found


def calibration_constants(module: ModuleType) -> dict[str, Any]:
    """Of what the model is taken to believe."""
    found = _constants(module, "SCALE_SPREAD", "SCALE_FREEDOM", "SLOPE_SPREAD", "BIAS_SPREAD", "HYPER_SPREAD")
    found |= _constants(module, "HYPER_CLASSES", "NOISE_MEAN", "NOISE_SPREAD", "WORD_ODDS", "PROBE", "LEAST_IMPORTANCE")
    found |= _constants(module, "LEAST_SHARE")
    return found | {"CALIBRATION_ITERATIONS": module.ITERATIONS}


def _constants(module: ModuleType, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


def dictionary_constants() -> dict[str, Any]:
    """Of the map from attributes to D, which post-hoc tuning, the search and the paper's descent share."""
    return {"BASIS": list(dictionary.BASIS), "BETA": dictionary.BETA, "FLOOR": dictionary.FLOOR,
            "WHITEN_TOLERANCE": dictionary.WHITEN_TOLERANCE}  # fmt: skip


def with_constants(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, and beside them the constants that decide what it does, where there are any."""
    run = settings["run"]
    found = _smoothing_constants(run["loss"]["label_smoothing"] > 0)
    if "search" in run:
        search = run["search"]
        plain = list(search["attributes"]) == ["identity"]
        found |= {} if plain else dictionary_constants()
        found |= _search_constants(search.get("method", "one-step"), search["parts"], search["objective"])
        return {**settings, "constants": found}
    return {**settings, **({"constants": found} if found else {})}


def _search_constants(method: str, parts: Sequence[str], objective: str) -> dict[str, Any]:
    """Of a search that sees the end of training, whose own constants load torch: versions stand for them."""
    smoothed = _smoothing_constants("smoothing" in parts)
    if method not in WHOLE:
        return smoothed
    version = {"PROXIES": PROXIES} if method == "proxy" else {"POPULATIONS": POPULATIONS}
    guard = {"SPREAD_GUARD": SPREAD_GUARD} if objective == "sdev" else {}
    return {**version, **guard, **smoothed} | _constants(dictionary, "ORDERED_TOLERANCE")


def _smoothing_constants(smooths: bool) -> dict[str, Any]:
    """Where label smoothing goes."""
    return {"SPREAD": "softmax(l)"} if smooths else {}


@cache
def scores(name: str) -> str:
    """Which scores a pack holds, as a digest; none of data that are made anew each time."""
    if name not in packs.names():
        return ""
    pack = packs.load(name)
    return data_digest(pack.logits.astype("f2"), pack.y.astype("i8"), pack.train_counts.astype("i8"))

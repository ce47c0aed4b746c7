"""The paper's tables, declared: which unit stands behind each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capri_paper.exhibits import Cell, Size, Table
from capri_paper.posthoc import posthoc
from capri_paper.store import Unit
from capri_paper.training import SOURCES, bilevel, by_proxy, grid, pretrain, pretrained, rival, train, transfer

LA_START, ZERO_START = "search.tau=1.0", "search.tau=0.0"
ATTRIBUTES: Mapping[str, Sequence[str]] = {
    "plain": ["identity"],
    "freq": ["freq"],
    "diff": ["diff"],
    "freq_diff": ["freq", "diff"],
    "freq_diff_noise": ["freq", "diff", "noise"],
}


def _cell(unit: Unit, *path: str) -> Cell:
    """The number at this place of the unit's result, as a percentage."""

    def read(result: Any) -> float:
        for name in path:
            result = result[name]
        return 100 * float(result)

    return Cell(unit, read)


# -- balanced error ---------------------------------------------------------------------------------------------------

_TITLES = {name: source.title for name, source in SOURCES.items()}
IMAGES = ("cifar10-lt", "cifar100-lt")
MAIN_DATA = ("cifar10-lt", "cifar100-lt", "imagenet-lt", "clinc150-lt", "cifar100-lt-features")


def _trained(row: str, data: str, seed: int, size: Size, value: str, start: str = LA_START) -> Cell | None:
    """An error of a method that ends with a trained network; ImageNet's take more than two cores can pay."""
    if data == "imagenet-lt" and size in ("cpu", "strong"):
        return None
    if row.startswith("proxy") and data not in IMAGES:
        return None
    return _cell(_method(row, data, seed, size, start), "test", value)


def _method(row: str, data: str, seed: int, size: Size, start: str) -> Unit:
    if row == "ce":
        return train(data, seed, size)
    if row in ("la", "cdt", "vs"):
        return grid(data, seed, size, row)
    if row in ("posthoc", "retrain"):
        return transfer(data, seed, size, "cap", "l", row == "retrain", pool=True)
    if row.startswith("proxy"):
        return by_proxy(data, seed, size, ATTRIBUTES[row.removeprefix("proxy ")])
    return bilevel(data, seed, size, ATTRIBUTES["freq_diff" if row == "cap" else row], start)


BALANCED = Table(
    "balanced",
    {
        "ce": "cross-entropy",
        "la": "LA",
        "cdt": "CDT",
        "vs": "VS",
        "plain": "plain bilevel (AutoBalance)",
        "cap": "CAP bilevel (freq + diff)",
        "proxy freq": "CAP by proxy (freq)",
        "proxy freq_diff": "CAP by proxy (freq + diff)",
        "posthoc": "CAP post-hoc",
        "retrain": "CAP post-hoc → retrain",
    },
    {d: ("balanced error", d) for d in MAIN_DATA},
    _TITLES,
    lambda row, column, seed, size: _trained(row, column, seed, size, "balanced"),
    note="Balanced error, all test samples. Searches start their offsets at logit adjustment, as in the paper. LA, "
    "CDT and VS are tuned on a fifth of the training data; on CIFAR, where a run takes long, LA has τ = 1, CDT "
    "γ = 0.15 and VS what its authors chose (1.25 and 0.15 on CIFAR10-LT, 0.75 and 0.05 on CIFAR100-LT). Post-hoc is "
    "capri's default, pooled offsets, tuned on a fifth of the training data, of a network trained on the other four; "
    "the paper's has l and Δ. By proxy: a population of heads on the features of that network.",
)

LOSSES: Mapping[str, Sequence[str]] = {"ce": (), "la": ("tau",), "cdt": ("gamma",), "vs": ("tau", "gamma")}


def _loss_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    """A named loss with its numbers, as in "vs 1.25 0.15"."""
    strategy, *numbers = row.split()
    given = [f"loss.{name}={number}" for name, number in zip(LOSSES[strategy], numbers, strict=True)]
    return _cell(
        train(column, seed, size, *([f"loss.strategy={strategy}"] if given else []), *given), "test", "balanced"
    )


LOSSES_TABLE = Table(
    "losses",
    {
        "ce": "cross-entropy",
        "la 1.0": "LA, τ = 1",
        "la 1.5": "LA, τ = 1.5",
        "cdt 0.15": "CDT, γ = 0.15",
        "vs 1.25 0.15": "VS, τ = 1.25, γ = 0.15",
        "vs 0.75 0.05": "VS, τ = 0.75, γ = 0.05",
        "la 2.0": "LA, τ = 2",
        "vs 1.5 0.3": "VS, τ = 1.5, γ = 0.3",
    },
    {d: ("balanced error", d) for d in IMAGES},
    _TITLES,
    _loss_cell,
    beyond="Losses with their numbers, trained in full: what a proxy should rank as they are",
    note="Balanced error, all test images. `python reproduction/benchmarks/proxy_rank.py` ranks the same by proxy.",
)


# -- fairness objectives, post-hoc ------------------------------------------------------------------------------------

OBJECTIVES = {
    "balanced": "balanced", "sdev": "sdev", "cvar:0.2": "CVaR 0.2", "quantile:0.2": "quantile 0.2",
    "weighted": "weighted",
}  # fmt: skip


SCORES = "cifar100-lt"


def _objective(row: str, column: str, seed: int, size: Size) -> Cell:
    """The model's own error, or what tuning changes in it."""
    unit = posthoc(SCORES, seed, size, row, column)
    if row == "pretrained":
        return _cell(unit, "test", column)
    return Cell(unit, lambda result: 100 * (result["test"][column] - result["unadjusted"][column]))


OBJECTIVES_TABLE = Table(
    "objectives",
    {
        "pretrained": "pre-trained",
        "plain": "plain post-hoc",
        "la": "LA post-hoc",
        "cap": "CAP post-hoc, W alone",
        "pooled": "CAP post-hoc (default: pooled)",
    },
    {name: (title, SCORES) for name, title in OBJECTIVES.items()},
    _TITLES,
    _objective,
    beside={"pooled": "cap"},
    note="Seeds are splits of one network's scores: 50 test images of each class tune, the other 50 test. Each column "
    "is tuned for its own objective; for sdev, without raising the balanced error on the images that tune above that "
    "of the pre-trained model. The weighted error is a mean over 10 draws of test-time weights.",
    trains=False,
)


# -- attributes -------------------------------------------------------------------------------------------------------

ATTRIBUTE_DATA = ("cifar100-lt", "imagenet-lt", "cifar10-lt-noise", "clinc150-lt", "clinc150-lt-noise",
                  "cifar100-lt-features")  # fmt: skip


def _attribute_cell(row: str, column: str, seed: int, size: Size) -> Cell | None:
    data, value = column.split(" ")
    noisy = data.endswith("-noise")
    if row == "freq_diff_noise" and not noisy:
        return None
    return _trained(row, data, seed, size, value, ZERO_START if noisy else LA_START)


ATTRIBUTES_TABLE = Table(
    "attributes",
    {
        "ce": "cross-entropy",
        "la": "LA",
        "plain": "plain bilevel (AutoBalance)",
        "freq": "CAP: freq",
        "diff": "CAP: diff",
        "freq_diff": "CAP: freq + diff",
        "freq_diff_noise": "CAP: freq + diff + noise",
    },
    {f"{d} {v}": (v, d) for d in ATTRIBUTE_DATA for v in ("balanced", "sdev")},
    _TITLES,
    _attribute_cell,
    note="Test errors. With label noise, offsets start at zero; without, at logit adjustment, so that runs are those "
    "of the main table, as in the paper.",
)


# -- warm-up and initialisation ---------------------------------------------------------------------------------------

#: Warm-up in epochs (int), or as a share of the search (float; the paper's of 300); how offsets start; attributes.
WARMUPS: Mapping[str, tuple[int | float, str, str]] = {
    "plain_none": (0, ZERO_START, "plain"),
    "plain_short": (5, ZERO_START, "plain"),
    "default_short": (1 / 3, ZERO_START, "plain"),
    "default": (2 / 5, ZERO_START, "plain"),
    "default_long": (2 / 3, ZERO_START, "plain"),
    "la": (2 / 5, LA_START, "plain"),
    "simsiam": (2 / 5, ZERO_START, "plain"),
    "cap_none": (0, ZERO_START, "freq_diff"),
    "cap": (5, ZERO_START, "freq_diff"),
    "cap_long": (2 / 3, ZERO_START, "freq_diff"),
}


def warmup_unit(row: str, data: str, seed: int, size: Size) -> Unit:
    """A search of which the first epochs warm up."""
    length, start, attributes = WARMUPS[row]
    epochs = 3 if size == "smoke" else 300 if size == "paper" and data.startswith("cifar") else 20
    warm = min(length, epochs - 1) if isinstance(length, int) else round(length * epochs)
    warmup = (f"search.epochs={epochs}", f"search.warmup_epochs={warm}")
    make = pretrained if row == "simsiam" else bilevel
    return make(data, seed, size, ATTRIBUTES[attributes], *warmup, start)


def _warmup_cell(row: str, column: str, seed: int, size: Size) -> Cell | None:
    data, value = column.split(" ")
    if row == "simsiam" and not data.startswith("cifar"):
        return None  # views are made of images
    unit = warmup_unit(row, data, seed, size)
    return _cell(unit, "start_sdev") if value == "start" else _cell(unit, "test", value)


WARMUP_TABLE = Table(
    "warmup",
    {
        "plain_none": "plain, no warm-up",
        "plain_short": "plain, 5 epochs of warm-up",
        "default_short": "plain, ⅓ of the search",
        "default": "plain, ⅖ of the search",
        "default_long": "plain, ⅔ of the search",
        "la": "plain, ⅖, LA start",
        "simsiam": "plain, ⅖, SimSiam start",
        "cap_none": "CAP, no warm-up",
        "cap": "CAP, 5 epochs of warm-up",
        "cap_long": "CAP, ⅔ of the search",
    },
    {
        f"{d} {v}": (title, d)
        for d in ("cifar10-lt", "cifar100-lt", "clinc150-lt")
        for v, title in (("start", "sdev at search start"), ("balanced", "balanced"), ("sdev", "sdev"))
    },
    _TITLES,
    _warmup_cell,
    note="Warm-up in epochs, or as a share of the search, to whole epochs. A search has 20 epochs here, 300 in the "
    "paper (of which CAP warms up for 5). From zero offsets but for one row; test errors after retraining.",
)


def _pretraining_cell(row: str, column: str, seed: int, size: Size) -> Cell | None:
    data, value = column.split(" ")
    if row == "random" and value == "spread":
        return None
    name = {"random": "probe_random", "simsiam": value}[row]
    return _cell(pretrain(data, seed, size), name)


PRETRAINING_TABLE = Table(
    "pretraining",
    {"random": "random network", "simsiam": "SimSiam"},
    {
        "cifar10-lt probe": ("linear probe: balanced error", "cifar10-lt"),
        "cifar10-lt spread": ("spread of outputs", "cifar10-lt"),
    },
    _TITLES,
    _pretraining_cell,
    beyond="SimSiam without labels: what a linear probe finds, and whether outputs collapse",
    note="Trained for 20 epochs (preset paper: 200) on the long-tailed images. The probe is a logistic regression on "
    "frozen features, judged on half of the test images. Spread: standard deviation of the normalised outputs, 100 "
    "where they fill the sphere evenly (1/√d), 0 where they collapsed.",
)


# -- transfer ---------------------------------------------------------------------------------------------------------

_TRANSFERS = {"la": ("la", "l"), "cdt": ("cdt", "delta"), "plain_l": ("plain", "l"), "plain_delta": ("plain", "delta"),
              "plain_both": ("plain", "both"), "cap_l": ("cap", "l"), "cap_delta": ("cap", "delta"),
              "cap_both": ("cap", "both"), "pooled": ("cap", "l")}  # fmt: skip


def _transfer_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, phase = column.split(" ")
    unit = transfer(data, seed, size, *_TRANSFERS[row], phase == "retrain", pool=row == "pooled")
    return _cell(unit, "test", "balanced")


TRANSFER_TABLE = Table(
    "transfer",
    {
        "la": "LA",
        "cdt": "CDT",
        "plain_l": "plain: l",
        "plain_delta": "plain: Δ",
        "plain_both": "plain: l and Δ",
        "cap_l": "CAP: l",
        "cap_delta": "CAP: Δ",
        "cap_both": "CAP: l and Δ",
        "pooled": "CAP: l, pooled (default)",
    },
    {
        f"{d} {phase}": (phase, d)
        for d in ("cifar10-lt", "cifar100-lt", "clinc150-lt", "cifar100-lt-features")
        for phase in ("search", "retrain")
    },
    _TITLES,
    _transfer_cell,
    note="Balanced test error. Search: post-hoc on a fifth of the training data, of a network trained on the other "
    "four. Retrain: what was found is the loss of a new network on all of it, W unchanged (for CDT: inverted).",
)


# -- beyond the paper -------------------------------------------------------------------------------------------------

_BARE, _SMOOTHED = 'search.parts=["l","delta"]', 'search.parts=["l","delta","smoothing"]'


def _hessian_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, value = column.split(" ")
    attributes, _, hessian = row.partition(" ")
    changes = [LA_START] + ([f"search.hessian={hessian}"] if hessian else [])
    return _cell(bilevel(data, seed, size, ATTRIBUTES[attributes], *changes), "test", value)


HESSIAN_TABLE = Table(
    "hessian",
    {
        "freq_diff": "CAP, identity",
        "freq_diff ggn-cg": "CAP, ggn-cg",
        "freq_diff neumann": "CAP, neumann",
        "plain": "plain, identity",
        "plain ggn-cg": "plain, ggn-cg",
    },
    {f"clinc150-lt {v}": (v, "clinc150-lt") for v in ("balanced", "sdev")},
    _TITLES,
    _hessian_cell,
    beyond="How much inverse Hessian: bilevel search by hypergradient",
    note="Test errors after retraining.",
)


def _validation_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, value, which = column.split(" ")
    changes = ["data.val_fraction=0.0"] if which == "official" else []
    return _cell(bilevel(data, seed, size, ATTRIBUTES[row], LA_START, *changes), "test", value)


VALIDATION_TABLE = Table(
    "validation",
    {name: title for name, title in ATTRIBUTES_TABLE.rows.items() if name in ("plain", "freq", "diff", "freq_diff")},
    {
        f"clinc150-lt {value} {which}": (f"{value}: {title}", "clinc150-lt")
        for value in ("balanced", "sdev")
        for which, title in (("fifth", "a fifth"), ("official", "20 each"))
    },
    _TITLES,
    _validation_cell,
    beyond="How much validation a search needs",
    note="Test errors after retraining. A fifth: of the training set validates, one sample of each rare class. 20 "
    "each: the official validation part does, 20 samples of each class.",
)


RATES = (0.02, 0.005, 0.00125)


def _rate_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, value, rate = column.split(" ")
    changes = [] if float(rate) == RATES[0] else [f"search.lr={rate}"]
    return _cell(bilevel(data, seed, size, ATTRIBUTES[row], LA_START, *changes), "test", value)


RATE_TABLE = Table(
    "rate",
    {name: VALIDATION_TABLE.rows[name] for name in ("plain", "freq", "freq_diff")},
    {f"clinc150-lt balanced {rate:g}": (f"rate {rate:g}", "clinc150-lt") for rate in RATES},
    _TITLES,
    _rate_cell,
    beyond="How fast the strategy moves: the outer learning rate",
    note="Balanced test error after retraining, from logit adjustment; 0.02 is the default.",
)


def _smoothing_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, value = column.split(" ")
    start = ZERO_START if data.endswith("-noise") else LA_START
    changes = [_SMOOTHED] if row == "smoothed" else []
    return _cell(bilevel(data, seed, size, ATTRIBUTES["freq_diff"], start, *changes), "test", value)


SMOOTHING_TABLE = Table(
    "smoothing",
    {"bare": "CAP: l and Δ", "smoothed": "CAP: l, Δ and label smoothing per class"},
    {f"{d} {v}": (v, d) for d in ("clinc150-lt", "clinc150-lt-noise") for v in ("balanced", "sdev")},
    _TITLES,
    _smoothing_cell,
    beyond="Label smoothing per class, driven by the same map",
    note="Test errors after retraining.",
)

_POPULATION = "search.method=population"


def _searches_cell(row: str, column: str, seed: int, size: Size) -> Cell | None:
    data, value = column.split(" ")
    attributes, _, how = row.partition(" ")
    if attributes in ("la", "vs") and how:
        return _cell(grid(data, seed, size, row), "test", value)
    if not how:
        return _trained(row, data, seed, size, value, ZERO_START if data.endswith("-noise") else LA_START)
    if attributes.endswith("noise") and not data.endswith("-noise"):
        return None
    if how == "validated" and not data.endswith("-noise"):
        return None
    return _cell(_population(data, seed, size, attributes, how), "test", value)


def _population(data: str, seed: int, size: Size, attributes: str, how: str, *changes: str) -> Unit:
    """A search by populations; smoothed: with label smoothing; validated: that, judged by the clean fifth."""
    changes = (_POPULATION, _BARE if how == "population" else _SMOOTHED, *changes)
    return bilevel(data, seed, size, ATTRIBUTES[attributes], *changes, *(["search.folds=0"] * (how == "validated")))


SEARCHES_TABLE = Table(
    "searches",
    {
        "ce": "cross-entropy",
        "la": "LA",
        "cdt": "CDT",
        "vs": "VS",
        "la scaled": "LA, scaled",
        "la smoothed": "LA with label smoothing",
        "vs smoothed": "VS with label smoothing",
        "plain": "plain, one step (AutoBalance)",
        "freq_diff": "CAP: freq + diff, one step",
        "freq population": "CAP: freq, population",
        "freq_diff population": "CAP: freq + diff, population",
        "freq smoothed": "CAP: freq, population, with smoothing",
        "freq_diff smoothed": "CAP: freq + diff, population, with smoothing",
        "freq_diff_noise smoothed": "CAP: freq + diff + noise, population, with smoothing",
        "freq validated": "CAP: freq, population, with smoothing, clean fifth",
        "freq_diff_noise validated": "CAP: freq + diff + noise, population, with smoothing, clean fifth",
    },
    {
        f"{d} {v}": (v, d)
        for d in ("clinc150-lt", "cifar100-lt-features", "clinc150-lt-noise")
        for v in ("balanced", "sdev")
    },
    _TITLES,
    _searches_cell,
    beyond="Which search: one step, or populations judged at the end of training",
    note="Test errors after retraining. A search by populations returns what its evidence chooses, which may be "
    "cross-entropy, LA (scaled, smoothed, or neither) or VS. LA, CDT and VS are tuned on a fifth of the training data; "
    "a scale (one multiplier) and label smoothing beside them are alike for all classes and tuned with them. With "
    "label noise the folds that judge are noisy, too; the fifth that validates is clean, for it as for LA, CDT, VS and "
    "the searches by one step.",
)

SEARCHED = {"cvar:0.2": "CVaR 0.2", "sdev": "sdev"}


def _search_objective_cell(row: str, column: str, seed: int, size: Size) -> Cell:
    data, objective = column.split(" ")
    who, _, how = row.partition(" ")
    if who in ("la", "vs") and not how:
        return _cell(grid(data, seed, size, who, objective), "test", objective)
    named = who in ("la", "vs")
    search = _for_another(data, seed, size, "freq" if named else who, objective)
    return _cell(rival(data, seed, size, who, search) if named else search, "test", objective)


def _for_another(data: str, seed: int, size: Size, attributes: str, objective: str) -> Unit:
    """A search that takes over what the one for the balanced error has judged."""
    changes = (_POPULATION, _SMOOTHED)
    first = bilevel(data, seed, size, ATTRIBUTES[attributes], *changes)
    more = (f"search.objective={objective}", *(["search.generations=3"] if size != "smoke" else []))
    return bilevel(data, seed, size, ATTRIBUTES[attributes], *changes, *more, known=first)


SEARCH_OBJECTIVES_TABLE = Table(
    "search-objectives",
    {
        "la": "LA, tuned on a fifth",
        "vs": "VS, tuned on a fifth",
        "la folds": "LA, tuned out of fold",
        "vs folds": "VS, tuned out of fold",
        **{row: SEARCHES_TABLE.rows[row] for row in ("freq smoothed", "freq_diff smoothed")},
    },
    {f"{d} {o}": (title, d) for d in ("clinc150-lt", "cifar100-lt-features") for o, title in SEARCHED.items()},
    _TITLES,
    _search_objective_cell,
    beyond="Objectives of searches: each column is searched, or tuned, for its own objective",
    note="Test errors after retraining. Out of fold: the judge of the search chooses among the same LA and VS as it "
    "does beside CAP, before all training data train with it. Searches take over what those for the balanced error "
    "have judged (`search.known`), and add three generations.",
)

TABLES = (BALANCED, OBJECTIVES_TABLE, ATTRIBUTES_TABLE, WARMUP_TABLE, TRANSFER_TABLE, HESSIAN_TABLE,
          PRETRAINING_TABLE, VALIDATION_TABLE, RATE_TABLE, SMOOTHING_TABLE, SEARCHES_TABLE,
          SEARCH_OBJECTIVES_TABLE, LOSSES_TABLE)  # fmt: skip

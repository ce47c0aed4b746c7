"""Units that train: on which data, by which method. Torch loads when one is done, not before.

A run's settings are those of `capri train` and `capri search`, a preset and what is changed in it, every default
among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from capri import InputError
from capri.evaluation import STANDARD, evaluate
from capri.study import SETTINGS
from capri.train.config import Config
from capri.train.search_config import GAMMAS, TAUS
from capri.train.settings import build, differences
from capri_paper import resolved
from capri_paper.digits import write_digits
from capri_paper.exhibits import Size
from capri_paper.resolved import DIGITS
from capri_paper.store import Result, Store, Unit


@dataclass(frozen=True)
class Source:
    """Data to train on. preset: None takes the size's.

    taus, gammas, pairs: what LA, CDT and VS are tuned over, on validation.
    """

    title: str
    preset: str | None = None
    changes: tuple[str, ...] = ()
    taus: tuple[float, ...] = (1.0,)
    gammas: tuple[float, ...] = (0.15,)
    pairs: tuple[tuple[float, float], ...] = ((1.25, 0.15),)

    def run(self, seed: int, size: Size, *changes: str, searches: bool = False) -> Mapping[str, Any]:
        """All settings of a run with this seed."""
        changes = (*self.changes, f"data.seed={seed}", f"seed={seed}", *changes)
        return resolved.run(self.preset or size, changes, searches=searches)


_TAUS, _GAMMAS = (0.5, 1.0, 1.5, 2.0, 3.0), (0.05, 0.1, 0.2, 0.3)
_HEADS: Mapping[str, Any] = {"taus": _TAUS, "gammas": _GAMMAS, "pairs": tuple(product(_TAUS, _GAMMAS))}
#: LA and VS with one multiplier, or one label smoothing, for all classes: which settings, and their values.
_FURTHER: Mapping[str, tuple[list[str], tuple[Any, ...]]] = {
    "la scaled": (["loss.tau", "loss.scale"], tuple(product((0.5, 1.0, 2.0, 3.0), (0.3, 0.1, 0.03)))),
    "la smoothed": (
        ["loss.tau", "loss.label_smoothing"],
        tuple(product((0.25, 0.5, 1.0, 1.5), (0.05, 0.1, 0.2, 0.4))),
    ),
    "vs smoothed": (
        ["loss.tau", "loss.gamma", "loss.label_smoothing"],
        tuple(product((0.5, 1.0, 1.5), (0.1, 0.2, 0.3), (0.1, 0.2, 0.4))),
    ),
}
_CLINC = ("data.imbalance=50",)
_DIGITS = (f"data.root={DIGITS}", "data.file=digits.npz", "data.profile=exponential", "data.imbalance=9",
           "data.n_max=100", "trainer.max_epochs=3")  # fmt: skip
_NOISE = ("data.noise=0.5",)
SMOKE = ("search.warmup_epochs=1", "search.folds=2", "search.generations=2", "search.population=4")
FIFTH = "data.val_fraction=0.2"  # of the training data validates
HALVES = "balanced halves"  # protocol in which halves of the official test set validate and test
#: What a search starts from, by the kind of unit that it rests on: its setting, and the file.
STARTS = {
    "pretrain": ("init", "encoder.safetensors"),
    "train": ("init", "model.safetensors"),
    "bilevel": ("known", "search/judged.npz"),
}

#: CIFAR's runs take half an hour each, so LA, CDT and VS have one setting there (of VS that of its authors); heads on
#: features are tuned on a grid.
SOURCES: Mapping[str, Source] = {
    "cifar10-lt": Source("CIFAR10-LT"),
    "cifar100-lt": Source("CIFAR100-LT", changes=("data.name=cifar100-lt",), pairs=((0.75, 0.05),)),
    "imagenet-lt": Source("ImageNet-LT", "imagenet-lt"),
    "cifar10-lt-noise": Source("CIFAR10-LT + noise", changes=_NOISE),
    "clinc150-lt": Source("CLINC150-LT", "clinc150-lt", _CLINC, **_HEADS),
    "clinc150-lt-noise": Source("CLINC150-LT + noise", "clinc150-lt", (*_CLINC, *_NOISE), **_HEADS),
    "cifar100-lt-features": Source(
        "CIFAR100-LT features", "features", ("data.file=cifar100_lt_features.npz",), **_HEADS
    ),
    "digits": Source("digits", "features", _DIGITS),
    "digits-noise": Source("digits + noise", "features", (*_DIGITS, *_NOISE)),
    "digits-images": Source(
        "digits as images", "cpu", (f"data.root={DIGITS}", "data.n_max=12", "data.imbalance=2", "trainer.max_epochs=1")
    ),
}


def _source(data: str, size: Size, *, images: bool = False) -> str:
    """Digits stand in for all data in smoke size, as features unless it is about images."""
    if size != "smoke" or data.startswith("digits"):
        return data
    if images:
        return "digits-images"
    return "digits-noise" if data.endswith("-noise") else "digits"


# -- units ------------------------------------------------------------------------------------------------------------


def train(data: str, seed: int, size: Size, *changes: str) -> Unit:
    """One training run."""
    name = _source(data, size)
    said = [c.partition("=")[2] for c in changes if c.startswith("loss.")] or ["ce"]
    part = ["80"] if FIFTH in changes else []
    settings = resolved.with_constants({"run": SOURCES[name].run(seed, size, *changes)})
    return Unit("train", settings, "-".join([name, *said, *part, f"seed{seed}"]))


def grid(data: str, seed: int, size: Size, strategy: str, objective: str = "balanced") -> Unit:
    """A named strategy, its parameter chosen on a fifth of the training data for an objective, then trained on all.

    "la scaled", "la smoothed" and "vs smoothed" have one multiplier, or one label smoothing, besides. It rests on a run
    for each value on 80/20, where there is a choice, and on one of those on all, one for each value.
    """
    name = _source(data, size)
    source = SOURCES[name]
    setting, values = {
        "la": ("loss.tau", source.taus),
        "cdt": ("loss.gamma", source.gammas),
        "vs": (["loss.tau", "loss.gamma"], source.pairs),
        **_FURTHER,
    }[strategy]
    runs = [(f"loss.strategy={strategy.split()[0]}", *_assigned(setting, value)) for value in values]
    tried = [train(name, seed, size, *run, FIFTH) for run in runs] if len(values) > 1 else []
    needs = (*tried, *(train(name, seed, size, *run) for run in runs))
    tuned_for = {} if objective == "balanced" else {"objective": objective}  # what came later, not in keys before it
    label = "-".join([name, strategy.replace(" ", "-"), *tuned_for.values(), f"seed{seed}"])
    return Unit("grid", {"setting": setting, "values": list(values), **tuned_for}, label, needs)


def _assigned(setting: Any, value: Any) -> list[str]:
    """``--set`` for one setting, or for several at once."""
    pairs = [(setting, value)] if isinstance(setting, str) else zip(setting, value, strict=True)
    return [f"{name}={one}" for name, one in pairs]


def pretrain(data: str, seed: int, size: Size) -> Unit:
    """SimSiam on the training images."""
    name = _source(data, size, images=True)
    epochs = {"smoke": 1, "paper": 200}.get(size, 20)
    settings = {"run": SOURCES[name].run(seed, size, f"trainer.max_epochs={epochs}")}
    return Unit("pretrain", settings, f"{name}-{epochs}-epochs-seed{seed}")


def pretrained(data: str, seed: int, size: Size, attributes: Sequence[str], *changes: str) -> Unit:
    """Search on 80/20 from the network that SimSiam leaves, retrain on all."""
    name = _source(data, size, images=True)
    unit = bilevel(name, seed, size, attributes, *changes)
    return replace(unit, label=f"{unit.label}-simsiam", needs=(pretrain(name, seed, size),))


def by_proxy(data: str, seed: int, size: Size, attributes: Sequence[str], *changes: str) -> Unit:
    """Search on the features of the network of 80 %, retrain on all."""
    name = _source(data, size, images=True)
    unit = bilevel(name, seed, size, attributes, "search.method=proxy", *changes)
    return replace(unit, needs=(train(name, seed, size, FIFTH),))


def bilevel(
    data: str, seed: int, size: Size, attributes: Sequence[str], *changes: str, known: Unit | None = None
) -> Unit:
    """Search on 80/20 by one step, or by another method in folds, and retrain on all.

    known: a search by populations, whose judgements are taken over.
    """
    name = _source(data, size)
    quoted = ",".join(f'"{a}"' for a in attributes)
    smoke = SMOKE if size == "smoke" else ()
    method = () if any(c.startswith("search.method=") for c in changes) else ("search.method=one-step",)
    run = SOURCES[name].run(seed, size, f"search.attributes=[{quoted}]", *method, *smoke, *changes, searches=True)
    settings = resolved.with_constants({"run": run})
    said = ["".join(c.split(".", 1)[-1].split("=")) for c in changes]
    needs = () if known is None else (known,)
    return Unit("bilevel", settings, "-".join([name, "+".join(attributes), *said, f"seed{seed}"]), needs)


def rival(data: str, seed: int, size: Size, strategy: str, search: Unit) -> Unit:
    """LA or VS with the numbers that the judge of a search chose, to stand beside what was found; trained on all.

    It rests on the search and on one of the runs, one for each value.
    """
    name = _source(data, size)
    setting = ["loss.tau"] if strategy == "la" else ["loss.tau", "loss.gamma"]
    values: list[Any] = list(product(TAUS) if strategy == "la" else product(TAUS[:-1], GAMMAS))
    runs = (train(name, seed, size, f"loss.strategy={strategy}", *_assigned(setting, v)) for v in values)
    return Unit("rival", {"setting": setting, "values": values}, f"{strategy}-beside-{search.label}", (search, *runs))


def transfer(data: str, seed: int, size: Size, method: str, parameters: str, retrain: bool, pool: bool = False) -> Unit:
    """Post-hoc on the validation fifth of a model trained on the rest; `retrain` with it as the loss on all data."""
    name = _source(data, size)
    pooled = {name: SETTINGS["cap-pooled"][name] for name in ("pooling", "borrow")}
    tuner = resolved.tuner("balanced", method=method, parameters=parameters, **(pooled if pool else {"pooling": None}))
    settings = {"tuner": tuner, **({"run": SOURCES[name].run(seed, size)} if retrain else {})}
    said = f"{method}-{parameters}{'-pooled' * pool}{'-retrain' * retrain}"
    return Unit("transfer", settings, f"{name}-{said}-seed{seed}", (train(name, seed, size, FIFTH),))


def adapted(unit: Unit, changes: Sequence[str]) -> Unit:
    """The same training under other settings, as ``--set`` gives them; another unit, with a name of its own."""
    needs = tuple(adapted(need, changes) for need in unit.needs)
    if len(set(needs)) < len(needs):
        raise InputError(f"--set {' '.join(changes)} sets what {unit.label} tries out; leave it alone.")
    settings = dict(unit.settings)
    if "run" in settings:
        settings["run"] = resolved.changed(settings["run"], changes)
        settings = resolved.with_constants(settings)
    return Unit(unit.kind, settings, f"{unit.label}-changed", needs)


# -- work -------------------------------------------------------------------------------------------------------------


def do_train(unit: Unit, store: Store) -> Result:
    """A run in the unit's folder; it goes on from a checkpoint that it finds there."""
    from capri.train.runner import run

    folder = store.folder(unit)
    config = configured(unit, store, folder)
    return _kept(folder, config, lambda: run(config, resume=_started(folder)))


def do_pretrain(unit: Unit, store: Store) -> Result:
    """Self-supervised training in the unit's folder, and how far its outputs and features carry."""
    from capri.train.pretrain import pretrain as run

    folder = store.folder(unit)
    config = configured(unit, store, folder)
    if not (folder / "summary.json").exists() or not (folder / "encoder.safetensors").exists():
        run(config, resume=_started(folder))
    summary = _summary(folder, config)
    return {name: summary[name] for name in ("spread", "probe", "probe_random", "epochs", "commit")}


def do_grid(unit: Unit, store: Store) -> Result:
    """All values on 80/20, the best on all."""
    values, objective = unit.settings["values"], unit.settings.get("objective", "balanced")
    tried, final = unit.needs[: -len(values)], dict(zip(values, unit.needs[-len(values) :], strict=True))
    chosen = values[0]
    if tried:
        found = dict(zip(values, tried, strict=True))
        ended = {v: _error(u, store, "val", objective) for v, u in found.items() if "failed" not in store.need(u)}
        if not ended:
            return {"failed": "all values diverged"}
        chosen = min(ended, key=lambda v: ended[v])
    return {**_judged(final[chosen], store, objective), "chosen": chosen}


def do_rival(unit: Unit, store: Store) -> Result:
    """The finalist of a search that is LA, or VS, on all."""
    search, *runs = unit.needs
    found = store.need(search)
    if "failed" in found:
        return found
    title = "VS" if "loss.gamma" in unit.settings["setting"] else "LA"
    name = next(name for name, *_ in found["finalists"] if name.startswith(f"{title}, "))
    chosen = tuple(map(float, re.findall(r"[\d.]+", name)))
    run = dict(zip(map(tuple, unit.settings["values"]), runs, strict=True))[chosen]
    return {**_judged(run, store, search.settings["run"]["search"]["objective"]), "chosen": chosen}


def _judged(unit: Unit, store: Store, objective: str) -> Result:
    """The result of a training run, with this test error among those that it has."""
    result = store.need(unit)
    if "failed" in result:
        return result
    return {**result, "test": {**result["test"], objective: _error(unit, store, "test", objective)}}


def do_bilevel(unit: Unit, store: Store) -> Result:
    """Search and retrain; a strategy that diverged is a result, too."""
    from capri.train.search_config import SearchRun
    from capri.train.search_runner import search_and_retrain

    folder = store.folder(unit)
    config = configured(unit, store, folder)
    assert isinstance(config, SearchRun)
    for first in unit.needs:
        setting, name = STARTS[first.kind]
        start: Any = {setting: str(_file(first, store, name))}
        config = replace(config, search=replace(config.search, **start))
    final = config.training(data=replace(config.data, val_fraction=0.0))
    kept = _kept(folder / "retrain", final, lambda: search_and_retrain(config, resume=_started(folder / "search")))
    if "failed" in kept:
        return kept
    found = _summary(folder / "search", config)
    more: Result = {name: found[name] for name in ("chosen", "finalists") if name in found}
    if config.search.precision == "auto":
        more["search_precision"] = found["config"]["search"]["precision"]
    return {**kept, "start_sdev": found["start_sdev"], "search_seconds": found["seconds"], "search_val": found["val"],
            "curve": _curve(folder / "search" / "trajectory.npz"), **more}  # fmt: skip


def do_transfer(unit: Unit, store: Store) -> Result:
    """Post-hoc on a model of 80 %, judged on test; or its policy as the loss of a new model."""
    from capri.posthoc import LogitAdjuster

    (first,) = unit.needs
    with np.load(_file(first, store, "logits.npz")) as file:
        pack = dict(file)
    names = pack["class_names"]
    adjuster = LogitAdjuster(**resolved.parameters(unit.settings["tuner"]), classes=list(names), bootstrap=0)
    adjuster.fit(pack["val_logits"].astype(np.float32), names[pack["val_y"]], class_counts=pack["train_counts"])
    if "run" in unit.settings:
        return _retrain(unit, store, adjuster.policy_)
    decided = adjuster.policy_.apply(pack["test_logits"].astype(np.float32)).argmax(axis=1)
    return {"test": evaluate(pack["test_y"], decided, len(names), ["balanced", "sdev", "worst"])}


def _file(unit: Unit, store: Store, name: str) -> Path:
    """What a run left in its folder; it is done again where its record is there and the file is not."""
    path = store.folder(unit) / name
    if "failed" in store.need(unit):
        raise InputError(f"the run {unit.label} diverged and left no {name}.")
    if not path.exists():
        with store.alone(unit):
            store.works[unit.kind](unit, store)
    if not path.exists():
        raise InputError(f"{path} is missing in a run that has ended; delete the run's folder, and it is done anew.")
    return path


def _retrain(unit: Unit, store: Store, policy: Any) -> Result:
    """With the policy as the loss: W unchanged, as the paper does; CDT is another multiplier on each side."""
    from capri.train.search_runner import retrain

    folder = store.folder(unit)
    if not _started(folder / "run"):
        policy.save(folder / "policy.json")
    config = configured(unit, store, folder / "run")
    how = "inverse" if unit.settings["tuner"]["parameters"]["method"] == "cdt" else "unchanged"
    return _kept(
        folder / "run",
        config,
        lambda: retrain(config, folder / "policy.json", transfer=how, resume=_started(folder / "run")),
    )


def _kept(folder: Path, config: Config, run: Callable[[], Any]) -> Result:
    """What a table needs of a training run in `folder`, which is done unless it has ended there already.

    Where halves of test stand for validation and test, nothing was chosen on either: the errors are those of both.
    """
    if not (folder / "summary.json").exists() or not (folder / "logits.npz").exists():
        try:
            run()
        except FloatingPointError as error:
            return {"failed": str(error)}
    summary = _summary(folder, config)
    kept = {name: summary[name] for name in ("test", "val", "seconds", "threads", "commit")}
    if config.trainer.precision == "auto":
        kept["precision"] = summary["config"]["trainer"]["precision"]
    if summary["protocol"].startswith(HALVES):
        kept["test"] = _evaluated(folder / "logits.npz", ("val", "test"), STANDARD)
    return kept


def _error(unit: Unit, store: Store, part: str, objective: str) -> float:
    """Of a training run on validation or test: as it was stored, or from its logits."""
    stored = store.need(unit)[part]
    if objective in stored:
        return float(stored[objective])
    from capri.train.artefacts import read_summary

    logits = _file(unit, store, "logits.npz")
    halves = read_summary(logits.parent / "summary.json")["protocol"].startswith(HALVES)
    parts = ("val", "test") if part == "test" and halves else (part,)
    return _evaluated(logits, parts, (objective,))[objective]


def _evaluated(logits: Path, parts: Sequence[str], objectives: Sequence[str]) -> dict[str, float]:
    """Objectives of the samples of these parts together."""
    with np.load(logits) as file:
        y, scores = (np.concatenate([file[f"{part}_{name}"] for part in parts]) for name in ("y", "logits"))
    return evaluate(y, scores.argmax(axis=1), scores.shape[1], objectives)


def _summary(folder: Path, config: Config) -> dict[str, Any]:
    """A run that was put there by hand must be the one that is meant, unchanged; a policy as its loss is beside it."""
    from capri.train.artefacts import read_summary

    found = read_summary(folder / "summary.json")
    before = build(type(config), found["config"]).to_mapping()
    elsewhere = (
        "out",
        "data.root",
        "search.init",
        "search.known",
        *(["loss"] if before["loss"]["strategy"] == "policy" else []),
    )
    settled = {"trainer": config.trainer, "search": getattr(config, "search", config.trainer)}
    elsewhere += tuple(f"{name}.precision" for name, section in settled.items() if section.precision == "auto")
    changed = [name for name in differences(before, config.to_mapping()) if not name.startswith(elsewhere)]
    if changed:
        raise InputError(f"{folder} holds a run with other {', '.join(changed)}; delete it, and it is done anew.")
    return found


def configured(unit: Unit, store: Store, folder: Path) -> Config:
    """The unit's run, in this folder, and where its data lie."""
    config = resolved.as_config(unit.settings["run"])
    root = store.data
    if config.data.root == DIGITS:
        root = store.root / DIGITS
        write_digits(root)
    return replace(config, out=str(folder), data=replace(config.data, root=str(root)))


def _started(folder: Path) -> bool:
    return (folder / "config.toml").exists()


def _curve(path: Path) -> dict[str, list[float]]:
    """The objective along the search, thinned for a picture."""
    history = np.load(path)
    thin = slice(None, None, max(1, len(history["time"]) // 60))
    return {name: history[name][thin].round(4).tolist() for name in ("time", "objective")}

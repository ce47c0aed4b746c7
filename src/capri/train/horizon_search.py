"""Searches that see the end of training, as a run: named losses, the search, and the evidence that decides.

    1. cross-entropy, LA and VS on a grid are judged out of fold; of networks on images, by proxy (`capri.train.proxy`).
       An earlier search of the same data may have judged them, and more (`capri.train.judgements`)
    2. from the best of them: generations of strategies, made of W, which a Gaussian process through all judgements
       proposes (population, proxy), or the descent of W along the exact derivative through training (unrolled)
    3. the best of each kind are judged again, afresh: the lowest is what the search returns, with its name

All that was judged is kept in the run's checkpoint under a name, and a search that is resumed judges what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capri._checks import InputError
from capri.attributes import Attributes
from capri.bilevel.out_of_fold import sharpness
from capri.bilevel.population import PRIOR, Generation, Points, Space, evolve
from capri.bilevel.strategy_map import SMOOTHING_START, Dictionaries, StrategyMap, StrategyTensors
from capri.bilevel.unrolled import JudgedTraining, unrolled_search
from capri.data.splits import Splits
from capri.evidence import gather
from capri.policy import Policy
from capri.strategy import Strategy, delta_logit, smoothing_logit
from capri.train import artefacts
from capri.train.checkpoints import AtomicCheckpointIO
from capri.train.config import SUMMARY
from capri.train.experiment import identity, make_model
from capri.train.judgements import JUDGED, Judgements, judged_by
from capri.train.judging import Judge, judge_by_folds, judge_by_proxy, judge_by_validation
from capri.train.ledger import Ledger
from capri.train.proxy import Features, proxy_features
from capri.train.recorder import write_csv
from capri.train.runner import begun
from capri.train.search import known_before
from capri.train.search_config import (
    FOLDED,
    GAMMAS,
    PLAIN,
    SCALED_TAUS,
    SCALES,
    SMOOTHED_TAUS,
    SMOOTHINGS,
    TAUS,
    SearchRun,
)
from capri.train.trajectory import Trajectory, plot_trajectory

FRESH = 2  # judgements that decide in the end


@dataclass(frozen=True)
class Named:
    """A strategy with a name, of a kind: of each kind the best goes on."""

    kind: str
    name: str
    strategy: Strategy


def named_losses(counts: NDArray[np.int64], *, scaled: bool = False, smoothed: bool = False) -> list[Named]:
    """What has names: cross-entropy, logit adjustment and VS, whose numbers are on a grid.

    scaled, smoothed: LA with one multiplier, or one label smoothing, for all classes, too. These make another network,
    to which other offsets belong.
    """
    la = partial(Strategy.logit_adjustment, counts)
    found = [Named("cross-entropy", "cross-entropy", Strategy.of(len(counts)))]
    found += [Named("LA", f"LA, τ = {tau:g}", la(tau)) for tau in TAUS]
    found += [
        Named("VS", f"VS, τ = {tau:g}, γ = {gamma:g}", Strategy.vs(counts, tau, gamma))
        for tau in TAUS[:-1]
        for gamma in GAMMAS
    ]
    if scaled:
        found += [
            Named("scaled LA", f"scaled LA, τ = {tau:g}, Δ = {scale:g}", replace(la(tau), delta=every(counts, scale)))
            for tau in SCALED_TAUS
            for scale in SCALES
        ]
    if smoothed:
        found += [
            Named(
                "smoothed LA", f"smoothed LA, τ = {tau:g}, ε = {epsilon:g}",
                replace(la(tau), smoothing=every(counts, epsilon)),
            )
            for tau in SMOOTHED_TAUS
            for epsilon in SMOOTHINGS
        ]  # fmt: skip
    return found


def named_for(config: SearchRun, counts: NDArray[np.int64]) -> list[Named]:
    """Those that a search compares itself with: what it can do, they can. The scale of a head on the features of a
    network says nothing of the network's own."""
    parts = config.search.parts
    scaled = "delta" in parts and config.method in FOLDED
    return named_losses(counts, scaled=scaled, smoothed="smoothing" in parts)


def every(counts: NDArray[np.int64], value: float) -> NDArray[np.float64]:
    """The same for every class."""
    return np.full(len(counts), value)


@dataclass(frozen=True)
class Found:
    """The end of a search: what was chosen, the finalists with their values on fresh folds, and where it went."""

    chosen: Named
    finalists: Sequence[tuple[str, float, float]]
    map: StrategyMap
    attributes: Attributes
    trajectory: Trajectory
    judged: Judgements


def search(config: SearchRun, *, resume: bool = False) -> dict[str, Any]:
    """Search as configured; returns the summary and leaves policy.json."""
    _check(config)
    with begun(config, resume) as (config, folder, data):
        start = time.monotonic()
        splits = data.splits
        _say(_describe(config, splits))
        ledger = Ledger(folder, AtomicCheckpointIO(identity(config, splits)), resume)
        if config.method == "proxy":
            judge = judge_by_proxy(config, splits, proxy_features(config, data, folder, resume, ledger), ledger)
        elif config.search.folds:
            judge = judge_by_folds(config, splits, ledger)
        else:
            judge = judge_by_validation(config, splits, make_model(config, splits), Features.of(splits), ledger)
        found = find(config, splits, judge)
        return _finish(config, splits, folder, found, judge, time.monotonic() - start)


def _check(config: SearchRun) -> None:
    if config.method == "proxy" and config.model.name in ("linear", "mlp"):
        raise InputError(
            f"model.name is {config.model.name!r}, and search.method=proxy is for networks on images; heads on "
            "features are searched by search.method=population, without a proxy."
        )
    if config.search.attributes == PLAIN:
        raise InputError(
            "search.attributes is identity, one free number per class, which would fit the samples that judge it; use "
            "search.method=one-step, or attributes."
        )
    if "norm" in config.search.attributes:
        raise InputError("search.attributes names norm, which one network has and a population has not; leave it out.")


# -- the three acts ---------------------------------------------------------------------------------------------------


def find(config: SearchRun, splits: Splits, judge: Judge) -> Found:
    """Named losses, generations, and the evidence."""
    named = named_for(config, splits.train_counts)
    known = _known(config, splits, judge, named)
    errors = known.errors[: len(named)]
    values = judge.values(errors, errors[0])
    best = {kind: min((v, i) for i, v in enumerate(values) if named[i].kind == kind)[1] for kind in _kinds(named)}
    _say("  ".join(f"{named[i].name}: {values[i]:.4f}" for i in best.values()))
    start = min((i for kind, i in best.items() if kind != "cross-entropy"), key=lambda i: values[i])
    attributes = _attributes(config, splits, _difficulty(named, errors), judge)
    space = Space.of(_map(config, attributes, named[start].strategy))
    trajectory = Trajectory()
    trajectory.begin(0, float(np.nanstd(errors[best["LA"]])), errors[best["LA"]])
    if config.method == "unrolled":
        point = _descended(config, space, judge, trajectory)
    else:
        point, known = _generations(config, space, judge, trajectory, known, len(named))
    chosen, finalists = _decide(config, judge, [named[i] for i in best.values()], space, point)
    return Found(chosen, finalists, space.at(point), attributes, trajectory, known)


def _known(config: SearchRun, splits: Splits, judge: Judge, named: list[Named]) -> Judgements:
    """What is known before the search: judgements of an earlier one, or else the named losses, judged now."""
    who, names = judged_by(config, splits), tuple(n.name for n in named)
    if not config.search.known:
        strategies = stacked([n.strategy for n in named])
        return Judgements(who, names, strategies, judge.errors("named losses", strategies))
    found = Judgements.load(config.search.known, who)
    if found.names[: len(names)] != names:
        raise InputError(
            f"search.known: {config.search.known} does not begin with the losses that this search compares: it was "
            "made by another version of capri, or searched without label smoothing. Search anew without it."
        )
    return found


def _generations(
    config: SearchRun, space: Space, judge: Judge, trajectory: Trajectory, known: Judgements, n_named: int
) -> tuple[Points, Judgements]:
    """From what is known, as far as W can say it, and the named losses, as nearly as it can; where it ends, and all
    that was judged."""
    z = space.points(known.strategies)
    taken = space.says(z, known.strategies) | (np.arange(len(z)) < n_named)
    if config.search.known:
        _say(
            f"taken over from {config.search.known}: {n_named} named losses, and {taken[n_named:].sum()} of "
            f"{len(z) - n_named} other strategies, which are strategies of this W"
        )
    count, judged, errors = 0, known, known.errors[taken]

    def judge_generation(points: Points) -> Points:
        nonlocal count, judged, errors
        count += 1
        strategies = space.strategies(points)
        found = judge.errors(f"generation {count}", strategies)
        judged, errors = judged.plus(f"generation {count}", strategies, found), np.concatenate([errors, found])
        return judge.values(found, known.errors[0])

    s, start = config.search, (z[taken], judge.values(errors, errors[0]))
    last: Generation | None = None
    for last in evolve(judge_generation, start, generations=s.generations, size=s.population, seed=config.seed):
        values = judge.values(errors, errors[0])
        weights = {
            name.removeprefix("w_"): w[0].double().numpy() for name, w in space.weights(last.point[None]).items()
        }
        trajectory.note(count, float(values[last.best]), weights)
        trajectory.note_errors(errors[last.best].tolist())
        _say(
            f"generation {count}/{s.generations}  {judge.objective.name} {judge.where}: {values[last.best]:.4f}, "
            f"best judged {values.min():.4f}, of this generation {last.values.min():.4f} … {last.values.max():.4f}"
        )
    assert last is not None
    return last.point, judged


def _descended(config: SearchRun, space: Space, judge: Judge, trajectory: Trajectory) -> Points:
    """L-BFGS on the derivative through all steps of training, of the error out of fold; returns the point."""
    v, ledger, smooth = judge.validation, judge.ledger, judge.objective.smooth_errors()

    def objective(logits: Tensor, y: Tensor) -> Tensor:
        return smooth.on_all(sharpness(logits.detach(), y, v.n_classes) * logits, y)

    training = JudgedTraining(v.model, v.x, v.y, v.recipe, objective, folds=v.folds)
    found = unrolled_search(
        training,
        space.map,
        steps=config.search.generations,
        prior=PRIOR / 2,
        spreads=space.spread,
        state=ledger.mapping("unrolled"),
        keep=partial(ledger.keep_mapping, "unrolled"),
    )
    space.at(np.zeros(len(space)), found.w[0])  # the search has moved the map
    path = (found.w - found.w[0]) / np.where(space.spread > 0, space.spread, 1.0)
    errors = judge.errors("path", space.strategies(path))
    for i, (z, row, value) in enumerate(zip(path, errors, judge.values(errors), strict=True)):
        weights = {name.removeprefix("w_"): w[0].double().numpy() for name, w in space.weights(z[None]).items()}
        trajectory.note(i + 1, float(value), weights)
        trajectory.note_errors(row.tolist())
        _say(f"step {i}/{config.search.generations}  {judge.objective.name} {judge.where}: {value:.4f}")
    return np.asarray(path[-1])


def _decide(
    config: SearchRun, judge: Judge, rivals: list[Named], space: Space, point: Points
) -> tuple[Named, list[tuple[str, float, float]]]:
    """The lowest on fresh folds, and all finalists: name, value, and its deviation over the partitions."""
    found = Named("CAP", f"CAP: {' + '.join(config.search.attributes)}", _strategy(space.strategies(point[None])))
    finalists = [*rivals, found]
    tensors = stacked([n.strategy for n in finalists])
    fresh = [judge.errors(f"finalists, folds {i}", tensors, judge.afresh(i)) for i in range(1, FRESH + 1)]
    together = np.mean(fresh, axis=0)  # cross-entropy comes first
    values = judge.values(together, together[0])
    spread = np.std([judge.values(errors, errors[0]) for errors in fresh], axis=0, ddof=1)
    table = [(n.name, float(v), float(s)) for n, v, s in zip(finalists, values, spread, strict=True)]
    return finalists[int(values.argmin())], table


def _say(line: str) -> None:
    print(line, flush=True)


# -- parts ------------------------------------------------------------------------------------------------------------


def _kinds(named: Sequence[Named]) -> list[str]:
    return list(dict.fromkeys(n.kind for n in named))


def stacked(strategies: Sequence[Strategy]) -> StrategyTensors:
    """Several strategies as one, (P, K) each part."""
    parts = {name: np.stack([getattr(s, name) for s in strategies]) for name in StrategyTensors._fields}
    return StrategyTensors(**{name: torch.from_numpy(values).float() for name, values in parts.items()})


def _strategy(tensors: StrategyTensors) -> Strategy:
    return Strategy(**{name: values[0].double().numpy() for name, values in tensors._asdict().items()})


def _difficulty(named: Sequence[Named], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The class errors of logit adjustment with the least balanced error, whatever the objective: so W is a map by the
    same D for all of them, and judgements can be taken over."""
    of_la = errors[: len(named)][[n.kind == "LA" for n in named]]
    return np.asarray(of_la[np.nanmean(of_la, axis=1).argmin()])


def _attributes(config: SearchRun, splits: Splits, errors: NDArray[np.float64], judge: Judge) -> Attributes:
    """Difficulty is an error on samples that have not trained."""
    known = replace(known_before(config.search, splits), errors=errors, n_samples=judge.validation.counts)
    found = gather(known, config.search.attributes, splits.class_names)
    assert found is not None
    return found


def _map(config: SearchRun, attributes: Attributes, start: Strategy) -> StrategyMap:
    """The map, at the strategy to start from as nearly as D can say it."""
    s = config.search
    dictionaries = Dictionaries.of(attributes, len(start.l), s.scaling)  # type: ignore[arg-type]
    made = StrategyMap(dictionaries, s.parts, delta_form=s.delta_form, start_l=start.l)  # type: ignore[arg-type]
    wanted = {"delta": delta_logit(start.delta, s.delta_form), "smoothing": smoothing_logit(start.smoothing)}
    if s.delta_form == "normalized":
        del wanted["delta"]  # it cannot say Δ = 1
    if s.method == "unrolled":  # a derivative does not leave the flat end of the sigmoid
        wanted["smoothing"] = np.maximum(wanted["smoothing"], SMOOTHING_START)
    for part in wanted.keys() & set(s.parts):
        found = np.linalg.lstsq(dictionaries.lifted.values, wanted[part], rcond=None)[0]
        made.get_parameter(f"w_{part}").data.copy_(torch.from_numpy(found))
    return made


def _describe(config: SearchRun, splits: Splits) -> str:
    counts, s = splits.train_counts, config.search
    named = named_for(config, counts)
    known = 0 if s.known else len(named)
    strategies = known + s.generations * s.population + FRESH * (len(_kinds(named)) + 1)
    generations, epochs = f"{s.generations} generations of {s.population}", f"{config.search_epochs} epochs"
    folded = config.method in FOLDED and s.folds
    who = f"which validate in {s.folds} folds" if folded else f"{len(splits.val):,} validation ({splits.protocol})"
    if config.method == "population":
        how = f"{generations}, {max(s.folds, 1) * strategies:,} networks of {epochs}"
    elif config.method == "proxy":
        whose = s.init or f"a network of {s.network_epochs or config.trainer.max_epochs} epochs"
        how = f"{generations}, {strategies:,} heads of {epochs} on the features of {whose}"
    else:
        how = f"at most {s.generations} steps along the derivative through {epochs} of training"
    return (
        f"{config.data.name}: {len(splits.train):,} training samples ({counts.max():,} … {counts.min():,} per class, "
        f"{splits.n_classes} classes), {who}\n"
        f"search of {', '.join(s.parts)} by {' and '.join(s.attributes)} for {s.objective}: {how}, seed "
        f"{config.seed} → {config.out}"
    )


def comparison(finalists: Sequence[tuple[str, float, float]], judge: Judge) -> str:
    """The evidence as a table to print."""
    width = max(len(name) for name, _, _ in finalists)
    head = f"{judge.objective.name} {judge.where}, {judge.anew} (mean of {FRESH}, ± their deviation)"
    lowest = min(value for _, value, _ in finalists)
    lines = [f"  {name:<{width}}  {v:.4f} ± {s:.4f}{'  ← chosen' * (v == lowest)}" for name, v, s in finalists]
    return "\n".join([head, *lines])


def _policy(config: SearchRun, splits: Splits, found: Found, judge: Judge) -> Policy:
    own = found.chosen.kind == "CAP"
    figures = {"objective": min(v for _, v, _ in found.finalists), "start_sdev": found.trajectory.start_sdev}
    table = found.attributes
    return Policy(
        found.chosen.strategy,
        objective=judge.objective.name,
        classes=tuple(splits.class_names),
        side="loss",
        method="bilevel",
        reason=f"{found.chosen.name}, the best {judge.where} of "
        + ", ".join(f"{name} ({value:.4f})" for name, value, _ in found.finalists),
        attributes={name: table[name].tolist() for name in table.names} if own else {},
        dictionary={
            "scaling": config.search.scaling,
            "columns": [list(c) for c in found.map.dictionaries.lifted.columns],
            "delta_form": config.search.delta_form,
        }
        if own
        else {},
        weights={part: w.tolist() for part, w in found.map.weights().items()} if own else {},
        data={"name": config.data.name, "config_digest": config.digest(), "validation": figures},
        seed=config.seed,
    )


def _finish(
    config: SearchRun, splits: Splits, folder: Path, found: Found, judge: Judge, seconds: float
) -> dict[str, Any]:
    _say(comparison(found.finalists, judge))
    _policy(config, splits, found, judge).save(folder / "policy.json")
    found.trajectory.save(folder / "trajectory.npz")
    found.judged.save(folder / JUDGED)
    write_csv(folder / "finalists.csv", [{"loss": n, "value": v, "deviation": s} for n, v, s in found.finalists])
    title = f"{config.data.name}, {'+'.join(config.search.attributes)}, {judge.objective.name}, seed {config.seed}"
    plot_trajectory(
        found.trajectory,
        found.map,
        splits.train_counts,
        folder / "alpha.png",
        title,
        time="step" if config.method == "unrolled" else "generation",
    )
    summary = {
        "objective": judge.objective.name,
        "value": min(value for _, value, _ in found.finalists),
        "chosen": found.chosen.name,
        "finalists": [list(row) for row in found.finalists],
        "start_sdev": found.trajectory.start_sdev,
        "seconds": round(seconds, 3),
        "val": {},
        "config_digest": config.digest(),
        **artefacts.provenance(),
        "config": config.to_mapping(),
    }
    artefacts.write_summary(folder / SUMMARY, summary, "policy.json", "trajectory.npz", "finalists.csv", JUDGED)
    return summary

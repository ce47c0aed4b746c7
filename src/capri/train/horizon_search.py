"""Searches that see the end of training, as a run: named losses, the search, and the evidence that decides.

    1. cross-entropy, LA and VS on a grid are judged out of fold
    2. from the best of LA and VS: generations of strategies, made of W, which a Gaussian process through all judgements
       proposes (population), or the descent of W along the exact derivative through training (unrolled)
    3. the best of each kind are judged again, on fresh folds: the lowest is what the search returns, with its name

All that was judged is kept in the run's checkpoint under a name, and a search that is resumed judges what is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from capri._checks import InputError
from capri.attributes import Attributes
from capri.bilevel.out_of_fold import CrossValidation, sharpness
from capri.bilevel.outer_objective import OuterObjective
from capri.bilevel.population import PRIOR, Generation, Points, Space, evolve
from capri.bilevel.side_by_side import Recipe
from capri.bilevel.strategy_map import Dictionaries, StrategyMap, StrategyTensors
from capri.bilevel.unrolled import JudgedTraining, unrolled_search
from capri.data.splits import Splits
from capri.evidence import gather
from capri.policy import Policy
from capri.sampling import stratified_folds
from capri.strategy import Strategy
from capri.train import artefacts
from capri.train.checkpoints import AtomicCheckpointIO
from capri.train.claim import started_from
from capri.train.config import LAST, SUMMARY
from capri.train.experiment import identity, make_model
from capri.train.module import make_optimizer
from capri.train.recorder import write_csv
from capri.train.runner import begun
from capri.train.schedules import learning_rate_factor
from capri.train.search import known_before, outer_objective
from capri.train.search_config import PLAIN, SearchRun
from capri.train.trajectory import Trajectory, plot_trajectory

TAUS, GAMMAS = (0.5, 1.0, 1.5, 2.0, 3.0), (0.1, 0.2, 0.3)
FRESH = 2  # partitions into folds that decide in the end


@dataclass(frozen=True)
class Named:
    """A strategy with a name, of a kind: of each kind the best goes on."""

    kind: str
    name: str
    strategy: Strategy


def named_losses(counts: NDArray[np.int64]) -> list[Named]:
    """What has names: cross-entropy, logit adjustment and VS, whose numbers are on a grid."""
    found = [Named("cross-entropy", "cross-entropy", Strategy.of(len(counts)))]
    found += [Named("LA", f"LA, τ = {tau:g}", Strategy.logit_adjustment(counts, tau)) for tau in TAUS]
    found += [
        Named("VS", f"VS, τ = {tau:g}, γ = {gamma:g}", Strategy.vs(counts, tau, gamma))
        for tau in TAUS[:-1]
        for gamma in GAMMAS
    ]
    return found


class Ledger:
    """What has been judged, by name: a checkpoint that grows. Of a resumed run it holds what was judged before."""

    def __init__(self, folder: Path, keeper: AtomicCheckpointIO, resume: bool):
        self.path, self.keeper = folder / LAST, keeper
        before = started_from(folder) if resume else None
        self.judged: dict[str, Tensor] = {} if before is None else keeper.load_checkpoint(before)["judged"]

    def once(self, name: str, judge: Callable[[], Tensor]) -> Tensor:
        """What was judged under this name; it is judged now, and kept, where there is nothing yet."""
        if name not in self.judged:
            found = judge()
            if not bool(torch.isfinite(found).all()):
                raise FloatingPointError(f"{name} has class errors that are not finite; lower optimizer.lr.")
            self.judged[name] = found
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.keeper.save_checkpoint({"judged": self.judged}, self.path)
        return self.judged[name]

    def keep_mapping(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep arrays under a name, over those of before."""
        self.judged |= {f"{name}/{key}": torch.from_numpy(np.array(value)) for key, value in arrays.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.keeper.save_checkpoint({"judged": self.judged}, self.path)

    def mapping(self, name: str) -> dict[str, NDArray[Any]] | None:
        """The arrays that were kept under a name; None where there are none."""
        kept = {k.removeprefix(f"{name}/"): v.numpy() for k, v in self.judged.items() if k.startswith(f"{name}/")}
        return kept or None


@dataclass(frozen=True)
class Judge:
    """From strategies to class errors out of fold, each judged once; and to the objective."""

    validation: CrossValidation
    objective: OuterObjective
    ledger: Ledger

    def errors(self, name: str, strategies: StrategyTensors, folds: Tensor | None = None) -> NDArray[np.float64]:
        """(P, K): class errors by the folds of the search, or by others."""
        judging = self.validation if folds is None else replace(self.validation, folds=folds)

        def judge() -> Tensor:
            with _progress(name) as tell:
                return torch.from_numpy(judging.class_errors(judging.losses(strategies, tell)))

        return self.ledger.once(name, judge).numpy()

    def values(self, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """The objective of each row."""
        return np.array([self.objective.evaluator(row[self.objective.present]) for row in errors])


@dataclass(frozen=True)
class Found:
    """The end of a search: what was chosen, the finalists with their values on fresh folds, and where it went."""

    chosen: Named
    finalists: Sequence[tuple[str, float, float]]
    map: StrategyMap
    attributes: Attributes
    trajectory: Trajectory


def search(config: SearchRun, *, resume: bool = False) -> dict[str, Any]:
    """Search as configured; returns the summary and leaves policy.json."""
    _check(config)
    with begun(config, resume) as (config, folder, data):
        start = time.monotonic()
        splits = data.splits
        _say(_describe(config, splits))
        model = make_model(config, splits)
        ledger = Ledger(folder, AtomicCheckpointIO(identity(config, splits)), resume)
        x, y = torch.from_numpy(splits.train.x).float(), torch.from_numpy(splits.train.y).long()
        folds = torch.from_numpy(stratified_folds(y, config.search.folds, config.seed))
        validation = CrossValidation(model, x, y, splits.n_classes, make_recipe(config), folds)
        judge = Judge(validation, outer_objective(config.search, splits, config.data.absent, validation.counts), ledger)
        found = find(config, splits, judge)
        return _finish(config, splits, folder, found, judge, time.monotonic() - start)


def _check(config: SearchRun) -> None:
    if config.search.attributes == PLAIN:
        raise InputError(
            "search.attributes is identity, one free number per class, which would fit the samples that judge it; use "
            "search.method=one-step, or attributes."
        )
    if "norm" in config.search.attributes:
        raise InputError("search.attributes names norm, which one network has and a population has not; leave it out.")


def make_recipe(config: SearchRun) -> Recipe:
    """Training as configured, for networks side by side."""
    if config.trainer.mixup or config.trainer.gradient_clip:
        raise InputError("networks are trained side by side without mixup and gradient clipping; set both to 0.")
    return Recipe(
        config.search_epochs,
        config.trainer.batch_size,
        partial(make_optimizer, config=config.optimizer, fused=True),
        partial(learning_rate_factor, config.schedule),
        config.seed,
    )


# -- the three acts ---------------------------------------------------------------------------------------------------


def find(config: SearchRun, splits: Splits, judge: Judge) -> Found:
    """Named losses, generations, and the evidence."""
    named = named_losses(splits.train_counts)
    errors = judge.errors("named losses", _tensors([n.strategy for n in named]))
    values = judge.values(errors)
    best = {kind: min((v, i) for i, v in enumerate(values) if named[i].kind == kind)[1] for kind in _kinds(named)}
    _say("  ".join(f"{named[i].name}: {values[i]:.4f}" for i in best.values()))
    start = min(best["LA"], best["VS"], key=lambda i: values[i])
    attributes = _attributes(config, splits, errors[best["LA"]], judge)
    space = Space.of(_map(config, attributes, named[start].strategy))
    trajectory = Trajectory()
    trajectory.begin(0, float(np.nanstd(errors[best["LA"]])), errors[best["LA"]])
    known = np.stack([space.point(n.strategy) for n in named]), values, errors
    if config.method == "unrolled":
        point = _descended(config, space, judge, trajectory)
    else:
        point = _generations(config, space, judge, trajectory, known).point
    chosen, finalists = _decide(config, judge, [named[i] for i in best.values()], space, point)
    return Found(chosen, finalists, space.at(point), attributes, trajectory)


def _generations(
    config: SearchRun, space: Space, judge: Judge, trajectory: Trajectory, known: tuple[Points, Points, Points]
) -> Generation:
    """From what is known of the named losses (points, values, class errors); returns the last generation."""
    z, values, errors = known
    count = 0

    def judged(points: Points) -> Points:
        nonlocal count, values, errors
        count += 1
        found = judge.errors(f"generation {count}", space.strategies(points))
        values, errors = np.concatenate([values, judge.values(found)]), np.concatenate([errors, found])
        return values[-len(points) :]

    s, last = config.search, None
    for last in evolve(judged, (z, values), generations=s.generations, size=s.population, seed=config.seed):
        weights = {
            name.removeprefix("w_"): w[0].double().numpy() for name, w in space.weights(last.point[None]).items()
        }
        trajectory.note(count, float(values[last.best]), weights)
        trajectory.note_errors(errors[last.best].tolist())
        _say(
            f"generation {count}/{s.generations}  {judge.objective.name} out of fold: {values[last.best]:.4f}, "
            f"best judged {values.min():.4f}, of this generation {last.values.min():.4f} … {last.values.max():.4f}"
        )
    assert last is not None
    return last


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
        _say(f"step {i}/{config.search.generations}  {judge.objective.name} out of fold: {value:.4f}")
    return np.asarray(path[-1])


def _decide(
    config: SearchRun, judge: Judge, rivals: list[Named], space: Space, point: Points
) -> tuple[Named, list[tuple[str, float, float]]]:
    """The lowest on fresh folds, and all finalists: name, value, and its deviation over the partitions."""
    found = Named("CAP", f"CAP: {' + '.join(config.search.attributes)}", _strategy(space.strategies(point[None])))
    finalists = [*rivals, found]
    tensors, y = _tensors([n.strategy for n in finalists]), judge.validation.y
    fresh = []
    for i in range(1, FRESH + 1):
        folds = torch.from_numpy(stratified_folds(y, config.search.folds, config.seed + 1000 * i))
        fresh.append(judge.errors(f"finalists, folds {i}", tensors, folds))
    values = judge.values(np.mean(fresh, axis=0))
    spread = np.std([judge.values(errors) for errors in fresh], axis=0, ddof=1)
    table = [(n.name, float(v), float(s)) for n, v, s in zip(finalists, values, spread, strict=True)]
    return finalists[int(values.argmin())], table


def _say(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _progress(title: str) -> Iterator[Callable[[float], None] | None]:
    """A bar with the time left, on terminals."""
    if not sys.stdout.isatty():
        yield None
        return
    columns = [TextColumn(title), BarColumn(), TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)


# -- parts ------------------------------------------------------------------------------------------------------------


def _kinds(named: Sequence[Named]) -> list[str]:
    return list(dict.fromkeys(n.kind for n in named))


def _tensors(strategies: Sequence[Strategy]) -> StrategyTensors:
    stacked = {name: np.stack([getattr(s, name) for s in strategies]) for name in StrategyTensors._fields}
    return StrategyTensors(**{name: torch.from_numpy(values).float() for name, values in stacked.items()})


def _strategy(tensors: StrategyTensors) -> Strategy:
    return Strategy(**{name: values[0].double().numpy() for name, values in tensors._asdict().items()})


def _attributes(config: SearchRun, splits: Splits, errors: NDArray[np.float64], judge: Judge) -> Attributes:
    """Difficulty is the error out of fold of the best logit adjustment."""
    known = replace(known_before(config.search, splits), errors=errors, n_samples=judge.validation.counts)
    found = gather(known, config.search.attributes, splits.class_names)
    assert found is not None
    return found


def _map(config: SearchRun, attributes: Attributes, start: Strategy) -> StrategyMap:
    """The map, at the strategy to start from as nearly as D can say it."""
    s = config.search
    dictionaries = Dictionaries.of(attributes, len(start.l), s.scaling)  # type: ignore[arg-type]
    made = StrategyMap(dictionaries, s.parts, delta_form=s.delta_form, start_l=start.l)  # type: ignore[arg-type]
    if "delta" in s.parts and s.delta_form == "exp":
        wanted = np.linalg.lstsq(dictionaries.lifted.values, np.log(start.delta), rcond=None)[0]
        made.w_delta.data.copy_(torch.from_numpy(wanted))
    return made


def _describe(config: SearchRun, splits: Splits) -> str:
    counts, s = splits.train_counts, config.search
    if config.method == "population":
        networks = s.folds * (len(named_losses(counts)) + s.generations * s.population + FRESH * 4)
        how = f"{s.generations} generations of {s.population}, {networks:,} networks of {config.search_epochs} epochs"
    else:
        how = f"at most {s.generations} steps along the derivative through {config.search_epochs} epochs of training"
    return (
        f"{config.data.name}: {len(splits.train):,} training samples ({counts.max():,} … {counts.min():,} per class, "
        f"{splits.n_classes} classes), which validate in {s.folds} folds\n"
        f"search of {' and '.join(s.parts)} by {' and '.join(s.attributes)} for {s.objective}: {how}, seed "
        f"{config.seed} → {config.out}"
    )


def comparison(finalists: Sequence[tuple[str, float, float]], objective: str) -> str:
    """The evidence as a table to print."""
    width = max(len(name) for name, _, _ in finalists)
    head = f"{objective} out of fold, fresh folds (mean of {FRESH}, ± their deviation)"
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
        reason=f"{found.chosen.name}, the best out of fold of "
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
    _say(comparison(found.finalists, judge.objective.name))
    _policy(config, splits, found, judge).save(folder / "policy.json")
    found.trajectory.save(folder / "trajectory.npz")
    write_csv(folder / "finalists.csv", [{"loss": n, "value": v, "deviation": s} for n, v, s in found.finalists])
    title = f"{config.data.name}, {'+'.join(config.search.attributes)}, {judge.objective.name}, seed {config.seed}"
    plot_trajectory(
        found.trajectory,
        found.map,
        splits.train_counts,
        folder / "alpha.png",
        title,
        time="generation" if config.method == "population" else "step",
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
    artefacts.write_summary(folder / SUMMARY, summary, "policy.json", "trajectory.npz", "finalists.csv")
    return summary

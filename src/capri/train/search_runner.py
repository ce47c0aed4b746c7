"""Search, retrain, evaluate: a run in a folder of its own.

search/     config.toml, checkpoints, metrics.csv, class_errors.csv as in training, and
            policy.json       the strategy found so far, each epoch; `capri retrain --policy` takes it
            trajectory.npz    W, objective, class errors over time
            finalists.csv     where networks were trained to the end: what was compared in the end
            judged.npz        and all strategies that were judged, with their class errors, for `search.known`
            alpha.png         α curves
            summary.json      how the search ended, the spread of class errors when it began
retrain/    a training run on all the training data with the found strategy
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from capri._checks import InputError
from capri.bilevel.strategy_map import StrategyMap
from capri.policy import Policy
from capri.train import artefacts, horizon_search
from capri.train.config import SUMMARY, Config
from capri.train.experiment import identity, make_pretrained_model
from capri.train.recorder import Recorder
from capri.train.runner import begun, fit, make_trainer, run
from capri.train.search import Search
from capri.train.search_config import WHOLE, SearchRun
from capri.train.trajectory import plot_trajectory


def search_and_retrain(config: SearchRun, *, resume: bool = False) -> dict[str, Any]:
    """Search for a loss, then train anew on all the training data with the loss that was found.

    Parameters
    ----------
    config : SearchRun
        The settings; ``config.out`` is the folder.
    resume : bool
        Go on from the last checkpoints in that folder, if there are any.

    Returns
    -------
    dict
        The summaries of both, as "search" and "retrain"; empty in all processes but the first.
    """
    folder = Path(config.out)
    found = search(replace(config, out=str(folder / "search")), resume=resume)
    retrained = retrain(
        config.training(data=replace(config.data, val_fraction=0.0), out=str(folder / "retrain")),
        folder / "search" / "policy.json",
        resume=resume,
    )
    return {"search": found, "retrain": retrained}


def retrain(config: Config, policy: str | Path, *, transfer: str = "unchanged", resume: bool = False) -> dict[str, Any]:
    """Train with the strategy of a policy file, whether a search found it or it was tuned post-hoc.

    Parameters
    ----------
    config : Config
        The settings of the run; its section `loss` is replaced.
    policy : str or Path
        The policy file.
    transfer : {"unchanged", "inverse"}
        How a post-hoc policy becomes a loss: with Δ and l as they are (the paper), or with 1/Δ and l/Δ. What a search
        found is a loss already and is taken as it is.
    resume : bool
        Go on from the last checkpoint, if there is one.

    Returns
    -------
    dict
        The summary, as in ``summary.json``.
    """
    if transfer not in ("unchanged", "inverse"):
        raise InputError(f"transfer is {transfer!r}; it must be 'unchanged' (the paper) or 'inverse' (1/Δ, l/Δ).")
    loss = replace(config.loss, strategy="policy", policy=str(policy), transfer=transfer)  # type: ignore[arg-type]
    return run(replace(config, loss=loss), resume=resume)


def search(config: SearchRun, *, resume: bool = False) -> dict[str, Any]:
    """The search alone; returns its summary and leaves policy.json."""
    config = config.settled()
    if config.method in WHOLE:
        return horizon_search.search(config, resume=resume)
    return _one_step(config, resume)


def _one_step(config: SearchRun, resume: bool) -> dict[str, Any]:
    """One training, during which the strategy moves."""
    if config.trainer.precision == "auto":  # forward mode is for single precision
        config = replace(config, trainer=replace(config.trainer, precision="32-true"))
    with begun(config, resume) as (config, folder, data):
        module = Search(make_pretrained_model(config, data.splits, config.search.init), config, data)
        recorder = Recorder(folder, data.generator)
        # Gradients are clipped by the module itself: Lightning leaves manual optimisation alone.
        settings = replace(config.trainer, gradient_clip=0.0, max_epochs=config.search_epochs)
        of, writer = identity(config, data.splits), _PolicyWriter(folder, config)
        trainer = make_trainer(config.training(trainer=settings), recorder, of, writer)
        if trainer.is_global_zero:
            print(_describe(config, data), flush=True)
        fit(trainer, module, folder, resume, datamodule=data)
        summary = _finish(config, module, recorder) if trainer.is_global_zero else {}
        trainer.strategy.barrier()  # others go on to retrain with the policy
        return summary


class _PolicyWriter(Callback):
    """The strategy and its history, each epoch: what is on disk is the last good one."""

    def __init__(self, folder: Path, config: SearchRun):
        self.folder, self.config = folder, config

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Before the checkpoint."""
        assert isinstance(pl_module, Search)
        if pl_module.outer is not None and trainer.is_global_zero:
            found_policy(pl_module, self.config).save(self.folder / "policy.json")
            pl_module.trajectory.save(self.folder / "trajectory.npz")

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Where the search went, up to its end."""
        assert isinstance(pl_module, Search)
        diverged = isinstance(exception, FloatingPointError) and trainer.is_global_zero
        if diverged and pl_module.outer is not None:
            pl_module.trajectory.save(self.folder / "trajectory.npz")


def found_map(module: Search, average: float) -> StrategyMap:
    """The map at W as it stands, or at its mean over a share of the last outer steps."""
    assert module.outer is not None
    if not average:
        return module.outer.map
    mean = {f"w_{part}": torch.from_numpy(w) for part, w in module.trajectory.averaged(average).items()}
    made = copy.deepcopy(module.outer.map)
    made.load_state_dict({**made.state_dict(), **mean})
    return made


def found_policy(module: Search, config: SearchRun) -> Policy:
    """The strategy that was found, with what it was made of. It is a loss: Δ∘o + l in training."""
    made, table = found_map(module, config.search.average), module.attributes
    attributes = {} if table is None else {name: table[name].tolist() for name in table.names}
    figures = {"objective": module.objective.value(), "start_sdev": module.trajectory.start_sdev}
    return Policy(
        made.strategy(),
        objective=module.objective.name,
        classes=tuple(module.class_names or ()),
        side="loss",
        method="bilevel",
        attributes=attributes,
        dictionary={
            "scaling": config.search.scaling,
            "columns": [list(c) for c in made.dictionaries.lifted.columns],
            "delta_form": config.search.delta_form,
        },
        weights={part: w.tolist() for part, w in made.weights().items()},
        data={"name": config.data.name, "config_digest": config.digest(), "validation": figures},
        seed=config.seed,
    )


def _describe(config: SearchRun, data: Any) -> str:
    splits, counts, s = data.splits, data.splits.train_counts, config.search
    return (
        f"{config.data.name}: {len(splits.train):,} training samples ({counts.max():,} … {counts.min():,} per class, "
        f"{splits.n_classes} classes), {len(splits.val):,} validation ({splits.protocol})\n"
        f"search of {', '.join(s.parts)} by {' and '.join(s.attributes)} for {s.objective} ({s.hessian}), "
        f"warm-up {s.warmup_epochs} of {config.search_epochs} epochs, seed {config.seed} → {config.out}"
    )


def _finish(config: SearchRun, module: Search, recorder: Recorder) -> dict[str, Any]:
    assert module.outer is not None
    folder, trajectory = recorder.folder, module.trajectory
    title = f"{config.data.name}, {'+'.join(config.search.attributes)}, {module.objective.name}, seed {config.seed}"
    plot_trajectory(trajectory, module.outer.map.cpu(), module.train_counts, folder / "alpha.png", title)
    summary = {
        "objective": module.objective.name,
        "value": module.objective.value(),
        "start_sdev": trajectory.start_sdev,
        "outer_steps": len(trajectory.times),
        "seconds": recorder.rows[-1]["seconds"],
        "val": {n.removeprefix("val_"): v for n, v in recorder.rows[-1].items() if n.startswith("val_")},
        "config_digest": config.digest(),
        **artefacts.provenance(),
        "config": config.to_mapping(),
    }
    artefacts.write_model(folder / "model.safetensors", module.model)
    artefacts.write_summary(folder / SUMMARY, summary, "policy.json", "trajectory.npz", "model.safetensors")
    return summary

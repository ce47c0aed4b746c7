"""A run from config to artefacts, in a folder of its own:

    config.toml            the resolved settings
    run.lock               held while the run goes on
    checkpoints/           last.ckpt, at the end of each epoch, from which `--resume` goes on, and previous.ckpt
    metrics.csv            per epoch: losses, objectives on validation, learning rate, seconds
    class_errors.csv       per epoch: validation error of each class
    classes.csv            at the end: each class's samples, errors and last-layer norm
    logits.npz             of validation and test, float16, ready for `capri tune`
    model.safetensors      the network
    summary.json           objectives on validation and test, time, versions, commit, seeds
    curves.png             learning curves

Test data are touched once, after the last epoch.
"""

from __future__ import annotations

import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException

from capri._checks import AbsentClassWarning, InputError
from capri._stopping import Stopped
from capri.bilevel.losses import ParametricCrossEntropy
from capri.data.modules import SplitsDataModule
from capri.train import artefacts
from capri.train.averaging import WeightAverage
from capri.train.checkpoints import AtomicCheckpointIO, Identity
from capri.train.claim import claimed, started_from
from capri.train.config import SUMMARY, Config, TrainerConfig
from capri.train.experiment import identity, make_data, make_model, make_strategy, module_settings
from capri.train.module import Classifier
from capri.train.precision import settled
from capri.train.recorder import Recorder, RunProgress

C = TypeVar("C", bound=Config)


def run(config: Config, *, resume: bool = False) -> dict[str, Any]:
    """Train as configured and write all files of the run.

    Parameters
    ----------
    config : Config
        The settings; ``config.out`` is the folder.
    resume : bool
        Go on from the last checkpoint in that folder, if there is one.

    Returns
    -------
    dict
        The summary, as in ``summary.json``; empty in all processes but the first.
    """
    with begun(config, resume) as (config, folder, data):
        splits = data.splits
        classifier = Classifier(
            make_model(config, splits),
            ParametricCrossEntropy(make_strategy(config.loss, splits)),
            **module_settings(config, splits),
        )
        recorder = Recorder(folder, data.generator)
        average = WeightAverage(config.trainer.ema) if config.trainer.ema else None
        trainer = make_trainer(config, recorder, identity(config, splits), *([average] if average else []))
        if trainer.is_global_zero:
            print(describe(config, data), flush=True)
        fit(trainer, classifier, folder, resume, datamodule=data)
        if average:
            average.keep(classifier.model)
        with quiet():
            return _finish(config, data, classifier, recorder) if trainer.is_global_zero else {}


@contextmanager
def begun(config: C, resume: bool) -> Iterator[tuple[C, Path, SplitsDataModule]]:
    """How all runs begin: the device is there, the folder is this run's, seeds are set, and data are read."""
    _check_device(config.trainer)
    config = settled(config, resume)
    with claimed(config, resume) as folder:
        L.seed_everything(config.seed, verbose=False)
        yield config, folder, make_data(config)


def _check_device(settings: TrainerConfig) -> None:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there["gpu"] = any(there.values())
    if not there.get(settings.accelerator, True):
        raise InputError(f"trainer.accelerator is {settings.accelerator!r}, which torch does not find here; use auto.")
    if settings.sync_batchnorm and settings.accelerator == "cpu":
        raise InputError(
            "trainer.sync_batchnorm is true and trainer.accelerator 'cpu'; torch has it for GPUs only, set it to false."
        )


def fit(trainer: L.Trainer, module: L.LightningModule, folder: Path, resume: bool, **data: Any) -> None:
    """Train, resumed from the checkpoint if there is one. SIGTERM stops it; Lightning would end with exit code 0."""
    try:
        with quiet():
            trainer.fit(module, ckpt_path=started_from(folder) if resume else None, **data)
    except SIGTERMException:
        raise Stopped(signal.SIGTERM) from None


def make_trainer(config: Config, recorder: Recorder, of: Identity | None = None, *others: Callback) -> L.Trainer:
    """Lightning's trainer; our recorder writes metrics and checkpoints (`of` this run), so its own are off."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    settings = config.trainer
    callbacks: list[Callback] = [*others, recorder, *([RunProgress()] if sys.stdout.isatty() else [])]
    return L.Trainer(
        max_epochs=settings.max_epochs,
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        precision=settings.precision,  # type: ignore[arg-type]  # auto was settled before
        sync_batchnorm=settings.sync_batchnorm,
        deterministic=settings.deterministic,
        gradient_clip_val=settings.gradient_clip or None,
        limit_train_batches=settings.limit_train_batches or None,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO(of)],
        logger=TensorBoardLogger(recorder.folder, name="tensorboard", version="") if settings.tensorboard else False,
        log_every_n_steps=1,
        enable_checkpointing=True,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without warnings that say nothing new."""
    with warnings.catch_warnings():
        # Lightning's own use of torch, and its advice on workers, which batches from memory do not need.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.simplefilter("ignore", AbsentClassWarning)  # said once, before the run
        yield


def describe(config: Config, data: SplitsDataModule) -> str:
    """What is about to run, in two lines."""
    splits, counts = data.splits, data.splits.train_counts
    return (
        f"{config.data.name}: {len(splits.train):,} training samples ({counts.max():,} … {counts.min():,} per class, "
        f"{splits.n_classes} classes), {len(splits.val):,} validation, {len(splits.test):,} test ({splits.protocol})\n"
        f"{config.model.name}, {config.loss.strategy}, {config.trainer.max_epochs} epochs, seed {config.seed}, "
        f"{torch.get_num_threads()} thread(s), {config.trainer.precision} → {config.out}"
    )


def _finish(config: Config, data: SplitsDataModule, classifier: Classifier, recorder: Recorder) -> dict[str, Any]:
    """Logits, tables, weights, summary and curves."""
    folder, splits, model = recorder.folder, data.splits, classifier.model
    val, test = (artefacts.predict_logits(model, data.batches(part)) for part in (splits.val, splits.test))
    norms = artefacts.last_layer_norms(model)
    summary = {
        "test": artefacts.objectives(splits.test, test, splits, config.data.absent),
        "val": artefacts.objectives(splits.val, val, splits, config.data.absent),
        "epochs": len(recorder.rows),
        "seconds": recorder.rows[-1]["seconds"],
        "protocol": splits.protocol,
        "samples": {"train": len(splits.train), "val": len(splits.val), "test": len(splits.test)},
        "seeds": {"run": config.seed, "data": config.data.seed},
        "config_digest": config.digest(),
        **artefacts.provenance(),
        "config": config.to_mapping(),
    }
    card = {name: value for name, value in summary.items() if name not in ("versions", "machine")}
    artefacts.write_logits(folder / "logits.npz", splits, val, test, norms, card)
    artefacts.write_class_table(folder / "classes.csv", splits, val, test, norms)
    artefacts.write_model(folder / "model.safetensors", model)
    title = (
        f"{config.data.name}, {config.model.name}, {config.loss.strategy}, preset {config.preset}, seed {config.seed}"
    )
    artefacts.plot_curves(recorder.rows, folder / "curves.png", title)
    artefacts.write_summary(folder / SUMMARY, summary, "logits.npz", "model.safetensors")
    return summary

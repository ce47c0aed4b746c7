"""A search by proxy: networks on images are too dear for a population, heads on the features of one of them are not.

    network/               a training run as configured, on the training part alone, unless search.init names weights
    features.safetensors   what its last layer sees: of each training image in `VIEWS` augmentations, and of validation

A strategy is judged by a linear head that trains on the features of the training samples as the network's own last
layer did, on augmented images and by the same recipe, and decides on the validation samples. The network has fitted its
training samples: on them it is surer than on any others, and a head that was judged there, by folds of them or not,
would be judged by what the network remembers. So these only train, as in the training that the strategy is for, and
only samples that the network has never seen judge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from capri._checks import InputError
from capri._files import write_atomically
from capri._provenance import file_digest
from capri.data.modules import SplitsDataModule
from capri.data.splits import Splits
from capri.train import artefacts
from capri.train.config import SUMMARY, DataConfig, LossConfig
from capri.train.experiment import make_pretrained_model
from capri.train.ledger import Ledger
from capri.train.precision import on_gpu
from capri.train.runner import run
from capri.train.search_config import SearchRun
from capri.train.settings import build

VIEWS = 4  # augmentations of each training image
NETWORK, FEATURES, MODEL = "network", "features.safetensors", "model.safetensors"
DATA = ("name", "profile", "imbalance", "n_max", "counts", "val_fraction", "noise", "noise_excludes_true", "seed")


class Features(NamedTuple):
    """What heads are trained and judged on: features (N, D), classes (N,), and whether a sample judges or trains."""

    x: Tensor
    y: Tensor
    judges: Tensor

    @classmethod
    def of(cls, splits: Splits) -> Features:
        """Those that the data are: training samples train, and validation samples judge."""
        x, y = (np.concatenate([getattr(part, name) for part in (splits.train, splits.val)]) for name in ("x", "y"))
        judges = torch.arange(len(y)) >= len(splits.train)
        return cls(torch.from_numpy(x).float(), torch.from_numpy(y).long(), judges)


def proxy_features(config: SearchRun, data: SplitsDataModule, folder: Path, resume: bool, ledger: Ledger) -> Features:
    """The features of the run's network, which is trained where it is not given; computed once and kept in the folder.

    A file that the ledger does not know may be of another run, which was stopped before it had judged anything.
    """
    path = folder / FEATURES
    if "features" not in ledger or not path.exists():
        found = _computed(config, data, _given(config) or _network(config, folder / NETWORK, resume))
        write_atomically(path, safetensors.torch.save(found._asdict()))
    digest = torch.frombuffer(bytearray.fromhex(file_digest(path)), dtype=torch.uint8)
    if not torch.equal(ledger.once("features", lambda: digest), digest):
        raise InputError(
            f"{path} is not what this search began with. Put it back, or delete it and it is computed again from the "
            "same network; or start anew in another folder with --out."
        )
    return Features(**safetensors.torch.load_file(path))


def _network(config: SearchRun, folder: Path, resume: bool) -> str:
    """The weights of a network that the run's settings train: on the training part alone, with search.tau as its τ."""
    s, epochs = config.search, config.search.network_epochs or config.trainer.max_epochs
    trained = config.training(
        out=str(folder),
        loss=LossConfig(strategy="la", tau=s.tau) if s.tau else LossConfig(),
        trainer=replace(config.trainer, max_epochs=epochs),
    )
    if not (resume and (folder / SUMMARY).exists()):
        run(trained, resume=resume)
    elif artefacts.read_summary(folder / SUMMARY)["config_digest"] != trained.digest():
        raise InputError(f"{folder} holds a network of other settings; delete it, and it is trained anew.")
    return str(folder / MODEL)


def _computed(config: SearchRun, data: SplitsDataModule, weights: str) -> Features:
    device = torch.device("cuda" if on_gpu(config.trainer) else "cpu")
    model = make_pretrained_model(config, data.splits, weights).to(device)
    augmented = config.data.augment or config.data.operations != "none" or config.data.cutout > 0
    views = VIEWS if augmented else 1
    print(f"features of {views} × {len(data.splits.train):,} + {len(data.splits.val):,} images", flush=True)
    data.generator.manual_seed(config.seed)
    parts = [data.batches(data.splits.train, training=True) for _ in range(views)] + [data.batches(data.splits.val)]
    found = [artefacts.features(model, part) for part in parts]
    x, y = (torch.cat(tensors) for tensors in zip(*found, strict=True))
    if not bool(torch.isfinite(x).all()):
        raise FloatingPointError(
            f"the features of {weights} are not finite; lower optimizer.lr ({config.optimizer.lr})."
        )
    return Features(x, y, torch.arange(len(y)) >= len(y) - len(data.splits.val))


def _given(config: SearchRun) -> str:
    """search.init. A network that was trained on other samples may have seen those that judge: its summary says so."""
    weights = config.search.init
    beside = Path(weights).parent / SUMMARY
    if Path(weights).name != MODEL or not beside.exists():
        return weights
    theirs = build(DataConfig, artefacts.read_summary(beside)["config"]["data"])
    other = [name for name in DATA if getattr(theirs, name) != getattr(config.data, name)]
    if other:
        raise InputError(
            f"search.init: {weights} was trained with other {', '.join(f'data.{name}' for name in other)}, and may "
            "have seen the samples that judge strategies here. Train it on the same part of the data: "
            f"data.{other[0]}={getattr(config.data, other[0])}."
        )
    return weights

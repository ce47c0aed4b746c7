"""From a config to its parts: data, network, strategy. Bilevel search and retraining build on the same three."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from numpy.typing import NDArray
from torch import nn

from capri._checks import AbsentClassWarning, InputError, Ints, check_vector
from capri._provenance import data_digest
from capri.attributes import frequency
from capri.data.augmentation import in_turn, random_crop_flip, random_cutout, random_operation
from capri.data.batches import Augment, image_scaling
from capri.data.cifar import RELEASES, CifarRelease, load_cifar
from capri.data.features import CLINC150, load_features
from capri.data.imagenet_lt import MEAN, STD, load_imagenet_lt
from capri.data.modules import ArrayDataModule, ImageDataModule, SplitsDataModule
from capri.data.profiles import exponential_counts, step_counts
from capri.data.splits import Part, Splits, assemble
from capri.errors import Absent
from capri.models import LinearHead, MLPHead, ResNet32, ResNet50
from capri.policy import Policy
from capri.strategy import Strategy
from capri.train.checkpoints import Identity
from capri.train.config import CIFAR, Config, DataConfig, LossConfig


def make_data(config: Config) -> SplitsDataModule:
    """The data module of a run: which samples (seeded by data.seed) in which order (seeded by seed)."""
    data, batch, seed = config.data, config.trainer.batch_size, config.seed
    splits = make_splits(data)
    if data.name == "imagenet-lt":
        return ImageDataModule(
            splits,
            batch,
            seed,
            mean=MEAN,
            std=STD,
            size=data.image_size,
            augment=data.augment,
            workers=data.workers,
        )
    if data.name in CIFAR:
        release = RELEASES[data.name.removesuffix("-lt")]
        return ArrayDataModule(
            splits,
            batch,
            seed,
            prepare=image_scaling(release.mean, release.std),
            augment=_augmentation(data, release),
        )
    return ArrayDataModule(splits, batch, seed)


def _augmentation(data: DataConfig, release: CifarRelease) -> Augment | None:
    """Crop and flip, then an operation, then Cutout in the mean colour, as far as each is asked for."""
    asked = [random_crop_flip()] if data.augment else []
    if data.operations == "one":
        asked.append(random_operation())
    if data.cutout:
        asked.append(random_cutout(data.cutout, [255 * mean for mean in release.mean]))
    return in_turn(*asked) if asked else None


def make_splits(config: DataConfig) -> Splits:
    """Read the files, draw the long tail, split."""
    root = Path(config.root)
    val: Part | None = None
    if config.name == "imagenet-lt":
        train, test, val, names = load_imagenet_lt(root, config.n_classes)
    elif config.name in CIFAR:
        train, test, names = load_cifar(config.name.removesuffix("-lt"), root, verify=config.verify)
    else:
        train, test, val, names = load_features(root / (config.file or CLINC150))
    splits = assemble(
        train,
        test,
        names,
        val=val,
        counts=profile_counts(config, train.y, len(names)),
        val_fraction=config.val_fraction,
        noise=config.noise,
        exclude_true=config.noise_excludes_true,
        seed=config.seed,
    )
    _check_absent(splits, config.absent)
    return splits


def _check_absent(splits: Splits, absent: Absent) -> None:
    """Before a run begins: a class that cannot be judged is an error, or is named in a warning."""
    for title, part in (("validation", splits.val), ("test", splits.test)):
        names = [repr(splits.class_names[k]) for k in splits.absent(part)]
        if not names:
            continue
        named = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        if absent == "error":
            raise InputError(
                f"class {named} has no {title} sample, so its error is undefined. Set data.absent=ignore to leave such "
                "classes out of the objectives, or give each at least 2 samples (data.imbalance, data.n_max)."
            )
        warnings.warn(
            f"class {named} has no {title} sample and is left out of the objectives (data.absent=ignore).",
            AbsentClassWarning,
            stacklevel=3,
        )


def profile_counts(config: DataConfig, y: Ints, n_classes: int) -> Ints | None:
    """Samples per class to draw; None for all of them.

    CIFAR's classes keep their usual order, frequent to rare. CLINC150's are in alphabetical order of meaning, so theirs
    is a seeded one.
    """
    if config.profile == "all":
        return None
    if config.profile == "counts":
        if len(config.counts) != n_classes:
            raise InputError(
                f"data.counts has {len(config.counts)} entries for {n_classes} classes; give one per class."
            )
        return np.array(config.counts, dtype=np.int64)
    n_max = config.n_max or int(np.bincount(y, minlength=n_classes).max())
    make = exponential_counts if config.profile == "exponential" else step_counts
    counts = make(n_max, n_classes, config.imbalance)
    if config.name == "clinc150-lt":
        counts = np.random.default_rng(config.seed).permutation(counts)
    return counts


def identity(config: Config, splits: Splits) -> Identity:
    """What a checkpoint of this run is of. Of image files the names and sizes count, of all other data every bit."""
    arrays: list[Any] = [np.array(splits.class_names)]
    for part in (splits.train, splits.val, splits.test):
        arrays += [part.y, *(_image_files(part.x, config.data.root) if config.data.name == "imagenet-lt" else [part.x])]
    return Identity(config.digest(), data_digest(*arrays))


def _image_files(paths: NDArray[Any], root: str) -> tuple[NDArray[Any], NDArray[Any]]:
    names = [os.path.relpath(path, root) for path in paths.tolist()]
    return np.array(names), np.array([Path(path).stat().st_size for path in paths.tolist()])


def make_model(config: Config, splits: Splits) -> nn.Module:
    """The network for these data."""
    model, k = config.model, splits.n_classes
    images = config.data.name in ("cifar10-lt", "cifar100-lt", "imagenet-lt")
    if images != model.name.startswith("resnet"):
        fitting = "resnet32 or resnet50" if images else "linear or mlp"
        raise InputError(f"model.name is {model.name!r}, which does not take {config.data.name}; use {fitting}.")
    if model.name == "resnet32":
        return ResNet32(k, model.shortcut)
    if model.name == "resnet50":
        return ResNet50(k)
    n_features = splits.train.x.shape[1]
    if model.name == "linear":
        return LinearHead(n_features, k)
    return MLPHead(n_features, k, model.hidden, model.dropout)


def make_pretrained_model(config: Config, splits: Splits, weights: str) -> nn.Module:
    """The network, from a file of weights where one is named; its last layer is always new."""
    model = make_model(config, splits)
    if not weights:
        return model
    try:
        state = safetensors.torch.load_file(weights)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"search.init: {weights} cannot be read ({error}).") from None
    body = {name: tensor for name, tensor in state.items() if not name.startswith("fc.")}
    try:
        missing, unexpected = model.load_state_dict(body, strict=False)
    except RuntimeError:  # the same names in other shapes
        missing, unexpected = [], ["shapes"]
    if unexpected or any(not name.startswith("fc.") for name in missing):
        raise InputError(f"search.init: {weights} is of another network than {config.model.name}.")
    return model


def module_settings(config: Config, splits: Splits) -> dict[str, Any]:
    """What a `Classifier` is told besides its network and its loss."""
    return {
        "train_counts": splits.train_counts,
        "class_names": splits.class_names,
        "optimizer": config.optimizer,
        "schedule": config.schedule,
        "mixup": config.trainer.mixup,
        "channels_last": config.trainer.channels_last,
        "absent": config.data.absent,
    }


def make_strategy(config: LossConfig, splits: Splits) -> Strategy:
    """The strategy to train with, scaled and with label smoothing as configured, or as a policy has it."""
    strategy = _named_strategy(config, splits)
    strategy = replace(strategy, delta=config.scale * strategy.delta)
    if not config.label_smoothing:
        return strategy
    if strategy.smoothing.any():
        raise InputError(
            f"loss.label_smoothing is {config.label_smoothing}, but {config.policy} has its own per class; set it to 0."
        )
    return replace(strategy, smoothing=np.full(splits.n_classes, config.label_smoothing))


def _named_strategy(config: LossConfig, splits: Splits) -> Strategy:
    """The named losses are strategies of one loss."""
    counts = splits.train_counts
    if config.strategy == "ce":
        return Strategy.of(splits.n_classes)
    if config.strategy == "weighted":
        if not config.weights:
            return Strategy.weighted(1 / frequency(counts))
        return Strategy.weighted(check_vector(config.weights, "loss.weights", splits.n_classes, low=0))
    if config.strategy == "la":
        return Strategy.logit_adjustment(counts, config.tau)
    if config.strategy == "cdt":
        return Strategy.cdt(counts, config.gamma)
    if config.strategy == "vs":
        return Strategy.vs(counts, config.tau, config.gamma)
    return _policy_strategy(config, splits)


def _policy_strategy(config: LossConfig, splits: Splits) -> Strategy:
    if not config.policy:
        raise InputError("loss.policy is empty; name the file that `capri tune -o policy.json` wrote.")
    policy = Policy.load(config.policy)
    if policy.class_names != splits.class_names:
        raise InputError(
            f"{config.policy} is of classes {', '.join(policy.class_names[:3])}, …, the data of "
            f"{', '.join(splits.class_names[:3])}, …; tune a policy on the same classes in the same order."
        )
    if config.transfer == "unchanged":
        return policy.strategy
    if policy.side == "loss":
        raise InputError(
            f"transfer is {config.transfer!r}, but {config.policy} is a loss already and is taken as it is; "
            "leave transfer at 'unchanged'. Only a policy tuned post-hoc can be inverted."
        )
    return policy.strategy.transferred()

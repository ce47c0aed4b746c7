"""What a training run is told: data, model, loss, optimizer, schedule, trainer (`capri train --print-config`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from capri._checks import InputError
from capri.train.presets import PRESETS
from capri.train.settings import build, merge, option, parse_assignments, read_toml, to_mapping, to_toml


@dataclass(frozen=True)
class DataConfig:
    """Which samples, and who validates: see `capri.data.splits`."""

    name: Literal["cifar10-lt", "cifar100-lt", "imagenet-lt", "clinc150-lt", "features"] = option(
        "cifar10-lt", "cifar10-lt, cifar100-lt, imagenet-lt, clinc150-lt or features"
    )
    root: str = option("data", "folder that holds the data files in their original layout")
    file: str = option("", "for features: the .npz below root")
    profile: Literal["exponential", "step", "counts", "all"] = option(
        "exponential", "long tail: exponential, step, counts, or all samples as they are"
    )
    imbalance: float = option(100.0, "ρ = n_max/n_min of exponential and step")
    n_max: int = option(0, "samples of the most frequent class; 0: as many as there are")
    counts: tuple[int, ...] = option((), "for profile counts: samples per class")
    val_fraction: float = option(
        0.0, "share of train, per class, that validates (bilevel: 0.2); 0: official val, or half of test, balanced"
    )
    absent: Literal["error", "ignore"] = option(
        "error", "a class without validation or test sample: error, or ignore it in the objectives"
    )
    noise: float = option(0.0, "label noise: r_k ~ U(0, noise); the paper has 0.5")
    noise_excludes_true: bool = option(False, "a selected label is redrawn among the other classes")
    augment: bool = option(True, "crop and flip (images)")
    verify: bool = option(False, "check the published digests of CIFAR's files")
    image_size: int = option(224, "for imagenet-lt: side of the crops")
    n_classes: int = option(1000, "for imagenet-lt: fewer for a trial tree")
    workers: int = option(0, "for imagenet-lt: processes that decode images")
    seed: int = option(0, "of the draw, the split and the noise")


@dataclass(frozen=True)
class ModelConfig:
    """Which network."""

    name: Literal["resnet32", "resnet50", "linear", "mlp"] = option("resnet32", "resnet32, resnet50, linear or mlp")
    shortcut: Literal["A", "B"] = option("A", "of resnet32")
    hidden: tuple[int, ...] = option((512,), "layers of mlp")
    dropout: float = option(0.0, "of mlp")


@dataclass(frozen=True)
class LossConfig:
    """Which strategy the parametric cross-entropy trains with."""

    strategy: Literal["ce", "weighted", "la", "cdt", "vs", "policy"] = option(
        "ce", "ce, weighted, la, cdt, vs or policy"
    )
    tau: float = option(1.0, "of la and vs: l = τ log π")
    gamma: float = option(0.15, "of cdt and vs: Δ = (π/π_max)^γ")
    weights: tuple[float, ...] = option((), "of weighted: ω per class; empty: 1/π")
    policy: str = option("", "of policy: the file that `capri tune` wrote")
    transfer: Literal["unchanged", "inverse"] = option("unchanged", "of policy: Δ, l as tuned (the paper) or 1/Δ, l/Δ")
    label_smoothing: float = option(0.0, "ε")


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD or AdamW."""

    name: Literal["sgd", "adamw"] = option("sgd", "sgd or adamw")
    lr: float = option(0.2, "the highest learning rate")
    momentum: float = option(0.9, "of sgd")
    nesterov: bool = option(True, "of sgd")
    weight_decay: float = option(5e-4, "on all parameters")


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning rate over time: see `capri.train.schedules`."""

    name: Literal["onecycle", "cosine", "step", "constant"] = option("onecycle", "onecycle, cosine, step or constant")
    warmup: float = option(0.15, "share of the run over which the learning rate rises")
    milestones: tuple[int, ...] = option((), "of step: epochs at which it drops")
    factor: float = option(0.1, "of step: by what")


@dataclass(frozen=True)
class TrainerConfig:
    """How long and on what."""

    max_epochs: int = option(40, "epochs")
    batch_size: int = option(128, "of all devices together")
    mixup: float = option(0.0, "α of Beta(α, α); 0: none")
    channels_last: bool = option(True, "memory layout of images")
    gradient_clip: float = option(0.0, "largest norm of the gradient; 0: none")
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"] = option("32-true", "Lightning's precision flag")
    accelerator: str = option("auto", "Lightning's accelerator: auto, cpu, gpu, …")
    devices: int = option(1, "devices per machine (DDP where more than 1)")
    num_nodes: int = option(1, "machines")
    sync_batchnorm: bool = option(False, "on several GPUs: normalise over the joined batch, not each share")
    deterministic: bool = option(True, "the same run twice gives the same bits")
    tensorboard: bool = option(False, "write TensorBoard events, too")
    limit_train_batches: int = option(0, "batches per epoch, for trials; 0: all")


@dataclass(frozen=True)
class Config:
    """All settings of a training run. ``capri train --print-config`` explains every one of them.

    Parameters
    ----------
    preset : str
        The preset that the defaults come from.
    seed : int
        Of initial weights, order and augmentation.
    out : str
        Folder of the run's files.
    data : DataConfig
        Which samples, the long tail, and which of them validate.
    model : ModelConfig
        Which network.
    loss : LossConfig
        Which strategy the parametric cross-entropy trains with.
    optimizer : OptimizerConfig
        SGD or AdamW, and its settings.
    schedule : ScheduleConfig
        How the learning rate changes over time.
    trainer : TrainerConfig
        How long, in which batches, and on which devices.
    """

    preset: str = option("cpu", f"where the defaults come from: {', '.join(PRESETS)}")
    seed: int = option(0, "of initial weights, order and augmentation")
    out: str = option("runs/train", "folder of the run's files")
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        for name, value, low in (
            ("trainer.max_epochs", self.trainer.max_epochs, 1),
            ("trainer.batch_size", self.trainer.batch_size, 1),
            ("trainer.mixup", self.trainer.mixup, 0),
            ("trainer.devices", self.trainer.devices, 1),
            ("trainer.num_nodes", self.trainer.num_nodes, 1),
            ("data.n_max", self.data.n_max, 0),
            ("optimizer.lr", self.optimizer.lr, 0),
        ):
            if not value >= low:
                raise InputError(f"{name} is {value}; it must be at least {low}.")
        for name, share in (
            ("data.val_fraction", self.data.val_fraction),
            ("schedule.warmup", self.schedule.warmup),
            ("loss.label_smoothing", self.loss.label_smoothing),
        ):
            if not 0 <= share < 1:
                raise InputError(f"{name} is {share}; it must lie in [0, 1).")

    def to_toml(self, *, comments: bool = False) -> str:
        """All settings as TOML, which `capri train` reads.

        Parameters
        ----------
        comments : bool
            Explain each setting on its line.

        Returns
        -------
        str
        """
        return to_toml(self, comments=comments)

    def to_mapping(self) -> dict[str, Any]:
        """All settings as nested mappings.

        Returns
        -------
        dict
        """
        return to_mapping(self)

    def digest(self) -> str:
        """A digest of everything that decides the result; where files lie does not.

        Returns
        -------
        str
            16 hexadecimal digits.
        """
        bare = replace(self, out="", data=replace(self.data, root=""))
        return hashlib.sha256(bare.to_toml().encode()).hexdigest()[:16]


def resolve(
    file: str | Path | None = None,
    *,
    preset: str | None = None,
    out: str | None = None,
    assignments: Sequence[str] = (),
) -> Config:
    """Preset, then the file, then ``--set``: each over the one before."""
    return resolve_as(Config, PRESETS, file, preset, out, assignments)


C = TypeVar("C", bound=Config)


def resolve_as(
    kind: type[C],
    presets: Mapping[str, Mapping[str, Any]],
    file: str | Path | None,
    preset: str | None,
    out: str | None,
    assignments: Sequence[str],
) -> C:
    """`resolve` for runs that know more than training."""
    given = _read(Path(file)) if file is not None else {}
    given = merge(given, parse_assignments(assignments))
    if preset is not None:
        given["preset"] = preset
    if out is not None:
        given["out"] = out
    name = given.get("preset", "cpu")
    if name not in presets:
        raise InputError(f"preset is {name!r}; it must be one of {', '.join(presets)}.")
    return build(kind, merge(presets[name], given))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"config {path} cannot be read ({error}); `capri train --print-config` prints one.") from None
    return read_toml(text, str(path))

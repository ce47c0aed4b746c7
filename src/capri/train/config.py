"""What a training run is told: data, model, loss, optimizer, schedule, trainer (`capri train --print-config`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from capri._checks import InputError, check_vector
from capri._files import read_text
from capri._provenance import file_digest
from capri.train.presets import PRESETS
from capri.train.settings import build, merge, option, parse_assignments, read_toml, to_mapping, to_toml

#: In the folder of a run: its checkpoint, the one of the epoch before, and what it ends with.
LAST, PREVIOUS, SUMMARY = Path("checkpoints", "last.ckpt"), Path("checkpoints", "previous.ckpt"), Path("summary.json")


#: The least that settings may be, and those that are shares of a whole and less than it.
LEAST: Mapping[str, float] = {
    "seed": 0, "data.seed": 0, "data.n_max": 0, "data.imbalance": 1, "data.noise": 0, "data.workers": 0,
    "data.image_size": 1, "data.n_classes": 2, "data.cutout": 0, "optimizer.lr": 0, "optimizer.weight_decay": 0,
    "optimizer.sam": 0, "optimizer.sam_every": 1, "trainer.max_epochs": 1, "trainer.batch_size": 1, "trainer.mixup": 0,
    "trainer.gradient_clip": 0, "trainer.devices": 1, "trainer.num_nodes": 1, "trainer.limit_train_batches": 0,
}  # fmt: skip
SHARES = (
    "data.val_fraction",
    "model.dropout",
    "loss.label_smoothing",
    "optimizer.momentum",
    "schedule.warmup",
    "trainer.ema",
)
CIFAR, CIFAR_SIDE = ("cifar10-lt", "cifar100-lt"), 32  # pixels
MOST_SEED = 2**32 - 1  # of NumPy's global state


@dataclass(frozen=True)
class DataConfig:
    """Which samples, and who validates: see `capri.data.splits`."""

    name: Literal["cifar10-lt", "cifar100-lt", "imagenet-lt", "clinc150-lt", "features"] = option(
        "cifar10-lt", "data set: cifar10-lt, cifar100-lt, imagenet-lt, clinc150-lt or features"
    )
    root: str = option("data", "folder that holds the data files in their original layout")
    file: str = option("", "for features and clinc150-lt: the .npz file below root")
    profile: Literal["exponential", "step", "counts", "all"] = option(
        "exponential", "shape of the long tail: exponential, step, counts, or all (every sample is used)"
    )
    imbalance: float = option(100.0, "for exponential and step: size of the largest class over that of the smallest")
    n_max: int = option(0, "for exponential and step: samples of the largest class; 0: as many as there are")
    counts: tuple[int, ...] = option((), "for profile counts: samples of each class")
    val_fraction: float = option(
        0.0, "share of each training class used for validation; 0: the official validation part, or else half of test"
    )
    absent: Literal["error", "ignore"] = option(
        "error", "what to do about classes without validation or test samples: error, or ignore"
    )
    noise: float = option(0.0, "label noise: each class gets a rate between 0 and this; the paper has 0.5")
    noise_excludes_true: bool = option(False, "noisy labels are drawn among the other classes only, never the true one")
    augment: bool = option(True, "crop and flip training images at random")
    operations: Literal["none", "one"] = option(
        "none", "for cifar: random operations on a training image: none, or one (turn, shear, shift, tint or solarise)"
    )
    cutout: int = option(0, "for cifar: side in pixels of the square that is hidden in a training image; 0: none")
    verify: bool = option(False, "check the published digests of CIFAR's files")
    image_size: int = option(224, "for imagenet-lt: side of the image crops in pixels")
    n_classes: int = option(1000, "for imagenet-lt: number of classes; fewer for a trial on a small copy of the data")
    workers: int = option(0, "for imagenet-lt: processes that decode images")
    seed: int = option(0, "seed of the long tail, the split and the label noise")


@dataclass(frozen=True)
class ModelConfig:
    """Which network."""

    name: Literal["resnet32", "resnet50", "linear", "mlp"] = option(
        "resnet32", "network: resnet32, resnet50, linear or mlp"
    )
    shortcut: Literal["A", "B"] = option(
        "A", "for resnet32: how shortcuts widen, A (zero padding) or B (1x1 convolution)"
    )
    hidden: tuple[int, ...] = option((512,), "for mlp: width of each hidden layer")
    dropout: float = option(0.0, "for mlp: dropout probability")


@dataclass(frozen=True)
class LossConfig:
    """Which strategy the parametric cross-entropy trains with."""

    strategy: Literal["ce", "weighted", "la", "cdt", "vs", "policy"] = option(
        "ce", "loss: ce (cross-entropy), weighted, la (logit adjustment), cdt, vs, or policy (from a file)"
    )
    tau: float = option(1.0, "for la and vs: strength τ of the offsets, l = τ log π")
    gamma: float = option(0.15, "for cdt and vs: strength γ of the multipliers, Δ = (π/π_max)^γ")
    weights: tuple[float, ...] = option((), "for weighted: weight ω of each class; empty: one over its frequency")
    policy: str = option("", "for policy: the policy file, from `capri search` or `capri tune`")
    transfer: Literal["unchanged", "inverse"] = option(
        "unchanged", "for policies from `capri tune`: unchanged takes Δ and l as tuned (the paper), inverse 1/Δ and l/Δ"
    )
    scale: float = option(1.0, "one multiplier Δ of the scores for all classes, besides that of the strategy; 1: none")
    label_smoothing: float = option(0.0, "share of each target that is spread over the classes, by softmax(l); 0: none")


@dataclass(frozen=True)
class OptimizerConfig:
    """SGD or AdamW."""

    name: Literal["sgd", "adamw"] = option("sgd", "optimizer: sgd or adamw")
    lr: float = option(0.2, "the highest learning rate of the schedule")
    momentum: float = option(0.9, "for sgd: momentum")
    nesterov: bool = option(True, "for sgd: Nesterov momentum")
    weight_decay: float = option(5e-4, "weight decay of all parameters")
    sam: float = option(0.0, "sharpness-aware minimisation: radius ρ of the step up before a step down; 0: none")
    sam_every: int = option(1, "for sam: every n-th step only, the others are plain; 1: each step, at twice the time")


@dataclass(frozen=True)
class ScheduleConfig:
    """Learning rate over time: see `capri.train.schedules`."""

    name: Literal["onecycle", "cosine", "step", "constant"] = option(
        "onecycle", "learning rate over time: onecycle, cosine, step or constant"
    )
    warmup: float = option(0.15, "share of the run over which the learning rate rises")
    milestones: tuple[int, ...] = option((), "for step: epochs at which the learning rate drops")
    factor: float = option(0.1, "for step: the factor by which it drops")


@dataclass(frozen=True)
class TrainerConfig:
    """How long and on what."""

    max_epochs: int = option(40, "epochs of training")
    batch_size: int = option(128, "training samples per step, of all devices together")
    mixup: float = option(0.0, "mixup: α of the Beta(α, α) that mixes pairs of samples; 0: none")
    ema: float = option(
        0.0,
        "decay of the moving average of the weights, which is what is validated and kept; 0: none, the last weights",
    )
    channels_last: bool = option(True, "keep images in the channels-last memory layout")
    gradient_clip: float = option(0.0, "clip gradients to this norm; 0: no clipping")
    precision: Literal["auto", "32-true", "bf16-mixed", "16-mixed"] = option(
        "32-true", "arithmetic: 32-true (single), bf16-mixed, 16-mixed, or auto (bf16 where the device computes in it)"
    )
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu"] = option(
        "auto", "where to train: auto, cpu, gpu, cuda, mps or tpu (Lightning's accelerator)"
    )
    devices: int = option(1, "devices per machine; several train in parallel (DDP)")
    num_nodes: int = option(1, "number of machines")
    sync_batchnorm: bool = option(
        False, "on several GPUs: batch normalisation over the joined batch, not each GPU's share"
    )
    deterministic: bool = option(True, "the same run twice gives the same bits")
    tensorboard: bool = option(False, "write TensorBoard events, too")
    limit_train_batches: int = option(0, "batches per epoch, to try things out; 0: all")


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
    seed: int = option(0, "seed of initial weights, order of samples and augmentation")
    out: str = option("runs/train", "folder of the run's files")
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        check_least(self, LEAST)
        if self.seed > MOST_SEED:
            raise InputError(f"seed is {self.seed}; it must be at most {MOST_SEED}.")
        for name in SHARES:
            if not 0 <= setting(self, name) < 1:
                raise InputError(f"{name} is {setting(self, name)}; it must lie in [0, 1).")
        if self.optimizer.name == "sgd" and self.optimizer.nesterov and not self.optimizer.momentum:
            raise InputError(
                "optimizer.nesterov is true and optimizer.momentum 0; Nesterov's method needs momentum: give some, or "
                "set optimizer.nesterov=false."
            )
        if self.optimizer.sam and self.trainer.precision == "16-mixed":
            raise InputError(
                "optimizer.sam is set and trainer.precision '16-mixed', in which the gradient of its step up may "
                "vanish; use bf16-mixed or 32-true."
            )
        if not self.loss.scale > 0:
            raise InputError(f"loss.scale is {self.loss.scale}; it must be positive.")
        self._check_augmentation()
        self.check_per_class("data.counts", "loss.weights")

    def _check_augmentation(self) -> None:
        data = self.data
        if data.name not in CIFAR and (data.operations != "none" or data.cutout):
            raise InputError(
                f"data.operations is {data.operations!r} and data.cutout {data.cutout}, which are for "
                f"{' and '.join(CIFAR)}; with {data.name} set data.operations=none and data.cutout=0."
            )
        if data.cutout >= CIFAR_SIDE:
            raise InputError(f"data.cutout is {data.cutout}; it must be less than the {CIFAR_SIDE} pixels of an image.")

    def check_per_class(self, *names: str) -> None:
        """Where the data's name says how many classes there are, lists must have one entry for each, or none."""
        known = {"cifar10-lt": 10, "cifar100-lt": 100, "imagenet-lt": self.data.n_classes}.get(self.data.name)
        for name in names:
            given = setting(self, name)
            if given:
                check_vector(given, name, known, low=0)

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
        """A digest of all settings; of files that they name the content counts, and not where they lie.

        Returns
        -------
        str
            16 hexadecimal digits.
        """
        return hashlib.sha256(self._anywhere().to_toml().encode()).hexdigest()[:16]

    def _anywhere(self) -> Self:
        loss = replace(self.loss, policy=file_digest(self.loss.policy))
        return replace(self, out="", data=replace(self.data, root=""), loss=loss)


def setting(config: Config, name: str) -> Any:
    """The value of ``section.name``."""
    return reduce(getattr, name.split("."), config)


def check_least(config: Config, least: Mapping[str, float]) -> None:
    """Refuse what is below its least, or is not a number."""
    for name, low in least.items():
        if not setting(config, name) >= low:
            raise InputError(f"{name} is {setting(config, name)}; it must be at least {low}.")


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
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"config {path} cannot be read ({error}); `capri train --print-config` prints one.") from None
    return read_toml(text, str(path))

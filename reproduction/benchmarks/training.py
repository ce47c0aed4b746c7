"""What does the trainer cost? Ratios of two things in one run, never seconds.

    python reproduction/benchmarks/training.py [--data synthetic|cifar10-lt|cifar100-lt] …    # --help has all options

(a) Training steps through `capri train`'s own trainer against a bare loop: ResNet-32, batch 128, channels-last, SGD,
    crop and flip, data loading included on both sides. The bare loop is the strictest that one would write by hand:
    images padded and standardised once beforehand, no schedule, no metrics. Validation and checkpoints are not counted:
    the bare loop has none. `--steps 0` is a whole epoch.
(b) What the parametric loss (ω, l and Δ, forward and backward) adds to torch's cross-entropy, as a share of a step.
(c) What the augmentation of the preset `strong` (crop, flip, an operation, Cutout) takes, as a share of a step.
(d) The same steps through the trainer in bf16 against single precision.

Each figure is the median over pairs that are measured in turns, so that a busy machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from capri.bilevel.losses import ParametricCrossEntropy, parametric_cross_entropy
from capri.data.augmentation import in_turn, random_crop_flip, random_cutout, random_operation
from capri.data.batches import image_scaling
from capri.data.cifar import RELEASES, CifarRelease
from capri.data.modules import ArrayDataModule
from capri.data.profiles import exponential_counts
from capri.data.splits import Part, Splits
from capri.models import ResNet32
from capri.strategy import Strategy
from capri.train.config import Config, resolve
from capri.train.experiment import make_splits
from capri.train.module import Classifier
from capri.train.recorder import Recorder
from capri.train.runner import make_trainer

BATCH, PAD, LR = 128, 4, 0.05
TARGETS = {"epoch": 1.10, "loss": 0.01, "augmentation": 0.05, "bf16": 1.0}
SINGLE, BF16 = "32-true", "bf16-mixed"


# -- the data ---------------------------------------------------------------------------------------------------------


def synthetic(n_classes: int) -> Splits:
    """Noise in the shape and the long tail of CIFAR-LT."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), exponential_counts(50_000 // n_classes, n_classes, 100))
    train = Part(rng.integers(0, 256, (len(y), 32, 32, 3), dtype=np.uint8), y, np.arange(len(y)))
    return Splits(train, train, train, tuple(map(str, range(n_classes))), "synthetic")


def load(name: str, root: str) -> tuple[Splits, CifarRelease]:
    """Training data; one validation sample per class, since validation is not what is measured."""
    release = RELEASES["cifar10" if name == "cifar10-lt" else "cifar100"]
    splits = (
        synthetic(release.n_classes)
        if name == "synthetic"
        else make_splits(resolve(assignments=[f"data.name={name}", f"data.root={root}"]).data)
    )
    first = np.unique(splits.val.y, return_index=True)[1]
    return replace(splits, val=splits.val.take(first)), release


# -- (a) training -----------------------------------------------------------------------------------------------------


class Clock(Callback):
    """Seconds from the first batch's loading to the end of the last step."""

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.start = time.perf_counter()

    def on_train_batch_end(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.start


def ours(splits: Splits, release: CifarRelease, steps: int, precision: str = SINGLE) -> float:
    """Seconds of `steps` steps (0: an epoch) as `capri train` runs them."""
    settings = {"trainer.max_epochs": 1, "trainer.limit_train_batches": steps, "trainer.accelerator": "cpu",
                "trainer.precision": precision}  # fmt: skip
    config: Config = resolve(assignments=[f"{name}={value}" for name, value in settings.items()])
    prepare = image_scaling(release.mean, release.std)
    data = ArrayDataModule(splits, BATCH, seed=0, prepare=prepare, augment=random_crop_flip(PAD))
    classifier = Classifier(
        ResNet32(splits.n_classes),
        ParametricCrossEntropy(Strategy.vs(splits.train_counts, 1.0, 0.1)),
        train_counts=splits.train_counts,
        optimizer=replace(config.optimizer, lr=LR),
        channels_last=True,
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = make_trainer(config, Recorder(Path(folder), data.generator))
        trainer.callbacks.append(clock)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.fit(classifier, datamodule=data)
    return clock.seconds


class BareLoop:
    """A plain PyTorch training loop."""

    def __init__(self, splits: Splits, release: CifarRelease) -> None:
        x = torch.from_numpy(splits.train.x).permute(0, 3, 1, 2).float() / 255
        mean, std = torch.tensor(release.mean)[:, None, None], torch.tensor(release.std)[:, None, None]
        self.x, self.y = F.pad((x - mean) / std, (PAD,) * 4), torch.from_numpy(splits.train.y)
        self.n_classes = splits.n_classes

    def __call__(self, steps: int) -> float:
        """Seconds of `steps` steps; 0: an epoch."""
        model = ResNet32(self.n_classes).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
        model.train()
        start = time.perf_counter()
        for batch in torch.randperm(len(self.y)).split(BATCH)[: steps or None]:
            shifts = torch.randint(0, 2 * PAD + 1, (len(batch), 2)).tolist()
            crops = [self.x[i, :, t : t + 32, l : l + 32] for i, (t, l) in zip(batch.tolist(), shifts, strict=True)]
            x = torch.stack(crops)
            flip = torch.rand(len(batch)) < 0.5
            x[flip] = x[flip].flip(-1)
            loss = F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), self.y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return time.perf_counter() - start


# -- (b) the loss -----------------------------------------------------------------------------------------------------


def timed(loss: Callable[[torch.Tensor], torch.Tensor], logits: torch.Tensor, repeats: int = 100) -> float:
    """Seconds of one forward and backward."""
    start = time.perf_counter()
    for _ in range(repeats):
        logits.grad = None
        loss(logits).backward()
    return (time.perf_counter() - start) / repeats


def loss_overhead(pairs: int, n_classes: int = 100) -> float:
    """Seconds that the parametric loss adds to torch's cross-entropy: median over pairs."""
    logits = torch.randn(BATCH, n_classes, requires_grad=True)
    y = torch.randint(n_classes, (BATCH,))
    omega, l, delta = (torch.rand(n_classes) + 0.5 for _ in range(3))
    both = (
        lambda o: parametric_cross_entropy(o, y, omega, l, delta).mean(),
        lambda o: F.cross_entropy(o, y),
    )
    for loss in both:  # warm up
        timed(loss, logits)
    return float(np.median([timed(both[0], logits) - timed(both[1], logits) for _ in range(pairs)]))


# -- (c) augmentation -------------------------------------------------------------------------------------------------


def augmentation_seconds(pairs: int) -> float:
    """Seconds of one batch of images: median."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (BATCH, 32, 32, 3), dtype=torch.uint8, generator=generator)
    augment = in_turn(random_crop_flip(PAD), random_operation(), random_cutout(12, (125, 123, 114)))
    times = []
    for _ in range(10 * pairs):
        start = time.perf_counter()
        augment(BATCH, generator)(images, slice(None))
        times.append(time.perf_counter() - start)
    return float(np.median(times))


# -- all of it --------------------------------------------------------------------------------------------------------


def measure(data: str, root: str, steps: int, pairs: int) -> dict[str, Any]:
    """All ratios, with what they came from."""
    splits, release = load(data, root)
    bare = BareLoop(splits, release)
    n_steps = steps or -(-len(splits.train) // BATCH)
    sides = (lambda: ours(splits, release, steps), lambda: bare(steps))
    ours(splits, release, 2), bare(2)  # warm up
    times = in_pairs(*sides, pairs)
    ours(splits, release, 2, BF16)
    precisions = in_pairs(*(partial(ours, splits, release, steps, name) for name in (BF16, SINGLE)), pairs)
    step = float(np.median([b for _, b in times])) / n_steps
    overhead, augmentation = loss_overhead(pairs), augmentation_seconds(pairs)
    return {
        "data": data,
        "steps": n_steps,
        "pairs": pairs,
        "threads": torch.get_num_threads(),
        "epoch_ratio": float(np.median([a / b for a, b in times])),
        "epoch_ratios": [a / b for a, b in times],
        "bf16_ratio": float(np.median([a / b for a, b in precisions])),
        "bf16_ratios": [a / b for a, b in precisions],
        "step_seconds": step,
        "loss_overhead_seconds": overhead,
        "loss_share": overhead / step,
        "augmentation_seconds": augmentation,
        "augmentation_share": augmentation / step,
    }


def in_pairs(first: Callable[[], float], second: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """Both, in turns, of which neither is always first."""
    times = []
    for pair in range(pairs):
        before = second() if pair % 2 else None
        one = first()
        times.append((one, second() if before is None else before))
    return times


def show(result: dict[str, Any]) -> None:
    """The table."""
    table = Table(title=f"{result['data']}: {result['steps']} steps, {result['pairs']} pairs")
    for name, justify in (("measured", "left"), ("against", "left"), ("ratio", "right"), ("target", "right")):
        table.add_column(name, justify=justify)
    ratio, share, ratios = result["epoch_ratio"], result["loss_share"], result["epoch_ratios"]
    spread = f"{min(ratios):.3f} … {max(ratios):.3f}"
    table.add_row("training through the trainer", "a bare loop", f"{ratio:.3f} ({spread})", f"≤ {TARGETS['epoch']:.2f}")
    table.add_row(
        "parametric loss − cross-entropy, K=100", "a step", f"{100 * share:.3f} %", f"≤ {100 * TARGETS['loss']:.0f} %"
    )
    share, target = result["augmentation_share"], TARGETS["augmentation"]
    table.add_row("augmentation of the preset strong", "a step", f"{100 * share:.2f} %", f"≤ {100 * target:.0f} %")
    ratios = result["bf16_ratios"]
    spread = f"{min(ratios):.3f} … {max(ratios):.3f}"
    table.add_row(
        "training in bf16", "single precision", f"{result['bf16_ratio']:.3f} ({spread})", f"< {TARGETS['bf16']}"
    )
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["synthetic", "cifar10-lt", "cifar100-lt"], default="synthetic")
    parser.add_argument("--root", default="data", help="folder of the CIFAR files")
    parser.add_argument("--steps", type=int, default=20, help="steps per measurement; 0: an epoch")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    result = measure(options.data, options.root, options.steps, options.pairs)
    show(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")

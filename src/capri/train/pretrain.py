"""Self-supervised start: SimSiam on the training images, labels unseen.

checkpoints/last.ckpt   each epoch; `--resume` goes on from it
pretrain.csv            per epoch: loss, spread of the outputs (0: collapsed), learning rate
encoder.safetensors     the network, for ``search.init``
summary.json            spread, and linear probes on it and on a random network
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from capri._checks import InputError
from capri.data.batches import Batch
from capri.data.modules import SplitsDataModule
from capri.evaluation import evaluate
from capri.models.simsiam import SimSiam, spread, two_views
from capri.train import artefacts
from capri.train.checkpoints import random_state, restore_random_state
from capri.train.config import LAST, SUMMARY, Config
from capri.train.experiment import identity, make_model
from capri.train.recorder import write_csv
from capri.train.runner import begun, fit, make_trainer

BASE_LR, MOMENTUM, WEIGHT_DECAY = 0.06, 0.9, 5e-4  # SGD with a cosine, as in the SimSiam paper's CIFAR experiments


class Pretraining(L.LightningModule):
    """SimSiam with SGD and a cosine learning rate."""

    def __init__(self, model: SimSiam, generator: torch.Generator):
        super().__init__()
        self.model, self.generator = model, generator
        self.losses: list[Tensor] = []
        self.spreads: list[Tensor] = []

    def configure_optimizers(self) -> Any:
        """SGD; the rate falls from 0.06 to 0 along a cosine."""
        optimizer = torch.optim.SGD(self.model.parameters(), BASE_LR, MOMENTUM, weight_decay=WEIGHT_DECAY)
        total = int(self.trainer.estimated_stepping_batches)
        scheduler = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * min(step, total) / total)) / 2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of two views."""
        first, second = two_views(batch[0].cpu(), self.generator)
        loss: Tensor
        loss, z = self.model(first.to(self.device), second.to(self.device))
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss.item()}; the checkpoint of the epoch before is intact.")
        self.losses.append(loss.detach())
        self.spreads.append(spread(z))
        return loss


class _Keeper(Checkpoint):
    """History, random states and checkpoint of each epoch."""

    def __init__(self, folder: Path, generator: torch.Generator):
        self.folder, self.generator, self.rows = folder, generator, list[dict[str, float]]()
        self._restored: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "random": random_state(self.generator)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows, self._restored = list(state_dict["rows"]), state_dict["random"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._restored is not None:
            restore_random_state(self._restored, self.generator)
            self._restored = None

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, Pretraining)
        row = {
            "epoch": trainer.current_epoch + 1,
            "loss": float(torch.stack(pl_module.losses).mean()),
            "spread": float(torch.stack(pl_module.spreads).mean()),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        pl_module.losses.clear()
        pl_module.spreads.clear()
        self.rows.append(row)
        write_csv(self.folder / "pretrain.csv", self.rows)
        trainer.save_checkpoint(self.folder / LAST)
        print(
            f"epoch {row['epoch']:>3}/{trainer.max_epochs}  loss {row['loss']:.4f}  spread {row['spread']:.3f}",
            flush=True,
        )


def pretrain(config: Config, *, resume: bool = False) -> dict[str, Any]:
    """Train the encoder, probe it and a random one, write the artefacts."""
    if config.data.name not in ("cifar10-lt", "cifar100-lt", "imagenet-lt"):
        raise InputError(f"data.name is {config.data.name!r}; views are made of images: use cifar10-lt or another.")
    if config.trainer.devices * config.trainer.num_nodes > 1:
        raise InputError("pretraining runs on one device; set trainer.devices=1.")
    with begun(config, resume) as (config, folder, data):
        encoder = make_model(config, data.splits)
        random_probe = linear_probe(encoder, data)
        module, keeper = Pretraining(SimSiam(encoder), data.generator), _Keeper(folder, data.generator)
        trainer = make_trainer(config, keeper, identity(config, data.splits))  # type: ignore[arg-type]
        fit(trainer, module, folder, resume, train_dataloaders=_Pairable(data))
        artefacts.write_model(folder / "encoder.safetensors", encoder)
        summary = {
            "spread": keeper.rows[-1]["spread"],
            "probe": linear_probe(encoder, data),
            "probe_random": random_probe,
            "epochs": len(keeper.rows),
            **artefacts.provenance(),
            "config": config.to_mapping(),
        }
        artefacts.write_summary(folder / SUMMARY, summary, "encoder.safetensors")
    return summary


def linear_probe(encoder: nn.Module, data: SplitsDataModule) -> float:
    """Balanced validation error of a logistic regression on frozen features, each class weighted alike."""
    splits = data.splits
    train, val = (artefacts.features(encoder, data.batches(part))[0].numpy() for part in (splits.train, splits.val))
    centre, scale = train.mean(axis=0), train.std(axis=0) + 1e-6
    probe = LogisticRegression(class_weight="balanced", max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # features of a random network need not converge
        probe.fit((train - centre) / scale, splits.train.y)
    predicted = probe.predict((val - centre) / scale)
    found: Mapping[str, float] = evaluate(splits.val.y, predicted, splits.n_classes, ["balanced"])
    return found["balanced"]


class _Pairable:
    """Training batches but for a last one of a single sample, of which batch norm has no statistics."""

    def __init__(self, data: SplitsDataModule):
        self.batches: Any = data.batches(data.splits.train, training=True)
        self.drop = len(data.splits.train) % data.batch_size == 1

    def __len__(self) -> int:
        return len(self.batches) - self.drop

    def __iter__(self) -> Any:
        return (batch for batch in self.batches if len(batch[1]) > 1)

"""The LightningModule: a network, the parametric loss, and class errors of validation each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from capri.data.batches import Batch
from capri.errors import Absent
from capri.evaluation import STANDARD, evaluate_confusion
from capri.objectives import FEW_SHOT, MANY_SHOT
from capri.train.config import OptimizerConfig, ScheduleConfig
from capri.train.sam import flat_gradient, frozen_statistics, same_draws, step_back, step_up
from capri.train.schedules import learning_rate_factor


class Classifier(L.LightningModule):
    """Trains a network with a loss, and evaluates it on validation after each epoch.

    Then `record` holds losses and objectives by name, and `class_errors` the validation error of each class.

    With several processes, gradients, losses and class errors are those of the joined batch. Mixup pairs samples within
    the share of a process, with a λ of its own; that and dropout are drawn from the process's own random state.

    Parameters
    ----------
    model : nn.Module
        From inputs to logits (n, K).
    loss : nn.Module
        ``loss(logits, y)`` is the mean over the batch.
    train_counts : ndarray of shape (K,)
        Training samples per class, for the objectives many, medium and few.
    class_names : sequence of str, optional
        Names of the classes, for messages.
    optimizer : OptimizerConfig, optional
        SGD or AdamW, and its settings.
    schedule : ScheduleConfig, optional
        How the learning rate changes over time.
    mixup : float
        α of the Beta(α, α) that mixes pairs of samples; 0 is none.
    channels_last : bool
        Memory layout of images.
    absent : {"error", "ignore"}
        What to do about classes without validation samples; "ignore" leaves them out of the objectives.
    """

    train_sum: Tensor
    val_sum: Tensor
    confusion: Tensor

    def __init__(
        self,
        model: nn.Module,
        loss: nn.Module,
        *,
        train_counts: NDArray[np.int64],
        class_names: Sequence[str] | None = None,
        optimizer: OptimizerConfig | None = None,
        schedule: ScheduleConfig | None = None,
        mixup: float = 0.0,
        channels_last: bool = False,
        absent: Absent = "error",
    ):
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last) if channels_last else model  # type: ignore[call-overload]
        self.loss = loss
        self.train_counts, self.class_names = train_counts, class_names
        self.optimizer, self.schedule = optimizer or OptimizerConfig(), schedule or ScheduleConfig()
        self.mixup, self.absent = mixup, absent
        self.record: dict[str, float] = {}
        self.class_errors: list[float] = []
        self._weights: list[Tensor] = []  # while SAM is above them

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (n, K)."""
        logits: Tensor = self.model(x)
        return logits

    def configure_optimizers(self) -> Any:
        """The optimizer, and the schedule as a function of the step."""
        optimizer = make_optimizer(self.model.parameters(), self.optimizer)
        total = int(self.trainer.estimated_stepping_batches)
        per_epoch = total // int(self.trainer.max_epochs or 1)
        scheduler = LambdaLR(optimizer, lambda step: learning_rate_factor(self.schedule, step, total, per_epoch))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The mean loss of a batch; where SAM is due, at the point above the weights."""
        due = self.optimizer.sam > 0 and self.global_step % self.optimizer.sam_every == 0
        with same_draws(self.device) if due else nullcontext():
            loss = self._batch_loss(*batch)
        self._add(self.train_sum, loss, len(batch[1]))
        loss = self._by_samples(loss, batch)
        return self._loss_above(loss, batch) if due else loss

    def _batch_loss(self, x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = self._mixed_loss(x, y) if self.mixup else self.loss(self(x), y)
        return loss

    def _by_samples(self, loss: Tensor, batch: Batch) -> Tensor:
        """DDP takes the mean of the processes' gradients: a share counts by its samples."""
        if self.trainer.world_size == 1:
            return loss
        n = len(batch[1])
        return loss * (n * self.trainer.world_size / self._total(loss.new_tensor(n)))

    def _loss_above(self, loss: Tensor, batch: Batch) -> Tensor:
        """SAM: step up the gradient of the joined batch, and the loss of the same batch there."""
        gradient = self._total(flat_gradient(loss, self.model)) / self.trainer.world_size
        self._weights = step_up(self.model, gradient, self.optimizer.sam)
        with frozen_statistics(self.model):
            return self._by_samples(self._batch_loss(*batch), batch)

    def on_after_backward(self) -> None:
        """The gradient is known: back from SAM's point to the weights, from which the optimizer steps."""
        if self._weights:
            step_back(self.model, self._weights)
            self._weights = []

    def on_train_epoch_start(self) -> None:
        """Count afresh. Sums are (loss, samples), and no buffers: DDP would overwrite them with the first process's."""
        self.train_sum = torch.zeros(2, device=self.device)

    def _mixed_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mixup (Zhang et al. 2018): convex pairs of images, and the same mixture of their losses."""
        alpha = torch.tensor(self.mixup)
        share = torch.distributions.Beta(alpha, alpha).sample().to(x)
        other = torch.randperm(len(y), device=y.device)
        logits = self(torch.lerp(x[other], x, share))
        mixed: Tensor = share * self.loss(logits, y) + (1 - share) * self.loss(logits, y[other])
        return mixed

    def on_validation_epoch_start(self) -> None:
        """Count afresh."""
        k = len(self.train_counts)
        self.val_sum = torch.zeros(2, device=self.device)
        self.confusion = torch.zeros(k, k, dtype=torch.long, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch to the confusion matrix."""
        x, y = batch
        self._count(self(x), y)

    def _count(self, logits: Tensor, y: Tensor) -> None:
        self._add(self.val_sum, self.loss(logits, y), len(y))
        k = len(self.confusion)
        self.confusion += torch.bincount(y * k + logits.argmax(dim=1), minlength=k * k).view(k, k)

    def on_validation_epoch_end(self) -> None:
        """Objectives and class errors, by the core's own evaluation."""
        confusion = self._total(self.confusion).double().cpu().numpy()
        loss, n = self._total(self.val_sum).tolist()
        totals = confusion.sum(axis=1)
        values = evaluate_confusion(
            confusion,
            objectives_for(self.train_counts[totals > 0]),
            absent=self.absent,
            class_names=self.class_names,
            class_counts=self.train_counts,
        )
        self.record = {"val_loss": loss / n} | {f"val_{name}": value for name, value in values.items()}
        with np.errstate(invalid="ignore"):  # an absent class has no error
            self.class_errors = (1 - np.diag(confusion) / totals).tolist()

    def on_train_epoch_end(self) -> None:
        """The mean training loss; a loss that is not finite ends the run before it is checkpointed."""
        loss, n = self._total(self.train_sum).tolist()
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"the training loss is {loss} in epoch {self.current_epoch + 1}. Lower optimizer.lr "
                f"({self.optimizer.lr}) or set trainer.gradient_clip; the checkpoint of the epoch before is intact."
            )
        self.record = {"train_loss": loss / n} | self.record

    def _add(self, total: Tensor, mean_loss: Tensor, n: int) -> None:
        total += torch.stack([mean_loss.detach().to(total) * n, total.new_tensor(n)])

    def _total(self, values: Tensor) -> Tensor:
        """Summed over all processes."""
        return values if self.trainer.world_size == 1 else self.trainer.strategy.reduce(values.clone(), reduce_op="sum")


def make_optimizer(parameters: Any, config: OptimizerConfig, *, fused: bool | None = None) -> torch.optim.Optimizer:
    """SGD or AdamW as configured; `fused` is faster for large tensors, and other bits."""
    if config.name == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=fused)
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
        fused=fused,
    )


def objectives_for(train_counts: NDArray[np.int64]) -> tuple[str, ...]:
    """The core's objectives that classes of these counts allow: a shot group without classes has no error."""
    shots = {
        "many": train_counts > MANY_SHOT,
        "medium": (train_counts >= FEW_SHOT) & (train_counts <= MANY_SHOT),
        "few": train_counts < FEW_SHOT,
    }
    return (*STANDARD, "mix:0.5", "macro_f1", "weighted_f1", *(name for name, inside in shots.items() if inside.any()))

"""A moving average of the network's weights: it is validated after each epoch, and kept in the end.

    average ← d · average + (1 − d) · weights,      d = min(decay, (1 + t) / (10 + t)) after step t = 0, 1, …

At first d is small, so that the average forgets the initial weights as soon as there are better ones. The running
statistics of batch normalisation are averaged, too: the last ones belong to the last weights, behind which the average
lags.
"""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from capri.train.module import Classifier


class WeightAverage(Callback):
    """Follows the network of a `Classifier`, and takes its place during validation. It travels in the checkpoint.

    With several processes each has it: weights are the same in all of them, and statistics those of the first, which
    DDP hands to the others.
    """

    def __init__(self, decay: float):
        self.decay, self.steps = decay, 0
        self.average: dict[str, Tensor] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """From the initial weights, or from what the checkpoint has."""
        self.average = {
            name: self.average.get(name, tensor).detach().to(tensor.device, copy=True)
            for name, tensor in _network(pl_module).state_dict().items()
        }

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Follow the weights after each step; counts of batches are no averages."""
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        self.steps += 1
        for name, tensor in _network(pl_module).state_dict().items():
            if tensor.is_floating_point():
                self.average[name].lerp_(tensor, 1 - decay)
            else:
                self.average[name].copy_(tensor)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validation is of the average."""
        self._swap(_network(pl_module))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Training goes on from the weights."""
        self._swap(_network(pl_module))

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return {"steps": self.steps, "average": self.average}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Where the checkpoint left off."""
        self.steps, self.average = state_dict["steps"], state_dict["average"]

    def keep(self, model: nn.Module) -> None:
        """Give the average to the network, for good; also where a resumed run had no step left to take."""
        model.load_state_dict(self.average)

    @torch.no_grad()
    def _swap(self, model: nn.Module) -> None:
        for name, tensor in model.state_dict().items():
            weights = tensor.clone()
            tensor.copy_(self.average[name])
            self.average[name].copy_(weights)


def _network(module: L.LightningModule) -> nn.Module:
    assert isinstance(module, Classifier)
    return module.model

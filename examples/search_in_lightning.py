"""Searching a loss in Lightning
==============================

The same in a LightningModule of your own, on batches: after five epochs of warm-up, a step of the strategy before each
step of the network. `OuterStep` is no module, so its W stays out of the network's parameters and optimizer; its state
goes into checkpoints by two hooks. `capri.train.Search` is a module that also keeps the path of W and writes policies.
"""

import itertools
import logging

import lightning as L
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset

from capri import Attributes
from capri.attributes import frequency
from capri.bilevel import Dictionaries, OuterObjective, OuterStep, StrategyMap
from capri.data import exponential_counts, long_tail

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
L.seed_everything(0, verbose=False)

x, y = load_digits(return_X_y=True)
tail = long_tail(y, exponential_counts(n_max=120, n_classes=10, imbalance=40), seed=0)
x, y = torch.tensor(x[tail] / 16).float(), torch.tensor(y[tail])
train, val = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=0)


class Digits(L.LightningModule):
    def __init__(self, train_counts: np.ndarray, val: TensorDataset, warmup: int = 5):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.counts, self.val, self.warmup = train_counts, val, warmup
        self.resumed = None

    def on_fit_start(self):  # the network is on its device
        W = StrategyMap(Dictionaries.of(Attributes.of(freq=frequency(self.counts)), 10), delta_form="sigmoid")
        objective = OuterObjective("balanced", np.bincount(self.val.tensors[1]))
        self.outer = OuterStep(self.model, W.to(self.device), objective)
        if self.resumed is not None:
            self.outer.load_state_dict(self.resumed)
        self.judges = itertools.chain.from_iterable(itertools.repeat(DataLoader(self.val, 64, shuffle=True)))

    def on_train_epoch_start(self):
        self.outer.anchor(DataLoader(self.val, 256))

    def training_step(self, batch, batch_idx):
        if self.current_epoch >= self.warmup:
            judge = next(self.judges)
            self.outer.step(batch, (judge[0].to(self.device), judge[1].to(self.device)))
        return self.outer.loss(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def on_save_checkpoint(self, checkpoint):
        checkpoint["outer"] = self.outer.state_dict()

    def on_load_checkpoint(self, checkpoint):
        self.resumed = checkpoint["outer"]


digits = Digits(np.bincount(y[train]), TensorDataset(x[val], y[val]))
trainer = L.Trainer(max_epochs=20, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, accelerator="cpu", log_every_n_steps=1)  # fmt: skip
trainer.fit(digits, DataLoader(TensorDataset(x[train], y[train]), 64, shuffle=True))

strategy = digits.outer.strategy()
print("offsets, frequent to rare:", strategy.l.round(2), "\nmultipliers:", strategy.delta.round(2))

"""The loss in Lightning
======================

A LightningModule of your own: the loss is a module like any other. `capri.train.Classifier` is one that also reports
class errors and all objectives each epoch.
"""

import logging

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from capri import Strategy, evaluate
from capri.bilevel import ParametricCrossEntropy
from capri.data import exponential_counts, long_tail

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
L.seed_everything(0, verbose=False)

x, y = load_digits(return_X_y=True)
counts = exponential_counts(n_max=80, n_classes=10, imbalance=20)
chosen = long_tail(y, counts, seed=0)
data = TensorDataset(torch.tensor(x[chosen] / 16, dtype=torch.float32), torch.tensor(y[chosen]))


class Digits(L.LightningModule):
    def __init__(self, strategy: Strategy):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.loss = ParametricCrossEntropy(strategy)

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return self.loss(self.model(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


digits = Digits(Strategy.vs(counts, tau=1.0, gamma=0.1))
trainer = L.Trainer(max_epochs=15, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, accelerator="cpu", log_every_n_steps=1)  # fmt: skip
trainer.fit(digits, DataLoader(data, batch_size=64, shuffle=True))

rest = [i for i in range(len(y)) if i not in set(chosen.tolist())]
predictions = digits.model(torch.tensor(x[rest] / 16, dtype=torch.float32)).argmax(dim=1).numpy()
errors = evaluate(y[rest], predictions, 10, ["balanced", "worst"])
print(f"VS loss: balanced {100 * errors['balanced']:.1f} %, worst class {100 * errors['worst']:.1f} %")

"""
A torch network, and its last layer
===================================

A small network learns handwritten digits from a long-tailed sample in a plain loop of torch. Its logits on half of the
other images tune the offsets; then `capri.fold` writes them into the bias of the last layer, so that the network
decides by itself and serving costs nothing.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import capri
from capri.report import ClassErrorDisplay, LineDisplay

X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
counts = np.floor(90 * 30.0 ** (-np.arange(10) / 9)).astype(int)
shuffled = [np.random.default_rng(0).permutation(np.flatnonzero(y == digit)) for digit in range(10)]
train = np.concatenate([rows[:n] for rows, n in zip(shuffled, counts, strict=True)])
rest = np.concatenate([rows[90:] for rows in shuffled])
val, test = train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=0)

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(torch.tensor(X[train])), torch.tensor(y[train])).backward()
    optimizer.step()


def logits(rows):
    with torch.no_grad():
        return network(torch.tensor(X[rows])).numpy()


tuned = capri.LogitAdjuster("cvar:0.2").fit(logits(val), y[val], class_counts=counts)
tuned.validation_

# %%
# The objective at every strength of logit adjustment, exactly, on the images that tune: between two steps no decision
# changes. The tuned policy need not lie on that line.

display = LineDisplay.from_estimator(tuned, logits(val), y[val])

# %%
# On test images, before and after:

before = logits(test)
display = ClassErrorDisplay.from_estimator(tuned, before, y[test], class_counts=counts)

# %%
# The same decisions by the network alone:

network[-1] = capri.fold(network[-1], tuned.policy_)
print((logits(test).argmax(axis=1) == tuned.predict(before)).mean())

# %%
# And what to tell others:

report = tuned.report(before, y[test])
report

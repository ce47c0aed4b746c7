"""Searching a loss in a plain PyTorch loop
=========================================

Digits with a long tail. The strategy of the loss, driven by class frequencies, moves down a validation objective while
the network trains; then a new network is trained on all the data with what was found.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from capri import Attributes, Strategy, evaluate
from capri.attributes import frequency
from capri.bilevel import Dictionaries, OuterObjective, OuterStep, ParametricCrossEntropy, StrategyMap
from capri.data import exponential_counts, long_tail

x, y = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(torch.tensor(x / 16).float(), torch.tensor(y), stratify=y, random_state=0)
tail = long_tail(y.numpy(), exponential_counts(n_max=120, n_classes=10, imbalance=40), seed=0)
x, y = x[tail], y[tail]
train, val = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=0)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def retrained(strategy: Strategy) -> dict[str, float]:
    model, loss = network(), ParametricCrossEntropy(strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return evaluate(y_test.numpy(), model(x_test).argmax(dim=1).numpy(), 10, ["balanced", "worst"])


model = network()
W = StrategyMap(Dictionaries.of(Attributes.of(freq=frequency(np.bincount(y))), 10), delta_form="sigmoid")
outer = OuterStep(model, W, OuterObjective("balanced", np.bincount(y[val])), lr=0.05)
outer.anchor([(x[val], y[val])])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(100):
    value = outer.step((x[train], y[train]), (x[val], y[val]))
    optimizer.zero_grad()
    outer.loss(model(x[train]), y[train]).backward()
    optimizer.step()

errors = {"cross-entropy": retrained(Strategy.of(10)), "searched": retrained(outer.strategy())}
for name, found in errors.items():
    print(f"{name:<13} balanced {100 * found['balanced']:4.1f} %   worst class {100 * found['worst']:4.1f} %")

"""The loss in a plain PyTorch loop
================================

Digits with a long tail. Logit adjustment is a strategy: hand it to the one loss, and nothing else of the loop changes.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from capri import Strategy, evaluate
from capri.bilevel import ParametricCrossEntropy
from capri.data import exponential_counts, long_tail

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, test_size=0.5, stratify=y, random_state=0)
counts = exponential_counts(n_max=80, n_classes=10, imbalance=20)
chosen = long_tail(y_train, counts, seed=0)
inputs, targets = torch.tensor(x_train[chosen], dtype=torch.float32), torch.tensor(y_train[chosen])


def train(strategy: Strategy) -> dict[str, float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    loss = ParametricCrossEntropy(strategy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    predictions = model(torch.tensor(x_test, dtype=torch.float32)).argmax(dim=1).numpy()
    return evaluate(y_test, predictions, 10, ["balanced", "worst"])


errors = {
    "cross-entropy": train(Strategy.of(10)),
    "logit adjustment": train(Strategy.logit_adjustment(counts)),
}
for name, values in errors.items():
    print(f"{name:<17} balanced {100 * values['balanced']:5.1f} %   worst class {100 * values['worst']:5.1f} %")

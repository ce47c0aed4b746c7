"""Heads for features and text embeddings that were computed beforehand."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class LinearHead(nn.Module):
    """Features to logits, linearly.

    Parameters
    ----------
    n_features : int
        Numbers per sample; inputs have shape (n, n_features).
    n_classes : int
        Logits have shape (n, n_classes).
    """

    def __init__(self, n_features: int, n_classes: int):
        super().__init__()
        self.fc = nn.Linear(n_features, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees: the features themselves."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.fc(x)
        return logits


class MLPHead(nn.Module):
    """Features to logits through hidden layers with ReLU and dropout.

    Parameters
    ----------
    n_features, n_classes : int
        As in `LinearHead`.
    hidden : sequence of int
        Width of each hidden layer.
    dropout : float
        Probability that a hidden number is set to 0 in training.
    """

    def __init__(self, n_features: int, n_classes: int, hidden: Sequence[int] = (512,), dropout: float = 0.0):
        super().__init__()
        layers: list[nn.Module] = []
        width = n_features
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        self.body = nn.Sequential(*layers)
        self.fc = nn.Linear(width, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees, (n, hidden[-1])."""
        out: Tensor = self.body(x)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits

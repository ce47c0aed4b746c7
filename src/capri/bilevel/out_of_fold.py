"""How good strategies are at the end of training, judged on samples that did not train: cross-validation, side by side.

Every training sample validates once, so that rare classes have all their samples to speak for them and not the one of
a validation fifth. A strategy may leave logits of any scale (multipliers are a temperature, label smoothing flattens),
which says nothing about decisions: before it is judged, each network gets the one temperature that suits it best. Then

    e_k = mean over the samples of class k of (1 − p_y + [wrong]) / 2

the share of wrong decisions, and its smooth twin, which sees how narrow they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from capri.bilevel.side_by_side import Recipe, logits_side_by_side, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors

AT_ONCE = 20  # copies in one computation: more do not fit into the cache
NEWTON = 15  # steps to the temperature


@dataclass(frozen=True)
class CrossValidation:
    """Judges strategies by networks that are trained to the end without a fold of the samples, fold by fold.

    Parameters
    ----------
    model : nn.Module
        Where all networks start.
    x, y : Tensor of shape (N, …) and (N,)
        The samples.
    n_classes : int
        K.
    recipe : Recipe
        How networks are trained.
    folds : Tensor of shape (N,)
        The fold of each sample, as `capri.sampling.stratified_folds` gives it. Those with −1 always train and never
        judge.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    n_classes: int
    recipe: Recipe
    folds: Tensor

    @cached_property
    def labels(self) -> Tensor:
        """Classes of the samples that judge, (n,)."""
        return self.y[self.folds >= 0]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many samples of each class judge, (K,)."""
        return np.bincount(self.labels.numpy(), minlength=self.n_classes)

    def losses(self, strategies: StrategyTensors, progress: Callable[[float], None] | None = None) -> Tensor:
        """Of each sample that judges, by the networks that did not train with it.

        Parameters
        ----------
        strategies : StrategyTensors
            ω, l, Δ and ε, (P, K) each.
        progress : callable, optional
            Told the share that is done.

        Returns
        -------
        Tensor of shape (P, n)
            Between 0 and 1; see `decision_losses`.
        """
        copies, folds = len(strategies.l), torch.unique(self.folds)
        jobs = [
            (fold, part) for fold in folds[folds >= 0].tolist() for part in torch.split(torch.arange(copies), AT_ONCE)
        ]
        logits = torch.empty(copies, len(self.y), self.n_classes)
        for done, (fold, part) in enumerate(jobs):
            tell = None if progress is None else _part_of(progress, done / len(jobs), 1 / len(jobs))
            self._judge(fold, part, strategies, logits, tell)
        return torch.stack([decision_losses(o[self.folds >= 0], self.labels, self.n_classes) for o in logits])

    def _judge(self, fold: int, which: Tensor, strategies: StrategyTensors, logits: Tensor, progress: Any) -> None:
        """Train the networks of some strategies without a fold, and put down their logits of it."""
        chosen = StrategyTensors(*(tensor[which] for tensor in strategies))
        left_out, held = torch.full_like(which, fold), torch.where(self.folds == fold)[0]
        trained = train_side_by_side(
            self.model, chosen, self.x, self.y, self.recipe, left_out=left_out, folds=self.folds, progress=progress
        )
        logits[which[:, None], held] = logits_side_by_side(self.model, trained, self.x[held])

    def class_errors(self, losses: Tensor) -> NDArray[np.float64]:
        """The means of losses (P, n) per class.

        Parameters
        ----------
        losses : Tensor of shape (P, n)
            As `losses` gives them.

        Returns
        -------
        ndarray of shape (P, K)
            NaN where no sample of a class judges.
        """
        return class_means(losses, self.labels, self.n_classes)


def class_means(losses: Tensor, y: Tensor, n_classes: int) -> NDArray[np.float64]:
    """Means per class of (P, N) numbers, (P, K)."""
    sums = torch.zeros(len(losses), n_classes, dtype=torch.float64).index_add_(1, y, losses.double())
    with np.errstate(invalid="ignore"):
        return np.asarray(sums.numpy() / torch.bincount(y, minlength=n_classes).numpy())


def decision_losses(logits: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """(1 − p_y + [wrong]) / 2 of each sample, p at the temperature that suits the logits best.

    Parameters
    ----------
    logits : Tensor of shape (n, K)
        Of samples that did not train.
    y : Tensor of shape (n,)
        Their classes.
    n_classes : int
        K.

    Returns
    -------
    Tensor of shape (n,)
    """
    p = F.softmax(logits * sharpness(logits, y, n_classes), dim=1)
    own = p.gather(1, y[:, None])[:, 0]
    return (1 - own + (logits.argmax(dim=1) != y).to(own)) / 2


def sharpness(logits: Tensor, y: Tensor, n_classes: int) -> float:
    """β = 1/T with the least cross-entropy of softmax(β o), each class weighted alike: Newton, as it is convex in β."""
    counts = torch.bincount(y, minlength=n_classes)
    weights = (1 / counts[y].double()) / (counts > 0).sum()
    o = logits.double() - logits.gather(1, y[:, None]).double()
    scale = float(o.std()) or 1.0
    o, beta = o / scale, 1.0
    for _ in range(NEWTON):
        p = F.softmax(beta * o, dim=1)
        mean = (p * o).sum(dim=1)
        slope = float(weights @ mean)
        curvature = float(weights @ ((p * o * o).sum(dim=1) - mean**2))
        beta = min(max(beta - slope / max(curvature, 1e-12), beta / 3), 3 * beta)
        beta = min(max(beta, 1e-3), 1e3)
    return beta / scale


def _part_of(progress: Callable[[float], None], start: float, share: float) -> Callable[[float], None]:
    return lambda done: progress(start + share * done)

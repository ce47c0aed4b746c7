"""Small networks trained side by side: copies of one network, a strategy for each, on one stream of batches.

The copies are one batched computation, a few matrix products per step: written out for heads (`layers`), by
`torch.vmap` for other networks. All see the same batches in the same order, and each its own part of them: a copy that
leaves out a fold of the samples is one of cross-validation. They differ in their strategies and folds alone, and can be
compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from capri._checks import InputError
from capri.bilevel.layers import LinearLayers
from capri.bilevel.losses import parametric_cross_entropy
from capri.bilevel.strategy_map import StrategyTensors

Parameters: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How each copy is trained.

    Parameters
    ----------
    epochs, batch_size : int
        How long, in which batches.
    optimizer : callable
        From parameters to a torch optimizer that treats each number by itself, as SGD and Adam do.
    rate : callable
        ``rate(step, steps, steps_per_epoch)``: the learning rate as a share of its highest.
    seed : int
        Of the order of samples, and of dropout.
    bf16 : bool
        Heads multiply in bf16.
    """

    epochs: int
    batch_size: int
    optimizer: Callable[[Sequence[Tensor]], torch.optim.Optimizer]
    rate: Callable[[int, int, int], float]
    seed: int = 0
    bf16: bool = False

    def steps(self, n: int) -> Iterator[tuple[Tensor, float]]:
        """The positions of each batch of `n` samples, and the share of the learning rate there."""
        generator = torch.Generator().manual_seed(self.seed)
        per_epoch = math.ceil(n / self.batch_size)
        for epoch in range(self.epochs):
            batches = torch.split(torch.randperm(n, generator=generator), self.batch_size)
            for i, batch in enumerate(batches, epoch * per_epoch):
                yield batch, self.rate(i, self.epochs * per_epoch, per_epoch)


def train_side_by_side(
    model: nn.Module,
    strategies: StrategyTensors,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    *,
    left_out: Tensor | None = None,
    folds: Tensor | None = None,
    progress: Callable[[float], None] | None = None,
) -> Parameters:
    """Train copies of a network, each with its own strategy.

    Parameters
    ----------
    model : nn.Module
        Where all copies start; it stays as it is. It may not have buffers (batch normalisation).
    strategies : StrategyTensors
        ω, l, Δ and ε, (P, K) each.
    x, y : Tensor of shape (N, …) and (N,)
        The samples.
    recipe : Recipe
        How to train.
    left_out : Tensor of shape (P,), optional
        The fold that each copy does without; −1: none.
    folds : Tensor of shape (N,), optional
        The fold of each sample.
    progress : callable, optional
        Told the share that is done.

    Returns
    -------
    mapping
        From the names of the parameters to tensors (P, …).
    """
    refuse_buffers(model)
    copies = len(strategies.l)
    parameters = {name: _repeated(p.detach(), copies) for name, p in model.named_parameters()}
    optimizer = recipe.optimizer(list(parameters.values()))
    highest = [group["lr"] for group in optimizer.param_groups]
    layers = LinearLayers.of(model, parameters, bf16=recipe.bf16)
    fill = _by_autograd(model, parameters, strategies) if layers is None else _by_layers(layers, strategies)
    steps = recipe.epochs * math.ceil(len(y) / recipe.batch_size)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        for i, (batch, rate) in enumerate(recipe.steps(len(y)), 1):
            for group, lr in zip(optimizer.param_groups, highest, strict=True):
                group["lr"] = lr * rate
            weights = sample_weights(copies, batch, left_out, folds)
            seen = weights.any(dim=0)  # by some copy: those of one fold need not compute what they leave out
            fill(weights[:, seen], x[batch[seen]], y[batch[seen]])
            optimizer.step()
            if progress is not None:
                progress(i / steps)
    return {name: p.detach() for name, p in parameters.items()}


@torch.no_grad()
def logits_side_by_side(model: nn.Module, parameters: Parameters, x: Tensor) -> Tensor:
    """Logits of all copies.

    Parameters
    ----------
    model : nn.Module
        The network that was copied.
    parameters : mapping
        Of the copies, as `train_side_by_side` gives them.
    x : Tensor of shape (n, …)
        Inputs.

    Returns
    -------
    Tensor of shape (P, n, K)
    """
    mode = model.training
    model.eval()
    predict = vmap(lambda p, x: functional_call(model, p, (x,)), in_dims=(0, None))
    found = torch.cat([predict(parameters, part) for part in torch.split(x, 1024)], dim=1)
    model.train(mode)
    return found


def refuse_buffers(model: nn.Module) -> None:
    """Buffers would be shared by all copies."""
    if any(True for _ in model.buffers()):
        raise InputError(
            "networks with buffers, such as batch normalisation's, cannot be trained side by side; take one without, "
            "or search on the features of this one (search.method=proxy)."
        )


def _repeated(p: Tensor, copies: int) -> Tensor:
    return p.expand(copies, *p.shape).clone().requires_grad_()


Fill: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]  # gradients, from weights (P, B), inputs and classes


def _by_autograd(model: nn.Module, parameters: Parameters, strategies: StrategyTensors) -> Fill:
    """Gradients of any network."""
    losses = vmap(copy_loss(model), in_dims=(0, 0, 0, None, None), randomness="different")

    def fill(weights: Tensor, x: Tensor, y: Tensor) -> None:
        for p in parameters.values():
            p.grad = None
        torch.autograd.backward(losses(parameters, strategies, weights, x, y).sum())

    return fill


def _by_layers(layers: LinearLayers, strategies: StrategyTensors) -> Fill:
    """The same for heads: autograd has the loss of logits alone."""
    losses = vmap(weighted_loss, in_dims=(0, 0, 0, None))

    def fill(weights: Tensor, x: Tensor, y: Tensor) -> None:
        logits = layers.forward(x).requires_grad_()
        (slope,) = torch.autograd.grad(losses(logits, strategies, weights, y).sum(), logits)
        layers.backward(slope)

    return fill


def weighted_loss(logits: Tensor, strategy: StrategyTensors, weights: Tensor, y: Tensor) -> Tensor:
    """Of one copy: the mean over the samples that it may see."""
    each = parametric_cross_entropy(logits, y, *strategy)
    return (weights * each).sum() / weights.sum().clamp_min(1)


def copy_loss(model: nn.Module) -> Callable[..., Tensor]:
    """`weighted_loss` of a copy of the model, by its parameters."""

    def loss(parameters: Parameters, strategy: StrategyTensors, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(model, parameters, (x,))  # type: ignore[arg-type]
        return weighted_loss(logits, strategy, weights, y)

    return loss


def sample_weights(copies: int, batch: Tensor, left_out: Tensor | None, folds: Tensor | None) -> Tensor:
    """Which samples of a batch each copy may see, (P, B): 1 or 0."""
    if left_out is None or folds is None:
        return torch.ones(copies, len(batch))
    return (folds[batch] != left_out[:, None]).float()

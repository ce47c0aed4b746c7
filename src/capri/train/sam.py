"""Sharpness-aware minimisation (Foret et al. 2021): the optimizer steps from w with the gradient of a point above it.

e = ρ g(w) / ‖g(w)‖,      the step is that of g(w + e), on the same batch
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

TINY = 1e-12  # a gradient of zero leaves the weights where they are


@torch.no_grad()
def step_up(model: nn.Module, gradient: Tensor, radius: float) -> list[Tensor]:
    """Move the weights by `radius` along the gradient, flat and of all parameters; returns them as they were."""
    parameters = list(model.parameters())
    weights = [p.clone() for p in parameters]
    step = gradient * (radius / gradient.norm().clamp(min=TINY))
    for p, e in zip(parameters, step.split([p.numel() for p in parameters]), strict=True):
        p.add_(e.view(p.shape))
    torch.clear_autocast_cache()  # of the weights in half precision
    return weights


@torch.no_grad()
def step_back(model: nn.Module, weights: Sequence[Tensor]) -> None:
    """The weights as they were, to the bit."""
    for p, before in zip(model.parameters(), weights, strict=True):
        p.copy_(before)


def flat_gradient(loss: Tensor, model: nn.Module) -> Tensor:
    """Of all parameters, (n_parameters,); theirs stay as they are, and so does what DDP has heard of."""
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@contextmanager
def same_draws(device: torch.device) -> Iterator[None]:
    """What is drawn in here (dropout, mixup) is drawn again by what comes after."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


@contextmanager
def frozen_statistics(model: nn.Module) -> Iterator[None]:
    """Batch normalisation by the batch, as in training, without a trace in the running statistics."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True

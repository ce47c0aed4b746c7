"""Steps of optimizers as pure functions, which can be differentiated: SGD and Adam as torch.optim has them.

    rule(parameters, gradients, moments, lr, t)  →  (parameters, moments)                      t = 1, 2, …

Parameters, gradients and each of the moments are mappings from names to tensors. What torch.optim changes in place is
returned here, so that the end of training is a function of its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from capri._checks import InputError

Tensors: TypeAlias = dict[str, Tensor]
Moments: TypeAlias = tuple[Tensors, ...]


class UpdateRule(Protocol):
    """How a step moves parameters, and what is kept from step to step."""

    @property
    def lr(self) -> float:
        """The highest learning rate."""

    def start(self, parameters: Tensors) -> Moments:
        """What is kept, before the first step."""

    def __call__(
        self, parameters: Tensors, gradients: Tensors, moments: Moments, lr: float, t: int
    ) -> tuple[Tensors, Moments]:
        """Step number `t`, from 1."""


@dataclass(frozen=True)
class SGD:
    """Gradient descent with momentum; the decay is part of the gradient (coupled).

    g ← g + decay·θ,    b ← momentum·b + g,    θ ← θ − lr·b        (Nesterov: θ − lr·(g + momentum·b))
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0

    def start(self, parameters: Tensors) -> Moments:
        """b = 0, where there is momentum."""
        return (_zeros(parameters),) if self.momentum else ()

    def __call__(
        self, parameters: Tensors, gradients: Tensors, moments: Moments, lr: float, t: int
    ) -> tuple[Tensors, Moments]:
        """Step number `t`; all steps are alike."""
        step = _plus(gradients, parameters, self.decay) if self.decay else gradients
        if self.momentum:
            kept = _plus(step, moments[0], self.momentum)
            step, moments = (_plus(step, kept, self.momentum) if self.nesterov else kept), (kept,)
        return _plus(parameters, step, -lr), moments


@dataclass(frozen=True)
class Adam:
    """Adam; the decay is part of the gradient (Adam) or a step of its own (AdamW, `decoupled`).

    m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²
    θ ← θ − lr·decay·θ − lr · m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)
    """

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.0
    decoupled: bool = True

    def start(self, parameters: Tensors) -> Moments:
        """m = v = 0."""
        return _zeros(parameters), _zeros(parameters)

    def __call__(
        self, parameters: Tensors, gradients: Tensors, moments: Moments, lr: float, t: int
    ) -> tuple[Tensors, Moments]:
        """Step number `t`, which corrects m and v for their start at 0."""
        b1, b2 = self.betas
        if self.decay and self.decoupled:
            parameters = {name: (1 - lr * self.decay) * p for name, p in parameters.items()}
        elif self.decay:
            gradients = _plus(gradients, parameters, self.decay)
        m = {name: torch.lerp(old, gradients[name], 1 - b1) for name, old in moments[0].items()}
        v = {name: torch.addcmul(b2 * old, g := gradients[name], g, value=1 - b2) for name, old in moments[1].items()}
        scale = (1 - b2**t) ** 0.5
        size, epsilon = lr * scale / (1 - b1**t), self.epsilon * scale
        moved = {
            name: torch.addcdiv(p, m[name], _root(v[name]) + epsilon, value=-size) for name, p in parameters.items()
        }
        return moved, (m, v)


def update_rule(optimizer: torch.optim.Optimizer) -> UpdateRule:
    """The rule of a torch optimizer: SGD, Adam or AdamW with one group of parameters."""
    if len(optimizer.param_groups) != 1:
        raise InputError("the optimizer has several groups of parameters; steps are differentiated for one group only.")
    group = optimizer.param_groups[0]
    unknown = [name for name in ("amsgrad", "maximize", "dampening") if group.get(name)]
    if unknown:
        raise InputError(f"the optimizer has {unknown[0]}={group[unknown[0]]}, which is not differentiated; leave it.")
    if isinstance(optimizer, torch.optim.SGD):
        return SGD(group["lr"], group["momentum"], group["nesterov"], group["weight_decay"])
    if isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        decoupled = isinstance(optimizer, torch.optim.AdamW)
        return Adam(group["lr"], group["betas"], group["eps"], group["weight_decay"], decoupled)
    raise InputError(
        f"the optimizer is {type(optimizer).__name__}; steps of SGD, Adam and AdamW can be differentiated."
    )


def _plus(a: Tensors, b: Mapping[str, Tensor], factor: float) -> Tensors:
    return {name: torch.add(x, b[name], alpha=factor) for name, x in a.items()}


def _zeros(parameters: Tensors) -> Tensors:
    return {name: torch.zeros_like(p) for name, p in parameters.items()}


def _root(v: Tensor) -> Tensor:
    """√v with slope 0 at 0, where a parameter has never had a gradient; √'s own slope there makes NaN of 0."""
    return torch.sqrt(torch.clamp_min(v, torch.finfo(v.dtype).tiny))

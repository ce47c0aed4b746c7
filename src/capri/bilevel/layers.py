"""Copies of a head, layer by layer: forward and backward as batched matrix products, written out.

Autograd and `torch.vmap` give the same numbers for any network. A head is made of linear layers and ReLU alone, and
for these gradients can go straight into the memory where the optimizer reads them, step after step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from capri.models import LinearHead, MLPHead


class LinearLayers:
    """P copies of linear layers with ReLU between them.

    Parameters
    ----------
    parameters : sequence of (Tensor, Tensor)
        Weights (P, out, in) and biases (P, out), from the first layer to the last; their `grad` is made here.
    bf16 : bool
        Multiply in bf16 and keep single precision in between.
    """

    def __init__(self, parameters: Sequence[tuple[Tensor, Tensor]], *, bf16: bool = False):
        self.parameters, self.bf16 = parameters, bf16
        self._inputs: list[Tensor] = []  # of each layer, (P, B, in)
        for p in (p for layer in parameters for p in layer):
            p.grad = torch.zeros_like(p)

    @classmethod
    def of(cls, model: nn.Module, parameters: Mapping[str, Tensor], *, bf16: bool = False) -> LinearLayers | None:
        """Copies of a model by the names of its parameters; None where it is made of other things, too."""
        names = linear_layers(model)
        if names is None:
            return None
        return cls([(parameters[f"{name}.weight"], parameters[f"{name}.bias"]) for name in names], bf16=bf16)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Logits (P, B, K) of inputs (B, in), which all copies share."""
        self._inputs = []
        out = x.expand(len(self.parameters[0][0]), *x.shape)
        for weight, bias in self.parameters:
            if self._inputs:
                out = out.clamp_min_(0)
            self._inputs.append(out)
            out = self._product(out, weight.mT).add_(bias[:, None])
        return out

    @torch.no_grad()
    def backward(self, slope: Tensor) -> None:
        """Fill the gradients, given the derivative by the logits (P, B, K)."""
        above = [*reversed(self.parameters)]
        for (weight, bias), x in zip(above, reversed(self._inputs), strict=True):
            assert weight.grad is not None
            assert bias.grad is not None
            self._product(slope.mT, x, into=weight.grad)
            torch.sum(slope, dim=1, out=bias.grad)
            if weight is not self.parameters[0][0]:
                slope = self._product(slope, weight).mul_(x > 0)

    def _product(self, a: Tensor, b: Tensor, into: Tensor | None = None) -> Tensor:
        if not self.bf16:
            return torch.bmm(a, b) if into is None else torch.bmm(a, b, out=into)
        product = torch.bmm(a.bfloat16(), b.bfloat16())
        return product.float() if into is None else into.copy_(product)


def linear_layers(model: nn.Module) -> list[str] | None:
    """Names of the linear layers of a head, in order; None where there is more than these and ReLU between them."""
    drops = any(isinstance(layer, nn.Dropout) and layer.p > 0 for layer in model.modules())
    if drops or type(model) not in (LinearHead, MLPHead):
        return None
    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]

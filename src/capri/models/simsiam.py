"""SimSiam (Chen and He 2021): features without labels, from two views of each image.

    L = −½ cos(p₁, stop(z₂)) − ½ cos(p₂, stop(z₁)),      z = projector(encoder(x)),   p = predictor(z)

The stop-gradient is what keeps the outputs from collapsing to a constant; `spread` says whether they did.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SimSiam(nn.Module):
    """An encoder with a projector and a predictor, which learns features without labels.

    Parameters
    ----------
    encoder : nn.Module
        Any model with a method ``features`` whose outputs have the width ``fc.in_features``.
    width : int
        Of the projector's layers and of the output.
    bottleneck : int
        Of the predictor's hidden layer.

    References
    ----------
    Chen and He, "Exploring simple Siamese representation learning", CVPR 2021.
    """

    def __init__(self, encoder: nn.Module, width: int = 512, bottleneck: int = 128):
        super().__init__()
        self.encoder = encoder
        last: Any = encoder.fc
        n = int(last.in_features)
        self.projector = nn.Sequential(
            *_layer(n, width), nn.ReLU(), *_layer(width, width), nn.ReLU(), *_layer(width, width, affine=False)
        )
        self.predictor = nn.Sequential(*_layer(width, bottleneck), nn.ReLU(), nn.Linear(bottleneck, width))

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of two views of the same images.

        Parameters
        ----------
        first, second : Tensor of shape (n, c, h, w)
            The views.

        Returns
        -------
        (Tensor, Tensor)
            The loss, a scalar, and the projections of the first view, (n, width).
        """
        encode: Any = self.encoder.features
        z1, z2 = self.projector(encode(first)), self.projector(encode(second))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return negative_cosine(p1, z2) / 2 + negative_cosine(p2, z1) / 2, z1.detach()


def negative_cosine(p: Tensor, z: Tensor) -> Tensor:
    """−cos(p, stop(z)), the mean over the batch."""
    return -F.cosine_similarity(p, z.detach(), dim=1).mean()


def spread(z: Tensor) -> Tensor:
    """Standard deviation of the normalised outputs, times √d: 0 if collapsed, near 1 if they fill the sphere.

    >>> spread(torch.ones(8, 4))
    tensor(0.)
    """
    return F.normalize(z, dim=1).std(dim=0).mean() * z.shape[1] ** 0.5


def _layer(n_in: int, n_out: int, *, affine: bool = True) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(n_in, n_out, bias=False), nn.BatchNorm1d(n_out, affine=affine)


def two_views(images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two random views of images (n, 3, h, w): cut and resized, mirrored, with colours changed."""
    return view(images, generator), view(images, generator)


def view(images: Tensor, generator: torch.Generator, smallest: float = 0.3) -> Tensor:
    """One random view: 30 to 100 % of the area, mirrored or not; contrast and brightness, sometimes without colour."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(len(images), generator=generator)

    scale = uniform(smallest, 1.0).sqrt()
    flip = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    shift_x, shift_y = (uniform(-1, 1) * (1 - scale) for _ in range(2))
    rows = torch.stack([scale * flip, torch.zeros_like(scale), shift_x], dim=1)
    columns = torch.stack([torch.zeros_like(scale), scale, shift_y], dim=1)
    grid = F.affine_grid(torch.stack([rows, columns], dim=1), list(images.shape), align_corners=False)
    cut = F.grid_sample(images.contiguous(), grid, padding_mode="reflection", align_corners=False)
    grey = (uniform(0, 1) < 0.2)[:, None, None, None]
    cut = torch.where(grey, cut.mean(dim=1, keepdim=True).expand_as(cut), cut)
    jitter = (uniform(0, 1) < 0.8).float()[:, None, None, None]
    contrast = 1 + jitter * uniform(-0.4, 0.4)[:, None, None, None]
    tint = jitter * (torch.rand(len(images), 3, 1, 1, generator=generator) - 0.5) * 0.8
    return cut * contrast + tint

"""Augmentation as tensor algebra: crop and flip, one random operation per image (as TrivialAugment has it), Cutout.

Draws for a whole joined batch come first; a process applies them to its share. What is applied is exact, in whole
numbers or in fractions of a few bits: an image comes out the same, bit for bit, whichever others are beside it.
Images are uint8 (n, h, w, c).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from capri.data.batches import Augment

ROTATION, SHEAR, SHIFT, TINT = 30.0, 0.3, 0.3, 0.9  # at strength 1: degrees, slope, share of the side, change of factor
GREY = (77.0, 150.0, 29.0)  # of 256 parts: what red, green and blue add to brightness
FINE = 256  # strengths become multiples of one over this, which makes all that follows exact


def in_turn(*augments: Augment) -> Augment:
    """One augmentation after the other."""

    def draw(n: int, generator: torch.Generator) -> Callable[[Tensor, slice], Tensor]:
        drawn = [augment(n, generator) for augment in augments]

        def apply(images: Tensor, share: slice) -> Tensor:
            for act in drawn:
                images = act(images, share)
            return images

        return apply

    return draw


# -- crop and flip ----------------------------------------------------------------------------------------------------


def random_crop_flip(pad: int = 4) -> Augment:
    """CIFAR's usual augmentation."""

    def draw(n: int, generator: torch.Generator) -> Callable[[Tensor, slice], Tensor]:
        top, left = torch.randint(0, 2 * pad + 1, (2, n), generator=generator)
        flip = torch.rand(n, generator=generator) < 0.5
        return lambda images, share: crop_flip(images, top[share], left[share], flip[share], pad)

    return draw


def crop_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, pad: int) -> Tensor:
    """Images padded with zeros by `pad`, cut at (top, left) and mirrored where `flip`: one gather."""
    n, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, pad, pad, pad, pad))
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.where(flip[:, None], torch.arange(width - 1, -1, -1), torch.arange(width))
    return padded[torch.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


# -- one operation per image ------------------------------------------------------------------------------------------


def random_operation() -> Augment:
    """One of `OPERATIONS` for each image, with a strength in [−1, 1] (Müller and Hutter 2021)."""

    def draw(n: int, generator: torch.Generator) -> Callable[[Tensor, slice], Tensor]:
        operation = torch.randint(0, len(OPERATIONS), (n,), generator=generator)
        strength = torch.randint(-FINE, FINE + 1, (n,), generator=generator) / FINE
        return lambda images, share: operate(images, operation[share], strength[share])

    return draw


def operate(images: Tensor, operation: Tensor, strength: Tensor) -> Tensor:
    """Each image by its own operation, a position in `OPERATIONS`, and strength, both (n,); at 0 it stays as it is."""
    result = images.clone()
    for position, act in enumerate(OPERATIONS.values()):
        (chosen,) = torch.where(operation == position)
        if len(chosen):
            result[chosen] = act(images[chosen], strength[chosen])
    return result


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """About the centre."""
    angle = torch.deg2rad(ROTATION * strength.double())
    sine, cosine = torch.sin(angle), torch.cos(angle)
    return affine(images, ((cosine, sine), (-sine, cosine)))


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    """Rows slide along themselves, by their distance from the middle one."""
    one = torch.ones_like(strength)
    return affine(images, ((one, 0 * one), (SHEAR * strength, one)))


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    """Columns slide along themselves."""
    one = torch.ones_like(strength)
    return affine(images, ((one, SHEAR * strength), (0 * one, one)))


def translate_x(images: Tensor, strength: Tensor) -> Tensor:
    """Sideways, by whole pixels."""
    return _shifted(images, 0 * strength, SHIFT * images.shape[2] * strength)


def translate_y(images: Tensor, strength: Tensor) -> Tensor:
    """Up or down, by whole pixels."""
    return _shifted(images, SHIFT * images.shape[1] * strength, 0 * strength)


def _shifted(images: Tensor, down: Tensor, right: Tensor) -> Tensor:
    one = torch.ones_like(down)
    return affine(images, ((one, 0 * one), (0 * one, one)), (down.round(), right.round()))


def affine(images: Tensor, matrix: Sequence[Sequence[Tensor]], shift: Sequence[Tensor] | None = None) -> Tensor:
    """The pixel at p from the nearest to M p + shift, with p = (row, column) from the centre; black outside.

    matrix: entries (n,), rounded to 1/1024, so that sums of products are exact. shift: (n,), whole numbers.
    """
    n, height, width, channels = images.shape
    row, column = torch.arange(height)[:, None] - (height - 1) / 2, torch.arange(width) - (width - 1) / 2
    source = []
    for i, size in enumerate((height, width)):
        a, b = ((1024 * entry).round().float()[:, None, None] / 1024 for entry in matrix[i])
        moved = 0.0 if shift is None else shift[i][:, None, None]
        source.append(torch.floor(a * row + b * column + moved + size / 2).long())
    rows, columns = source
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    flat = (torch.arange(n)[:, None, None] * height + rows) * width + columns
    pixels = images.reshape(-1, channels)[torch.where(inside, flat, 0)]
    return pixels * inside[..., None]


def brightness(images: Tensor, strength: Tensor) -> Tensor:
    """Towards black, or away from it."""
    return _blend(images, torch.zeros(()), strength)


def contrast(images: Tensor, strength: Tensor) -> Tensor:
    """Towards the image's mean grey, or away from it."""
    mean = _grey(images).long().sum(dim=(1, 2), keepdim=True) // images[0, ..., :1].numel()
    return _blend(images, mean.float(), strength)


def saturation(images: Tensor, strength: Tensor) -> Tensor:
    """Towards grey, or away from it."""
    return _blend(images, _grey(images), strength)


def _grey(images: Tensor) -> Tensor:
    """Brightness of each pixel, whole numbers, (n, h, w, 1)."""
    return torch.floor((images * torch.tensor(GREY)).sum(dim=-1, keepdim=True) / 256)


def _blend(images: Tensor, base: Tensor, strength: Tensor) -> Tensor:
    """base + (1 + 0.9 s)(image − base); base: whole numbers."""
    factor = 1 + torch.round(TINT * strength * FINE)[:, None, None, None] / FINE
    return (base + factor * (images - base)).clamp(0, 255).to(torch.uint8)


def solarise(images: Tensor, strength: Tensor) -> Tensor:
    """Invert what is brighter than a threshold, which falls with the strength, be it positive or negative."""
    threshold = 256 * (1 - strength.abs())[:, None, None, None]
    return torch.where(images >= threshold, 255 - images, images)


def identity(images: Tensor, strength: Tensor) -> Tensor:
    """As it is."""
    return images


OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "identity": identity,
    "rotate": rotate,
    "shear_x": shear_x,
    "shear_y": shear_y,
    "translate_x": translate_x,
    "translate_y": translate_y,
    "brightness": brightness,
    "contrast": contrast,
    "saturation": saturation,
    "solarise": solarise,
}


# -- Cutout -----------------------------------------------------------------------------------------------------------


def random_cutout(side: int, fill: Sequence[float]) -> Augment:
    """A square about a pixel anywhere, so that part of it may lie outside (DeVries and Taylor 2017). fill: a colour."""
    colour = torch.tensor(fill).round().to(torch.uint8)

    def draw(n: int, generator: torch.Generator) -> Callable[[Tensor, slice], Tensor]:
        place = torch.rand((n, 2), generator=generator)
        return lambda images, share: cut_out(images, place[share], side, colour)

    return draw


def cut_out(images: Tensor, place: Tensor, side: int, colour: Tensor) -> Tensor:
    """Images with a square of `side` in `colour` (c,). place: its centre in shares of height and width, (n, 2)."""
    hidden = []
    for size, centre in zip(images.shape[1:3], place.T, strict=True):
        start = (centre * size).long() - side // 2
        offset = torch.arange(size) - start[:, None]
        hidden.append((offset >= 0) & (offset < side))
    rows, columns = hidden
    return torch.where((rows[:, :, None] & columns[:, None, :])[..., None], colour, images)

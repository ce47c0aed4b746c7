"""Augmentation, image by image: against Pillow, and whichever images are beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from capri.data import augmentation
from capri.data.augmentation import (
    OPERATIONS,
    affine,
    crop_flip,
    cut_out,
    in_turn,
    operate,
    random_crop_flip,
    random_cutout,
    random_operation,
)

WHOLE = slice(None)
GREY = torch.tensor([120, 121, 122], dtype=torch.uint8)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images() -> Tensor:
    """Noise without black, higher than wide or not: neither square."""
    return torch.randint(1, 256, (40, 10, 14, 3), dtype=torch.uint8, generator=seeded())


def strengths(n: int) -> Tensor:
    return torch.linspace(-1, 1, n).mul(256).round() / 256


def test_crops_and_flips_pixel_by_pixel():
    images = torch.randint(1, 256, (6, 5, 5, 3), dtype=torch.uint8, generator=seeded())
    top, left = torch.tensor([0, 1, 2, 3, 4, 2]), torch.tensor([4, 3, 2, 1, 0, 2])
    flip = torch.tensor([True, False, True, False, True, False])
    out = crop_flip(images, top, left, flip, pad=2).numpy()
    for i, image in enumerate(images.numpy()):
        padded = np.zeros((9, 9, 3), np.uint8)
        padded[2:7, 2:7] = image
        cut = padded[top[i] : top[i] + 5, left[i] : left[i] + 5]
        np.testing.assert_array_equal(out[i], cut[:, ::-1] if flip[i] else cut)
    np.testing.assert_array_equal(out[5], images[5].numpy())  # at (pad, pad) nothing moves


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_gives_images_and_none_at_strength_0(images, name):
    act, n = OPERATIONS[name], len(images)
    for strength in (strengths(n), torch.ones(n), -torch.ones(n)):
        out = act(images, strength)
        assert (out.shape, out.dtype) == (images.shape, torch.uint8)
    assert name == "identity" or not torch.equal(act(images, torch.ones(n)), images)
    assert torch.equal(act(images, torch.zeros(n)), images)


def pillow_affine(image: Image.Image, a: float, b: float, d: float, e: float, down: float, right: float):
    """Pillow's own: columns and rows of the source by (x, y), here about the centre."""
    w, h = image.width / 2, image.height / 2
    data = (a, b, w - a * w - b * h + right, d, e, h - d * w - e * h + down)
    return image.transform(image.size, Image.Transform.AFFINE, data, Image.Resampling.NEAREST)


def pillow(name: str, image: Image.Image, s: float) -> Image.Image:
    """The same operation by another library."""
    if name == "solarise":
        return ImageOps.solarize(image, math.ceil(256 * (1 - abs(s))))
    if name in ("brightness", "contrast", "saturation"):
        kind = {"brightness": "Brightness", "contrast": "Contrast", "saturation": "Color"}[name]
        return getattr(ImageEnhance, kind)(image).enhance(1 + 0.9 * s)
    a, b, d, e, down, right = 1.0, 0.0, 0.0, 1.0, 0.0, 0.0
    if name == "rotate":
        sine, cosine = math.sin(math.radians(30 * s)), math.cos(math.radians(30 * s))
        a, b, d, e = cosine, -sine, sine, cosine
    elif name == "shear_x":
        b = 0.3 * s
    elif name == "shear_y":
        d = 0.3 * s
    elif name == "translate_x":
        right = round(0.3 * image.width * s)
    elif name == "translate_y":
        down = round(0.3 * image.height * s)
    return pillow_affine(image, a, b, d, e, down, right)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_those_of_pillow(images, name):
    """Colours by rounding; of moved pixels those on the border between two may go either way."""
    strength = strengths(len(images))
    ours = OPERATIONS[name](images, strength).numpy().astype(int)
    pairs = zip(images, strength.tolist(), strict=True)
    theirs = np.stack([pillow(name, Image.fromarray(image.numpy()), s) for image, s in pairs])
    differ = abs(ours - theirs)
    if name in ("brightness", "contrast", "saturation"):
        assert differ.max() <= 3
    else:
        assert (differ.max(axis=-1) > 0).mean() < 0.01


def test_moved_pixels_come_from_the_nearest_and_black_from_outside():
    image = torch.arange(1, 10, dtype=torch.uint8).reshape(1, 3, 3, 1)
    zero, one = torch.zeros(1), torch.ones(1)
    turned = affine(image, ((zero, one), (-one, zero)))  # by a right angle
    assert turned[0, ..., 0].tolist() == image[0, ..., 0].rot90().tolist()
    shifted = affine(image, ((one, zero), (zero, one)), (one, zero))
    assert shifted[0, ..., 0].tolist() == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]


def test_each_image_gets_its_own_operation_and_strength(images):
    operation = torch.arange(len(images)) % len(OPERATIONS)
    out = operate(images, operation, strengths(len(images)))
    for i, act in enumerate(list(OPERATIONS.values()) * 4):
        assert torch.equal(out[i : i + 1], act(images[i : i + 1], strengths(len(images))[i : i + 1]))


def test_all_operations_are_drawn_and_strengths_lie_between_minus_1_and_1(images, monkeypatch):
    seen = []
    monkeypatch.setattr(augmentation, "operate", lambda images, *drawn: seen.append(drawn) or images)
    random_operation()(5000, seeded())(images, WHOLE)
    [(operation, strength)] = seen
    assert (torch.bincount(operation, minlength=len(OPERATIONS)) > 400).all()
    assert strength.min() == -1
    assert strength.max() == 1
    assert abs(strength.mean()) < 0.05


def everything():
    return in_turn(random_crop_flip(2), random_operation(), random_cutout(4, (125.3, 123, 113.9)))


def test_draws_are_seeded(images):
    first, again, other = (everything()(40, seeded(seed))(images, WHOLE) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("world_size", [2, 3])
def test_shares_are_those_of_the_joined_batch(images, world_size):
    whole = everything()(40, seeded())(images, WHOLE)
    for rank in range(world_size):
        share = slice(rank, None, world_size)
        assert torch.equal(everything()(40, seeded())(images[share], share), whole[share])


def test_augmentations_in_turn_draw_one_after_the_other(images):
    generator = seeded()
    crop, cut = random_crop_flip(2)(40, generator), random_cutout(4, GREY.tolist())(40, generator)
    both = in_turn(random_crop_flip(2), random_cutout(4, GREY.tolist()))(40, seeded())
    assert torch.equal(both(images, WHOLE), cut(crop(images, WHOLE), WHOLE))


@pytest.mark.parametrize("side", [1, 4, 5])
def test_a_cutout_hides_a_square_about_its_place(images, side):
    dark = torch.zeros_like(images[:3])
    place = torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.99, 0.5]])  # inside, in a corner, at the lower border
    hidden = (cut_out(dark, place, side, GREY) == GREY).all(dim=-1)
    before, after = side // 2, side - side // 2
    assert hidden.sum(dim=(1, 2)).tolist() == [side * side, after * after, min(side, before + 1) * side]
    assert hidden[0, 5 - before : 5 + after, 7 - before : 7 + after].all()


def test_cutouts_lie_anywhere(images):
    dark = torch.zeros(5000, 10, 14, 3, dtype=torch.uint8)
    hidden = (random_cutout(3, (255, 255, 255))(5000, seeded())(dark, WHOLE) == 255).all(dim=-1)
    centres = hidden.sum(dim=0)[1:-1, 1:-1] / 5000
    torch.testing.assert_close(centres, torch.full_like(centres, 9 / 140), atol=0.015, rtol=0)

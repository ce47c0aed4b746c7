from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from capri._checks import InputError
from capri.data.augmentation import random_crop_flip
from capri.data.batches import ArrayBatches, Shares
from capri.data.images import ImageBatches, ImageFiles, decode, evaluation_view


def batches(generator: torch.Generator | None, rank: int = 0, world_size: int = 1) -> ArrayBatches:
    x = torch.arange(10 * 4 * 4 * 3).reshape(10, 4, 4, 3).to(torch.uint8)
    augment = random_crop_flip(pad=1) if generator else None
    return ArrayBatches(x, torch.arange(10), 4, generator=generator, augment=augment, rank=rank, world_size=world_size)


def test_an_epoch_holds_each_sample_once():
    loader = batches(torch.Generator().manual_seed(0))
    assert len(loader) == 3
    first, second = (torch.cat([y for _, y in loader]) for _ in range(2))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(10))
    assert first.tolist() != second.tolist()
    assert torch.cat([y for _, y in batches(None)]).tolist() == list(range(10))


def test_the_shares_of_two_processes_join_to_the_batch_of_one():
    whole = list(batches(torch.Generator().manual_seed(3)))
    shares = [list(batches(torch.Generator().manual_seed(3), rank, 2)) for rank in (0, 1)]
    for (x, y), (x0, y0), (x1, y1) in zip(whole, *shares, strict=True):
        torch.testing.assert_close(x[0::2], x0)
        torch.testing.assert_close(x[1::2], x1)
        assert y[0::2].tolist() == y0.tolist()
        assert y[1::2].tolist() == y1.tolist()


def test_nothing_is_drawn_before_the_first_batch():
    generator = torch.Generator().manual_seed(0)
    loader = batches(generator)
    iterator = iter(loader)
    generator.manual_seed(9)
    again = iter(batches(torch.Generator().manual_seed(9)))
    torch.testing.assert_close(next(iterator)[0], next(again)[0])


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4))
def test_shares_are_level_and_never_empty(n, batch_size, world_size):
    assume(min(n, batch_size) >= world_size)
    ranks = [Shares(n, batch_size, rank, world_size) for rank in range(world_size)]
    batches = ranks[0].joined(torch.arange(n))
    assert len(batches) == len(ranks[0])
    assert torch.cat(batches).tolist() == list(range(n))
    assert [len(b) for b in batches[:-2]] == [batch_size] * len(batches[:-2])
    for batch in batches:
        sizes = [len(batch[share.mine]) for share in ranks]
        assert sum(sizes) == len(batch)
        assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1
    if world_size == 1:
        assert [len(b) for b in batches] == [len(b) for b in torch.arange(n).split(batch_size)]


def test_impossible_batches_are_named():
    x, y = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
    with pytest.raises(InputError, match="batch_size is 1 for 2 process"):
        ArrayBatches(x, y, 1, world_size=2)
    with pytest.raises(InputError, match="the number of samples is 4 for 5 process"):
        ArrayBatches(x, y, 8, world_size=5)
    with pytest.raises(InputError, match="augment needs a generator"):
        ArrayBatches(x, y, 2, augment=random_crop_flip())


@pytest.fixture
def image_files(tmp_path) -> ImageFiles:
    paths = []
    for i, (width, height) in enumerate([(40, 30), (30, 50), (36, 36), (64, 20)]):
        pixels = np.random.default_rng(i).integers(0, 256, (height, width, 3), dtype=np.uint8)
        paths.append(str(tmp_path / f"{i}.JPEG"))
        Image.fromarray(pixels).save(paths[-1], format="JPEG")
    return ImageFiles(paths, np.arange(4), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), size=16)


def test_image_files(image_files):
    (x, y), _ = list(ImageBatches(image_files, 3))
    assert x.shape == (3, 3, 16, 16)
    assert y.tolist() == [0, 1, 2]
    expected = evaluation_view(decode(image_files.paths[1]), 16).transpose(2, 0, 1) / 127.5 - 1
    np.testing.assert_allclose(x[1].numpy(), expected, atol=1e-6)


def test_image_batches_do_not_depend_on_the_number_of_workers(image_files):
    runs = [
        [torch.cat([x for x, _ in loader]) for _ in range(2)]
        for workers in (0, 1)
        for loader in [ImageBatches(image_files, 3, generator=torch.Generator().manual_seed(0), workers=workers)]
    ]
    for first, second in zip(*runs, strict=True):
        torch.testing.assert_close(first, second)
    assert not torch.equal(runs[0][0], runs[0][1])


def test_without_augmentation_images_are_shuffled_views_of_evaluation(image_files):
    shuffled = ImageBatches(image_files, 4, generator=torch.Generator().manual_seed(0), augment=False)
    [(x, y)], [(ordered, _)] = list(shuffled), list(ImageBatches(image_files, 4))
    assert y.tolist() != [0, 1, 2, 3]
    torch.testing.assert_close(x, ordered[y])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupted_image_is_named(image_files, tmp_path, workers):
    path = tmp_path / "2.JPEG"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match=r"^\S+/2\.JPEG cannot be decoded"):
        list(ImageBatches(image_files, 4, workers=workers))
    path.unlink()
    with pytest.raises(InputError, match=r"2\.JPEG is not there"):
        list(ImageBatches(image_files, 4))

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from capri import Policy, Strategy
from capri._checks import InputError
from capri.data.splits import Part, Splits
from capri.train.config import LossConfig, resolve
from capri.train.experiment import make_data, make_model, make_strategy
from capri.train.module import objectives_for


@pytest.fixture
def splits() -> Splits:
    y = np.repeat([0, 1, 2], [200, 50, 10])
    part = Part(np.zeros((260, 5), np.float32), y, np.arange(260))
    return Splits(part, part, part, ("a", "b", "c"), "test")


def test_named_strategies(splits):
    counts = splits.train_counts
    for name, expected in {
        "ce": Strategy.of(3),
        "la": Strategy.logit_adjustment(counts, 1.2),
        "cdt": Strategy.cdt(counts, 0.3),
        "vs": Strategy.vs(counts, 1.2, 0.3),
        "weighted": Strategy.weighted(1 / counts),
    }.items():
        made = make_strategy(LossConfig(strategy=name, tau=1.2, gamma=0.3), splits)
        for part in ("omega", "l", "delta"):
            np.testing.assert_allclose(getattr(made, part), getattr(expected, part))


def test_a_policy_is_a_strategy(splits, tmp_path):
    path = tmp_path / "policy.json"
    tuned = Strategy.of(3, l=[0.0, 1.0, 2.0], delta=[1.0, 2.0, 0.5])
    Policy(tuned, objective="balanced", classes=splits.class_names).save(path)
    same = make_strategy(LossConfig(strategy="policy", policy=str(path)), splits)
    np.testing.assert_array_equal(same.l, tuned.l)
    inverse = make_strategy(LossConfig(strategy="policy", policy=str(path), transfer="inverse"), splits)
    np.testing.assert_allclose(inverse.delta, [1.0, 0.5, 2.0])
    with pytest.raises(InputError, match=r"loss\.policy is empty"):
        make_strategy(LossConfig(strategy="policy"), splits)
    Policy(tuned, objective="balanced", classes=("x", "y", "z")).save(path)
    with pytest.raises(InputError, match="same classes in the same order"):
        make_strategy(LossConfig(strategy="policy", policy=str(path)), splits)


def test_a_loss_is_taken_as_it_is(splits, tmp_path):
    path = tmp_path / "policy.json"
    found = Strategy.of(3, l=[0.0, 1.0, 2.0], delta=[1.0, 2.0, 0.5])
    Policy(found, objective="balanced", classes=splits.class_names, side="loss").save(path)
    same = make_strategy(LossConfig(strategy="policy", policy=str(path)), splits)
    np.testing.assert_array_equal(same.delta, found.delta)
    with pytest.raises(InputError, match=r"transfer is 'inverse', but .*policy\.json is a loss already"):
        make_strategy(LossConfig(strategy="policy", policy=str(path), transfer="inverse"), splits)


def test_label_smoothing_is_of_the_strategy(splits, tmp_path):
    smoothed = make_strategy(LossConfig(strategy="la", label_smoothing=0.1), splits)
    np.testing.assert_array_equal(smoothed.smoothing, [0.1] * 3)
    np.testing.assert_array_equal(smoothed.l, Strategy.logit_adjustment(splits.train_counts).l)

    path = tmp_path / "policy.json"
    own = LossConfig(strategy="policy", policy=str(path))
    for epsilon in ([0.0, 0.1, 0.2], [0.0, 0.0, 0.0]):
        found = Strategy.of(3, smoothing=epsilon)
        Policy(found, objective="balanced", classes=splits.class_names).save(path)
        np.testing.assert_array_equal(make_strategy(own, splits).smoothing, epsilon)
        if any(epsilon):
            with pytest.raises(InputError, match=r"label_smoothing is 0\.1, but .* has its own per class; set it to 0"):
                make_strategy(replace(own, label_smoothing=0.1), splits)
    np.testing.assert_array_equal(make_strategy(replace(own, label_smoothing=0.1), splits).smoothing, [0.1] * 3)


def test_a_scale_is_one_multiplier_for_all_classes(splits):
    plain, scaled = (make_strategy(LossConfig(strategy="vs", scale=scale), splits) for scale in (1.0, 0.1))
    np.testing.assert_allclose(scaled.delta, 0.1 * plain.delta)
    np.testing.assert_array_equal(scaled.l, plain.l)
    x, y = np.array([[3.0, -1.0, 2.0]]), [1]
    np.testing.assert_allclose(scaled.loss(10 * x, y), plain.loss(x, y))


def test_models_fit_their_data(splits):
    with pytest.raises(InputError, match="does not take cifar10-lt; use resnet32 or resnet50"):
        make_model(resolve(assignments=["model.name=mlp"]), splits)
    mlp = make_model(resolve(preset="features"), splits)
    assert mlp(torch.zeros(2, 5)).shape == (2, 3)


def test_objectives_only_of_groups_that_exist(splits):
    assert {"many", "medium", "few"} <= set(objectives_for(splits.train_counts))
    assert "few" not in objectives_for(np.array([200, 50]))


def test_training_images_are_augmented_as_asked(tiny_cifar10):
    def first(*changes: str) -> torch.Tensor:
        settings = [f"data.root={tiny_cifar10}", "data.imbalance=5", "trainer.batch_size=64", *changes]
        return next(iter(make_data(resolve(assignments=settings)).train_dataloader()))[0]

    crops = first()
    torch.testing.assert_close(first("data.operations=none", "data.cutout=0"), crops)
    operated, hidden = first("data.operations=one"), first("data.cutout=12")
    changed = (operated != crops).flatten(1).any(dim=1)
    assert 0.5 < changed.float().mean() < 1  # the identity is one of the operations
    mean = (hidden.abs() < 0.02).all(dim=1)  # the mean colour is 0 after scaling
    assert (mean & (hidden != crops).any(dim=1)).flatten(1).any(dim=1).all()


def test_cifar_runs_from_its_files(tiny_cifar10):
    config = resolve(assignments=[f"data.root={tiny_cifar10}", "data.imbalance=5", "trainer.batch_size=8"])
    data = make_data(config)
    assert data.splits.train_counts.tolist() == [15, 12, 10, 8, 7, 6, 5, 4, 3, 3]
    x, y = next(iter(data.train_dataloader()))
    assert x.shape == (8, 3, 32, 32)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert y.shape == (8,)
    x, _ = next(iter(data.val_dataloader()))
    stored = data.splits.val.x.transpose(0, 3, 1, 2) / 255
    expected = (stored - np.array([0.4914, 0.4822, 0.4465])[:, None, None]) / np.array([0.2470, 0.2435, 0.2616])[
        :, None, None
    ]
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)

from __future__ import annotations

import math
import os

import pytest
import torch

from capri._checks import InputError
from capri.train.config import Config, ScheduleConfig, resolve
from capri.train.presets import PRESETS
from capri.train.schedules import learning_rate_factor
from capri.train.search_config import resolve_search
from capri.train.settings import build, differences, read_toml


@pytest.mark.parametrize("preset", PRESETS)
def test_toml_and_back(preset):
    config = resolve(preset=preset)
    for comments in (False, True):
        text = config.to_toml(comments=comments)
        assert build(Config, read_toml(text, "text")) == config


def test_the_presets_of_the_conventions():
    cpu, paper = resolve(preset="cpu"), resolve(preset="paper")
    assert (cpu.trainer.max_epochs, cpu.trainer.batch_size, cpu.schedule.name, cpu.schedule.warmup) == (
        40,
        128,
        "onecycle",
        0.15,
    )
    assert (cpu.optimizer.lr, cpu.optimizer.nesterov, cpu.optimizer.weight_decay) == (0.2, True, 5e-4)
    assert (paper.trainer.max_epochs, paper.schedule.milestones, paper.optimizer.lr) == (300, (220, 260), 0.1)
    assert (paper.optimizer.momentum, paper.optimizer.weight_decay) == (0.9, 1e-4)


def test_strong_is_cpu_with_more_augmentation_an_average_and_more_epochs():
    cpu, strong = resolve(preset="cpu").to_mapping(), resolve(preset="strong").to_mapping()
    assert differences(cpu, strong) == [
        "preset",
        "data.operations",
        "data.cutout",
        "trainer.max_epochs",
        "trainer.ema",
    ]
    assert (strong["data"]["cutout"], strong["trainer"]["ema"], strong["optimizer"]["sam"]) == (12, 0.998, 0.0)


@pytest.mark.parametrize("preset", PRESETS)
def test_searches_know_the_presets_of_training(preset):
    assert resolve_search(preset=preset).preset == preset


def test_the_file_goes_over_the_preset_and_set_over_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('preset = "paper"\n[trainer]\nmax_epochs = 7\n[data]\nname = "cifar100-lt"\n')
    config = resolve(file, assignments=["trainer.max_epochs=5", "loss.strategy=la", "schedule.milestones=[1, 2]"])
    assert (config.trainer.max_epochs, config.data.name, config.optimizer.lr) == (5, "cifar100-lt", 0.1)
    assert (config.loss.strategy, config.schedule.milestones) == ("la", (1, 2))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("trainer.max_epoch=5", r"unknown setting 'trainer.max_epoch'; did you mean 'trainer.max_epochs'"),
        ("trainr.max_epochs=5", r"did you mean 'trainer'"),
        ("zzz=1", r"known: preset, seed, out"),
        ("trainer.max_epochs=many", r"trainer.max_epochs is 'many'; it must be a whole number"),
        ("trainer.max_epochs=true", r"must be a whole number"),
        ("trainer.max_epochs=0", r"trainer.max_epochs is 0; it must be at least 1"),
        ("trainer.devices=0", r"trainer.devices is 0; it must be at least 1"),
        ("data.augment=1", r"must be true or false"),
        ("data.val_fraction=1.2", r"data.val_fraction is 1.2; it must lie in \[0, 1\)"),
        ("loss.scale=0", "loss.scale is 0.0; it must be positive"),
        ("loss.scale=nan", "loss.scale is nan; it must be positive"),
        ("loss.label_smoothing=1.5", r"loss.label_smoothing is 1.5; it must lie in \[0, 1\)"),
        ("loss.strategy=weight", r"must be one of 'ce', .* Did you mean 'weighted'"),
        ("schedule.milestones=3", r"must be a list"),
        ("trainer=3", r"it is a section"),
        ("trainer.max_epochs", r"give section.name=value"),
        ("seed=-1", r"seed is -1; it must be at least 0"),
        ("seed=4294967296", r"seed is 4294967296; it must be at most 4294967295"),
        ("data.seed=-1", r"data.seed is -1; it must be at least 0"),
        ("data.imbalance=0.5", r"data.imbalance is 0.5; it must be at least 1"),
        ("model.dropout=2", r"model.dropout is 2.0; it must lie in \[0, 1\)"),
        ("optimizer.weight_decay=-1", r"optimizer.weight_decay is -1.0; it must be at least 0"),
        ("optimizer.momentum=-1", r"optimizer.momentum is -1.0; it must lie in \[0, 1\)"),
        (
            "optimizer.momentum=0",
            r"optimizer.nesterov is true and optimizer.momentum 0; .* set optimizer.nesterov=false",
        ),
        ("trainer.accelerator=abacus", r"trainer.accelerator is 'abacus'; it must be one of 'auto', 'cpu'"),
        ("trainer.precision=64-true", r"trainer.precision is '64-true'; it must be one of 'auto', '32-true'"),
        ("trainer.gradient_clip=-1", r"trainer.gradient_clip is -1.0; it must be at least 0"),
        ("trainer.limit_train_batches=-1", r"trainer.limit_train_batches is -1; it must be at least 0"),
        ("loss.weights=[1, 2]", r"loss.weights has 2 entries for 10 classes; give one per class"),
        ("loss.weights=[1, 1, 1, 1, 1, 1, 1, 1, 1, -1]", r"loss.weights\[9\] is -1.0; each entry must be at least 0"),
        ("data.counts=[1, 2]", r"data.counts has 2 entries for 10 classes"),
        ("optimizer.sam=-0.1", r"optimizer.sam is -0.1; it must be at least 0"),
        ("optimizer.sam_every=0", r"optimizer.sam_every is 0; it must be at least 1"),
        ("trainer.ema=1", r"trainer.ema is 1.0; it must lie in \[0, 1\)"),
        ("trainer.ema=-0.1", r"trainer.ema is -0.1; it must lie in \[0, 1\)"),
        ("data.operations=all", r"data.operations is 'all'; it must be one of 'none', 'one'"),
        ("data.cutout=-1", r"data.cutout is -1; it must be at least 0"),
        ("data.cutout=32", r"data.cutout is 32; it must be less than the 32 pixels of an image"),
        ("preset=gpu", r"preset is 'gpu'; it must be one of cpu, paper"),
    ],
)
def test_wrong_settings_are_named(assignment, message):
    with pytest.raises(InputError, match=message):
        resolve(assignments=[assignment])


def test_sam_is_not_for_half_precision():
    with pytest.raises(InputError, match=r"optimizer.sam is set and trainer.precision '16-mixed'.* use bf16-mixed"):
        resolve(assignments=["optimizer.sam=0.1", "trainer.precision=16-mixed"])


@pytest.mark.parametrize("assignment", ["data.operations=one", "data.cutout=8"])
def test_operations_are_for_images_in_memory(assignment):
    with pytest.raises(InputError, match=r"for cifar10-lt and cifar100-lt; with imagenet-lt set data.operations=none"):
        resolve(preset="imagenet-lt", assignments=[assignment])


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        resolve(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(InputError, match="is not TOML"):
        resolve(tmp_path / "bad.toml")


def test_the_digest_is_of_what_decides_the_result():
    config = resolve()
    assert config.digest() == resolve(out="elsewhere", assignments=["data.root=other"]).digest()
    assert config.digest() != resolve(assignments=["seed=1"]).digest()


@pytest.mark.parametrize("total", [20, 400])
def test_one_cycle_is_that_of_torch(total):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    oracle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.2, total_steps=total, pct_start=0.15, cycle_momentum=False
    )
    for step in range(total):
        assert 0.2 * learning_rate_factor(ScheduleConfig(), step, total, 10) == pytest.approx(
            optimizer.param_groups[0]["lr"], rel=1e-9
        )
        optimizer.step()
        if step < total - 1:
            oracle.step()


def test_the_other_schedules():
    drops = ScheduleConfig(name="step", warmup=0.0, milestones=(2, 4), factor=0.1)
    assert [round(learning_rate_factor(drops, s, 60, 10), 6) for s in (0, 19, 20, 39, 40, 59)] == [
        1,
        1,
        0.1,
        0.1,
        0.01,
        0.01,
    ]
    cosine = ScheduleConfig(name="cosine", warmup=0.1)
    values = [learning_rate_factor(cosine, s, 100, 10) for s in range(100)]
    assert values[:10] == sorted(values[:10])
    assert values[10] == 1
    assert values[10:] == sorted(values[10:], reverse=True)
    assert values[55] == pytest.approx(0.5 * (1 + math.cos(math.pi / 2)))
    assert learning_rate_factor(ScheduleConfig(name="constant", warmup=0.0), 5, 10, 1) == 1


def test_settings_from_a_pipe_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "config.toml")
    with pytest.raises(InputError, match="is not a regular file"):
        resolve(tmp_path / "config.toml")

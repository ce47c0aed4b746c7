"""Presets: what the defaults of a run are. Settings of the config file and ``--set`` go over them.

`cpu` is what two cores can afford (about an hour for CIFAR-LT, by the reference runs in docs/training.md); `paper` is
the paper's schedule; `strong` is for low errors in an hour and a half on two idle cores: more augmentation, a moving
average of the weights, more epochs. Its values were chosen by sense, none by a test error. All three are for CIFAR10-LT
and, with ``data.name=cifar100-lt``, CIFAR100-LT. Always say which one made a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HEAD: Mapping[str, Mapping[str, Any]] = {
    "data": {"augment": False},
    "model": {"name": "mlp"},
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 1e-2},
    "schedule": {"name": "onecycle", "warmup": 0.1},
    "trainer": {"max_epochs": 20, "channels_last": False},
}

_CPU: Mapping[str, Mapping[str, Any]] = {
    "data": {"name": "cifar10-lt"},
    "model": {"name": "resnet32", "shortcut": "A"},
    "optimizer": {"name": "sgd", "lr": 0.2, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    "schedule": {"name": "onecycle", "warmup": 0.15},
    "trainer": {"max_epochs": 40, "batch_size": 128, "channels_last": True, "precision": "auto"},
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": _CPU,
    "paper": {
        "data": {"name": "cifar10-lt"},
        "model": {"name": "resnet32", "shortcut": "A"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 1e-4},
        "schedule": {"name": "step", "warmup": 0.0, "milestones": [220, 260], "factor": 0.1},
        "trainer": {"max_epochs": 300, "batch_size": 128, "channels_last": True},
    },
    "strong": {
        **_CPU,
        "data": {**_CPU["data"], "operations": "one", "cutout": 12},
        "trainer": {**_CPU["trainer"], "max_epochs": 100, "ema": 0.998},
    },
    "imagenet-lt": {
        "data": {"name": "imagenet-lt", "profile": "all", "workers": 8},
        "model": {"name": "resnet50"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        "schedule": {"name": "cosine", "warmup": 0.0},
        "trainer": {"max_epochs": 90, "batch_size": 256, "channels_last": True},
    },
    "clinc150-lt": {**_HEAD, "data": {**_HEAD["data"], "name": "clinc150-lt"}},
    "features": {**_HEAD, "data": {**_HEAD["data"], "name": "features", "profile": "all"}},
}

"""Which arithmetic a run uses: ``precision=auto`` becomes bf16 where the device computes in it, else single.

``trainer.precision`` is of the network that is trained, ``search.precision`` of the heads that judge in a search.

Emulated bf16 is slower than single precision, so that a device which only stores it does not count.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from capri.train.config import Config, TrainerConfig
from capri.train.settings import read_toml

C = TypeVar("C", bound=Config)
Native = Literal["32-true", "bf16-mixed"]


def settled(config: C, resume: bool = False) -> C:
    """The run with its arithmetic named; a run that is resumed keeps the one that it began with."""
    begun = _begun_with(Path(config.out) / "config.toml") if resume else {}
    devices = {"trainer": config.trainer, "search": replace(config.trainer, accelerator="cpu")}  # heads are on the CPU
    for section, device in devices.items():
        settings: Any = getattr(config, section, None)
        if settings is not None and settings.precision == "auto":
            named = replace(settings, precision=begun.get(section) or native_precision(device))
            config = replace(config, **{section: named})
    return config


def native_precision(settings: TrainerConfig) -> Native:
    """bf16 where the processor, or the GPU that would be used, multiplies in it."""
    if on_gpu(settings):
        has = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    elif settings.accelerator in ("auto", "cpu"):
        found = torch.cpu.get_capabilities()
        has = any(found.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))
    else:
        has = False
    return "bf16-mixed" if has else "32-true"


def on_gpu(settings: TrainerConfig) -> bool:
    """Whether a CUDA device would be used."""
    return settings.accelerator in ("cuda", "gpu") or (settings.accelerator == "auto" and torch.cuda.is_available())


def _begun_with(path: Path) -> dict[str, Native]:
    """By section, as far as a run has named it."""
    if not path.exists():
        return {}
    sections = read_toml(path.read_text(encoding="utf-8"), str(path))
    found = {name: section.get("precision") for name, section in sections.items() if isinstance(section, dict)}
    return {name: precision for name, precision in found.items() if precision in ("32-true", "bf16-mixed")}

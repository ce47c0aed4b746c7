"""``trainer.precision=auto``: what the device computes in, settled once and kept."""

from dataclasses import replace

import pytest
import torch

from capri.train.config import Config, TrainerConfig, resolve
from capri.train.judging import make_recipe
from capri.train.precision import native_precision, settled
from capri.train.search_config import resolve_search


def on(capabilities, monkeypatch, **settings):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    return native_precision(TrainerConfig(accelerator="cpu", **settings))


@pytest.mark.parametrize("feature", ["amx_bf16", "avx512_bf16", "bf16"])
def test_a_processor_that_multiplies_in_bf16_uses_it(feature, monkeypatch):
    assert on({feature: True}, monkeypatch) == "bf16-mixed"


def test_one_that_would_emulate_it_does_not(monkeypatch):
    assert on({"amx_bf16": False, "avx2": True}, monkeypatch) == "32-true"
    assert native_precision(TrainerConfig(accelerator="mps")) == "32-true"


def test_a_resumed_run_keeps_what_it_began_with(tmp_path, monkeypatch):
    config = replace(Config(), out=str(tmp_path), trainer=TrainerConfig(precision="auto", accelerator="cpu"))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    first = settled(config)
    (tmp_path / "config.toml").write_text(first.to_toml())
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {})
    assert first.trainer.precision == settled(config, resume=True).trainer.precision == "bf16-mixed"
    assert settled(config).trainer.precision == "32-true"


def test_heads_that_judge_have_an_arithmetic_of_their_own(tmp_path, monkeypatch):
    """Settled by the processor, kept on resume; a search along a derivative is in single precision."""
    search = resolve_search(preset="features", out=str(tmp_path))
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    first = settled(search)
    assert (first.search.precision, first.trainer.precision) == ("bf16-mixed", "32-true")
    assert make_recipe(first).bf16
    (tmp_path / "config.toml").write_text(first.to_toml())
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {})
    assert settled(search, resume=True).search.precision == "bf16-mixed"
    assert settled(search).search.precision == "32-true"
    for method in ("one-step", "unrolled"):
        assert resolve_search(preset="features", assignments=[f"search.method={method}"]).search.precision == "32-true"


def test_what_is_named_is_taken():
    config = resolve(assignments=["trainer.precision=bf16-mixed"])
    assert settled(config) is config
    assert resolve().trainer.precision == "auto"  # of the preset cpu

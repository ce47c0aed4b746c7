"""`capri pretrain`: artefacts, resume, and the search that starts from it."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from capri._checks import InputError
from capri.train.config import resolve
from capri.train.experiment import make_data, make_pretrained_model
from capri.train.pretrain import Pretraining, pretrain
from capri.train.search_config import resolve_search


def config(root, out, epochs=2):
    values = {"data.root": root, "data.imbalance": 5, "trainer.max_epochs": epochs, "trainer.batch_size": 32,
              "trainer.accelerator": "cpu", "trainer.limit_train_batches": 2}  # fmt: skip
    return resolve(out=str(out), assignments=[f"{name}={value}" for name, value in values.items()])


class Interrupted(Exception):
    pass


def test_pretrain_resumes_and_starts_a_search(tiny_cifar10, tmp_path, monkeypatch):
    summary = pretrain(config(tiny_cifar10, tmp_path / "whole"))
    assert summary["epochs"] == 2
    assert 0 < summary["spread"] <= 1.1
    assert 0 <= summary["probe"] <= 1
    assert json.loads((tmp_path / "whole/summary.json").read_text())["probe_random"] == summary["probe_random"]

    real = Pretraining.training_step

    def breaks(self, batch, batch_idx):
        if self.current_epoch == 1:
            raise Interrupted
        return real(self, batch, batch_idx)

    monkeypatch.setattr(Pretraining, "training_step", breaks)
    with pytest.raises(Interrupted):
        pretrain(config(tiny_cifar10, tmp_path / "resumed"))
    monkeypatch.undo()
    with pytest.raises(InputError, match="holds a run already"):
        pretrain(config(tiny_cifar10, tmp_path / "resumed"))
    pretrain(config(tiny_cifar10, tmp_path / "resumed"), resume=True)
    weights = [(tmp_path / run / "encoder.safetensors").read_bytes() for run in ("whole", "resumed")]
    assert weights[0] == weights[1]

    file = tmp_path / "whole/encoder.safetensors"
    searching = resolve_search(assignments=[f"data.root={tiny_cifar10}", "data.imbalance=5", f"search.init={file}"])
    splits = make_data(searching).splits
    model = make_pretrained_model(searching, splits, searching.search.init)
    state = safetensors.torch.load_file(file)
    torch.testing.assert_close(model.state_dict()["layer1.0.conv1.weight"], state["layer1.0.conv1.weight"])
    assert not torch.equal(model.state_dict()["fc.weight"], state["fc.weight"]), "the last layer is new"
    broken = resolve_search(assignments=[f"data.root={tiny_cifar10}", f"search.init={tmp_path / 'none'}"])
    with pytest.raises(InputError, match="cannot be read"):
        make_pretrained_model(broken, splits, broken.search.init)


def test_features_have_no_views(tmp_path):
    with pytest.raises(InputError, match="views are made of images"):
        pretrain(resolve(preset="clinc150-lt", out=str(tmp_path)))

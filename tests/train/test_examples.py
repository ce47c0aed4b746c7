from __future__ import annotations

import runpy
from pathlib import Path

import lightning as L
import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_loss_in_a_plain_loop():
    errors = runpy.run_path(str(EXAMPLES / "loss_in_a_plain_loop.py"))["errors"]
    assert errors["logit adjustment"]["balanced"] < errors["cross-entropy"]["balanced"] < 0.3


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:.*does not have many workers.*")
def test_the_loss_in_lightning():
    assert runpy.run_path(str(EXAMPLES / "loss_in_lightning.py"))["errors"]["balanced"] < 0.2


def test_the_search_in_a_plain_loop():
    path = EXAMPLES / "search_in_a_plain_loop.py"
    errors = runpy.run_path(str(path))["errors"]
    assert errors["searched"]["balanced"] < errors["cross-entropy"]["balanced"] - 0.02
    code = path.read_text(encoding="utf-8").split("long_tail\n", 1)[1]
    assert sum(1 for line in code.splitlines() if line.strip()) <= 40


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:.*does not have many workers.*")
def test_the_search_in_lightning(tmp_path):
    names = runpy.run_path(str(EXAMPLES / "search_in_lightning.py"))
    digits, trainer = names["digits"], names["trainer"]
    assert len(list(digits.parameters())) == 4, "W is none of the network's parameters"
    l = names["strategy"].l
    assert l[:3].mean() > l[-3:].mean() + 1, "logit adjustment's sign, found"

    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed = names["Digits"](digits.counts, digits.val)
    again = L.Trainer(max_epochs=trainer.max_epochs, logger=False, enable_checkpointing=False, accelerator="cpu",
                      enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    again.fit(resumed, trainer.train_dataloader, ckpt_path=tmp_path / "last.ckpt")
    for part, w in resumed.outer.map.weights().items():
        np.testing.assert_array_equal(w, digits.outer.map.weights()[part])

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_loss_in_a_plain_loop():
    errors = runpy.run_path(str(EXAMPLES / "loss_in_a_plain_loop.py"))["errors"]
    assert errors["logit adjustment"]["balanced"] < errors["cross-entropy"]["balanced"] < 0.3


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:.*does not have many workers.*")
def test_the_loss_in_lightning():
    assert runpy.run_path(str(EXAMPLES / "loss_in_lightning.py"))["errors"]["balanced"] < 0.2

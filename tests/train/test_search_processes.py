"""A search by two processes (DDP, gloo) is that of one on the joined batches: W step by step, and what follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capri import InputError, Policy
from capri.train.search_config import resolve_search

HERE = Path(__file__).parent
CLUSTER = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NODE_RANK", "LOCAL_RANK"}
VARIANTS = {
    "plain": ["search.objective=balanced", "search.batch_size=12"],
    "importance": ["search.objective=cvar:0.4", "search.draw=importance", "search.batch_size=11", "search.trust=true"],
    "curved": [
        "search.objective=balanced",
        "search.hessian=ggn-cg",
        "search.optimizer=sgd",
        'search.parts=["l","delta","smoothing"]',
    ],
    "whole": ["search.objective=balanced", "search.hessian=neumann", "search.step=0.1", "search.epochs=2"],
}

ROUNDING = {"curved": 5e-5}  # conjugate gradients in single precision amplify what sums round


@pytest.fixture(scope="module")
def searches(tmp_path_factory, feature_file) -> Path:
    """one/ and two/: the variants by so many processes; of the last one, the retraining too."""
    out = tmp_path_factory.mktemp("searches")
    feature_file(out / "tiny.npz", n=41)
    settings = {
        "data.root": out,
        "data.file": "tiny.npz",
        "data.profile": "exponential",
        "data.imbalance": 4,
        "data.val_fraction": 0.3,
        "model.hidden": "[8]",
        "optimizer.name": "sgd",
        "optimizer.lr": 0.1,
        "search.method": "one-step",
        "search.attributes": '["freq","diff"]',
        "search.warmup_epochs": 1,
        "search.every": 1,
        "search.lr": 0.05,
        "trainer.max_epochs": 3,
        "trainer.batch_size": 15,  # shares of 8 and 7
        "trainer.accelerator": "cpu",
    }
    common = [f"{name}={value}" for name, value in settings.items()]
    inherited = {name: value for name, value in os.environ.items() if name not in CLUSTER}
    environment = {**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1] / "src")}
    changes = [word for variant in VARIANTS.values() for word in ("--", *variant)]
    running = []
    for folder, devices in (("one", 1), ("two", 2)):
        command = [
            sys.executable,
            HERE / "search_runs.py",
            out / folder,
            *common,
            f"trainer.devices={devices}",
            *changes,
        ]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running.append(subprocess.Popen(command, env=environment, **piped))
    for process in running:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    return out


def of(searches, variant):
    """The folder of the search, by one process and by two."""
    i = list(VARIANTS).index(variant)
    return [searches / n / str(i) / ("search" if variant == "whole" else "") for n in ("one", "two")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_w_and_the_trajectory_are_those_of_one_process(searches, variant):
    one, two = (np.load(folder / "trajectory.npz") for folder in of(searches, variant))
    assert set(one.files) == set(two.files)
    assert len(one["time"]) >= 3
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5, atol=ROUNDING.get(variant, 1e-6), err_msg=name)
    policies = [Policy.load(folder / "policy.json") for folder in of(searches, variant)]
    for part in ("l", "delta", "omega", "smoothing"):
        tolerance = ROUNDING.get(variant, 1e-6)
        np.testing.assert_allclose(*(getattr(p.strategy, part) for p in policies), atol=tolerance, rtol=0)
    assert np.ptp(policies[0].strategy.l) > 1e-3


def test_class_errors_and_figures_are_those_of_one_process(searches):
    for variant in VARIANTS:
        one, two = of(searches, variant)
        assert (one / "class_errors.csv").read_bytes() == (two / "class_errors.csv").read_bytes()
        values = [json.loads((folder / "summary.json").read_text())["value"] for folder in (one, two)]
        assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_two_processes_retrain_with_what_they_found(searches):
    retrained = [folder.parent / "retrain" for folder in of(searches, "whole")]
    with np.load(retrained[0] / "logits.npz") as one, np.load(retrained[1] / "logits.npz") as two:
        np.testing.assert_allclose(one["test_logits"], two["test_logits"], rtol=1e-2, atol=1e-3)


def test_searches_by_heads_stay_on_one_device(tmp_path):
    assignments = ["trainer.devices=2", "search.method=population", 'search.attributes=["freq"]']
    with pytest.raises(InputError, match=r"a search by population runs on one device; set trainer\.devices=1, or"):
        resolve_search(None, preset="features", out=str(tmp_path), assignments=assignments)

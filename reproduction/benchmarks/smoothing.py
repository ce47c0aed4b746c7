"""Where should label smoothing go under logit adjustment: to all classes alike, or by softmax(l)?

    python reproduction/benchmarks/smoothing.py --root data [--data clinc150-lt] [--seed 10]

Logit adjustment with several τ and ε, judged as a search judges it: out of fold, by heads at the end of training, all
on the same folds. The target of class y is (1 − ε)·1_y + ε/K ("alike"), or (1 − ε)·1_y + ε softmax(l), which is
capri's. Test samples play no part. Draw 10 of CLINC150-LT is in no table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np

from capri import Strategy
from capri.bilevel import losses
from capri.train.horizon_search import stacked
from capri.train.judging import judge_by_folds
from capri.train.ledger import Ledger
from capri.train.runner import begun
from capri.train.search_config import resolve_search

TAUS, SMOOTHINGS = (0.5, 1.0, 1.5, 2.0), (0.05, 0.2)
PRESETS = {
    "clinc150-lt": ["clinc150-lt", []],
    "cifar100-lt-features": ["features", ["data.file=cifar100_lt_features.npz"]],
}


def judged(data: str, root: str, seed: int) -> dict[str, np.ndarray]:
    """Balanced errors in percent, by what the smoothing is: a row for each τ."""
    preset, changes = PRESETS[data]
    settings = [*changes, f"data.root={root}", f"data.seed={seed}", f"seed={seed}"]
    with (
        TemporaryDirectory() as out,
        begun(resolve_search(preset=preset, out=out, assignments=settings), False) as (config, folder, module),
    ):
        judge = judge_by_folds(config, module.splits, Ledger(folder, None, False))
        named = [Strategy.logit_adjustment(module.splits.train_counts, tau) for tau in TAUS]

        def values(epsilon: float) -> np.ndarray:
            smoothed = [replace(s, smoothing=np.full(s.n_classes, epsilon)) for s in named]
            v = judge.validation
            return 100 * judge.values(v.class_errors(v.losses(stacked(smoothed))))

        found = {"none": values(0.0)}
        found |= {f"{epsilon:g} by softmax(l)": values(epsilon) for epsilon in SMOOTHINGS}
        real = losses._smoothed
        with mock.patch.object(losses, "_smoothed", lambda z, y, omega, l, e: real(z, y, omega, None, e)):
            found |= {f"{epsilon:g} to all alike": values(epsilon) for epsilon in SMOOTHINGS}
        return found


def main(data: str, root: str, seed: int) -> None:
    """A table in Markdown."""
    found = judged(data, root, seed)
    print(f"| {data}, seed {seed}: ε | " + " | ".join(f"τ = {tau:g}" for tau in TAUS) + " |")
    print("| --- |" + " ---: |" * len(TAUS))
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{v:.2f}" for v in values) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="clinc150-lt", choices=PRESETS)
    parser.add_argument("--root", default="data", help="folder of the feature files")
    parser.add_argument("--seed", type=int, default=10)
    given = parser.parse_args()
    main(given.data, given.root, given.seed)

"""What does a head in a population cost, and does its arithmetic matter? Ratios of ways to train the same heads.

    python reproduction/benchmarks/heads.py [--pairs 5] [--batches 8]
    python reproduction/benchmarks/heads.py --judged --root data

Heads of the size of CLINC150-LT (384 numbers, 512 hidden, 150 classes), a strategy each, one fold left out: by
`torch.vmap` and autograd, as any network is trained side by side, each copy computing all samples; by
`capri.bilevel.layers`, where no copy computes what all leave out; and the same in bf16. CPU time, one thread, in turns.

--judged: cross-entropy, LA and VS on CLINC150-LT (draw 10, of no table) as a search judges them, out of fold: in bf16
against single precision, on the same folds, beside single precision on other folds.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import torch
from scipy.stats import spearmanr

from capri.bilevel import side_by_side
from capri.bilevel.side_by_side import Recipe, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.models import MLPHead
from capri.train.horizon_search import named_losses, stacked
from capri.train.judging import judge_by_folds
from capri.train.ledger import Ledger
from capri.train.runner import begun
from capri.train.search_config import resolve_search

D, HIDDEN, K, BATCH, FOLDS = 384, 512, 150, 128, 5


def seconds(kind: str, copies: int, batches: int) -> float:
    """CPU seconds of an epoch."""
    generator = torch.Generator().manual_seed(0)
    n = batches * BATCH
    x, y = torch.randn(n, D, generator=generator), torch.randint(K, (n,), generator=generator)
    ones = torch.ones(copies, K)
    strategies = StrategyTensors(ones, torch.randn(copies, K, generator=generator), 1.1 * ones, 0.01 * ones)
    adamw = partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-2, fused=True)
    recipe = Recipe(1, BATCH, adamw, lambda step, steps, per_epoch: 1.0, bf16=kind == "bf16")
    # Copies that leave out different folds compute all samples.
    left_out = torch.arange(copies) % FOLDS if kind == "vmap" else torch.zeros(copies, dtype=torch.long)
    real = side_by_side.LinearLayers.of
    how = (lambda *_, **__: None) if kind == "vmap" else real
    with mock.patch.object(side_by_side.LinearLayers, "of", how):
        start = time.process_time()
        train_side_by_side(
            MLPHead(D, K, (HIDDEN,)), strategies, x, y, recipe, left_out=left_out, folds=torch.arange(n) % FOLDS
        )
        return time.process_time() - start


def main(copies: int, batches: int, pairs: int) -> None:
    torch.set_num_threads(1)
    kinds = ("vmap", "layers", "bf16")
    found = np.array([[seconds(kind, copies, batches) for kind in kinds] for _ in range(pairs + 1)])[1:]
    for i, kind in enumerate(kinds):
        ratios = found[:, 0] / found[:, i]
        print(f"{kind:<7} {np.median(ratios):.2f} × as fast as vmap ({ratios.min():.2f} … {ratios.max():.2f})")


def judged(root: str, precision: str, folds: int) -> tuple[np.ndarray, float]:
    """Balanced errors of the named losses in percent, on some partition into folds, and CPU seconds."""
    settings = [f"data.root={root}", "data.seed=10", "seed=10", f"search.precision={precision}"]
    with TemporaryDirectory() as out:
        config = resolve_search(preset="clinc150-lt", out=out, assignments=settings)
        with begun(config, False) as (config, folder, data):
            judge = judge_by_folds(config, data.splits, Ledger(folder, None, False))
            losses = stacked([loss.strategy for loss in named_losses(data.splits.train_counts)])
            start = time.process_time()
            by = judge.afresh(folds) if folds else judge.validation
            errors = by.class_errors(by.losses(losses))
            return 100 * judge.values(errors), time.process_time() - start


def compare_judgements(root: str) -> None:
    torch.set_num_threads(1)
    (single, long), (half, short) = judged(root, "32-true", 0), judged(root, "bf16-mixed", 0)
    anew, _ = judged(root, "32-true", 1)
    print(f"bf16 is {long / short:.2f} × as fast as single precision")
    for title, other in (("bf16, the same folds", half), ("single precision, other folds", anew)):
        difference, rank = other - single, spearmanr(other, single).statistic
        print(f"{title:<30} {difference.mean():+.2f} ± {difference.std():.2f} points, rank correlation {rank:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--judged", action="store_true", help="compare judgements instead")
    parser.add_argument("--root", default="data", help="folder of clinc150_minilm.npz, for --judged")
    given = parser.parse_args()
    if given.judged:
        compare_judgements(given.root)
        raise SystemExit
    main(given.copies, given.batches, given.pairs)

"""What does a head in a population cost? Ratios of three ways to train the same heads, in one run.

    python reproduction/benchmarks/heads.py [--pairs 5] [--batches 8]

Heads of the size of CLINC150-LT (384 numbers, 512 hidden, 150 classes), a strategy each, one fold left out: by
`torch.vmap` and autograd, as any network is trained side by side, each copy computing all samples; by
`capri.bilevel.layers`, where no copy computes what all leave out; and the same in bf16. CPU time, one thread, in turns.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from unittest import mock

import numpy as np
import torch

from capri.bilevel import side_by_side
from capri.bilevel.side_by_side import Recipe, train_side_by_side
from capri.bilevel.strategy_map import StrategyTensors
from capri.models import MLPHead

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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args()
    main(given.copies, given.batches, given.pairs)

"""Searches in as many processes as the settings ask for: python search_runs.py out name=value … -- name=value … -- …

Each list of changes after a `--` is a search of its own, in out/0, out/1, ….
"""

from __future__ import annotations

import sys

import torch

import capri.data.modules
from capri.train.search_config import resolve_search
from capri.train.search_runner import search, search_and_retrain

if __name__ == "__main__":
    out, *rest = sys.argv[1:]
    torch.set_num_threads(1)
    capri.data.modules.EVALUATION_BATCH = 10
    lists = " ".join(rest).split(" -- ")
    common, variants = lists[0].split(), [v.split() for v in lists[1:]]
    for i, changes in enumerate(variants):
        config = resolve_search(None, preset="features", out=f"{out}/{i}", assignments=[*common, *changes])
        if "search.epochs=2" in changes:
            search_and_retrain(config)
        else:
            search(config)

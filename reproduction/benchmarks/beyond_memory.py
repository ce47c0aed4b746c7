"""Tuning on more scores than there is memory: a folder of half-precision Parquet files, a budget, and what it took.

    python reproduction/benchmarks/beyond_memory.py --rows 10_000_000 --classes 1000 --memory 2GB
    python reproduction/benchmarks/beyond_memory.py --tuning        # bytes that tuning takes for each byte of scores

The scores are those of `reallike.py`, 50,000 rows of them, again and again with noise of 0.3 nats; files are made one
by one and deleted at the end. Resident memory is the peak of a process of its own, as the system counts it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from reallike import made

BASE, FILE, NOISE = 50_000, 50_000, 0.3  # rows of the pattern, rows of a file, and nats
TUNE = """
import json, sys, time, warnings
import numpy as np
from capri import LogitAdjuster, evaluate
from capri.blocks import as_source
folder, memory, objective = sys.argv[1:]
warnings.simplefilter("ignore")
source, began = as_source(folder), time.perf_counter()
adjuster = LogitAdjuster(objective).fit(source, class_counts=np.load(folder + "/counts.npy"), memory=memory)
found, sample = adjuster.validation_, adjuster.policy_.data.get("sample")
print(json.dumps({
    "seconds": time.perf_counter() - began, "passes": source.passes, "sample": sample,
    "before": found.before[objective], "after": found.after[objective],
    "improvement out of fold": found.improvement, "interval": found.interval,
}))
"""
FIT = """
import resource, sys, warnings
import numpy as np
from capri import LogitAdjuster
warnings.simplefilter("ignore")
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
saved = np.load(sys.argv[1])
scores, y = saved["scores"], saved["y"]
LogitAdjuster(sys.argv[2], bootstrap=20).fit(scores[:2000, :5], np.arange(2000) % 5)
before = peak()
LogitAdjuster(sys.argv[2]).fit(scores, y, class_counts=saved["counts"])
print((peak() - before) / scores.nbytes)
"""


def make(folder: Path, rows: int, k: int) -> None:
    """The files, one after the other, and the training counts."""
    base, rng = made(min(BASE, rows), k), np.random.default_rng(1)
    np.save(folder / "counts.npy", base.counts)
    for number, first in enumerate(range(0, rows, FILE)):
        order = rng.permutation(len(base.y))[: rows - first]
        scores = base.scores[order]
        scores += NOISE * rng.standard_normal(scores.shape, np.float32)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(scores.astype(np.float16).ravel()), k)
        table = pa.table({"scores": lists, "label": base.y[order]})
        pq.write_table(table, folder / f"part-{number:04}.parquet", row_group_size=10_000, use_dictionary=["label"])


def run(code: str, *arguments: object) -> tuple[str, float]:
    """What a process of its own prints, and its peak of resident memory in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--objective", default="balanced")
    parser.add_argument("--tuning", action="store_true", help="measure what tuning takes in memory instead")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.tuning:
            for n in (10_000, 20_000, 40_000):
                found = made(n, 500)
                np.savez(folder / "x.npz", **found._asdict())
                told, _ = run(FIT, folder / "x.npz", given.objective)
                print(f"N={n:,} K=500: {float(told):.1f} bytes for each byte of scores", flush=True)
            return
        began = time.perf_counter()
        make(folder, given.rows, given.classes)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{size / 1e9:.2f} GB written in {time.perf_counter() - began:.0f} s", flush=True)
        told, peak = run(TUNE, folder, given.memory, given.objective)
        print(f"--memory {given.memory}: resident at most {peak / 1e9:.2f} GB")
        print(json.dumps(json.loads(told), indent=1))


if __name__ == "__main__":
    main()

"""Many fits in one process, as JSON: what each found, and the memory of the process after each."""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np

from capri import LogitAdjuster

OBJECTIVES = ("balanced", "plain", "sdev", "cvar:0.3", "quantile:0.3", "worst", "macro_f1", "kappa", "gmean", "mix:0.5",
              "0.5*balanced+0.5*worst")  # fmt: skip
PAGE = 4096


def memory() -> int:
    """Bytes that the process holds, the garbage collected."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def one_fit(rng: np.random.Generator) -> str:
    """A random problem, tuned in a random way; a digest of the answer and of its figures."""
    k, per_class = int(rng.integers(2, 40)), int(rng.integers(2, 30))
    counts, y = rng.integers(1, 900, k), np.repeat(np.arange(k), per_class)
    scores = rng.normal(size=(len(y), k)) + 2 * np.eye(k)[y] + np.log(counts / counts.sum())
    fit = LogitAdjuster(
        str(rng.choice(OBJECTIVES)),
        method=str(rng.choice(["cap", "cap", "la", "plain", "vs"])),
        borrow=float(rng.choice([0.0, 20.0])),
        bootstrap=int(rng.choice([0, 20])),
    )
    more = {"X_unlabelled": scores[::2]} if rng.integers(3) == 0 else {}
    fit.fit(scores.astype(str(rng.choice(["f4", "f8", "f2"]))), y, class_counts=counts, **more)
    found = [fit.strategy_.l.tolist(), fit.strategy_.delta.tolist(), fit.validation_.improvement, fit.reason_]
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    stream, digests, held = np.random.default_rng(int(sys.argv[2])), [], []
    for _ in range(int(sys.argv[1])):
        digests.append(one_fit(stream))
        held.append(memory())
    print(json.dumps({"digests": digests, "memory": held}))

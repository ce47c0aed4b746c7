"""Tuning on two processes of Dask, again and again. A line before each fit: the workers, and the digest of the last."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np

N, K = 3000, 7
PATIENCE = 15  # seconds in which a worker that was killed has a successor
SETTINGS = {"objective": "cvar:0.3", "bootstrap": 20}


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Scores of a fair model, and labels."""
    rng = np.random.default_rng(5)
    y = rng.choice(K, N, p=np.arange(1, K + 1) / 28)
    return (rng.normal(size=(N, K)) + 1.5 * np.eye(K)[y]).astype(np.float16), y


def both(client: Any) -> list[int] | None:
    """The processes of the two workers, or None if Dask, which starts them again, has given one up."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if len(alive := client.run(os.getpid, on_error="ignore")) == 2:
            return list(alive.values())
        time.sleep(0.1)
    return None


def say(workers: list[int], digest: str | None) -> None:
    print(json.dumps({"workers": workers, "digest": digest}))
    sys.stdout.flush()


def main(fits: int, out: str, folder: str) -> None:
    import dask.array as da
    from distributed import Client, LocalCluster

    from capri import LogitAdjuster
    from capri.blocks import as_source

    (scores, y), digest = samples(), None
    while fits:
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=folder)
        with cluster, Client(cluster) as client:
            while fits and (workers := both(client)):
                say(workers, digest)
                source = as_source(da.from_array(scores, chunks=(100, -1)), da.from_array(y, chunks=100))
                policy = LogitAdjuster(**SETTINGS).fit(source, memory="1GB").policy_
                policy.save(out)
                digest, fits = policy.digest, fits - 1
    say([], digest)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), *sys.argv[2:])

"""Tuning on two processes of Dask, again and again. A line before each fit: the workers, and the digest of the last."""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

import numpy as np

N, K = 3000, 7
SETTINGS = {"objective": "cvar:0.3", "bootstrap": 20}


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Scores of a fair model, and labels."""
    rng = np.random.default_rng(5)
    y = rng.choice(K, N, p=np.arange(1, K + 1) / 28)
    return (rng.normal(size=(N, K)) + 1.5 * np.eye(K)[y]).astype(np.float16), y


def main(fits: int, out: str, folder: str) -> None:
    import dask.array as da
    from distributed import Client, LocalCluster

    from capri import LogitAdjuster
    from capri.blocks import as_source

    scores, y = samples()
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=folder)
    with cluster, Client(cluster) as client:
        digest = None
        for _ in range(fits):
            while len(alive := client.run(os.getpid, on_error="ignore")) < 2:  # those that Dask starts again
                time.sleep(0.1)
            print(json.dumps({"workers": list(alive.values()), "digest": digest}))
            sys.stdout.flush()
            source = as_source(da.from_array(scores, chunks=(100, -1)), da.from_array(y, chunks=100))
            policy = LogitAdjuster(**SETTINGS).fit(source, memory="1GB").policy_
            policy.save(out)
            digest = policy.digest
        print(json.dumps({"workers": [], "digest": digest}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), *sys.argv[2:])

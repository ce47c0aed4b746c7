"""Time of `gmm.solve` on a grid of 100 × 100 settings, separability thresholds and δ* included.

python reproduction/benchmarks/theory.py
"""

import time

import numpy as np

from capri_paper.theory import gmm


def main(size: int = 100, repeats: int = 5) -> None:
    grids = {
        "π × d̄ (1e-4 … 0.999, 1e-3 … 1e6)": (
            np.geomspace(1e-4, 0.999, size)[:, None],
            2**0.5,
            1,
            2,
            np.geomspace(1e-3, 1e6, size),
        ),
        "R × s₊ (0 … 30, 0.05 … 20)": (0.1, np.geomspace(0.05, 20, size)[:, None], 1, np.linspace(0, 30, size), 1),
    }
    for name, grid in grids.items():
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            gmm.solve(*grid)
            times.append(time.perf_counter() - start)
        print(f"{size} × {size} settings, {name}: median {np.median(times):.2f} s of {repeats} runs")


if __name__ == "__main__":
    main()

"""What an outer step costs, as ratios to one plain training step in the same run.

    python reproduction/benchmarks/bilevel.py [--repeats 7] [--parts steps precision …]   # fills results/bilevel.json
    python reproduction/benchmarks/bilevel.py --render               # writes the table into docs/bilevel.md

ResNet-32 on random images of CIFAR's size. Time is CPU time of the process, the median over repeats that take turns, so
that a busy machine slows all alike; peak memory is the rise in resident memory of a fresh process of each kind.
AutoBalance's setting is measured as configured: an outer step of 10 + 10 batches with 5 terms of double backward, once.
Plain and outer steps are measured in bf16, too (autocast), each as ratios to the plain step of the same precision; the
search itself runs in single precision.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from capri.bilevel.hypergradient import (
    InverseHessianSettings,
    LogitMap,
    ParametricLoss,
    hessian_products,
    neumann_series,
    outer_gradient,
)
from capri.bilevel.losses import parametric_cross_entropy
from capri.models import ResNet32

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "reproduction" / "benchmarks" / "results" / "bilevel.json", ROOT / "docs" / "bilevel.md"
PARTS = ("steps", "precision", "epochs", "memory")
MOST = 2.2  # plain steps that an outer step may cost
K, EVERY, AUTOBALANCE_EVERY, AUTOBALANCE_BATCHES = 10, 5, 20, 10


class Setting:
    """A network, two batches and a strategy."""

    def __init__(self, batch: int):
        torch.manual_seed(0)
        self.model = ResNet32(K).to(memory_format=torch.channels_last).train()
        self.train, self.val = (
            (torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last), torch.arange(batch) % K)
            for _ in range(2)
        )
        self.alpha = [torch.ones(K), torch.linspace(1, -1, K), torch.full((K,), 0.731)]
        self.loss = ParametricLoss.of(*self.alpha)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)

    def plain(self) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        parametric_cross_entropy(self.model(self.train[0]), self.train[1], *self.alpha).mean().backward()
        self.optimizer.step()

    def outer(self, method: str = "identity") -> None:
        """An outer step: one validation and one training batch."""
        settings = InverseHessianSettings(method, iterations=5, tolerance=0.0)
        outer_gradient(self.model, self.loss, self.train, self.val, F.cross_entropy, settings)

    def autobalance(self) -> None:
        """As described: v by 5 Neumann terms with the true Hessian, the mixed term by double backward."""
        theta = tuple(self.model.parameters())
        g = torch.autograd.grad(F.cross_entropy(self.model(self.val[0]), self.val[1]), theta)
        at = LogitMap(self.model, self.train[0])
        v = neumann_series(hessian_products(at, lambda o: self.loss.losses(o, self.train[1])), g, 5, 1.0)
        loss = self.loss.losses(self.model(self.train[0]), self.train[1]).mean()
        slope = torch.autograd.grad(loss, theta, create_graph=True)
        torch.autograd.grad(sum((a * b).sum() for a, b in zip(slope, v, strict=True)), self.loss.alpha)

    def mixed_double_backward(self) -> None:
        """The mixed term alone, the expensive way."""
        theta = tuple(self.model.parameters())
        loss = self.loss.losses(self.model(self.train[0]), self.train[1]).mean()
        slope = torch.autograd.grad(loss, theta, create_graph=True)
        torch.autograd.grad(sum((a * a.detach()).sum() for a in slope), self.loss.alpha)

    def mixed_forward_mode(self) -> None:
        """The mixed term alone, by one forward-mode product."""
        at = LogitMap(self.model, self.train[0])
        v = tuple(torch.ones_like(p) for p in self.model.parameters())
        self.loss.mixed(*at.jvp(v), self.train[1])


KINDS: dict[str, Callable[[Setting], None]] = {
    "plain": Setting.plain,
    "mixed, forward mode": Setting.mixed_forward_mode,
    "mixed, double backward": Setting.mixed_double_backward,
    "outer, identity": Setting.outer,
    "outer, ggn-cg (5 products)": lambda s: s.outer("ggn-cg"),
    "outer, AutoBalance with 1+1 batches": Setting.autobalance,
}


def cpu_seconds(call: Callable[[], None]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def times(batch: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each kind; kinds take turns."""
    setting = Setting(batch)
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    for i in range(repeats + 1):
        for name, kind in KINDS.items():
            seconds = cpu_seconds(lambda k=kind: k(setting))
            if i:  # the first round warms up
                found[name].append(seconds)
    return {name: float(np.median(values)) for name, values in found.items()}


def precision_times(batch: int, repeats: int) -> dict[str, dict[str, float]]:
    """Median CPU seconds of plain and outer steps in both precisions; all take turns."""
    setting, kinds = Setting(batch), ("plain", "outer, identity")
    found: dict[str, dict[str, list[float]]] = {p: {name: [] for name in kinds} for p in ("single", "bf16")}
    for i in range(repeats + 1):
        for precision, by_kind in found.items():
            for name, seconds in by_kind.items():
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                    spent = cpu_seconds(lambda name=name: KINDS[name](setting))
                if i:  # the first round warms up
                    seconds.append(spent)
    return {p: {name: float(np.median(seconds)) for name, seconds in by.items()} for p, by in found.items()}


def precision_ratios(batch: int, repeats: int) -> dict[str, float]:
    """What bf16 saves, and what an outer step costs in both precisions."""
    seconds = precision_times(batch, repeats)
    single, half = seconds["single"], seconds["bf16"]
    return {
        "plain step, bf16 against single": half["plain"] / single["plain"],
        "outer step, single": single["outer, identity"] / single["plain"],
        "outer step, bf16": half["outer, identity"] / half["plain"],
    }


def verdict(ratios: dict[str, float]) -> str:
    """Whether outer steps are as cheap as they should be, a line for each precision."""
    lines = [f"plain step in bf16: {ratios['plain step, bf16 against single']:.2f} × single precision"]
    for precision in ("single", "bf16"):
        ratio = ratios[f"outer step, {precision}"]
        held = "holds" if ratio <= MOST else "does not hold"
        lines.append(f"an outer step, {precision}: {ratio:.2f} plain steps; at most {MOST} {held}")
    return "\n".join(lines)


def epoch_ratio(batch: int, repeats: int, steps: int = 10) -> float:
    """A search epoch with an outer step every 5 inner ones against a plain epoch, measured as loops."""
    setting = Setting(batch)
    setting.plain(), setting.outer()

    def loop(searching: bool) -> float:
        return cpu_seconds(
            lambda: [((i % EVERY == 0 and searching) and setting.outer(), setting.plain()) for i in range(steps)]
        )

    pairs = [(loop(False), loop(True)) for _ in range(repeats)]
    return float(np.median([search / plain for plain, search in pairs]))


def peak(kind: str, batch: int) -> float:
    """Peak resident megabytes of a process that takes three plain steps, and steps of `kind` between them."""
    command = [sys.executable, __file__, "--peak", kind, "--batch", str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_peak(kind: str, batch: int) -> None:
    before = resident("VmRSS")
    setting = Setting(batch)
    for _ in range(2):
        setting.plain()
        if kind != "plain":
            setting.optimizer.zero_grad()
            KINDS[kind](setting)
    print(resident("VmHWM") - before)


def resident(what: str) -> float:
    """Resident megabytes now (VmRSS) or at most so far (VmHWM), as Linux counts them."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def main(batch: int, repeats: int, parts: list[str]) -> None:
    torch.set_num_threads(1)
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found |= {"batch": batch, "torch": torch.__version__}
    if "steps" in parts:
        seconds = times(batch, repeats)
        unit, setting = seconds["plain"], Setting(batch)
        ten = cpu_seconds(lambda: [setting.autobalance() for _ in range(AUTOBALANCE_BATCHES)]) / unit
        found["ratios"] = {name: s / unit for name, s in seconds.items()}
        found["ratios"]["outer, AutoBalance as configured (10+10 batches)"] = ten
    if "precision" in parts:
        found["precision"] = precision_ratios(batch, repeats)
        print(verdict(found["precision"]))
    if "epochs" in parts:
        ten = found["ratios"]["outer, AutoBalance as configured (10+10 batches)"]
        found["epochs"] = {
            f"search epoch, outer step every {EVERY} (identity)": epoch_ratio(batch, repeats),
            f"search epoch, AutoBalance every {AUTOBALANCE_EVERY} (its step spread)": 1 + ten / AUTOBALANCE_EVERY,
        }
    if "memory" in parts:
        kinds = ("plain", "outer, identity", "mixed, double backward", "outer, AutoBalance with 1+1 batches")
        found["memory_mb"] = {name: peak(name, batch) for name in kinds}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if {"ratios", "epochs", "memory_mb"} <= found.keys():
        print(table(found))


def table(found: dict) -> str:
    memory = found["memory_mb"]
    rows = ["| | × plain step (CPU time) | × plain (peak memory) |", "| --- | ---: | ---: |"]
    for name, ratio in {**found["ratios"], **found["epochs"]}.items():
        size = f"{memory[name] / memory['plain']:.2f}" if name in memory else ""
        rows.append(f"| {name} | {ratio:.2f} | {size} |")
    return "\n".join(rows)


def render() -> None:
    text = table(json.loads(RESULTS.read_text()))
    page, n = re.subn(
        r"(<!-- cost: begin -->\n).*?(<!-- cost: end -->)", rf"\1{text}\n\2", PAGE.read_text(), flags=re.DOTALL
    )
    if n != 1:
        raise SystemExit(f"{PAGE} has {n} pairs of markers for cost; it needs one.")
    PAGE.write_text(page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure anew")
    parser.add_argument("--peak", choices=list(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--render", action="store_true")
    given = parser.parse_args()
    if given.peak:
        measure_peak(given.peak, given.batch)
    elif given.render:
        render()
    else:
        main(given.batch, given.repeats, given.parts)

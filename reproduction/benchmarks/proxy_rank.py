"""Does the proxy rank losses as full training does? Spearman's rank correlation, with n.

    python reproduction/benchmarks/proxy_rank.py --root data --data cifar10-lt        # --help has all options

Each loss whose full training is stored (`capri paper run losses` makes eight; whatever else is there counts, too) is
judged by the proxy of `capri search --set search.method=proxy`: a linear head on the features of one network, and the
validation samples, which that network has not seen. The network is the one that `--network` names, or that the store
has kept of the run on 80 %, or is trained in the folder of this benchmark. Nothing else is trained.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from capri import InputError
from capri.train.checkpoints import AtomicCheckpointIO
from capri.train.config import LossConfig
from capri.train.experiment import identity, make_strategy
from capri.train.horizon_search import stacked
from capri.train.judging import Judge, judge_by_proxy
from capri.train.ledger import Ledger
from capri.train.proxy import MODEL, proxy_features
from capri.train.runner import begun
from capri.train.search_config import SearchRun
from capri.train.settings import differences
from capri_paper import resolved
from capri_paper.exhibits import Size
from capri_paper.store import Store
from capri_paper.training import FIFTH, SOURCES, bilevel, configured, train

RESULTS = Path(__file__).resolve().parents[1] / "results"
LEAST = 6  # losses of which a rank correlation tells anything


@dataclass(frozen=True)
class Judged:
    """A loss, what the proxy says of it (mean and deviation over heads), and the test error of full training."""

    name: str
    proxy: float
    deviation: float
    full: float


def trained_in_full(store: Store, data: str, seed: int, size: Size) -> dict[LossConfig, float]:
    """Balanced test errors of the runs that differ from the usual one in nothing but the loss (and the arithmetic)."""
    usual = resolved.as_config(SOURCES[data].run(seed, size)).to_mapping()
    found: dict[LossConfig, float] = {}
    for record in store.records("train").values():
        config = resolved.as_config(record["settings"]["run"])
        other = [n for n in differences(usual, config.to_mapping()) if not n.startswith(("loss.", "trainer.precision"))]
        if not other and config.loss.strategy != "policy" and "failed" not in record["result"]:
            loss, error = used(config.loss), record["result"]["test"]["balanced"]
            if loss not in found or config.trainer.precision == usual["trainer"]["precision"]:
                found[loss] = error
    return found


def used(loss: LossConfig) -> LossConfig:
    """With the numbers that its strategy does not look at as they are by default."""
    looks = {"la": ("tau",), "vs": ("tau", "gamma"), "cdt": ("gamma",), "weighted": ("weights",)}.get(loss.strategy, ())
    return LossConfig(
        strategy=loss.strategy,
        label_smoothing=loss.label_smoothing,
        scale=loss.scale,
        **{name: getattr(loss, name) for name in looks},
    )


def title(loss: LossConfig) -> str:
    """As in "vs, tau 1.25, gamma 0.15"."""
    plain = LossConfig(strategy=loss.strategy)
    shown = ["tau"] if loss.strategy == "la" else ["tau", "gamma"] if loss.strategy == "vs" else []
    shown += ["gamma"] if loss.strategy == "cdt" else []
    shown += [n for n in ("label_smoothing", "scale", "weights") if getattr(loss, n) != getattr(plain, n)]
    return ", ".join([loss.strategy, *(f"{name} {getattr(loss, name)}" for name in shown)])


def proxy_run(store: Store, data: str, seed: int, size: Size, out: Path, network: str) -> SearchRun:
    """The search whose judge is asked."""
    unit = bilevel(data, seed, size, ["freq"], "search.method=proxy")
    config = configured(unit, store, out / f"{data}-seed{seed}")
    kept = store.folder(train(data, seed, size, FIFTH)) / MODEL
    weights = network or (str(kept) if kept.exists() else "")
    assert isinstance(config, SearchRun)
    return replace(config, search=replace(config.search, init=weights))


def by_proxy(config: SearchRun, losses: list[LossConfig], heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Balanced errors by the proxy, and their deviations over `heads` trainings of a head."""
    resume = Path(config.out, "config.toml").exists()
    with begun(config, resume) as (config, folder, data):
        ledger = Ledger(folder, AtomicCheckpointIO(identity(config, data.splits)), resume)
        judge = judge_by_proxy(config, data.splits, proxy_features(config, data, folder, resume, ledger), ledger)
        strategies = [make_strategy(loss, data.splits) for loss in losses]
        values = np.array([_values(judge, i, strategies) for i in range(heads)])
    return values.mean(axis=0), values.std(axis=0, ddof=min(1, heads - 1))


def _values(judge: Judge, i: int, strategies: list[Any]) -> np.ndarray:
    validation = judge.afresh(i) if i else judge.validation
    return judge.values(validation.class_errors(validation.losses(stacked(strategies))))


def measure(
    store: Store, data: str, seed: int, size: Size, out: Path, network: str = "", heads: int = 3
) -> list[Judged]:
    """All losses that are stored, from the best to the worst in full training."""
    full = trained_in_full(store, data, seed, size)
    if len(full) < LEAST:
        raise InputError(
            f"{store.root} has {len(full)} losses of {data}, seed {seed}, trained in full, and a rank correlation "
            f"needs {LEAST}; `capri paper run losses --only data={data} --seeds {seed + 1}` trains more."
        )
    losses = sorted(full, key=lambda loss: full[loss])
    means, deviations = by_proxy(proxy_run(store, data, seed, size, out, network), losses, heads)
    return [Judged(title(l), float(m), float(d), full[l]) for l, m, d in zip(losses, means, deviations, strict=True)]


def correlation(rows: list[Judged]) -> float:
    """Spearman's, between what the proxy says and what full training gave."""
    return float(spearmanr([row.proxy for row in rows], [row.full for row in rows]).statistic)


def show(rows: list[Judged], data: str, seed: int) -> None:
    """The table, and the correlation."""
    table = Table(title=f"{data}, seed {seed}")
    for name, justify in (("loss", "left"), ("full training", "right"), ("by proxy", "right"), ("rank", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    ranks = np.argsort(np.argsort([row.proxy for row in rows])) + 1
    for row, rank in zip(rows, ranks, strict=True):
        table.add_row(
            row.name, f"{100 * row.full:.2f} %", f"{100 * row.proxy:.2f} ± {100 * row.deviation:.2f}", str(rank)
        )
    console = Console()
    console.print(table)
    console.print(f"Spearman's rank correlation: {correlation(rows):.3f}, n = {len(rows)}")


def main(given: argparse.Namespace) -> None:
    store, found = Store(given.results / "smoke" if given.preset == "smoke" else given.results, given.root, {}), {}
    for seed in range(given.seeds):
        rows = measure(store, given.data, seed, given.preset, given.out, given.network, given.heads)
        show(rows, given.data, seed)
        found[str(seed)] = {"spearman": correlation(rows), "n": len(rows), "losses": [vars(row) for row in rows]}
    if given.json:
        given.json.write_text(json.dumps({given.data: found}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-lt", choices=["cifar10-lt", "cifar100-lt", "digits-images"])
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the CIFAR files")
    parser.add_argument("--results", type=Path, default=RESULTS, help="stored results")
    parser.add_argument("--preset", default="cpu", choices=get_args(Size))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--heads", type=int, default=3, help="trainings of a head for each loss")
    parser.add_argument("--network", default="", help="weights of a network that was trained on the 80 %%")
    parser.add_argument("--out", type=Path, default=Path("runs/proxy-rank"), help="folder of network and features")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    try:
        main(parser.parse_args())
    except InputError as error:
        raise SystemExit(f"proxy_rank: {error}") from None

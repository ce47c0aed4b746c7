"""The tables of searches and of trained images, in the order of what a run tells for its price.

A unit takes minutes to an hour, and all of them take days: `capri paper campaign` does what is missing, at low
priority, until it is told to stop, and goes on there the next time.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from capri_paper.exhibits import Exhibit, Only
from capri_paper.store import Store, Unit

LOWEST = 19  # of niceness


@dataclass(frozen=True)
class Stage:
    """Some cells of a table. methods: all that the table has where none is named."""

    table: str
    data: str
    seeds: tuple[int, ...]
    methods: tuple[str, ...] = ()

    def units(self, exhibits: dict[str, Exhibit]) -> list[Unit]:
        """Method by method, in the order in which they are named."""
        found = [
            unit
            for method in self.methods or (None,)
            for unit in exhibits[self.table].units(self.seeds, "cpu", self._only(method))
        ]
        return list(dict.fromkeys(found))

    def _only(self, method: str | None) -> Only:
        return Only.parse([f"data={self.data}", *([f"method={method}"] if method else [])])


_MAIN = ("la", "ce", "vs", "cdt", "posthoc", "retrain", "cap", "plain")
_PROXIES = ("proxy freq", "proxy freq_diff")
_FIRST = ("la", "vs", "ce", "cap")  # of whom three seeds are wanted before the others
_RIVALS = ("vs", "la scaled", "la smoothed", "vs smoothed")
_SEARCHES = (*_RIVALS, "freq smoothed", "freq_diff smoothed", "freq population", "freq_diff population")
STAGES = (
    Stage("searches", "clinc150-lt", (0, 1, 2), _SEARCHES[:6]),
    Stage("searches", "cifar100-lt-features", (0, 1, 2), _SEARCHES[:6]),
    Stage("balanced", "cifar10-lt", (0,), _MAIN),
    Stage("balanced", "cifar100-lt", (0,), _MAIN),
    Stage("balanced", "cifar10-lt", (0,), _PROXIES),
    Stage("balanced", "cifar100-lt", (0,), _PROXIES),
    Stage("search-objectives", "clinc150-lt", (0, 1, 2)),
    Stage("search-objectives", "cifar100-lt-features", (0, 1, 2)),
    Stage("losses", "cifar10-lt", (0,)),
    Stage("balanced", "cifar10-lt", (1, 2), _FIRST),
    Stage("balanced", "cifar100-lt", (1, 2), _FIRST),
    Stage("attributes", "cifar100-lt", (0,)),
    Stage("attributes", "cifar10-lt-noise", (0,)),
    Stage("transfer", "cifar10-lt", (0,)),
    Stage("transfer", "cifar100-lt", (0,)),
    Stage("warmup", "cifar10-lt", (0,)),
    Stage("warmup", "cifar100-lt", (0,)),
    Stage("balanced", "cifar10-lt", (1, 2), _MAIN),
    Stage("balanced", "cifar100-lt", (1, 2), _MAIN),
    Stage("searches", "clinc150-lt-noise", (0, 1, 2)),
    Stage("searches", "clinc150-lt", (3, 4), _SEARCHES),
    Stage("searches", "cifar100-lt-features", (3, 4), _SEARCHES),
)


def planned(exhibits: dict[str, Exhibit]) -> dict[Unit, Stage]:
    """All units in order, each under the first stage that asks for it."""
    found: dict[Unit, Stage] = {}
    for stage in STAGES:
        for unit in stage.units(exhibits):
            found.setdefault(unit, stage)
    return found


def missing(store: Store, exhibits: dict[str, Exhibit]) -> list[Unit]:
    """What is not stored yet."""
    return [unit for unit in planned(exhibits) if store.find(unit) is None]


def step_back() -> None:
    """Leave the cores to whoever else wants them, where the system has priorities."""
    with suppress(AttributeError, OSError):
        os.nice(LOWEST)


@contextmanager
def alarm(seconds: float | None) -> Iterator[threading.Event]:
    """After `seconds` the process is asked to stop, as by SIGTERM; the event tells that it was the clock."""
    rung = threading.Event()
    if seconds is None:
        yield rung
        return

    def ring() -> None:
        rung.set()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield rung
    finally:
        timer.cancel()

"""Results that are computed once. A unit of work is named by what it is, its settings; its result lies under that name.

    results/<kind>/<digest>.json          settings, result, versions and commit
    results/<kind>/<label>-<digest>/      what else the work leaves behind, where it does (logits, curves)

Whoever needs a result asks the store, which reads it or does the work. So a run that was interrupted goes on where it
stopped, and a result that was deleted, record and folder, is the only one that is computed anew. A folder without its
record is a run that has ended or stopped there: it is taken up.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from capri._checks import InputError
from capri._files import write_atomically
from capri._provenance import commit, versions

Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Unit:
    """A piece of work: its kind, and settings of JSON's types. `label` is for people and names nothing.

    >>> Unit("posthoc", {"seed": 0, "method": "la"}) == Unit("posthoc", {"method": "la", "seed": 0}, label="LA")
    True
    """

    kind: str
    settings: Mapping[str, Any]
    label: str = ""

    @property
    def digest(self) -> str:
        """The content address, of kind and settings."""
        text = json.dumps([self.kind, self.settings], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unit) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


Work: TypeAlias = Callable[[Unit, "Store"], Result]


@dataclass(frozen=True)
class Store:
    """Results under `root`; data files under `data`. `works`: how each kind is done."""

    root: Path
    data: Path
    works: Mapping[str, Work]

    def path(self, unit: Unit) -> Path:
        """Where a result lies."""
        return self.root / unit.kind / f"{unit.digest}.json"

    def folder(self, unit: Unit) -> Path:
        """Where the work may leave more."""
        label = re.sub(r"[^\w.+-]+", "-", unit.label).strip("-")
        return self.root / unit.kind / f"{label}-{unit.digest}".lstrip("-")

    def find(self, unit: Unit) -> Result | None:
        """The result, None if there is none yet."""
        try:
            text = self.path(unit).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            result: Result = json.loads(text)["result"]
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{self.path(unit)} is not a stored result; delete it, and it is computed anew.") from None
        return result

    def need(self, unit: Unit) -> Result:
        """The result, computed and kept if there is none yet."""
        found = self.find(unit)
        if found is not None:
            return found
        with self.alone(unit):
            found = self.find(unit)  # another process may have been faster
            if found is not None:
                return found
            result = self.works[unit.kind](unit, self)
            self._keep(unit, result)
        return result

    def _keep(self, unit: Unit, result: Result) -> None:
        """Write the record; checkpoints have served when it is there, and not before."""
        content = {"kind": unit.kind, "label": unit.label, "settings": dict(unit.settings), "result": result,
                   "versions": versions(), "commit": commit()}  # fmt: skip
        write_atomically(self.path(unit), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        for leftover in list(self.folder(unit).glob("**/checkpoints")):
            shutil.rmtree(leftover)

    @contextmanager
    def alone(self, unit: Unit) -> Iterator[None]:
        """One process at a time per unit. The lock goes with the process, so a killed one leaves none behind."""
        try:
            import fcntl
        except ImportError:  # pragma: no cover (not on this system: two processes may do the same work twice)
            yield
            return
        path = self.path(unit).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

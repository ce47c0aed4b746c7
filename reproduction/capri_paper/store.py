"""Results that are computed once, each under a key: a digest of all that decides it.

    results/<kind>.jsonl                one line per result, sorted by label: result, settings, versions, commit
    results/runs/<label>-<digest>/      what else the work leaves behind, where it does (networks, logits, curves)

Whoever needs a result asks the store, which reads it or does the work. So a run that was interrupted goes on where it
stopped, and a result that was deleted, line and folder, is the only one that is computed anew. A folder without its
line is a run that has ended or stopped there: it is taken up.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from capri import InputError
from capri.extension import commit, locked, remove_partial, versions, write_atomically

Result: TypeAlias = dict[str, Any]

#: Of the code behind each kind. Settings do not show a change of the code itself (a loss, a search, a constant beside
#: torch): raise the number of every kind whose results it changes, and they all count as not run.
VERSIONS: Mapping[str, int] = {
    "train": 1, "grid": 1, "pretrain": 1, "bilevel": 1, "transfer": 1, "posthoc": 1, "steps": 1,
    "rival": 1,
}  # fmt: skip


def key(kind: str, version: int, settings: Mapping[str, Any], needs: Iterable[str]) -> str:
    """What a result is stored under: a digest of its kind, the version of the code, all settings, every default among
    them, and the keys of the results that it rests on."""
    text = json.dumps([kind, version, settings, sorted(needs)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def checksum(kind: str, digest: str, result: Result) -> str:
    """What a result is held to when it is read: an edited number, or one under another key, has another checksum."""
    return hashlib.sha256(json.dumps([kind, digest, result], ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Unit:
    """A piece of work: its kind, its settings (resolved, of JSON's types), and the units that it rests on.

    `label` is for people: units that differ in nothing else are one, with one result and one folder.

    >>> Unit("posthoc", {"seed": 0, "method": "la"}) == Unit("posthoc", {"method": "la", "seed": 0}, label="LA")
    True
    """

    kind: str
    settings: Mapping[str, Any]
    label: str = ""
    needs: tuple[Unit, ...] = ()

    @property
    def version(self) -> int:
        """Of the code that does it."""
        return VERSIONS.get(self.kind, 1)

    @cached_property
    def digest(self) -> str:
        """Its key."""
        return key(self.kind, self.version, self.settings, (unit.digest for unit in self.needs))

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

    def path(self, kind: str) -> Path:
        """Where results of a kind lie."""
        return self.root / f"{kind}.jsonl"

    def folder(self, unit: Unit) -> Path:
        """Where the work may leave more: the folder whose name ends in the digest, whatever label stands before it."""
        runs, label = self.root / "runs", re.sub(r"[^\w.+-]+", "-", unit.label).strip("-")
        return min(runs.glob(f"*{unit.digest}"), default=runs / f"{label}-{unit.digest}".lstrip("-"))

    def records(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """All that is stored of a kind, by digest."""
        try:
            stat = self.path(kind).stat()
        except FileNotFoundError:
            return {}
        return _read(self.path(kind), (stat.st_mtime_ns, stat.st_size, stat.st_ino))

    def find(self, unit: Unit) -> Result | None:
        """The result, None if there is none yet."""
        record = self.records(unit.kind).get(unit.digest)
        return None if record is None else record["result"]

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
        record = {"label": unit.label, "digest": unit.digest, "checksum": checksum(unit.kind, unit.digest, result),
                  "result": result, "settings": unit.settings,
                  "needs": {need.digest: need.label for need in unit.needs}, "version": unit.version,
                  "versions": versions(), "commit": commit()}  # fmt: skip
        with self._locked(unit.kind):
            remove_partial(self.root, self.path(unit.kind).name)
            write_records(self.path(unit.kind), [*self.records(unit.kind).values(), record])
        for leftover in list(self.folder(unit).glob("**/checkpoints")):
            shutil.rmtree(leftover)

    def alone(self, unit: Unit) -> AbstractContextManager[None]:
        """One process at a time per unit."""
        return self._locked(f"{unit.kind}-{unit.digest}")

    def _locked(self, name: str) -> AbstractContextManager[None]:
        return locked(self.root / "locks" / name)


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """One line each, in an order that does not depend on when they were computed."""
    lines = sorted(records, key=lambda record: (record["label"], record["digest"]))
    write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


@lru_cache(maxsize=32)
def _read(path: Path, stamp: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """The records of a file by digest; `stamp` changes with the file, which is read once for all the cells of a table.

    A line that was edited, mixed up or cut must not pass for a result: its digest and its checksum are computed again.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line:
            continue
        place = f"{path}, line {number}"
        try:
            record = json.loads(line.decode("utf-8"))
            place += f" ({record['label']})"
            stored, digest = record["digest"], key(path.stem, record["version"], record["settings"], record["needs"])
            intact = record["checksum"] == checksum(path.stem, stored, record["result"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{place} is not a stored result; delete the line, and it is computed anew.") from None
        if stored != digest:
            raise InputError(
                f"{place}: the digest {stored} is not that of its settings, which give {digest}; the line was edited "
                "or mixed up. Delete it, and it is computed anew."
            )
        if not intact:
            raise InputError(
                f"{place}: the checksum is not that of its result; the line was edited or mixed up. Delete it, and it "
                "is computed anew."
            )
        if digest in found:
            raise InputError(f"{place} is there twice; delete one of the lines.")
        found[digest] = record
    return found

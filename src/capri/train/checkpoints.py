"""Checkpoints that survive: written aside and renamed, data and never code, sealed, with all random states."""

from __future__ import annotations

import hashlib
import io
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins import CheckpointIO
from torch import distributed

from capri._checks import InputError
from capri._files import write_atomically
from capri.train.config import PREVIOUS

SEAL = b"sha256:"  # ends a checkpoint, with the digest of all that stands before it; torch reads it all the same


@dataclass(frozen=True)
class Identity:
    """What a checkpoint is of: digests of all settings of the run, and of its data."""

    config: str
    data: str

    def check(self, stored: Any, path: Any) -> None:
        """Refuse the checkpoint of another run."""
        before = stored if isinstance(stored, dict) else {}
        for name, what, remedy in (
            ("config", "settings, or with another policy or network to start from", "Resume with those of the run"),
            ("data", "data: their files have changed since", "Put these back"),
        ):
            if before.get(name) != getattr(self, name):
                raise InputError(
                    f"{path} is of a run with other {what} (digest {before.get(name)}, now {getattr(self, name)}). "
                    f"{remedy}, or start anew in another folder with --out."
                )


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's checkpoints, so that a full disk or a kill leaves the previous one intact, and damage is noticed."""

    def __init__(self, of: Identity | None = None):
        self.of = of

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Serialise in memory, keep the one before, write aside, rename."""
        buffer, target = io.BytesIO(), Path(path)
        torch.save(checkpoint if self.of is None else {**checkpoint, "capri": asdict(self.of)}, buffer)
        try:
            if target.exists():
                write_atomically(before(target), target.read_bytes())
            write_atomically(target, buffer.getvalue() + SEAL + _digest(buffer.getvalue()))
        except OSError as error:
            previous = "The previous checkpoint is intact" if target.exists() else "There is no earlier checkpoint"
            raise OSError(
                error.errno,
                f"cannot write the checkpoint: {error.strerror}. {previous}; make room and run with --resume",
                str(path),
            ) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Tensors and plain values only, of this run."""
        content = load_checkpoint(path)
        if self.of is not None:
            self.of.check(content.pop("capri", None), path)
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        Path(path).unlink(missing_ok=True)


def before(path: Path) -> Path:
    """Where the checkpoint of the epoch before is kept."""
    return path.with_name(PREVIOUS.name)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint's content: its SHA-256 is checked, and it is read with ``weights_only=True``."""
    try:
        return _opened(Path(path))
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint; start the run without --resume.") from None
    except ValueError as error:
        raise InputError(f"{path} is not a readable checkpoint ({error}); {_remedy(Path(path))}") from None


def _opened(path: Path) -> dict[str, Any]:
    content, seal, digest = path.read_bytes().rpartition(SEAL)
    if not seal or digest != _digest(content):
        raise ValueError("damaged: its SHA-256 is not that of its content")
    try:
        opened: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different type for each thing that a file must not hold
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    return opened


def _remedy(path: Path) -> str:
    """Offer the checkpoint of the epoch before, where it is intact."""
    previous = before(path)
    try:
        if previous != path:
            _opened(previous)
            return f"remove it, and --resume goes on from the one before, {previous.name}, which is intact."
    except (OSError, ValueError):
        pass
    return "remove it and start again."


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def random_state(generator: torch.Generator) -> dict[str, Any]:
    """States of torch, NumPy, Python and the data's own generator, as tensors and plain values."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 (the global state is what must be kept)
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "python": random.getstate(),
        "data": generator.get_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def of_every_process(state: dict[str, Any]) -> list[dict[str, Any]]:
    """This state and those of the other processes, by rank; all of them must call."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return [state]
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, state)
    return states


def restore_random_state(state: dict[str, Any], generator: torch.Generator) -> None:
    """Set all states."""
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    generator.set_state(state["data"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])

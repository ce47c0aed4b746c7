"""Checkpoints that survive: written aside and renamed, data and never code, with all random states inside."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins import CheckpointIO
from torch import distributed

from capri._checks import InputError
from capri._files import write_atomically


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's checkpoints, so that a full disk or a kill leaves the previous one intact."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Serialise in memory, write aside, rename."""
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        try:
            write_atomically(path, buffer.getvalue())
        except OSError as error:
            previous = "The previous checkpoint is intact" if Path(path).exists() else "There is no earlier checkpoint"
            raise OSError(
                error.errno,
                f"cannot write the checkpoint: {error.strerror}. {previous}; make room and run with --resume",
                str(path),
            ) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Tensors and plain values only."""
        return load_checkpoint(path)

    def remove_checkpoint(self, path: Any) -> None:
        """Delete the file."""
        Path(path).unlink(missing_ok=True)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint's content, read with ``weights_only=True``."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint; start the run without --resume.") from None
    except Exception as error:  # torch raises a different type for each way in which a file can be damaged
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a readable checkpoint ({reason}); remove it and start again.") from None


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

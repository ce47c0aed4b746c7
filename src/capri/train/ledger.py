"""What a search has judged, under names, in the checkpoint of its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from capri.train.checkpoints import AtomicCheckpointIO
from capri.train.claim import started_from
from capri.train.config import LAST


class Ledger:
    """What has been judged, by name: a checkpoint that grows. Of a resumed run it holds what was judged before."""

    def __init__(self, folder: Path, keeper: AtomicCheckpointIO, resume: bool):
        self.path, self.keeper = folder / LAST, keeper
        before = started_from(folder) if resume else None
        self.judged: dict[str, Tensor] = {} if before is None else keeper.load_checkpoint(before)["judged"]

    def once(self, name: str, judge: Callable[[], Tensor]) -> Tensor:
        """What was judged under this name; it is judged now, and kept, where there is nothing yet."""
        if name not in self.judged:
            found = judge()
            if not bool(torch.isfinite(found).all()):
                raise FloatingPointError(f"{name} has class errors that are not finite; lower optimizer.lr.")
            self.judged[name] = found
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.keeper.save_checkpoint({"judged": self.judged}, self.path)
        return self.judged[name]

    def __contains__(self, name: str) -> bool:
        return name in self.judged

    def keep_mapping(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep arrays under a name, over those of before."""
        self.judged |= {f"{name}/{key}": torch.from_numpy(np.array(value)) for key, value in arrays.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.keeper.save_checkpoint({"judged": self.judged}, self.path)

    def mapping(self, name: str) -> dict[str, NDArray[Any]] | None:
        """The arrays that were kept under a name; None where there are none."""
        kept = {k.removeprefix(f"{name}/"): v.numpy() for k, v in self.judged.items() if k.startswith(f"{name}/")}
        return kept or None

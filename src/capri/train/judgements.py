"""What a search has judged, as a file from which another search can start.

A judgement is of a strategy, and not of an objective: the class errors of networks at the end of training, on samples
that they have not seen. Whoever searches the same data for another objective, or by other attributes, knows it already.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from capri._arrays import Npz
from capri._checks import InputError
from capri._files import open_regular, write_atomically
from capri.bilevel.strategy_map import StrategyTensors
from capri.data.splits import Splits
from capri.train.config import TrainerConfig
from capri.train.experiment import identity
from capri.train.search_config import POPULATIONS, SearchRun

JUDGED = "judged.npz"


@dataclass(frozen=True)
class Judgements:
    """Strategies by name, and their class errors.

    who: a digest of who judged, `judged_by`. names: (P,). strategies: (P, K) each. errors: (P, K), NaN where no sample
    of a class judges.
    """

    who: str
    names: tuple[str, ...]
    strategies: StrategyTensors
    errors: NDArray[np.float64]

    def plus(self, name: str, strategies: StrategyTensors, errors: NDArray[np.float64]) -> Self:
        """These, and more under one name."""
        joined = (torch.cat(pair) for pair in zip(self.strategies, strategies, strict=True))
        return type(self)(
            self.who,
            (*self.names, *[name] * len(errors)),
            StrategyTensors(*joined),
            np.concatenate([self.errors, errors]),
        )

    def save(self, path: Path) -> None:
        """As .npz without pickles."""
        parts = {name: part.numpy() for name, part in self.strategies._asdict().items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer, who=np.array(self.who), names=np.array(self.names), errors=self.errors, allow_pickle=False,
            **parts,
        )  # fmt: skip
        write_atomically(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path, who: str) -> Self:
        """What an earlier search has judged; refused where other data, other folds or another training judged it."""
        try:
            with open_regular(path) as stream:
                file = Npz(stream)
                parts = (torch.from_numpy(file.get(part)).float() for part in StrategyTensors._fields)
                stored, names = str(file.get("who")), tuple(map(str, file.get("names")))
                strategies, errors = StrategyTensors(*parts), file.get("errors").astype(np.float64)
        except OSError as error:
            raise InputError(f"search.known: {path} cannot be read ({error.strerror or error}).") from None
        except Exception as error:  # a reader may raise anything when a file is damaged
            raise InputError(
                f"search.known: {path} is no file of judgements ({error}); searches by populations leave one, {JUDGED}."
            ) from None
        if stored != who:
            raise InputError(
                f"search.known: {path} was judged by other samples, folds or training than this search would judge by. "
                "The settings of data, model, optimizer and schedule, seed, trainer.batch_size, search.folds, "
                "search.epochs (or trainer.max_epochs) and search.precision (auto differs by processor) must be those "
                "of the search that left it; or leave search.known out."
            )
        shape = (len(names), errors.shape[-1] if errors.ndim else 0)
        fits = errors.shape == shape and all(part.shape == shape for part in strategies)
        if not (fits and _sound(strategies, errors)):
            raise InputError(f"search.known: {path} is damaged: its arrays are not strategies and their class errors.")
        return cls(stored, names, strategies, errors)


def _sound(strategies: StrategyTensors, errors: NDArray[np.float64]) -> bool:
    finite = all(bool(torch.isfinite(part).all()) for part in strategies)
    judged = errors[:, ~np.isnan(errors).all(axis=0)]  # a class without samples that judge has no error
    within = bool(judged.size) and bool(((judged >= 0) & (judged <= 1)).all())
    return finite and within and bool((strategies.delta > 0).all())


def judged_by(config: SearchRun, splits: Splits) -> str:
    """A digest of all that decides a judgement: data, training, folds, and the code."""
    heads = replace(
        config.training(), preset="", trainer=replace(TrainerConfig(), batch_size=config.trainer.batch_size)
    )
    decides = identity(heads, splits), config.search.folds, config.search_epochs, config.search.precision, POPULATIONS
    return hashlib.sha256(repr(decides).encode()).hexdigest()[:16]

"""Who judges strategies in a search that sees the end of training: heads on samples that they have not seen.

By folds, all training samples judge, each by heads that were trained without it. By validation, the samples of that
part do; and by proxy, the same of heads on the features of a network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from capri._checks import InputError
from capri.bilevel.out_of_fold import CrossValidation
from capri.bilevel.outer_objective import OuterObjective
from capri.bilevel.side_by_side import Recipe
from capri.bilevel.strategy_map import StrategyTensors
from capri.data.splits import Splits
from capri.forms import is_spread
from capri.models import LinearHead
from capri.sampling import stratified_folds
from capri.train.experiment import make_model
from capri.train.ledger import Ledger
from capri.train.module import make_optimizer
from capri.train.proxy import Features
from capri.train.schedules import learning_rate_factor
from capri.train.search import outer_objective
from capri.train.search_config import SPREAD_GUARD, SearchRun


@dataclass(frozen=True)
class Judge:
    """From strategies to class errors, each judged once; and to the objective.

    afresh: from 1, 2, … to other ways to judge the same. where, anew: what these do, in words.
    """

    validation: CrossValidation
    afresh: Callable[[int], CrossValidation]
    objective: OuterObjective
    ledger: Ledger
    where: str = "out of fold"
    anew: str = "fresh folds"

    def errors(self, name: str, strategies: StrategyTensors, by: CrossValidation | None = None) -> NDArray[np.float64]:
        """(P, K): class errors as the search judges, or by other validation."""
        judging = by or self.validation

        def judge() -> Tensor:
            with _progress(name) as tell:
                return torch.from_numpy(judging.class_errors(judging.losses(strategies, tell)))

        return self.ledger.once(name, judge).numpy()

    def values(self, errors: NDArray[np.float64], unadjusted: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The objective of each row of class errors.

        unadjusted: class errors of cross-entropy. The spread alone is best where all classes are equally bad, so that
        `SPREAD_GUARD` times what the balanced error is above that of cross-entropy is added to it.
        """
        found = np.array([self.objective.evaluator(row[self.objective.present]) for row in errors])
        if unadjusted is None or not is_spread(self.objective.evaluator):
            return found
        excess = np.nanmean(errors, axis=1) - np.nanmean(unadjusted)
        return np.asarray(found + SPREAD_GUARD * np.maximum(excess, 0))


def judge_by_folds(config: SearchRun, splits: Splits, ledger: Ledger) -> Judge:
    """All training samples judge, fold by fold, heads that were trained on the others."""
    x, y = torch.from_numpy(splits.train.x).float(), torch.from_numpy(splits.train.y).long()

    def folds(seed: int) -> Tensor:
        return torch.from_numpy(stratified_folds(y, config.search.folds, seed))

    model, recipe = make_model(config, splits), make_recipe(config)
    validation = CrossValidation(model, x, y, splits.n_classes, recipe, folds(config.seed))
    objective = outer_objective(config.search, splits, config.data.absent, validation.counts)
    return Judge(validation, lambda i: replace(validation, folds=folds(config.seed + 1000 * i)), objective, ledger)


def judge_by_proxy(config: SearchRun, splits: Splits, known: Features, ledger: Ledger) -> Judge:
    """Validation samples judge linear heads on features."""
    torch.manual_seed(config.seed)  # whether or not a network was trained before
    head = LinearHead(known.x.shape[1], splits.n_classes)
    return replace(judge_by_validation(config, splits, head, known, ledger), where="by proxy")


def judge_by_validation(config: SearchRun, splits: Splits, head: nn.Module, known: Features, ledger: Ledger) -> Judge:
    """Validation samples judge heads; afresh, the same samples judge heads that have seen batches in another order."""
    recipe, folds = make_recipe(config), known.judges.long() - 1  # those of -1 always train
    validation = CrossValidation(head, known.x, known.y, splits.n_classes, recipe, folds)
    return Judge(
        validation,
        lambda i: replace(validation, recipe=replace(recipe, seed=config.seed + 1000 * i)),
        outer_objective(config.search, splits, config.data.absent),
        ledger,
        where="on validation",
        anew="other orders of samples",
    )


def make_recipe(config: SearchRun) -> Recipe:
    """Training as configured, for networks side by side."""
    if config.trainer.mixup or config.trainer.gradient_clip:
        raise InputError("networks are trained side by side without mixup and gradient clipping; set both to 0.")
    return Recipe(
        config.search_epochs,
        config.trainer.batch_size,
        partial(make_optimizer, config=config.optimizer, fused=True),
        partial(learning_rate_factor, config.schedule),
        config.seed,
        config.search.precision == "bf16-mixed",
    )


@contextmanager
def _progress(title: str) -> Iterator[Callable[[float], None] | None]:
    """A bar with the time left, on terminals."""
    if not sys.stdout.isatty():
        yield None
        return
    columns = [TextColumn(title), BarColumn(), TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)

"""Bilevel search of the loss (Lightning, manual optimisation).

    warm-up    the network trains with the starting strategy
    then       every n inner steps an outer step: W moves down the hypergradient of the validation objective,
               and the network goes on with the strategy that W now says

`freq` is known at the start; `diff` and `norm` are measured at the end of warm-up, and the dictionary is made there. A
plain search (AutoBalance) is the same with identity attributes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capri._checks import InputError
from capri.attributes import Attributes, frequency
from capri.bilevel.hypergradient import InverseHessianSettings
from capri.bilevel.losses import MovingLoss
from capri.bilevel.outer_objective import OuterObjective, class_sums
from capri.bilevel.outer_step import DivergedError, OuterStep, measure_classes
from capri.bilevel.strategy_map import Dictionaries, StrategyMap, StrategyTensors
from capri.data.batches import Batch
from capri.data.modules import SplitsDataModule
from capri.data.splits import Splits
from capri.errors import THIN, Absent
from capri.evidence import Evidence, gather
from capri.train.artefacts import last_layer_norms
from capri.train.experiment import module_settings
from capri.train.module import Classifier
from capri.train.search_config import PLAIN, SearchConfig, SearchRun
from capri.train.trajectory import Trajectory


class ThinValidationWarning(UserWarning):
    """Classes have too few validation samples to say how hard they are."""


class Search(Classifier):
    """Trains the network and moves the strategy. `trajectory` holds W, objective and class errors over time.

    With several processes, hypergradients, validation batches and running class errors are those of the joined batches;
    batch norm has the statistics of each share, as in training.

    Parameters
    ----------
    model : nn.Module
        From inputs to logits (n, K).
    config : SearchRun
        All settings of the search.
    data : SplitsDataModule
        The parts of the experiment, in batches.
    """

    loss: MovingLoss

    def __init__(self, model: nn.Module, config: SearchRun, data: SplitsDataModule):
        splits = data.splits
        self.settings: SearchConfig
        start_l = config.search.tau * np.log(frequency(splits.train_counts)) if config.search.tau else None
        start = _start(config.search, splits.n_classes, start_l)
        super().__init__(
            model,
            MovingLoss(start),
            **module_settings(config, splits),
        )
        self.automatic_optimization = False
        self.settings, self.gradient_clip = config.search, config.trainer.gradient_clip
        self.evidence, self.start_l = known_before(config.search, splits), start_l
        self.data, self.val_size = data, config.search.batch_size or config.trainer.batch_size
        self.objective = outer_objective(config.search, splits, config.data.absent)
        self.outer: OuterStep | None = None  # from the end of warm-up
        self.attributes: Attributes | None = None
        self.trajectory = Trajectory()
        self._resumed: dict[str, Any] | None = None

    # -- the two levels ----------------------------------------------------------------------------------------------

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """An outer step where one is due, then the inner one."""
        if self.outer is not None and batch_idx % self.settings.every == 0:
            self._outer_step(batch)
        loss = super().training_step(batch, batch_idx)
        if not torch.isfinite(self._total(loss.detach())):  # of any process: all of them end
            raise FloatingPointError(
                f"the training loss is {loss.item()} in epoch {self.current_epoch + 1}, step {batch_idx + 1}. Lower "
                f"optimizer.lr ({self.optimizer.lr}) or search.lr ({self.settings.lr}); {self._kept()}"
            )
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        if self.gradient_clip:
            self.clip_gradients(optimizer, gradient_clip_val=self.gradient_clip, gradient_clip_algorithm="norm")
        optimizer.step()
        scheduler: Any = self.lr_schedulers()
        scheduler.step()
        return loss.detach()

    def _outer_step(self, train: Batch) -> None:
        """W down the hypergradient of the validation objective, on one batch of each."""
        assert self.outer is not None
        x, y, *importance = (part[self._own()] for part in next(self.val_stream))
        rate = self._rate() if self.settings.follow else 1.0
        try:
            val, drawn = (x.to(self.device), y.to(self.device)), importance[0] if importance else None
            value = self.outer.step(train, val, importance=drawn, rate=rate)
        except DivergedError as error:
            raise FloatingPointError(
                f"the strategy diverged in epoch {self.current_epoch + 1}: {error.reason} (search.limit is "
                f"{self.settings.limit:g}). Lower search.lr ({self.settings.lr}), raise search.every or warm up "
                f"longer; {self._kept()}"
            ) from None
        self.trajectory.note(self._step(), value, self.outer.map.weights())

    def _own(self) -> slice:
        """Of a joined batch, the samples of this process."""
        return slice(self.trainer.global_rank, None, self.trainer.world_size)

    def _kept(self) -> str:
        """What is on disk when an epoch breaks off."""
        if self.current_epoch == 0:
            return "it was the first epoch, and nothing is kept of it."
        if self.current_epoch <= self.settings.warmup_epochs:
            return "the checkpoint of the epoch before is intact; there was no strategy yet."
        return "the checkpoint and policy.json of the epoch before are intact."

    def _rate(self) -> float:
        """The inner learning rate as a share of its highest."""
        optimizer: Any = self.optimizers()
        return float(optimizer.param_groups[0]["lr"]) / (self.optimizer.lr or 1.0)

    def _step(self) -> float:
        """Time in epochs."""
        return float(self.global_step) / max(1, int(self.trainer.num_training_batches))

    # -- the begin of the search -------------------------------------------------------------------------------------

    def on_train_epoch_start(self) -> None:
        """Begin the search at the end of warm-up; validation batches start afresh each epoch."""
        super().on_train_epoch_start()
        if self.outer is None and self.current_epoch >= self.settings.warmup_epochs:
            self._begin()
        self.val_stream = self._validation()

    def _validation(self) -> Iterator[tuple[Tensor, ...]]:
        """Validation batches without end, as `search.draw` says."""
        if self.settings.draw == "importance":
            return importance_stream(self.data, self.val_size, self.objective)
        return validation_stream(self.data, self.val_size)

    def _begin(self) -> None:
        """Measure the classes, make the dictionary and the outer level."""
        errors = measure_classes(self.model, self.objective, self.data.batches(self.data.splits.val))
        if self.trainer.world_size > 1:  # running statistics of batch norm are those of each process
            errors, self.objective.errors = self.trainer.strategy.broadcast((errors, self.objective.errors))
        present = errors[np.isfinite(errors)]
        self.trajectory.begin(self.current_epoch, float(present.std()), errors)
        if self.settings.attributes != PLAIN:
            self._warn_if_thin()
            norms = {"norm": last_layer_norms(self.model)} if "norm" in self.settings.attributes else {}
            counts, own = self.objective.counts.numpy(), {**self.evidence.own, **norms}
            measured = replace(self.evidence, errors=errors, n_samples=counts, own=own)
            self.attributes = gather(measured, self.settings.attributes, self.class_names)
        self.outer = self._make_outer()

    def _warn_if_thin(self) -> None:
        """Difficulty needs samples to be measured on."""
        thin = int((self.objective.counts < THIN).sum())
        n_classes = len(self.objective.counts)
        if "diff" in self.settings.attributes and 2 * thin > n_classes:
            warnings.warn(
                f"diff is measured on fewer than {THIN} validation samples in {thin} of {n_classes} classes, and the "
                "search goes by the same samples: it may fit them and not the classes. Validate on more, or take "
                'search.attributes=["freq"].',
                ThinValidationWarning,
                stacklevel=2,
            )

    def _make_outer(self) -> OuterStep:
        """The outer level at its start; from here on the network trains with its loss."""
        s = self.settings
        dictionaries = Dictionaries.of(self.attributes, len(self.train_counts), s.scaling)  # type: ignore[arg-type]
        made = StrategyMap(dictionaries, s.parts, delta_form=s.delta_form, start_l=self.start_l).to(self.device)  # type: ignore[arg-type]
        decay = self.optimizer.weight_decay if self.optimizer.name == "sgd" else 0.0  # AdamW's is not in the loss
        inverse = InverseHessianSettings(s.hessian, s.damping, decay, s.iterations, terms=s.terms, step=s.step)
        outer = OuterStep(
            self.model,
            made,
            self.objective,
            optimizer=_outer_optimizer(s, made),
            inverse_hessian=inverse,
            limit=s.limit,
            prior=s.prior,
            trust=s.trust,
            add=self._total if self.trainer.world_size > 1 else None,
        )
        self.loss = outer.loss
        return outer

    # -- each epoch --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        """Count afresh."""
        super().on_validation_epoch_start()
        self.class_loss_sums = torch.zeros(len(self.train_counts), dtype=torch.float64, device=self.device)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Confusions, and class losses for the running errors."""
        x, y = batch
        logits = self(x)
        self._count(logits, y)
        self.class_loss_sums += class_sums(logits, y, self.objective.class_loss, len(self.train_counts))

    def on_validation_epoch_end(self) -> None:
        """The running errors are exact once an epoch; note where the search stands."""
        super().on_validation_epoch_end()
        self.objective.anchor(self._total(self.class_loss_sums))
        self.trajectory.note_errors(self.class_errors)
        span, delta = self.loss.l.max() - self.loss.l.min(), self.loss.delta
        self.record |= {
            "outer_objective": self.objective.value(),
            "l_span": float(span),
            "delta_min": float(delta.min()),
            "delta_max": float(delta.max()),
        }

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What the module's tensors do not hold."""
        checkpoint["search"] = {
            "attributes": None if self.attributes is None else torch.from_numpy(self.attributes.values),
            "outer": None if self.outer is None else self.outer.state_dict(),
            "trajectory": self.trajectory.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The outer level waits for the network to be on its device."""
        state = checkpoint["search"]
        self.trajectory = Trajectory.from_state(state["trajectory"])
        self._resumed = state["outer"]
        if state["attributes"] is not None:
            names = self.class_names or [str(k) for k in range(len(self.train_counts))]
            self.attributes = Attributes(state["attributes"].numpy(), self.settings.attributes, tuple(names))

    def on_fit_start(self) -> None:
        """Go on with the search where it was begun."""
        if self._resumed is not None:
            self.outer = self._make_outer()
            self.outer.load_state_dict(self._resumed)
            self._resumed = None


def validation_stream(data: SplitsDataModule, size: int) -> Iterator[Batch]:
    """Shuffled validation batches without end. The order comes from the data's generator, whose state is kept."""
    val = data.splits.val
    while True:
        order = torch.randperm(len(val), generator=data.generator)
        for x, y in data.batches(val.take(order.numpy())):
            yield from zip(torch.split(x, size), torch.split(y, size), strict=True)


def importance_stream(data: SplitsDataModule, size: int, objective: OuterObjective) -> Iterator[tuple[Tensor, ...]]:
    """Validation batches without end, drawn by what samples weigh in the objective, and 1/(N q_i) of each sample.

    The probabilities q are those of the class errors when a pass of N draws begins; the weights are exact for these.
    """
    val = data.splits.val
    while True:
        q = objective.draw_probabilities()
        importance = 1 / (len(val) * q)
        order = torch.multinomial(q[torch.from_numpy(val.y)], len(val), replacement=True, generator=data.generator)
        for x, y in data.batches(val.take(order.numpy())):
            for batch, labels in zip(torch.split(x, size), torch.split(y, size), strict=True):
                yield batch, labels, importance[labels]


def known_before(config: SearchConfig, splits: Splits) -> Evidence:
    """What is known of the classes before training."""
    if "noise" in config.attributes and splits.noise is None:
        raise InputError("search.attributes names noise, but the data have none; set data.noise, or leave it out.")
    if "weights" in config.attributes and not config.weights:
        raise InputError("search.attributes names weights, but search.weights is empty; give one number per class.")
    own = {} if splits.noise is None else {"noise": splits.noise}
    return Evidence(class_counts=splits.train_counts, weights=config.weights or None, own=own)


def _start(config: SearchConfig, n_classes: int, start_l: NDArray[np.float64] | None) -> StrategyTensors:
    """The strategy of the warm-up: offsets as asked, the rest as the map will start."""
    identity = Dictionaries.of(None, n_classes)
    made = StrategyMap(identity, config.parts, delta_form=config.delta_form, start_l=start_l)  # type: ignore[arg-type]
    return made()


def _outer_optimizer(config: SearchConfig, made: StrategyMap) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(made.parameters(), config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(made.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay)


def outer_objective(
    config: SearchConfig, splits: Splits, absent: Absent, counts: NDArray[np.int64] | None = None
) -> OuterObjective:
    """The objective as configured, on so many samples of each class: those of the validation part by default."""
    return OuterObjective(
        config.objective,
        np.bincount(splits.val.y, minlength=splits.n_classes) if counts is None else counts,
        class_loss=config.class_loss,
        absent=absent,
        weights=config.weights or None,
        class_counts=splits.train_counts,
        class_names=splits.class_names,
    )

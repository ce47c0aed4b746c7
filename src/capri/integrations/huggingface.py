"""Hugging Face's Trainer: the loss of a strategy, and class errors with every evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn
from transformers import EvalPrediction, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from capri._checks import InputError
from capri._files import write_atomically
from capri.bilevel import ParametricCrossEntropy
from capri.evaluation import STANDARD
from capri.integrations.scores import POLICY, SCORES, Known, Validation, after_tuning, check_names, kept_going, named
from capri.objectives import ObjectiveLike
from capri.strategy import Strategy


class StrategyLoss:
    """The loss of a strategy, for ``Trainer(compute_loss_func=StrategyLoss(strategy))``.

    The mean of the samples, over all batches of an accumulated step, as the Trainer's own.

    Parameters
    ----------
    strategy : Strategy
        Weights, offsets, multipliers and label smoothing of the classes.

    Examples
    --------
    >>> loss = StrategyLoss(Strategy.logit_adjustment([900, 90, 10]))
    """

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self._loss: nn.Module = ParametricCrossEntropy(strategy, reduction="sum")

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """As the Trainer calls it.

        Parameters
        ----------
        outputs : ModelOutput, mapping or tuple
            Of a model for sequences or images, with `logits` of shape (n, K).
        labels : Tensor of shape (n,) or (n, K)
            Class numbers, or probabilities.
        num_items_in_batch : int, optional
            Samples of the whole step, over which the mean goes.

        Returns
        -------
        Tensor
        """
        if labels is None:
            raise InputError('the batch has no "labels"; the Trainer takes them from the column of that name.')
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        if logits.ndim != 2 or labels.ndim > 2 or len(labels) != len(logits):
            raise InputError(
                f"logits have shape {tuple(logits.shape)}, labels {tuple(labels.shape)}; the loss is for one label per "
                "sample, (n, K) and (n,)."
            )
        if logits.shape[1] != self.strategy.n_classes:
            raise InputError(
                f"the model gives {logits.shape[1]} logits, and the strategy has {self.strategy.n_classes} classes."
            )
        self._loss = self._loss.to(logits.device)
        total = self._loss(logits, labels)
        if num_items_in_batch is None:
            return total / len(logits)
        return total * (labels.numel() / len(labels)) / num_items_in_batch  # the Trainer counts entries of the labels


class ClassErrorCallback(TrainerCallback):  # type: ignore[misc]
    """Class errors with every evaluation, and validation scores beside every checkpoint, ready for `capri tune`.

    Hand both of it to the Trainer: ``Trainer(…, compute_metrics=errors.compute_metrics, callbacks=[errors])``. Each
    evaluation then reports the objectives, also as they would be after tuning; with each checkpoint
    ``validation_scores.npz`` and ``policy.json`` are saved.

    Parameters
    ----------
    classes : sequence of labels, optional
        The label of each score column; by default their numbers.
    class_counts : per class, optional
        Training samples.
    objectives : sequence of names, objectives or functions
        What is reported.
    tune : name, Objective, function or None, default "balanced"
        What the policy is for; None tunes nothing.

    Examples
    --------
    >>> errors = ClassErrorCallback(["ham", "spam"], class_counts=[900, 100], tune="worst")
    """

    def __init__(
        self,
        classes: Sequence[Any] | None = None,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        *,
        objectives: Sequence[ObjectiveLike] = STANDARD,
        tune: ObjectiveLike | None = "balanced",
    ) -> None:
        check_names(*objectives, *([] if tune is None else [tune]))
        self.known = Known.of(classes, class_counts)
        self.objectives = objectives
        self.tune = tune
        self.validation: Validation | None = None

    def compute_metrics(self, predicted: EvalPrediction) -> dict[str, float]:
        """Objectives of the evaluation, for the Trainer.

        Parameters
        ----------
        predicted : EvalPrediction
            Logits and labels.

        Returns
        -------
        dict
            Objectives by name, a colon as "_"; ``tuned_…`` is the one of `tune` after tuning on the same samples.
        """
        logits, labels = predicted.predictions, predicted.label_ids
        logits = logits[0] if isinstance(logits, tuple) else logits
        figures: dict[str, float] = {}
        self.validation = None
        with kept_going("judge this evaluation"):
            validation = Validation.of(np.asarray(logits, dtype=np.float32), labels, self.known)
            figures |= named(validation.figures(self.objectives), "")
            self.validation = validation
        if self.tune is not None and self.validation is not None:
            with kept_going("tune"):
                adjuster = self.validation.tuned(self.tune, bootstrap=0)
                figures |= named(after_tuning(self.validation, adjuster), "tuned_")
        return figures

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The last evaluation's scores and the policy, into the folder of the checkpoint."""
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if self.validation is None or not state.is_world_process_zero or not folder.is_dir():
            return
        self.validation.save(folder / SCORES)
        if self.tune is None:
            return
        with kept_going("save a policy"):
            write_atomically(folder / POLICY, self.validation.tuned(self.tune).policy_.to_json().encode())

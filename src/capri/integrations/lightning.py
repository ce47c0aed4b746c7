"""Lightning: tuning at the end of every validation epoch, and the policy inside the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from capri._checks import InputError
from capri.evaluation import STANDARD
from capri.integrations.scores import SCORES, Known, Validation, after_tuning, check_names, kept_going, named
from capri.objectives import ObjectiveLike
from capri.policy import Policy

POLICY_KEY = "capri_policy"  # in checkpoints

Finding = Callable[[Any, Any], tuple[Tensor, Tensor]]


class CAPTuning(L.Callback):
    """Tune on the scores of every validation epoch; the policy goes into the checkpoint.

    Logs the objectives before tuning as ``capri/…`` and the tuned one as ``capri/tuned_…``, by which checkpoints and
    early stopping can choose. Tuned figures are of the samples that tuned: good for choosing, too good for reporting.

    Parameters
    ----------
    objective : name, Objective, or function of class errors, default "balanced"
        What the policy is for.
    classes : sequence of labels, optional
        The label of each score column; by default their numbers.
    class_counts : per class, optional
        Training samples.
    objectives : sequence of names, objectives or functions
        What else is logged.
    find : function of what `validation_step` returns and the batch, optional
        Gives logits (n, K) and class numbers (n,). By default `validation_step` returns a mapping with "logits", and
        the labels are its "y" or "labels", or the second of the batch.
    save_scores : path, optional
        A folder in which the scores of the last epoch are kept, as ``validation_scores.npz`` for `capri tune`.
    **settings
        Of the `LogitAdjuster`: `constraints`, `weights`, `method`, …

    Attributes
    ----------
    policy_ : Policy or None
        Of the last validation epoch.

    Examples
    --------
    >>> tuning = CAPTuning("cvar:0.2", class_counts=[900, 90, 10])
    """

    def __init__(
        self,
        objective: ObjectiveLike = "balanced",
        *,
        classes: Sequence[Any] | None = None,
        class_counts: ArrayLike | Mapping[Any, float] | None = None,
        objectives: Sequence[ObjectiveLike] = STANDARD,
        find: Finding | None = None,
        save_scores: str | Path | None = None,
        **settings: Any,
    ) -> None:
        check_names(objective, *objectives)
        if apart := {"reject", "guarantee"} & set(settings):
            raise InputError(f"CAPTuning takes no {apart.pop()}; tune the scores that it saves with it, `capri tune`.")
        self.objective, self.objectives = objective, objectives
        self.known = Known.of(classes, class_counts)
        self.find = find or found_in
        self.save_scores = None if save_scores is None else Path(save_scores)
        self.settings = {"bootstrap": 0} | settings
        self.policy_: Policy | None = None
        self._batches: list[tuple[Tensor, Tensor]] = []

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Forget the batches of the epoch before."""
        self._batches.clear()

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep logits and labels."""
        if dataloader_idx == 0:
            logits, labels = self.find(outputs, batch)
            self._batches.append((logits.detach().float(), labels.detach()))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Tune, log and remember."""
        if trainer.sanity_checking or not self._batches:
            return
        logits, labels = (torch.cat(parts) for parts in zip(*self._batches, strict=True))
        self._batches.clear()
        if trainer.world_size > 1:
            logits, labels = _of_all(pl_module, logits), _of_all(pl_module, labels)
        figures: dict[str, float] = {}
        with kept_going("tune"):
            validation = Validation.of(logits.cpu().numpy(), labels.cpu().numpy(), self.known)
            figures |= named(validation.figures(self.objectives), "capri/")
            adjuster = validation.tuned(self.objective, **self.settings)
            self.policy_ = adjuster.policy_
            figures |= named(after_tuning(validation, adjuster), "capri/tuned_")
        pl_module.log_dict({name: np.float32(value).item() for name, value in figures.items()}, sync_dist=False)
        if self.save_scores is not None and figures and trainer.is_global_zero:
            self.save_scores.mkdir(parents=True, exist_ok=True)
            validation.save(self.save_scores / SCORES)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """The policy as JSON text, so that it needs no code to be read."""
        if self.policy_ is not None:
            checkpoint[POLICY_KEY] = self.policy_.to_json()

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Back again."""
        if POLICY_KEY in checkpoint:
            self.policy_ = Policy.from_json(checkpoint[POLICY_KEY])

    @staticmethod
    def policy_of(checkpoint: str | Path) -> Policy:
        """The policy in a checkpoint.

        Parameters
        ----------
        checkpoint : path
            A file that Lightning has saved; only tensors and plain values of it are read.

        Returns
        -------
        Policy
        """
        content = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if POLICY_KEY not in content:
            raise InputError(f"{checkpoint} holds no policy; was CAPTuning among the callbacks?")
        return Policy.from_json(content[POLICY_KEY])


def found_in(outputs: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Logits and labels where most modules have them."""
    if not isinstance(outputs, Mapping) or "logits" not in outputs:
        raise InputError(
            'validation_step returns no "logits"; return {"logits": logits, "y": y} from it, or give CAPTuning '
            "find=function of (outputs, batch)."
        )
    for name in ("y", "labels"):
        if name in outputs:
            return outputs["logits"], outputs[name]
    if isinstance(batch, Mapping):
        return outputs["logits"], batch["labels" if "labels" in batch else "y"]
    return outputs["logits"], batch[1]


def _of_all(module: L.LightningModule, values: Tensor) -> Tensor:
    """The rows of all processes, which may hold different numbers of them."""
    gather: Callable[[Tensor], Any] = module.all_gather
    sizes = gather(torch.tensor(len(values), device=values.device)).flatten().tolist()
    padded = torch.zeros((max(sizes), *values.shape[1:]), dtype=values.dtype, device=values.device)
    padded[: len(values)] = values
    return torch.cat([part[:n] for part, n in zip(gather(padded), sizes, strict=True)])

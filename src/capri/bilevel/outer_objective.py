"""The outer objective on batches, through running class errors.

A batch of 128 misses most of 100 long-tailed classes, and the spread or a quantile of a batch is biased. So the class
errors e_k of the whole validation set are kept as they are seen, the core's objective R gives c_k = ∂R/∂e_k there, and

    L_batch = Σ_k c_k · (Σ_{i in batch, y_i = k} loss_i) · N/(B n_k) = mean_i a_{y_i} loss_i,       a_k = N c_k / n_k

(N validation samples, n_k of class k, B in the batch). Over an epoch with c frozen, its mean is the gradient on all of
validation. Every batch renews the share of e_k that it holds samples of: e_k += (B_k/n_k) (mean of the batch − e_k).

Samples need not be drawn alike. With probabilities q_i and weights 1/(N q_i) the mean stays what it is, and q_i
proportional to |a_{y_i}| gives all samples one weight, Σ_k |c_k|: the least variance where their gradients are of one
size. Drawn alike, the single sample of a rare class comes rarely, and then outweighs the rest of its batch.

The class error is a smooth one: cross-entropy ("ce"; `balanced` is then the paper's balanced cross-entropy), or the
bounded 1 − p_y ("error"), without which the spread of class errors has no scale.
"""

from __future__ import annotations

from copy import copy
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from capri._checks import InputError
from capri.bilevel.processes import Total
from capri.errors import Absent, resolve_absent
from capri.forms import ClassContext, ConfusionEvaluator, ErrorEvaluator, Form
from capri.objectives import ObjectiveLike, as_objective

ClassLoss: TypeAlias = Literal["auto", "ce", "error"]
LEAST_DRAWN = 0.1  # of the mean |c_k|: what a class counts in drawing where the objective does not look at it now


def sample_losses(logits: Tensor, y: Tensor, kind: ClassLoss) -> Tensor:
    """Smooth errors of samples, (n,): cross-entropy or 1 − p_y, of the logits as they are."""
    ce = F.cross_entropy(logits, y, reduction="none")
    return ce if kind == "ce" else 1 - torch.exp(-ce)


class OuterObjective:
    """An objective of the class errors of all of validation, in a form that batches can follow.

    It keeps running class errors, and its `surrogate` on a batch has the gradient of the objective at these. The class
    error is a smooth one: cross-entropy, or 1 − p_y.

    Parameters
    ----------
    objective : name, Objective or function
        Of class errors; objectives of the confusion matrix have no gradient and are refused.
    counts : array-like of shape (K,)
        Validation samples per class.
    class_loss : {"auto", "ce", "error"}
        The smooth error of a sample: cross-entropy, or 1 − p_y, which is bounded. "auto" takes cross-entropy, except
        for objectives that hold a spread (sdev, mix) and for functions of your own.
    absent : {"error", "ignore"}
        What to do about classes without validation samples; "ignore" leaves them out.
    **context
        What the objective may ask for, per class: `weights`, `groups`, `class_counts`, `class_names`.
    """

    def __init__(
        self,
        objective: ObjectiveLike,
        counts: ArrayLike,
        *,
        class_loss: ClassLoss = "auto",
        absent: Absent = "error",
        **context: object,
    ):
        classes = ClassContext.of(counts, **context)  # type: ignore[arg-type]
        totals = np.asarray(counts, dtype=np.float64)
        self.present = resolve_absent(totals, absent, classes.class_names)
        parsed = as_objective(objective)
        self.name, self.evaluator = parsed.name, _on_errors(parsed.name, parsed.on(classes))
        self.class_loss = _resolve(class_loss, self.evaluator)
        self.counts = torch.from_numpy(totals)
        self.errors = torch.zeros(len(totals), dtype=torch.float64)  # anchored by `anchor` before the first use

    def anchor(self, loss_sums: Tensor) -> None:
        """Set the running class errors from a whole pass over validation.

        Parameters
        ----------
        loss_sums : Tensor of shape (K,)
            Sums of `sample_losses` per class.
        """
        self.errors = loss_sums.double().cpu() / self.counts.clamp_min(1)

    def value(self) -> float:
        """The objective at the running class errors.

        Returns
        -------
        float
        """
        return self.evaluator.smooth(self._seen())[0]

    def coefficients(self) -> Tensor:
        """a_k = N c_k / n_k, the weight of a sample of class k in the surrogate.

        Returns
        -------
        Tensor of shape (K,)
            0 for a class that is left out.
        """
        c = np.zeros(len(self.present))
        c[self.present] = self.evaluator.smooth(self._seen())[1]
        return torch.from_numpy(c) * self.counts.sum() / self.counts.clamp_min(1)

    def draw_probabilities(self) -> Tensor:
        """`q ∝ |c_k|/n_k`, the probability of a sample of class k in a draw with the least variance.

        Where c_k is (nearly) 0, as for all but the worst classes in `worst`, a class is drawn a little all the same, so
        that its running error does not grow unseen.

        Returns
        -------
        Tensor of shape (K,)
            Over all validation samples they sum to 1.
        """
        present = torch.from_numpy(self.present)
        c = self.coefficients().abs() * self.counts
        each = torch.where(present, c.clamp_min(LEAST_DRAWN * float(c[present].mean())), 0)
        if not each.any():  # an objective that is flat here
            each = self.counts.clone()
        return each / each.sum() / self.counts.clamp_min(1)

    def surrogate(self, logits: Tensor, y: Tensor, importance: Tensor | None = None) -> Tensor:
        """mean_i a_{y_i} loss_i: what to differentiate on this batch.

        Parameters
        ----------
        logits : Tensor of shape (n, K)
            Of a validation batch.
        y : Tensor of shape (n,)
            Its classes.
        importance : Tensor of shape (n,), optional
            1/(N q_i) of samples that were drawn with probabilities q_i; 1 by default.

        Returns
        -------
        Tensor
            A scalar.
        """
        a = self.coefficients().to(logits)[y]
        if importance is not None:
            a = a * importance.to(a)
        return (a * sample_losses(logits, y, self.class_loss)).mean()

    def on_all(self, logits: Tensor, y: Tensor) -> Tensor:
        """The objective itself on all of validation at once, with its gradient; running class errors stay.

        Parameters
        ----------
        logits : Tensor of shape (N, K)
            Of all samples that the objective counts.
        y : Tensor of shape (N,)
            Their classes, each as often as it was counted.

        Returns
        -------
        Tensor
            A scalar.
        """
        losses = sample_losses(logits, y, self.class_loss)
        seen = torch.bincount(y, minlength=len(self.counts)).cpu()
        self.refuse_other_counts(seen)
        sums = torch.zeros(len(self.counts), dtype=losses.dtype, device=losses.device).index_add(0, y, losses)
        errors = (sums / seen.clamp_min(1).to(sums))[torch.from_numpy(self.present).to(y.device)]
        value, c = self.evaluator.smooth(errors.detach().double().cpu().numpy())
        return value + (torch.from_numpy(c).to(errors) * (errors - errors.detach())).sum()

    def smooth_errors(self) -> OuterObjective:
        """The same objective of 1 − p_y, bounded, whatever it is of now.

        Returns
        -------
        OuterObjective
        """
        other = copy(self)
        other.class_loss = "error"
        return other

    def refuse_other_counts(self, seen: Tensor) -> None:
        """Samples per class must be those that the objective was made of."""
        if not torch.equal(seen.to(self.counts), self.counts):
            at = int((seen != self.counts).nonzero()[0])
            raise InputError(
                f"batches hold {int(seen[at])} samples of class {at}, the objective counts {int(self.counts[at])}; "
                "give all of validation, each sample once (no drop_last)."
            )

    def update(self, logits: Tensor, y: Tensor, *, replaced: bool = False, add: Total | None = None) -> None:
        """Renew the running class errors by a batch's; arguments as in `surrogate`.

        A batch of samples that were put back after each draw (`replaced`) may hold one twice, and shows the share
        1 − (1 − 1/n_k)^B_k of a class. add: the sum over all processes, where each holds a share of the batch.
        """
        losses, labels = sample_losses(logits.detach(), y, self.class_loss).double().cpu(), y.cpu()
        sums = torch.zeros_like(self.errors).index_add_(0, labels, losses)
        seen = torch.bincount(labels, minlength=len(sums))
        if add is not None:
            sums, seen = add(sums.to(y.device)).cpu(), add(seen.to(y.device)).cpu()
        share = seen / self.counts.clamp_min(1)
        if replaced:
            share = 1 - (1 - 1 / self.counts.clamp_min(1)) ** seen
        means = sums / seen.clamp_min(1)
        self.errors = torch.where(share >= 1, means, self.errors + share * (means - self.errors))

    def _seen(self) -> NDArray[np.float64]:
        return self.errors.numpy()[self.present]


def class_sums(logits: Tensor, y: Tensor, kind: ClassLoss, n_classes: int) -> Tensor:
    """Sums of `sample_losses` per class, (K,): what `anchor` takes."""
    losses = sample_losses(logits.detach().float(), y, kind).double()
    return torch.zeros(n_classes, dtype=torch.float64, device=y.device).index_add_(0, y, losses)


def _on_errors(name: str, evaluator: object) -> ErrorEvaluator:
    if isinstance(evaluator, ConfusionEvaluator):
        raise InputError(
            f"objective {name!r} is made of confusions, which have no gradient by class errors; search with 'balanced' "
            "or another objective on class errors, and tune this one post-hoc."
        )
    assert isinstance(evaluator, ErrorEvaluator)
    return evaluator


def _resolve(class_loss: ClassLoss, evaluator: ErrorEvaluator) -> ClassLoss:
    """Cross-entropy, except where a spread of errors or a mean of recalls asks for bounded ones."""
    if class_loss not in ("auto", "ce", "error"):
        raise InputError(f"class_loss is {class_loss!r}; it must be 'auto', 'ce' or 'error'.")
    if class_loss != "auto":
        return class_loss
    linear = isinstance(evaluator, Form) and evaluator.deviation == 0 and evaluator.geometric == 0
    return "ce" if linear else "error"

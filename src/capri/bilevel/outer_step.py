"""The outer level of the search, for any training loop: one step moves W down the hypergradient.

    loop:   every few batches   outer.step((x, y), (x_val, y_val))     the strategy moves
            every batch         outer.loss(model(x), y).backward()     the network follows

`OuterStep` is to W what an optimizer is to the weights: it is made once the network is on its device, holds no
parameters of the network, and has a state to keep in checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capri._checks import InputError
from capri.bilevel.hypergradient import AnyLoss, InnerLoss, InverseHessianSettings, ParametricLoss, outer_gradient
from capri.bilevel.losses import MovingLoss, parametric_cross_entropy
from capri.bilevel.outer_objective import OuterObjective, class_sums
from capri.bilevel.processes import Share, Total
from capri.bilevel.signal_share import SignalShare
from capri.bilevel.strategy_map import StrategyMap, StrategyTensors
from capri.strategy import Strategy

LabelledBatch: TypeAlias = tuple[Tensor, Tensor]


class DivergedError(FloatingPointError):
    """The strategy ran away; `reason` says how."""

    def __init__(self, reason: str, limit: float):
        super().__init__(
            f"the strategy diverged: {reason} (limit is {limit:g}). Lower lr, step less often, or train the network "
            "longer before the first step."
        )
        self.reason = reason


class OuterStep:
    """Moves the strategy of a loss so that the network it trains does better on a validation objective.

    Parameters
    ----------
    model : nn.Module
        The network that trains, from inputs to logits (n, K). Its mode (train or eval) is taken as it is.
    strategy_map : StrategyMap
        W, on the network's device.
    objective : OuterObjective
        What validation is judged by, as in ``OuterObjective("cvar:0.2", np.bincount(y_val))``. Its class errors start
        with a pass over validation, by `anchor` or `measure_classes`.
    lr : float
        Of Adam on W, where no `optimizer` is given.
    optimizer : torch.optim.Optimizer, optional
        Of ``strategy_map.parameters()``.
    inverse_hessian : InverseHessianSettings, optional
        How much of the inverse Hessian the hypergradient holds; none by default.
    limit : float
        Offsets that span more than this have diverged.
    prior : float
        λ: the gradient of λ‖W − W₀‖² is added, with W₀ where W is at first.
    add : callable, optional
        The sum of a tensor over all processes, in each of them, where several train the network together: then every
        process hands `step` its share of the batches, and what it finds is that of the joined ones.
    trust : bool
        Shorten the step of each number of W to the share of it that is signal, by the running mean and variance of its
        gradients: 1 where they agree, 0 where their mean is within 1.5 of its standard errors.

    Attributes
    ----------
    loss : MovingLoss
        The training loss at the strategy as it stands: ``loss(logits, y)`` is the mean over the batch.

    Examples
    --------
    >>> from capri import Attributes
    >>> from capri.bilevel import Dictionaries
    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(40, 2), torch.arange(40) // 30  # 30 samples of one class, 10 of the other
    >>> W = StrategyMap(Dictionaries.of(Attributes.of(freq=[0.75, 0.25]), 2), ["l"])
    >>> outer = OuterStep(nn.Linear(2, 2), W, OuterObjective("balanced", [30, 10]))
    >>> errors = outer.anchor([(x, y)])
    >>> for _ in range(5):
    ...     value = outer.step((x, y), (x, y))
    >>> l = outer.strategy().l
    >>> bool(l[0] > l[1])  # the sign of logit adjustment
    True
    """

    def __init__(
        self,
        model: nn.Module,
        strategy_map: StrategyMap,
        objective: OuterObjective,
        *,
        lr: float = 0.02,
        optimizer: torch.optim.Optimizer | None = None,
        inverse_hessian: InverseHessianSettings | None = None,
        limit: float = 30.0,
        prior: float = 0.0,
        trust: bool = False,
        add: Total | None = None,
    ):
        self.model, self.map, self.objective, self.limit = model, strategy_map, objective, limit
        self.add = add
        self.optimizer = optimizer or torch.optim.Adam(strategy_map.parameters(), lr=lr)
        self.inverse_hessian = inverse_hessian or InverseHessianSettings()
        self.loss = MovingLoss(strategy_map())
        self.prior, self.start = prior, [p.detach().clone() for p in strategy_map.parameters()]
        self.signal = SignalShare(self.start) if trust else None
        self._anchored = bool(objective.errors.any())

    def anchor(self, batches: Iterable[LabelledBatch]) -> NDArray[np.float64]:
        """Measure the class errors of all of validation: before the first step, and now and then (once an epoch).

        Parameters
        ----------
        batches : iterable of (Tensor, Tensor)
            All of validation, each sample once.

        Returns
        -------
        ndarray of shape (K,)
            The share of wrong decisions per class; see `measure_classes`.
        """
        self._anchored = True
        return measure_classes(self.model, self.objective, batches)

    def step(
        self,
        train: LabelledBatch,
        val: LabelledBatch,
        *,
        importance: Tensor | None = None,
        rate: float = 1.0,
    ) -> float:
        """W down the hypergradient on one batch of each, (x, y) on the network's device.

        Parameters
        ----------
        train, val : (Tensor, Tensor)
            Inputs and labels (n,): a batch that the network trains on, and one that judges it.
        importance : Tensor of shape (n,), optional
            Where validation samples were drawn with probabilities q_i and replaced, as by
            `OuterObjective.draw_probabilities`: 1/(N q_i).
        rate : float
            Factor of the learning rate in this step; the inner rate as a share of its highest lets W follow it.

        Returns
        -------
        float
            The objective at the running class errors.

        Raises
        ------
        DivergedError
            Where the strategy is not finite or its offsets span more than `limit`; `loss` stays as it was.
        """
        if not self._anchored:
            raise InputError("objective has no class errors yet; call anchor(batches) with all of validation first.")
        tensors, own, replaced = self.map(), len(val[1]), importance is not None
        of_train, of_val = (Share.of(len(y), self.add, y.device) for _, y in (train, val))
        shares = of_train, of_val
        if own == 0:  # the last joined batch had fewer samples than there are processes
            val, importance = _stand_in(train), train[0].new_zeros(1)
        judge = partial(self.objective.surrogate, importance=importance)
        found = outer_gradient(self.model, self._inner_loss(tensors), train, val, judge, self.inverse_hessian, shares)
        moving = [(t, g) for t, g in zip(tensors, found.alpha, strict=False) if t.requires_grad]
        self.optimizer.zero_grad()
        torch.autograd.backward([t for t, _ in moving], [g for _, g in moving])
        with _scaled(self.optimizer, rate):
            self._step_w()
        self.objective.update(found.logits[:own], val[1][:own], replaced=replaced, add=self.add)
        self._move()
        return self.objective.value()

    @torch.no_grad()
    def _step_w(self) -> None:
        """The optimizer's step, down the prior too, and as long as it is signal."""
        w = list(self.map.parameters())
        if self.prior:
            for p, start in zip(w, self.start, strict=True):
                _gradient(p).add_(p - start, alpha=2 * self.prior)
        if self.signal is None:
            self.optimizer.step()
            return
        shares = self.signal.update([_gradient(p) for p in w])
        before = [p.clone() for p in w]
        self.optimizer.step()
        for p, old, share in zip(w, before, shares, strict=True):
            p.copy_(torch.lerp(old, p, share))

    def strategy(self) -> Strategy:
        """The strategy as it stands, to retrain with or to keep in a policy.

        Returns
        -------
        Strategy
        """
        return self.map.strategy()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs: W, its start and its optimizer, the running class errors, and how sure steps are.

        Returns
        -------
        dict
            Tensors and plain values; `torch.load` reads it with ``weights_only=True``.
        """
        return {
            "map": self.map.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "errors": self.objective.errors,
            "start": self.start,
            "signal": None if self.signal is None else self.signal.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint. With the same network and batches, the result is bit for bit that of one run.

        Parameters
        ----------
        state : mapping
            What `state_dict` gave.
        """
        self.map.load_state_dict(state["map"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.objective.errors = state["errors"]
        for own, kept in zip(self.start, state.get("start", self.start), strict=True):
            own.copy_(kept)
        if self.signal is not None and state.get("signal") is not None:
            self.signal.load_state_dict(state["signal"])
        self._anchored = True
        self._move()

    def _inner_loss(self, tensors: StrategyTensors) -> InnerLoss:
        """In closed form where there is one."""
        if self.loss.smooths:
            return AnyLoss.of(parametric_cross_entropy, *tensors)
        return ParametricLoss.of(tensors.omega, tensors.l, tensors.delta)

    @torch.no_grad()
    def _move(self) -> None:
        """The loss goes where W is, unless W ran away."""
        to = self.map()
        if not all(bool(torch.isfinite(t).all()) for t in to):
            raise DivergedError("it is not finite", self.limit)
        if (span := float(to.l.max() - to.l.min())) > self.limit:
            raise DivergedError(f"its offsets span {span:.3g}", self.limit)
        self.loss.move(to)


def _stand_in(train: LabelledBatch) -> LabelledBatch:
    """A sample that counts nothing."""
    return train[0][:1], train[1][:1]


def _gradient(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad


@contextmanager
def _scaled(optimizer: torch.optim.Optimizer, rate: float) -> Iterator[None]:
    """The learning rate times a factor, for a while."""
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, lr in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = lr * rate
        yield
    finally:
        for group, lr in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = lr


@torch.no_grad()
def measure_classes(
    model: nn.Module, objective: OuterObjective, batches: Iterable[LabelledBatch]
) -> NDArray[np.float64]:
    """A pass over validation as the network stands: anchors the objective's class errors.

    Parameters
    ----------
    model : nn.Module
        From inputs to logits; it runs in eval mode and is left in the mode it was in.
    objective : OuterObjective
        Made of the validation set's class counts.
    batches : iterable of (Tensor, Tensor)
        All of validation, each sample once.

    Returns
    -------
    ndarray of shape (K,)
        The share of wrong decisions per class, NaN where a class is absent: what `attributes.difficulty` takes.
    """
    device, mode, k = next(model.parameters()).device, model.training, len(objective.counts)
    wrong, seen, sums = torch.zeros(3, k, dtype=torch.float64)
    model.eval()
    for x, labels in batches:
        logits, y = model(x.to(device)).cpu(), labels.cpu()
        wrong.index_add_(0, y, (logits.argmax(dim=1) != y).double())
        seen += torch.bincount(y, minlength=k)
        sums += class_sums(logits, y, objective.class_loss, k)
    model.train(mode)
    objective.refuse_other_counts(seen)
    objective.anchor(sums)
    with np.errstate(invalid="ignore"):
        return np.asarray(wrong.numpy() / seen.numpy())

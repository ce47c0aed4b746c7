"""The derivative of a validation objective at the end of training, through all of its steps.

Training is a map from the strategy α = α(W) to the parameters at its end, θ_T, made of T steps

    (θ, m)_t = step((θ, m)_{t−1}, α; batch t),        value = objective(o(θ_T)),

with m what the optimizer keeps (`updates`). The derivative by W is exact, of this training with these batches; what the
search of one step (`hypergradient`) leaves out, that a strategy acts over the whole horizon, is all in it.

Reverse mode goes back from the end: λ = ∂value/∂(θ, m)_T, then for t = T … 1

    dvalue/dα += λ ∂step_t/∂α,        λ ← λ ∂step_t/∂(θ, m).

States are kept every √T steps and made again in between, so that memory is 2√T states and the time that of five to six
plain trainings, however many numbers W has. Forward mode carries ∂(θ, m)_t/∂W along, one tangent per number of W: no
memory of the past, and the time of about 3 + 1.6 M plain trainings for M numbers. It is the cheaper one for a single
number, and for the memory where √T states are too many; otherwise take reverse.

Copies that leave out a fold each are trained at once (`side_by_side`); the objective is then of the logits of all
samples, each by the copy that has not seen it, and the derivative that of the cross-validated objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from capri._checks import InputError
from capri._lazy import once
from capri.bilevel import descent
from capri.bilevel.hypergradient import load_forward_mode
from capri.bilevel.side_by_side import Recipe, copy_loss, refuse_buffers, sample_weights
from capri.bilevel.strategy_map import StrategyMap, StrategyTensors
from capri.bilevel.updates import Moments, Tensors, UpdateRule, update_rule

Mode: TypeAlias = Literal["reverse", "forward"]
State: TypeAlias = tuple[Tensors, Moments]  # of all copies: tensors (P, …)
Pullback: TypeAlias = Callable[[], Tensor]


# --------------------------------------------------------------------------------------------------------------------
# What is trained, and by what it is judged


@dataclass(frozen=True, eq=False)
class JudgedTraining:
    """A training, and the samples that judge its end: validation samples, or each training sample out of fold.

    Parameters
    ----------
    model : nn.Module
        Where training starts; it stays as it is. It may not have buffers (batch normalisation).
    x, y : Tensor of shape (N, …) and (N,)
        The training samples.
    recipe : Recipe
        How to train: SGD, Adam or AdamW.
    objective : callable
        From logits (n, K) and classes (n,) to a scalar that autograd can differentiate, such as
        `OuterObjective.on_all`, or torch's ``cross_entropy``.
    val : (Tensor, Tensor), optional
        Inputs and classes of validation samples.
    folds : Tensor of shape (N,), optional
        In place of `val`: the fold of each training sample, which is judged by a copy that trains without that fold.
        Samples of fold −1 always train and never judge.
    left_out : Tensor of shape (P,), optional
        The folds to leave out, one per copy; all of them by default.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    recipe: Recipe
    objective: Callable[[Tensor, Tensor], Tensor]
    val: tuple[Tensor, Tensor] | None = None
    folds: Tensor | None = None
    left_out: Tensor | None = None

    def __post_init__(self) -> None:
        refuse_buffers(self.model)
        if (self.val is None) == (self.folds is None):
            raise InputError("give either val, samples that judge, or folds of the training samples.")

    @once
    def out(self) -> Tensor | None:
        """The fold that each copy leaves out; None where there is one copy, which sees everything."""
        if self.folds is None:
            return None
        return torch.unique(self.folds[self.folds >= 0]) if self.left_out is None else self.left_out

    @property
    def copies(self) -> int:
        """P."""
        return 1 if self.out is None else len(self.out)

    @once
    def judges(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Which copy judges which of the inputs: positions (n,) of each; all inputs; classes (n,) of the pairs."""
        if self.val is not None:
            x, y = self.val
            return torch.zeros_like(y), torch.arange(len(y), device=y.device), x, y
        assert self.folds is not None
        assert self.out is not None
        copy, sample = (self.folds == self.out[:, None]).nonzero(as_tuple=True)
        return copy, sample, self.x, self.y[sample]

    def logits(self, parameters: Tensors) -> Tensor:
        """Of the samples that judge, (n, K), by copies (P, …)."""
        copy, sample, x, _ = self.judges
        mode = self.model.training
        self.model.eval()
        found = vmap(lambda p: functional_call(self.model, p, (x,)))(parameters)
        self.model.train(mode)
        return found[copy, sample]

    def judge(self, logits: Tensor) -> tuple[float, Tensor]:
        """The objective of logits (n, K), and its derivative by them."""
        leaf = logits.detach().requires_grad_()
        with torch.enable_grad():
            value = self.objective(leaf, self.judges[3])
            (slope,) = torch.autograd.grad(value, leaf)
        return float(value.detach()), slope


# --------------------------------------------------------------------------------------------------------------------
# The steps


class StepBatch(NamedTuple):
    """What a step is told: samples, which of them each copy may see (P, B), the learning rate, its number from 1."""

    x: Tensor
    y: Tensor
    weights: Tensor
    lr: float
    t: int


def inner_step(model: nn.Module, rule: UpdateRule) -> Callable[[State, Tensors, StepBatch], State]:
    """A step of training, as a pure function of the state, the strategy and the batch.

    The strategy holds those of ω, l, Δ and ε that are not neutral, (K,) each; all copies share it.
    """
    bare = copy_loss(model)

    def loss(parameters: Tensors, strategy: Tensors, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = StrategyTensors(*(strategy.get(name) for name in StrategyTensors._fields))  # type: ignore[arg-type]
        return bare(parameters, parts, weights, x, y)

    each = vmap(loss, in_dims=(0, None, 0, None, None), randomness="different")
    slopes = torch.func.grad(lambda *arguments: each(*arguments).sum())

    def step(state: State, strategy: Tensors, batch: StepBatch) -> State:
        parameters, moments = state
        gradients = slopes(parameters, strategy, batch.weights, batch.x, batch.y)
        return rule(parameters, gradients, moments, batch.lr, batch.t)

    return step


class Steps:
    """All steps of a training, in any order: what is random in a step comes from its number."""

    def __init__(self, training: JudgedTraining):
        self.training, recipe = training, training.recipe
        self.rule = update_rule(recipe.optimizer([torch.zeros(1, requires_grad=True)]))
        self.batches = list(recipe.steps(len(training.y)))
        self.step = inner_step(training.model, self.rule)

    def start(self) -> State:
        """Copies of the network, and nothing kept yet."""
        of = self.training
        parameters = {name: _repeated(p.detach(), of.copies) for name, p in of.model.named_parameters()}
        return parameters, self.rule.start(parameters)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Callable[[State, Tensors], State]:
        """Step i, from 0, as a function of the state and the strategy."""
        of, (positions, rate) = self.training, self.batches[i]
        weights = sample_weights(of.copies, positions, of.out, of.folds).to(of.x.device)
        batch = StepBatch(of.x[positions], of.y[positions], weights, self.rule.lr * rate, i + 1)

        def at(state: State, strategy: Tensors) -> State:
            torch.manual_seed(of.recipe.seed + batch.t)  # of dropout: a step that is made again is the same step
            return self.step(state, strategy, batch)

        return at


def _repeated(p: Tensor, copies: int) -> Tensor:
    return p.expand(copies, *p.shape).clone()


# --------------------------------------------------------------------------------------------------------------------
# Both modes


class UnrolledGradient(NamedTuple):
    """The objective at the end of training, and its derivative by W.

    Parameters
    ----------
    value : float
        The objective.
    w : Tensor of shape (M,)
        Its derivative, in the order of ``torch.nn.utils.parameters_to_vector(strategy_map.parameters())``.
    """

    value: float
    w: Tensor


def unrolled_gradient(
    training: JudgedTraining, strategy_map: StrategyMap, *, mode: Mode = "reverse"
) -> UnrolledGradient:
    """Train to the end, judge, and differentiate by W through all steps.

    Parameters
    ----------
    training : JudgedTraining
        What is trained, how, and by what it is judged.
    strategy_map : StrategyMap
        W, and the map to the strategy of the loss; it stays as it is.
    mode : {"reverse", "forward"}
        Reverse takes the time of five to six plain trainings and the memory of 2√T states of all copies, however many
        numbers W has. Forward has no memory of the past, but carries a tangent for each of the M numbers of W, and
        takes about 3 + 1.6 M plain trainings. Both give the same.

    Returns
    -------
    UnrolledGradient

    Examples
    --------
    >>> from capri import Attributes
    >>> from capri.bilevel import Dictionaries
    >>> _ = torch.manual_seed(0)
    >>> x, y = torch.randn(40, 2), torch.arange(40) // 30  # 30 samples of one class, 10 of the other
    >>> recipe = Recipe(20, 40, partial(torch.optim.SGD, lr=0.5), rate=lambda step, steps, per_epoch: 1.0)
    >>> balanced = partial(nn.functional.cross_entropy, weight=torch.tensor([1 / 3, 1.0]))
    >>> training = JudgedTraining(nn.Linear(2, 2), x, y, recipe, balanced, folds=torch.arange(40) % 4)
    >>> W = StrategyMap(Dictionaries.of(Attributes.of(freq=[0.75, 0.25]), 2), ["l"])
    >>> bool(unrolled_gradient(training, W).w < 0)  # offsets that fall with rarity would help
    True
    """
    value, pull = _unroll(training, strategy_map, _vector(strategy_map), mode)
    return UnrolledGradient(value, pull())


def _unroll(training: JudgedTraining, made: StrategyMap, w: Tensor, mode: Mode) -> tuple[float, Pullback]:
    """The value at `w`, and what gives the derivative when it is called."""
    if mode not in ("reverse", "forward"):
        raise InputError(f"mode is {mode!r}; it must be 'reverse' or 'forward'.")
    at = partial(_strategy_at, made)
    steps = Steps(training)
    with torch.random.fork_rng():
        if mode == "forward":
            load_forward_mode()
            tangents = {part: slopes.T for part, slopes in torch.func.jacfwd(at)(w).items()}
            value, slopes = _forward(steps, at(w), tangents)
            return value, lambda: slopes
        strategy, to_w = _vjp(at, w)
        value, back = _reverse(steps, strategy)
    return value, lambda: to_w(back())[0]


def _reverse(steps: Steps, strategy: Tensors) -> tuple[float, Callable[[], Tensors]]:
    """The value, and what goes back for dvalue/dα."""
    state, stride = steps.start(), max(1, math.isqrt(len(steps)))
    kept: list[tuple[range, State]] = []
    for i in range(len(steps)):
        if i % stride == 0:
            kept.append((range(i, min(i + stride, len(steps))), state))
        state = steps[i](state, strategy)
    logits, to_parameters = _vjp(steps.training.logits, state[0])
    value, slope = steps.training.judge(logits)

    def back() -> Tensors:
        (by_parameters,) = to_parameters(slope)
        by_state = by_parameters, _each(torch.zeros_like, state)[1]
        total = {part: torch.zeros_like(values) for part, values in strategy.items()}
        with torch.random.fork_rng():
            for which, first in reversed(kept):
                by_state, total = _segment_back(steps, which, first, strategy, by_state, total)
        return total

    return value, back


def _segment_back(
    steps: Steps, which: range, state: State, strategy: Tensors, by_state: State, total: Tensors
) -> tuple[State, Tensors]:
    """Back through steps whose first state was kept: the others are made again, then each step is pulled back."""
    states = [state]
    for i in which[:-1]:
        states.append(steps[i](states[-1], strategy))
    for i in reversed(which):
        _, pull = _vjp(steps[i], states.pop(), strategy)
        by_state, by_strategy = pull(by_state)
        total = {part: total[part] + by_strategy[part] for part in total}
    return by_state, total


def _forward(steps: Steps, strategy: Tensors, tangents: Tensors) -> tuple[float, Tensor]:
    """The value and its derivatives (M,) along `tangents` of the strategy, (M, K) each."""
    m = len(next(iter(tangents.values())))
    state = steps.start()
    moved = _each(lambda t: t.new_zeros(m, *t.shape), state)
    for i in range(len(steps)):
        state, moved = _along(steps[i], (state, strategy), (moved, tangents))
    logits, turned = _along(steps.training.logits, (state[0],), (moved[0],))
    value, slope = steps.training.judge(logits)
    return value, (turned * slope).sum(dim=(1, 2))


def _each(function: Callable[[Tensor], Tensor], state: State) -> State:
    """A function of each tensor of a state."""
    parameters, *moments = ({name: function(t) for name, t in tensors.items()} for tensors in (state[0], *state[1]))
    return parameters, tuple(moments)


def _vjp(function: Callable[..., Any], *at: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The value of a function, and what pulls a derivative by it back to one by its arguments."""
    value, pull = torch.func.vjp(function, *at)  # type: ignore[misc]
    return value, pull


def _along(function: Callable[..., Any], at: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The value of a function and its derivatives along M tangents at once."""
    along: Any = vmap(lambda *t: torch.func.jvp(function, at, t), out_dims=(None, 0), randomness="same")  # type: ignore[arg-type]
    value, slopes = along(*tangents)
    return value, slopes


def _strategy_at(made: StrategyMap, w: Tensor) -> Tensors:
    """The parts of the strategy that W drives."""
    named = dict(made.named_parameters())
    pieces = torch.split(w, [p.numel() for p in named.values()])
    tensors = functional_call(made, dict(zip(named, pieces, strict=True)), ())
    return {part: getattr(tensors, part) for part in made.parts}


def _vector(made: StrategyMap) -> Tensor:
    return parameters_to_vector(made.parameters()).detach()


# --------------------------------------------------------------------------------------------------------------------
# The search


@dataclass(frozen=True, eq=False)
class UnrolledSearch:
    """Where a search has been.

    Parameters
    ----------
    w : ndarray of shape (n + 1, M)
        W at the start and after each step, in the order of the map's parameters.
    values : ndarray of shape (n + 1,)
        What is minimised there: the objective and the prior.
    done : bool
        No step lowers it further, or the gradient is as small as asked.
    state : mapping from str to ndarray
        To go on from; the result is bit for bit that of one search.
    """

    w: NDArray[np.float64]
    values: NDArray[np.float64]
    done: bool
    state: Mapping[str, NDArray[Any]]


def unrolled_search(
    training: JudgedTraining,
    strategy_map: StrategyMap,
    *,
    steps: int = 20,
    reach: float = 0.5,
    prior: float = 0.0,
    spreads: ArrayLike = 1.0,
    tolerance: float = 1e-4,
    mode: Mode = "reverse",
    state: Mapping[str, NDArray[Any]] | None = None,
    keep: Callable[[Mapping[str, NDArray[Any]]], None] | None = None,
) -> UnrolledSearch:
    """Minimise objective + λ‖(W − W₀)/s‖² over W, by L-BFGS on the exact derivative.

    A step is one training with its derivative, and a plain training more for each length that was too long. All
    trainings start alike and see the same batches, so that they can be compared.

    Parameters
    ----------
    training : JudgedTraining
        What is trained, how, and by what it is judged.
    strategy_map : StrategyMap
        W₀, where the search starts; it is left at the W that was found.
    steps : int
        At most this many.
    reach : float
        The longest step, in units of the spreads; the first one is tried at this length.
    prior : float
        λ.
    spreads : float or array-like of shape (M,)
        s, how far each number of W is expected from W₀; it is also the unit in which steps are taken.
    tolerance : float
        Stop where no derivative, in these units, is larger.
    mode : {"reverse", "forward"}
        As in `unrolled_gradient`.
    state : mapping, optional
        Of an earlier search, to go on from.
    keep : callable, optional
        Given the state after each step, to store it.

    Returns
    -------
    UnrolledSearch
    """
    start = _vector(strategy_map).double().cpu().numpy() if state is None else state["start"]
    spread = np.broadcast_to(np.asarray(spreads, dtype=np.float64), start.shape)

    def evaluate(z: NDArray[np.float64]) -> descent.Evaluation:
        w = torch.as_tensor(start + spread * z).to(_vector(strategy_map))
        value, pull = _unroll(training, strategy_map, w, mode)
        return value + prior * float(z @ z), lambda: spread * pull().double().cpu().numpy() + 2 * prior * z

    at = descent.begin(evaluate, np.zeros_like(start)) if state is None else descent.Descent.of(state)
    for _ in range(steps):
        if at.done:
            break
        at = descent.step(evaluate, at, reach, tolerance)
        if keep is not None:
            keep({**at.arrays(), "start": start})
    found = start + spread * at.path
    vector_to_parameters(torch.as_tensor(found[-1]).to(_vector(strategy_map)), strategy_map.parameters())
    return UnrolledSearch(found, at.values, at.done, {**at.arrays(), "start": start})

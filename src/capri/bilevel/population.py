"""Search over W with the whole horizon: populations of strategies, each judged by networks trained to the end.

W has about ten numbers; that is the point of attributes, and it is what makes such a search possible. What is judged
is smooth in W but for the noise of training, so a Gaussian process through all judgements says where to look next, and
in the end where the minimum is. Minimised is

    R(e(W)) + λ/2 · ‖(W − W₀)/s‖²

with e the class errors out of fold (`CrossValidation`), R the objective, W₀ the best named loss (LA, VS) and s how far
from it W is expected.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from torch.func import functional_call, vmap
from torch.nn.utils import vector_to_parameters

from capri._checks import InputError
from capri.bilevel.strategy_map import StrategyMap, StrategyTensors
from capri.dictionary import INTERCEPT
from capri.strategy import delta_logit, smoothing_logit

Points: TypeAlias = NDArray[np.float64]
#: How far W is expected from where it starts: along a direction of D (of spread 1 over the classes), and its constant.
SPREADS = {"l": 0.7, "delta": 0.2, "omega": 0.3, "smoothing": 0.5}
CONSTANTS = {"delta": 0.5, "omega": 0.0, "smoothing": 4.0}
FIRST_STEP = 0.4  # in these units, where nothing is known
STEPS = (0.1, 0.3, 0.6)  # from the best points to where the minimum may be
BEST, CANDIDATES, SHARE = 3, 400, 0.35
PRIOR = 5e-4  # λ
MOST = 60  # numbers in W that a population can search
SAME = 1e-3  # strategies that differ by less are one


@dataclass(frozen=True)
class Space:
    """W as one vector in the units of its prior: z = (W − W₀)/s.

    Parameters
    ----------
    map : StrategyMap
        From W to the strategy; where it stands is W₀.
    spread : ndarray of shape (M,)
        s, in the order of the map's parameters.
    """

    map: StrategyMap
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, made: StrategyMap) -> Space:
        """The prior of a map's parts.

        Parameters
        ----------
        made : StrategyMap
            Of attributes; one free number per class is too much for a population.

        Returns
        -------
        Space
        """
        spreads: list[float] = []
        intercept = made.dictionaries.lifted.columns[0] == INTERCEPT
        for name, p in made.named_parameters():
            part = name.removeprefix("w_")
            constants = [] if part == "l" or not intercept else [CONSTANTS[part]]
            spreads += constants + [SPREADS[part]] * (p.numel() - len(constants))
        if len(spreads) > MOST:
            raise InputError(
                f"W has {len(spreads)} numbers, more than a population can search ({MOST}); take fewer attributes, or "
                "search.method=one-step, which follows a gradient."
            )
        return cls(made, np.array(spreads))

    def __len__(self) -> int:
        return len(self.spread)

    def weights(self, z: NDArray[np.float64]) -> dict[str, torch.Tensor]:
        """W of each row of z (P, M), by the names of the map's parameters."""
        made = dict(self.map.named_parameters())
        start = torch.cat([p.detach().reshape(-1) for p in made.values()])
        w = start + torch.from_numpy(z * self.spread).to(start)
        return dict(zip(made, torch.split(w, [p.numel() for p in made.values()], dim=-1), strict=True))

    @torch.no_grad()
    def strategies(self, z: NDArray[np.float64]) -> StrategyTensors:
        """The strategies of the rows of z.

        Parameters
        ----------
        z : ndarray of shape (P, M)
            Points.

        Returns
        -------
        StrategyTensors
            (P, K) each.
        """
        made = vmap(lambda w: functional_call(self.map, w, ()))(self.weights(z))
        return StrategyTensors(*made)

    def points(self, strategies: StrategyTensors) -> Points:
        """Where strategies lie in l, Δ and ε, as nearly as D can say it; ω stays at the start.

        Parameters
        ----------
        strategies : StrategyTensors
            (P, K) each.

        Returns
        -------
        ndarray of shape (P, M)
        """
        l, delta, smoothing = (t.double().numpy() for t in (strategies.l, strategies.delta, strategies.smoothing))
        wanted = {
            "w_l": (self.map.D, l - l.mean(axis=1, keepdims=True)),
            "w_delta": (self.map.D1, delta_logit(delta, self.map.delta_form)),
            "w_smoothing": (self.map.D1, smoothing_logit(smoothing)),
        }
        parts = []
        for name, p in self.map.named_parameters():
            start = p.detach().double().numpy()
            moved = np.zeros((len(l), len(start)))
            if name in wanted:
                columns, values = wanted[name]
                moved = np.linalg.lstsq(columns.double().numpy(), values.T, rcond=None)[0].T - start
            parts.append(moved)
        return np.concatenate(parts, axis=1) / np.where(self.spread > 0, self.spread, 1.0)

    def says(self, z: Points, strategies: StrategyTensors) -> NDArray[np.bool_]:
        """Which rows of z are these strategies, to rounding in single precision, offsets up to a common shift.

        Parameters
        ----------
        z : ndarray of shape (P, M)
            Points.
        strategies : StrategyTensors
            (P, K) each.

        Returns
        -------
        ndarray of shape (P,)
        """
        off = np.zeros(len(z))
        for own, given in zip(self.strategies(z), strategies, strict=True):
            difference = (own - given).double()
            if given is strategies.l:
                difference -= difference.mean(dim=1, keepdim=True)
            off = np.maximum(off, difference.abs().amax(dim=1).numpy())
        return np.asarray(off < SAME)

    def at(self, z: NDArray[np.float64], start: NDArray[np.float64] | None = None) -> StrategyMap:
        """The map itself, moved to a point; whoever holds it sees it there."""
        if start is not None:
            vector_to_parameters(torch.from_numpy(start).to(self.map.D), self.map.parameters())
        moved = self.weights(z[None])
        self.map.load_state_dict({**self.map.state_dict(), **{name: w[0] for name, w in moved.items()}})
        return self.map


@dataclass(frozen=True)
class Generation:
    """A population and what became of it.

    Parameters
    ----------
    z : ndarray of shape (P, M)
        The points.
    values : ndarray of shape (P,)
        What they were judged at, without the prior.
    best : int
        Where the search stands after it: the number of the point, of all that were judged, those known before first.
    point : ndarray of shape (M,)
        That point.
    """

    z: NDArray[np.float64]
    values: NDArray[np.float64]
    best: int
    point: NDArray[np.float64]


def evolve(
    judge: Callable[[Points], Points],
    known: tuple[Points, Points],
    *,
    generations: int,
    size: int,
    prior: float = PRIOR,
    seed: int = 0,
) -> Iterator[Generation]:
    """Generation by generation: each is drawn from what a Gaussian process makes of all that was judged before.

    Parameters
    ----------
    judge : callable
        From points (P, M) to values (P,), to be minimised.
    known : tuple of ndarray of shape (n, M) and (n,)
        Points that were judged already, and their values; n may be 0 of shape (0, M).
    generations, size : int
        How many, of how many points.
    prior : float
        λ: twice what a step of one spread costs.
    seed : int
        Of the draws: with the same judgements, the points are the same.

    Returns
    -------
    iterator of Generation
    """
    z, values = known
    rng = np.random.default_rng(seed)
    for _ in range(generations):
        new = _drawn(z, values + prior / 2 * (z**2).sum(axis=1), size, rng)
        z, values = np.concatenate([z, new]), np.concatenate([values, judge(new)])
        cost = values + prior / 2 * (z**2).sum(axis=1)
        best = _lowest(z, cost)
        yield Generation(new, values[-size:], best, z[best])


def _drawn(z: Points, cost: Points, size: int, rng: np.random.Generator) -> Points:
    """Where the minimum may be: of `size` functions that the process draws, the lowest points (Thompson sampling)."""
    if len(z) <= z.shape[1]:
        return np.concatenate([np.zeros((1, z.shape[1])), rng.normal(0, FIRST_STEP, (size - 1, z.shape[1]))])
    candidates = _candidates(z, cost, rng)
    draws = _process(z, cost).sample_y(candidates, size, random_state=int(rng.integers(2**31)))
    return candidates[draws.argmin(axis=0)]


def _lowest(z: Points, cost: Points) -> int:
    """Of what was judged, where the process expects the minimum: it averages over the noise of single judgements."""
    return int(_process(z, cost).predict(z).argmin())


def _candidates(z: Points, cost: Points, rng: np.random.Generator) -> Points:
    """Steps of several lengths from the best points, along some of the directions."""
    best = z[np.argsort(cost, kind="stable")[:BEST]]
    near = best[rng.integers(len(best), size=CANDIDATES)]
    along = rng.random(near.shape) < SHARE
    return near + along * rng.normal(0, 1, near.shape) * rng.choice(STEPS, (CANDIDATES, 1))


def _process(z: Points, cost: Points) -> GaussianProcessRegressor:
    """Through all judgements; what is far worse than most is only known to be bad."""
    capped = np.minimum(cost, cost.min() + 3 * (np.median(cost) - cost.min()))
    kernel = ConstantKernel(1.0) * RBF(np.full(z.shape[1], 2.0), (0.3, 20.0)) + WhiteKernel(1e-2, (1e-4, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound is an answer
        return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(z, capped)

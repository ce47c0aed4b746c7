"""The model's opinion of all samples, as a matrix that is never there as a whole (see `capri.posthoc.matrices`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capri._lazy import once
from capri.posthoc import _kernels
from capri.posthoc._compiled import by_rows, summed
from capri.posthoc.matrices import Blockwise, Ints, Vector


def soften(scores: NDArray[Any], scale: Vector, shift: Vector, out: NDArray[Any]) -> NDArray[Any]:
    """softmax(scale∘scores − shift), (n_samples, K), into `out`."""
    by_rows(_kernels.soft_decisions, (scores, out), *in_units(scale, shift, scores.dtype))
    return out


def in_units(scale: Vector, shift: Vector, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """What is to be softened, as the kernels take it."""
    unit = 1 / 2**_kernels.SQUARINGS
    return (unit * scale).astype(dtype), (unit * shift).astype(dtype)


@dataclass(frozen=True, eq=False)
class Opinion(Blockwise):
    """M (n, K) with M_ik = factor_k (label_i 1{y_i = k} + share_i q_ik), q = (1 − noise) softmax(a o + β) + noise·π.

    scores: o (n, K). a, bias, noise, shares: a, β, ε and π of the calibration. label, share: (n,) mass on the label,
    and on the opinion. factor: (K,).
    """

    scores: Any
    a: float
    bias: Vector
    noise: float
    shares: Vector
    y: Ints
    label: Vector
    share: Vector
    factor: Vector

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """(n, K)."""
        return self.scores.shape

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """That of the scores."""
        return self.scores.dtype

    def times(self, factor: Vector) -> Opinion:
        """The same with its columns multiplied."""
        known = replace(self, factor=self.factor * factor)
        known.__dict__["_pass"] = self._pass
        return known

    def weighted(self, weight: Vector) -> Opinion:
        """The same with its rows multiplied."""
        if (weight == 1).all():
            return self
        return replace(self, label=self.label * weight, share=self.share * weight)

    def block(self, rows: Any) -> NDArray[Any]:
        """Some rows."""
        scores = self.scores[rows]
        q = soften(scores, np.full(self.shape[1], self.a), -self.bias, np.empty_like(scores))
        mass = (1 - self.noise) * q + (self.noise * self.shares).astype(q.dtype)
        mass *= self.share[rows, None].astype(mass.dtype)
        mass[np.arange(len(mass)), self.y[rows]] += self.label[rows].astype(mass.dtype)
        mass *= self.factor.astype(mass.dtype)
        return np.asarray(mass)

    def at(self, rows: Ints, columns: Any) -> NDArray[Any]:
        """The entries at pairs of row and column."""
        return self.at_scores(rows, columns, self.scores[rows, columns])

    def at_scores(self, rows: Ints, columns: Any, scores: NDArray[Any]) -> NDArray[Any]:
        """The same, where the scores there are at hand."""
        q = np.exp(self.a * scores + self.bias[columns] - self._pass[0][rows])
        mass = self.share[rows] * ((1 - self.noise) * q + self.noise * self.shares[columns])
        return np.asarray(self.factor[columns] * (mass + self.label[rows] * (self.y[rows] == columns)))

    def sum(self, axis: int, dtype: Any = np.float64) -> NDArray[Any]:
        """Row or column sums, of one pass over the scores."""
        if axis == 0:
            told = (1 - self.noise) * self._pass[1] + self.noise * self.share.sum() * self.shares
            labels = np.bincount(self.y, weights=self.label, minlength=self.shape[1])
            return np.asarray(self.factor * (told + labels), dtype)
        means = np.empty(self.shape[0])
        by_rows(_kernels.soft_means, (self.scores, means), *self._softening, self.factor)
        told = (1 - self.noise) * means + self.noise * float(self.shares @ self.factor)
        return np.asarray(self.share * told + self.label * self.factor[self.y], dtype)

    @property
    def _softening(self) -> tuple[NDArray[Any], NDArray[Any]]:
        return in_units(np.full(self.shape[1], self.a), -self.bias, self.dtype)

    @once
    def _pass(self) -> tuple[Vector, Vector]:
        """log Σ_k exp(a o_ik + β_k) of each sample, and Σ_i share_i softmax_ik of each class."""
        levels = np.empty(self.shape[0])
        rows = (self.scores, self.share, levels)
        sums = summed(_kernels.soft_sums, rows, self.shape[1], *self._softening)
        return levels, sums

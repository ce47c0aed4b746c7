"""Calibration: what the model itself believes, and the soft labels that are made of it.

A validation set of a few samples per class says little about class errors; the model's own scores say much, once they
are calibrated. The calibrated posterior of a validation sample is

    q_ik = (1 − ε) softmax_k(a o_i + β) + ε π_val,k,    β_k = log π_val,k − (1 − γ) log π_train,k + b_k,

with a (one over the temperature T), γ, b and ε by likelihood on the validation labels, under priors that take the model
at its word unless labels insist:

    log a   Student's t with a long tail, since margins come in any unit;
    γ       N(max(0, 1 − a), 0.5²): how far scores of rare classes are too low altogether. A model that is too sure
            (a < 1) is so of its evidence, not of its class shares: offsets by log π_train undo these as they are;
    b_k     N(0, σ²), where σ is learnt from all classes together;
    ε       logit ε ~ N(−3, 1): the share of samples whose scores say nothing of their class, such as those whose class
            got not a single vote in a forest. Without it, they alone would set the temperature.

How far labels do insist is told by evidence: against that θ stands the model at its word (a = 1, γ = 0, b = 0; logit
adjustment with τ = 1), and what is taken is their mean, by the probability of each (Laplace's approximation).

A sample of weight w_i then counts for class k with the mass

    M_ik = w_i (α_y 1{y_i = k} + (1 − α_y) q_ik),    α_k = n_k / (n_k + n₀),

n_k labels of class k against n₀ that the model's opinion is worth. If calibration holds, the decision argmax c_k q_k /
π_val,k is the best there is for Σ_k c_k Err_k: offsets (log π_val − β − log c) / a.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit

from capri._lazy import once
from capri.attributes import frequency
from capri.forms import ConfusionForm, Form, MarginFunction, unit
from capri.posthoc import _kernels
from capri.posthoc._compiled import summed
from capri.posthoc.adjustment import Vector
from capri.posthoc.matrices import LARGE, Rows, whole
from capri.posthoc.opinion import Opinion, in_units
from capri.posthoc.problem import Problem, tally
from capri.posthoc.smooth import SHARPNESS, descend, median_margin, neighbour

SCALE_SPREAD, SCALE_FREEDOM = 0.3, 3.0  # of the prior of log a: width, and degrees of freedom
SLOPE_SPREAD = 0.5  # of the prior of γ
BIAS_SPREAD = 0.4  # σ to begin with; reproduction/benchmarks/outofsample.py compares
UNKNOWN_SPREAD = 1.0  # the same where training frequencies are unknown, which b then has to make up for
HYPER_SPREAD, HYPER_CLASSES = 0.15, 2.0  # what is known of σ beforehand: as from so many classes of this spread
NOISE_MEAN, NOISE_SPREAD = -3.0, 1.0  # of the prior of logit ε
WORD_ODDS = 4.0  # that the model is to be taken at its word, before labels are seen
CERTAIN = 40.0  # nats of odds beyond which a probability is 0 or 1 but for rounding
NARROWEST = 100.0  # nats by which labels may narrow down log a and γ, and more than they ever do
PROBE = 1e-2  # the step from which curvature is told
ITERATIONS = 60
THIN = 8  # of so many samples of a large problem, one tells where its search starts
SHARE_ROUNDS = 20  # of expectation maximisation of the shares of unlabelled samples
LEAST_IMPORTANCE = 0.1  # of a class, against the mean
LEAST_SHARE = 0.5  # samples added to each class before its validation share is taken


@dataclass(frozen=True, eq=False)
class Calibration:
    """a, β, π_val and ε of the formulas above; all classes have samples.

    word: the probability, by the labels, that the model is to be taken at its word.
    """

    scale: float
    bias: Vector
    shares: Vector
    noise: float = 0.0
    word: float = 0.0

    @property
    def temperature(self) -> float:
        """T = 1/a."""
        return 1 / self.scale

    def posterior(self, scores: NDArray[Any]) -> NDArray[Any]:
        """q (n_samples, K), of the type of the scores."""
        n = len(scores)
        return self.opinion(scores, np.zeros(n, np.int64), np.zeros(n), np.ones(n)).block(slice(None))

    def opinion(self, scores: Any, y: NDArray[np.int64], label: Vector, share: Vector) -> Opinion:
        """(n_samples, K): masses on the labels, and the rest by the posterior."""
        known = self.scale, self.bias, self.noise, self.shares
        return Opinion(scores, *known, y, label, share, np.ones(len(self.bias)))

    def under(self, shares: Vector) -> Calibration:
        """The same, of samples in which the classes have other shares."""
        return replace(self, bias=self.bias + np.log(shares) - np.log(self.shares), shares=shares)

    def offsets(self, importance: Vector | None = None) -> Vector:
        """The best offsets for Σ_k c_k Err_k if calibration holds; c = 1 where no importance is given."""
        c = np.ones(len(self.bias)) if importance is None else importance
        return np.asarray((np.log(self.shares) - self.bias - np.log(c)) / self.scale)


def calibrate(problem: Problem, class_counts: Vector | None = None) -> Calibration:
    """By the labels of a problem whose classes all have samples."""
    if problem.n_classes == 1:
        return Calibration(1.0, np.zeros(1), np.ones(1))
    likelihood = _Likelihood(problem, class_counts)
    start = np.zeros(problem.n_classes + 3)
    start[:2] = np.log(SHARPNESS / 4 / median_margin(problem)), NOISE_MEAN
    stiffness = None
    if problem.scores.size >= LARGE:  # some of the samples say about where it is, and how steep the ways there are
        few = likelihood.thinned()
        start = descend(few, start, ITERATIONS)
        stiffness = few.stiffness(start, times=THIN)
    found = descend(likelihood, start, ITERATIONS, stiffness)
    likelihood.spread = likelihood.learnt_spread(found)
    found = descend(likelihood, found, ITERATIONS, stiffness)
    if class_counts is None:  # then nothing can be taken at its word
        return likelihood.calibration(found)
    reached, most_seen = likelihood(found), likelihood.most_seen()
    word, at_word = likelihood.at_its_word()
    p = likelihood.probability(at_word, found, reached, most_seen)
    return replace(likelihood.calibration(p * word + (1 - p) * found), word=p)


class _Likelihood:
    """−log posterior of θ = (log a, logit ε, γ, b), given the spread σ of b, and its gradient."""

    def __init__(self, problem: Problem, class_counts: Vector | None) -> None:
        k = problem.n_classes
        self.scores, self.y, self.own = problem.scores, problem.y, np.empty(problem.n_samples)
        self.weight = problem.given * (np.count_nonzero(problem.given) / problem.given.sum())
        self.shares = frequency(tally(problem.y, self.weight, k) + LEAST_SHARE)
        self._last: tuple[Vector, Vector] | None = None
        self.shift, self.line, self.spread = np.zeros(k), np.zeros(k), UNKNOWN_SPREAD
        if class_counts is not None:
            log_frequency = np.log(frequency(class_counts))
            self.shift, self.spread = np.log(self.shares) - log_frequency, BIAS_SPREAD
            self.line = log_frequency - log_frequency.mean()

    def bias(self, theta: Vector) -> Vector:
        """β."""
        return np.asarray(self.shift + theta[2] * self.line + theta[3:])

    def __call__(self, theta: Vector) -> tuple[float, Vector]:
        """Value and gradient; q_iy without noise stays in `own`."""
        k, by_chance = len(self.shift), self.shares[self.y]
        a, noise = float(np.exp(theta[0])), float(expit(theta[1]))
        sums = self._told(theta, noise)
        mixed = self._mixed(noise)
        trusted = self.weight * (1 - noise) * self.own / mixed  # how far the scores speak for the label
        by_scale = a * (sums[k] - float(trusted @ self._given))
        by_noise = noise * (1 - noise) * float(self.weight @ ((self.own - by_chance) / mixed))
        by_bias = sums[:k] - tally(self.y, trusted, k)
        prior, slope = self._prior(theta)
        gradient = np.concatenate([[by_scale, by_noise, by_bias @ self.line], by_bias])
        return prior - float(self.weight @ np.log(mixed)), gradient + slope

    def _told(self, theta: Vector, noise: float) -> Vector:
        """What the pass over the scores says, which is often asked for twice in a row."""
        if self._last is None or not np.array_equal(theta, self._last[0]):
            matrix, numbers = whole(self.scores)
            rows, rest = (numbers, self.y, self.weight, self.own), (*self._softening(theta), noise, self.shares)
            sums = summed(_kernels.opinions, rows, len(self.shift) + 1, matrix, *rest, of=self.scores)
            self._last = theta.copy(), sums
        return self._last[1]

    @once
    def _given(self) -> Vector:
        """Scores of the labels."""
        return self.scores[np.arange(len(self.y)), self.y].astype(np.float64)

    def _mixed(self, noise: float) -> Vector:
        """Probability of the labels, noise included."""
        return np.maximum((1 - noise) * self.own + noise * self.shares[self.y], _kernels.TINY)

    def _softening(self, theta: Vector) -> tuple[NDArray[Any], NDArray[Any]]:
        """Of which the softmax is q."""
        return in_units(np.full(len(self.shift), np.exp(theta[0])), -self.bias(theta), self.scores.dtype)

    def _seen(self, theta: Vector) -> Vector:
        """Σ_i w_i q_ik (1 − q_ik): how much labels say of each class's bias."""
        return summed(_kernels.variances, (self.scores, self.weight), len(self.shift), *self._softening(theta))

    def most_seen(self) -> float:
        """No less than Σ_k of that, where `own` was told last: Σ_k q_ik (1 − q_ik) ≤ 1 − q_iy²."""
        return float(self.weight @ (1 - self.own**2))

    def _prior(self, theta: Vector) -> tuple[float, Vector]:
        """−log prior of θ and its gradient."""
        a = float(np.exp(theta[0]))
        width = np.concatenate([[1.0, NOISE_SPREAD, SLOPE_SPREAD], np.full(len(theta) - 3, self.spread)])
        centre = np.zeros(len(theta))
        centre[:3] = theta[0], NOISE_MEAN, max(0.0, 1 - a)
        distance = (theta - centre) / width
        value, slope = float(distance @ distance) / 2, distance / width
        excess = theta[0] ** 2 / (SCALE_FREEDOM * SCALE_SPREAD**2)
        slope[0] = (SCALE_FREEDOM + 1) * theta[0] / (SCALE_FREEDOM * SCALE_SPREAD**2) / (1 + excess)
        slope[0] += slope[2] * a if a < 1 else 0.0
        return value + (SCALE_FREEDOM + 1) / 2 * float(np.log1p(excess)), slope

    def learnt_spread(self, theta: Vector) -> float:
        """σ by a step of expectation maximisation, variances by the diagonal of the Hessian."""
        square = theta[3:] ** 2 + 1 / (self._seen(theta) + 1 / self.spread**2)
        return float(np.sqrt((square.sum() + HYPER_CLASSES * HYPER_SPREAD**2) / (len(square) + HYPER_CLASSES)))

    def thinned(self) -> _Likelihood:
        """Of some of the samples of each class."""
        rows, few = np.sort(np.argsort(self.y, kind="stable")[::THIN]), copy(self)
        own = np.empty(len(rows))
        few.scores, few.y, few.weight, few.own = Rows.of(self.scores, rows), self.y[rows], self.weight[rows], own
        few._last = None
        few.__dict__.pop("_given", None)
        return few

    def stiffness(self, theta: Vector, times: float) -> Vector:
        """About the diagonal of the Hessian for so many times the samples; of log a, logit ε and γ by steps."""
        slope, k = self(theta)[1], len(theta)
        of_all = [abs(self(theta + unit(k, j, PROBE))[1][j] - slope[j]) / PROBE for j in range(3)]
        return np.append(np.maximum(times * np.array(of_all), 1.0), times * self._seen(theta) + 1 / self.spread**2)

    def at_its_word(self) -> tuple[Vector, float]:
        """θ of a model that needs no calibration, all zero but ε, and its value."""
        theta = np.zeros(len(self.shift) + 3)
        self(theta)

        def cost(logit: float) -> float:
            doubt = float(((logit - NOISE_MEAN) / NOISE_SPREAD) ** 2 / 2)
            return doubt - float(self.weight @ np.log(self._mixed(float(expit(logit)))))

        reach = 8 * NOISE_SPREAD
        theta[1] = minimize_scalar(cost, bounds=(NOISE_MEAN - reach, NOISE_MEAN + reach), method="bounded").x
        value = self._prior(theta)[0] - float(self.weight @ np.log(self._mixed(float(expit(theta[1])))))
        return theta, value

    def probability(self, at_word: float, found: Vector, reached: tuple[float, Vector], most_seen: float) -> float:
        """Of the model at its word, against the one that was found by freeing a, γ and b; by their values.

        Where these settle it, whatever the labels narrow down, no pass over the scores is made.
        """
        value, slope = reached
        k, odds = len(self.shift), np.log(WORD_ODDS) + value - at_word
        most = k * np.log1p(most_seen * self.spread**2 / k) + NARROWEST  # of `narrowing`: log is concave
        if odds > CERTAIN or odds + most / 2 < -CERTAIN:
            return float(odds > 0)
        # log of posterior over prior precision: of b,
        narrowing = float(np.log1p(self._seen(found) * self.spread**2).sum())
        free = [0, 2]  # and of log a and γ together
        nearby = [self(found + unit(len(found), j, PROBE))[1] for j in free]
        curvature = np.array([there[free] - slope[free] for there in nearby]) / PROBE
        prior = 1 / (SCALE_SPREAD * SLOPE_SPREAD) ** 2
        narrowing += float(np.log(max(np.linalg.det(curvature + curvature.T) / 4 / prior, 1.0)))
        return float(expit(odds + narrowing / 2))

    def calibration(self, theta: Vector) -> Calibration:
        """What θ says."""
        return Calibration(float(np.exp(theta[0])), self.bias(theta), self.shares, float(expit(theta[1])))


def labels_per_class(problem: Problem) -> Vector:
    """How many equally weighted labels each class has, in effect: (Σ w)² / Σ w²."""
    total, squares = (tally(problem.y, w, problem.n_classes) for w in (problem.given, problem.given**2))
    return np.divide(total**2, squares, out=np.zeros(len(total)), where=squares > 0)


def soft_labels(problem: Problem, calibration: Calibration, worth: float) -> Any:
    """M (n_samples, K), where the model's opinion of a class is worth so many labels (n₀)."""
    labels = labels_per_class(problem)
    own = (labels / (labels + worth))[problem.y]
    return calibration.opinion(
        problem.scores, problem.y, problem.given * own, problem.given * (1 - own)
    ).small_as_array()


def in_their_shares(calibration: Calibration, scores: NDArray[Any], start: Vector) -> Calibration:
    """For samples without labels: class shares by expectation maximisation (Saerens et al. 2002), from a start (K,).

    As many samples as there are classes stand for the start, so that no class is lost.
    """
    start, k = start / start.sum(), len(start)
    shares = start
    for _ in range(SHARE_ROUNDS):
        found = calibration.under(shares).posterior(scores).sum(axis=0, dtype=np.float64)
        shares = (found + k * start) / (len(scores) + k)
    return calibration.under(shares)


def spread_opinion(
    problem: Problem, calibration: Calibration, unlabelled: NDArray[Any], worth: float
) -> tuple[NDArray[Any], NDArray[Any]]:
    """M of the labelled samples and of unlabelled ones (m, K): the model's opinion is spread over both.

    It is worth as much as on the labelled samples alone, and is less a matter of chance.
    """
    n, start = labels_per_class(problem), calibration.shares if problem.shares is None else problem.shares
    here = calibration.posterior(problem.scores) * problem.given[:, None].astype(problem.scores.dtype)
    there = in_their_shares(calibration, unlabelled, start).posterior(unlabelled)
    own = (n / (n + worth))[problem.y]
    opinion = here * (1 - own)[:, None].astype(here.dtype)
    weight = np.count_nonzero(problem.given) / problem.given.sum()  # those without labels count once each
    seen, beyond, total = (m.sum(axis=0, dtype=np.float64) for m in (weight * here, there, opinion))
    opinion *= (seen / (seen + beyond)).astype(opinion.dtype)
    opinion[np.arange(problem.n_samples), problem.y] += (problem.given * own).astype(opinion.dtype)
    return opinion, np.asarray(there * (total / (seen + beyond)).astype(there.dtype))


def importance(problem: Problem) -> Vector:
    """c_k with Σ_k c_k Err_k nearest to the objective, mean 1: by it the calibrated answer is found.

    Ranks and spreads may concern any class, so they count all alike. F1 and its kin lie between the balanced error
    (c = 1) and the plain one (c = π), and get the geometric mean of these.
    """
    near = neighbour(problem.objective, problem)
    c = np.ones(problem.n_classes)
    if isinstance(near, ConfusionForm):
        c = np.sqrt(problem.totals) * np.maximum(-near.f1, 0.0)
    elif isinstance(near, MarginFunction):
        c = np.sqrt(problem.totals)
    elif isinstance(near, Form) and near.is_linear:
        c = np.maximum(near.linear, 0.0)
    if c.sum() == 0:
        c = np.ones(problem.n_classes)
    return np.maximum(c / c.mean(), LEAST_IMPORTANCE)

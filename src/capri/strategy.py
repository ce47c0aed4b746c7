"""The strategy: (ω, l, Δ) and ε per class, and the one owner of signs.

    loss       ℓ(y, o) = ω_y · [ logsumexp_k(Δ_k o_k + l_k) − (Δ_y o_y + l_y) ]         `Strategy.loss_scores`
    post-hoc   ô = Δ∘o − l                                                               `Strategy.adjust`

ε, a label smoothing per class, is beyond the paper and of the loss alone: the target of y is (1 − ε_y)·1_y + ε_y s with
s = softmax(l), what the loss expects of a sample of which the scores say nothing (o = 0); with l = 0 the usual 1/K.
Spread evenly, it would pull Δ∘o + l towards 0, and with it the scores of rare classes up by −l, whatever the sample.

Logit adjustment is l = +τ log π in both: the loss adds it during training, post-hoc takes it away from a model that was
trained without it. The same strategy therefore corrects the same bias on either side; `transferred` carries multipliers
over, for which the two sides are inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import InputError, check_labels, check_scores, check_vector
from capri.attributes import frequency
from capri.dictionary import Dictionary

Vector: TypeAlias = NDArray[np.float64]
DeltaForm: TypeAlias = Literal["normalized", "sigmoid", "exp", "linear"]

EPSILON = 1e-12
SMOOTHING_MAX = 0.5  # of ε that W drives
LEAST_SHARE = 1e-4  # what the inverse of a sigmoid takes for 0, which W cannot say
NEUTRAL = {"omega": 1.0, "l": 0.0, "delta": 1.0, "smoothing": 0.0}  # cross-entropy


@dataclass(frozen=True, eq=False)
class Strategy:
    """Weight ω, offset l, multiplier Δ and label smoothing ε of each class.

    Parameters
    ----------
    omega : array-like of shape (K,)
        Weights of the loss, at least 0.
    l : array-like of shape (K,)
        Offsets: the loss adds them to the logits, post-hoc adjustment subtracts them.
    delta : array-like of shape (K,)
        Multipliers of the logits, above 0.
    smoothing : array-like of shape (K,), optional
        Label smoothing of the loss, from 0 (the default) to below 1.

    Examples
    --------
    >>> Strategy.logit_adjustment([900, 90, 10], tau=1.0).adjust([[2.0, 1.0, 0.5]]).argmax()
    np.int64(2)
    """

    omega: Vector
    l: Vector
    delta: Vector
    smoothing: Vector = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        k = np.size(self.l)
        smoothing = self.smoothing if np.size(self.smoothing) else np.zeros(k)
        parts = {
            "l": check_vector(self.l, "l", k),
            "omega": check_vector(self.omega, "omega", k, low=0),
            "delta": check_vector(self.delta, "delta", k, low=0, strict=True),
            "smoothing": _below_one(check_vector(smoothing, "smoothing", k, low=0)),
        }
        for name, values in parts.items():  # copies: what the caller does to an array is no change of the strategy
            object.__setattr__(self, name, values.copy())

    @classmethod
    def of(
        cls,
        n_classes: int,
        *,
        omega: ArrayLike | None = None,
        l: ArrayLike | None = None,
        delta: ArrayLike | None = None,
        smoothing: ArrayLike | None = None,
    ) -> Strategy:
        """A strategy that is neutral (ω = 1, l = 0, Δ = 1, ε = 0) in what is not given.

        Parameters
        ----------
        n_classes : int
            K.
        omega, l, delta, smoothing : array-like of shape (K,), optional
            Weights, offsets, multipliers and label smoothing.

        Returns
        -------
        Strategy
        """
        given = {"omega": omega, "l": l, "delta": delta, "smoothing": smoothing}
        return cls(
            **{
                part: np.full(n_classes, NEUTRAL[part]) if values is None else check_vector(values, part, n_classes)
                for part, values in given.items()
            }
        )

    # -- the named strategies of the literature ----------------------------------------------------------------------

    @classmethod
    def logit_adjustment(cls, class_counts: ArrayLike, tau: float = 1.0) -> Strategy:
        """Logit adjustment (LA): l_k = τ log π_k; balanced softmax at τ = 1.

        Parameters
        ----------
        class_counts : array-like of shape (K,)
            Training samples per class; π_k is the share of class k.
        tau : float
            Its strength τ.

        Returns
        -------
        Strategy

        References
        ----------
        Menon et al., "Long-tail learning via logit adjustment", ICLR 2021.
        """
        pi = frequency(class_counts)
        return cls.of(len(pi), l=tau * np.log(pi))

    @classmethod
    def cdt(cls, class_counts: ArrayLike, gamma: float) -> Strategy:
        """Class-dependent temperatures (CDT): Δ_k = (π_k / π_max)^γ in the loss.

        Parameters
        ----------
        class_counts : array-like of shape (K,)
            Training samples per class; π_k is the share of class k.
        gamma : float
            Its strength γ.

        Returns
        -------
        Strategy

        References
        ----------
        Ye et al., "Identifying and compensating for feature deviation in imbalanced deep learning", 2020.
        """
        pi = frequency(class_counts)
        return cls.of(len(pi), delta=(pi / pi.max()) ** gamma)

    @classmethod
    def vs(cls, class_counts: ArrayLike, tau: float, gamma: float) -> Strategy:
        """Vector scaling (VS): the offsets of logit adjustment and the multipliers of CDT together.

        Parameters
        ----------
        class_counts : array-like of shape (K,)
            Training samples per class.
        tau : float
            Strength of the offsets.
        gamma : float
            Strength of the multipliers.

        Returns
        -------
        Strategy

        References
        ----------
        Kini et al., "Label-imbalanced and group-sensitive classification under overparameterization", NeurIPS 2021.
        """
        return replace(cls.cdt(class_counts, gamma), l=cls.logit_adjustment(class_counts, tau).l)

    @classmethod
    def weighted(cls, weights: ArrayLike) -> Strategy:
        """Weighted cross-entropy.

        Parameters
        ----------
        weights : array-like of shape (K,)
            ω on any scale; it is scaled to mean 1.

        Returns
        -------
        Strategy
        """
        omega = check_vector(weights, "weights", low=0)
        if omega.sum() == 0:
            raise InputError("weights sum to 0; give at least one class a positive weight.")
        return cls.of(len(omega), omega=omega / omega.mean())

    # -- the map W (eq. 1) -------------------------------------------------------------------------------------------

    @classmethod
    def from_weights(
        cls,
        dictionary: Dictionary,
        *,
        w_l: ArrayLike | None = None,
        w_delta: ArrayLike | None = None,
        w_omega: ArrayLike | None = None,
        w_smoothing: ArrayLike | None = None,
        delta_form: DeltaForm = "normalized",
    ) -> Strategy:
        """S = W F(A): l = D w_l, Δ = form(D w_Δ), ω = softplus(D w_ω) scaled to mean 1, ε = ½·sigmoid(D w_ε).

        Parameters
        ----------
        dictionary : Dictionary
            D, of shape (K, M).
        w_l, w_delta, w_omega, w_smoothing : array-like of shape (M,), optional
            The rows of W; what is left out stays neutral.
        delta_form : {"normalized", "sigmoid", "exp", "linear"}
            How Δ is made of x = D w_Δ: sigmoid(√K·x/‖x‖) as in the paper, sigmoid(x), exp(x) or 1 + x.

        Returns
        -------
        Strategy
        """
        return cls.of(
            dictionary.shape[0],
            l=None if w_l is None else dictionary @ w_l,
            delta=None if w_delta is None else DELTA_FORMS[_known(delta_form)](dictionary @ w_delta),
            omega=None if w_omega is None else omega_from(dictionary @ w_omega),
            smoothing=None if w_smoothing is None else smoothing_from(dictionary @ w_smoothing),
        )

    # -- use ---------------------------------------------------------------------------------------------------------

    @property
    def n_classes(self) -> int:
        """The number of classes, K."""
        return len(self.l)

    @property
    def smoothed_to(self) -> Vector:
        """Where label smoothing goes: softmax(l), the probabilities of the loss at o = 0; 1/K each where l = 0."""
        raised = np.exp(self.l - self.l.max())
        return np.asarray(raised / raised.sum())

    def adjust(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Post-hoc: Δ∘o − l. The argmax of a row is the decision. ω and ε play no part; they belong to the loss.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            The logits o of a trained model.

        Returns
        -------
        ndarray of shape (n_samples, K)
        """
        return self._joined(scores, np.subtract)

    def loss_scores(self, scores: ArrayLike) -> NDArray[np.float64]:
        """What the loss compares: Δ∘o + l.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            The logits o of a model in training.

        Returns
        -------
        ndarray of shape (n_samples, K)
        """
        return self._joined(scores, np.add)

    def loss(self, scores: ArrayLike, y: ArrayLike) -> Vector:
        """The parametric cross-entropy of each sample; `capri.bilevel` has the differentiable twin.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            A network's logits.
        y : array-like of shape (n_samples,)
            Class numbers from 0.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        z = self.loss_scores(scores)
        labels = check_labels(y, self.n_classes, len(z))
        top = z.max(axis=1)
        log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        own = self.omega[labels] * (log_sum - z[np.arange(len(z)), labels])
        if not self.smoothing.any():
            return np.asarray(own)
        epsilon = self.smoothing[labels]
        return np.asarray((1 - epsilon) * own + epsilon * ((log_sum[:, None] - z) @ (self.omega * self.smoothed_to)))

    def transferred(self) -> Strategy:
        """The counterpart on the other side: post-hoc (Δ, l) becomes (1/Δ, l/Δ) in the loss, and the other way round.

        It is exact where all Δ are equal, and a heuristic otherwise.

        Returns
        -------
        Strategy
        """
        return replace(self, delta=1 / self.delta, l=self.l / self.delta)

    def reweighted(self, share: float) -> Strategy:
        """A loss with the same ideal decisions, in which weights do a share of the offsets' work.

        The loss is least at z = log(ω∘p) + constant, p being the true probabilities, which its scores reach at
        o = (log ω + log p − l)/Δ. Where ω_k e^(−s l_k) and (1 − s) l_k take the places of ω_k and l_k, that o is the
        same; what a model of finite samples and limited means learns is not.

        Parameters
        ----------
        share : float
            s, from 0 (this strategy) to 1 (weights alone).

        Returns
        -------
        Strategy
        """
        if not 0 <= share <= 1:
            raise InputError(f"share is {share}; it must be from 0 to 1.")
        return replace(self, omega=self.omega * np.exp(-share * (self.l - self.l.mean())), l=(1 - share) * self.l)

    def _joined(self, scores: ArrayLike, join: np.ufunc) -> NDArray[np.float64]:
        """Infinite scores would tie, and decide by the order of the classes."""
        try:
            with np.errstate(over="raise"):
                return join(self._checked(scores) * self.delta, self.l)
        except FloatingPointError:
            raise InputError(
                f"the adjusted scores overflow: multipliers reach {self.delta.max():g}, offsets {abs(self.l).max():g}. "
                "Scale the scores, or tune again."
            ) from None

    def _checked(self, scores: ArrayLike) -> NDArray[np.float64]:
        array = check_scores(scores)
        if array.shape[1] != self.n_classes:
            raise InputError(
                f"scores have {array.shape[1]} columns, the strategy {self.n_classes} classes; "
                "give one score per class, in the strategy's order."
            )
        return array.astype(np.float64, copy=False)


def _sigmoid(x: Vector) -> Vector:
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def _normalized(x: Vector) -> Vector:
    """The paper's form, sigmoid(√K · x/‖x‖): the root mean square of its argument is always 1."""
    return _sigmoid(np.sqrt(len(x)) * x / max(float(np.linalg.norm(x)), EPSILON))


def _linear(x: Vector) -> Vector:
    """1 + x: the post-hoc search moves multipliers along straight lines."""
    return 1 + x


#: Δ from D w_Δ. "normalized" is the paper's; the others are free to express CDT and AutoBalance.
DELTA_FORMS: dict[str, Callable[[Vector], Vector]] = {
    "normalized": _normalized,
    "sigmoid": _sigmoid,
    "exp": np.exp,
    "linear": _linear,
}


def omega_from(x: ArrayLike) -> Vector:
    """ω from D w_ω: softplus keeps it positive, and its mean is 1."""
    positive = np.logaddexp(0.0, np.asarray(x, dtype=np.float64))
    return np.asarray(positive / positive.mean())


def smoothing_from(x: ArrayLike) -> Vector:
    """ε from D w_ε, between 0 and ½."""
    return SMOOTHING_MAX * _sigmoid(np.asarray(x, dtype=np.float64))


def delta_logit(delta: ArrayLike, delta_form: str) -> Vector:
    """The x of Δ = form(x), for "exp" and "sigmoid"; of other forms the logarithm, which is near for Δ near 1."""
    given = np.asarray(delta, dtype=np.float64)
    return _logit(given) if delta_form == "sigmoid" else np.log(given)


def smoothing_logit(epsilon: ArrayLike) -> Vector:
    """The x of ε = smoothing_from(x)."""
    return _logit(np.asarray(epsilon, dtype=np.float64) / SMOOTHING_MAX)


def _logit(share: Vector) -> Vector:
    """Of shares in [0, 1]; what is nearer to the ends than `LEAST_SHARE` counts as that near."""
    inside = np.clip(share, LEAST_SHARE, 1 - LEAST_SHARE)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _below_one(epsilon: Vector) -> Vector:
    if (epsilon >= 1).any():
        k = int(np.flatnonzero(epsilon >= 1)[0])
        raise InputError(
            f"smoothing[{k}] is {epsilon[k]}; each entry must be below 1: it is the share of a target that is spread."
        )
    return epsilon


def _known(delta_form: str) -> str:
    if delta_form not in DELTA_FORMS:
        raise InputError(f"delta_form is {delta_form!r}; it must be one of {', '.join(DELTA_FORMS)}.")
    return delta_form

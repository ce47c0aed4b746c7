"""The map from W to the strategy in torch: what the outer level of the search moves.

    l = D w_l,    Δ = form([1, D] w_Δ),    ω = softplus([1, D] w_ω) scaled to mean 1,    ε = ½·sigmoid([1, D] w_ε)

`Strategy.from_weights` is the same map in NumPy and owns it; equality is a test. With identity attributes D = I, W is
the strategy itself ("plain", AutoBalance), and no intercept column is needed.

The start is AutoBalance's: Δ = sigmoid(1) = 0.731 (or 1 for the form "exp"), ω = 1, ε small, and l = 0 or the nearest
that D can say to logit adjustment, τ log π.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from capri._checks import InputError
from capri.attributes import Attributes
from capri.dictionary import Dictionary, Scaling, build_dictionary, identity_dictionary
from capri.strategy import EPSILON, SMOOTHING_MAX, Strategy

Part: TypeAlias = Literal["l", "delta", "omega", "smoothing"]
TorchDeltaForm: TypeAlias = Literal["normalized", "sigmoid", "exp"]
PARTS: tuple[Part, ...] = ("l", "delta", "omega", "smoothing")
START_LOGIT = 1.0  # of Δ: sigmoid(1) = 0.731
SMOOTHING_START = -4.0  # ε starts at 0.5·sigmoid(−4) = 0.009


class StrategyTensors(NamedTuple):
    """ω, l, Δ and ε per class, (K,) each; of P strategies, (P, K).

    Parameters
    ----------
    omega, l, delta, smoothing : Tensor
        Weights, offsets, multipliers and label smoothing.
    """

    omega: Tensor
    l: Tensor
    delta: Tensor
    smoothing: Tensor


class StrategyMap(nn.Module):
    """The map from W to the strategy, with W as the parameters of a module; calling it gives the strategy.

    Parameters
    ----------
    dictionaries : Dictionaries
        D, with and without a column of ones.
    parts : sequence of {"l", "delta", "omega", "smoothing"}
        Which parts of the strategy W drives; the others stay neutral.
    delta_form : {"normalized", "sigmoid", "exp"}
        How Δ is made of x = D w_Δ: sigmoid(√K·x/‖x‖) as in the paper, sigmoid(x) or exp(x).
    start_l : array-like of shape (K,), optional
        Offsets to start from, as nearly as D can express them; 0 by default.
    dtype : torch.dtype
        Of W and D.

    Examples
    --------
    >>> from capri.attributes import Attributes
    >>> dictionaries = Dictionaries.of(Attributes.of(freq=[0.7, 0.2, 0.1]), 3)
    >>> strategy = StrategyMap(dictionaries, ["l"], start_l=np.log([0.7, 0.2, 0.1]))()
    >>> (strategy.l - strategy.l[0]).detach()  # logit adjustment, up to a common shift
    tensor([ 0.0000, -1.2528, -1.9459])
    """

    D: Tensor
    D1: Tensor
    w_l: Tensor
    w_delta: Tensor
    w_omega: Tensor
    w_smoothing: Tensor

    def __init__(
        self,
        dictionaries: Dictionaries,
        parts: Sequence[Part] = ("l", "delta"),
        *,
        delta_form: TorchDeltaForm = "normalized",
        start_l: ArrayLike | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        super().__init__()
        _check_parts(parts)
        if delta_form not in ("normalized", "sigmoid", "exp"):
            raise InputError(f"delta_form is {delta_form!r}; in the loss it must be 'normalized', 'sigmoid' or 'exp'.")
        self.dictionaries, self.parts, self.delta_form = dictionaries, tuple(parts), delta_form
        self.register_buffer("D", torch.as_tensor(dictionaries.bare.values, dtype=dtype))
        self.register_buffer("D1", torch.as_tensor(dictionaries.lifted.values, dtype=dtype))
        for part, start in _starts(dictionaries, delta_form, start_l).items():
            if part in parts:
                self.register_parameter(f"w_{part}", nn.Parameter(torch.as_tensor(start, dtype=dtype)))

    def forward(self) -> StrategyTensors:
        """The strategy at W.

        Returns
        -------
        StrategyTensors
            ω, l, Δ and ε, (K,) each, with their graph.
        """
        one = torch.ones_like(self.D[:, 0])
        form = TORCH_DELTA_FORMS[self.delta_form]
        return StrategyTensors(
            omega=omega_from(self.D1 @ self.w_omega) if "omega" in self.parts else one,
            l=self.D @ self.w_l if "l" in self.parts else 0 * one,
            delta=form(self.D1 @ self.w_delta) if "delta" in self.parts else one,
            smoothing=smoothing_from(self.D1 @ self.w_smoothing) if "smoothing" in self.parts else 0 * one,
        )

    def weights(self) -> dict[str, NDArray[np.float64]]:
        """W by part, in NumPy.

        Returns
        -------
        dict
            From "l", "delta", … to arrays of shape (M,).
        """
        return {name.removeprefix("w_"): p.detach().double().cpu().numpy() for name, p in self.named_parameters()}

    def strategy(self) -> Strategy:
        """The strategy at W, by `Strategy.from_weights`.

        Returns
        -------
        Strategy
        """
        w = {f"w_{part}": values for part, values in self.weights().items()}
        offsets = Strategy.from_weights(self.dictionaries.bare, w_l=w.pop("w_l", None))
        rest = Strategy.from_weights(self.dictionaries.lifted, **w, delta_form=self.delta_form)
        return replace(rest, l=offsets.l)


class Dictionaries(NamedTuple):
    """The same dictionary without and with a column of ones: offsets do without, since a common shift changes nothing.

    Parameters
    ----------
    bare : Dictionary
        D, for offsets.
    lifted : Dictionary
        [1, D], for multipliers, weights and label smoothing. With identity attributes it is D = I again.
    """

    bare: Dictionary
    lifted: Dictionary

    @classmethod
    def of(cls, attributes: Attributes | None, n_classes: int, scaling: Scaling = "whiten") -> Dictionaries:
        """Both dictionaries of a table of attributes.

        Parameters
        ----------
        attributes : Attributes or None
            None is the identity, the plain search with one free number per class; no column of ones is needed there.
        n_classes : int
            K.
        scaling : {"whiten", "ordered", "standardize", "raw"}
            As in `capri.build_dictionary`.

        Returns
        -------
        Dictionaries
        """
        if attributes is None:
            return cls(identity_dictionary(n_classes), identity_dictionary(n_classes))
        bare, lifted = (build_dictionary(attributes, scaling=scaling, intercept=i) for i in (False, True))
        return cls(bare, lifted)


def _check_parts(parts: Sequence[str]) -> None:
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        named = repr(unknown[0]) if unknown else "nothing"
        raise InputError(f"parts names {named}; give some of {', '.join(PARTS)}.")


def _starts(
    dictionaries: Dictionaries, delta_form: TorchDeltaForm, start_l: ArrayLike | None
) -> Mapping[str, NDArray[np.float64]]:
    """w of each part at the start: the constant of each, and offsets as near to `start_l` as D can come."""
    plain, lifted = dictionaries
    one: NDArray[np.float64] = np.linalg.lstsq(lifted.values, np.ones(lifted.shape[0]), rcond=None)[0].astype(float)
    offsets = np.zeros(plain.shape[1])
    if start_l is not None:
        target = np.asarray(start_l, dtype=np.float64)
        offsets = np.linalg.lstsq(plain.values, target - target.mean(), rcond=None)[0]
    return {
        "l": offsets,
        "delta": 0.0 * one if delta_form == "exp" else START_LOGIT * one,
        "omega": math.log(math.e - 1) * one,  # softplus of it is 1
        "smoothing": SMOOTHING_START * one,
    }


def normalized(x: Tensor) -> Tensor:
    """The paper's form, sigmoid(√K · x/‖x‖)."""
    return torch.sigmoid(math.sqrt(len(x)) * x / torch.linalg.vector_norm(x).clamp_min(EPSILON))


TORCH_DELTA_FORMS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "normalized": normalized,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}


def omega_from(x: Tensor) -> Tensor:
    """softplus, scaled to mean 1."""
    positive = F.softplus(x)
    return positive / positive.mean()


def smoothing_from(x: Tensor) -> Tensor:
    """Label smoothing between 0 and ½."""
    return SMOOTHING_MAX * torch.sigmoid(x)

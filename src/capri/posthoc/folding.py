"""Folding a policy into a classifier's last layer, so that serving costs nothing.

    o = W x + b   becomes   Δ∘(W x + b) − l,   with weight Δ∘W and bias Δ∘b − l.

One score z for two classes stands for (0, z): z becomes Δ₁ z − (l₁ − l₀). A policy on probabilities folds into what
comes before a softmax, because log p = o − logsumexp(o) shifts all classes alike.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model._base import LinearClassifierMixin

from capri._checks import InputError, as_array, check_matrix, check_names, check_vector, short
from capri.policy import Policy

MARK = "capri_policy_"  # the attribute of a folded layer or model: the digest of the policy that it holds
_BARE = "a layer's scores, unless they are its softmax: then say softmax=True (capri fold --softmax)"


def fold(layer: Any, policy: Policy, *, softmax: bool = False) -> Any:
    """Put a policy's Δ and l into a linear layer or model; what was given stays as it is.

    Parameters
    ----------
    layer : torch.nn.Linear, fitted scikit-learn linear classifier, or pair of arrays (weight, bias)
        With weights (K, n) and bias (K,) or None; for two classes also (1, n) and (1,).
    policy : Policy
        Tuned post-hoc on the layer's scores, or on the probabilities that are their softmax. A policy on probabilities
        must have offsets only, and these must lie so close together that its floor cannot decide.
    softmax : bool
        Only for a policy on probabilities and a torch layer or arrays: True says that the probabilities are the softmax
        of the layer's scores (or the sigmoid of its single score). Of scikit-learn's models capri knows it by itself.

    Returns
    -------
    torch.nn.Linear, scikit-learn classifier or (ndarray, ndarray)
        A new layer, model or pair, of the type that was given. Layers and models carry the digest of the policy as
        `capri_policy_`, and cannot be folded a second time.

    Raises
    ------
    InputError
        Where the layer is of another kind or of other classes, or could decide otherwise than the policy.

    Examples
    --------
    >>> from capri import Strategy
    >>> policy = Policy(Strategy.of(2, l=[1.0, -1.0]), objective="balanced", classes=("common", "rare"))
    >>> weight, bias = fold((np.eye(2), np.zeros(2)), policy)
    >>> bias
    array([-1.,  1.])
    """
    if not isinstance(policy, Policy):
        raise InputError(f"policy is {short(policy)}; give a Policy, such as Policy.load(path) or adjuster.policy_.")
    policy.require_posthoc()
    if policy.thresholds is not None:
        raise InputError(
            "this policy may leave samples undecided, which no layer can say; use policy.predict, or ONNX."
        )
    if hasattr(layer, MARK):
        raise already_folded(f"this {type(layer).__name__}")
    if isinstance(layer, tuple) and len(layer) == 2:
        _check_scores(policy, softmax, _BARE)
        weight, bias = layer
        return _folded(as_array(weight, "weight"), None if bias is None else as_array(bias, "bias"), policy)
    if isinstance(layer, LinearClassifierMixin):
        return _fold_model(layer, policy)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(layer, torch.nn.Linear):
        _check_scores(policy, softmax, _BARE)
        return _fold_torch(layer, policy, torch)
    raise InputError(f"layer is a {type(layer).__name__}, {_instead(layer, torch)}")


def already_folded(what: str) -> InputError:
    """Twice folded is twice adjusted."""
    return InputError(f"{what} holds a policy already; fold into what was trained, before any folding.")


def narrowed(values: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Folded numbers in the number type of the layer, which must be able to hold them."""
    if not np.issubdtype(dtype, np.floating):
        raise InputError(f"the layer is quantised, and {dtype} holds no fractions; fold before it is quantised.")
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype)
    if not np.isfinite(narrow).all():
        raise _does_not_fit(dtype)
    return narrow


def _does_not_fit(dtype: object) -> InputError:
    return InputError(f"the folded layer does not fit into {dtype}: it is not finite there; fold into a wider type.")


# --------------------------------------------------------------------------------------------------------------------
# What folds


def _folded(
    weight: NDArray[Any], bias: NDArray[Any] | None, policy: Policy
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    delta, l, k = policy.strategy.delta, policy.strategy.l, policy.strategy.n_classes
    if k == 2 and weight.shape[:1] == (1,):  # scores (0, z)
        delta, l = delta[1:], l[1:] - l[:1]
    bias = np.zeros(len(l)) if bias is None else bias
    if weight.ndim != 2 or len(weight) != len(l) or bias.shape != l.shape:
        raise InputError(
            f"the layer has weight {weight.shape} and bias {bias.shape}; the policy needs ({k}, n) and ({k},)."
        )
    matrix = check_matrix(weight, "weight", "n_classes", "n_features").astype(np.float64)
    return matrix * delta[:, None], check_vector(bias, "bias") * delta - l


def _fold_model(model: Any, policy: Policy) -> Any:
    """A scikit-learn classifier whose scores are X coef_ᵀ + intercept_."""
    kind = type(model).__name__
    if not hasattr(model, "coef_"):
        raise InputError(f"this {kind} is not fitted; fit it, tune a policy on its scores, then fold.")
    names = tuple(map(str, model.classes_))
    if policy.class_names not in (names, check_names(None, len(names))):
        raise InputError(
            f"the {kind} is of classes {', '.join(names[:3])} …, the policy of {', '.join(policy.class_names[:3])} …; "
            "tune a policy on this model's scores."
        )
    _check_scores(
        policy,
        _gives_softmax(model),
        f"{kind}'s scores: its probabilities are not their softmax (one class against the rest). Tune on its "
        'decision_function (scores="logits")',
    )
    coef = np.atleast_2d(model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_)
    coef, intercept = _folded(coef, np.broadcast_to(model.intercept_, len(coef)), policy)
    new = deepcopy(model)
    new.coef_, new.intercept_ = narrowed(coef, model.coef_.dtype), narrowed(intercept, model.coef_.dtype)
    setattr(new, MARK, policy.digest)
    return new


def _fold_torch(layer: Any, policy: Policy, torch: Any) -> Any:
    if "weight" not in dict(layer.named_parameters(recurse=False)):
        raise InputError("the layer's weight is computed anew each time (weight norm, …); remove the parametrization.")
    weight = layer.weight.detach().double().cpu().numpy()
    bias = None if layer.bias is None else layer.bias.detach().double().cpu().numpy()
    new = deepcopy(layer)
    for name, values in zip(("weight", "bias"), _folded(weight, bias, policy), strict=True):
        tensor = torch.as_tensor(values, dtype=layer.weight.dtype, device=layer.weight.device)
        if not torch.isfinite(tensor).all():
            raise _does_not_fit(layer.weight.dtype)
        new.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=layer.weight.requires_grad))
    setattr(new, MARK, policy.digest)
    return new


# --------------------------------------------------------------------------------------------------------------------
# What does not


def _check_scores(policy: Policy, softmax: bool, otherwise: str) -> None:
    """Refuse a policy on probabilities where a folded layer could decide otherwise than it."""
    if policy.scores == "logits":
        return
    if not softmax:
        raise InputError(
            f"this policy adjusts probabilities and cannot be folded into {otherwise}, or use policy.apply."
        )
    if (policy.strategy.delta != 1).any():
        raise InputError("this policy multiplies logarithms of probabilities, which no layer can do; use policy.apply.")
    # The likeliest class has p ≥ 1/K. One at the floor stays behind it if the offsets differ by less than this:
    spread, allowed = np.ptp(policy.strategy.l), -np.log(policy.floor * policy.strategy.n_classes)
    if spread > allowed:
        raise InputError(
            f"this policy's offsets differ by up to {spread:.3g}, so probabilities below its floor of {policy.floor:g} "
            f"could decide (beyond −log(K·floor) = {allowed:.3g}), and a layer has no floor; use policy.apply, or tune "
            'on logits (scores="logits") or with a smaller floor.'
        )


def _gives_softmax(model: Any) -> bool:
    """Are the probabilities of this model the softmax of its scores (for two classes, the sigmoid)?"""
    if not isinstance(model, LogisticRegression):
        return isinstance(model, LinearDiscriminantAnalysis)
    choice = getattr(model, "multi_class", "auto")  # scikit-learn before 1.8 could be told otherwise
    if len(model.classes_) == 2:
        return choice != "multinomial"  # which doubled the score
    return choice != "ovr" and model.solver != "liblinear"


def _instead(layer: Any, torch: Any) -> str:
    """How to go about what cannot be folded."""
    if hasattr(layer, "named_steps"):
        return "of which the last step can be folded: make_pipeline(*pipe[:-1], capri.fold(pipe[-1], policy))."
    if torch is not None and isinstance(layer, torch.nn.Sequential):
        return "of which the last Linear can be folded and put back: net[-1] = capri.fold(net[-1], policy)."
    if torch is not None and isinstance(layer, torch.nn.Module):
        return "of which the last Linear can be folded and put back: net.fc = capri.fold(net.fc, policy)."
    if hasattr(layer, "predict"):
        return "whose scores are not X coef_ᵀ + intercept_; leave it as it is and use policy.apply on its scores."
    return "which cannot be folded; give a torch.nn.Linear, a linear classifier of scikit-learn, or (weight, bias)."

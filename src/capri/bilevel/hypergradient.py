"""Hypergradients at the price of a forward pass: how the validation objective answers to the loss's strategy α.

The network θ is trained on a loss of strategy α and judged by L_val. By the implicit function theorem

    dL_val/dα = ∂L_val/∂α − ∂/∂α [ ∇_θ L_train(θ, α) · v ],        v = H⁻¹ ∇_θ L_val,   H = ∂²L_train/∂θ².

α touches the network through its logits o alone. So with u = J_θ v, one forward-mode product through the network,

    ∇_θ L_train · v = mean_i (∂ℓ/∂o_i)(α) · u_i,

and what remains is a derivative in α of a function of (o, u), numbers of shape (B, K): no second backward pass through
the network, no graph of a gradient. `mixed_term` has it in closed form, `mixed_term_autograd` for any loss.

How much of the inverse Hessian v holds is a choice: `identity` takes H = I (one unrolled step of gradient descent,
without its factor η), `ggn-cg` the damped Gauss-Newton matrix by conjugate gradients, `neumann` a truncated Neumann
series of the true Hessian (Lorraine et al. 2020; AutoBalance), which needs all eigenvalues within (0, 2/step).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from capri._checks import InputError
from capri._lazy import once
from capri.bilevel.losses import parametric_cross_entropy
from capri.bilevel.processes import ALONE, Share

Vector: TypeAlias = tuple[Tensor, ...]  # one tensor per trainable parameter of the network, in its order
LogitLosses: TypeAlias = Callable[[Tensor], Tensor]  # logits (n, K) to the loss of each sample, (n,)
InverseHessian: TypeAlias = Literal["identity", "ggn-cg", "neumann"]


class StrategyGradient(NamedTuple):
    """Derivatives by ω, l and Δ, (K,) each."""

    omega: Tensor
    l: Tensor
    delta: Tensor


# --------------------------------------------------------------------------------------------------------------------
# The network on one batch


class LogitMap:
    """θ ↦ o(θ), the logits of one batch. Buffers enter as copies, so running statistics stay as they are.

    Batch norm and dropout act as the model's mode says. Each call draws dropout afresh.
    """

    def __init__(self, model: nn.Module, x: Tensor):
        self.model, self.x = model, x
        self.names, self.parameters = zip(
            *((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True
        )

    def __call__(self) -> Tensor:
        """Logits with their graph."""
        return self._at(self.parameters)

    @once
    def kept(self) -> Tensor:
        """Logits whose graph serves several `vjp`s."""
        return self()

    def jvp(self, v: Vector) -> tuple[Tensor, Tensor]:
        """(o, u) with u = J_θ v, by forward mode: no graph is built, memory is that of inference."""
        load_forward_mode()
        with torch.no_grad(), forward_ad.dual_level():
            duals = tuple(_dual(p.detach(), t) for p, t in zip(self.parameters, v, strict=True))
            o, u = forward_ad.unpack_dual(self._at(duals))  # type: ignore[no-untyped-call]
        return o, torch.zeros_like(o) if u is None else u

    def vjp(self, cotangent: Tensor) -> Vector:
        """Jᵀ w: a backward pass through the kept graph."""
        return torch.autograd.grad(self.kept, self.parameters, cotangent, retain_graph=True)

    def _at(self, parameters: Vector) -> Tensor:
        copies = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        logits: Tensor = functional_call(
            self.model, {**copies, **dict(zip(self.names, parameters, strict=True))}, self.x
        )
        return logits


@cache
def load_forward_mode() -> None:
    """Torch loads forward-mode rules on first use, and warns of its own means (torch.jit) as it does."""
    with warnings.catch_warnings(), forward_ad.dual_level():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.script.*")
        _dual(torch.zeros(1), torch.zeros(1))


def _dual(primal: Tensor, tangent: Tensor) -> Tensor:
    return forward_ad.make_dual(primal, tangent)  # type: ignore[no-untyped-call]


# --------------------------------------------------------------------------------------------------------------------
# The mixed term ∂/∂α [∇_θ L_train · v] from (o, u)


def mixed_term(o: Tensor, u: Tensor, y: Tensor, omega: Tensor, l: Tensor, delta: Tensor) -> StrategyGradient:
    """The mixed term of the parametric cross-entropy, in closed form. o, u: (n, K); y: (n,); the rest (K,).

    With z = Δ∘o + l, p = softmax(z), s_i = Σ_k p_ik Δ_k u_ik and q_ij = p_ij (Δ_j u_ij − s_i):

        ∂/∂l_j = mean_i ω_{y_i} q_ij
        ∂/∂Δ_j = mean_i ω_{y_i} [ (p_ij − 1{y_i = j}) u_ij + o_ij q_ij ]
        ∂/∂ω_j = (1/n) Σ_{i: y_i = j} (s_i − Δ_j u_ij)
    """
    n = len(y)
    p = torch.softmax(delta * o + l, dim=1)
    moved = delta * u
    s = (p * moved).sum(dim=1)
    q = p * (moved - s[:, None])
    weight = omega[y][:, None] / n
    by_delta = (p * u + o * q) * weight
    own = by_delta.new_zeros(len(l)).index_add_(0, y, u.gather(1, y[:, None])[:, 0] * weight[:, 0])
    by_omega = by_delta.new_zeros(len(l)).index_add_(0, y, (s - moved.gather(1, y[:, None])[:, 0]) / n)
    return StrategyGradient(by_omega, (q * weight).sum(dim=0), by_delta.sum(dim=0) - own)


def mixed_term_autograd(losses: LogitLosses, o: Tensor, u: Tensor, alpha: Vector) -> Vector:
    """∂/∂α of mean_i (∂ℓ/∂o_i)·u_i for any loss of logits that is differentiable in `alpha`."""
    along = _directional_derivative(losses, o, u)[1]
    if not along.requires_grad:  # the gradient of the loss does not depend on α
        return tuple(map(torch.zeros_like, alpha))
    return torch.autograd.grad(along, alpha, allow_unused=True, materialize_grads=True)


def _directional_derivative(losses: LogitLosses, o: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """(o as a leaf, mean_i (∂ℓ/∂o_i)·u_i) with its graph."""
    leaf = o.detach().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(losses(leaf).mean(), leaf, create_graph=True)
        return leaf, (slope * u).sum()


# --------------------------------------------------------------------------------------------------------------------
# v ≈ H⁻¹ g


@dataclass(frozen=True)
class InverseHessianSettings:
    """How v = H⁻¹ g, a gradient times the inverse Hessian of the training loss, is approximated.

    Parameters
    ----------
    method : {"identity", "ggn-cg", "neumann"}
        "identity" takes v = g. "ggn-cg" solves for v with the damped Gauss-Newton matrix, by conjugate gradients.
        "neumann" is a truncated series of the true Hessian, as in AutoBalance.
    damping : float
        ggn-cg: added to the curvature.
    decay : float
        ggn-cg: the weight decay of the network's optimizer, which belongs to H. "neumann" leaves it out.
    iterations : int
        ggn-cg: at most this many.
    tolerance : float
        ggn-cg: stop once the residual is this small, relative to g.
    terms : int
        neumann: terms of the series beyond the first; AutoBalance has 5.
    step : float
        neumann: the step of the series; it converges where all eigenvalues of H lie in (0, 2/step). AutoBalance has 1.
    """

    method: InverseHessian = "identity"
    damping: float = 0.1
    decay: float = 0.0
    iterations: int = 20
    tolerance: float = 1e-3
    terms: int = 5
    step: float = 1.0


def inverse_hessian_product(
    network: LogitMap, losses: LogitLosses, g: Vector, settings: InverseHessianSettings, share: Share = ALONE
) -> Vector:
    """v ≈ H⁻¹ g, for the mean of `losses` on the network's batch, or on the batch of which it holds a share."""
    if settings.method == "identity":
        return g
    if settings.method == "ggn-cg":
        lift = settings.damping + settings.decay

        def curvature(v: Vector) -> Vector:
            return _plus(share.joined(gauss_newton_product(network, losses, v)), v, lift)

        return conjugate_gradients(curvature, g, settings.iterations, settings.tolerance)
    if settings.method == "neumann":
        product = hessian_products(network, losses)
        return neumann_series(lambda v: share.joined(product(v)), g, settings.terms, settings.step)
    raise InputError(f"method is {settings.method!r}; it must be 'identity', 'ggn-cg' or 'neumann'.")


def gauss_newton_product(network: LogitMap, losses: LogitLosses, v: Vector) -> Vector:
    """G v = Jᵀ (∂²L/∂o²) J v: never negative where the loss is convex in the logits."""
    o, u = network.jvp(v)
    leaf, along = _directional_derivative(losses, o, u)
    (curved,) = torch.autograd.grad(along, leaf)
    return network.vjp(curved)


def hessian_products(network: LogitMap, losses: LogitLosses) -> Callable[[Vector], Vector]:
    """v ↦ H v, by differentiating a gradient whose graph is built once and serves all products."""
    theta = network.parameters
    gradient = torch.autograd.grad(losses(network()).mean(), theta, create_graph=True)
    return lambda v: torch.autograd.grad(_dot(gradient, v), theta, retain_graph=True, materialize_grads=True)


def conjugate_gradients(product: Callable[[Vector], Vector], g: Vector, iterations: int, tolerance: float) -> Vector:
    """v with A v = g, for a positive definite A that is known by its products."""
    v, residual, direction = tuple(map(torch.zeros_like, g)), g, g
    size = first = _dot(g, g)
    for _ in range(iterations):
        if size <= tolerance**2 * first:
            break
        turned = product(direction)
        length = size / _dot(direction, turned)
        v = _plus(v, direction, length)
        residual = _plus(residual, turned, -length)
        size, before = _dot(residual, residual), size
        direction = _plus(residual, direction, size / before)
    return v


def neumann_series(product: Callable[[Vector], Vector], g: Vector, terms: int, step: float) -> Vector:
    """v = step · Σ_{j=0}^{terms} (I − step·H)^j g: H⁻¹ g in the limit, if all eigenvalues lie in (0, 2/step)."""
    power = total = g
    for _ in range(terms):
        power = _plus(power, product(power), -step)
        total = _plus(total, power, 1.0)
    return tuple(step * t for t in total)


def _dot(a: Vector, b: Vector) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()


def _plus(a: Vector, b: Vector, factor: Tensor | float) -> Vector:
    return tuple(x + factor * y for x, y in zip(a, b, strict=True))


# --------------------------------------------------------------------------------------------------------------------
# The outer gradient


class InnerLoss(Protocol):
    """A training loss of logits with its strategy: `alpha` are leaves that require a gradient."""

    @property
    def alpha(self) -> Vector:
        """What the outer level may move."""

    def losses(self, o: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample, (n,)."""

    def mixed(self, o: Tensor, u: Tensor, y: Tensor) -> Vector:
        """∂/∂α of mean_i (∂ℓ/∂o_i)·u_i."""


@dataclass(frozen=True, eq=False)
class ParametricLoss:
    """The parametric cross-entropy at (ω, l, Δ); the mixed term in closed form."""

    alpha: Vector

    @classmethod
    def of(cls, omega: Tensor, l: Tensor, delta: Tensor) -> ParametricLoss:
        """At copies of these values, as leaves."""
        return cls(tuple(a.detach().clone().requires_grad_() for a in (omega, l, delta)))

    def losses(self, o: Tensor, y: Tensor) -> Tensor:
        """ℓ of each sample."""
        return parametric_cross_entropy(o, y, *self.alpha)

    def mixed(self, o: Tensor, u: Tensor, y: Tensor) -> Vector:
        """See `mixed_term`."""
        with torch.no_grad():
            return mixed_term(o, u, y, *self.alpha)


@dataclass(frozen=True, eq=False)
class AnyLoss:
    """Any loss ``function(o, y, *alpha)`` per sample; the mixed term by autograd."""

    function: Callable[..., Tensor]
    alpha: Vector

    @classmethod
    def of(cls, function: Callable[..., Tensor], *alpha: Tensor) -> AnyLoss:
        """At copies of these values, as leaves."""
        return cls(function, tuple(a.detach().clone().requires_grad_() for a in alpha))

    def losses(self, o: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        return self.function(o, y, *self.alpha)

    def mixed(self, o: Tensor, u: Tensor, y: Tensor) -> Vector:
        """See `mixed_term_autograd`."""
        return mixed_term_autograd(lambda logits: self.losses(logits, y), o, u, self.alpha)


class OuterGradient(NamedTuple):
    """L_val on its batch, dL_val/dα (one tensor per tensor of α), and the validation logits (n, K)."""

    value: Tensor
    alpha: Vector
    logits: Tensor


def outer_gradient(
    model: nn.Module,
    loss: InnerLoss,
    train: tuple[Tensor, Tensor],
    val: tuple[Tensor, Tensor],
    objective: Callable[[Tensor, Tensor], Tensor],
    settings: InverseHessianSettings,
    shares: tuple[Share, Share] = (ALONE, ALONE),
) -> OuterGradient:
    """dL_val/dα on one training and one validation batch, (x, y) each.

    objective: (logits, y) to L_val, a mean over the batch; where it is a function of ``loss.alpha`` too, the direct
    term is added. shares: of the training and of the validation batch, where several processes hold them; the value and
    the derivative are then those of the joined batches, and the logits those of the share.
    """
    judged = LogitMap(model, val[0])
    logits = judged()
    value = objective(logits, val[1])
    theta = len(judged.parameters)
    both = shares[1].joined((*_gradient(value, (*judged.parameters, *loss.alpha)), value.detach()))
    g, direct, value = both[:theta], both[theta:-1], both[-1]
    x, y = train
    trained = LogitMap(model, x)
    v = inverse_hessian_product(trained, lambda o: loss.losses(o, y), g, settings, shares[0])
    mixed = shares[0].joined(loss.mixed(*trained.jvp(v), y))
    return OuterGradient(value, _plus(direct, mixed, -1.0), logits.detach())


def _gradient(value: Tensor, by: Vector) -> Vector:
    """Zeros where there is no dependence."""
    return torch.autograd.grad(value, by, allow_unused=True, materialize_grads=True)

"""Hypergradients against double backward, finite differences and a bilevel optimum found by brute force."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, root
from torch import nn
from torch.nn import functional as F

from capri._checks import InputError
from capri.bilevel import Dictionaries, JudgedTraining, Recipe, StrategyMap, unrolled_search
from capri.bilevel.hypergradient import (
    AnyLoss,
    InverseHessianSettings,
    LogitMap,
    ParametricLoss,
    conjugate_gradients,
    gauss_newton_product,
    hessian_products,
    inverse_hessian_product,
    mixed_term,
    mixed_term_autograd,
    neumann_series,
    outer_gradient,
)
from capri.bilevel.losses import parametric_cross_entropy
from capri.dictionary import Dictionary
from capri.models import MLPHead, ResNet32

K = 5


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


def strategy(seed: int = 0, k: int = K) -> tuple[torch.Tensor, ...]:
    """ω, l, Δ with nothing neutral about them."""
    g = torch.Generator().manual_seed(seed)
    omega, l, delta = (torch.rand(k, generator=g, dtype=torch.float64) for _ in range(3))
    return tuple(t.requires_grad_() for t in (omega + 0.5, 2 * l - 1, delta + 0.3))


class NormedMLP(nn.Module):
    """Two layers with batch norm in between."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(7, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, K))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def network(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    n = 6 if name == "resnet32" else 12
    shape = (n, 3, 8, 8) if name == "resnet32" else (n, 7)
    made = {"mlp": lambda: MLPHead(7, K, (9,)), "normed": NormedMLP, "resnet32": lambda: ResNet32(K)}[name]()
    return made.double().train(), torch.randn(shape, dtype=torch.float64), torch.arange(n) % K


def double_backward(model, x, y, v, alpha):
    """∂/∂α [∇_θ L_train · v] the expensive way: the graph of a gradient."""
    theta = list(model.parameters())
    loss = parametric_cross_entropy(model(x), y, *alpha).mean()
    gradient = torch.autograd.grad(loss, theta, create_graph=True)
    return torch.autograd.grad(sum((g * t).sum() for g, t in zip(gradient, v, strict=True)), alpha)


@pytest.mark.parametrize("name", ["mlp", "normed", "resnet32"])
def test_mixed_term_equals_double_backward(name):
    model, x, y = network(name)
    alpha = strategy()
    v = tuple(torch.randn_like(p) for p in model.parameters())
    expected = double_backward(model, x, y, v, alpha)
    o, u = LogitMap(model, x).jvp(v)
    assert not u.requires_grad
    closed = mixed_term(o, u, y, *(a.detach() for a in alpha))
    twin = mixed_term_autograd(lambda logits: parametric_cross_entropy(logits, y, *alpha), o, u, alpha)
    for ours, autograd, oracle in zip(closed, twin, expected, strict=True):
        assert relative(ours, oracle) < 1e-6
        assert relative(autograd, oracle) < 1e-6


@pytest.mark.parametrize("name", ["normed", "resnet32"])
def test_running_statistics_stay(name):
    model, x, _ = network(name)
    before = {n: b.clone() for n, b in model.named_buffers()}
    at = LogitMap(model, x)
    at.jvp(tuple(torch.ones_like(p) for p in model.parameters()))
    at.vjp(torch.ones_like(at.kept))
    for n, b in model.named_buffers():
        torch.testing.assert_close(b, before[n], rtol=0, atol=0)
    model(x)
    assert any((b != before[n]).any() for n, b in model.named_buffers()), "a plain forward pass does update them"


@pytest.mark.parametrize("name", ["mlp", "normed", "resnet32"])
def test_eta_times_hypergradient_is_the_slope_of_one_step(name):
    """L_val(θ⁺(α)) after one step of gradient descent, by central differences along directions of ω, l and Δ."""
    model, x, y = network(name)
    _, x_val, y_val = network(name)
    x_val = x_val.flip(0) + 0.1
    eta, alpha = 0.05, strategy()
    h = 1e-7 if name == "resnet32" else 1e-5  # a smaller step crosses fewer kinks of ReLU
    theta = [p.detach().clone() for p in model.parameters()]

    def set_theta(values) -> None:
        with torch.no_grad():
            for p, value in zip(model.parameters(), values, strict=True):
                p.copy_(value)

    def step(at) -> list[torch.Tensor]:
        set_theta(theta)
        loss = parametric_cross_entropy(model(x), y, *at).mean()
        return [t - eta * g for t, g in zip(theta, torch.autograd.grad(loss, model.parameters()), strict=True)]

    def after_step(at) -> torch.Tensor:
        set_theta(step(at))
        return F.cross_entropy(model(x_val), y_val)

    v = torch.autograd.grad(after_step(alpha), model.parameters())  # at θ⁺
    set_theta(theta)
    hyper = [-part for part in ParametricLoss.of(*alpha).mixed(*LogitMap(model, x).jvp(v), y)]
    for i in range(3):
        direction = torch.randn(K, dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            moved = [a.detach().clone() for a in alpha]
            moved[i] += sign * h * direction
            ends.append(float(after_step(moved).detach()))
        assert eta * float(hyper[i] @ direction) == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)


def test_direct_term_where_the_objective_depends_on_alpha():
    model, x, y = network("mlp")
    loss = ParametricLoss.of(*strategy())
    settings = InverseHessianSettings()
    bare = outer_gradient(model, loss, (x, y), (x, y), F.cross_entropy, settings)
    with_penalty = outer_gradient(
        model, loss, (x, y), (x, y), lambda o, t: F.cross_entropy(o, t) + (loss.alpha[1] ** 2).sum(), settings
    )
    torch.testing.assert_close(with_penalty.alpha[1] - bare.alpha[1], 2 * loss.alpha[1].detach())
    torch.testing.assert_close(with_penalty.alpha[2], bare.alpha[2])


def test_any_loss_agrees_with_the_parametric_one():
    model, x, y = network("normed")
    settings = InverseHessianSettings("ggn-cg", damping=0.3)
    closed, twin = (
        outer_gradient(model, loss, (x, y), (x.flip(0), y), F.cross_entropy, settings)
        for loss in (ParametricLoss.of(*strategy()), AnyLoss.of(parametric_cross_entropy, *strategy()))
    )
    for a, b in zip(closed.alpha, twin.alpha, strict=True):
        torch.testing.assert_close(a, b)


# -- v ---------------------------------------------------------------------------------------------------------------


def dense(product, model) -> torch.Tensor:
    """The matrix behind a product."""
    shapes = [p.shape for p in model.parameters()]
    sizes = [s.numel() for s in shapes]
    columns = []
    for row in torch.eye(sum(sizes), dtype=torch.float64):
        v = tuple(piece.view(s) for piece, s in zip(row.split(sizes), shapes, strict=True))
        columns.append(torch.cat([t.flatten() for t in product(v)]))
    return torch.stack(columns, dim=1)


def test_gauss_newton_is_the_hessian_of_a_linear_model_and_positive_elsewhere():
    x, y = torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % K
    alpha = strategy()

    def losses(o):
        return parametric_cross_entropy(o, y, *alpha)

    linear = nn.Linear(4, K).double()
    at = LogitMap(linear, x)
    h = dense(hessian_products(at, losses), linear)
    torch.testing.assert_close(dense(lambda v: gauss_newton_product(at, losses, v), linear), h)

    deep = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, K)).double()
    at = LogitMap(deep, x)
    g = dense(lambda v: gauss_newton_product(at, losses, v), deep)
    h = dense(hessian_products(at, losses), deep)
    assert relative(g, h) > 1e-3
    assert torch.linalg.eigvalsh(g).min() > -1e-12
    assert torch.linalg.eigvalsh(h).min() < -1e-6


def test_conjugate_gradients_and_neumann_invert():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    a = a @ a.T / 10 + 0.2 * torch.eye(6)
    g = (torch.randn(6, generator=generator, dtype=torch.float64),)

    def product(v):
        return (a @ v[0],)

    exact = torch.linalg.solve(a, g[0])
    assert relative(conjugate_gradients(product, g, 6, 0.0)[0], exact) < 1e-10
    loose = conjugate_gradients(product, g, 6, 0.1)[0]
    assert 1e-6 < relative(a @ loose, g[0]) <= 0.1
    step = 1 / float(torch.linalg.eigvalsh(a).max())
    errors = [relative(neumann_series(product, g, terms, step)[0], exact) for terms in (0, 5, 50, 500)]
    assert all(after < before for before, after in pairwise(errors))
    assert errors[-1] < 1e-6
    torch.testing.assert_close(neumann_series(product, g, 0, 1.0)[0], g[0])


def test_damping_and_decay_enter_the_inverse():
    model, x, y = network("mlp")
    at = LogitMap(model, x)
    g = tuple(torch.randn_like(p) for p in model.parameters())

    def losses(o):
        return F.cross_entropy(o, y, reduction="none")

    settings = InverseHessianSettings("ggn-cg", damping=0.2, decay=0.3, iterations=200, tolerance=1e-12)
    v = inverse_hessian_product(at, losses, g, settings)
    back = gauss_newton_product(at, losses, v)
    for lifted, t, want in zip(back, v, g, strict=True):
        torch.testing.assert_close(lifted + 0.5 * t, want)
    with pytest.raises(InputError, match="method is 'newton'"):
        inverse_hessian_product(at, losses, g, InverseHessianSettings("newton"))  # type: ignore[arg-type]


# -- a bilevel optimum that brute force can find ----------------------------------------------------------------------


class TwoLevels:
    """Multinomial logistic regression on a synthetic long tail; α = (w_l, w_Δ) on the centred log frequency.

    Inner: parametric cross-entropy plus decay/2 · ‖θ‖², solved exactly. Outer: balanced cross-entropy.
    """

    decay = 1e-2

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        counts, centres = (160, 40, 12, 6), rng.normal(0, 1.2, (4, 3))
        draw = lambda n: np.concatenate([rng.normal(centres[k], 1, (m, 3)) for k, m in enumerate(n)])  # noqa: E731
        self.x, self.x_val = (torch.from_numpy(draw(n)) for n in (counts, (50,) * 4))
        self.y = torch.from_numpy(np.repeat(np.arange(4), counts))
        self.y_val = torch.from_numpy(np.repeat(np.arange(4), 50))
        log_pi = torch.from_numpy(np.log(np.array(counts) / sum(counts)))
        self.d = log_pi - log_pi.mean()
        self.model, self.theta = nn.Linear(3, 4).double(), np.zeros(16)

    def parts(self, alpha: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ones(4, dtype=torch.float64), alpha[0] * self.d, torch.exp(alpha[1] * self.d)

    def solve(self, alpha: torch.Tensor) -> None:
        """θ*(α) by SciPy's Newton method on dense matrices."""
        _, l, delta = (p.detach().numpy() for p in self.parts(alpha))
        x = np.column_stack([self.x.numpy(), np.ones(len(self.x))])
        truth = np.eye(4)[self.y.numpy()]

        def probabilities(theta):
            z = delta * (x @ theta.reshape(4, 4)) + l
            return np.exp(z - np.logaddexp.reduce(z, axis=1)[:, None]), z

        def value_and_slope(theta):
            p, z = probabilities(theta)
            value = (np.logaddexp.reduce(z, axis=1) - (z * truth).sum(axis=1)).mean() + self.decay / 2 * theta @ theta
            return value, (x.T @ ((p - truth) * delta) / len(x)).ravel() + self.decay * theta

        def hessian(theta):
            p, _ = probabilities(theta)
            curved = np.einsum("ij,jk->ijk", p, np.eye(4)) - p[:, :, None] * p[:, None, :]
            full = np.einsum("ia,ib,ijk,j,k->ajbk", x, x, curved, delta, delta, optimize=True) / len(x)
            return full.reshape(16, 16) + self.decay * np.eye(16)

        found = minimize(
            value_and_slope, self.theta, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-10}
        )
        self.theta = found.x
        weight = torch.from_numpy(found.x.reshape(4, 4))
        with torch.no_grad():
            self.model.weight.copy_(weight[:3].T)
            self.model.bias.copy_(weight[3])

    def outer(self, alpha: torch.Tensor) -> float:
        self.solve(alpha)
        return float(F.cross_entropy(self.model(self.x_val), self.y_val).detach())

    def slope(self, alpha: np.ndarray, method: str) -> np.ndarray:
        """dL_val/dα at θ*(α) as `method` has it."""
        at = torch.tensor(alpha, requires_grad=True)
        self.solve(at)
        parts = self.parts(at)
        settings = InverseHessianSettings(method, 0.0, self.decay, iterations=100, tolerance=1e-10)
        train, val = (self.x, self.y), (self.x_val, self.y_val)
        found = outer_gradient(self.model, ParametricLoss.of(*parts), train, val, F.cross_entropy, settings)
        return torch.autograd.grad(parts[1:], at, found.alpha[1:])[0].numpy()


@pytest.fixture(scope="module")
def brute():
    tight, task = {"xatol": 1e-6, "fatol": 1e-11}, TwoLevels()
    return minimize(lambda a: task.outer(torch.tensor(a)), [0.0, 0.0], method="Nelder-Mead", options=tight)


def test_ggn_cg_reaches_the_bilevel_optimum(brute):
    task, start = TwoLevels(), np.zeros(2)
    ggn = minimize(lambda a: task.outer(torch.tensor(a)), start, jac=lambda a: task.slope(a, "ggn-cg")).x
    identity = root(task.slope, brute.x, args=("identity",), tol=1e-8).x
    assert np.abs(ggn - brute.x).max() < 1e-3
    losses = [task.outer(torch.tensor(a)) for a in (ggn, identity, start)]
    assert losses[0] == pytest.approx(brute.fun, abs=1e-8)
    # What docs/bilevel.md states: identity stops elsewhere, at a loss far nearer to the optimum's than to the start's.
    assert brute.x == pytest.approx([0.685, 0.221], abs=1e-3)
    assert identity == pytest.approx([1.067, -0.116], abs=1e-3)
    assert losses == pytest.approx([0.8347, 0.8486, 1.2628], abs=1e-4)


def test_unrolled_reaches_the_bilevel_optimum(brute):
    """120 full-batch steps end near the inner optimum; one-step (identity) stops 0.0139 above, see the test before."""
    task = TwoLevels()
    d = Dictionary(task.d.numpy()[:, None], (("freq", "log"),), "raw", np.zeros(1), np.eye(1), 0.0)
    made = StrategyMap(Dictionaries(d, d), ["l", "delta"], delta_form="exp", dtype=torch.float64)
    for p in task.model.parameters():
        nn.init.zeros_(p)
    optimizer = partial(torch.optim.SGD, lr=0.25, momentum=0.9, nesterov=True, weight_decay=task.decay)
    recipe = Recipe(120, len(task.y), optimizer, lambda step, steps, per_epoch: 1.0)
    training = JudgedTraining(task.model, task.x, task.y, recipe, F.cross_entropy, val=(task.x_val, task.y_val))
    found = unrolled_search(training, made, tolerance=1e-4)
    assert found.values[0] == pytest.approx(1.2628, abs=1e-4)
    assert found.values[-1] == pytest.approx(brute.fun, abs=1e-4)
    assert task.outer(torch.from_numpy(found.w[-1])) == pytest.approx(brute.fun, abs=1e-6)
    assert found.w[-1] == pytest.approx(brute.x, abs=5e-3)
    assert found.done
    assert len(found.values) <= 12

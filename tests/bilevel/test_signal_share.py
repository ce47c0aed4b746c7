"""Steps as long as they are signal: noise does not become a walk, and what is clear is not held up."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

from capri.bilevel.signal_share import ERRORS, MEMORY, SignalShare


def shares(gradients: torch.Tensor) -> torch.Tensor:
    """Of each of the steps, (steps, numbers)."""
    signal = SignalShare([gradients[0]])
    return torch.stack([signal.update([g])[0] for g in gradients])


def test_it_is_the_share_of_a_weighted_mean_beyond_its_error():
    """Against a plain computation with weights, mean, variance and effective number written out."""
    g = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.4
    found = shares(g)
    for t in (1, 2, 7, 29):
        w = MEMORY ** np.arange(t, -1, -1)
        w /= w.sum()
        mean, n = w @ g[: t + 1].numpy(), 1 / (w @ w)
        variance = w @ (g[: t + 1].numpy() - mean) ** 2 * n / (n - 1)
        np.testing.assert_allclose(found[t], np.maximum(0, 1 - ERRORS**2 * variance / n / mean**2), atol=1e-9)


def test_what_agrees_keeps_its_step_and_what_is_noise_loses_it():
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2000, 50, generator=generator, dtype=torch.float64)
    assert torch.equal(shares(noise)[0], torch.zeros(50, dtype=torch.float64)), "the first step only measures"
    settled = slice(300, None)
    # The exact mean of max(0, 1 − c²/z²) for a standard normal z: P(|z| > c) − 2c² (φ(c)/c − P(z > c)).
    beyond = 2 * norm.sf(ERRORS)
    exact = beyond - 2 * ERRORS**2 * (norm.pdf(ERRORS) / ERRORS - norm.sf(ERRORS))
    assert float(shares(noise)[settled].mean()) == pytest.approx(exact, abs=0.01)
    assert exact < 0.06
    assert float(shares(noise + 3)[settled].min()) > 0.95
    torch.testing.assert_close(shares(torch.ones(5, 2))[1:], torch.ones(4, 2))
    assert not shares(torch.zeros(5, 2)).any()


def test_what_it_buys_adam_on_noise():
    """What the module states: without slope, with the distance from the optimum as slope, and with a third of it."""

    def distances(trust: bool) -> list[float]:
        generator = torch.Generator().manual_seed(1)
        slopes = torch.tensor([0.0, 1.0, 0.3]).repeat_interleave(300)
        w = torch.zeros(900, requires_grad=True)
        optimizer, signal = torch.optim.Adam([w], lr=0.02), SignalShare([w.detach()])
        for _ in range(400):
            w.grad = slopes * (w.detach() - 1) + torch.randn(900, generator=generator)
            before, share = w.detach().clone(), signal.update([w.grad])[0]
            optimizer.step()
            if trust:
                w.data = torch.lerp(before, w.data, share)
        ends = (w.detach() - (slopes > 0).float()).view(3, 300)
        return ends.square().mean(dim=1).sqrt().tolist()

    assert distances(trust=False) == pytest.approx([0.39, 0.10, 0.21], abs=0.02)
    assert distances(trust=True) == pytest.approx([0.15, 0.08, 0.29], abs=0.02)


def test_it_goes_on_from_a_state():
    g = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    whole, part, resumed = (SignalShare([g[0]]) for _ in range(3))
    for row in g[:5]:
        whole.update([row])
        part.update([row])
    resumed.load_state_dict(part.state_dict())
    for row in g[5:]:
        assert torch.equal(whole.update([row])[0], resumed.update([row])[0])

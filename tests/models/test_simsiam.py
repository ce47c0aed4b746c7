"""SimSiam: the loss stops the gradient, views are views, the spread tells a collapse."""

from __future__ import annotations

import torch

from capri.models import ResNet32
from capri.models.simsiam import SimSiam, negative_cosine, spread, two_views


def test_the_target_gets_no_gradient():
    p, z = (torch.randn(4, 3, requires_grad=True) for _ in range(2))
    loss = negative_cosine(p, z)
    loss.backward()
    assert p.grad is not None
    assert z.grad is None
    torch.testing.assert_close(negative_cosine(2 * p, 3 * p), torch.tensor(-1.0))


def test_the_loss_is_symmetric_and_reaches_the_encoder():
    torch.manual_seed(0)
    model = SimSiam(ResNet32(10), width=16, bottleneck=8)
    first, second = torch.randn(2, 6, 3, 8, 8)
    loss, z = model(first, second)
    torch.testing.assert_close(model(second, first)[0], loss)
    assert z.shape == (6, 16)
    loss.backward()
    assert model.encoder.conv1.weight.grad.abs().sum() > 0
    assert model.encoder.fc.weight.grad is None


def test_spread_tells_a_collapse():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2000, 32, generator=generator)
    assert abs(float(spread(z)) - 1) < 0.02  # uniform on the sphere: 1/√d per coordinate
    assert float(spread(torch.ones(2000, 32) + 1e-3 * z)) < 0.01


def test_views_differ_and_repeat_with_the_generator():
    images = torch.rand(8, 3, 16, 16)
    first, second = two_views(images, torch.Generator().manual_seed(1))
    again, _ = two_views(images, torch.Generator().manual_seed(1))
    assert first.shape == images.shape
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first - second).abs().mean() > 0.05
    flat = torch.full((64, 3, 4, 4), 0.5)
    view = two_views(flat, torch.Generator().manual_seed(2))[0]
    assert (view.std(dim=(2, 3)) < 1e-5).all(), "a view of a flat image is flat: geometry adds nothing"
    assert view.mean(dim=(2, 3)).std() > 0.05, "colours change"

from __future__ import annotations

import pytest
import torch

from capri._checks import InputError
from capri.models import LinearHead, MLPHead, ResNet32, ResNet50


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_resnet32_has_the_published_size():
    assert parameters(ResNet32(10)) == 464_154  # 0.46 M in He et al., Table 6
    assert parameters(ResNet32(10, "B")) == 464_154 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    convolutions = [m for m in ResNet32(10).modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == 32
    with pytest.raises(InputError, match="shortcut is 'C'"):
        ResNet32(10, "C")


@pytest.mark.parametrize("shortcut", ["A", "B"])
def test_resnet32_runs_in_both_layouts(shortcut):
    torch.manual_seed(0)
    model = ResNet32(7, shortcut).eval()
    x = torch.randn(2, 3, 32, 32)
    logits = model(x)
    assert logits.shape == (2, 7)
    assert model.features(x).shape == (2, 64)
    channels_last = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        channels_last(x.contiguous(memory_format=torch.channels_last)), logits, atol=1e-4, rtol=1e-4
    )


def test_resnet50_has_the_names_and_shapes_of_torchvision():
    state = ResNet50().state_dict()
    assert parameters(ResNet50()) == 25_557_032
    assert len(state) == 320
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_var": (64,),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.downsample.1.num_batches_tracked": (),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer3.5.bn3.bias": (1024,),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.weight": (1000, 2048),
        "fc.bias": (1000,),
    }.items():
        assert tuple(state[name].shape) == shape, name
    model = ResNet50(5).eval()
    assert model(torch.randn(1, 3, 64, 64)).shape == (1, 5)
    assert model.layer2[0].conv2.stride == (2, 2)  # the stride sits in the 3×3, as in torchvision


def test_heads():
    x = torch.randn(4, 6)
    assert LinearHead(6, 3)(x).shape == (4, 3)
    mlp = MLPHead(6, 3, hidden=(8, 5), dropout=0.1)
    assert mlp(x).shape == (4, 3)
    assert mlp.features(x).shape == (4, 5)
    assert torch.equal(LinearHead(6, 3).features(x), x)

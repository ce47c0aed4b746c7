"""ResNet-32 for 32×32 images (He et al. 2016, section 4.2): 3 stages of 5 blocks with 16, 32 and 64 channels."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from capri._checks import InputError

Shortcut = Literal["A", "B"]
CHANNELS = (16, 32, 64)
BLOCKS = 5


class PadShortcut(nn.Module):
    """Option A: take every second pixel and pad the missing channels with zeros; no parameters."""

    def __init__(self, extra_channels: int):
        super().__init__()
        self.before = extra_channels // 2
        self.after = extra_channels - self.before

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) to (n, c + extra, h/2, w/2)."""
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.before, self.after))


def _projection(channels_in: int, channels_out: int) -> nn.Module:
    """Option B: a 1×1 convolution with stride 2."""
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride=2, bias=False), nn.BatchNorm2d(channels_out))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, shortcut: Shortcut):
        super().__init__()
        stride = 1 if channels_in == channels_out else 2
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride == 2:
            self.shortcut = (
                PadShortcut(channels_out - channels_in) if shortcut == "A" else _projection(channels_in, channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, c_in, h, w) to (n, c_out, h/stride, w/stride)."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet32(nn.Module):
    """Images (n, 3, 32, 32) to logits (n, n_classes).

    Parameters
    ----------
    n_classes : int
        How many classes there are.
    shortcut : {"A", "B"}
        How a block's input skips it where the width grows: "A" pads with zeros, as is usual for CIFAR; "B" is a 1×1
        convolution.

    References
    ----------
    He et al., "Deep residual learning for image recognition", CVPR 2016.
    """

    def __init__(self, n_classes: int, shortcut: Shortcut = "A"):
        super().__init__()
        if shortcut not in ("A", "B"):
            raise InputError(f"shortcut is {shortcut!r}; it must be 'A' (padding) or 'B' (1×1 convolution).")
        self.conv1 = nn.Conv2d(3, CHANNELS[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(CHANNELS[0])
        stages, channels = [], CHANNELS[0]
        for width in CHANNELS:
            blocks = [BasicBlock(channels, width, shortcut)]
            blocks += [BasicBlock(width, width, shortcut) for _ in range(BLOCKS - 1)]
            stages.append(nn.Sequential(*blocks))
            channels = width
        self.layer1, self.layer2, self.layer3 = stages
        self.fc = nn.Linear(channels, n_classes)
        initialise(self)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees, (n, 64)."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        return out.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits


def initialise(model: nn.Module) -> None:
    """He initialisation of all convolutions and linear layers, as in the original."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight)

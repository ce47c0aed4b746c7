"""ResNet-50 for ImageNet with torchvision's state-dict names: published weights load, torchvision is not needed."""

from __future__ import annotations

from torch import Tensor, nn

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first block
EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride), 1×1 convolutions and a shortcut."""

    def __init__(self, channels_in: int, width: int, stride: int = 1):
        super().__init__()
        channels_out = width * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, c_in, h, w) to (n, 4·width, h/stride, w/stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = x if self.downsample is None else self.downsample(x)
        result: Tensor = self.relu(out + shortcut)
        return result


class ResNet50(nn.Module):
    """Images (n, 3, h, w), 224×224 as a rule, to logits (n, n_classes).

    Parameters
    ----------
    n_classes : int
        How many classes there are.

    References
    ----------
    He et al., "Deep residual learning for image recognition", CVPR 2016.
    """

    def __init__(self, n_classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, channels = [], 64
        for width, blocks, stride in STAGES:
            first = Bottleneck(channels, width, stride)
            channels = width * EXPANSION
            stages.append(nn.Sequential(first, *(Bottleneck(channels, width) for _ in range(blocks - 1))))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = nn.Linear(channels, n_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees, (n, 2048)."""
        out = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        return out.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.fc(self.features(x))
        return logits

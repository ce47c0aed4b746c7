"""Models: ResNet-32 for CIFAR, ResNet-50 for ImageNet, linear and MLP heads for features. All end in a layer ``fc``."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.models.heads import LinearHead, MLPHead
    from capri.models.resnet32 import ResNet32
    from capri.models.resnet50 import ResNet50
    from capri.models.simsiam import SimSiam

__all__ = ["LinearHead", "MLPHead", "ResNet32", "ResNet50", "SimSiam"]

_HOMES = {
    "LinearHead": "heads",
    "MLPHead": "heads",
    "ResNet32": "resnet32",
    "ResNet50": "resnet50",
    "SimSiam": "simsiam",
}

__getattr__ = on_first_use(__name__, _HOMES)

"""Models: ResNet-32 for CIFAR, ResNet-50 for ImageNet, linear and MLP heads for features. All end in a layer ``fc``."""

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"capri.models.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Training: the strategy as a loss, and a laboratory for long-tailed data. Names load torch on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capri.train.config import Config
    from capri.train.losses import ParametricCrossEntropy, parametric_cross_entropy
    from capri.train.module import Classifier
    from capri.train.runner import run

__all__ = ["Classifier", "Config", "ParametricCrossEntropy", "parametric_cross_entropy", "run"]

_HOMES = {
    "Classifier": "module",
    "Config": "config",
    "ParametricCrossEntropy": "losses",
    "parametric_cross_entropy": "losses",
    "run": "runner",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"capri.train.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

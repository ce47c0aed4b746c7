"""Bilevel search of a loss, for any training loop: losses, the map W, hypergradients. Names load torch on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capri.bilevel.hypergradient import InverseHessianSettings
    from capri.bilevel.losses import MovingLoss, ParametricCrossEntropy, parametric_cross_entropy
    from capri.bilevel.outer_objective import OuterObjective
    from capri.bilevel.outer_step import DivergedError, OuterStep, measure_classes
    from capri.bilevel.strategy_map import Dictionaries, StrategyMap

_HOMES = {
    "Dictionaries": "strategy_map",
    "DivergedError": "outer_step",
    "InverseHessianSettings": "hypergradient",
    "MovingLoss": "losses",
    "OuterObjective": "outer_objective",
    "OuterStep": "outer_step",
    "ParametricCrossEntropy": "losses",
    "StrategyMap": "strategy_map",
    "measure_classes": "outer_step",
    "parametric_cross_entropy": "losses",
}

__all__ = [
    "Dictionaries",
    "DivergedError",
    "InverseHessianSettings",
    "MovingLoss",
    "OuterObjective",
    "OuterStep",
    "ParametricCrossEntropy",
    "StrategyMap",
    "measure_classes",
    "parametric_cross_entropy",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"capri.bilevel.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

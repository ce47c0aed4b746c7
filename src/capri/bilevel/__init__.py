"""Bilevel search of a loss, for any training loop: losses, the map W, hypergradients. Names load torch on first use."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

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

__getattr__ = on_first_use(__name__, _HOMES)

"""Bilevel search of a loss, for any training loop: losses, the map W, hypergradients. Names load torch on first use."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.bilevel.hypergradient import InverseHessianSettings
    from capri.bilevel.losses import MovingLoss, ParametricCrossEntropy, parametric_cross_entropy
    from capri.bilevel.outer_objective import OuterObjective
    from capri.bilevel.outer_step import DivergedError, OuterStep, measure_classes
    from capri.bilevel.side_by_side import Recipe
    from capri.bilevel.strategy_map import Dictionaries, StrategyMap
    from capri.bilevel.unrolled import (
        JudgedTraining,
        UnrolledGradient,
        UnrolledSearch,
        unrolled_gradient,
        unrolled_search,
    )

_HOMES = {
    "Dictionaries": "strategy_map",
    "DivergedError": "outer_step",
    "InverseHessianSettings": "hypergradient",
    "JudgedTraining": "unrolled",
    "MovingLoss": "losses",
    "OuterObjective": "outer_objective",
    "OuterStep": "outer_step",
    "ParametricCrossEntropy": "losses",
    "Recipe": "side_by_side",
    "StrategyMap": "strategy_map",
    "UnrolledGradient": "unrolled",
    "UnrolledSearch": "unrolled",
    "measure_classes": "outer_step",
    "parametric_cross_entropy": "losses",
    "unrolled_gradient": "unrolled",
    "unrolled_search": "unrolled",
}

__all__ = [
    "Dictionaries",
    "DivergedError",
    "InverseHessianSettings",
    "JudgedTraining",
    "MovingLoss",
    "OuterObjective",
    "OuterStep",
    "ParametricCrossEntropy",
    "Recipe",
    "StrategyMap",
    "UnrolledGradient",
    "UnrolledSearch",
    "measure_classes",
    "parametric_cross_entropy",
    "unrolled_gradient",
    "unrolled_search",
]

__getattr__ = on_first_use(__name__, _HOMES)

"""Bilevel search of a loss, for any training loop: losses, the map W, hypergradients. Names load torch on first use."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.bilevel.hypergradient import InverseHessianSettings
    from capri.bilevel.losses import MovingLoss, ParametricCrossEntropy, parametric_cross_entropy
    from capri.bilevel.out_of_fold import CrossValidation
    from capri.bilevel.outer_objective import OuterObjective
    from capri.bilevel.outer_step import DivergedError, OuterStep, measure_classes
    from capri.bilevel.population import Generation, Space, evolve
    from capri.bilevel.side_by_side import Recipe, logits_side_by_side, train_side_by_side
    from capri.bilevel.strategy_map import Dictionaries, StrategyMap, StrategyTensors
    from capri.bilevel.unrolled import (
        JudgedTraining,
        UnrolledGradient,
        UnrolledSearch,
        unrolled_gradient,
        unrolled_search,
    )

_HOMES = {
    "CrossValidation": "out_of_fold",
    "Dictionaries": "strategy_map",
    "DivergedError": "outer_step",
    "Generation": "population",
    "InverseHessianSettings": "hypergradient",
    "JudgedTraining": "unrolled",
    "MovingLoss": "losses",
    "OuterObjective": "outer_objective",
    "OuterStep": "outer_step",
    "ParametricCrossEntropy": "losses",
    "Recipe": "side_by_side",
    "Space": "population",
    "StrategyMap": "strategy_map",
    "StrategyTensors": "strategy_map",
    "UnrolledGradient": "unrolled",
    "UnrolledSearch": "unrolled",
    "evolve": "population",
    "logits_side_by_side": "side_by_side",
    "measure_classes": "outer_step",
    "parametric_cross_entropy": "losses",
    "train_side_by_side": "side_by_side",
    "unrolled_gradient": "unrolled",
    "unrolled_search": "unrolled",
}

__all__ = [
    "CrossValidation",
    "Dictionaries",
    "DivergedError",
    "Generation",
    "InverseHessianSettings",
    "JudgedTraining",
    "MovingLoss",
    "OuterObjective",
    "OuterStep",
    "ParametricCrossEntropy",
    "Recipe",
    "Space",
    "StrategyMap",
    "StrategyTensors",
    "UnrolledGradient",
    "UnrolledSearch",
    "evolve",
    "logits_side_by_side",
    "measure_classes",
    "parametric_cross_entropy",
    "train_side_by_side",
    "unrolled_gradient",
    "unrolled_search",
]

__getattr__ = on_first_use(__name__, _HOMES)

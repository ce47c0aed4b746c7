"""Bilevel search of a loss, for any training loop: losses, the map W, hypergradients. Names load torch on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capri.bilevel.losses import ParametricCrossEntropy, parametric_cross_entropy
    from capri.bilevel.outer_objective import OuterObjective
    from capri.bilevel.strategy_map import StrategyMap

_HOMES = {
    "OuterObjective": "outer_objective",
    "ParametricCrossEntropy": "losses",
    "StrategyMap": "strategy_map",
    "parametric_cross_entropy": "losses",
}

__all__ = ["OuterObjective", "ParametricCrossEntropy", "StrategyMap", "parametric_cross_entropy"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"capri.bilevel.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

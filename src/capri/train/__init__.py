"""Training: a laboratory for long-tailed data. The losses are in `capri.bilevel`. Names load torch on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capri.train.config import Config
    from capri.train.module import Classifier
    from capri.train.runner import run
    from capri.train.search import Search
    from capri.train.search_config import SearchRun
    from capri.train.search_runner import retrain, search_and_retrain

__all__ = [
    "Classifier",
    "Config",
    "Search",
    "SearchRun",
    "retrain",
    "run",
    "search_and_retrain",
]

_HOMES = {
    "Classifier": "module",
    "Config": "config",
    "Search": "search",
    "SearchRun": "search_config",
    "retrain": "search_runner",
    "run": "runner",
    "search_and_retrain": "search_runner",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"capri.train.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

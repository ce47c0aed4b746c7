"""Training: a laboratory for long-tailed data. The losses are in `capri.bilevel`. Names load torch on first use."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

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

__getattr__ = on_first_use(__name__, _HOMES)

"""Class-attribute priors: tune classifiers for the classes and the objective that matter.

attributes --basis--> dictionary D --W--> strategy (ω, l, Δ)
                                             |
        scores + labels --strategy--> class errors --objective--> one number to lower, by choosing W
"""

from typing import TYPE_CHECKING

from capri._checks import AbsentClassWarning, InputError
from capri._lazy import on_first_use
from capri._version import __version__ as __version__
from capri.attributes import Attributes
from capri.constraints import Constraint
from capri.dictionary import Dictionary, build_dictionary
from capri.errors import class_errors
from capri.evaluation import evaluate, make_scorer
from capri.objectives import Objective, as_objective, objective_names, register_objective
from capri.policy import Policy, PolicyError
from capri.strategy import Strategy

if TYPE_CHECKING:
    from capri.posthoc import CAPClassifierCV, LogitAdjuster, estimate_shares, exact_line_search, fold, frontier

__all__ = [
    "AbsentClassWarning",
    "Attributes",
    "CAPClassifierCV",
    "Constraint",
    "Dictionary",
    "InputError",
    "LogitAdjuster",
    "Objective",
    "Policy",
    "PolicyError",
    "Strategy",
    "as_objective",
    "build_dictionary",
    "class_errors",
    "estimate_shares",
    "evaluate",
    "exact_line_search",
    "fold",
    "frontier",
    "make_scorer",
    "objective_names",
    "register_objective",
]

_POSTHOC = {"CAPClassifierCV", "LogitAdjuster", "estimate_shares", "exact_line_search", "fold", "frontier"}

__getattr__ = on_first_use(__name__, dict.fromkeys(_POSTHOC, "posthoc"))  # they bring scikit-learn and Numba with them


def __dir__() -> list[str]:
    return sorted(__all__)

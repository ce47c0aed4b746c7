"""Post-hoc: tune any classifier's scores for any class-error objective, exactly and fast."""

from capri.policy import ProbabilityWarning
from capri.posthoc.adjuster import FrequencyWarning, LogitAdjuster
from capri.posthoc.classifier import CAPClassifierCV
from capri.posthoc.folding import fold
from capri.posthoc.line import LineSearch, exact_line_search
from capri.posthoc.trust import DegenerateWarning, ThinClassWarning

__all__ = [
    "CAPClassifierCV",
    "DegenerateWarning",
    "FrequencyWarning",
    "LineSearch",
    "LogitAdjuster",
    "ProbabilityWarning",
    "ThinClassWarning",
    "exact_line_search",
    "fold",
]

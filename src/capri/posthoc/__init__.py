"""Post-hoc: tune any classifier's scores for any class-error objective, exactly and fast."""

from capri.policy import ProbabilityWarning
from capri.posthoc._compiled import limit_threads
from capri.posthoc.abstention import Abstention
from capri.posthoc.adjuster import FrequencyWarning, LogitAdjuster
from capri.posthoc.classifier import CAPClassifierCV
from capri.posthoc.folding import fold
from capri.posthoc.frontiers import frontier
from capri.posthoc.line import LineSearch, exact_line_search
from capri.posthoc.line_profile import LineProfile, Mark, profile
from capri.posthoc.promise import Promise, PromiseWarning
from capri.posthoc.sets import LabelSets, conformal_sets
from capri.posthoc.tradeoff import Frontier, Point
from capri.posthoc.trust import DegenerateWarning, ThinClassWarning
from capri.posthoc.unknown_shares import EstimatedShares, ShareWarning, estimate_shares

__all__ = [
    "Abstention",
    "CAPClassifierCV",
    "DegenerateWarning",
    "EstimatedShares",
    "FrequencyWarning",
    "Frontier",
    "LabelSets",
    "LineProfile",
    "LineSearch",
    "LogitAdjuster",
    "Mark",
    "Point",
    "ProbabilityWarning",
    "Promise",
    "PromiseWarning",
    "ShareWarning",
    "ThinClassWarning",
    "conformal_sets",
    "estimate_shares",
    "exact_line_search",
    "fold",
    "frontier",
    "limit_threads",
    "profile",
]

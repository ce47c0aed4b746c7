"""Post-hoc: tune any classifier's scores for any class-error objective, exactly and fast."""

from capri.posthoc.line import LineSearch, exact_line_search

__all__ = ["LineSearch", "exact_line_search"]

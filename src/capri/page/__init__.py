"""The report: what tuning changed, as one page of HTML. It is told aggregates, and knows no sample's scores."""

from capri.page.content import Content, View
from capri.page.report import Report

__all__ = ["Content", "Report", "View"]

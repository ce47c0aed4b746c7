"""Plots in one line, and the one look of all figures. Importing it loads no plotting library."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.report.displays.class_errors import ClassErrorDisplay
    from capri.report.displays.confusion import ConfusionDifferenceDisplay
    from capri.report.displays.frontier import FrontierDisplay
    from capri.report.displays.ladder import LadderDisplay
    from capri.report.displays.line import LineDisplay
    from capri.report.displays.offsets import OffsetsDisplay
    from capri.report.displays.samples import SamplesCurve, SamplesDisplay, samples_curve

__all__ = [
    "ClassErrorDisplay",
    "ConfusionDifferenceDisplay",
    "FrontierDisplay",
    "LadderDisplay",
    "LineDisplay",
    "OffsetsDisplay",
    "SamplesCurve",
    "SamplesDisplay",
    "samples_curve",
]

_HOMES = {
    "ClassErrorDisplay": "displays.class_errors",
    "ConfusionDifferenceDisplay": "displays.confusion",
    "FrontierDisplay": "displays.frontier",
    "LadderDisplay": "displays.ladder",
    "LineDisplay": "displays.line",
    "OffsetsDisplay": "displays.offsets",
    "SamplesCurve": "displays.samples",
    "SamplesDisplay": "displays.samples",
    "samples_curve": "displays.samples",
}

__getattr__ = on_first_use(__name__, _HOMES)

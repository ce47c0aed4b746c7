"""Tuning where the scores are: passes over them in torch, on whatever device holds them."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.on_device.passes import DeviceScores
    from capri.on_device.tuning import line_search, tune

__all__ = ["DeviceScores", "line_search", "tune"]

__getattr__ = on_first_use(__name__, {"DeviceScores": "passes", "line_search": "tuning", "tune": "tuning"})

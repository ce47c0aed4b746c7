"""capri inside the training loops that people already have: Hugging Face's Trainer and Lightning, on first use."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.integrations.huggingface import ClassErrorCallback, StrategyLoss
    from capri.integrations.lightning import CAPTuning

__all__ = ["CAPTuning", "ClassErrorCallback", "StrategyLoss"]

__getattr__ = on_first_use(
    __name__, {"CAPTuning": "lightning", "ClassErrorCallback": "huggingface", "StrategyLoss": "huggingface"}
)

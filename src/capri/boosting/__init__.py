"""Boosted trees with the loss of a strategy: XGBoost, LightGBM, CatBoost. None of them is needed to import this."""

from typing import TYPE_CHECKING

from capri._lazy import on_first_use

if TYPE_CHECKING:
    from capri.boosting.classifier import CAPBoostingClassifier
    from capri.boosting.loss import TreeLoss
    from capri.boosting.metric import ClassErrorMetric

__all__ = ["CAPBoostingClassifier", "ClassErrorMetric", "TreeLoss"]

__getattr__ = on_first_use(
    __name__, {"CAPBoostingClassifier": "classifier", "ClassErrorMetric": "metric", "TreeLoss": "loss"}
)

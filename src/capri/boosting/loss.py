"""`TreeLoss`: the loss of a strategy, as XGBoost, LightGBM and CatBoost ask for it. None of them is imported here.

Each of the three has its own idea of the second derivative. XGBoost doubles the diagonal of the Hessian, LightGBM
multiplies it by K/(K − 1), and CatBoost takes the whole matrix and follows the gradient upwards. With theirs, the
neutral strategy grows the trees of the built-in softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capri._checks import check_labels, check_sample_weight, check_scores
from capri.boosting.derivatives import best_constant, gradients, hessians
from capri.strategy import Strategy

Pair = tuple[NDArray[np.float64], NDArray[np.float64]]
SMALLEST = 1e-16  # second derivative, as XGBoost's own


@dataclass(frozen=True)
class TreeLoss:
    """The parametric cross-entropy of a strategy, as a custom objective of gradient boosting.

    Its bound methods are what the libraries take: `xgboost` and `lightgbm` for their own ways of training,
    `xgboost_sklearn` and `lightgbm_sklearn` for their estimators; `catboost` makes an object. Trees that are trained
    with it decide by their highest raw score. Start them from `init_scores`.

    Parameters
    ----------
    strategy : Strategy
        Of the loss: a post-hoc one is `transferred` first.

    Examples
    --------
    >>> loss = TreeLoss(Strategy.logit_adjustment([900, 90, 10]))
    >>> gradient, _ = loss.gradients([[0.0, 0.0, 0.0]], [2])  # a rare class pulls harder than by the plain loss
    >>> gradient.round(2)
    array([[ 0.9 ,  0.09, -0.99]])
    """

    strategy: Strategy

    def gradients(self, scores: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Pair:
        """The first and second derivatives of each sample's loss by its scores.

        Parameters
        ----------
        scores : array-like of shape (n_samples, K)
            Raw scores of the trees so far.
        y : array-like of shape (n_samples,)
            Class numbers from 0.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        tuple of two arrays of shape (n_samples, K)
            The gradient, and the diagonal of the Hessian.
        """
        values = check_scores(scores).astype(np.float64)
        labels = check_labels(y, self.strategy.n_classes, len(values))
        return gradients(self.strategy, values, labels, check_sample_weight(sample_weight, len(values)))

    def init_scores(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NDArray[np.float64]:
        """The scores to start from, one row per sample: the best that are the same for all.

        They are `base_margin` to XGBoost, `init_score` to LightGBM and `baseline` to CatBoost. What starts from them
        predicts without them: add the row again.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Class numbers from 0.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        ndarray of shape (n_samples, K)
        """
        labels = check_labels(y, self.strategy.n_classes)
        row = best_constant(self.strategy, labels, check_sample_weight(sample_weight, len(labels)))
        return np.tile(row, (len(labels), 1))

    def xgboost(self, margins: NDArray[Any], data: Any) -> Pair:
        """For ``xgboost.train(…, obj=loss.xgboost)`` with ``num_class``.

        Parameters
        ----------
        margins : array of shape (n_samples, K)
        data : xgboost.DMatrix

        Returns
        -------
        tuple of two arrays of shape (n_samples, K)
        """
        return self._for_xgboost(data.get_label(), margins, _given(data.get_weight()))

    def lightgbm(self, scores: NDArray[Any], data: Any) -> Pair:
        """For ``lightgbm.train({"objective": loss.lightgbm, "num_class": K, …}, …)``.

        Parameters
        ----------
        scores : array of shape (n_samples, K)
        data : lightgbm.Dataset

        Returns
        -------
        tuple of two arrays of shape (n_samples, K)
        """
        return self._for_lightgbm(data.get_label(), scores, _given(data.get_weight()))

    def xgboost_sklearn(
        self, y: NDArray[Any], margins: NDArray[Any], sample_weight: NDArray[Any] | None = None
    ) -> Pair:
        """For ``XGBClassifier(objective=loss.xgboost_sklearn, num_class=K)``.

        Parameters
        ----------
        y : array of shape (n_samples,)
        margins : array of shape (n_samples, K)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        tuple of two arrays of shape (n_samples, K)
        """
        return self._for_xgboost(y, margins, sample_weight)

    def lightgbm_sklearn(
        self, y: NDArray[Any], scores: NDArray[Any], sample_weight: NDArray[Any] | None = None
    ) -> Pair:
        """For ``LGBMClassifier(objective=loss.lightgbm_sklearn, num_class=K)``.

        Parameters
        ----------
        y : array of shape (n_samples,)
        scores : array of shape (n_samples, K)
        sample_weight : array of shape (n_samples,), optional

        Returns
        -------
        tuple of two arrays of shape (n_samples, K)
        """
        return self._for_lightgbm(y, scores, sample_weight)

    def catboost(self) -> Any:
        """For ``CatBoostClassifier(loss_function=loss.catboost(), classes_count=K)``.

        Two classes are one score to CatBoost, the second's less the first's.

        Returns
        -------
        object
            With the methods that CatBoost calls.
        """
        return catboost_loss(self.strategy)

    def _for_xgboost(self, y: NDArray[Any], margins: NDArray[Any], weight: NDArray[Any] | None) -> Pair:
        gradient, curvature = self.gradients(margins, y, weight)
        return gradient, np.maximum(2 * curvature, SMALLEST)

    def _for_lightgbm(self, y: NDArray[Any], scores: NDArray[Any], weight: NDArray[Any] | None) -> Pair:
        gradient, curvature = self.gradients(scores, y, weight)
        k = self.strategy.n_classes
        return gradient, curvature * (k / (k - 1))


def _given(weight: NDArray[Any] | None) -> NDArray[Any] | None:
    """Weights, where there are any: XGBoost says with none of them that there are none."""
    return None if weight is None or len(weight) == 0 else weight


class _CatBoostLoss:
    """What CatBoost's losses of different strategies have in common: they can be copied and pickled."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def __reduce__(self) -> Any:
        return catboost_loss, (self._strategy,)

    def __deepcopy__(self, _: Any) -> Any:
        return catboost_loss(self._strategy)


def catboost_loss(strategy: Strategy) -> Any:
    """CatBoost's loss of a strategy.

    CatBoost calls it for one sample at a time and has Numba compile the methods, so they are written out in loops, and
    know the strategy by closure: a method that is compiled must not look at its object.
    """
    k, spread = strategy.n_classes, strategy.omega * strategy.smoothed_to
    delta, l, omega, smoothing = strategy.delta, strategy.l, strategy.omega, strategy.smoothing
    mean_weight = float(spread.sum())

    class Loss(_CatBoostLoss):
        def calc_ders_multi(self, scores, y, weight):  # type: ignore[no-untyped-def]
            """Minus the derivatives, for CatBoost climbs."""
            own = int(y)
            p = np.empty(k)
            for j in range(k):
                p[j] = delta[j] * scores[j] + l[j]
            p = np.exp(p - p.max())
            p /= p.sum()
            total = weight * ((1 - smoothing[own]) * omega[own] + smoothing[own] * mean_weight)
            first = [0.0] * k
            second = [[0.0] * k for _ in range(k)]
            for j in range(k):
                mass = weight * smoothing[own] * spread[j]
                if j == own:
                    mass += weight * (1 - smoothing[own]) * omega[own]
                first[j] = delta[j] * (mass - total * p[j])
                for i in range(k):
                    second[j][i] = delta[i] * delta[j] * total * p[i] * p[j]
                second[j][j] -= delta[j] * delta[j] * total * p[j]
            return first, second

    class LossOfTwo(_CatBoostLoss):
        no_jit = True

        def calc_ders_range(self, margins, y, weight):  # type: ignore[no-untyped-def]
            """Minus the derivatives by the one margin: the scores are −½ and +½ of it."""
            scores, labels = np.outer(margins, [-0.5, 0.5]), np.asarray(y, np.int64)
            known = None if weight is None else np.asarray(weight, np.float64)
            gradient, _ = gradients(strategy, scores, labels, known)
            whole = hessians(strategy, scores, labels, known)
            curvature = (whole[:, 0, 0] + whole[:, 1, 1] - 2 * whole[:, 0, 1]) / 4
            return -np.column_stack([(gradient[:, 1] - gradient[:, 0]) / 2, curvature])

    return (LossOfTwo if k == 2 else Loss)(strategy)

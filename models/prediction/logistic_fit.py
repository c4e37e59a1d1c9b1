"""Logistic regression of a table of floats."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.models.prediction.log_odds import sigmoid

__all__ = ["LogisticFit", "fit_logistic"]

Floats = npt.NDArray[np.float64]


class LogisticFit(NamedTuple):
    """What was fitted.

    Attributes
    ----------
    coefficients : ndarray of shape (n_columns,)
    intercept : float
    """

    coefficients: Floats
    intercept: float

    def score(self, table: Floats) -> Floats:
        """Return scores of shape (n,) in [0, 1] of a table of shape (n, n_columns)."""
        # Not by BLAS: it rounds by how many rows and threads there are, and a list would not agree
        # with a backtest to the last digit.
        return sigmoid(np.einsum("ij,j->i", table, self.coefficients) + self.intercept)


def fit_logistic(
    table: Floats,
    labels: npt.NDArray[np.int8],
    weights: npt.NDArray[np.float32],
    strength: float = 1.0,
) -> LogisticFit:
    """Fit with a ridge penalty.

    Parameters
    ----------
    table : ndarray of shape (n, n_columns)
    labels : ndarray of shape (n,)
        0 or 1.
    weights : ndarray of shape (n,)
        Of the instances in the loss.
    strength : float
        Of the loss beside half of the sum of the squared coefficients; `C` of scikit-learn.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=strength, solver="newton-cholesky")
    # A few hundred columns gain nothing by a second thread; threads that wait for each other on a
    # busy host take ten times the CPU, and the order of a sum would depend on their number.
    with threadpool_limits(1, user_api="blas"):
        regression.fit(table, labels, sample_weight=weights)
    return LogisticFit(regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))

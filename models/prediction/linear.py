"""A linear model with a strong prior: what few failures can teach."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.inputs import Columns, Inputs
from forewarn.models.prediction.linear_table import LinearTable
from forewarn.models.prediction.log_odds import sigmoid
from forewarn.models.prediction.loss_weights import loss_weights
from forewarn.models.prediction.parameter_file import read_parameters, write_parameters

__all__ = ["LinearModel"]

Floats = npt.NDArray[np.float64]

# Positives of one failure tell nearly the same, so that ten of them count for one observation; the
# healthy together weigh what they weigh in the loss.
_POSITIVES_OF_A_FAILURE = 10.0
_ROWS_AT_ONCE = 16_384  # a table is floats, and twice as wide as the buckets
_VARIANCE = 0.3  # of the normal prior of a coefficient; columns reach from -1 to 1 at most


class LinearModel:
    """Logistic regression whose coefficients stay near zero unless failures say otherwise.

    The ridge penalty is that of a normal prior beside as many observations as there are failures,
    and not instances: trees and an ordinary regression take the positives of one failure for
    independent ones, and learn forty failures by heart (docs/quality.md).

    Parameters
    ----------
    seed, purge
        Not used: the optimum is unique.
    positive_weight : float
        Multiplies the weights of positives in the loss.

    Attributes
    ----------
    columns_ : Columns
        Of the instances it was fitted to.
    table_ : LinearTable
    coefficients_ : ndarray of shape (n_columns,)
        Of the columns of the table.
    intercept_ : float
    """

    columns_: Columns
    table_: LinearTable
    coefficients_: Floats
    intercept_: float

    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        del seed, purge
        self.positive_weight = positive_weight

    def fit(
        self,
        inputs: Inputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances; `ends` is not used."""
        del ends
        from sklearn.linear_model import LogisticRegression

        weighted = loss_weights(labels, weights, self.positive_weight)
        observations = 2.0 * (labels == 1).sum() / _POSITIVES_OF_A_FAILURE
        self.columns_, self.table_ = inputs.columns, LinearTable.fit(inputs)
        # The weights have a mean of 1, so that C is the variance times what one of them is worth.
        strength = _VARIANCE * observations / len(labels)
        regression = LogisticRegression(C=strength, solver="newton-cholesky")
        regression.fit(self.table_.apply(inputs), labels, sample_weight=weighted)
        self.coefficients_ = regression.coef_[0].astype(np.float64)
        self.intercept_ = float(regression.intercept_[0])
        return self

    def score(self, inputs: Inputs) -> Floats:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)
        scores = np.empty(len(inputs))
        for begin in range(0, len(inputs), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            # A product of matrices rounds by how many instances are asked about, and a list would
            # not agree with a backtest to the last digit; the sum of a row does not.
            added = (self.table_.apply(inputs.take(rows)) * self.coefficients_).sum(axis=1)
            scores[rows] = sigmoid(added + self.intercept_)
        return scores

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the channels (`name[-0]`) and of the context columns."""
        return (*(f"{name}[-0]" for name in self.columns_.sequence), *self.columns_.context)

    def contributions(self, inputs: Inputs) -> Floats:
        """Return what each feature adds to the log odds, in the order of `feature_names`.

        Returns
        -------
        ndarray of shape (n, n_features)
            Against the mean of the training instances. What shares of missing values add is of no
            feature, and left out.
        """
        parts = self.table_.apply(inputs) * self.coefficients_
        sources = self.table_.sources(self.columns_)
        added = np.zeros((len(inputs), len(self.feature_names)))
        np.add.at(added.T, sources[sources >= 0], parts.T[sources >= 0])
        return added

    def save(self, folder: Path) -> None:
        """Write JSON into an existing `folder`."""
        parameters = {
            "positive_weight": self.positive_weight,
            "columns": self.columns_.to_dict(),
            "table": self.table_.to_dict(),
            "coefficients": self.coefficients_.tolist(),
            "intercept": self.intercept_,
        }
        write_parameters(folder, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If its parts are of different columns.
        """
        saved = read_parameters(folder)
        model = cls(seed=0, positive_weight=saved["positive_weight"])
        model.columns_ = Columns.from_dict(saved["columns"])
        model.table_ = LinearTable.from_dict(saved["table"], model.columns_)
        model.coefficients_ = np.array(saved["coefficients"], dtype=np.float64)
        if model.coefficients_.shape != (len(model.table_.centres),):
            raise ValueError(
                f"coefficients are {len(model.coefficients_)}, expected {len(model.table_.centres)}"
            )
        model.intercept_ = saved["intercept"]
        return model

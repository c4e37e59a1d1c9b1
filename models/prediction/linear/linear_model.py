"""A linear model with a strong prior: what few failures can teach."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int8Array
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.linear.linear_table import LinearTable
from forewarn.models.prediction.linear.logistic_fit import LogisticFit, fit_logistic
from forewarn.models.prediction.linear.logistic_model import LogisticModel

__all__ = ["LinearModel"]


# Positives of one failure tell nearly the same, so that ten of them count for one observation; the
# healthy together weigh what they weigh in the loss.
_POSITIVES_PER_OBSERVATION = 10.0
# Of the normal prior of a coefficient, and of that of all columns together, in log odds for a
# standard deviation among the healthy.
_COLUMN_VARIANCE, _COMMON_VARIANCE = 0.003, 1.0
# Of a column: what one instance in a thousand shows must not be worth thirty times as much.
_MIN_DEVIATION = 0.05


class LinearModel(LogisticModel):
    """Logistic regression whose coefficients stay near zero unless failures say otherwise.

    The ridge penalty is that of a normal prior beside as many observations as there are failures,
    and not instances: trees and an ordinary regression take the positives of one failure for
    independent ones, and learn forty failures by heart (docs/results.md).

    It is so strong that a coefficient says little more than by how many standard deviations its
    column differs between the failing and the healthy. How much all of them are worth together is
    fitted afterwards: that is one number, for which a few failures are enough.

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
    fit_ : LogisticFit
        Of the columns of the table.
    """

    table_: LinearTable
    _table_type: ClassVar[type[LinearTable]] = LinearTable

    def _fitted(
        self, columns: Float64Array, labels: Int8Array, weights: Float32Array
    ) -> LogisticFit:
        """Fit a direction with a strong prior, then the size of the step along it."""
        observations = 2.0 * (labels == 1).sum() / _POSITIVES_PER_OBSERVATION
        # The weights have a mean of 1, so that C is the variance times what one of them is worth.
        worth = observations / len(labels)
        among_healthy = np.where(labels == 0, weights, 0.0)
        spread = np.maximum(_deviation(columns, among_healthy), _MIN_DEVIATION)
        direction = fit_logistic(columns / spread, labels, weights, _COLUMN_VARIANCE * worth)
        step = direction.coefficients / spread
        along = np.einsum("ij,j->i", columns, step)
        # 1: no column tells anything.
        size = max(float(_deviation(along, among_healthy)), _MIN_DEVIATION * along.std()) or 1.0
        together = fit_logistic(along[:, None] / size, labels, weights, _COMMON_VARIANCE * worth)
        return LogisticFit(step * (together.coefficients[0] / size), together.intercept)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the channels (`name[-0]`) and of the context columns."""
        return (*(f"{name}[-0]" for name in self.columns_.sequence), *self.columns_.context)

    def contributions(self, inputs: ModelInputs) -> Float64Array:
        """Return what each feature adds to the log odds, in the order of `feature_names`.

        Returns
        -------
        ndarray of shape (n, n_features)
            Against the mean of the training instances. What shares of missing values add is of no
            feature, and left out.
        """
        parts = self.table_.apply(inputs) * self.fit_.coefficients
        sources = self.table_.sources(self.columns_)
        added = np.zeros((len(inputs), len(self.feature_names)))
        np.add.at(added.T, sources[sources >= 0], parts.T[sources >= 0])
        return added


def _deviation(values: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the standard deviation over the first axis."""
    squares: Float64Array = np.average(
        (values - np.average(values, axis=0, weights=weights)) ** 2, axis=0, weights=weights
    )
    return np.sqrt(squares)

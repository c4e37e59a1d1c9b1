"""A linear model with a strong prior, for few failures."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int8Array
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.hyperparameters import Range
from forewarn.models.prediction.linear.linear_table import LinearTable
from forewarn.models.prediction.linear.logistic_fit import LogisticFit, fit_logistic
from forewarn.models.prediction.linear.logistic_model import LogisticModel

__all__ = ["LinearModel"]


# The positives of one failure are highly correlated: ten of them count as one observation. The
# healthy instances together have the same weight as in the loss.
_POSITIVES_PER_OBSERVATION = 10.0
# Minimum standard deviation of a column. It limits the effect of values that occur in about one of
# a thousand instances.
_MIN_DEVIATION = 0.05


class LinearModel(LogisticModel):
    """Logistic regression whose coefficients are strongly shrunk towards zero.

    The ridge penalty corresponds to a normal prior with as many observations as there are failures,
    not instances. Trees and ordinary regression treat the positives of one failure as independent
    and overfit to them (docs/quality.md).

    With so strong a prior, a coefficient is proportional to the standardized mean difference of its
    column between failing and healthy instances. The common factor of all columns is fitted in a
    second step. It is a single number, for which few failures are enough.

    Parameters
    ----------
    seed, purge
        Ignored: the optimum is unique.
    positive_weight : float
        Multiplies the weights of positives in the loss.
    column_variance, common_variance : float
        Prior variance of a coefficient, and of the common factor of all columns, in log odds per
        standard deviation among the healthy instances.

    Attributes
    ----------
    columns_ : InputColumns
        Columns of the training instances.
    table_ : LinearTable
    fit_ : LogisticFit
        Coefficients of the columns of the table.
    """

    table_: LinearTable
    large_training_set: ClassVar[bool] = True
    _table_type: ClassVar[type[LinearTable]] = LinearTable

    def __init__(
        self,
        *,
        seed: int,
        purge: int = 0,
        positive_weight: float = 1.0,
        column_variance: Annotated[float, Range(1e-9, 1e3, (3e-4, 0.03), log=True)] = 0.003,
        common_variance: Annotated[float, Range(1e-6, 1e6)] = 1.0,
    ) -> None:
        super().__init__(seed=seed, purge=purge, positive_weight=positive_weight)
        self.column_variance = column_variance
        self.common_variance = common_variance

    def _fitted(
        self, columns: Float64Array, labels: Int8Array, weights: Float32Array
    ) -> LogisticFit:
        """Fit a direction with a strong prior, then the step length along it."""
        observations = 2.0 * (labels == 1).sum() / _POSITIVES_PER_OBSERVATION
        # The weights have a mean of 1, so C is the variance times the weight of one observation.
        worth = observations / len(labels)
        among_healthy = np.where(labels == 0, weights, 0.0)
        spread = np.maximum(_deviation(columns, among_healthy), _MIN_DEVIATION)
        direction = fit_logistic(columns / spread, labels, weights, self.column_variance * worth)
        step = direction.coefficients / spread
        along = np.einsum("ij,j->i", columns, step)
        # 1 if no column is informative.
        size = max(float(_deviation(along, among_healthy)), _MIN_DEVIATION * along.std()) or 1.0
        together = fit_logistic(
            along[:, None] / size, labels, weights, self.common_variance * worth
        )
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
            Relative to the mean of the training instances. The contribution of the shares of
            missing values belongs to no feature and is left out.
        """
        parts = self.table_.apply(inputs) * self.fit_.coefficients
        sources = self.table_.sources(self.columns_)
        added = np.zeros((len(inputs), len(self.feature_names)))
        np.add.at(added.T, sources[sources >= 0], parts.T[sources >= 0])
        return added


def _deviation(values: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the weighted standard deviation over the first axis."""
    squares: Float64Array = np.average(
        (values - np.average(values, axis=0, weights=weights)) ** 2, axis=0, weights=weights
    )
    return np.sqrt(squares)

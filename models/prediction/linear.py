"""A linear model with a strong prior: what few failures can teach."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.inputs import Inputs
from forewarn.models.prediction.linear_table import LinearTable
from forewarn.models.prediction.logistic import LogisticModel

__all__ = ["LinearModel"]

# Positives of one failure tell nearly the same, so that ten of them count for one observation; the
# healthy together weigh what they weigh in the loss.
_POSITIVES_OF_A_FAILURE = 10.0
_VARIANCE = 0.3  # of the normal prior of a coefficient; columns reach from -1 to 1 at most


class LinearModel(LogisticModel):
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
    fit_ : LogisticFit
        Of the columns of the table.
    """

    table_: LinearTable
    _table_type: ClassVar[type[LinearTable]] = LinearTable

    def _strength(self, labels: npt.NDArray[np.int8]) -> float:
        observations = 2.0 * int((labels == 1).sum()) / _POSITIVES_OF_A_FAILURE
        # The weights have a mean of 1, so that C is the variance times what one of them is worth.
        return _VARIANCE * observations / len(labels)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the channels (`name[-0]`) and of the context columns."""
        return (*(f"{name}[-0]" for name in self.columns_.sequence), *self.columns_.context)

    def contributions(self, inputs: Inputs) -> npt.NDArray[np.float64]:
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

"""A linear model with a strong prior: what few failures can teach."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.inputs import Columns, Inputs
from forewarn.models.prediction.linear_table import LinearTable
from forewarn.models.prediction.logistic_fit import LogisticFit, fit_logistic
from forewarn.models.prediction.loss_weights import loss_weights
from forewarn.models.prediction.parameter_file import read_parameters, write_parameters
from forewarn.models.prediction.row_parts import in_parts

__all__ = ["LinearModel"]

Floats = npt.NDArray[np.float64]

# Positives of one failure tell nearly the same, so that ten of them count for one observation; the
# healthy together weigh what they weigh in the loss.
_POSITIVES_OF_A_FAILURE = 10.0
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
    fit_ : LogisticFit
        Of the columns of the table.
    """

    columns_: Columns
    table_: LinearTable
    fit_: LogisticFit

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
        weighted = loss_weights(labels, weights, self.positive_weight)
        observations = 2.0 * (labels == 1).sum() / _POSITIVES_OF_A_FAILURE
        self.columns_, self.table_ = inputs.columns, LinearTable.fit(inputs)
        # The weights have a mean of 1, so that C is the variance times what one of them is worth.
        strength = _VARIANCE * observations / len(labels)
        self.fit_ = fit_logistic(self.table_.apply(inputs), labels, weighted, strength)
        return self

    def score(self, inputs: Inputs) -> Floats:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)

        def score(rows: slice) -> Floats:
            return self.fit_.score(self.table_.apply(inputs.take(rows)))

        return in_parts(score, len(inputs))

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
        parts = self.table_.apply(inputs) * self.fit_.coefficients
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
            "coefficients": self.fit_.coefficients.tolist(),
            "intercept": self.fit_.intercept,
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
        coefficients = np.array(saved["coefficients"], dtype=np.float64)
        if coefficients.shape != (len(model.table_.centres),):
            raise ValueError(
                f"coefficients are {len(coefficients)}, expected {len(model.table_.centres)}"
            )
        model.fit_ = LogisticFit(coefficients, saved["intercept"])
        return model

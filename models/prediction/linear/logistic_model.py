"""Logistic regression on scaled buckets, with a ridge penalty."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int8Array, Int64Array
from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.linear.bucket_scaling import InputScaling
from forewarn.models.prediction.linear.logistic_fit import LogisticFit, fit_logistic
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters
from forewarn.models.prediction.linear.row_batches import score_in_batches

__all__ = ["LogisticModel"]


class _Table(Protocol):
    """Converts instances into the columns of the regression."""

    @classmethod
    def fit(cls, inputs: ModelInputs) -> Self: ...

    def apply(self, inputs: ModelInputs) -> Float64Array: ...

    @property
    def n_columns(self) -> int: ...

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: InputColumns) -> Self: ...


@dataclass(frozen=True)
class _LastRecord:
    """The scaled last record and the scaled context, each with its share of missing values."""

    scaling: InputScaling

    @classmethod
    def fit(cls, inputs: ModelInputs) -> Self:
        return cls(InputScaling.fit(inputs))

    def apply(self, inputs: ModelInputs) -> Float64Array:
        last = self.scaling.sequence.apply(inputs.sequence[:, -1])
        context = self.scaling.context.apply(inputs.context)
        return np.concatenate([last, context], axis=1, dtype=np.float64)

    @property
    def n_columns(self) -> int:
        return len(self.scaling.sequence.centres) + len(self.scaling.context.centres)

    def to_dict(self) -> dict[str, Any]:
        return self.scaling.to_dict()

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: InputColumns) -> Self:
        return cls(InputScaling.from_dict(saved, columns))


class LogisticModel:
    """Logistic regression with a ridge penalty on the last record and the context.

    Parameters
    ----------
    seed, purge
        Ignored: the optimum is unique.
    positive_weight : float
        Multiplies the weights of positives in the loss.

    Attributes
    ----------
    columns_ : InputColumns
        Columns of the training instances.
    table_
        Converts instances into the columns of the regression.
    fit_ : LogisticFit
        Coefficients of the columns of the table.
    """

    columns_: InputColumns
    table_: _Table
    fit_: LogisticFit
    _table_type: ClassVar[type[_Table]] = _LastRecord

    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        del seed, purge
        self.positive_weight = positive_weight

    def fit(
        self,
        inputs: ModelInputs,
        labels: Int8Array,
        weights: Float32Array,
        ends: Int64Array,
    ) -> Self:
        """Fit on n instances; `ends` is ignored."""
        del ends
        self.columns_, self.table_ = inputs.columns, self._table_type.fit(inputs)
        weighted = loss_weights(labels, weights, self.positive_weight)
        self.fit_ = self._fitted(self.table_.apply(inputs), labels, weighted)
        return self

    def _fitted(
        self, columns: Float64Array, labels: Int8Array, weights: Float32Array
    ) -> LogisticFit:
        """Fit the regression on the columns of the table."""
        return fit_logistic(columns, labels, weights, 1.0)

    def score(self, inputs: ModelInputs) -> Float64Array:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)

        def score(rows: slice) -> Float64Array:
            return self.fit_.score(self.table_.apply(inputs.select(rows)))

        return score_in_batches(score, len(inputs))

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
        """Read the files that `save` wrote.

        Raises
        ------
        ValueError
            If its parts disagree about the columns.
        """
        saved = read_parameters(folder)
        model = cls(seed=0, positive_weight=saved["positive_weight"])
        model.columns_ = InputColumns.from_dict(saved["columns"])
        model.table_ = cls._table_type.from_dict(saved["table"], model.columns_)
        coefficients = np.array(saved["coefficients"], dtype=np.float64)
        if coefficients.shape != (model.table_.n_columns,):
            raise ValueError(
                f"got {len(coefficients)} coefficients, expected {model.table_.n_columns}"
            )
        model.fit_ = LogisticFit(coefficients, saved["intercept"])
        return model

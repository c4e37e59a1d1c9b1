"""The columns of the linear model: scaled buckets, changes and deviations from the mode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array, UInt8Array
from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.linear.bucket_scaling import InputScaling

__all__ = ["LinearTable"]


_NO_MODE = 0  # mode of a column without one; bucket number 0 means "missing"


@dataclass(frozen=True)
class LinearTable:
    """Converts instances into the columns of a linear model.

    A counter is constant most of the time, and any change is the strongest signal. On the even
    scale of the buckets a change is a small step, so separate columns represent it. The columns,
    minus their training means, are:

    - the last record and the context, scaled by `InputScaling`, each with its share of missing
    values
    - the difference between the last and the first record of each channel
    - whether that difference is positive, and whether it is negative
    - whether each column that has a mode lies above it, and whether below

    Attributes
    ----------
    scaling : InputScaling
    rest : tuple of int
        Mode of each channel, then of each context column: the bucket number of more than half of
        the training instances, 0 if there is none.
    centres : tuple of float
        Training mean of each column of the table.
    """

    scaling: InputScaling
    rest: tuple[int, ...]
    centres: tuple[float, ...]

    @classmethod
    def fit(cls, inputs: ModelInputs) -> Self:
        """Fit the scaling, the modes and the means to training instances."""
        values = np.concatenate([inputs.sequence[:, -1], inputs.context], axis=1)
        levels = (*inputs.sequence_levels, *inputs.context_levels)
        rest = tuple(_mode_bucket(column, n) for column, n in zip(values.T, levels, strict=True))
        table = cls(InputScaling.fit(inputs), rest, ())
        return cls(table.scaling, rest, tuple(table._columns(inputs).mean(axis=0).tolist()))

    def apply(self, inputs: ModelInputs) -> Float64Array:
        """Return the columns of n instances, shape (n, n_columns)."""
        columns = self._columns(inputs)
        columns -= np.asarray(self.centres)
        return columns

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return len(self.centres)

    def sources(self, columns: InputColumns) -> Int64Array:
        """Return the number of the channel or context column behind each column of the table.

        The shares of missing values have no single source: -1.
        """
        channels = np.arange(len(columns.sequence))
        context = len(channels) + np.arange(len(columns.context))
        resting = self._resting
        return np.concatenate(
            [*(channels, [-1], context, [-1]), *[channels] * 3, resting, resting]
        ).astype(np.int64)

    @cached_property
    def _resting(self) -> Int64Array:
        """Columns that have a mode."""
        return np.flatnonzero(np.asarray(self.rest) != _NO_MODE)

    def _columns(self, inputs: ModelInputs) -> Float64Array:
        first, last = inputs.sequence[:, 0], inputs.sequence[:, -1]
        scaled, before = (self.scaling.sequence.apply(records) for records in (last, first))
        seen = (first > 0) & (last > 0)
        rise = np.where(seen, scaled[:, :-1] - before[:, :-1], 0.0)
        values = np.concatenate([last, inputs.context], axis=1)[:, self._resting]
        rest = np.asarray(self.rest, dtype=np.int64)[self._resting]
        context = self.scaling.context.apply(inputs.context)
        moved = seen & (last > first), seen & (last < first)
        away = values > rest, (values < rest) & (values > 0)
        return np.concatenate([scaled, context, rise, *moved, *away], axis=1, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "scaling": self.scaling.to_dict(),
            "rest": list(self.rest),
            "centres": list(self.centres),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: InputColumns) -> Self:
        """Read a dict from `to_dict`, for instances with these columns.

        Raises
        ------
        ValueError
            If the number of columns differs.
        """
        scaling = InputScaling.from_dict(saved["scaling"], columns)
        table = cls(scaling, tuple(saved["rest"]), tuple(saved["centres"]))
        expected = len(columns.sequence) + len(columns.context)
        if len(table.rest) != expected:
            raise ValueError(f"got {len(table.rest)} modes, expected {expected}")
        if len(table.centres) != len(table.sources(columns)):
            raise ValueError(
                f"got {len(table.centres)} centres, expected {len(table.sources(columns))}"
            )
        return table


def _mode_bucket(column: UInt8Array, levels: int) -> int:
    """Return the bucket number of more than half of the values; 0 if there is none.

    Columns with two levels are one-hot, and those with three already encode a change from the mode.
    """
    counts = np.bincount(column, minlength=2)
    counts[0] = 0
    often = int(counts.argmax())
    return often if levels > 3 and 2 * counts[often] > len(column) else _NO_MODE

"""The columns of the linear model: bucket numbers as small floats, changes, and signs of unrest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array, UInt8Array
from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.linear.bucket_scaling import InputScaling

__all__ = ["LinearTable"]


_NO_MODE = 0  # a column that has no level of rest; as a bucket number it is "missing"


@dataclass(frozen=True)
class LinearTable:
    """Turns instances into the columns that a linear model adds up.

    A counter rests most of the time, and what matters first is that it moved at all: on the even
    scale of its buckets that is a small step, so a linear model is told by a column of its own.
    The columns are, less their means in training: the last record and the context as
    `InputScaling` scales them, each with its share of missing values; by how much each channel is
    higher in the last record than in the first one; whether it is, and whether it is lower;
    whether each column that rests lies above its rest, and whether below.

    Attributes
    ----------
    scaling : InputScaling
    rest : tuple of int
        Of each channel, then each context column: the bucket number that more than half of the
        training instances have, 0 if there is none.
    centres : tuple of float
        Mean in training of each column of the table.
    """

    scaling: InputScaling
    rest: tuple[int, ...]
    centres: tuple[float, ...]

    @classmethod
    def fit(cls, inputs: ModelInputs) -> Self:
        """Look at n training instances."""
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
        """Return which channel or context column each column of the table is of.

        The shares of missing values, which are of no single one, are -1.
        """
        channels = np.arange(len(columns.sequence))
        context = len(channels) + np.arange(len(columns.context))
        resting = self._resting
        return np.concatenate(
            [*(channels, [-1], context, [-1]), *[channels] * 3, resting, resting]
        ).astype(np.int64)

    @cached_property
    def _resting(self) -> Int64Array:
        """Columns that have a level of rest."""
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
        """Return what JSON can hold."""
        return {
            "scaling": self.scaling.to_dict(),
            "rest": list(self.rest),
            "centres": list(self.centres),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: InputColumns) -> Self:
        """Read what `to_dict` returned, of instances with these columns.

        Raises
        ------
        ValueError
            If it is of another number of columns.
        """
        scaling = InputScaling.from_dict(saved["scaling"], columns)
        table = cls(scaling, tuple(saved["rest"]), tuple(saved["centres"]))
        expected = len(columns.sequence) + len(columns.context)
        if len(table.rest) != expected:
            raise ValueError(f"levels of rest are {len(table.rest)}, expected {expected}")
        if len(table.centres) != len(table.sources(columns)):
            raise ValueError(
                f"centres are {len(table.centres)}, expected {len(table.sources(columns))}"
            )
        return table


def _mode_bucket(column: UInt8Array, levels: int) -> int:
    """Return the bucket number of more than half of the values; 0 if there is none.

    A column of two levels is one-hot, and one of three says whether it left its rest already.
    """
    counts = np.bincount(column, minlength=2)
    counts[0] = 0
    often = int(counts.argmax())
    return often if levels > 3 and 2 * counts[often] > len(column) else _NO_MODE

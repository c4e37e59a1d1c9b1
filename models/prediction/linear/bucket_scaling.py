"""Scaling of bucket numbers to small floats for networks and linear models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs

__all__ = ["BucketScaling", "InputScaling"]

_N_BUCKETS = 256  # number of uint8 values


@dataclass(frozen=True)
class BucketScaling:
    """Maps the buckets of each column evenly to [-1, 1], minus the column's training mean.

    A missing value becomes 0, the training mean. An additional column holds the share of missing
    columns, so that models see when telemetry is incomplete. A column that was constant in training
    becomes 0, because a model would multiply it by the noise of its initial weights. A column with
    two levels is one-hot; 0 is a value there.

    Attributes
    ----------
    levels : tuple of int
        Number of bucket numbers of each column.
    centres : tuple of float
        Training mean of each column, then of the share of missing columns.
    varied : tuple of bool
        Whether each of them varied in training.
    """

    levels: tuple[int, ...]
    centres: tuple[float, ...]
    varied: tuple[bool, ...]

    @classmethod
    def fit(cls, values: npt.NDArray[np.uint8], levels: Sequence[int]) -> Self:
        """Compute the means of `values`, of shape (..., n_columns)."""
        positions = _positions(levels)
        counts = _counts(values, len(levels))
        present = np.where(np.isnan(positions), 0, counts)
        totals = present.sum(axis=1)
        sums = np.einsum("cb,cb->c", present, np.nan_to_num(positions))
        centres = sums / np.maximum(totals, 1)
        varied = (present > 0).sum(axis=1) > 1
        shares = _missing_share(values, np.asarray(levels))
        return cls(
            tuple(int(level) for level in levels),
            (*centres.tolist(), float(shares.mean()) if shares.size else 0.0),
            (*varied.tolist(), bool(shares.size and shares.min() < shares.max())),
        )

    @cached_property
    def _table(self) -> npt.NDArray[np.float32]:
        """Scaled values of the 256 bucket numbers of each column, flattened."""
        centred = _positions(self.levels) - np.asarray(self.centres[:-1])[:, None]
        centred[~np.asarray(self.varied[:-1], dtype=np.bool_)] = 0.0
        table: npt.NDArray[np.float32] = np.nan_to_num(centred).astype(np.float32).ravel()
        return table

    def apply(self, values: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return the scaled values, of shape (..., n_columns + 1)."""
        n_columns = len(self.levels)
        scaled = np.empty((*values.shape[:-1], n_columns + 1), dtype=np.float32)
        scaled[..., :-1] = self._table[values + np.arange(n_columns) * _N_BUCKETS]
        missing = _missing_share(values, np.asarray(self.levels)) - self.centres[-1]
        scaled[..., -1] = missing if self.varied[-1] else 0.0
        return scaled

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "levels": list(self.levels),
            "centres": list(self.centres),
            "varied": list(self.varied),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
        return cls(tuple(saved["levels"]), tuple(saved["centres"]), tuple(saved["varied"]))

    def check(self, n_columns: int) -> None:
        """Raise ValueError if the number of columns differs."""
        sizes = len(self.levels), len(self.centres), len(self.varied)
        if sizes != (n_columns, n_columns + 1, n_columns + 1):
            raise ValueError(f"scaling has {sizes} columns, expected {n_columns}")


def _positions(levels: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the position of each bucket in [-1, 1], NaN for missing; shape (n_columns, 256)."""
    top = np.asarray(levels, dtype=np.float64)[:, None] - 1.0
    lowest = np.where(top > 1, 1.0, 0.0)
    buckets = np.arange(_N_BUCKETS, dtype=np.float64)[None, :]
    places = np.clip(2.0 * (buckets - lowest) / np.maximum(top - lowest, 1.0) - 1.0, -1.0, 1.0)
    return np.where(buckets < lowest, np.nan, places)


def _counts(values: npt.NDArray[np.uint8], n_columns: int) -> npt.NDArray[np.int64]:
    """Count the bucket numbers of each column; shape (n_columns, 256)."""
    rows = values.reshape(math.prod(values.shape[:-1]), n_columns)
    counts = [np.bincount(rows[:, column], minlength=_N_BUCKETS) for column in range(n_columns)]
    return np.array(counts, dtype=np.int64).reshape(n_columns, _N_BUCKETS)


def _missing_share(
    values: npt.NDArray[np.uint8], levels: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the share of missing values among columns that can be missing; 0 without any."""
    can_miss = levels > 2
    missing = ((values == 0) & can_miss).sum(axis=-1)
    return np.asarray(missing / max(int(can_miss.sum()), 1), dtype=np.float64)


@dataclass(frozen=True)
class InputScaling:
    """The scaling of both parts of `ModelInputs`."""

    sequence: BucketScaling
    context: BucketScaling

    @classmethod
    def fit(cls, inputs: ModelInputs) -> Self:
        """Compute the means of the training instances."""
        return cls(
            BucketScaling.fit(inputs.sequence, inputs.sequence_levels),
            BucketScaling.fit(inputs.context, inputs.context_levels),
        )

    def apply(self, inputs: ModelInputs) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return (n, length, n_channels + 1) and (n, n_context + 1)."""
        return self.sequence.apply(inputs.sequence), self.context.apply(inputs.context)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {"sequence": self.sequence.to_dict(), "context": self.context.to_dict()}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], columns: InputColumns) -> Self:
        """Read a dict from `to_dict`, for instances with these columns."""
        scaling = cls(
            BucketScaling.from_dict(saved["sequence"]), BucketScaling.from_dict(saved["context"])
        )
        scaling.sequence.check(len(columns.sequence))
        scaling.context.check(len(columns.context))
        return scaling

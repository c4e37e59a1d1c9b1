"""Buckets: discretization of values into small integers, with 0 for "missing"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for

__all__ = ["Buckets"]

_MAX_EDGES = 62
_TAILS = (0.001, 0.005, 0.995, 0.999)
_QUANTILE_LEVELS = np.sort([*np.linspace(0, 1, _MAX_EDGES - len(_TAILS) + 1)[1:-1], *_TAILS])
_SAMPLE_SIZE = 200_000
_MAX_BYTE_EDGES = 253  # a byte also numbers the bucket below all edges and "missing"


def _edges(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return at most `_MAX_EDGES` edges: midpoints of few distinct values, else quantiles."""
    finite = values[np.isfinite(values)]
    finite = np.sort(finite[:: max(1, len(finite) // _SAMPLE_SIZE)])
    distinct = finite[np.append(True, finite[1:] != finite[:-1])[: len(finite)]]
    if len(distinct) <= _MAX_EDGES + 1:
        below, above = distinct[:-1], distinct[1:]
        edges = np.asarray(above / 2 + below / 2, dtype=np.float32)
        # Between adjacent large floats, such as dates in year 9999 or bytes, there is no midpoint.
        return np.where(edges > below, edges, above)
    # A counter is constant most of the time: that value must not take up all the quantiles.
    middle = _quantiles(finite, np.array([0.5]))[0]
    moving = finite[finite != middle]
    source = moving if 2 * len(moving) < len(finite) else finite
    edges = _quantiles(source, _QUANTILE_LEVELS).astype(np.float32)
    if source is moving:
        edges = np.append(edges, np.nextafter(np.float32(middle), np.float32(np.inf)))
    edges = edges[np.isfinite(edges)]  # the largest float has no successor
    edges.sort()
    return np.asarray(edges[np.append(True, edges[1:] != edges[:-1])])


def _quantiles(
    ascending: npt.NDArray[np.float32], levels: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return linearly interpolated quantiles of sorted values."""
    position = levels * (len(ascending) - 1)
    low = position.astype(np.int64)
    below, above = ascending[[low, np.minimum(low + 1, len(ascending) - 1)]].astype(np.float64)
    return np.asarray(below + (above - below) * (position - low))


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bucket edges of each column (arXiv 2201.11853: bucket index of float features).

    Attributes
    ----------
    edges : tuple of ndarray
        Sorted, one array per column; a value v falls into bucket 1 + number of edges <= v.
    """

    edges: tuple[npt.NDArray[np.float32], ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of bucket numbers of each column, including "missing"."""
        return tuple(len(edges) + 2 for edges in self.edges)

    @classmethod
    def fit(cls, values: npt.NDArray[np.float32]) -> Self:
        """Compute the edges of each column of training values, shape (..., n_columns)."""
        columns = _columns(values)
        edges = [np.empty(0, dtype=np.float32)] * len(columns)

        def fit(first: int, last: int) -> None:
            edges[first:last] = [_edges(column) for column in columns[first:last]]

        parallel_for(fit, len(columns))
        return cls(tuple(edges))

    @classmethod
    def from_lists(cls, saved: Sequence[Sequence[float]]) -> Self:
        """Restore saved edges.

        Raises
        ------
        ValueError
            If edges do not increase, or there are more than a byte can number.
        """
        edges = tuple(np.array(column, dtype=np.float32) for column in saved)
        for column in edges:
            if column.ndim != 1 or len(column) > _MAX_BYTE_EDGES or not (np.diff(column) > 0).all():
                raise ValueError(f"edges {column[:5]} ..., expected at most 253 increasing values")
        return cls(edges)

    def encode(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """Return the bucket numbers, in the shape of `values`.

        Examples
        --------
        >>> buckets = Buckets((np.array([1.5], np.float32),))
        >>> buckets.encode(np.array([[1.0], [2.0], [np.nan]], np.float32)).ravel().tolist()
        [1, 2, 0]
        """
        numbers = np.empty(values.shape, dtype=np.uint8)
        rows = numbers.reshape(math.prod(values.shape[:-1]), values.shape[-1])
        count = np.array([len(edges) for edges in self.edges], dtype=np.int64)
        padded = np.zeros((len(count), count.max(initial=0)), dtype=np.float32)
        for line, edges in zip(padded, self.edges, strict=True):
            line[: len(edges)] = edges
        columns = _columns(values)
        parallel_for(lambda a, b: _bucket(columns, padded, count, a, b, rows), len(count))
        return numbers


def _columns(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return values of shape (..., n_columns) as an array of shape (n_columns, n)."""
    return np.moveaxis(values, -1, 0).reshape(values.shape[-1], math.prod(values.shape[:-1]))


@compiled
def _bucket(
    columns: npt.NDArray[np.float32],
    edges: npt.NDArray[np.float32],
    count: npt.NDArray[np.int64],
    first: int,
    last: int,
    numbers: npt.NDArray[np.uint8],
) -> None:
    """Count the edges at or below each value of some columns.

    There are few edges: a vectorised linear scan is faster than a binary search.
    """
    for column in range(first, last):
        line = edges[column]
        for i in range(columns.shape[1]):
            value, reached = columns[column, i], 0
            for j in range(count[column]):
                reached += line[j] <= value
            numbers[i, column] = 0 if np.isnan(value) else reached + 1

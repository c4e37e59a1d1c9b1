"""Buckets: every value becomes a small integer, 0 for "missing"."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.threads import in_threads

__all__ = ["Buckets"]

_MOST = 62
_TAILS = (0.001, 0.005, 0.995, 0.999)
_SAMPLE = 200_000


def _edges(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return at most `_MOST` edges: between few distinct values, else at quantiles."""
    finite = values[np.isfinite(values)]
    finite = np.sort(finite[:: max(1, len(finite) // _SAMPLE)])
    distinct = finite[np.append(True, finite[1:] != finite[:-1])[: len(finite)]]
    if len(distinct) <= _MOST + 1:
        return np.asarray(distinct[1:] / 2 + distinct[:-1] / 2, dtype=np.float32)
    # A counter rests most of the time: its rest value must not swallow all the quantiles.
    middle = _quantiles(finite, np.array([0.5]))[0]
    moving = finite[finite != middle]
    source = moving if 2 * len(moving) < len(finite) else finite
    levels = np.concatenate([np.linspace(0, 1, _MOST - len(_TAILS) + 1)[1:-1], _TAILS])
    edges = _quantiles(source, np.sort(levels)).astype(np.float32)
    if source is moving:
        edges = np.append(edges, np.nextafter(np.float32(middle), np.float32(np.inf)))
    return np.unique(edges)


def _quantiles(
    ascending: npt.NDArray[np.float32], levels: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return quantiles of sorted values, between two of them by a straight line."""
    place = levels * (len(ascending) - 1)
    low = place.astype(np.int64)
    below, above = ascending[[low, np.minimum(low + 1, len(ascending) - 1)]].astype(np.float64)
    return np.asarray(below + (above - below) * (place - low))


@dataclass(frozen=True, slots=True)
class Buckets:
    """Edges of the buckets of each column (arXiv 2201.11853: bucket index of float features).

    Attributes
    ----------
    edges : tuple of ndarray
        Sorted, one array per column; a value v falls into bucket 1 + number of edges <= v.
    """

    edges: tuple[npt.NDArray[np.float32], ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """Number of bucket numbers of each column, "missing" counted."""
        return tuple(len(edges) + 2 for edges in self.edges)

    @classmethod
    def fit(cls, values: npt.NDArray[np.float32]) -> Self:
        """Choose the edges of every column of training values, shape (..., n_columns)."""
        return cls(tuple(in_threads(_edges, _columns(values))))

    def encode(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
        """Return the bucket numbers, of the shape of `values`.

        Examples
        --------
        >>> buckets = Buckets((np.array([1.5], np.float32),))
        >>> buckets.encode(np.array([[1.0], [2.0], [np.nan]], np.float32)).ravel().tolist()
        [1, 2, 0]
        """
        numbers = np.empty(values.shape, dtype=np.uint8)
        rows = numbers.reshape(math.prod(values.shape[:-1]), values.shape[-1])

        def fill_in(column: tuple[int, npt.NDArray[np.float32]]) -> None:
            number, readings = column
            _bucket(readings, self.edges[number], rows[:, number])

        in_threads(fill_in, enumerate(_columns(values)))
        return numbers


def _columns(values: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """Return the columns of values of shape (..., n_columns), each of shape (n,)."""
    return [values[..., i].ravel() for i in range(values.shape[-1])]


@compiled
def _bucket(
    values: npt.NDArray[np.float32],
    edges: npt.NDArray[np.float32],
    numbers: npt.NDArray[np.uint8],
) -> None:
    """Find the bucket of every value by halving the edges."""
    for i in range(len(values)):
        low, high = 0, len(edges)
        while low < high:
            middle = (low + high) // 2
            if edges[middle] <= values[i]:
                low = middle + 1
            else:
                high = middle
        numbers[i] = 0 if np.isnan(values[i]) else low + 1

"""Scoring of many instances in batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.threads import map_threads

__all__ = ["row_batches", "score_in_batches"]


_BATCH_ROWS = 16_384  # a table of floats is four to eight times the size of the buckets


def row_batches(n: int) -> list[slice]:
    """Return the rows [0, n) in batches that need little memory compared with the instances."""
    return [slice(start, start + _BATCH_ROWS) for start in range(0, n, _BATCH_ROWS)]


def score_in_batches(score: Callable[[slice], Float64Array], n: int) -> Float64Array:
    """Return the scores of n instances, scoring several batches in parallel.

    Parameters
    ----------
    score : callable
        Returns the scores of some rows, independent of all other rows.
    n : int
    """
    parts = map_threads(score, row_batches(n))
    return np.concatenate([np.zeros(0), *parts])

"""Scoring of many instances, part by part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from forewarn.features.threads import in_threads

__all__ = ["in_parts", "row_parts"]

Floats = npt.NDArray[np.float64]

_ROWS_AT_ONCE = 16_384  # a table of floats is four to eight times the size of the buckets


def row_parts(n: int) -> list[slice]:
    """Return the rows [0, n) in parts that are small beside the instances themselves."""
    return [slice(start, start + _ROWS_AT_ONCE) for start in range(0, n, _ROWS_AT_ONCE)]


def in_parts(score: Callable[[slice], Floats], n: int) -> Floats:
    """Return the scores of n instances, several parts at a time.

    Parameters
    ----------
    score : callable
        Returns the scores of some rows; it depends on no others.
    n : int
    """
    parts = in_threads(score, row_parts(n))
    return np.concatenate([np.zeros(0), *parts])

"""The event codes seen on most GPUs; counting GPUs limits the influence of a single noisy one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forewarn.features.records.hourly_sums import HourlyGrid

__all__ = ["codes_by_gpu", "most_frequent_codes"]

_MAX_CODES = 8


def codes_by_gpu(grid: HourlyGrid, codes: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return each code once for every GPU with that code.

    Parameters
    ----------
    grid : HourlyGrid
    codes : ndarray of shape (n,)
        Codes of all records of the grid.
    """
    rows = np.flatnonzero((codes != 0) & (grid.cell >= 0))
    gpu = grid.cell[rows] // grid.shape[1]
    # A pair of code and GPU is encoded as one number, because sorting numbers is far faster.
    pairs = np.unique(codes[rows].astype(np.int64) * grid.shape[0] + gpu)
    return np.asarray(pairs // grid.shape[0])


def most_frequent_codes(shown: Sequence[npt.NDArray[np.int64]]) -> tuple[int, ...]:
    """Return the codes seen on most GPUs of all slices, sorted.

    Examples
    --------
    >>> most_frequent_codes([np.array([13, 48]), np.array([48])])
    (13, 48)
    """
    none = np.zeros(0, dtype=np.int64)
    frequent, counts = np.unique(np.concatenate([none, *shown]), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MAX_CODES]
    return tuple(int(code) for code in np.sort(frequent[most]))

"""The event codes that most GPUs have shown: one chatty GPU must not choose them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.records.stretches import Stretch

__all__ = ["codes_shown", "most_shown"]

_MOST_CODES = 8


def codes_shown(grid: HourlyGrid, codes: Stretch) -> npt.NDArray[np.int64]:
    """Return each code once for every GPU that has shown it.

    Parameters
    ----------
    grid : HourlyGrid
    codes : Stretch
        Of a column that holds the rows that the grid is about.
    """
    rows = codes.between(grid.low, grid.high).rows_not_zero()
    cells = grid.cells.at(rows)
    rows, cells = rows[cells >= 0], cells[cells >= 0]
    gpu = grid.gpu_of_cells(cells)
    # Each pair of code and GPU as one number: sorting those is far faster than sorting pairs.
    pairs = np.unique(codes.at(rows).astype(np.int64) * grid.shape[0] + gpu)
    return np.asarray(pairs // grid.shape[0])


def most_shown(shown: Sequence[npt.NDArray[np.int64]]) -> tuple[int, ...]:
    """Return the codes that most GPUs of all slices have shown, sorted.

    Examples
    --------
    >>> most_shown([np.array([13, 48]), np.array([48])])
    (13, 48)
    """
    none = np.zeros(0, dtype=np.int64)
    frequent, counts = np.unique(np.concatenate([none, *shown]), return_counts=True)
    most = np.argsort(-counts, kind="stable")[:_MOST_CODES]
    return tuple(int(code) for code in np.sort(frequent[most]))

"""The cell of each row, GPU by hour."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["BlockCells", "CellShape", "RowCells", "cell_range"]

IntArray = npt.NDArray[np.int64]


class CellShape(NamedTuple):
    """How hours of GPUs are numbered as cells.

    Attributes
    ----------
    n_gpus, n_hours : int
    bucket : int
        Nanoseconds of an hour.
    first : int
        Number of the first hour since 1970.
    gpu_after_gpu : bool
        Or else hour after hour: what is added one after another is to lie together.
    """

    n_gpus: int
    n_hours: int
    bucket: int
    first: int
    gpu_after_gpu: bool

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.n_gpus * self.n_hours

    @property
    def steps(self) -> tuple[int, int]:
        """How far it is from a cell to that of the next GPU, and to that of the next hour."""
        return (self.n_hours, 1) if self.gpu_after_gpu else (1, self.n_gpus)


class RowCells(NamedTuple):
    """The cell of each row as read, where rows are scattered.

    Attributes
    ----------
    low : int
        First of the rows.
    cell : ndarray of shape (n,), int32 or int64
        -1 for rows that do not count.
    """

    low: int
    cell: IntArray

    @property
    def high(self) -> int:
        """One more than the last row."""
        return self.low + len(self.cell)

    def at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the cells of some rows as read."""
        return np.asarray(self.cell[rows - self.low])

    def between(self, low: int, high: int) -> RowCells:
        """Return the cells of the rows [low, high)."""
        return RowCells(low, self.cell[low - self.low : high - self.low])


class BlockCells(NamedTuple):
    """The cell of each block of rows as read: rows of one cell, one after another.

    Attributes
    ----------
    begin : ndarray of shape (n + 1,), int32 or int64
        First row of each, and one more than the last row.
    cell : ndarray of shape (n,), int32 or int64
        -1 for rows that do not count.
    """

    begin: IntArray
    cell: IntArray

    @property
    def low(self) -> int:
        """First of the rows."""
        return int(self.begin[0])

    @property
    def high(self) -> int:
        """One more than the last row."""
        return int(self.begin[-1])

    def at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the cells of some rows as read."""
        # Numbers of the same width: others make it copy all of them first.
        rows = rows.astype(self.begin.dtype)
        return np.asarray(self.cell[np.searchsorted(self.begin, rows, side="right") - 1])

    def between(self, low: int, high: int) -> BlockCells:
        """Return the blocks of the rows [low, high), of which there is one."""
        width = self.begin.dtype.type
        first = int(np.searchsorted(self.begin, width(low), side="right")) - 1
        last = int(np.searchsorted(self.begin, width(high)))
        begin = self.begin[first : last + 1]
        if begin[0] < low or begin[-1] > high:  # seldom: where files begin, blocks do
            begin = np.clip(begin, low, high)
        return BlockCells(begin, self.cell[first:last])


@compiled
def cell_range(cells: IntArray) -> tuple[int, int]:
    """Return the lowest of some cells and one more than the highest; -1 is none of them."""
    lowest, highest = 2**62, -1
    for cell in cells:
        if cell >= 0:
            lowest, highest = min(lowest, int(cell)), max(highest, int(cell))
    return min(lowest, highest + 1), highest + 1

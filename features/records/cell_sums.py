"""Loops that add a column up by cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = [
    "CellSums",
    "CellWindow",
    "FewPlaces",
    "add_blocks_up",
    "add_up",
    "in_gpu_order",
]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_TILE = 32  # numbers of eight bytes: 8 KiB of each array


class CellWindow(NamedTuple):
    """Some hours of all GPUs, whose sums are in memory: GPU after GPU.

    Attributes
    ----------
    n_gpus, n_hours : int
        Of all cells (`CellShape`).
    gpu_after_gpu : bool
        How cells are numbered where values are added up.
    first, width : int
        The first hour, and how many there are.
    first_cell : int
        Where values are added hour after hour: the cell that the sums begin with.
    """

    n_gpus: int
    n_hours: int
    gpu_after_gpu: bool
    first: int
    width: int
    first_cell: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of GPUs and of hours."""
        return self.n_gpus, self.width

    def cells(self, places: IntArray) -> IntArray:
        """Return the cells, numbered GPU after GPU, of some places among the sums."""
        gpu, hour = np.divmod(places.astype(np.int64), self.width)
        return np.asarray(gpu * self.n_hours + hour + self.first)


class FewPlaces(NamedTuple):
    """Numbers of which nearly all are 0: those that are not are noted, so that none is looked for.

    Attributes
    ----------
    value : ndarray of shape (n,)
    places : ndarray of shape (n,)
        Room for the places that are no longer 0; some twice, if they were 0 in between.
    n_noted : ndarray of shape (1,), int64
    """

    value: npt.NDArray[Any]
    places: IntArray
    n_noted: IntArray

    @classmethod
    def of(cls, n: int, kind: type[np.generic]) -> FewPlaces:
        """Begin with 0 everywhere."""
        places: IntArray = np.empty(n, dtype=np.int32 if n < 2**31 else np.int64)
        return cls(np.zeros(n, dtype=kind), places, np.zeros(1, dtype=np.int64))

    def of_size(self, n: int, kind: type[np.generic]) -> FewPlaces:
        """Return n places that hold 0, these if they are as many."""
        return self if len(self.value) == n else FewPlaces.of(n, kind)

    def noted(self) -> tuple[IntArray, npt.NDArray[Any]]:
        """Return the places that are not 0, rising, and what is there; put 0 everywhere again."""
        n = int(self.n_noted[0])
        if n < len(self.places):
            some = np.sort(self.places[:n])
            some = some[(self.value[some] != 0) & np.append(True, some[1:] != some[:-1])[:n]]
        else:  # some may have found no room
            some = np.flatnonzero(self.value)
        value = self.value[some]
        self.forget()
        return some, value

    def forget(self) -> None:
        """Put 0 everywhere again."""
        n = int(self.n_noted[0])
        self.value[self.places[:n] if n < len(self.places) else slice(None)] = 0
        self.n_noted[0] = 0


class CellSums(NamedTuple):
    """What values are added to.

    Attributes
    ----------
    window : CellWindow
    levels : ndarray of shape (2, n_cells), or (2, 0)
        Sums of values and of their squares; none where values are counted.
    counts : FewPlaces
        Sums of what is counted, by place in the window.
    lost : FewPlaces
        How many rows of each place have no reading.
    """

    window: CellWindow
    levels: DoubleArray
    counts: FewPlaces
    lost: FewPlaces


@compiled
def _place_of(window: CellWindow, cell: int) -> int:
    """Return the place of a cell in a window."""
    if window.gpu_after_gpu:
        return cell - cell // window.n_hours * (window.n_hours - window.width) - window.first
    return cell % window.n_gpus * window.width + cell // window.n_gpus - window.first


@compiled
def _lose(sums: CellSums, cell: int, n_rows: int) -> None:
    """Note rows of a cell without a reading."""
    lost, target = sums.lost, _place_of(sums.window, cell)
    if lost.value[target] == 0:
        lost.places[lost.n_noted[0]] = target
        lost.n_noted[0] += 1
    lost.value[target] += n_rows


@compiled
def _count(sums: CellSums, cell: int, value: float) -> None:
    """Add to the sum of a cell what a row of it counts; NaN is a reading that is lost."""
    if np.isnan(value):
        _lose(sums, cell, 1)
        return
    counts, target = sums.counts, _place_of(sums.window, cell)
    total = counts.value[target]
    if total == 0 and counts.n_noted[0] < len(counts.places):
        counts.places[counts.n_noted[0]] = target
        counts.n_noted[0] += 1
    counts.value[target] = total + value


@compiled
def add_up(values: npt.NDArray[np.float32], cell_as_read: IntArray, sums: CellSums) -> None:
    """Add values up by cell: levels to sums that lie as cells are numbered, or counts."""
    if not sums.levels.size:  # what counts is 0 nearly always: its cell need not be looked up
        for row in range(len(values)):
            if values[row] != 0 and cell_as_read[row] >= 0:
                _count(sums, cell_as_read[row], np.float64(values[row]))
        return
    totals, squares = sums.levels[0], sums.levels[1]
    low = high = base = 0
    for row in range(len(values)):
        value, cell = np.float64(values[row]), cell_as_read[row]
        if cell >= 0 and not np.isnan(value):
            if not low <= cell < high:
                low, high, base = _line_of(sums.window, cell)
            target = np.uint64(cell - base)  # of no sign, so that none is looked for
            totals[target] += value
            squares[target] += value * value
        elif cell >= 0:
            _lose(sums, cell, 1)


@compiled
def _line_of(window: CellWindow, cell: int) -> tuple[int, int, int]:
    """Return the first of the cells around one, the end of them, and what they lie apart by.

    That is how much more the number of a cell is than its place where values are added up.
    """
    if not window.gpu_after_gpu:
        return 0, 2**62, window.first_cell
    low = cell // window.n_hours * window.n_hours
    return low, low + window.n_hours, cell - _place_of(window, cell)


@compiled
def add_blocks_up(
    values: npt.NDArray[np.float32], begin: IntArray, cell_of_block: IntArray, sums: CellSums
) -> None:
    """Do the same with rows that lie in blocks (`BlockCells`), to the same bits.

    `values` are those from the first block on.
    """
    if not sums.levels.size:
        _count_blocks(values, begin, cell_of_block, sums)
        return
    totals, squares = sums.levels[0], sums.levels[1]
    end = np.uint64(0)  # of no sign, so that none is looked for
    low = high = base = 0
    for number in range(len(cell_of_block)):
        first, end = end, np.uint64(begin[number + 1] - begin[0])
        cell = cell_of_block[number]
        if cell < 0:
            continue
        if not low <= cell < high:
            low, high, base = _line_of(sums.window, cell)
        target = np.uint64(cell - base)
        total, square = totals[target], squares[target]
        for row in range(first, end):
            value = np.float64(values[row])
            total += value
            square += value * value
        if np.isnan(total):  # seldom: so that it is not asked of each row
            total, square, n_rows = _add_read(values[first:end], totals[target], squares[target])
            if n_rows:
                _lose(sums, cell, n_rows)
        squares[target] = square
        totals[target] = total


@compiled
def _count_blocks(
    values: npt.NDArray[np.float32], begin: IntArray, cell_of_block: IntArray, sums: CellSums
) -> None:
    """Look for what is not 0 first: the block of a row is seldom asked for."""
    number = 0
    for row in range(len(values)):
        if values[row] != 0:
            while begin[number + 1] - begin[0] <= row:
                number += 1
            if cell_of_block[number] >= 0:
                _count(sums, cell_of_block[number], np.float64(values[row]))


@compiled
def _add_read(
    values: npt.NDArray[np.float32], total: float, square: float
) -> tuple[float, float, int]:
    """Add values and their squares to sums; return how many are missing, too."""
    lost = 0
    for number in range(len(values)):
        value = np.float64(values[number])
        if np.isnan(value):
            lost += 1
        else:
            total += value
            square += value * value
    return total, square, lost


@compiled
def in_gpu_order(by_hour: DoubleArray, by_gpu: DoubleArray) -> None:
    """Copy cells of shape (k, n_hours, n_gpus) into those of shape (k, n_gpus, n_hours).

    Tile by tile, so that a line of either is in the nearest cache while it is worked on.
    """
    n, n_hours, n_gpus = by_hour.shape
    for k in range(n):
        for hours in range(0, n_hours, _TILE):
            for gpus in range(0, n_gpus, _TILE):
                for hour in range(hours, min(hours + _TILE, n_hours)):
                    some = by_hour[k, hour, gpus : gpus + _TILE]
                    for gpu in range(len(some)):
                        by_gpu[k, gpus + gpu, hour] = some[gpu]

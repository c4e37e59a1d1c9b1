"""The rows of all GPUs in a line: by GPU and time, no doubles, lone missing records filled in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.duration import duration_in_words
from forewarn.features.records.table import BoolArray, CodeArray, FloatArray, IntArray, RecordsError

__all__ = ["CleanRows", "add_increases", "goes_back"]


class CleanRows(NamedTuple):
    """Rows by GPU and time, and what was left out or filled in.

    Attributes
    ----------
    order : ndarray of shape (n,), int32, or int64 where that is too small
        Row in the columns as read; of a filled row, the one before.
    gpu : ndarray of shape (n,), int32
    time : ndarray of shape (n,), int64
    failed, filled : ndarray of shape (n,), bool
    counted : ndarray of shape (n_read,), bool
        Which rows of the columns as read are in the line.
    doubled, too_close, gaps : int
        Rows left out, and gaps of more than one record.
    """

    order: IntArray
    gpu: CodeArray
    time: IntArray
    failed: BoolArray
    filled: BoolArray
    counted: BoolArray
    doubled: int
    too_close: int
    gaps: int

    @classmethod
    def of(cls, gpu: CodeArray, time: IntArray, failed: BoolArray, interval: int) -> CleanRows:
        """Bring rows that lie in order of time for each GPU into line.

        Parameters
        ----------
        gpu, time, failed : ndarray of shape (n_read,)
            As read; gpu -1 stands for a row to leave out. Of two rows of one GPU and time the
            later one wins.
        interval : int
            Nanoseconds between two records of a GPU.

        Raises
        ------
        RecordsError
            If the median spacing is off by more than half an interval.
        """
        n_gpus = int(gpu.max(initial=-1)) + 1
        won = gpu.copy()
        spacing = _won(gpu, time, interval, n_gpus, won)
        if 2 * max(spacing.short, spacing.long) > spacing.number:
            order = np.argsort(won, kind="stable")
            apart = np.diff(time[order])[(np.diff(won[order]) == 0) & (won[order][1:] >= 0)]
            raise RecordsError(
                f"records are {duration_in_words(np.median(apart) / 1e9)} apart (median), expected "
                f"`records.interval` = {duration_in_words(interval / 1e9)} within one half."
            )
        room, n_rows, gaps = _rooms(won, time, failed, interval, n_gpus)
        n, counted = int(n_rows.sum()), room > 0
        line = cls(
            order=np.empty(n, dtype=np.int32 if len(gpu) < 2**31 else np.int64),
            gpu=np.repeat(np.arange(n_gpus, dtype=np.int32), n_rows),
            time=np.empty(n, dtype=np.int64),
            failed=np.empty(n, dtype=np.bool_),
            filled=np.full(n, False),
            counted=counted,
            doubled=int(np.count_nonzero(won != gpu)),
            too_close=int(np.count_nonzero(won >= 0) - np.count_nonzero(counted)),
            gaps=gaps,
        )
        _lay(room, n_rows, (won, time, failed), interval, line)
        return line


class _Spacing(NamedTuple):
    """Counts of spacings, of those that are too short and of those that are too long."""

    number: int
    short: int
    long: int


@compiled
def goes_back(gpu: CodeArray, time: IntArray, n_gpus: int) -> bool:
    """Tell whether a row is earlier than one of the same GPU before it."""
    last = np.full(n_gpus, np.iinfo(np.int64).min)
    for row in range(len(gpu)):
        if gpu[row] >= 0:
            if time[row] < last[gpu[row]]:
                return True
            last[gpu[row]] = time[row]
    return False


@compiled
def _won(gpu: CodeArray, time: IntArray, interval: int, n_gpus: int, won: CodeArray) -> _Spacing:
    """Set the earlier ones of equal rows to -1 in `won`, and look at the spacings."""
    last = np.full(n_gpus, -1)
    number = short = long = 0
    for row in range(len(gpu)):
        number_of_gpu = gpu[row]
        if number_of_gpu < 0:
            continue
        if last[number_of_gpu] >= 0:
            apart = time[row] - time[last[number_of_gpu]]
            if apart == 0:
                won[last[number_of_gpu]] = -1
            else:
                number += 1
                short += apart * 2 < interval
                long += apart * 2 > 3 * interval
        last[number_of_gpu] = row
    return _Spacing(number, short, long)


@compiled
def _rooms(
    gpu: CodeArray, time: IntArray, failed: BoolArray, interval: int, n_gpus: int
) -> tuple[npt.NDArray[np.uint8], IntArray, int]:
    """Return how many places each row takes, how many each GPU does, and the number of gaps.

    A row too close takes none, one after a lone missing record two.
    """
    room, n_rows, gaps = np.zeros(len(gpu), dtype=np.uint8), np.zeros(n_gpus, dtype=np.int64), 0
    last = np.zeros(n_gpus, dtype=np.int64)
    for row in range(len(gpu)):
        number = gpu[row]
        if number < 0:
            continue
        room[row] = 1
        if n_rows[number]:
            apart = time[row] - last[number]
            # A failed record is kept however close it is: it may be all that tells of a failure.
            if apart * 2 < interval and not failed[row]:
                room[row] = 0
                continue
            if apart * 2 >= 5 * interval:
                gaps += 1
            elif apart * 2 >= 3 * interval:
                room[row] = 2
        n_rows[number] += room[row]
        last[number] = time[row]
    return room, n_rows, gaps


@compiled
def _lay(
    room: npt.NDArray[np.uint8],
    n_rows: IntArray,
    rows: tuple[CodeArray, IntArray, BoolArray],
    interval: int,
    line: CleanRows,
) -> None:
    """Put every row where it belongs."""
    gpu, time, failed = rows
    free = np.cumsum(n_rows) - n_rows
    for row in range(len(gpu)):
        if room[row] == 0:
            continue
        target = free[gpu[row]]
        if room[row] == 2:
            line.order[target] = line.order[target - 1]
            line.time[target] = line.time[target - 1] + interval
            line.failed[target], line.filled[target] = line.failed[target - 1], True
            target += 1
        line.order[target], line.time[target], line.failed[target] = row, time[row], failed[row]
        free[gpu[row]] = target + 1


@compiled
def add_increases(
    values: npt.NDArray[np.float64],
    gpu: CodeArray,
    counted: BoolArray,
    before: npt.NDArray[np.float64],
    gained: FloatArray,
) -> None:
    """Find what a counter gained since the record before; a fall is a restart from zero.

    Parameters
    ----------
    values : ndarray of shape (n,), float64
        In order of time for each GPU.
    gpu, counted : ndarray of shape (n,)
        Rows that do not count are looked through.
    before : ndarray of shape (n_gpus,), float64
        The last value of each GPU, NaN if there is none; brought up to date.
    gained : ndarray of shape (n,), float32
        Filled in: NaN where the value, or the one before, is unknown.
    """
    for row in range(len(values)):
        gained[row] = np.nan
        if counted[row]:
            more = values[row] - before[gpu[row]]
            before[gpu[row]] = values[row]
            gained[row] = values[row] if more < 0 else more

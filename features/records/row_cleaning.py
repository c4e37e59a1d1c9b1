"""The rows of all GPUs in a line: by GPU and time, no doubles, lone missing records filled in."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.duration import duration_in_words
from forewarn.features.records.line import Line
from forewarn.features.records.table import BoolArray, CodeArray, FloatArray, IntArray, RecordsError
from forewarn.features.threads import in_parallel

TimeArray = npt.NDArray[np.int32] | IntArray

__all__ = ["CleanRows", "Spacing", "Spacings", "add_increases", "goes_back"]

_BEFORE_ALL = np.iinfo(np.int64).min


class CleanRows(NamedTuple):
    """Rows by GPU and time, and what was left out or filled in.

    Attributes
    ----------
    order : ndarray of shape (n,), int32, or int64 where that is too small
        Row in the columns as read; of a filled row, the one before.
    n_rows : ndarray of shape (n_gpus,)
        Rows of each GPU.
    time : ndarray of shape (n,)
    unit : int
        Nanoseconds that a unit of `time` stands for.
    failed, filled : ndarray of shape (n,), bool
    counted : ndarray of shape (n_read,), bool
        Which rows of the columns as read are in the line.
    doubled, too_close, gaps : int
        Rows left out, and gaps of more than one record.
    """

    order: IntArray
    n_rows: IntArray
    time: TimeArray
    unit: int
    failed: BoolArray
    filled: BoolArray
    counted: BoolArray
    doubled: int
    too_close: int
    gaps: int

    def line(self) -> Line:
        """Return the runs of the rows."""
        gpu = np.arange(len(self.n_rows), dtype=np.int32)
        life = np.append(0, np.cumsum(self.n_rows))
        rows = self.time, self.order, self.failed, self.filled
        return Line.of_lives(gpu, life, *rows, unit=self.unit)

    @classmethod
    def of(
        cls,
        gpu: CodeArray,
        time: TimeArray,
        failed: BoolArray,
        interval: int,
        unit: int = 1,
        spacings: Spacings | None = None,
    ) -> CleanRows:
        """Bring rows that lie in order of time for each GPU into line.

        Parameters
        ----------
        gpu, time, failed : ndarray of shape (n_read,)
            As read; gpu -1 stands for a row to leave out. Of two rows of one GPU and time the
            later one wins: `gpu` is set to -1 where the other one was.
        interval : int
            Nanoseconds between two records of a GPU.
        unit : int
            Nanoseconds that a unit of `time` stands for; the interval is a multiple of it.
        spacings : Spacings, optional
            Of all slices of a fleet; without it the rows are all there are.

        Raises
        ------
        RecordsError
            If the median spacing is off by more than half an interval.
        """
        n_gpus = int(gpu.max(initial=-1)) + 1
        units = interval // unit
        spacing = _drop_doubles(gpu, time, units, n_gpus)
        (spacings or Spacings(whole=True)).add(spacing, (gpu, time), (interval, unit))
        room = np.full(len(gpu), 0, dtype=np.uint8)
        n_rows, gaps, too_close = _rooms(gpu, time, failed, units, n_gpus, room)
        n = int(n_rows.sum())
        line = cls(
            order=np.empty(n, dtype=np.int32 if len(gpu) < 2**31 else np.int64),
            n_rows=n_rows,
            time=np.empty(n, dtype=time.dtype),
            unit=unit,
            failed=np.empty(n, dtype=np.bool_),
            filled=np.full(n, False),
            counted=room.view(np.bool_),
            doubled=spacing.doubled,
            too_close=too_close,
            gaps=gaps,
        )
        free = np.cumsum(n_rows) - n_rows

        def lay(first: int, last: int) -> None:
            _lay(room, free, (first, last), (gpu, time, failed), units, line)

        in_parallel(lay, n_gpus)  # rows lie by time, and so each goes to another place
        np.minimum(room, 1, out=room)
        return line


class Spacing(NamedTuple):
    """Counts of spacings, of those that are too short or too long, and of doubled rows."""

    number: int
    short: int
    long: int
    doubled: int

    @property
    def is_odd(self) -> bool:
        """Whether most are too short, or most too long."""
        return 2 * max(self.short, self.long) > self.number


class Spacings:
    """Whether the spacing of records fits the interval, asked of all parts of a fleet together.

    A part is a slice of GPUs or a span of time.

    Parameters
    ----------
    whole : bool
        There is one slice: it is refused at once.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole, self._counts = whole, np.zeros(3, dtype=np.int64)
        self._odd: RecordsError | None = None
        self._lock = Lock()

    def add(
        self,
        spacing: Spacing,
        rows: tuple[CodeArray, TimeArray],
        interval_and_unit: tuple[int, int],
    ) -> None:
        """Count the spacings of a slice."""
        # If most are odd in all slices together, then in one of them.
        odd = _odd_spacing(rows, *interval_and_unit) if spacing.is_odd else None
        self.count(spacing)
        with self._lock:
            self._odd = self._odd or odd
        if odd is not None and self._whole:
            raise odd

    def count(self, spacing: Spacing) -> None:
        """Count the spacings of a slice, most of which are not odd."""
        with self._lock:
            self._counts += spacing[:3]

    def check(self, name: str) -> None:
        """Refuse the records of all slices that were added.

        Parameters
        ----------
        name : str
            Where they come from, for the message.

        Raises
        ------
        RecordsError
            If the median spacing is off by more than half an interval.
        """
        if self._odd is not None and Spacing._make([*self._counts.tolist(), 0]).is_odd:
            raise RecordsError(f"{name}: {self._odd}")


def _odd_spacing(rows: tuple[CodeArray, TimeArray], interval: int, unit: int) -> RecordsError:
    gpu, time = rows
    order = np.argsort(gpu, kind="stable")
    apart = np.diff(time[order])[(np.diff(gpu[order]) == 0) & (gpu[order][1:] >= 0)]
    median = duration_in_words(np.median(apart) * unit / 1e9)
    return RecordsError(
        f"records are {median} apart (median), expected "
        f"`records.interval` = {duration_in_words(interval / 1e9)} within one half."
    )


@compiled
def goes_back(gpu: CodeArray, time: TimeArray, n_gpus: int) -> bool:
    """Tell whether a row is earlier than one of the same GPU before it."""
    last = np.full(n_gpus, _BEFORE_ALL)
    for row in range(len(gpu)):
        if gpu[row] >= 0:
            if time[row] < last[gpu[row]]:
                return True
            last[gpu[row]] = time[row]
    return False


@compiled
def _drop_doubles(gpu: CodeArray, time: TimeArray, interval: int, n_gpus: int) -> Spacing:
    """Set the earlier ones of equal rows to -1 in `gpu`, and look at the spacings."""
    last = np.full(n_gpus, -1)
    number = short = long = doubled = 0
    for row in range(len(gpu)):
        number_of_gpu = gpu[row]
        if number_of_gpu < 0:
            continue
        if last[number_of_gpu] >= 0:
            apart = np.int64(time[row]) - time[last[number_of_gpu]]
            if apart == 0:
                gpu[last[number_of_gpu]] = -1
                doubled += 1
            else:
                number += 1
                short += apart * 2 < interval
                long += apart * 2 > 3 * interval
        last[number_of_gpu] = row
    return Spacing(number, short, long, doubled)


@compiled
def _rooms(
    gpu: CodeArray,
    time: TimeArray,
    failed: BoolArray,
    interval: int,
    n_gpus: int,
    room: npt.NDArray[np.uint8],
) -> tuple[IntArray, int, int]:
    """Put into `room` how many places each row takes; return how many each GPU does.

    A row too close takes none, one after a lone missing record two. The number of gaps and that of
    rows too close follow.
    """
    n_rows, last = np.zeros(n_gpus, dtype=np.int64), np.zeros(n_gpus, dtype=np.int64)
    gaps = too_close = 0
    for row in range(len(gpu)):
        number = gpu[row]
        if number < 0:
            continue
        room[row] = 1
        if n_rows[number]:
            apart = np.int64(time[row]) - last[number]
            # A failed record is kept however close it is: it may be all that tells of a failure.
            if apart * 2 < interval and not failed[row]:
                room[row] = 0
                too_close += 1
                continue
            if apart * 2 >= 5 * interval:
                gaps += 1
            elif apart * 2 >= 3 * interval:
                room[row] = 2
        n_rows[number] += room[row]
        last[number] = time[row]
    return n_rows, gaps, too_close


@compiled
def _lay(
    room: npt.NDArray[np.uint8],
    free: IntArray,
    gpus: tuple[int, int],
    rows: tuple[CodeArray, TimeArray, BoolArray],
    interval: int,
    line: CleanRows,
) -> None:
    """Put every row of some GPUs where it belongs: the next place of its own that is free."""
    gpu, time, failed = rows
    for row in range(len(gpu)):
        if room[row] == 0 or not gpus[0] <= gpu[row] < gpus[1]:
            continue
        target = free[gpu[row]]
        if room[row] == 2:
            line.order[target] = line.order[target - 1]
            line.time[target] = line.time[target - 1] + interval
            line.failed[target], line.filled[target] = line.failed[target - 1], True
            target += 1
        line.order[target], line.failed[target] = row, failed[row]
        line.time[target] = time[row]
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

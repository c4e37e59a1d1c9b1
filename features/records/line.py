"""The keys of records in a line by GPU and time, run after run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.ordering import first_from
from forewarn.features.records.spillable_array import Move
from forewarn.features.threads import in_threads, n_threads

__all__ = ["Line"]

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
_Rows = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer], BoolArray, BoolArray]

_NONE: IntArray = np.zeros(0, dtype=np.int64)
_FEWEST_PER_RUN = 8  # records that a run has on average; else their times, or rows, are kept
_FEW = 2**20  # so many records are looked through sooner than a thread has started


class Line(NamedTuple):
    """n records by GPU and time, as runs: records of one GPU, one after another, alike in state.

    A GPU that reports at a fixed interval, and whose rows lie together, has one run a file. Where
    times are uneven, or rows are scattered, those are kept for each record.

    Attributes
    ----------
    start : ndarray of shape (n_runs + 1,), int64
        First record of each run, and last n.
    gpu : ndarray of shape (n_runs,), int32
        Position in the serials.
    time, step : ndarray of shape (n_runs,), int64
        Time of its first record, and nanoseconds from each to the next.
    order : ndarray of shape (n_runs,), int64
        Row of its first record in the columns as read; the next record is the next row.
    filled : ndarray of shape (n_runs,), bool
        The records were missing and stand for the one before.
    failed : ndarray of shape (n_runs,), bool
        The records themselves say that the GPU is failed.
    alive : ndarray of shape (n_runs,), bool
        Nothing that is known says so.
    times : ndarray of shape (n,), int64, or (0,)
        Time of each record, where they are uneven; `step` says nothing then.
    rows : ndarray of shape (n,), int32 or int64, or (0,)
        Row of each record in the columns as read, where they are scattered.
    """

    start: IntArray
    gpu: CodeArray
    time: IntArray
    step: IntArray
    order: IntArray
    filled: BoolArray
    failed: BoolArray
    alive: BoolArray
    times: IntArray
    rows: IntArray

    @classmethod
    def of_rows(
        cls,
        gpu: CodeArray,
        time: IntArray,
        order: IntArray,
        failed: BoolArray,
        filled: BoolArray,
    ) -> Self:
        """Find the runs of records by GPU and time; all arrays are of shape (n,).

        Examples
        --------
        >>> no, gpu = np.full(4, False), np.array([0, 0, 0, 1], dtype=np.int32)
        >>> line = Line.of_rows(gpu, np.array([0, 10, 20, 5]), np.arange(4), no, no)
        >>> line.start.tolist(), line.time.tolist(), line.step.tolist()
        ([0, 3, 4], [0, 5], [10, 0])
        """
        changes = np.flatnonzero(np.append(True, gpu[1:] != gpu[:-1])[: len(gpu)])
        lives = gpu[changes], np.append(changes, len(gpu))
        return cls.of_lives(*lives, time, order, failed, filled)

    @classmethod
    def of_lives(
        cls,
        gpu: CodeArray,
        life: IntArray,
        time: npt.NDArray[np.integer],
        order: IntArray,
        failed: BoolArray,
        filled: BoolArray,
        *,
        unit: int = 1,
    ) -> Self:
        """Find the runs of records of k GPUs, whose first records are known (`of_rows`).

        Parameters
        ----------
        gpu : ndarray of shape (k,)
        life : ndarray of shape (k + 1,), int64
            The first record of each, and last the number of records.
        time, order, failed, filled : ndarray of shape (n,)
        unit : int
            Nanoseconds that a unit of `time` stands for.
        """
        n, rows = len(time), (time, order, failed, filled)
        for even, together in ((True, True), (True, False), (False, True), (False, False)):
            most = n // _FEWEST_PER_RUN if even or together else n
            # Few records are no reason to keep anything for each.
            runs = _runs_of_lives(life, rows, (even, together), max(most, min(n, 64)))
            if runs is not None:
                break
        assert runs is not None  # as many as there are records are never too many
        first, step = runs
        return cls(
            start=np.append(first, n),
            gpu=gpu[np.searchsorted(life, first, side="right") - 1],
            time=time[first].astype(np.int64) * unit,
            step=step * unit,
            order=order[first].astype(np.int64),
            filled=filled[first],
            failed=failed[first],
            alive=~failed[first],
            times=_NONE if even else time.astype(np.int64) * unit,
            rows=_NONE if together else order,
        )

    @classmethod
    def of_runs(
        cls,
        gpu: CodeArray,
        time: IntArray,
        step: IntArray,
        order: IntArray,
        failed: BoolArray,
        filled: BoolArray,
        n_rows: IntArray,
    ) -> Self:
        """Put runs of so many records each, by GPU and time, in a line."""
        start = np.append(0, np.cumsum(n_rows))
        return cls(start, gpu, time, step, order, filled, failed, ~failed, _NONE, _NONE)

    @property
    def n(self) -> int:
        """The number of records."""
        return int(self.start[-1])

    @property
    def n_rows(self) -> IntArray:
        """The number of records of each run."""
        return np.diff(self.start)

    @property
    def counted(self) -> BoolArray:
        """Which runs count: alive, and not filled in."""
        return self.alive & ~self.filled

    def of_each(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return what holds for each run for each record, shape (n,)."""
        return np.repeat(values, self.n_rows)

    def time_of_each(self) -> IntArray:
        """Return the time of each record, shape (n,)."""
        if len(self.times) == self.n:
            return self.times
        return _laid(self.start, self.time, self.step)

    def order_of_each(self) -> IntArray:
        """Return the row as read of each record, shape (n,)."""
        if len(self.rows) == self.n:
            return self.rows
        order = _laid(self.start, self.order, np.ones_like(self.order))
        return order if order.max(initial=0) >= 2**31 else order.astype(np.int32)

    def run_at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the run of some records, of any shape; it is quick where they rise."""
        run = np.empty(rows.shape, dtype=np.int64)
        _look_up(self.start, rows.reshape(-1), run.reshape(-1))
        return run

    def time_at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the time of some records, of any shape."""
        if len(self.times):
            return np.asarray(self.times[rows])
        run = self.run_at(rows)
        return np.asarray(self.time[run] + self.step[run] * (rows - self.start[run]))

    def order_at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the row as read of some records, of any shape."""
        if len(self.rows):
            return np.asarray(self.rows[rows])
        run = self.run_at(rows)
        return np.asarray(self.order[run] + (rows - self.start[run]))

    def read_at(self, rows: npt.NDArray[np.integer]) -> tuple[IntArray, BoolArray]:
        """Return the row as read of some records, of any shape, and which were filled in."""
        run = self.run_at(rows)
        if len(self.rows):
            return np.asarray(self.rows[rows]), self.filled[run]
        return np.asarray(self.order[run] + (rows - self.start[run])), self.filled[run]

    def run_bounds(self, n_gpus: int) -> IntArray:
        """Return the first run of every GPU and, last, the number of runs: shape (n_gpus + 1,)."""
        # Numbers of the same width: others make it copy all runs first.
        numbers = np.arange(n_gpus + 1, dtype=self.gpu.dtype)
        return np.searchsorted(self.gpu, numbers).astype(np.int64)

    @property
    def last_time(self) -> IntArray:
        """The time of the last record of each run."""
        if len(self.times):
            return self.times[self.start[1:] - 1]
        return self.time + self.step * (self.n_rows - 1)

    @property
    def extent(self) -> tuple[int, int]:
        """The stretch of rows as read that holds all records."""
        return self.extent_of(np.full(len(self.gpu), True))

    def extent_of(self, runs: BoolArray) -> tuple[int, int]:
        """Return the stretch of rows as read that holds the records of some runs."""
        if not runs.any():
            return 0, 0
        if len(self.rows):
            return _extent(self.rows, self.start, np.flatnonzero(runs))
        low, n_rows = self.order[runs], self.n_rows[runs]
        return int(low.min()), int((low + n_rows).max())

    def most_rows_from(self, moment: int) -> int:
        """Return how many records may lie at a moment or after it: no more do.

        Examples
        --------
        >>> no, gpu = np.full(4, False), np.array([0, 0, 0, 1], dtype=np.int32)
        >>> line = Line.of_rows(gpu, np.array([0, 10, 20, 5]), np.arange(4), no, no)
        >>> line.most_rows_from(10), line.most_rows_from(5)
        (2, 3)
        """
        n_rows = self.n_rows
        within = np.where(self.step > 0, (self.last_time - moment) // np.maximum(self.step, 1), 0)
        n_rows = n_rows if len(self.times) else np.minimum(n_rows, within + 1)
        return int(n_rows[self.last_time >= moment].sum())

    def rows_from(self, gpu: npt.NDArray[np.integer], moment: IntArray, n_gpus: int) -> IntArray:
        """Return the first record of each GPU at or after a moment, or the first of the next GPU.

        Parameters
        ----------
        gpu, moment : ndarray of shape (m,)
        n_gpus : int

        Examples
        --------
        >>> no, gpu = np.full(4, False), np.array([0, 0, 0, 1], dtype=np.int32)
        >>> line = Line.of_rows(gpu, np.array([0, 10, 20, 5]), np.arange(4), no, no)
        >>> line.rows_from(np.array([0, 0, 1, 1]), np.array([10, 21, 5, 6]), 2).tolist()
        [1, 3, 3, 4]
        """
        rows = np.empty(len(gpu), dtype=np.int64)
        _find_rows(self, self.run_bounds(n_gpus), gpu, moment, rows)
        return rows

    def records_of(self, as_read: IntArray) -> IntArray:
        """Return the record that each row as read is, -1 where it is none; nothing is filled in.

        Raises
        ------
        ValueError
            If rows are scattered.
        """
        if len(self.rows):
            raise ValueError("rows are scattered")
        runs = np.flatnonzero(~self.filled)
        runs = runs[np.argsort(self.order[runs], kind="stable")]
        if not len(runs):
            return np.full(len(as_read), -1)
        run = runs[np.maximum(np.searchsorted(self.order[runs], as_read, side="right") - 1, 0)]
        past = as_read - self.order[run]
        inside = (past >= 0) & (past < self.n_rows[run])
        return np.where(inside, self.start[run] + past, -1)

    def cut(self, rows: IntArray) -> Line:
        """Return the same records with a run beginning at each of some rows."""
        rows = np.unique(rows[rows < self.n])
        new = np.searchsorted(self.start, rows)
        more = self.start[new] != rows
        if not more.any():
            return self
        start = np.insert(self.start[:-1], new[more], rows[more])
        run = np.insert(np.arange(len(self.gpu)), new[more], new[more] - 1)
        return self.pieces(run, start, np.diff(np.append(start, self.n)))

    def take(self, rows: IntArray) -> Line:
        """Return some records alone; their numbers rise."""
        run = self.run_at(rows)
        changes = (np.diff(run) != 0) | (np.diff(rows) != 1)
        begin = np.flatnonzero(np.append(True, changes)[: len(rows)])
        n_rows = np.diff(np.append(begin, len(rows)))
        return self.pieces(run[begin], rows[begin], n_rows)

    def between(self, start: int, end: int) -> Line:
        """Return the records of [start, end).

        A filled one whose next record lies outside is left out: that a record was only missing is
        known when the next one has come.
        """
        if len(self.times):
            within = (self.times >= start) & (self.times < end)
            filled = self.of_each(self.filled)
            within[:-1] &= ~filled[:-1] | within[1:]
            return self.take(np.flatnonzero(within))
        n, step = self.n_rows, np.maximum(self.step, 1)
        low = np.clip(-((self.time - start) // step), 0, n)
        high = np.clip(-((self.time - end) // step), low, n)
        has = high > low
        has[:-1] &= ~self.filled[:-1] | has[1:]
        run = np.flatnonzero(has)
        return self.pieces(run, (self.start[:-1] + low)[run], (high - low)[run])

    def pieces(self, run: IntArray, begin: IntArray, n_rows: IntArray) -> Line:
        """Return pieces of runs, one after another.

        Parameters
        ----------
        run, begin, n_rows : ndarray of shape (m,)
            The run of each piece, its first record and how many there are.
        """
        past = begin - self.start[run]
        some = _ranges(begin, n_rows) if len(self.times) or len(self.rows) else _NONE
        return Line(
            start=np.append(0, np.cumsum(n_rows)),
            gpu=self.gpu[run],
            time=self.times[begin] if len(self.times) else self.time[run] + self.step[run] * past,
            step=self.step[run],
            order=self.rows[begin].astype(np.int64) if len(self.rows) else self.order[run] + past,
            filled=self.filled[run],
            failed=self.failed[run],
            alive=self.alive[run],
            times=self.times[some] if len(self.times) else self.times,
            rows=self.rows[some] if len(self.rows) else self.rows,
        )

    def moved(self, move: Move) -> Line:
        """Return the same with its arrays where `move` puts them."""
        return Line._make(move(array) for array in self)

    def of_gpus(self, number: npt.NDArray[np.integer]) -> Line:
        """Return the same with the number of each GPU in its place; they rise."""
        return self._replace(gpu=number[self.gpu].astype(np.int32))

    @classmethod
    def joined(cls, parts: Sequence[Line]) -> tuple[Line, list[IntArray]]:
        """Return the records of all parts by GPU, and where those of each part are.

        A GPU is in one part alone.
        """
        whole = _concatenated(parts)
        order = np.argsort(whole.gpu, kind="stable")
        n_rows = whole.n_rows[order]
        line = whole.pieces(order, whole.start[order], n_rows)
        moved = np.empty(len(order), dtype=np.int64)
        moved[order] = line.start[:-1] - whole.start[order]
        rows = whole.of_each(moved) + np.arange(whole.n)
        return line, np.split(rows, np.cumsum([part.n for part in parts])[:-1])


def _concatenated(parts: Sequence[Line]) -> Line:
    even = not any(len(part.times) for part in parts)
    together = not any(len(part.rows) for part in parts)

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    return Line(
        start=np.append(0, np.cumsum(np.concatenate([part.n_rows for part in parts]))),
        gpu=column("gpu"),
        time=column("time"),
        step=column("step"),
        order=column("order"),
        filled=column("filled"),
        failed=column("failed"),
        alive=column("alive"),
        times=_NONE if even else np.concatenate([part.time_of_each() for part in parts]),
        rows=_NONE if together else np.concatenate([part.order_of_each() for part in parts]),
    )


def _ranges(begin: IntArray, n_rows: IntArray) -> IntArray:
    """Return the numbers of n rows from each beginning on, one range after another."""
    before = np.cumsum(n_rows) - n_rows
    return np.repeat(begin - before, n_rows) + np.arange(n_rows.sum())


def _laid(start: IntArray, first: IntArray, step: IntArray) -> IntArray:
    values = np.empty(start[-1], dtype=np.int64)
    _lay(start, first, step, values)
    return values


@compiled
def _extent(
    rows: npt.NDArray[np.integer], start: IntArray, runs: npt.NDArray[np.integer]
) -> tuple[int, int]:
    """Return the first of the rows of some runs, and one more than the last."""
    low = high = rows[start[runs[0]]]
    for run in runs:
        for number in range(start[run], start[run + 1]):
            low, high = min(low, rows[number]), max(high, rows[number])
    return low, high + 1


@compiled
def _lay(start: IntArray, first: IntArray, step: IntArray, values: IntArray) -> None:
    for run in range(len(first)):
        value = first[run]
        for row in range(start[run], start[run + 1]):
            values[row] = value
            value += step[run]


def _runs_of_lives(
    life: IntArray, rows: _Rows, alike: tuple[bool, bool], most: int
) -> tuple[IntArray, IntArray] | None:
    """Return first record and step of each run, None if there are more than `most`.

    They are counted first: room for as many as there are records would take longer than that.
    """
    gpus, n_parts = len(life) - 1, n_threads() if life[-1] > _FEW else 1
    edges = np.searchsorted(life[:-1], np.linspace(0, life[-1], n_parts + 1)[1:-1])
    lives = [life[low : high + 1] for low, high in pairwise([0, *edges.tolist(), gpus])]

    def count(life: IntArray) -> int:
        return _find_runs(life, rows, alike, most, _NONE, _NONE)

    n_runs = in_threads(count, lives, n_parts)
    if min(n_runs) < 0 or sum(n_runs) > most:
        return None
    begin, step = np.empty((2, sum(n_runs)), dtype=np.int64)
    ends = np.cumsum(n_runs).tolist()

    def find(part: int) -> None:
        own = slice(ends[part] - n_runs[part], ends[part])
        _find_runs(lives[part], rows, alike, most, begin[own], step[own])

    in_threads(find, range(n_parts), n_parts)
    return begin, step


@compiled
def _find_runs(
    life: IntArray,
    rows: _Rows,
    alike: tuple[bool, bool],
    most: int,
    begin: IntArray,
    step: IntArray,
) -> int:
    """Put first record and step of each run into two arrays; return how many, -1 if too many.

    Where those are empty, the runs are counted.
    """
    (time, order, failed, filled), (even, together) = rows, alike
    puts = len(begin) > 0
    n_runs = 0
    for gpu in range(len(life) - 1):
        length = every = 0
        for row in range(life[gpu], life[gpu + 1]):
            new = length == 0
            if not new:
                new = failed[row] != failed[row - 1] or filled[row] != filled[row - 1]
                new = new or (together and order[row] != order[row - 1] + 1)
                apart = np.int64(time[row]) - time[row - 1]
                if even and not new and length == 1:
                    every = apart
                    if puts:
                        step[n_runs - 1] = apart
                new = new or (even and apart != every)
            if new:
                if n_runs == most:
                    return -1
                if puts:
                    begin[n_runs], step[n_runs] = row, 0
                n_runs, length = n_runs + 1, 0
            length += 1
    return n_runs


@compiled
def _look_up(start: IntArray, rows: npt.NDArray[np.integer], run: IntArray) -> None:
    low, high, current = 0, -1, 0  # no record lies in there
    for i in range(len(rows)):
        row = rows[i]
        if not low <= row < high:
            if row == high and current + 2 < len(start):
                current += 1
            else:
                current = first_from(start, 0, len(start), row + 1) - 1
            low, high = start[current], start[current + 1]
        run[i] = current


@compiled
def _find_rows(
    line: Line,
    bounds: IntArray,
    gpu: npt.NDArray[np.integer],
    moment: IntArray,
    rows: IntArray,
) -> None:
    for i in range(len(gpu)):
        low, high = bounds[gpu[i]], bounds[gpu[i] + 1]
        if len(line.times):
            rows[i] = first_from(line.times, line.start[low], line.start[high], moment[i])
            continue
        run = first_from(line.time, low, high, moment[i]) - 1
        if run < low:  # there is none, or the first one is late enough
            rows[i] = line.start[low]
            continue
        step = max(1, line.step[run])
        past = -((line.time[run] - moment[i]) // step)
        rows[i] = min(line.start[run] + past, line.start[run + 1])

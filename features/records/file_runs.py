"""The rows of a file as runs: those of one GPU that are as far apart as one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.ordering import lie_by_gpu, rows_by_gpu, stable_order

__all__ = ["FileRuns", "Within"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CodeArray = npt.NDArray[np.int32]
Within = Callable[[tuple[str, ...]], BoolArray]
_WHOLE = -(2**63), 2**63 - 1


class FileRuns(NamedTuple):
    """The runs of rows to keep of a file.

    Attributes
    ----------
    code : ndarray of shape (n_runs,)
        Position of the serial of each in `texts`.
    texts : tuple of str
    time, step, n_rows : ndarray of shape (n_runs,), int64
        Time of the first row, nanoseconds from one to the next, and how many there are.
    row : ndarray of shape (n_runs,), int64
        The first row, counted in the file once its rows are in order.
    failed : ndarray of shape (n_runs,), bool
    seen : int
        Rows within the limits, those without keys counted.
    odd_states : int
    naive_time : bool
    order : ndarray of shape (n,), int32 or int64, or None
        All rows of the file, those to keep by GPU and time; None where they lie so.
    """

    code: CodeArray
    texts: tuple[str, ...]
    time: IntArray
    step: IntArray
    n_rows: IntArray
    row: IntArray
    failed: BoolArray
    seen: int
    odd_states: int
    naive_time: bool
    order: IntArray | None = None

    @classmethod
    def of(
        cls, runs: KeyRuns, start: int | None, end: int | None, within: Within
    ) -> FileRuns | None:
        """Cut the runs of a file at limits of time; None where times are uneven.

        Parameters
        ----------
        runs : KeyRuns
        start, end : int or None
            Only rows of [start, end).
        within : callable
            Tells of each of several serials whether its rows are asked for.
        """
        if runs.step is None:
            return None
        first, n, step = runs.first, runs.n_rows, np.maximum(runs.step, 1)
        limits = _WHOLE[0] if start is None else start, _WHOLE[1] if end is None else end
        low, high = (_first_from(first.time, step, n, limit) for limit in limits)
        some = np.flatnonzero((high > low) & within(first.serial.texts)[first.serial.codes])
        low, n_rows = low[some], (high - low)[some]
        return cls(
            code=first.serial.codes[some],
            texts=first.serial.texts,
            time=first.time[some] + runs.step[some] * low,
            step=runs.step[some],
            n_rows=n_rows,
            row=(np.cumsum(n) - n)[some] + low,
            failed=first.failed[some],
            seen=int(n_rows.sum()),
            odd_states=0,
            naive_time=first.naive_time,
        )

    @classmethod
    def of_rows(cls, keys: Keys) -> FileRuns:
        """Find the runs of the rows to keep of a file, in whatever order they come."""
        order = None
        if lie_by_gpu(keys.serial.codes, keys.time, keys.keep, len(keys.serial.texts)):
            runs = _runs_of(keys, np.flatnonzero(keys.keep), in_order=False)
        else:
            order, runs = _by_gpu(keys)
        return cls(
            code=runs.code,
            texts=keys.serial.texts,
            time=runs.time,
            step=runs.step,
            n_rows=runs.n_rows,
            row=runs.first,
            failed=runs.failed,
            seen=keys.n_rows,
            odd_states=keys.n_odd_states,
            naive_time=keys.naive_time,
            order=order,
        )

    def n_wide(self, interval: int) -> int:
        """Count the rows of runs in which others are missing."""
        return int(self.n_rows[(self.n_rows > 1) & (2 * self.step >= 3 * interval)].sum())


class _RunsOfRows(NamedTuple):
    """Runs that were found among the rows of a file, or room for them."""

    code: CodeArray
    time: IntArray
    step: IntArray
    n_rows: IntArray
    first: IntArray
    failed: BoolArray

    @classmethod
    def room(cls, n: int) -> Self:
        time, step, n_rows, first = np.empty((4, n), dtype=np.int64)
        code, failed = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.bool_)
        return cls(code, time, step, n_rows, first, failed)

    def take(self, runs: slice | IntArray) -> Self:
        """Return a copy of some of them."""
        columns: list[Any] = [column[runs].copy() for column in self]
        return type(self)(*columns)


def _by_gpu(keys: Keys) -> tuple[IntArray, _RunsOfRows]:
    """Return all rows by GPU and time, those to keep first, and the runs of these."""
    n_gpus = len(keys.serial.texts)
    n_rows = np.zeros(n_gpus + 1, dtype=np.int64)
    runs = _runs_by_time(keys, n_rows)
    owner, time = keys.serial.codes, keys.time
    if not keys.keep.all():
        owner = np.where(keys.keep, owner, np.int32(n_gpus))
    if runs is not None:
        return rows_by_gpu(owner, n_rows), runs
    order = stable_order(owner, np.where(keys.keep, time, 0))
    return order, _runs_of(keys, order[: np.count_nonzero(keys.keep)], in_order=True)


def _runs_by_time(keys: Keys, n_rows: IntArray) -> _RunsOfRows | None:
    """Find the runs of rows that come by time, in one passage; None where they do not.

    `n_rows` counts the rows to keep of each GPU, and then all others.
    """
    n_gpus = len(keys.serial.texts)
    most = 2 * n_gpus + 64
    while True:  # a GPU has one run a file, nearly always
        n_rows[:] = 0
        columns = keys.serial.codes, keys.time, keys.failed, keys.keep
        room = _RunsOfRows.room(most)
        n = _find_by_time(columns, np.empty((n_gpus, 3), dtype=np.int64), n_rows, room)
        if n < 0:
            return None
        if n <= most:
            break
        most = min(4 * most, len(keys.time))
    some = np.argsort(room.code[:n], kind="stable")
    runs, end = room.take(some), np.cumsum(n_rows[:n_gpus])
    runs.first[:] += (end - n_rows[:n_gpus])[runs.code]
    runs.n_rows[:] = np.diff(np.append(runs.first, end[-1:]))
    return runs


@compiled
def _find_by_time(
    keys: tuple[CodeArray, IntArray, BoolArray, BoolArray],
    latest: IntArray,
    n_rows: IntArray,
    room: _RunsOfRows,
) -> int:
    """Put the runs of rows that come by time into arrays; count them, one too many if there are.

    They come as they begin, and the first row of each is counted among those of its GPU. What is
    known of a GPU (its run, time and step) lies together: rows of one follow those of all others.
    """
    codes, times, states, keep = keys
    n, n_gpus = 0, len(latest)
    for row in range(len(codes)):
        gpu = codes[row]
        if not keep[row]:
            n_rows[n_gpus] += 1
            continue
        own, moment = latest[gpu], times[row]
        apart, new = moment - own[1], n_rows[gpu] == 0
        if not new:
            if apart < 0:
                return -1
            new = states[row] != room.failed[own[0]]
            if not new and apart != own[2]:
                new = own[2] >= 0
                own[2] = apart
                if not new:
                    room.step[own[0]] = apart
        if new:
            if n == len(room.code):
                return n + 1
            room.code[n], room.time[n], room.step[n] = gpu, moment, 0
            room.failed[n], room.first[n] = states[row], n_rows[gpu]
            own[0], own[2] = n, -1
            n += 1
        own[1] = moment
        n_rows[gpu] += 1
    return n


def _runs_of(keys: Keys, rows: IntArray, *, in_order: bool) -> _RunsOfRows:
    """Find the runs of some rows, by GPU and time.

    Rows that are taken in an order of their own are counted in it.
    """
    most = 2 * len(keys.serial.texts) + 64
    while True:
        room = _RunsOfRows.room(most)
        n = _find_runs((keys.serial.codes, keys.time, keys.failed), rows, in_order, room)
        if n <= most:
            return room.take(slice(n))
        most = min(4 * most, len(rows))


@compiled
def _find_runs(
    keys: tuple[CodeArray, IntArray, BoolArray],
    rows: IntArray,
    in_order: bool,
    room: _RunsOfRows,
) -> int:
    """Put the runs of rows by GPU and time into arrays; count them, one too many if there are."""
    codes, times, states = keys
    code, time, step, n_rows, first, failed = room
    n, before, last = 0, np.int64(0), np.int64(0)
    for number in range(len(rows)):
        row = rows[number]
        moment, apart = times[row], times[row] - last
        new = n == 0 or codes[row] != code[n - 1] or states[row] != failed[n - 1]
        new = new or not (in_order or row == before + 1)
        if not new and n_rows[n - 1] == 1:
            step[n - 1] = apart
        if new or apart != step[n - 1]:
            if n == len(code):
                return n + 1
            code[n], time[n], step[n], failed[n] = codes[row], moment, 0, states[row]
            n_rows[n], first[n] = 0, number if in_order else row
            n += 1
        n_rows[n - 1] += 1
        before, last = row, moment
    return n


def _first_from(time: IntArray, step: IntArray, n_rows: IntArray, moment: int) -> IntArray:
    """Return the number of the first row of each run at or after a moment."""
    if moment in _WHOLE:
        return np.zeros_like(n_rows) if moment < 0 else n_rows
    return np.asarray(np.clip(-((time - moment) // step), 0, n_rows))

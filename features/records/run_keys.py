"""Keys of files whose rows mostly come in runs: brought into line without laying rows out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.keys_as_read import RunKeys
from forewarn.features.records.line import Line
from forewarn.features.records.ordering import lie_by_gpu, stable_order
from forewarn.features.records.row_cleaning import Spacing, Spacings
from forewarn.features.records.table import CheckReport, NoRecordsError

__all__ = ["FileRuns", "RunCleaning", "Within"]

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
        if not lie_by_gpu(keys.serial.codes, keys.time, keys.keep, len(keys.serial.texts)):
            order = _order_by_gpu(keys)
        n_kept = np.count_nonzero(keys.keep)
        rows = np.flatnonzero(keys.keep) if order is None else order[:n_kept]
        code, time, step, n_rows, row, failed = _runs_of(keys, rows, in_order=order is not None)
        return cls(
            code=code,
            texts=keys.serial.texts,
            time=time,
            step=step,
            n_rows=n_rows,
            row=row,
            failed=failed,
            seen=keys.n_rows,
            odd_states=keys.n_odd_states,
            naive_time=keys.naive_time,
            order=order,
        )

    def n_wide(self, interval: int) -> int:
        """Count the rows of runs in which others are missing."""
        return int(self.n_rows[(self.n_rows > 1) & (2 * self.step >= 3 * interval)].sum())


def _order_by_gpu(keys: Keys) -> IntArray:
    """Return all rows by GPU and time, those to keep first.

    The others lie by GPU, too, so that their numbers hardly change from one row to the next.
    """
    owner, time, n = keys.serial.codes, keys.time, len(keys.serial.texts)
    if not keys.keep.all():
        owner, time = np.where(keys.keep, owner, owner % (n + 1) + n), np.where(keys.keep, time, 0)
    return stable_order(owner, time)


def _runs_of(keys: Keys, rows: IntArray, *, in_order: bool) -> tuple[npt.NDArray[Any], ...]:
    """Return code, time, step, number of rows, first row and state of each run of some rows.

    Rows that are taken in an order of their own are counted in it.
    """
    most = 2 * len(keys.serial.texts) + 64
    while True:  # a GPU has one run a file, nearly always
        code, failed = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.bool_)
        time, step, n_rows, row = np.empty((4, most), dtype=np.int64)
        room = code, time, step, n_rows, row, failed
        n = _find_runs((keys.serial.codes, keys.time, keys.failed), rows, in_order, room)
        if n <= most:
            return tuple(column[:n].copy() for column in room)
        most = min(4 * most, len(rows))


@compiled
def _find_runs(
    keys: tuple[CodeArray, IntArray, BoolArray],
    rows: IntArray,
    in_order: bool,
    room: tuple[CodeArray, IntArray, IntArray, IntArray, IntArray, BoolArray],
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


@dataclass(frozen=True, slots=True)
class RunCleaning:
    """The keys of all files in line (`KeysBuilder`), of files whose rows come in runs.

    Attributes
    ----------
    serials : tuple of str
    line : Line
    as_read : RunKeys
    seen : CheckReport
    starts : ndarray of shape (n_files + 1,)
        First row of each file.
    """

    serials: tuple[str, ...]
    line: Line
    as_read: RunKeys
    seen: CheckReport
    starts: IntArray

    @property
    def keep(self) -> None:
        """None: the rows that count are those to keep."""
        return

    def rows_of(self, number: int) -> slice:
        """Return which rows are those of a file."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    @classmethod
    def of(
        cls,
        files: Sequence[FileRuns],
        sizes: Sequence[int],
        interval: int,
        spacings: Spacings | None = None,
    ) -> RunCleaning | None:
        """Bring the runs of all files into line.

        Parameters
        ----------
        files : sequence of FileRuns
        sizes : sequence of int
            Rows of each file, those that are left out too.
        interval : int
            Nanoseconds between two records of a GPU.
        spacings : Spacings, optional
            As of `CleanRows.of`.

        Returns
        -------
        RunCleaning or None
            None where rows have to be looked at one by one: some come late, twice or too close,
            or most are not an interval apart.

        Raises
        ------
        NoRecordsError
            If there is no row.
        """
        wide = sum(file.n_wide(interval) for file in files)
        if 2 * wide > sum(int(file.n_rows.sum()) for file in files):
            return None  # none of those is a run, and most are not an interval apart
        serials, gpus = _numbered(files)
        starts = np.append(0, np.cumsum(sizes, dtype=np.int64))
        runs = _Runs.of(files, gpus, starts).apart_if_wide(interval)
        apart = runs.apart()
        if not runs.are_plain(apart, interval):
            return None
        spacing = runs.spacing(apart, interval)
        if spacing.is_odd:
            return None
        if spacings is not None:
            spacings.count(spacing)
        gaps = 2 * apart >= 5 * interval
        runs = runs.filled_up(np.flatnonzero((2 * apart >= 3 * interval) & ~gaps), interval)
        seen = CheckReport(
            rows=sum(file.seen for file in files),
            without_key=sum(file.seen - int(file.n_rows.sum()) for file in files),
            filled=int(np.count_nonzero(runs.filled)),
            gaps=int(np.count_nonzero(gaps)),
            odd_states=sum(file.odd_states for file in files),
            naive_time=any(file.naive_time for file in files),
        )
        line = runs.line()
        orders = {n: file.order for n, file in enumerate(files) if file.order is not None}
        as_read = RunKeys.of(line, int(starts[-1]), len(serials), orders)
        return cls(serials, line, as_read, seen, starts)


def _numbered(files: Sequence[FileRuns]) -> tuple[tuple[str, ...], list[CodeArray]]:
    """Return the serials that occur, sorted, and the position among them of those of each file.

    Files may have one and the same texts: these are looked through once.
    """
    occurs: dict[int, tuple[tuple[str, ...], BoolArray]] = {}
    for file in files:
        new = file.texts, np.zeros(len(file.texts), dtype=bool)
        occurs.setdefault(id(file.texts), new)[1][file.code] = True
    codes = {key: np.flatnonzero(some).tolist() for key, (_, some) in occurs.items()}
    serials = sorted({occurs[key][0][code] for key in codes for code in codes[key]})
    if not serials:
        raise NoRecordsError("there is no row with a serial and a timestamp.")
    position, numbers = {serial: number for number, serial in enumerate(serials)}, {}
    for key, (texts, _) in occurs.items():
        numbers[key] = np.empty(len(texts), dtype=np.int32)
        numbers[key][codes[key]] = [position[texts[code]] for code in codes[key]]
    return tuple(serials), [numbers[id(file.texts)][file.code] for file in files]


class _Runs(NamedTuple):
    """Runs of rows of all files by GPU, and of each GPU as they were read."""

    gpu: CodeArray
    time: IntArray
    step: IntArray
    order: IntArray
    failed: BoolArray
    filled: BoolArray
    n_rows: IntArray

    @classmethod
    def of(cls, files: Sequence[FileRuns], gpus: Sequence[CodeArray], starts: IntArray) -> _Runs:
        rows = [file.row + start for file, start in zip(files, starts, strict=False)]
        gpu = np.concatenate(gpus)
        order = np.argsort(gpu, kind="stable")
        time, step, n_rows, failed = (
            np.concatenate([getattr(file, name) for file in files])[order]
            for name in ("time", "step", "n_rows", "failed")
        )
        filled = np.zeros(len(order), dtype=bool)
        return cls(gpu[order], time, step, np.concatenate(rows)[order], failed, filled, n_rows)

    @property
    def last(self) -> IntArray:
        """The time of the last row of each."""
        return self.time + self.step * (self.n_rows - 1)

    def apart_if_wide(self, interval: int) -> _Runs:
        """Take runs apart into rows between which others are missing: mostly a pair."""
        wide = np.flatnonzero((self.n_rows > 1) & (2 * self.step >= 3 * interval))
        times = np.ones(len(self.gpu), dtype=np.int64)
        times[wide] = self.n_rows[wide]
        number = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        repeated: list[Any] = [np.repeat(column, times) for column in self]
        each = _Runs(*repeated)
        single = np.repeat(times > 1, times)
        return each._replace(
            time=each.time + each.step * number,
            order=each.order + number,
            n_rows=np.where(single, 1, each.n_rows),
        )

    def apart(self) -> IntArray:
        """Return the time from the last row of each run to the GPU's next one; 0: there is none."""
        apart = np.zeros(len(self.gpu), dtype=np.int64)
        same = np.flatnonzero(self.gpu[1:] == self.gpu[:-1])
        apart[same] = self.time[same + 1] - self.last[same]
        return apart

    def are_plain(self, apart: IntArray, interval: int) -> bool:
        """Tell whether no row comes late, twice or too close, and none is missing within a run."""
        several, even = self.n_rows > 1, 2 * self.step >= interval
        same, failed = self.gpu[1:] == self.gpu[:-1], self.failed[1:]
        # A failed record is kept however close it is.
        close = (2 * apart[:-1] < interval) & ~(failed & (apart[:-1] > 0))
        return bool(even[several].all()) and not bool((same & close).any())

    def spacing(self, apart: IntArray, interval: int) -> Spacing:
        """Count the spacings; those within a run are neither too short nor too long."""
        between = apart[apart > 0]
        return Spacing(
            number=int((self.n_rows - 1).sum()) + len(between),
            short=int(np.count_nonzero(2 * between < interval)),
            long=int(np.count_nonzero(2 * between > 3 * interval)),
            doubled=0,
        )

    def filled_up(self, before: IntArray, interval: int) -> _Runs:
        """Put a record after the last one of some runs, which stands for it."""
        last = self.order[before] + self.n_rows[before] - 1
        n_rows, yes = np.ones_like(before), np.ones(len(before), dtype=bool)
        more = _Runs(
            self.gpu[before],
            self.last[before] + interval,
            0 * n_rows,
            last,
            self.failed[before],
            yes,
            n_rows,
        )
        columns: Iterable[tuple[Any, Any]] = zip(self, more, strict=True)
        inserted: list[Any] = [np.insert(own, before + 1, added) for own, added in columns]
        return _Runs(*inserted)

    def line(self) -> Line:
        """Return them as a line."""
        return Line.of_runs(*self)

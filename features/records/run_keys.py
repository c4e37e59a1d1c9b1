"""Keys of files whose rows mostly come in runs: brought into line without laying rows out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import Keys
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.keys_as_read import RunKeys
from forewarn.features.records.line import Line
from forewarn.features.records.row_cleaning import Spacing, Spacings
from forewarn.features.records.slices import FINEST, slice_of
from forewarn.features.records.table import CheckReport, NoRecordsError

__all__ = ["FileRuns", "RunCleaning"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
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
        The first row, counted in the file.
    failed : ndarray of shape (n_runs,), bool
    seen : int
        Rows within the limits, those without keys counted.
    odd_states : int
    naive_time : bool
    """

    code: npt.NDArray[np.int32]
    texts: tuple[str, ...]
    time: IntArray
    step: IntArray
    n_rows: IntArray
    row: IntArray
    failed: BoolArray
    seen: int
    odd_states: int
    naive_time: bool

    @classmethod
    def of(
        cls, runs: KeyRuns, start: int | None, end: int | None, slices: tuple[int, int]
    ) -> FileRuns | None:
        """Cut the runs of a file at limits of time; None where times are uneven.

        Parameters
        ----------
        runs : KeyRuns
        start, end : int or None
            Only rows of [start, end).
        slices : tuple of (int, int)
            Only GPUs of the finest slices [first, last).
        """
        if runs.step is None:
            return None
        first, n, step = runs.first, runs.n_rows, np.maximum(runs.step, 1)
        limits = _WHOLE[0] if start is None else start, _WHOLE[1] if end is None else end
        low, high = (_first_from(first.time, step, n, limit) for limit in limits)
        stays = high > low
        if slices != (0, FINEST):
            number = _slices_of(first.serial.texts)[first.serial.codes]
            stays &= (number >= slices[0]) & (number < slices[1])
        some = np.flatnonzero(stays)
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
        """Find the runs of the rows to keep of a file."""
        rows = np.flatnonzero(keys.keep)
        code, time, failed = keys.serial.codes[rows], keys.time[rows], keys.failed[rows]
        line = Line.of_rows(code, time, rows, failed, np.zeros(len(rows), dtype=bool), whole=True)
        return cls(
            code=line.gpu,
            texts=keys.serial.texts,
            time=line.time,
            step=line.step,
            n_rows=line.n_rows,
            row=line.order,
            failed=line.failed,
            seen=keys.n_rows,
            odd_states=keys.n_odd_states,
            naive_time=keys.naive_time,
        )

    def codes(self) -> IntArray:
        """Return the codes that occur."""
        occurs = np.zeros(len(self.texts), dtype=bool)
        occurs[self.code] = True
        return np.flatnonzero(occurs)

    def gpu(self, position: Mapping[str, int]) -> npt.NDArray[np.int32]:
        """Return the position of the serial of each run."""
        codes, number = self.codes(), np.empty(len(self.texts), dtype=np.int32)
        number[codes] = [position[self.texts[code]] for code in codes.tolist()]
        return np.asarray(number[self.code])


def _first_from(time: IntArray, step: IntArray, n_rows: IntArray, moment: int) -> IntArray:
    """Return the number of the first row of each run at or after a moment."""
    if moment in _WHOLE:
        return np.zeros_like(n_rows) if moment < 0 else n_rows
    return np.asarray(np.clip(-((time - moment) // step), 0, n_rows))


@lru_cache(128)  # a file is asked for each slice of the fleet
def _slices_of(texts: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    return slice_of(texts)


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
        serials, starts = _serials(files), np.append(0, np.cumsum(sizes, dtype=np.int64))
        runs = _Runs.of(files, serials, starts).apart_if_wide(interval)
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
        return cls(serials, line, RunKeys.of(line, int(starts[-1]), len(serials)), seen, starts)


def _serials(files: Iterable[FileRuns]) -> tuple[str, ...]:
    occurring: set[str] = set()
    for file in files:
        occurring.update(map(file.texts.__getitem__, file.codes().tolist()))
    if not occurring:
        raise NoRecordsError("there is no row with a serial and a timestamp.")
    return tuple(sorted(occurring))


class _Runs(NamedTuple):
    """Runs of rows of all files by GPU, and of each GPU as they were read."""

    gpu: npt.NDArray[np.int32]
    time: IntArray
    step: IntArray
    order: IntArray
    failed: BoolArray
    filled: BoolArray
    n_rows: IntArray

    @classmethod
    def of(cls, files: Sequence[FileRuns], serials: Sequence[str], starts: IntArray) -> _Runs:
        position = {serial: number for number, serial in enumerate(serials)}
        rows = [file.row + start for file, start in zip(files, starts, strict=False)]
        gpu = np.concatenate([file.gpu(position) for file in files])
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

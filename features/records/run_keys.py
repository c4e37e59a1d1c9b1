"""Keys of files whose rows mostly come in runs: brought into line without laying rows out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_runs import FileRuns
from forewarn.features.records.keys_as_read import RunKeys
from forewarn.features.records.line import Line
from forewarn.features.records.row_cleaning import Spacing, Spacings
from forewarn.features.records.table import CheckReport, NoRecordsError

__all__ = ["RunCleaning"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CodeArray = npt.NDArray[np.int32]


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
    named = {key: list(compress(texts, some.tolist())) for key, (texts, some) in occurs.items()}
    serials = sorted(set(chain.from_iterable(named.values())))
    if not serials:
        raise NoRecordsError("there is no row with a serial and a timestamp.")
    position, numbers = {serial: number for number, serial in enumerate(serials)}, {}
    for key, (texts, some) in occurs.items():
        numbers[key] = np.empty(len(texts), dtype=np.int32)
        numbers[key][some] = [*map(position.__getitem__, named[key])]
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

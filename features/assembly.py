"""From checked files to records: order, doubles, gaps, lone missing records, counters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.features.canonical import Part
from forewarn.features.ordering import stable_order
from forewarn.features.records import (
    SERIAL,
    BoolArray,
    CodeArray,
    Column,
    FeatureKinds,
    FloatArray,
    IntArray,
    Records,
    RecordsError,
    Seen,
)

__all__ = ["Draft"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def _in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Map over columns; numpy lets go of the interpreter while it copies and adds."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True, slots=True)
class _Kept:
    """Rows by GPU and time, without doubles and rows too close."""

    order: IntArray
    gpu: CodeArray
    time: IntArray
    doubled: int = 0
    too_close: int = 0


def _keep(
    gpu: CodeArray, time: IntArray, failed: BoolArray, chosen: IntArray, interval: int
) -> _Kept:
    """Sort the chosen rows and leave out doubles and rows too close, but no failed one."""
    if len(chosen) < len(time):
        order = chosen[stable_order(gpu[chosen], time[chosen])]
    else:
        order = stable_order(gpu, time)
    gpu, time = gpu[order], time[order]
    doubled = too_close = 0
    close = _closer(gpu, time, interval)
    if close.any():
        same = close & (np.diff(time) == 0)
        kept = np.append(~same, True)
        doubled = int(same.sum())
        order, gpu, time = order[kept], gpu[kept], time[kept]
    _check_spacing(np.diff(time)[gpu[1:] == gpu[:-1]], interval)
    if not close.any():
        return _Kept(order, gpu, time)
    while (close := _closer(gpu, time, interval) & ~failed[order[1:]]).any():
        # Of a run of close rows only the first is known to be close to one that stays.
        close[1:] &= ~close[:-1]
        kept = np.insert(~close, 0, True)
        too_close += int(close.sum())
        order, gpu, time = order[kept], gpu[kept], time[kept]
    return _Kept(order, gpu, time, doubled, too_close)


def _closer(gpu: CodeArray, time: IntArray, interval: int) -> BoolArray:
    """Mark the rows whose next one, of the same GPU, comes within half an interval."""
    close: BoolArray = np.diff(time) * 2 < interval
    close &= gpu[1:] == gpu[:-1]
    return close


def _check_spacing(spacing: IntArray, interval: int) -> None:
    """Refuse records whose median spacing is off by more than half an interval."""
    half = len(spacing) / 2
    short = np.count_nonzero(spacing * 2 < interval)
    long = np.count_nonzero(spacing * 2 > 3 * interval)
    if len(spacing) and max(short, long) > half:
        raise RecordsError(
            f"records are {np.median(spacing) / 1e9:g} s apart (median), expected "
            f"`records.interval` = {interval / 1e9:g} s within one half."
        )


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Where records of a GPU are missing."""

    first: BoolArray
    lone: BoolArray
    n_longer: int

    @classmethod
    def of(cls, kept: _Kept, interval: int) -> _Gaps:
        within = kept.gpu[1:] == kept.gpu[:-1]
        spacing = np.diff(kept.time)
        missing = within & (spacing * 2 >= 3 * interval)
        lone = missing & (spacing * 2 < 5 * interval)
        return cls(
            np.insert(~within, 0, True),
            np.append(lone, False),
            int(missing.sum()) - int(lone.sum()),
        )

    def filled_in(self, kept: _Kept, interval: int) -> _Line:
        """Repeat the rows before lone missing records."""
        first = self.first
        if not self.lone.any():
            return _Line(kept.order, kept.gpu, kept.time, np.zeros(len(first), dtype=bool), first)
        repeats = np.where(self.lone, 2, 1)
        filled = np.zeros(int(repeats.sum()), dtype=bool)
        filled[(np.cumsum(repeats) - 1)[self.lone]] = True
        time = np.repeat(kept.time, repeats)
        time[filled] += interval
        order, gpu = np.repeat(kept.order, repeats), np.repeat(kept.gpu, repeats)
        return _Line(order, gpu, time, filled, np.repeat(first, repeats) & ~filled)


@dataclass(frozen=True, slots=True)
class _Line:
    """All rows by GPU and time, the filled ones among them; `first` marks the GPU's first."""

    order: IntArray
    gpu: CodeArray
    time: IntArray
    filled: BoolArray
    first: BoolArray


def _increases(values: npt.NDArray[np.floating], line: _Line) -> FloatArray:
    """Return what a counter gained since the record before; a fall is a restart from zero."""
    sorted_values = values[line.order]
    gained = np.diff(sorted_values)
    fallen = np.flatnonzero(gained < 0)
    gained[fallen] = sorted_values[1:][fallen]
    increase = np.empty(len(sorted_values), dtype=np.float32)
    increase[1:] = gained
    increase[line.first] = np.nan
    return increase


class Draft:
    """Columns for the rows of all files, filled file by file, from any thread.

    Every column is allocated once: joining the files afterwards would touch twice the memory,
    and touching new memory costs as much as reading the files.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each file, in the order of the file names; of two rows of one GPU and time the
        later one wins.
    kinds : FeatureKinds
    texts : sequence of str
        Text columns beside the serial that any file has.
    """

    def __init__(self, sizes: Sequence[int], kinds: FeatureKinds, texts: Sequence[str]) -> None:
        self._starts = np.cumsum([0, *sizes])
        self._kinds = kinds
        n = int(self._starts[-1])
        self._time, self._keep = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        self._failed = np.zeros(n, dtype=bool)
        plain = (*kinds.float, *kinds.binary, *kinds.code, *kinds.date)
        self._numbers: dict[str, npt.NDArray[np.floating]] = {
            **{name: np.empty(n, dtype=np.float32) for name in plain},
            **{name: np.empty(n, dtype=np.float64) for name in kinds.counter},
        }
        self._codes = {name: np.full(n, -1, dtype=np.int32) for name in (SERIAL, *texts)}
        self._texts: dict[str, list[tuple[str, ...]]] = {
            name: [()] * len(sizes) for name in self._codes
        }
        self._rows, self._naive = [0] * len(sizes), [False] * len(sizes)

    def put(self, number: int, part: Part) -> None:
        """Fill in the rows of one file."""
        rows = slice(self._starts[number], self._starts[number + 1])
        self._time[rows], self._keep[rows], self._failed[rows] = part.time, part.keep, part.failed
        for name, values in part.numbers.items():
            self._numbers[name][rows] = values
        for name, column in part.texts.items():
            self._codes[name][rows] = column.codes
            self._texts[name][number] = column.texts
        self._rows[number], self._naive[number] = part.n_rows, part.naive_time

    def records(self, interval: int) -> Records:
        """Return the sorted records.

        Parameters
        ----------
        interval : int
            Nanoseconds between two records of a GPU.

        Raises
        ------
        RecordsError
            If there is no row, or the median spacing is off by more than half an interval.
        """
        chosen = np.flatnonzero(self._keep)
        if not len(chosen):
            raise RecordsError("there is no row with a serial and a timestamp.")
        columns = _in_threads(self._column, self._codes)
        texts = dict(zip(self._codes, columns, strict=True))
        serial = texts.pop(SERIAL)
        kept = _keep(serial.codes, self._time, self._failed, chosen, interval)
        kept = self._bring_in_order(kept, texts)
        gaps = _Gaps.of(kept, interval)
        line = gaps.filled_in(kept, interval)
        kinds = self._kinds
        gained = _in_threads(lambda n: _increases(self._numbers[n], line), kinds.counter)
        counted = np.zeros(len(self._failed), dtype=bool)
        counted[kept.order] = True
        nulls = _in_threads(lambda n: int(counted[np.isnan(self._numbers[n])].sum()), self._numbers)
        for name in kinds.code:
            np.nan_to_num(self._numbers[name], copy=False, nan=0.0)
        return Records(
            interval=interval,
            serials=serial.texts,
            gpu=line.gpu,
            time=line.time,
            filled=line.filled,
            failed=self._failed[line.order],
            order=line.order,
            columns={n: v for n, v in self._numbers.items() if v.dtype == np.float32},
            increases=dict(zip(kinds.counter, gained, strict=True)),
            texts=texts,
            events=kinds.code,
            seen=Seen(
                rows=sum(self._rows),
                without_key=sum(self._rows) - len(chosen),
                doubled=kept.doubled,
                too_close=kept.too_close,
                filled=int(line.filled.sum()),
                gaps=gaps.n_longer,
                naive_time=any(self._naive),
                nulls=dict(zip(self._numbers, nulls, strict=True)),
            ),
        )

    def _bring_in_order(self, kept: _Kept, texts: dict[str, Column]) -> _Kept:
        """Sort the columns too, where the rows of a GPU do not lie in order of time.

        Sums are added up in the order of the columns, and must not depend on how rows lie in
        files.
        """
        if (np.diff(kept.order)[kept.gpu[1:] == kept.gpu[:-1]] > 0).all():
            return kept
        self._numbers = {name: values[kept.order] for name, values in self._numbers.items()}
        self._failed = self._failed[kept.order]
        for name, column in texts.items():
            texts[name] = Column(column.codes[kept.order], column.texts)
        return replace(kept, order=np.arange(len(kept.order)))

    def _column(self, name: str) -> Column:
        """Return a text column with the texts that occur, sorted, whatever order files had."""
        codes, by_file = self._codes[name], self._texts[name]
        slices = [slice(a, b) for a, b in zip(self._starts[:-1], self._starts[1:], strict=True)]
        used: set[str] = set()
        all_kept = self._keep.all()
        for rows, texts in zip(slices, by_file, strict=True):
            occurs = np.zeros(len(texts) + 1, dtype=bool)
            occurs[codes[rows] if all_kept else codes[rows][self._keep[rows]]] = True
            used |= {text for text, there in zip(texts, occurs, strict=False) if there}
        texts = tuple(sorted(used))
        place = {text: number for number, text in enumerate(texts)}
        for rows, mine in zip(slices, by_file, strict=True):
            number = np.array([*(place.get(text, -1) for text in mine), -1], dtype=np.int32)
            codes[rows] = number[codes[rows]]
        return Column(codes, texts)

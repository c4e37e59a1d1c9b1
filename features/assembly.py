"""From checked files to records: order, doubles, gaps, lone missing records, counters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forewarn.features.canonical import Part
from forewarn.features.compiled import compiled
from forewarn.features.line import Line, goes_back, increases_of
from forewarn.features.ordering import stable_order
from forewarn.features.records import (
    SERIAL,
    BoolArray,
    CodeArray,
    Column,
    FeatureKinds,
    FloatArray,
    Records,
    RecordsError,
    Seen,
)
from forewarn.features.threads import in_threads

__all__ = ["Draft"]

@compiled
def _n_null(values: npt.NDArray[np.floating], counted: BoolArray) -> int:
    """Count the counted rows that are NaN."""
    number = 0
    for row in range(len(values)):
        number += counted[row] & np.isnan(values[row])
    return number


@compiled
def _occurring(codes: CodeArray, keep: BoolArray, n_texts: int) -> BoolArray:
    """Mark the texts that a kept row has."""
    occurs = np.zeros(n_texts + 1, dtype=np.bool_)
    for row in range(len(codes)):
        if keep[row]:
            occurs[codes[row]] = True
    return occurs[:n_texts]


@compiled
def _renumber(codes: CodeArray, number: CodeArray) -> None:
    """Put the new number in place of each code; the last one is that of null."""
    for row in range(len(codes)):
        codes[row] = number[codes[row]]


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
        self._time, self._keep = np.full(n, 0, dtype=np.int64), np.full(n, False)
        self._failed = np.full(n, False)
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
        n_kept = int(self._keep.sum())
        if not n_kept:
            raise RecordsError("there is no row with a serial and a timestamp.")
        columns = in_threads(self._column, self._codes)
        texts = dict(zip(self._codes, columns, strict=True))
        serial = texts.pop(SERIAL)
        gpu = np.where(self._keep, serial.codes, np.int32(-1))
        if goes_back(gpu, self._time, len(serial.texts)):
            gpu = self._sort(gpu, texts)
        line = Line.of(gpu, self._time, self._failed, interval)
        nulls = in_threads(lambda name: _n_null(self._numbers[name], line.counted), self._numbers)
        kinds = self._kinds
        for name in kinds.code:
            np.nan_to_num(self._numbers[name], copy=False, nan=0.0)

        def gained(name: str) -> FloatArray:
            return increases_of(self._numbers[name], gpu, line.counted, len(serial.texts))

        increases = dict(zip(kinds.counter, in_threads(gained, kinds.counter), strict=True))
        return Records(
            interval=interval,
            serials=serial.texts,
            gpu=line.gpu,
            time=line.time,
            filled=line.filled,
            failed=line.failed,
            order=line.order,
            columns={name: increases.get(name, values) for name, values in self._numbers.items()},
            texts=texts,
            counters=kinds.counter,
            events=kinds.code,
            seen=Seen(
                rows=sum(self._rows),
                without_key=sum(self._rows) - n_kept,
                doubled=line.doubled,
                too_close=line.too_close,
                filled=int(line.filled.sum()),
                gaps=line.gaps,
                naive_time=any(self._naive),
                nulls=dict(zip(self._numbers, nulls, strict=True)),
            ),
        )

    def _sort(self, gpu: CodeArray, texts: dict[str, Column]) -> CodeArray:
        """Sort the columns, where the rows of a GPU do not lie in order of time.

        Sums are added up in the order of the columns, and must not depend on how rows lie in
        files.
        """
        rows = np.flatnonzero(gpu >= 0)
        order = rows[stable_order(gpu[rows], self._time[rows])]
        self._numbers = {name: values[order] for name, values in self._numbers.items()}
        self._failed, self._time = self._failed[order], self._time[order]
        for name, column in texts.items():
            texts[name] = Column(column.codes[order], column.texts)
        return gpu[order]

    def _column(self, name: str) -> Column:
        """Return a text column with the texts that occur, sorted, whatever order files had."""
        codes, by_file = self._codes[name], self._texts[name]
        slices = [slice(a, b) for a, b in zip(self._starts[:-1], self._starts[1:], strict=True)]
        used: set[str] = set()
        for rows, texts in zip(slices, by_file, strict=True):
            occurs = _occurring(codes[rows], self._keep[rows], len(texts))
            used |= {text for text, there in zip(texts, occurs, strict=True) if there}
        texts = tuple(sorted(used))
        place = {text: number for number, text in enumerate(texts)}
        for rows, mine in zip(slices, by_file, strict=True):
            number = np.array([*(place.get(text, -1) for text in mine), -1], dtype=np.int32)
            _renumber(codes[rows], number)
        return Column(codes, texts)

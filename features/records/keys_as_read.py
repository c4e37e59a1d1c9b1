"""What the keys say of each row of the files, row by row or run by run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.line import Line
from forewarn.features.records.spillable_array import Move

__all__ = ["KeySegments", "KeysAsRead", "RowKeys", "RunKeys"]

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]


class KeySegments(NamedTuple):
    """Rows one after another that are of one GPU and all count, or do not.

    Attributes
    ----------
    begin : ndarray of shape (n,), int64
        First row of each.
    gpu : ndarray of shape (n,), int32
        -1 where the rows do not count.
    n_gpus : int
    """

    begin: IntArray
    gpu: CodeArray
    n_gpus: int

    def between(self, low: int, high: int) -> KeySegments:
        """Return the segments of the rows [low, high), which are counted from the first of them.

        Examples
        --------
        >>> KeySegments(np.array([0, 4, 9]), np.array([7, 8, 7]), 9).between(5, 9).begin
        array([0])
        """
        first = max(0, int(np.searchsorted(self.begin, low, side="right")) - 1)
        last = max(first, int(np.searchsorted(self.begin, high)))
        begin = np.maximum(self.begin[first:last] - low, 0)
        return self._replace(begin=begin, gpu=self.gpu[first:last])

    def cut(self, rows: IntArray) -> KeySegments:
        """Return the same rows with a segment beginning at each of some rows, too.

        Examples
        --------
        >>> KeySegments(np.array([0, 4]), np.array([7, 8]), 9).cut(np.array([0, 2, 4])).gpu
        array([7, 7, 8])
        """
        begin = np.union1d(self.begin, rows)
        gpu = self.gpu[np.searchsorted(self.begin, begin, side="right") - 1]
        return self._replace(begin=begin, gpu=gpu)


@dataclass(frozen=True, slots=True)
class RowKeys:
    """What the keys say of each row of the files.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Position in the serials; -1 for a row to leave out.
    counted : ndarray of shape (n,), bool
        The row is one of the records.
    order : ndarray of shape (n_sorted,), or None
        Rows of the files in the order in which columns lie; None if that is how they come.
    n_gpus : int
    """

    gpu: CodeArray
    counted: BoolArray
    order: IntArray | None
    n_gpus: int

    def order_in(self, file: int) -> None:
        """Return None: rows are taken as they come."""

    def gpu_of(self, rows: slice) -> CodeArray:
        """Return the GPU of some rows."""
        return self.gpu[rows]

    def counted_of(self, rows: slice) -> BoolArray:
        """Tell which of some rows are records."""
        return self.counted[rows]

    def missing_left_out(self, values: npt.NDArray[np.floating], rows: slice) -> int:
        """Count the values of some rows that are missing where the row is no record."""
        return int(np.count_nonzero(np.isnan(values[np.flatnonzero(~self.counted[rows])])))

    def moved(self, move: Move) -> RowKeys:
        """Return the same with its arrays where `move` puts them."""
        order = None if self.order is None else move(self.order)
        return RowKeys(move(self.gpu), move(self.counted), order, self.n_gpus)

    @property
    def gpu_in_order(self) -> CodeArray:
        """The GPU of each row in the order in which columns lie."""
        return self.gpu if self.order is None else self.gpu[self.order]


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The same of files whose rows lie together by GPU, and come by time.

    Attributes
    ----------
    stretches : KeySegments
        Rows that do not count are left out.
    n_rows : int
        Of the files.
    orders : mapping of int to ndarray
        The order in which the rows of a file are taken, by its number; the others have it already.
    """

    stretches: KeySegments
    n_rows: int
    orders: Mapping[int, IntArray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        line: Line,
        n_rows: int,
        n_gpus: int,
        orders: Mapping[int, IntArray] | None = None,
    ) -> Self:
        """Find where the runs of a line were read; the files have so many rows."""
        runs = np.flatnonzero(~line.filled)
        runs = runs[np.argsort(line.order[runs], kind="stable")]
        begin, end = line.order[runs], line.order[runs] + line.n_rows[runs]
        # Before each run, and after the last, there may be rows that do not count.
        first = np.stack([np.append(0, end), np.append(begin, n_rows)]).T.ravel()
        gpu = np.full(len(first), -1, dtype=np.int32)
        gpu[1:-1:2] = line.gpu[runs]
        some = np.diff(np.append(first, n_rows)) > 0
        return cls(KeySegments(first[some], gpu[some], n_gpus), n_rows, orders or {})

    @property
    def order(self) -> None:
        """None: columns lie as their files do."""
        return

    def order_in(self, file: int) -> IntArray | None:
        """Return the order in which the rows of a file are taken; None where they have it."""
        return self.orders.get(file)

    @property
    def n_gpus(self) -> int:
        """The number of GPUs."""
        return self.stretches.n_gpus

    def part(self, rows: slice) -> KeySegments:
        """Return the segments of some rows, which are counted from the first of them."""
        return self.stretches.between(rows.start, rows.stop)

    def gpu_of(self, rows: slice) -> CodeArray:
        """Return the GPU of some rows."""
        begin, gpu, _ = self.part(rows)
        return np.repeat(gpu, np.diff(np.append(begin, rows.stop - rows.start)))

    def counted_of(self, rows: slice) -> BoolArray:
        """Tell which of some rows are records."""
        return self.gpu_of(rows) >= 0

    def missing_left_out(self, values: npt.NDArray[np.floating], rows: slice) -> int:
        """Count the values of some rows that are missing where the row is no record."""
        begin, gpu, _ = self.part(rows)
        left_out = np.flatnonzero(gpu < 0)
        end = np.append(begin, len(values))[left_out + 1]
        return _missing_within(values, begin[left_out], end)

    def moved(self, move: Move) -> RunKeys:
        """Return the same with its arrays where `move` puts them."""
        begin, gpu, n_gpus = self.stretches
        orders = {file: move(order) for file, order in self.orders.items()}
        return RunKeys(KeySegments(move(begin), move(gpu), n_gpus), self.n_rows, orders)

    @property
    def gpu_in_order(self) -> CodeArray:
        """The GPU of each row."""
        return self.gpu_of(slice(0, self.n_rows))


KeysAsRead = RowKeys | RunKeys


@compiled
def _missing_within(values: npt.NDArray[np.floating], begin: IntArray, end: IntArray) -> int:
    """Count the values that are missing in some stretches of rows."""
    missing = 0
    for stretch in range(len(begin)):
        for row in range(begin[stretch], end[stretch]):
            missing += np.isnan(values[row])
    return missing

"""Keys of records in little memory, between two readings of a slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.column_files import (
    ColumnFiles,
    KeysAsRead,
    NullCounts,
    RecordSource,
)
from forewarn.features.records.even_runs import EvenRuns
from forewarn.features.records.table import (
    BoolArray,
    CheckReport,
    CodeArray,
    FeatureKinds,
    IntArray,
    Records,
)
from forewarn.features.time_units import Nanoseconds

__all__ = ["PackedKeys"]


@dataclass(frozen=True, slots=True)
class PackedKeys:
    """The keys of n records and where each was read.

    Compacted records at a fixed interval take half a byte each, those that lie otherwise four
    more, and those whose times are uneven eight more.

    Attributes
    ----------
    interval : Nanoseconds
    serials : tuple of str
    bounds : ndarray of shape (n_gpus + 1,)
        First record of each GPU.
    time, order : EvenRuns
        As of `Records`.
    filled, failed : ndarray of shape (ceil(n / 8),), uint8
        A bit for each record.
    sorted : EvenRuns or None
        `KeysAsRead.order`.
    seen : CheckReport
    """

    interval: Nanoseconds
    serials: tuple[str, ...]
    bounds: IntArray
    time: EvenRuns
    order: EvenRuns
    filled: npt.NDArray[np.uint8]
    failed: npt.NDArray[np.uint8]
    sorted: EvenRuns | None
    seen: CheckReport

    @classmethod
    def of(cls, records: Records, order: IntArray | None) -> PackedKeys:
        """Pack the keys of records; `order` is that of their `KeysAsRead`."""
        return cls(
            Nanoseconds(records.interval),
            records.serials,
            records.gpu_bounds(),
            EvenRuns.of(records.time),
            EvenRuns.of(records.order),
            np.packbits(records.filled),
            np.packbits(records.failed),
            None if order is None else EvenRuns.of(order),
            replace(records.seen, nulls={}),
        )

    def records(self, sources: Sequence[RecordSource], kinds: FeatureKinds) -> Records:
        """Return the records with the columns of numbers of these files, and without texts.

        Parameters
        ----------
        sources : sequence of RecordSource
            Those that the keys were read from.
        kinds : FeatureKinds
        """
        order, n = self.order.values(), int(self.bounds[-1])
        sorted_rows = None if self.sorted is None else self.sorted.values()
        n_read = sum(source.n_rows for source in sources)
        gpu, gpu_as_read = np.empty(n, np.int32), np.full(n_read, -1, dtype=np.int32)
        counted = np.full(n_read, False)
        as_read = order if sorted_rows is None else sorted_rows[order]
        _number_rows(self.bounds, as_read, gpu, gpu_as_read, counted)
        nulls: dict[str, int] = {}
        keys = KeysAsRead(gpu_as_read, counted, sorted_rows, len(self.serials))
        columns = ColumnFiles(sources, kinds, keys, nulls, once=True)
        return Records(
            interval=self.interval,
            serials=self.serials,
            gpu=gpu,
            time=self.time.values(),
            filled=np.unpackbits(self.filled, count=n).view(np.bool_),
            failed=np.unpackbits(self.failed, count=n).view(np.bool_),
            order=order,
            columns=columns,
            counters=kinds.counter,
            events=kinds.code,
            seen=replace(self.seen, nulls=NullCounts(columns, columns.names, nulls)),
        )


@compiled
def _number_rows(
    bounds: IntArray,
    as_read: IntArray,
    gpu: CodeArray,
    gpu_as_read: CodeArray,
    counted: BoolArray,
) -> None:
    """Note the GPU of each record, there and where it was read."""
    for number in range(len(bounds) - 1):
        for row in range(bounds[number], bounds[number + 1]):
            gpu[row] = number
            gpu_as_read[as_read[row]] = number
            counted[as_read[row]] = True

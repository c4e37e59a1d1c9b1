"""Keys of the fleet part by part: some of the GPUs at a time, so that memory does not grow.

Of a compacted file the row groups of a part are read. The rows of another one are read once and
lie on disk, part after part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.records.fleet_slices import MAX_SLICES
from forewarn.features.records.ordering import stable_order
from forewarn.features.threads import imap_threads
from forewarn.pipelines.doctor.file_keys import FleetNumbers, KeyRows, read_rows
from forewarn.pipelines.doctor.fleet_partition import FleetPartition
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.compaction_metadata import is_compacted_name
from forewarn.pipelines.storage.records.consistent_read import ReplacedFileError, read_consistent
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.scratch_arrays import ScratchArrays

__all__ = ["MAX_PART_ROWS", "FleetPart", "FleetParts"]

MAX_PART_ROWS = 4_000_000  # of a part

_Result = TypeVar("_Result")
_Reader = Callable[[int], KeyRows]
_ALL = (0, MAX_SLICES)


class FleetPart(NamedTuple):
    """All rows of some GPUs.

    Attributes
    ----------
    number : ndarray of shape (n_gpus,)
        Numbers of the GPUs in the whole fleet.
    rows : KeyRows
        By GPU and time; `gpu` is the position in `number`.
    """

    number: npt.NDArray[np.int64]
    rows: KeyRows


@dataclass(frozen=True, slots=True)
class FleetParts:
    """The fleet in parts of GPUs.

    Attributes
    ----------
    files : sequence of (Path or RemotePath, int)
        With the number of rows, in the order of their names: of two rows of one GPU and time the
        later one wins.
    gpus, machines : mapping of str to int
        Their numbers, from 0.
    rows_at_once : int
    """

    files: Sequence[tuple[Location, int]]
    gpus: Mapping[str, int]
    machines: Mapping[str, int]
    rows_at_once: int

    def __iter__(self) -> Iterator[FleetPart]:
        n_parts = -(-sum(n_rows for _, n_rows in self.files) // self.rows_at_once)
        partition = FleetPartition.from_serials(list(self.gpus), n_parts)
        readers = list(self._readers(partition))
        for part in np.unique(partition.part).tolist():
            pa.default_memory_pool().release_unused()  # it keeps what many threads have held
            yield self._part(partition, part, readers)

    def _readers(self, partition: FleetPartition) -> Iterator[_Reader]:
        """Yield what reads the rows of a part, for each file."""
        scratch = ScratchArrays()
        for path, _ in self.files:
            source = ParquetSource(path)
            if is_compacted_name(path.name):
                yield partial(self._read, partition, source)
            else:
                yield _on_disk(partition, self._rows(source, _ALL), scratch)

    def _rows(self, source: ParquetSource, slices: tuple[int, int]) -> KeyRows:
        fleet = FleetNumbers(self.gpus, self.machines)
        return _read_replaced(source, lambda still: read_rows(still, slices, fleet))

    def _read(self, partition: FleetPartition, source: ParquetSource, part: int) -> KeyRows:
        """Read the rows that a file has of a part."""
        rows = self._rows(source, partition.slices(part))
        return rows.at(np.flatnonzero(partition.part[rows.gpu] == part))

    def _part(self, partition: FleetPartition, part: int, readers: Sequence[_Reader]) -> FleetPart:
        """Put together the rows that all files have of a part."""
        rows = KeyRows.joined(list(imap_threads(lambda read: read(part), readers)))
        rows = rows._replace(gpu=partition.position[rows.gpu])
        return FleetPart(partition.gpus(part), rows.at(stable_order(rows.gpu, rows.time)))


def _on_disk(partition: FleetPartition, rows: KeyRows, scratch: ScratchArrays) -> _Reader:
    """Put the rows of a file on disk; return what reads those of a part."""
    part = partition.part[rows.gpu]
    order = np.argsort(part, kind="stable")
    begin = np.searchsorted(part[order], np.arange(partition.n_parts + 1))
    read = scratch.keep(rows.at(order))
    return lambda part: KeyRows(*(column[begin[part] : begin[part + 1]] for column in read()))


def _read_replaced(source: ParquetSource, read: Callable[[ParquetSource], _Result]) -> _Result:
    """Return what is read of a file, or of the one that has taken its name."""
    try:
        return read(source)
    except ReplacedFileError:
        return read_consistent(lambda: read(ParquetSource(source.path)))

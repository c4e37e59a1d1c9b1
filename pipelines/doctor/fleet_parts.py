"""Keys of the fleet in parts of some GPUs, to limit memory.

For a compacted file only the row groups of a part are read. The rows of other files are read once
and stored on disk by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
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

MAX_PART_ROWS = 4_000_000  # rows of a part

_Result = TypeVar("_Result")
_Reader = Callable[[int], KeyRows]
_WHOLE_FLEET = (0, MAX_SLICES)


class FleetPart(NamedTuple):
    """All rows of some GPUs.

    Attributes
    ----------
    number : ndarray of shape (n_gpus,)
        Fleet-wide numbers of the GPUs.
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
        Files with their number of rows, sorted by name. For duplicate keys the later row wins.
    gpus, machines : mapping of str to int
        Numbers, starting at 0.
    rows_at_once : int
        Target size of a part.
    names : ColumnNames
        Names of the columns in the files.
    """

    files: Sequence[tuple[Location, int]]
    gpus: Mapping[str, int]
    machines: Mapping[str, int]
    rows_at_once: int
    names: ColumnNames = OUR_NAMES

    def __iter__(self) -> Iterator[FleetPart]:
        n_parts = -(-sum(n_rows for _, n_rows in self.files) // self.rows_at_once)
        partition = FleetPartition.from_serials(list(self.gpus), n_parts)
        readers = list(self._readers(partition))
        for part in np.unique(partition.part).tolist():
            pa.default_memory_pool().release_unused()  # the pool keeps memory of finished threads
            yield self._part(partition, part, readers)

    def _readers(self, partition: FleetPartition) -> Iterator[_Reader]:
        """Yield a function for each file that reads the rows of a part."""
        scratch = ScratchArrays()
        for path, _ in self.files:
            source = ParquetSource(path, self.names)
            if is_compacted_name(path.name):
                yield partial(self._read, partition, source)
            else:
                yield _on_disk(partition, self._rows(source, _WHOLE_FLEET), scratch)

    def _rows(self, source: ParquetSource, slices: tuple[int, int]) -> KeyRows:
        fleet = FleetNumbers(self.gpus, self.machines)
        return _read_replaced(source, lambda still: read_rows(still, slices, fleet))

    def _read(self, partition: FleetPartition, source: ParquetSource, part: int) -> KeyRows:
        """Read the rows of a part from a compacted file."""
        rows = self._rows(source, partition.slices(part))
        return rows.select(np.flatnonzero(partition.part[rows.gpu] == part))

    def _part(self, partition: FleetPartition, part: int, readers: Sequence[_Reader]) -> FleetPart:
        """Join the rows of a part from all files."""
        rows = KeyRows.joined(list(imap_threads(lambda read: read(part), readers)))
        rows = rows._replace(gpu=partition.position[rows.gpu])
        return FleetPart(partition.gpus(part), rows.select(stable_order(rows.gpu, rows.time)))


def _on_disk(partition: FleetPartition, rows: KeyRows, scratch: ScratchArrays) -> _Reader:
    """Store the rows of a file on disk; return a function that reads the rows of a part."""
    part = partition.part[rows.gpu]
    order = np.argsort(part, kind="stable")
    begin = np.searchsorted(part[order], np.arange(partition.n_parts + 1))
    read = scratch.keep(rows.select(order))
    return lambda part: KeyRows(*(column[begin[part] : begin[part + 1]] for column in read()))


def _read_replaced(source: ParquetSource, read: Callable[[ParquetSource], _Result]) -> _Result:
    """Read a file, or the file that has replaced it."""
    try:
        return read(source)
    except ReplacedFileError:
        return read_consistent(lambda: read(ParquetSource(source.path, source.names)))

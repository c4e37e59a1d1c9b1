"""Keys of the fleet part by part: some of the GPUs at a time, so that memory does not grow.

What compacting has brought in order is read once in all: runs are kept, on disk where they are
many, and row groups are those of the part. So is another file whose GPUs are steady. Of those that
are not as much as a part may hold is kept, and the rest read for each part anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.records.ordering import stable_order
from forewarn.features.records.slices import FINEST
from forewarn.features.threads import in_turn
from forewarn.pipelines.doctor.file_keys import FleetNumbers, read_rows, read_runs
from forewarn.pipelines.doctor.fleet_partition import FleetPartition
from forewarn.pipelines.doctor.keys_by_part import KeyRows, KeysByPart, RunSteps
from forewarn.pipelines.storage.compacted_form import is_compacted_name
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.parquet_files import ParquetSource
from forewarn.pipelines.storage.replaced_files import ReplacedFileError, read_until_still
from forewarn.pipelines.storage.spill_space import SpillSpace

__all__ = ["ROWS_AT_ONCE", "FleetPart", "FleetParts"]

ROWS_AT_ONCE = 4_000_000  # of a part, and as many of files that are not compacted

_KEYS_TOGETHER = 1 << 20  # and more by those of one file; they lie part after part

_Result = TypeVar("_Result")
_Keys = tuple[KeyRows, RunSteps | None]
_Reader = Callable[[int], KeyRows]
_ALL = (0, FINEST)


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
        partition = FleetPartition.of(list(self.gpus), n_parts)
        space = SpillSpace()
        readers = list(self._readers(partition, space))
        for part in np.unique(partition.part).tolist():
            space.spill()
            pa.default_memory_pool().release_unused()  # it keeps what many threads have held
            yield self._part(partition, part, readers)

    def _readers(self, partition: FleetPartition, space: SpillSpace) -> Iterator[_Reader]:
        """Yield what reads the rows of a part, of some files each, in the order of the files."""
        files, together, n_keys = [ParquetSource(path) for path, _ in self.files], list[_Keys](), 0
        held = in_turn(lambda file: self._read_once(*file), self._to_hold(files))
        for source, keys in zip(files, held, strict=True):
            if together and (n_keys >= _KEYS_TOGETHER or not _are_alike(together[0], keys)):
                yield _held(partition, together, space)
                together, n_keys = [], 0
            if keys is None:
                yield partial(self._read, partition, source)
            else:
                together.append(keys)
                n_keys += len(keys[0].gpu)
        if together:
            yield _held(partition, together, space)

    def _to_hold(self, files: Sequence[ParquetSource]) -> list[tuple[ParquetSource, bool]]:
        """Tell of which files all rows may be held; of those that are not compacted the first."""
        plain = [0 if is_compacted_name(path.name) else n for path, n in self.files]
        fits = (n <= self.rows_at_once for n in accumulate(plain))
        some = (n > 0 and fit for n, fit in zip(plain, fits, strict=True))
        return list(zip(files, some, strict=True))

    def _read_once(self, source: ParquetSource, hold: bool) -> _Keys | None:
        """Read what is kept of a file; None if it is read for each part."""
        fleet = FleetNumbers(self.gpus, self.machines)
        if is_compacted_name(source.path.name):
            return _of_still(source, lambda file: read_runs(file, fleet))
        rows = _of_still(source, lambda file: read_rows(file, _ALL, fleet))
        return rows.in_runs() or ((rows, None) if hold else None)

    def _read(self, partition: FleetPartition, source: ParquetSource, part: int) -> KeyRows:
        """Read the rows that a file has of a part."""
        fleet, slices = FleetNumbers(self.gpus, self.machines), partition.slices(part)
        rows = _of_still(source, lambda still: read_rows(still, slices, fleet))
        return rows.at(np.flatnonzero(partition.part[rows.gpu] == part))

    def _part(self, partition: FleetPartition, part: int, readers: Sequence[_Reader]) -> FleetPart:
        """Put together the rows that all files have of a part."""
        rows = KeyRows.joined(list(in_turn(lambda read: read(part), readers)))
        rows = rows._replace(gpu=partition.position[rows.gpu])
        return FleetPart(partition.gpus(part), rows.at(stable_order(rows.gpu, rows.time)))


def _are_alike(keys: _Keys, others: _Keys | None) -> bool:
    """Tell whether keys of two files can be held together: both of rows, or both of runs."""
    return others is not None and (others[1] is None) == (keys[1] is None)


def _held(partition: FleetPartition, together: Sequence[_Keys], space: SpillSpace) -> _Reader:
    """Return what reads the rows of a part from keys that are held, on disk if they are many."""
    first = KeyRows.joined([rows for rows, _ in together])
    runs = [steps for _, steps in together if steps is not None]
    steps = RunSteps.joined(runs) if runs else None
    keys = KeysByPart.of(partition.part[first.gpu], partition.n_parts, first, steps)
    space.spill()  # what is held of the files before
    return keys.moved(space.moved).rows


def _of_still(source: ParquetSource, read: Callable[[ParquetSource], _Result]) -> _Result:
    """Return what is read of a file, or of the one that has taken its name."""
    try:
        return read(source)
    except ReplacedFileError:
        return read_until_still(lambda: read(ParquetSource(source.path)))

"""Keys of the fleet part by part: some of the GPUs at a time, so that memory does not grow.

What compacting has brought in order is read once in all: runs are kept, and row groups are those of
the part. So is another file whose GPUs are steady. Of those that are not as much as a part may hold
is kept, and the rest read for each part anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.features.records.ordering import stable_order
from forewarn.features.records.slices import FINEST
from forewarn.features.threads import in_turn
from forewarn.pipelines.doctor.file_keys import FleetNumbers, read_rows, read_runs
from forewarn.pipelines.doctor.fleet_partition import FleetPartition
from forewarn.pipelines.doctor.keys_by_part import KeyRows, KeysByPart, RunSteps
from forewarn.pipelines.storage.compacted_form import is_compacted_name
from forewarn.pipelines.storage.parquet_files import ParquetSource
from forewarn.pipelines.storage.remote_path import Location
from forewarn.pipelines.storage.replaced_files import ReplacedFileError, read_until_still

__all__ = ["ROWS_AT_ONCE", "FleetPart", "FleetParts"]

ROWS_AT_ONCE = 8_000_000  # of a part, and as many of files that are not compacted

_Result = TypeVar("_Result")
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
        files = [ParquetSource(path) for path, _ in self.files]
        keys = list(in_turn(lambda file: self._read_once(partition, *file), self._to_hold(files)))
        for part in np.unique(partition.part).tolist():
            yield self._part(partition, part, list(zip(files, keys, strict=True)))

    def _to_hold(self, files: Sequence[ParquetSource]) -> list[tuple[ParquetSource, bool]]:
        """Tell of which files all rows may be held; of those that are not compacted the first."""
        plain = [0 if is_compacted_name(path.name) else n for path, n in self.files]
        fits = (n <= self.rows_at_once for n in accumulate(plain))
        some = (n > 0 and fit for n, fit in zip(plain, fits, strict=True))
        return list(zip(files, some, strict=True))

    def _read_once(
        self, partition: FleetPartition, source: ParquetSource, hold: bool
    ) -> KeysByPart | None:
        """Read what is kept of a file; None if it is read for each part."""
        fleet = FleetNumbers(self.gpus, self.machines)
        keys: tuple[KeyRows, RunSteps | None] | None = None
        if is_compacted_name(source.path.name):
            keys = _of_still(source, lambda file: read_runs(file, fleet))
        else:
            rows = _of_still(source, lambda file: read_rows(file, _ALL, fleet))
            keys = rows.in_runs() or ((rows, None) if hold else None)
        if keys is None:
            return None
        return KeysByPart.of(partition.part[keys[0].gpu], partition.n_parts, *keys)

    def _part(
        self,
        partition: FleetPartition,
        part: int,
        files: Sequence[tuple[ParquetSource, KeysByPart | None]],
    ) -> FleetPart:
        """Put together the rows that all files have of a part."""

        def read(file: tuple[ParquetSource, KeysByPart | None]) -> KeyRows:
            source, keys = file
            if keys is not None:
                return keys.rows(part)
            fleet, slices = FleetNumbers(self.gpus, self.machines), partition.slices(part)
            rows = _of_still(source, lambda still: read_rows(still, slices, fleet))
            return rows.at(np.flatnonzero(partition.part[rows.gpu] == part))

        rows = KeyRows.joined(list(in_turn(read, files)))
        rows = rows._replace(gpu=partition.position[rows.gpu])
        return FleetPart(partition.gpus(part), rows.at(stable_order(rows.gpu, rows.time)))


def _of_still(source: ParquetSource, read: Callable[[ParquetSource], _Result]) -> _Result:
    """Return what is read of a file, or of the one that has taken its name."""
    try:
        return read(source)
    except ReplacedFileError:
        return read_until_still(lambda: read(ParquetSource(source.path)))

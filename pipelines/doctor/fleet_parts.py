"""Keys of the fleet part by part: some of the GPUs at a time, so that memory does not grow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import (
    Columns,
    Keys,
    Values,
    check_keys,
    check_values,
    numbers_of,
)
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.table import MACHINE, FeatureKinds
from forewarn.features.threads import in_turn
from forewarn.pipelines.storage.parquet_files import work_on_columns
from forewarn.pipelines.storage.remote_path import Location

__all__ = ["ROWS_AT_ONCE", "FleetPart", "FleetParts"]

ROWS_AT_ONCE = 8_000_000  # the keys of all files are read again for each so many rows

Codes = npt.NDArray[np.int32]


class FleetPart(NamedTuple):
    """All rows of some GPUs, by GPU and time.

    Attributes
    ----------
    number : ndarray of shape (n_gpus,)
        Numbers of the GPUs in the whole fleet.
    gpu : ndarray of shape (n,), int32
        Position in `number`.
    time : ndarray of shape (n,), int64
    machine : ndarray of shape (n,), int32
        -1 where it is not known.
    failed : ndarray of shape (n,), bool
    """

    number: npt.NDArray[np.int64]
    gpu: Codes
    time: npt.NDArray[np.int64]
    machine: Codes
    failed: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FleetParts:
    """The fleet in parts of GPUs.

    Attributes
    ----------
    paths : sequence of Path or RemotePath
        In the order of their names: of two rows of one GPU and time the later one wins.
    gpus, machines : mapping of str to int
        Their numbers, from 0.
    n_parts : int
    """

    paths: Sequence[Location]
    gpus: Mapping[str, int]
    machines: Mapping[str, int]
    n_parts: int

    def __iter__(self) -> Iterator[FleetPart]:
        return map(self._part, range(self.n_parts))

    def _part(self, part: int) -> FleetPart:
        """Read the keys of all files, and keep those of a part."""
        files = list(in_turn(partial(self._keys_of_file, part), self.paths))
        gpu, time, machine, failed = (
            np.concatenate(columns) for columns in zip(*files, strict=True)
        )
        del files
        order = stable_order(gpu, time)
        number = np.arange(part, len(self.gpus), self.n_parts)
        return FleetPart(number, gpu[order], time[order], machine[order], failed[order])

    def _keys_of_file(
        self, part: int, path: Location
    ) -> tuple[Codes, npt.NDArray[np.int64], Codes, npt.NDArray[np.bool_]]:
        keys, values = work_on_columns(path, partial(_check, str(path)))
        number = numbers_of(keys.serial.texts, self.gpus)
        of_part = (number >= 0) & (number % self.n_parts == part)
        rows = np.flatnonzero(keys.keep & of_part[keys.serial.codes])
        machine = np.full(len(rows), -1, dtype=np.int32)
        if MACHINE in values.texts:
            column = values.texts[MACHINE]
            machine = numbers_of(column.texts, self.machines)[column.codes[rows]]
        gpu = (number // self.n_parts)[keys.serial.codes[rows]]
        return gpu, keys.time[rows], machine, keys.failed[rows]


def _check(file: str, columns: Columns) -> tuple[Keys, Values]:
    machine = check_values(columns, file=file, kinds=FeatureKinds(), optional=(MACHINE,))
    return check_keys(columns, file=file), machine

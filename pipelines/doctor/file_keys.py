"""Key columns of a file as fleet-wide numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import States, check_keys, check_values
from forewarn.features.records.record_table import MACHINE, FeatureKinds, RawTextColumn
from forewarn.features.records.text_columns import map_texts
from forewarn.pipelines.storage.records.file_slice import FileSlice
from forewarn.pipelines.storage.records.parquet_files import ParquetSource

__all__ = ["FleetNumbers", "KeyRows", "read_rows"]


class KeyRows(NamedTuple):
    """Key columns in file order.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Number of the GPU in the fleet or in a part.
    time : ndarray of shape (n,), int64
    machine : ndarray of shape (n,), int32
        -1 if unknown.
    failed : ndarray of shape (n,), bool
    """

    gpu: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]
    machine: npt.NDArray[np.int32]
    failed: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[KeyRows]) -> Self:
        """Concatenate the rows of several parts."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def select(self, rows: npt.NDArray[np.integer]) -> KeyRows:
        """Return the rows at some positions."""
        return KeyRows(self.gpu[rows], self.time[rows], self.machine[rows], self.failed[rows])

    def state_changes(self) -> States:
        """Return the changes of the failure state; rows must be sorted by GPU and time."""
        return States.from_changes(self.gpu, self.time, self.failed)


class FleetNumbers(NamedTuple):
    """Numbers of all GPUs and machines, starting at 0."""

    gpus: Mapping[str, int]
    machines: Mapping[str, int]


def read_rows(source: ParquetSource, slices: tuple[int, int], fleet: FleetNumbers) -> KeyRows:
    """Read the rows of GPUs that may be in the slices [first, last)."""
    part = FileSlice.for_slices(source, slices)
    with part.columns() as columns:
        values = check_values(columns, file=part.name, kinds=FeatureKinds(), optional=(MACHINE,))
        keys = check_keys(columns, file=part.name)
    gpu = map_texts(keys.serial.texts, fleet.gpus)[keys.serial.codes]
    stays = keys.keep & (gpu >= 0)
    machine = _machines(values.texts.get(MACHINE), len(gpu), fleet)
    rows = KeyRows(gpu, keys.time, machine, keys.failed)
    return (
        rows if stays.all() else rows.select(np.flatnonzero(stays))
    )  # avoid a copy of 17 bytes per row


def _machines(
    column: RawTextColumn | None, n_rows: int, fleet: FleetNumbers
) -> npt.NDArray[np.int32]:
    """Return the machine number of each row."""
    if column is None:
        return np.full(n_rows, -1, dtype=np.int32)
    return map_texts(column.texts, fleet.machines)[column.codes]

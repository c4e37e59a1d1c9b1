"""The keys of a file as numbers of the fleet: of its rows, or of the runs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.file_check import check_keys, check_values
from forewarn.features.records.table import MACHINE, Column, FeatureKinds
from forewarn.features.records.text_columns import numbers_of
from forewarn.pipelines.doctor.keys_by_part import KeyRows, RunSteps
from forewarn.pipelines.storage.file_slice import FileSlice
from forewarn.pipelines.storage.parquet_files import ParquetSource

__all__ = ["FleetNumbers", "read_rows", "read_runs"]


class FleetNumbers(NamedTuple):
    """The numbers of all GPUs and of all machines, from 0."""

    gpus: Mapping[str, int]
    machines: Mapping[str, int]


def read_rows(source: ParquetSource, slices: tuple[int, int], fleet: FleetNumbers) -> KeyRows:
    """Read the rows that can be of GPUs of the finest slices [first, last)."""
    part = FileSlice.of(source, slices)
    with part.columns() as columns:
        values = check_values(columns, file=part.name, kinds=FeatureKinds(), optional=(MACHINE,))
        keys = check_keys(columns, file=part.name)
    gpu = numbers_of(keys.serial.texts, fleet.gpus)[keys.serial.codes]
    stays = keys.keep & (gpu >= 0)
    machine = _machines(values.texts.get(MACHINE), len(gpu), fleet)
    rows = KeyRows(gpu, keys.time, machine, keys.failed)
    return rows if stays.all() else rows.at(np.flatnonzero(stays))  # a copy is 17 bytes a row


def read_runs(source: ParquetSource, fleet: FleetNumbers) -> tuple[KeyRows, RunSteps] | None:
    """Read the first rows of all runs and their steps; None where runs do not say all of a row."""
    runs = source.runs()
    source.forget_runs()
    if runs is None or runs.step is None:
        return None
    if MACHINE in source.schema.names and MACHINE not in runs.texts:
        return None
    first = runs.first
    gpu = numbers_of(first.serial.texts, fleet.gpus)[first.serial.codes]
    rows = np.flatnonzero(gpu >= 0)
    machine = _machines(runs.texts.get(MACHINE), len(gpu), fleet)
    steps = RunSteps(runs.n_rows[rows], runs.step[rows])
    return KeyRows(gpu, first.time, machine, first.failed).at(rows), steps


def _machines(column: Column | None, n_rows: int, fleet: FleetNumbers) -> npt.NDArray[np.int32]:
    """Return the machine of each row."""
    if column is None:
        return np.full(n_rows, -1, dtype=np.int32)
    return numbers_of(column.texts, fleet.machines)[column.codes]

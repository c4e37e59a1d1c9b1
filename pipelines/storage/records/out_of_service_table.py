"""The table `out_of_service.parquet` next to the records: spans of machines and GPUs."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow.compute as pc

from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import OutOfService, OutOfServiceSpan
from forewarn.features.records.record_table import MACHINE, SERIAL, Records, RecordsError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.table_columns import read_names, read_times

__all__ = ["OUT_OF_SERVICE", "for_records", "read_out_of_service"]

OUT_OF_SERVICE = "out_of_service.parquet"


def read_out_of_service(path: Location) -> list[OutOfServiceSpan]:
    """Read the table (formats.md, section 1); empty if the file does not exist.

    Raises
    ------
    RecordsError
        If it cannot be read or lacks a column.
    """
    if not path.exists():
        return []
    table = read_parquet(path)
    for name in (MACHINE, "start"):
        if name not in table.column_names:
            raise RecordsError(f"{path}: column `{name}` is missing.")
    columns = [
        read_names(table, MACHINE, path),
        read_names(table, SERIAL, path),
        read_times(table, "start", path),
        pc.fill_null(read_times(table, "end", path), NEVER),
    ]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    # Rows without machine and GPU, or without a start, are ignored.
    return [
        OutOfServiceSpan(machine or "", serial, start, end)
        for machine, serial, start, end in rows
        if (machine or serial) and start is not None and start < end
    ]


def for_records(absences: list[OutOfServiceSpan], records: Records, path: Location) -> OutOfService:
    """Return the spans of GPUs of records; a machine's spans apply to all GPUs it ever held.

    It is not always known which GPU was in a machine. Treating both as unknown is the safe choice.
    """
    if not absences:
        return OutOfService.empty()
    position = {serial: number for number, serial in enumerate(records.serials)}
    inside = _gpus_of_machines(records, {a.machine for a in absences if a.gpu_serial is None}, path)
    rows = []
    for absence in absences:
        if absence.gpu_serial is None:
            gpus = inside[absence.machine]
        else:
            gpus = [position[absence.gpu_serial]] if absence.gpu_serial in position else []
        rows += [(gpu, absence.start, absence.end) for gpu in gpus]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return OutOfService(table[:, 0].astype(np.int32), table[:, 1], table[:, 2])


def _gpus_of_machines(records: Records, machines: set[str], path: Location) -> dict[str, list[int]]:
    inside: dict[str, list[int]] = defaultdict(list)
    column = records.texts.get(MACHINE)
    if column is None:
        if machines:
            note(
                f"{path}: names machines, but the records have no `{MACHINE}`; its rows are ignored"
            )
        return inside
    codes_out = [code for code, name in enumerate(column.texts) if name in machines]
    codes = records.codes(MACHINE, np.arange(len(records)))
    rows = np.flatnonzero(np.isin(codes, codes_out))
    pairs = np.column_stack([records.gpu[rows], codes[rows]])
    for gpu, code in np.unique(pairs, axis=0).tolist():
        inside[column.texts[code]].append(gpu)
    return inside

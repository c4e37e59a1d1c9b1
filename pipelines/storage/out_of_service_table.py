"""The table `out_of_service.parquet` beside the records: who was out of service, and when."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from forewarn.features.records.failures import NEVER
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.table import MACHINE, SERIAL, Records, RecordsError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.parquet_files import read_parquet
from forewarn.pipelines.storage.table_columns import moments_of, names_of

__all__ = ["OUT_OF_SERVICE", "Outage", "of_records", "read_outages"]

OUT_OF_SERVICE = "out_of_service.parquet"


@dataclass(frozen=True, slots=True)
class Outage:
    """A span [start, end) in which a machine, or one GPU, was out of service.

    Attributes
    ----------
    machine, serial : str or None
        With a serial only this GPU, else all GPUs of the machine.
    start, end : int
        Nanoseconds since 1970 UTC; `end` is `NEVER` while it lasts.
    """

    machine: str | None
    serial: str | None
    start: Nanoseconds
    end: Nanoseconds


def read_outages(path: Path) -> list[Outage]:
    """Read the table (docs/formats.md, section 1); none where there is no file.

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
    ends = pc.fill_null(moments_of(table, "end", path), NEVER)
    columns = [
        names_of(table, MACHINE, path),
        names_of(table, SERIAL, path),
        moments_of(table, "start", path),
        ends,
    ]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [Outage(*row) for row in rows if row[2] is not None and row[2] < row[3]]


def of_records(outages: list[Outage], records: Records, path: Path) -> OutOfService:
    """Return the spans of the GPUs of records; a machine's count for all that it ever held.

    Which GPU sat in a machine that was out is not always seen: unknown is the safe word for both.
    """
    if not outages:
        return OutOfService.none()
    position = {serial: number for number, serial in enumerate(records.serials)}
    inside = _gpus_of_machines(records, {o.machine for o in outages if o.serial is None}, path)
    rows = [
        (gpu, outage.start, outage.end)
        for outage in outages
        for gpu in (
            inside[outage.machine] if outage.serial is None else [position.get(outage.serial)]
        )
        if gpu is not None
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return OutOfService(table[:, 0].astype(np.int32), table[:, 1], table[:, 2])


def _gpus_of_machines(
    records: Records, machines: set[str | None], path: Path
) -> dict[str | None, list[int]]:
    """Return the GPUs that have a record on each of some machines."""
    inside: dict[str | None, list[int]] = defaultdict(list)
    column = records.texts.get(MACHINE)
    if column is None:
        if machines:
            note(f"{path}: names machines, and the records have no `{MACHINE}`: they are left out")
        return inside
    wanted = [code for code, name in enumerate(column.texts) if name in machines]
    rows = np.flatnonzero(np.isin(column.codes, wanted)[records.order])
    pairs = np.column_stack([records.gpu[rows], column.codes[records.order[rows]]])
    for gpu, code in np.unique(pairs, axis=0).tolist():
        inside[column.texts[code]].append(gpu)
    return inside

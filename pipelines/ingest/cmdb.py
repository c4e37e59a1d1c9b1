"""The CMDB: attributes of GPUs that a site maintains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.records.record_table import RecordsError
from forewarn.features.telemetry.export_columns import CMDB_EXPORTS, ExportReader
from forewarn.features.telemetry.gpu_boards import with_board_keys
from forewarn.features.telemetry.telemetry_tables import drop_duplicates
from forewarn.pipelines.storage.records.text_tables import TextRows, read_checked_rows

__all__ = ["Cmdb", "read_cmdb"]

_SERIAL, _UUID, _MACHINE = "gpu_serial", "gpu_uuid", "machine_id"
_EXPORT = ExportReader(CMDB_EXPORTS, (_SERIAL, _MACHINE))
_EXPIRES, _RACK = "expiration_date", "rack"
_MAX_SLOT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Cmdb:
    """Static attributes of GPUs.

    Attributes
    ----------
    attributes : pyarrow.Table
        `gpu_serial` without duplicates, and text columns.
    serial_of_uuid : mapping
        If there is a column `gpu_uuid`.
    doubled : int
        Rows of repeated serials; the last row of a serial wins.
    machines : pyarrow.Table
        `machine_id` without duplicates, and attributes of all GPUs in the machine.
    note : str
        How an export of another system was understood.
    """

    attributes: pa.Table = field(
        default_factory=lambda: pa.table({_SERIAL: pa.array([], pa.string())})
    )
    serial_of_uuid: Mapping[str, str] = field(default_factory=dict)
    doubled: int = 0
    machines: pa.Table = field(
        default_factory=lambda: pa.table({_MACHINE: pa.array([], pa.string())})
    )
    note: str = ""

    @property
    def machine_names(self) -> list[str]:
        """The names of machines."""
        tables = [t for t in (self.attributes, self.machines) if _MACHINE in t.column_names]
        return [n for t in tables for n in pc.unique(t[_MACHINE]).to_pylist() if n is not None]

    @property
    def racks(self) -> dict[str, str]:
        """Rack of each machine that has one."""
        tables = [
            t for t in (self.attributes, self.machines) if {_MACHINE, _RACK} <= {*t.column_names}
        ]
        rows = [row for table in tables for row in table.select([_MACHINE, _RACK]).to_pylist()]
        return {row[_MACHINE]: row[_RACK] for row in rows if row[_MACHINE] and row[_RACK]}

    def unknown_machines(self, names: pa.ChunkedArray) -> list[str]:
        """Return the machines that the CMDB lacks; empty if it describes no machines."""
        if not len(self.machines):
            return []
        return sorted({*pc.unique(names).drop_null().to_pylist()} - {*self.machine_names})

    def unknown(self, serials: pa.ChunkedArray) -> list[str]:
        """Return the serials that the CMDB lacks; empty if there is no CMDB."""
        if not len(self.attributes):
            return []
        reported = pc.unique(serials).drop_null()
        strange = pc.invert(pc.is_in(reported, self.attributes[_SERIAL].combine_chunks()))
        return sorted(reported.filter(strange).to_pylist())


def read_cmdb(path: Path, export: ExportReader = _EXPORT) -> Cmdb:
    """Read a CMDB: one row per GPU with `gpu_serial`, or per machine with `machine_id`.

    Parameters
    ----------
    path : Path
    export : ExportReader, optional
        Finds these columns if the file has other names for them.

    Raises
    ------
    RecordsError
        If it cannot be read, has neither column, a `slot` that is not a number, or an
        `expiration_date` that is not a date. Records with such values would be unreadable.
    """
    rows = read_checked_rows(path, export)
    _check_slots(rows, path)
    _check_dates(rows, path)
    if _SERIAL in rows.table.column_names:
        return replace(_gpus(rows.table), note=rows.note)
    if _MACHINE in rows.table.column_names:
        machines = drop_duplicates(rows.table.filter(pc.is_valid(rows.table[_MACHINE])), [_MACHINE])
        return Cmdb(machines=machines, note=rows.note)
    columns = ", ".join(rows.table.column_names)
    raise RecordsError(
        f"{path}: column `{_SERIAL}` is missing, found {columns}. Name it in the "
        'configuration: `[cmdb] columns = {gpu_serial = "..."}`, or `machine_id` for machines.'
    )


def _gpus(table: pa.Table) -> Cmdb:
    """Return the CMDB of rows that describe GPUs."""
    table = table.filter(pc.is_valid(table[_SERIAL]))
    if _UUID not in table.column_names:
        attributes = drop_duplicates(table, [_SERIAL])
        return Cmdb(attributes, doubled=len(table) - len(attributes))
    by_gpu = drop_duplicates(table, [_SERIAL, _UUID])
    pairs = zip(by_gpu[_UUID].to_pylist(), by_gpu[_SERIAL].to_pylist(), strict=True)
    uuids = {uuid: serial for uuid, serial in pairs if uuid is not None}
    attributes = drop_duplicates(pa.concat_tables([_rows_of_boards(by_gpu), by_gpu]), [_SERIAL])
    return Cmdb(attributes.drop([_UUID]), uuids, len(table) - len(by_gpu))


def _rows_of_boards(by_gpu: pa.Table) -> pa.Table:
    """Return the rows of serials with several UUIDs as `SERIAL/UUID`, in case of boards."""
    serials = Counter(by_gpu[_SERIAL].to_pylist())
    several = [serial for serial, n_uuids in serials.items() if n_uuids > 1]
    named = with_board_keys(by_gpu, several)
    keys = pc.is_in(by_gpu[_SERIAL], pa.array(several, pa.string()))
    return named.filter(pc.and_(keys, pc.is_valid(named[_SERIAL])))


def _check_slots(rows: TextRows, path: Path) -> None:
    if "slot" in rows.table.column_names:
        for slot in rows.table["slot"].drop_null().to_pylist():
            if not _is_slot(slot):
                raise RecordsError(
                    f"{path}: {rows.cell('slot', slot)}, expected a number from 0 to {_MAX_SLOT}."
                )


def _check_dates(rows: TextRows, path: Path) -> None:
    if _EXPIRES in rows.table.column_names:
        for text in pc.unique(rows.table[_EXPIRES]).drop_null():
            try:
                text.cast(pa.timestamp("s"))
            except pa.ArrowInvalid:
                raise RecordsError(
                    f"{path}: {rows.cell(_EXPIRES, text.as_py())}, expected a date such as "
                    "2026-03-01, or nothing."
                ) from None


def _is_slot(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) <= _MAX_SLOT

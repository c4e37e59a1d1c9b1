"""Locations of GPUs: which serial was in a machine on a day, by slot or PCI address."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.record_table import MACHINE, SERIAL, SLOT, TIMESTAMP
from forewarn.features.telemetry.gpu_identity import PLACES, gpu_at_time
from forewarn.features.time_units import Nanoseconds, date_of
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.regular_files import UnreadableFolderError, matching_paths
from forewarn.pipelines.storage.records.mapped_columns import read_named
from forewarn.pipelines.storage.records.parquet_files import open_parquet
from forewarn.pipelines.storage.records.table_columns import read_names, read_times

__all__ = ["GpuLocations"]

_LOCATIONS_FILE = "_state/places.parquet"
_SEEN = pa.schema(
    [
        *((name, pa.string()) for name in (SERIAL, MACHINE, SLOT)),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


@dataclass(slots=True)
class GpuLocations:
    """Locations of GPUs in the records of a folder; each day is read once.

    Attributes
    ----------
    records : Path
    names : ColumnNames
        Names of the columns in the records.
    """

    records: Path
    names: ColumnNames = OUR_NAMES
    _days: dict[dt.date, pa.Table] = field(default_factory=dict, init=False)

    def serial(
        self, machine: str, at: Nanoseconds, *, slot: int | None = None, pci: str = ""
    ) -> str | None:
        """Return the serial of a GPU, or None if it is unknown or ambiguous.

        Without slot and address, it is known only if the machine has a single GPU.

        Parameters
        ----------
        machine : str
        at : int
            Nanoseconds since 1970 UTC. The records of that day and the day before are read.
        slot : int, optional
        pci : str, optional
        """
        if pci:
            return self._at_address(machine, at, pci)
        serials = self._in_machine(machine, at, slot)
        return next(iter(serials)) if len(serials) == 1 else None

    def stays(self) -> dict[tuple[str, str], dict[str, tuple[Nanoseconds, Nanoseconds]]]:
        """Return when each GPU was first and last seen, by machine and PCI address, and serial.

        Empty without a landing of `ingest` or `collect`.
        """
        stays: dict[tuple[str, str], dict[str, tuple[Nanoseconds, Nanoseconds]]] = {}
        for row in self._places().to_pylist():
            if not row["pci"] or not row[SERIAL]:
                continue
            spans = stays.setdefault((row[MACHINE], row["pci"]), {})
            first, last = spans.get(row[SERIAL], (row["first"], row["last"]))
            spans[row[SERIAL]] = (min(first, row["first"]), max(last, row["last"]))
        return stays

    def _in_machine(self, machine: str, at: Nanoseconds, slot: int | None) -> set[str]:
        """Return the serials in a machine at a time, without those replaced before."""
        day = date_of(at)
        for date in (day, day - dt.timedelta(days=1)):
            table = self._day(date)
            rows = table.filter(pc.equal(table[MACHINE], machine)).to_pylist()
            seen = [row for row in rows if row[SERIAL] is not None]
            present = [row for row in seen if not _is_replaced(row, seen, at)]
            serials = {row[SERIAL] for row in present if slot is None or row[SLOT] == str(slot)}
            if serials:
                return serials
        return set()

    def _at_address(self, machine: str, at: Nanoseconds, pci: str) -> str | None:
        """Return the serial at a PCI address, as `ingest` assigns it to an event."""
        table = self._places()
        rows = table.filter(pc.equal(table[MACHINE], machine)).to_pylist()
        addresses = [
            (row["first"], row["last"], row[SERIAL])
            for row in rows
            if row["pci"] and row["pci"].casefold().endswith(pci[-10:])
        ]
        return gpu_at_time(addresses, at)

    def _places(self) -> pa.Table:
        path = self.records / _LOCATIONS_FILE
        return open_parquet(path).read() if path.exists() else PLACES.empty_table()

    def _day(self, date: dt.date) -> pa.Table:
        if date not in self._days:
            files = _files(self.records / f"date={date.isoformat()}")
            tables = [table for path in files if (table := _read(path, self.names)) is not None]
            self._days[date] = pa.concat_tables([_SEEN.empty_table(), *tables])
        return self._days[date]


def _files(day: Path) -> list[Path]:
    """Return the files of a day; none, with a note, if the folder cannot be listed."""
    try:
        return matching_paths(day, "[!._]*.parquet")
    except UnreadableFolderError as error:
        note(f"locations of GPUs on that day are unknown: {error}")
        return []


def _is_replaced(gpu: Mapping[str, Any], seen: Sequence[Mapping[str, Any]], at: int) -> bool:
    """Return whether another GPU was put into the slot after the last record of this one.

    A GPU that was in another slot before is not a replacement: when a GPU is lost, slot numbers
    shift.
    """
    last = max(row["last"] for row in seen if row[SERIAL] == gpu[SERIAL])
    before = {row[SERIAL] for row in seen if row["first"] <= last}
    in_slot = (row for row in seen if row[SLOT] is not None and row[SLOT] == gpu[SLOT])
    return any(row["first"] <= at and row[SERIAL] not in before for row in in_slot)


def _read(path: Path, names: ColumnNames) -> pa.Table | None:
    """Read serials, machines, slots and times; return None if the file is unreadable."""
    try:
        table = read_named(path, (SERIAL, MACHINE, SLOT, TIMESTAMP), names)
        columns = {name: read_names(table, name, path) for name in (SERIAL, MACHINE, SLOT)}
        times = read_times(table, TIMESTAMP, path)
    except (InputError, pa.ArrowException, OSError) as error:
        note(f"{path}: locations of GPUs cannot be read ({error})")
        return None
    rows = pa.table(columns | {"first": times, "last": times})
    spans = rows.group_by([SERIAL, MACHINE, SLOT], use_threads=False)
    aggregated = spans.aggregate([("first", "min"), ("last", "max")])
    return aggregated.rename_columns(_SEEN.names).cast(_SEEN)

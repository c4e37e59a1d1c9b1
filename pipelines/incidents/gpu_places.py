"""Places of GPUs: which serial sat in a machine on a day, by its number or its PCI address."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.records.table import MACHINE, SERIAL, SLOT
from forewarn.features.time_units import Nanoseconds, date_of
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.parquet_files import open_parquet
from forewarn.pipelines.storage.regular_files import UnreadableFolderError, paths_like
from forewarn.pipelines.storage.table_columns import names_of

__all__ = ["GpuPlaces"]

_PLACES = "_state/places.parquet"


@dataclass(slots=True)
class GpuPlaces:
    """Where the records of a folder saw GPUs; each day is read once.

    Attributes
    ----------
    records : Path
    """

    records: Path
    _days: dict[dt.date, pa.Table] = field(default_factory=dict, init=False)

    def serial(
        self, machine: str, at: Nanoseconds, *, slot: int | None = None, pci: str = ""
    ) -> str | None:
        """Return the one GPU that is meant; None where several may be, or nobody knows.

        Without a number and an address it is known only if the machine has a single GPU.

        Parameters
        ----------
        machine : str
        at : int
            Nanoseconds since 1970 UTC. The records of this day and of the day before are read.
        slot : int, optional
        pci : str, optional
        """
        serials = self._at_address(machine, pci) if pci else self._in_machine(machine, at, slot)
        return next(iter(serials)) if len(serials) == 1 else None

    def _in_machine(self, machine: str, at: Nanoseconds, slot: int | None) -> set[str]:
        day = date_of(at)
        for date in (day, day - dt.timedelta(days=1)):
            table = self._day(date)
            rows = pc.equal(table[MACHINE], machine)
            if slot is not None:
                rows = pc.and_(rows, pc.equal(table[SLOT], str(slot)))
            serials = {s for s in table.filter(rows)[SERIAL].to_pylist() if s is not None}
            if serials:
                return serials
        return set()

    def _at_address(self, machine: str, pci: str) -> set[str]:
        """Return who was ever seen at an address; two boards in a row there are not told apart."""
        path = self.records / _PLACES
        if not path.exists():
            return set()
        table = open_parquet(path).read(columns=[MACHINE, "pci", SERIAL])
        rows = table.filter(pc.equal(table[MACHINE], machine)).to_pylist()
        return {
            row[SERIAL] for row in rows if row["pci"] and row["pci"].casefold().endswith(pci[-10:])
        }

    def _day(self, date: dt.date) -> pa.Table:
        if date not in self._days:
            files = _files(self.records / f"date={date.isoformat()}")
            tables = [table for path in files if (table := _read(path)) is not None]
            names = [(name, pa.string()) for name in (SERIAL, MACHINE, SLOT)]
            self._days[date] = pa.concat_tables([pa.schema(names).empty_table(), *tables])
        return self._days[date]


def _files(day: Path) -> list[Path]:
    """Return the files of a day; none, with a note, where it may not be listed."""
    try:
        return paths_like(day, "[!._]*.parquet")
    except UnreadableFolderError as error:
        note(f"where GPUs were on that day is not known: {error}")
        return []


def _read(path: Path) -> pa.Table | None:
    """Read who was where; None, with a note, of a file that cannot be read or does not say."""
    try:
        file = open_parquet(path)
        names = [n for n in (SERIAL, MACHINE, SLOT) if n in file.schema_arrow.names]
        table = file.read(columns=names)
        columns = {name: names_of(table, name, path) for name in (SERIAL, MACHINE, SLOT)}
    except (InputError, pa.ArrowException, OSError) as error:
        note(f"{path}: does not say where GPUs are ({error})")
        return None
    distinct = pa.table(columns).group_by([SERIAL, MACHINE, SLOT], use_threads=False)
    return distinct.aggregate([])

"""Where collected rows land: records by hour, events, failures, each a pure function of its parts.

What arrived stays as it came, by hour, in `_readings` and `_events`; the records of an hour are
made anew of all of it. So a batch that comes late, twice, or again after a crash gives the same.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.telemetry.collected import event_ticks, reading_ticks, records_of
from forewarn.features.telemetry.evidence import (
    BOOTS,
    TICKETS,
    FailureRules,
    failures_of,
)
from forewarn.features.telemetry.identity import (
    PLACES,
    Rival,
    joined_places,
    places_of,
    with_event_serials,
    with_one_host,
    with_serials,
    without_rivals,
)
from forewarn.features.telemetry.tables import EVENTS, READINGS, newest
from forewarn.pipelines.cmdb import Cmdb
from forewarn.pipelines.stages import progress_bar
from forewarn.pipelines.store import open_parquet, replacing

__all__ = ["Landed", "Landing"]

_HOUR = 3600 * 10**9
_READING = ("machine_id", "gpu_serial", "gpu_uuid", "pci", "timestamp")
_EVIDENCE = pa.schema(
    [
        EVENTS.field(name)
        for name in (
            *("timestamp", "gpu_serial", "machine_id", "kind", "code"),
            *("pci", "gpu_uuid", "known_at", "id"),
        )
    ]
)
# Clocks of hosts drift by a second or two against the moment that the kernel says it started.
_START = 60 * 10**9


@dataclass(slots=True)
class Landed:
    """What became of what was landed.

    Attributes
    ----------
    readings, events : int
        New ones.
    doubled : int
        Rows that were there already.
    records : int
        In the hours that changed.
    failures : int
        In the whole table.
    nameless : int
        Readings that name no GPU: they are kept, and make no record.
    unknown : set of str
        Serials that the CMDB lacks: their records have no attributes of it.
    unplaced : int
        Events of an address at which no GPU was ever seen.
    rivals : Counter of Rival
        Readings left out of the records, since another host had that GPU.
    """

    readings: int = 0
    events: int = 0
    doubled: int = 0
    records: int = 0
    failures: int = 0
    nameless: int = 0
    unknown: set[str] = field(default_factory=set)
    unplaced: int = 0
    rivals: Counter[Rival] = field(default_factory=Counter)

    def join(self, later: Landed) -> None:
        """Add what a later call did."""
        self.readings += later.readings
        self.events += later.events
        self.doubled += later.doubled
        self.records += later.records
        self.failures = later.failures
        self.nameless += later.nameless
        self.unknown |= later.unknown
        self.unplaced += later.unplaced
        self.rivals += later.rivals


@dataclass(slots=True)
class Landing:
    """The folder of records that collected rows become.

    Attributes
    ----------
    folder : Path
        RECORDS of CONTRACTS, section 1; `_readings`, `_events` and `_state` lie in it.
    interval : int
        Nanoseconds between two records.
    rules : FailureRules
    cmdb : Cmdb
    """

    folder: Path
    interval: int
    rules: FailureRules = field(default_factory=FailureRules)
    cmdb: Cmdb = field(default_factory=Cmdb)

    def land(
        self,
        readings: pa.Table,
        events: pa.Table,
        tickets: pa.Table | None = None,
        boards: pa.Table | None = None,
    ) -> Landed:
        """Add rows to what is there, and make records, events and failures of all of it.

        It may be interrupted anywhere and called again with the same rows.

        Parameters
        ----------
        readings, events : pyarrow.Table
            READINGS and EVENTS, as `check_table` gives them.
        tickets : pyarrow.Table, optional
            TICKETS; one that is there already (serial and `failed_at`) is replaced.
        boards : pyarrow.Table, optional
            PLACES that the driver itself named in a kernel log.
        """
        done = Landed()
        with self._locked():
            named = with_serials(readings, self.cmdb.serial_of_uuid)
            done.nameless = named["gpu_serial"].null_count
            done.unknown = set(self.cmdb.unknown(named["gpu_serial"]))
            told = PLACES.empty_table() if boards is None else boards
            places = joined_places(self._state("places", PLACES), told, places_of(named))
            _write(self._state_file("places"), places)
            boots = _earliest(pa.concat_tables([self._state("boots", BOOTS), _boots_of(named)]))
            _write(self._state_file("boots"), boots)
            evidence, cleared = self._evidence(events, places)
            _write(self._state_file("evidence"), evidence)
            self._land_hours(readings, events, cleared, places, done)
            failures = failures_of(evidence, self._tickets(tickets), boots, self.rules)
            done.failures = len(failures)
            _write(self.folder / "failures.parquet", failures)
        return done

    def land_tickets(self, tickets: pa.Table) -> Landed:
        """Add repair tickets alone."""
        return self.land(READINGS.empty_table(), EVENTS.empty_table(), tickets)

    def sweep(self) -> None:
        """Remove the unfinished files of a process that was killed."""
        with self._locked():
            for left in self.folder.glob("**/.*.tmp"):
                left.unlink()

    def _evidence(self, events: pa.Table, places: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return all events that can make or end a failure, and those whose GPU is known only now.

        Of an event that came twice the first one counts: that is when it was known.
        """
        kinds = pa.array(["xid", "lost", "back"])
        new = events.filter(pc.is_in(events["kind"], kinds)).select(_EVIDENCE.names)
        before = self._state("evidence", _EVIDENCE)
        joined = newest(pa.concat_tables([before, new.cast(_EVIDENCE)]), ("id",), first=True)
        now = with_event_serials(joined, places, self.cmdb.serial_of_uuid)
        cleared = pc.and_(pc.is_null(joined["gpu_serial"]), pc.is_valid(now["gpu_serial"]))
        return now, now.filter(cleared)

    def _land_hours(
        self,
        readings: pa.Table,
        events: pa.Table,
        cleared: pa.Table,
        places: pa.Table,
        done: Landed,
    ) -> None:
        """Make the records of every hour that got a row, or the GPU of one, anew."""
        new_readings = _by_hour(readings, reading_ticks(readings, self.interval))
        new_events = _by_hour(events, event_ticks(events, self.interval))
        hours = {
            *new_readings,
            *new_events,
            *_by_hour(cleared, event_ticks(cleared, self.interval)),
        }
        with progress_bar(len(hours), "records", "hour") as bar:
            for hour in sorted(hours):
                all_readings = self._added("_readings", hour, READINGS, new_readings, done)
                all_events = self._added("_events", hour, EVENTS, new_events, done)
                placed = with_event_serials(all_events, places, self.cmdb.serial_of_uuid)
                unknown = pc.and_(pc.is_valid(placed["pci"]), pc.is_null(placed["gpu_serial"]))
                done.unplaced += pc.sum(unknown).as_py() or 0
                for part, rows in (("_readings", all_readings), ("_events", placed)):
                    if len(rows):
                        _write(self._hour_file(part, hour), rows)
                self._make_records(hour, all_readings, placed, places, done)
                bar.update()

    def _added(
        self, part: str, hour: int, schema: pa.Schema, new: Mapping[int, pa.Table], done: Landed
    ) -> pa.Table:
        """Return the rows of an hour that were there and those that are new, each once."""
        before = _read(self._hour_file(part, hour), schema)
        rows = new.get(hour, schema.empty_table())
        if part == "_readings":
            joined = newest(pa.concat_tables([before, rows]), _READING)
            done.readings += len(joined) - len(before)
        else:
            joined = newest(pa.concat_tables([before, rows]), ("id",), first=True)
            done.events += len(joined) - len(before)
        done.doubled += len(before) + len(rows) - len(joined)
        return joined

    def _make_records(
        self, hour: int, readings: pa.Table, events: pa.Table, places: pa.Table, done: Landed
    ) -> None:
        named = with_serials(readings, self.cmdb.serial_of_uuid)
        named, rivals = with_one_host(named, places, reading_ticks(named, self.interval))
        done.rivals += rivals
        events = without_rivals(events, rivals)
        records = records_of(named, events, self.cmdb.attributes, interval=self.interval)
        if len(records):
            done.records += len(records)
            date, clock = _names(hour)
            _write(self.folder / f"date={date}" / f"collected-{clock}.parquet", records)

    def _tickets(self, new: pa.Table | None) -> pa.Table:
        """Return all repair tickets; one that comes again is the newer knowledge."""
        before = self._state("tickets", TICKETS)
        if new is None:
            return before
        joined = newest(pa.concat_tables([before, new.cast(TICKETS)]), ("gpu_serial", "failed_at"))
        _write(self._state_file("tickets"), joined)
        return joined

    def _hour_file(self, part: str, hour: int) -> Path:
        date, clock = _names(hour)
        return self.folder / part / f"date={date}" / f"{clock}.parquet"

    def _state_file(self, name: str) -> Path:
        return self.folder / "_state" / f"{name}.parquet"

    def _state(self, name: str, schema: pa.Schema) -> pa.Table:
        return _read(self._state_file(name), schema)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process at a time land rows here."""
        lock = self.folder / "_state" / "lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _by_hour(table: pa.Table, ticks: npt.NDArray[np.int64]) -> dict[int, pa.Table]:
    """Return the rows of each hour that their intervals end in."""
    hours = ticks // _HOUR
    order = np.argsort(hours, kind="stable")
    found, starts = np.unique(hours[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(order) else []
    return {int(hour): table.take(part) for hour, part in zip(found, parts, strict=True)}


def _names(hour: int) -> tuple[str, str]:
    """Return date and hour as file names say them."""
    moment = dt.datetime.fromtimestamp(hour * 3600, dt.UTC)
    return moment.date().isoformat(), f"{moment.hour:02}"


def _boots_of(readings: pa.Table) -> pa.Table:
    """Return when each GPU was first seen after each start of its host."""
    there = readings.filter(
        pc.and_(pc.is_valid(readings["gpu_serial"]), pc.is_valid(readings["boot_time"]))
    )
    start = pc.multiply(pc.divide(there["boot_time"], _START), _START)
    columns = [there["gpu_serial"], start, there["timestamp"].cast(pa.int64())]
    return _earliest(pa.table(columns, schema=BOOTS))


def _earliest(boots: pa.Table) -> pa.Table:
    found = boots.group_by(["gpu_serial", "boot_time"], use_threads=False)
    table = found.aggregate([("first_seen", "min")]).rename_columns(BOOTS.names)
    return table.sort_by([(name, "ascending") for name in BOOTS.names]).cast(BOOTS)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    return open_parquet(path).read().cast(schema) if path.exists() else schema.empty_table()


def _write(path: Path, table: pa.Table) -> None:
    """Write a whole file that outlives a loss of power."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())

"""Where collected rows land: records by hour, events, failures, each a pure function of its parts.

What arrived stays as it came, by hour, in `_readings` and `_events`; the records of an hour are
made anew of all of it. So a batch that comes late, twice, or again after a crash gives the same.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.telemetry.failure_evidence import (
    BOOTS,
    TICKETS,
    FailureRules,
    failures_of,
)
from forewarn.features.telemetry.gpu_identity import (
    PLACES,
    Rival,
    joined_places,
    places_of,
    with_event_serials,
    with_one_host,
    with_serials,
    without_rivals,
)
from forewarn.features.telemetry.record_join import event_ticks, reading_ticks, records_of
from forewarn.features.telemetry.tables import EVENTS, READINGS, check_table, newest
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.quarantine import Quarantine, is_broken
from forewarn.pipelines.runtime.clock import MOST_AHEAD, Clock, SystemClock
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.record_store import replacing

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
    ahead : int
        Rows of the future: the clock that they were written by is wrong, so they are left out.
    quarantined : list of str
        Files that cannot be read any more, where they are now, and why.
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
    ahead: int = 0
    quarantined: list[str] = field(default_factory=list)

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
        self.ahead += later.ahead
        self.quarantined += later.quarantined


@dataclass(slots=True)
class Landing:
    """The folder of records that collected rows become.

    Attributes
    ----------
    folder : Path
        RECORDS of docs/formats.md, section 1; `_readings`, `_events` and `_state` lie in it.
    interval : int
        Nanoseconds between two records.
    rules : FailureRules
    cmdb : Cmdb
    clock : Clock
        Says what is of the future.
    """

    folder: Path
    interval: int
    rules: FailureRules = field(default_factory=FailureRules)
    cmdb: Cmdb = field(default_factory=Cmdb)
    clock: Clock = field(default_factory=SystemClock)
    _quarantined: list[str] = field(default_factory=list)

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
        latest = self.clock.now() + MOST_AHEAD
        arrived = len(readings) + len(events)
        readings, events = (_until(table, "timestamp", latest) for table in (readings, events))
        done.ahead = arrived - len(readings) - len(events)
        with self._locked():
            named = with_serials(readings, self.cmdb.serial_of_uuid)
            done.nameless = named["gpu_serial"].null_count
            done.unknown = set(self.cmdb.unknown(named["gpu_serial"]))
            told = PLACES.empty_table() if boards is None else _until(boards, "last", latest)
            places = joined_places(self._state("places", PLACES), told, places_of(named))
            _write(self._state_file("places"), places)
            boots = _earliest(pa.concat_tables([self._state("boots", BOOTS), _boots_of(named)]))
            _write(self._state_file("boots"), boots)
            evidence, cleared = self._evidence(events, places)
            _write(self._state_file("evidence"), evidence)
            self._land_hours(readings, events, cleared, places, evidence, done)
            failures = failures_of(evidence, self._tickets(tickets), boots, self.rules)
            done.failures = len(failures)
            _write(self.folder / "failures.parquet", failures)
        done.quarantined, self._quarantined = self._quarantined, []
        return done

    def lacks_tickets(self) -> bool:
        """Tell whether no ticket ever landed here, or the file of them was lost."""
        return not self._state_file("tickets").exists()

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
        before = self._state("evidence", _EVIDENCE)
        joined = newest(pa.concat_tables([before, _evidence_of(events)]), ("id",), first=True)
        now = with_event_serials(joined, places, self.cmdb.serial_of_uuid)
        cleared = pc.and_(pc.is_null(joined["gpu_serial"]), pc.is_valid(now["gpu_serial"]))
        return now, now.filter(cleared)

    def _land_hours(
        self,
        readings: pa.Table,
        events: pa.Table,
        cleared: pa.Table,
        places: pa.Table,
        evidence: pa.Table,
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
                old_readings = self._readings_of(hour)
                all_readings = _added(old_readings, new_readings.get(hour), _READING, done)
                done.readings += len(all_readings) - len(old_readings)
                old_events = self._events_of(hour, evidence)
                all_events = _added(old_events, new_events.get(hour), ("id",), done)
                done.events += len(all_events) - len(old_events)
                placed = with_event_serials(all_events, places, self.cmdb.serial_of_uuid)
                unknown = pc.and_(pc.is_valid(placed["pci"]), pc.is_null(placed["gpu_serial"]))
                done.unplaced += pc.sum(unknown).as_py() or 0
                for part, rows in (("_readings", all_readings), ("_events", placed)):
                    if len(rows):
                        _write(self._hour_file(part, hour), rows)
                self._make_records(hour, all_readings, placed, places, done)
                bar.update()

    def _readings_of(self, hour: int) -> pa.Table:
        """Return the readings of an hour that were there.

        Where they are lost, the records that were made of them are kept, or the next batch of this
        hour would replace them: of records that are there twice the later file name counts.
        """
        readings = self._read(self._hour_file("_readings", hour), READINGS)
        if readings is not None:
            return readings
        records = self._records_file(hour)
        if records.exists():
            number = sum(1 for _ in records.parent.glob(f"before-*{records.name}"))
            records.replace(records.with_name(f"before-{number}-{records.name}"))
        return READINGS.empty_table()

    def _events_of(self, hour: int, evidence: pa.Table) -> pa.Table:
        """Return the events of an hour that were there, or what is left of them as evidence."""
        events = self._read(self._hour_file("_events", hour), EVENTS)
        if events is not None:
            return events
        left = _by_hour(evidence, event_ticks(evidence, self.interval)).get(hour)
        return EVENTS.empty_table() if left is None else check_table(left, EVENTS)

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
            _write(self._records_file(hour), records)

    def _tickets(self, new: pa.Table | None) -> pa.Table:
        """Return all repair tickets; one that comes again is the newer knowledge."""
        before = self._state("tickets", TICKETS)
        if new is None:
            return before
        joined = newest(pa.concat_tables([before, new.cast(TICKETS)]), ("gpu_serial", "failed_at"))
        _write(self._state_file("tickets"), joined)
        return joined

    def _records_file(self, hour: int) -> Path:
        date, clock = _names(hour)
        return self.folder / f"date={date}" / f"collected-{clock}.parquet"

    def _hour_file(self, part: str, hour: int) -> Path:
        date, clock = _names(hour)
        return self.folder / part / f"date={date}" / f"{clock}.parquet"

    def _state_file(self, name: str) -> Path:
        return self.folder / "_state" / f"{name}.parquet"

    def _state(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table of what is known; one that is lost is made again of all hours."""
        path = self._state_file(name)
        table = self._read(path, schema) if path.exists() else None
        if table is not None:
            return table
        make = {"places": self._all_places, "boots": self._all_boots, "evidence": self._all_told}
        return make[name]() if name in make else schema.empty_table()

    def _all_places(self) -> pa.Table:
        return joined_places(PLACES.empty_table(), *self._each_hour("_readings", places_of))

    def _all_boots(self) -> pa.Table:
        return pa.concat_tables([BOOTS.empty_table(), *self._each_hour("_readings", _boots_of)])

    def _all_told(self) -> pa.Table:
        parts = self._each_hour("_events", _evidence_of)
        return pa.concat_tables([_EVIDENCE.empty_table(), *parts]).sort_by("known_at")

    def _each_hour(self, part: str, make: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """Yield what is made of the rows of every hour, their GPUs named."""
        schema = READINGS if part == "_readings" else EVENTS
        for path in sorted((self.folder / part).glob("date=*/[0-9]*.parquet")):
            rows = self._read(path, schema, move=False)
            if rows is not None:
                yield make(with_serials(rows, self.cmdb.serial_of_uuid))

    def _read(self, path: Path, schema: pa.Schema, *, move: bool = True) -> pa.Table | None:
        """Read a file of ours; one that cannot be read is moved out of the way, with its reason."""
        if not path.exists():
            return schema.empty_table()
        try:
            with pq.ParquetFile(path, read_dictionary=[], page_checksum_verification=True) as file:
                return file.read().cast(schema)
        except Exception as error:
            if not is_broken(error):
                raise
            if move:
                reason = (str(error).splitlines() or [""])[0][:200]
                self._quarantined.append(Quarantine(self.folder).take(path, reason))
            return None

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
    # A host cannot start after it was read; such a start would end failures that still last.
    started = pc.less_equal(readings["boot_time"], readings["timestamp"].cast(pa.int64()))
    there = readings.filter(pc.and_(pc.is_valid(readings["gpu_serial"]), started))
    start = pc.multiply(pc.divide(there["boot_time"], _START), _START)
    columns = [there["gpu_serial"], start, there["timestamp"].cast(pa.int64())]
    return _earliest(pa.table(columns, schema=BOOTS))


def _earliest(boots: pa.Table) -> pa.Table:
    found = boots.group_by(["gpu_serial", "boot_time"], use_threads=False)
    table = found.aggregate([("first_seen", "min")]).rename_columns(BOOTS.names)
    return table.sort_by([(name, "ascending") for name in BOOTS.names]).cast(BOOTS)


def _added(before: pa.Table, new: pa.Table | None, keys: tuple[str, ...], done: Landed) -> pa.Table:
    """Return the rows that were there and those that are new, each once.

    Of a reading the last word counts, of an event the first: that is when it was known.
    """
    rows = before if new is None else pa.concat_tables([before, new])
    joined = newest(rows, keys, first=keys == ("id",))
    done.doubled += len(rows) - len(joined)
    return joined


def _evidence_of(events: pa.Table) -> pa.Table:
    """Return those of some events that can make or end a failure."""
    kinds = pa.array(["xid", "lost", "back"])
    return events.filter(pc.is_in(events["kind"], kinds)).select(_EVIDENCE.names).cast(_EVIDENCE)


def _until(table: pa.Table, column: str, latest: int) -> pa.Table:
    """Return the rows up to a moment."""
    return table.filter(pc.less_equal(table[column].cast(pa.int64()), latest))


def _write(path: Path, table: pa.Table) -> None:
    """Write a whole file that outlives a loss of power."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
        file.flush()
        os.fsync(file.fileno())

"""Where collected rows land: records by hour, events, failures, each a pure function of its parts.

What arrived stays as it came, by hour, in `_readings` and `_events`; the records of an hour are
made anew of all of it. So a batch that comes late, twice, or again after a crash gives the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.failure_evidence import (
    BOOTS,
    EVIDENCE,
    TICKETS,
    FailureRules,
    boots_of,
    earliest_boots,
    evidence_of,
    failures_of,
)
from forewarn.features.telemetry.gpu_identity import (
    PLACES,
    RIVALS,
    Rival,
    joined_places,
    places_of,
    rivals_table,
    with_event_serials,
    with_one_host,
    with_serials,
    without_rival_hours,
    without_rivals,
)
from forewarn.features.telemetry.record_join import event_ticks, reading_ticks, records_of
from forewarn.features.telemetry.tables import EVENTS, READINGS, check_table, newest
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.known_tables import KnownTables
from forewarn.pipelines.ingest.landed import Landed
from forewarn.pipelines.ingest.landing_folder import LandingFolder
from forewarn.pipelines.runtime.clock import MOST_AHEAD, Clock, SystemClock
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["Landing"]

_HOUR = 3600 * 10**9
_READING = ("machine_id", "gpu_serial", "gpu_uuid", "pci", "timestamp")


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
    _folder: LandingFolder = field(init=False)

    def __post_init__(self) -> None:
        self._folder = LandingFolder(self.folder)

    @property
    def _known(self) -> KnownTables:
        return KnownTables(self._folder, self.interval, self.cmdb.serial_of_uuid)

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
        with self._folder.locked():
            named = with_serials(readings, self.cmdb.serial_of_uuid)
            done.nameless = named["gpu_serial"].null_count
            done.unknown = set(self.cmdb.unknown(named["gpu_serial"]))
            named_boards = (
                PLACES.empty_table() if boards is None else _until(boards, "last", latest)
            )
            places = joined_places(
                self._known.table("places", PLACES), named_boards, places_of(named)
            )
            self._folder.write(self._folder.state_file("places"), places)
            boots = earliest_boots(
                pa.concat_tables([self._known.table("boots", BOOTS), boots_of(named)])
            )
            self._folder.write(self._folder.state_file("boots"), boots)
            evidence, cleared = self._evidence(events, places)
            self._folder.write(self._folder.state_file("evidence"), evidence)
            rivals = self._known.table("rivals", RIVALS)
            fresh = self._land_hours(readings, events, cleared, places, evidence, done)
            rivals = _renewed(rivals, fresh)
            self._folder.write(self._folder.state_file("rivals"), rivals)
            hours = event_ticks(evidence, self.interval) // _HOUR
            sound = without_rival_hours(evidence, hours, rivals)
            failures = failures_of(sound, self._tickets(tickets), boots, self.rules)
            done.failures = len(failures)
            self._folder.write(self.folder / "failures.parquet", failures)
        done.quarantined, self._folder.quarantined = self._folder.quarantined, []
        return done

    def lacks_tickets(self) -> bool:
        """Tell whether no ticket ever landed here, or the file of them was lost."""
        return not self._folder.state_file("tickets").exists()

    def land_tickets(self, tickets: pa.Table) -> Landed:
        """Add repair tickets alone."""
        return self.land(READINGS.empty_table(), EVENTS.empty_table(), tickets)

    def sweep(self) -> None:
        """Remove the unfinished files of a process that was killed."""
        self._folder.sweep()

    def _evidence(self, events: pa.Table, places: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return all events that can make or end a failure, and those whose GPU is known only now.

        Of an event that came twice the first one counts: that is when it was known.
        """
        before = self._known.table("evidence", EVIDENCE)
        joined = newest(pa.concat_tables([before, evidence_of(events)]), ("id",), first=True)
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
    ) -> dict[int, Counter[Rival]]:
        """Make the records of every hour that got a row, or the GPU of one, anew.

        Return the readings left out of each.
        """
        rivals = {}
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
                of_gpu = placed.filter(pc.not_equal(placed["kind"], "sxid"))  # others name a switch
                unknown = pc.and_(pc.is_valid(of_gpu["pci"]), pc.is_null(of_gpu["gpu_serial"]))
                done.unplaced += pc.sum(unknown).as_py() or 0
                for part, rows in (("_readings", all_readings), ("_events", placed)):
                    if len(rows):
                        self._folder.write(self._folder.hour_file(part, hour), rows)
                rivals[hour] = self._make_records(hour, all_readings, placed, places, done)
                bar.update()
        return rivals

    def _readings_of(self, hour: int) -> pa.Table:
        """Return the readings of an hour that were there.

        Where they are lost, the records that were made of them are kept, or the next batch of this
        hour would replace them: of records that are there twice the later file name counts.
        """
        readings = self._folder.read(self._folder.hour_file("_readings", hour), READINGS)
        if readings is not None:
            return readings
        records = self._folder.records_file(hour)
        if records.exists():
            number = sum(1 for _ in records.parent.glob(f"before-*{records.name}"))
            records.replace(records.with_name(f"before-{number}-{records.name}"))
        return READINGS.empty_table()

    def _events_of(self, hour: int, evidence: pa.Table) -> pa.Table:
        """Return the events of an hour that were there, or what is left of them as evidence."""
        events = self._folder.read(self._folder.hour_file("_events", hour), EVENTS)
        if events is not None:
            return events
        left = _by_hour(evidence, event_ticks(evidence, self.interval)).get(hour)
        return EVENTS.empty_table() if left is None else check_table(left, EVENTS)

    def _make_records(
        self, hour: int, readings: pa.Table, events: pa.Table, places: pa.Table, done: Landed
    ) -> Counter[Rival]:
        """Write the records of an hour; return the readings left out of them."""
        named = with_serials(readings, self.cmdb.serial_of_uuid)
        named, rivals = with_one_host(named, places, reading_ticks(named, self.interval))
        done.rivals += rivals
        events = without_rivals(events, rivals)
        records = records_of(named, events, self.cmdb.attributes, interval=self.interval)
        if len(records):
            done.records += len(records)
            self._folder.write(self._folder.records_file(hour), records)
        return rivals

    def _tickets(self, new: pa.Table | None) -> pa.Table:
        """Return all repair tickets; one that comes again is the newer knowledge."""
        before = self._known.table("tickets", TICKETS)
        if new is None:
            return before
        joined = newest(pa.concat_tables([before, new.cast(TICKETS)]), ("gpu_serial", "failed_at"))
        self._folder.write(self._folder.state_file("tickets"), joined)
        return joined


def _by_hour(table: pa.Table, ticks: npt.NDArray[np.int64]) -> dict[int, pa.Table]:
    """Return the rows of each hour that their intervals end in."""
    hours = ticks // _HOUR
    order = np.argsort(hours, kind="stable")
    distinct, starts = np.unique(hours[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(order) else []
    return {int(hour): table.take(part) for hour, part in zip(distinct, parts, strict=True)}


def _added(before: pa.Table, new: pa.Table | None, keys: tuple[str, ...], done: Landed) -> pa.Table:
    """Return the rows that were there and those that are new, each once.

    Of a reading the last word counts, of an event the first: that is when it was known.
    """
    rows = before if new is None else pa.concat_tables([before, new])
    joined = newest(rows, keys, first=keys == ("id",))
    done.doubled += len(rows) - len(joined)
    return joined


def _renewed(rivals: pa.Table, fresh: dict[int, Counter[Rival]]) -> pa.Table:
    """Return RIVALS of all hours, those of the hours in `fresh` replaced."""
    hours = pa.array(list(fresh), pa.int64())
    before = rivals.filter(pc.invert(pc.is_in(rivals["hour"], hours)))
    joined = pa.concat_tables([before, rivals_table(fresh)])
    return joined.sort_by([(name, "ascending") for name in ("hour", "gpu_serial", "machine_id")])


def _until(table: pa.Table, column: str, latest: int) -> pa.Table:
    """Return the rows up to a moment."""
    return table.filter(pc.less_equal(table[column].cast(pa.int64()), latest))

"""The landing: collected rows become records by hour, events and failures.

`_readings` and `_events` keep the rows as received, by hour. The records of an hour are rebuilt
from all of its rows, so that late, repeated or interrupted batches give the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    boots_from_readings,
    merge_boots,
    select_evidence,
)
from forewarn.features.telemetry.failure_spans import OpenFailure, build_failures, open_failures
from forewarn.features.telemetry.gpu_boards import gpus_by_serial, with_board_keys
from forewarn.features.telemetry.gpu_identity import (
    HOST_CONFLICTS,
    PLACES,
    HostConflict,
    host_conflicts_table,
    merge_places,
    outdated_conflict_hours,
    places_from_readings,
    with_names_by_place,
    with_one_host,
    without_conflict_hours,
    without_conflicting_events,
)
from forewarn.features.telemetry.gpu_names import with_known_names
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR, HARDWARE_KINDS
from forewarn.features.telemetry.record_join import build_records, event_ticks, reading_ticks
from forewarn.features.telemetry.recovery_evidence import (
    RECOVERIES,
    Recovery,
    recoveries_from_table,
    recovery_table,
)
from forewarn.features.telemetry.serial_matches import match_serials, with_gpu_names
from forewarn.features.telemetry.slot_conflicts import slot_conflicts
from forewarn.features.telemetry.telemetry_tables import (
    EVENTS,
    READINGS,
    check_table,
    drop_duplicates,
)
from forewarn.features.time_units import HOUR
from forewarn.pipelines.ingest.board_discovery import (
    DiscoveredBoards,
    discover_boards,
    remove_outdated,
)
from forewarn.pipelines.ingest.cmdb import Cmdb
from forewarn.pipelines.ingest.known_tables import KnownTables
from forewarn.pipelines.ingest.landing_counts import LandingCounts
from forewarn.pipelines.ingest.landing_folder import LandingFolder
from forewarn.pipelines.ingest.recovery_scan import RecoveryScan
from forewarn.pipelines.ingest.serial_discovery import discover_serials
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW, Clock, SystemClock
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["Landing"]

_EVENT_KEY = ("machine_id", "id")
_EVIDENCE_KEY = (
    *_EVENT_KEY,
    "kind",
    "code",
)  # the sender chooses the id, so it does not identify an event
_READING_KEY = ("machine_id", "gpu_serial", "gpu_uuid", "pci", "timestamp")


@dataclass(slots=True)
class Landing:
    """A folder of records, built from collected rows.

    Attributes
    ----------
    folder : Path
        RECORDS of formats.md, section 1; contains `_readings`, `_events` and `_state`.
    interval : int
        Nanoseconds between two records.
    rules : FailureRules
    cmdb : Cmdb
    clock : Clock
        Determines which rows are in the future.
    """

    folder: Path
    interval: int
    rules: FailureRules = field(default_factory=FailureRules)
    cmdb: Cmdb = field(default_factory=Cmdb)
    clock: Clock = field(default_factory=SystemClock)
    _folder: LandingFolder = field(init=False)
    _known: KnownTables = field(init=False)
    _known_cmdb: Cmdb = field(init=False)

    def __post_init__(self) -> None:
        self._folder = LandingFolder(self.folder)

    def land(
        self,
        readings: pa.Table,
        events: pa.Table,
        tickets: pa.Table | None = None,
        boards: pa.Table | None = None,
    ) -> LandingCounts:
        """Add rows, and rebuild the records, events and failures that they affect.

        The call may be interrupted at any point and repeated with the same rows.

        Parameters
        ----------
        readings, events : pyarrow.Table
            READINGS and EVENTS, as returned by `check_table`.
        tickets : pyarrow.Table, optional
            TICKETS; an existing one with the same serial and `failed_at` is replaced.
        boards : pyarrow.Table, optional
            PLACES that the driver printed in a kernel log.
        """
        done = LandingCounts()
        latest = self.clock.now() + MAX_CLOCK_SKEW
        arrived = len(readings) + len(events)
        readings, events = (_until(table, "timestamp", latest) for table in (readings, events))
        done.ahead = arrived - len(readings) - len(events)
        in_logs = PLACES.empty_table() if boards is None else _until(boards, "last", latest)
        with self._folder.locked():
            seen, divided = self._discover(readings := self._placed(readings, in_logs), in_logs)
            boots = self._boots(readings, divided)
            evidence, cleared = self._evidence(events, seen)
            discovered = discover_serials(self._known, seen, evidence)
            self._known = replace(self._known, names=discovered.table)
            places = merge_places(with_known_names(seen, discovered.table))
            gpus = _gpus(places, discovered.table)
            done.boards = {serial: len(gpus.get(serial, ())) for serial in sorted(divided.new)}
            named = self._known.identified(readings)
            self._known_cmdb = self._cmdb_by_gpu(gpus, done)
            self._count_unknown(named, done)
            conflicts = self._known.table("rivals", HOST_CONFLICTS)
            renamed = divided.hours | outdated_conflict_hours(conflicts, places)
            again = renamed | discovered.hours
            again |= set(_by_hour(cleared, event_ticks(cleared, self.interval)))
            fresh = self._land_hours(readings, events, again, (seen, places), evidence, done)
            remove_outdated(self._folder, divided.new, divided.hours)
            remove_outdated(self._folder, discovered.outdated, discovered.hours)
            conflicts = _replace_conflicts(conflicts, fresh)
            self._folder.write(self._folder.state_file("rivals"), conflicts)
            self._folder.write(self._folder.state_file("boards"), divided.table)
            tickets = self._tickets_by_gpu(tickets, gpus, done)
            known = self._failure_tables(evidence, tickets, boots, conflicts)
            changed = pa.concat_tables([named, discovered.readings])
            recoveries = self._recoveries(open_failures(*known), changed, renamed, places)
            failures = build_failures(*known, recoveries)
            done.failures = len(failures)
            self._folder.write(self.folder / "failures.parquet", failures)
            self._write_names(discovered.used)
        done.quarantined, self._folder.quarantined = self._folder.quarantined, []
        return done

    def lacks_tickets(self) -> bool:
        """Tell whether no ticket was ever landed, or the file of tickets was lost."""
        return not self._folder.state_file("tickets").exists()

    def land_tickets(self, tickets: pa.Table) -> LandingCounts:
        """Add repair tickets only."""
        return self.land(READINGS.empty_table(), EVENTS.empty_table(), tickets)

    def remove_stale_files(self) -> None:
        """Remove the stale temporary files of killed processes."""
        self._folder.remove_stale_files()

    def _placed(self, readings: pa.Table, in_logs: pa.Table) -> pa.Table:
        """Return readings; those that have an address alone get the name of the GPU there."""
        nameless = pc.and_(pc.is_null(readings["gpu_serial"]), pc.is_null(readings["gpu_uuid"]))
        if not pc.any(pc.and_(nameless, pc.is_valid(readings["pci"]))).as_py():
            return readings
        known = KnownTables(self._folder, self.interval, self.cmdb.serial_of_uuid)
        named = places_from_readings(known.named(readings))
        return with_names_by_place(readings, merge_places(known.places(), named, in_logs))

    def _discover(self, readings: pa.Table, in_logs: pa.Table) -> tuple[pa.Table, DiscoveredBoards]:
        """Write and return PLACES of all readings; return the boards with several GPUs they show.

        Afterwards `_known` names the GPUs of these boards.
        """
        known = KnownTables(self._folder, self.interval, self.cmdb.serial_of_uuid)
        named, in_logs = known.named(readings), known.named(in_logs)
        places = merge_places(known.places(), places_from_readings(named), in_logs)
        discovered = discover_boards(known, named, places)
        self._known = replace(known, boards=discovered.serials)
        places = with_board_keys(places, discovered.serials)
        seen = merge_places(places, places_from_readings(discovered.readings))
        self._folder.write(self._folder.state_file("places"), seen)
        return seen, discovered

    def _boots(self, readings: pa.Table, divided: DiscoveredBoards) -> pa.Table:
        before = divided.replace_boards(self._known.table("boots", BOOTS), boots_from_readings)
        new = boots_from_readings(self._known.named(readings))
        boots = merge_boots(pa.concat_tables([before, new]))
        self._folder.write(self._folder.state_file("boots"), boots)
        return boots

    def _evidence(self, events: pa.Table, places: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Return all events that can start or end a failure, and those whose GPU has a new name.

        Of a repeated event the first copy is kept, which has the time at which it became known.
        """
        before = self._known.table("evidence", EVIDENCE)
        joined = drop_duplicates(
            pa.concat_tables([before, select_evidence(events)]), _EVIDENCE_KEY, first=True
        )
        now = self._known.named_events(joined, places)
        self._folder.write(self._folder.state_file("evidence"), now)
        before_now = pc.fill_null(joined["gpu_serial"], "")
        cleared = pc.not_equal(before_now, pc.fill_null(now["gpu_serial"], ""))
        return now, now.filter(cleared)

    def _failure_tables(
        self, evidence: pa.Table, tickets: pa.Table, boots: pa.Table, conflicts: pa.Table
    ) -> tuple[pa.Table, pa.Table, pa.Table, FailureRules]:
        """Return the tables from which failures are built, with the current names of GPUs."""
        events, boots = (with_known_names(rows, self._known.names) for rows in (evidence, boots))
        hours = event_ticks(events, self.interval) // HOUR
        sound = without_conflict_hours(events, hours, conflicts)
        return sound, tickets, merge_boots(boots), self.rules

    def _land_hours(
        self,
        readings: pa.Table,
        events: pa.Table,
        again: Collection[int],
        places: tuple[pa.Table, pa.Table],
        evidence: pa.Table,
        done: LandingCounts,
    ) -> dict[int, Counter[HostConflict]]:
        """Rebuild the records of each hour that got a row, and of the hours in `again`.

        `places` are PLACES as seen, and with the current names of GPUs. Returns the dropped
        readings by hour.
        """
        conflicts = {}
        seen, known = places
        new_readings = _by_hour(readings, reading_ticks(readings, self.interval))
        new_events = _by_hour(events, event_ticks(events, self.interval))
        hours = {*new_readings, *new_events, *again}
        with progress_bar(len(hours), "records", "hour") as bar:
            for hour in sorted(hours):
                old_readings = self._readings_of(hour)
                all_readings = _merge_rows(old_readings, new_readings.get(hour), _READING_KEY, done)
                done.readings += len(all_readings) - len(old_readings)
                old_events = self._events_of(hour, evidence)
                all_events = _merge_rows(old_events, new_events.get(hour), _EVENT_KEY, done)
                done.events += len(all_events) - len(old_events)
                placed = self._known.named_events(all_events, seen)
                others = pa.array(["sxid", *sorted({*HARDWARE_KINDS} - {GPU_ERROR})])
                of_gpu = placed.filter(pc.invert(pc.is_in(placed["kind"], others)))
                unknown = pc.and_(pc.is_valid(of_gpu["pci"]), pc.is_null(of_gpu["gpu_serial"]))
                done.unplaced += pc.sum(unknown).as_py() or 0
                for part, rows in (("_readings", all_readings), ("_events", placed)):
                    if len(rows):
                        self._folder.write(self._folder.hour_file(part, hour), rows)
                conflicts[hour] = self._make_records(hour, all_readings, placed, known, done)
                bar.update()
        return conflicts

    def _readings_of(self, hour: int) -> pa.Table:
        """Return the stored readings of an hour.

        If they are lost, the records built from them are renamed, since the next batch of the hour
        would overwrite them. Of duplicate records the later file name wins.
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
        """Return the stored events of an hour, else those kept as evidence."""
        events = self._folder.read(self._folder.hour_file("_events", hour), EVENTS)
        if events is not None:
            return events
        left = _by_hour(evidence, event_ticks(evidence, self.interval)).get(hour)
        return EVENTS.empty_table() if left is None else check_table(left, EVENTS)

    def _make_records(
        self, hour: int, readings: pa.Table, events: pa.Table, places: pa.Table, done: LandingCounts
    ) -> Counter[HostConflict]:
        """Write the records of an hour; return the dropped readings."""
        named = self._known.identified(readings)
        named, conflicts = with_one_host(named, places, reading_ticks(named, self.interval))
        done.conflicts += conflicts
        done.slot_conflicts |= slot_conflicts(named, reading_ticks(named, self.interval))
        events = without_conflicting_events(with_known_names(events, self._known.names), conflicts)
        cmdb = self._known_cmdb
        records = build_records(
            named, events, cmdb.attributes, interval=self.interval, machines=cmdb.machines
        )
        path = self._folder.records_file(hour)
        if len(records) or path.exists():
            done.records += len(records)
            self._folder.write(path, records)
        return conflicts

    def _count_unknown(self, named: pa.Table, done: LandingCounts) -> None:
        """Count the readings without a GPU, and the GPUs and machines that the CMDB lacks."""
        done.nameless = named["gpu_serial"].null_count
        done.unknown = set(self._known_cmdb.unknown(named["gpu_serial"]))
        done.unknown_machines = set(self.cmdb.unknown_machines(named["machine_id"]))

    def _cmdb_by_gpu(self, gpus: Mapping[str, Sequence[str]], done: LandingCounts) -> Cmdb:
        """Return the CMDB with a row for each GPU that its serials match."""
        attributes = self.cmdb.attributes
        matches = match_serials(attributes["gpu_serial"].to_pylist(), gpus)
        done.zeros |= matches.zeros
        done.cmdb_boards = matches.boards
        by_gpu = drop_duplicates(with_gpu_names(attributes, matches), ["gpu_serial"])
        return replace(self.cmdb, attributes=by_gpu)

    def _tickets_by_gpu(
        self, new: pa.Table | None, gpus: Mapping[str, Sequence[str]], done: LandingCounts
    ) -> pa.Table:
        """Return all repair tickets with a row for each GPU that their serials match."""
        tickets = self._tickets(new)
        matches = match_serials(tickets["gpu_serial"].to_pylist(), gpus)
        if new is not None:
            done.zeros |= matches.zeros
            done.ticket_boards = matches.boards
        if new is not None and gpus:  # without readings the records may come from elsewhere
            done.unknown_tickets = matches.unknown & set(new["gpu_serial"].to_pylist())
        return with_gpu_names(tickets, matches)

    def _recoveries(
        self,
        failures: Sequence[OpenFailure],
        named: pa.Table,
        renamed: Collection[int],
        places: pa.Table,
    ) -> list[Recovery]:
        """Return the evidence of recovery in telemetry after failures.

        `named` are the new readings; `renamed` are hours in which readings changed their GPU.
        """

        def read(hour: int) -> pa.Table:
            rows = self._folder.read(self._folder.hour_file("_readings", hour), READINGS)
            rows = READINGS.empty_table() if rows is None else rows
            rows = self._known.identified(rows)
            return with_one_host(rows, places, reading_ticks(rows, self.interval))[0]

        hours = self._folder.hours("_readings") if failures else []
        recovery_scan = RecoveryScan(hours, read, self.interval, self.rules.restart_repairs)
        serials = {failure.gpu_serial for failure in failures}
        came = _hours_of(named, serials, self.interval)
        changed = {serial: {*came.get(serial, ()), *renamed} for serial in serials}
        before = self._known.table("recoveries", RECOVERIES)
        stored, recoveries = recovery_scan.scan(failures, recoveries_from_table(before), changed)
        after = recovery_table(stored)
        if not after.equals(before):
            self._folder.write(self._folder.state_file("recoveries"), after)
        return recoveries

    def _write_names(self, names: pa.Table) -> None:
        """Write the names that records use, last: an interrupted landing rebuilds the records."""
        path = self._folder.state_file("gpu_names")
        if len(names) or path.exists():
            self._folder.write(path, names)

    def _tickets(self, new: pa.Table | None) -> pa.Table:
        """Return all repair tickets; a repeated ticket replaces the earlier one."""
        before = self._known.table("tickets", TICKETS)
        if new is None:
            return before
        joined = drop_duplicates(
            pa.concat_tables([before, new.cast(TICKETS)]), ("gpu_serial", "failed_at")
        )
        self._folder.write(self._folder.state_file("tickets"), joined)
        return joined


def _by_hour(table: pa.Table, ticks: npt.NDArray[np.int64]) -> dict[int, pa.Table]:
    """Group rows by the hour in which their interval ends."""
    hours = ticks // HOUR
    order = np.argsort(hours, kind="stable")
    distinct, starts = np.unique(hours[order], return_index=True)
    parts = np.split(order, starts[1:]) if len(order) else []
    return {int(hour): table.take(part) for hour, part in zip(distinct, parts, strict=True)}


def _gpus(places: pa.Table, names: pa.Table) -> dict[str, list[str]]:
    """Return the names of the GPUs that each serial or UUID refers to."""
    by_uuid = zip(*(names[name].to_pylist() for name in names.column_names), strict=True)
    return {uuid: [serial] for uuid, serial in by_uuid} | gpus_by_serial(places)


def _hours_of(
    readings: pa.Table, serials: Collection[str], interval: int
) -> dict[str, frozenset[int]]:
    """Return the hours since 1970 in which each of the GPUs has readings."""
    of_serials = pc.is_in(readings["gpu_serial"], pa.array(sorted(serials), pa.string()))
    rows = readings.filter(of_serials)
    hours = pa.array(reading_ticks(rows, interval) // HOUR)
    table = pa.table({"gpu_serial": rows["gpu_serial"], "hour": hours})
    by_gpu = table.group_by("gpu_serial").aggregate([("hour", "distinct")])
    columns = (by_gpu[name].to_pylist() for name in ("gpu_serial", "hour_distinct"))
    return {serial: frozenset(of_gpu) for serial, of_gpu in zip(*columns, strict=True)}


def _merge_rows(
    before: pa.Table, new: pa.Table | None, keys: tuple[str, ...], done: LandingCounts
) -> pa.Table:
    """Merge stored and new rows without duplicates.

    Of a reading the last copy is kept, of an event the first, which has the time at which it became
    known.
    """
    rows = before if new is None else pa.concat_tables([before, new])
    rows_that_count = _without_forged(rows) if keys == _EVENT_KEY else rows
    joined = drop_duplicates(rows_that_count, keys, first=keys == _EVENT_KEY)
    done.doubled += len(rows) - len(joined)
    return joined


def _without_forged(events: pa.Table) -> pa.Table:
    """Drop events of a shared token that have the id of an event reported by their host."""
    shared = pc.fill_null(pc.equal(events["vouched"], "shared"), False)
    if not pc.any(shared).as_py():
        return events
    sure = events.filter(pc.invert(shared)).select(_EVENT_KEY).to_pylist()
    names = {tuple(row.values()) for row in sure}
    rows = zip(shared.to_pylist(), events.select(_EVENT_KEY).to_pylist(), strict=True)
    return events.filter(pa.array([not (s and tuple(r.values()) in names) for s, r in rows]))


def _replace_conflicts(conflicts: pa.Table, fresh: dict[int, Counter[HostConflict]]) -> pa.Table:
    """Return HOST_CONFLICTS of all hours, with those of the hours in `fresh` replaced."""
    hours = pa.array(list(fresh), pa.int64())
    before = conflicts.filter(pc.invert(pc.is_in(conflicts["hour"], hours)))
    joined = pa.concat_tables([before, host_conflicts_table(fresh)])
    return joined.sort_by([(name, "ascending") for name in ("hour", "gpu_serial", "machine_id")])


def _until(table: pa.Table, column: str, latest: int) -> pa.Table:
    """Return the rows up to a time."""
    return table.filter(pc.less_equal(table[column].cast(pa.int64()), latest))

"""State of all landed hours: places of GPUs, boots, evidence, boards, host conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.failure_evidence import (
    BOOTS,
    EVIDENCE,
    boots_from_readings,
    select_evidence,
)
from forewarn.features.telemetry.gpu_boards import BOARDS, detect_boards, merge_boards
from forewarn.features.telemetry.gpu_identity import (
    PLACES,
    HostConflict,
    host_conflicts_table,
    merge_places,
    places_from_readings,
    with_event_serials,
    with_one_host,
    with_serials,
)
from forewarn.features.telemetry.gpu_names import GPU_NAMES, with_known_names
from forewarn.features.telemetry.record_join import event_ticks, reading_ticks
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS
from forewarn.features.time_units import HOUR
from forewarn.pipelines.ingest.landing_folder import LandingFolder

__all__ = ["KnownTables"]


@dataclass(frozen=True, slots=True)
class KnownTables:
    """Tables of the folder `_state`, each of which can be rebuilt from all hours.

    Attributes
    ----------
    files : LandingFolder
    interval : int
        Nanoseconds between two records.
    serial_of_uuid : mapping of str to str
        From the CMDB.
    boards : collection of str
        Serials of boards with several GPUs.
    names : pyarrow.Table
        GPU_NAMES. They can change, so no stored table or row uses them.
    """

    files: LandingFolder
    interval: int
    serial_of_uuid: Mapping[str, str]
    boards: Collection[str] = ()
    names: pa.Table = field(default_factory=GPU_NAMES.empty_table)

    def identified(self, rows: pa.Table) -> pa.Table:
        """Set the names of GPUs, including names that readings showed for their UUIDs."""
        return with_known_names(self.named(rows), self.names)

    def named(self, rows: pa.Table) -> pa.Table:
        """Set the names of GPUs."""
        return with_serials(rows, self.serial_of_uuid, self.boards)

    def named_events(self, events: pa.Table, places: pa.Table) -> pa.Table:
        """Set the names of GPUs of events, by address if an event has no other identity."""
        return with_event_serials(events, places, self.serial_of_uuid, self.boards)

    def places(self) -> pa.Table:
        """Return PLACES; rows written by versions without boards lack UUIDs."""
        places = self.table("places", PLACES)
        complete = self.files.state_file("boards").exists()
        return places if complete else merge_places(places, self._all_places())

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a state table; a lost one is rebuilt from all hours."""
        path = self.files.state_file(name)
        table = self.files.read(path, schema) if path.exists() else None
        if table is not None:
            return table
        make = {
            "places": self._all_places,
            "boots": self._all_boots,
            "evidence": self._all_evidence,
            "rivals": self._all_host_conflicts,
            "boards": self._all_boards,
        }
        return make[name]() if name in make else schema.empty_table()

    def _rows_of(self, part: str, serials: Collection[str]) -> Iterator[pa.Table]:
        """Yield the rows of some GPUs in each hour."""
        names = pa.array(sorted(serials), pa.string())

        def rows(table: pa.Table) -> pa.Table:
            return table.filter(pc.is_in(table["gpu_serial"], names))

        yield from (some for some in self._each_hour(part, rows) if len(some))

    def earlier_rows(self, gpus: Collection[str]) -> tuple[pa.Table, frozenset[int]]:
        """Return all earlier readings of some GPUs, and the hours of their readings and events.

        Parameters
        ----------
        gpus : collection of str
        """
        readings = pa.concat_tables([READINGS.empty_table(), *self._rows_of("_readings", gpus)])
        hours = set((reading_ticks(readings, self.interval) // HOUR).tolist())
        for events in self._rows_of("_events", gpus):
            hours |= set((event_ticks(events, self.interval) // HOUR).tolist())
        return readings, frozenset(hours)

    def _all_places(self) -> pa.Table:
        return merge_places(
            PLACES.empty_table(), *self._each_hour("_readings", places_from_readings)
        )

    def _all_boots(self) -> pa.Table:
        return pa.concat_tables(
            [BOOTS.empty_table(), *self._each_hour("_readings", boots_from_readings)]
        )

    def _all_evidence(self) -> pa.Table:
        parts = self._each_hour("_events", select_evidence)
        return pa.concat_tables([EVIDENCE.empty_table(), *parts]).sort_by("known_at")

    def _all_boards(self) -> pa.Table:

        def boards(readings: pa.Table) -> pa.Table:
            return detect_boards(readings, reading_ticks(readings, self.interval))

        return merge_boards(BOARDS.empty_table(), *self._each_hour("_readings", boards))

    def _all_host_conflicts(self) -> pa.Table:
        places = merge_places(with_known_names(self.table("places", PLACES), self.names))
        conflicts: dict[int, Counter[HostConflict]] = {}
        for rows in self._each_hour("_readings", lambda rows: rows):
            readings = with_known_names(rows, self.names)
            ticks = reading_ticks(readings, self.interval)
            for hour in np.unique(ticks // HOUR).tolist():
                conflicts[hour] = with_one_host(readings, places, ticks)[1]
        return host_conflicts_table(conflicts)

    def _each_hour(self, part: str, make: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """Yield the result of `make` for the rows of each hour, with GPUs named."""
        schema = READINGS if part == "_readings" else EVENTS
        for path in sorted((self.files.folder / part).glob("date=*/[0-9]*.parquet")):
            rows = self.files.read(path, schema, move=False)
            if rows is not None:
                yield make(self.named(rows))

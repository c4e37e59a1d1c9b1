"""What is known of all hours that have landed: where GPUs sat, boots, evidence, rivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forewarn.features.telemetry.failure_evidence import BOOTS, EVIDENCE, boots_of, evidence_of
from forewarn.features.telemetry.gpu_identity import (
    PLACES,
    Rival,
    joined_places,
    places_of,
    rivals_table,
    with_one_host,
    with_serials,
)
from forewarn.features.telemetry.record_join import reading_ticks
from forewarn.features.telemetry.tables import EVENTS, READINGS
from forewarn.pipelines.ingest.landing_folder import LandingFolder

__all__ = ["KnownTables"]

_HOUR = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class KnownTables:
    """Tables of the folder `_state`, each of which can be made again of all hours.

    Attributes
    ----------
    files : LandingFolder
    interval : int
        Nanoseconds between two records.
    serial_of_uuid : mapping of str to str
        What the CMDB says.
    """

    files: LandingFolder
    interval: int
    serial_of_uuid: Mapping[str, str]

    def table(self, name: str, schema: pa.Schema) -> pa.Table:
        """Return a table of what is known; one that is lost is made again of all hours."""
        path = self.files.state_file(name)
        table = self.files.read(path, schema) if path.exists() else None
        if table is not None:
            return table
        make = {
            "places": self._all_places,
            "boots": self._all_boots,
            "evidence": self._all_evidence,
            "rivals": self._all_rivals,
        }
        return make[name]() if name in make else schema.empty_table()

    def _all_places(self) -> pa.Table:
        return joined_places(PLACES.empty_table(), *self._each_hour("_readings", places_of))

    def _all_boots(self) -> pa.Table:
        return pa.concat_tables([BOOTS.empty_table(), *self._each_hour("_readings", boots_of)])

    def _all_evidence(self) -> pa.Table:
        parts = self._each_hour("_events", evidence_of)
        return pa.concat_tables([EVIDENCE.empty_table(), *parts]).sort_by("known_at")

    def _all_rivals(self) -> pa.Table:
        places = self.table("places", PLACES)
        rivals: dict[int, Counter[Rival]] = {}
        for readings in self._each_hour("_readings", lambda rows: rows):
            ticks = reading_ticks(readings, self.interval)
            for hour in np.unique(ticks // _HOUR).tolist():
                rivals[hour] = with_one_host(readings, places, ticks)[1]
        return rivals_table(rivals)

    def _each_hour(self, part: str, make: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """Yield what is made of the rows of every hour, their GPUs named."""
        schema = READINGS if part == "_readings" else EVENTS
        for path in sorted((self.files.folder / part).glob("date=*/[0-9]*.parquet")):
            rows = self.files.read(path, schema, move=False)
            if rows is not None:
                yield make(with_serials(rows, self.serial_of_uuid))

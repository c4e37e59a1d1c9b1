"""Discovery of serials for UUIDs, and the changes to earlier hours that follow."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.gpu_names import GPU_NAMES, names_by_uuid, with_known_names
from forewarn.features.telemetry.telemetry_tables import READINGS
from forewarn.pipelines.ingest.known_tables import KnownTables

__all__ = ["DiscoveredSerials", "discover_serials"]


@dataclass(frozen=True, slots=True)
class DiscoveredSerials:
    """Names of UUIDs, and the earlier rows of GPUs whose name changed.

    Attributes
    ----------
    table : pyarrow.Table
        GPU_NAMES of all readings.
    used : pyarrow.Table
        Those of them that rows with only a UUID need.
    outdated : frozenset of str
        Former names of GPUs in earlier records.
    readings : pyarrow.Table
        Earlier readings of these GPUs, under the former and the current name.
    hours : frozenset of int
        Hours since 1970 whose records use an outdated name.
    """

    table: pa.Table
    used: pa.Table
    outdated: frozenset[str]
    readings: pa.Table
    hours: frozenset[int]


def discover_serials(known: KnownTables, places: pa.Table, evidence: pa.Table) -> DiscoveredSerials:
    """Find the serials of UUIDs in all readings, and the hours built with other names.

    Parameters
    ----------
    known : KnownTables
    places, evidence : pyarrow.Table
        PLACES and EVIDENCE; a GPU is named by its UUID if its row has no serial.
    """
    table = names_by_uuid(places)
    needed = pa.chunked_array(
        [*places["gpu_serial"].chunks, *evidence["gpu_serial"].chunks], pa.string()
    )
    used = table.filter(pc.is_in(table["gpu_uuid"], pc.unique(needed)))
    before, now = (_by_uuid(names) for names in (known.table("gpu_names", GPU_NAMES), used))
    changed = {uuid for uuid in before | now if before.get(uuid) != now.get(uuid)}
    outdated = frozenset(before.get(uuid, uuid) for uuid in changed)
    if not changed:
        return DiscoveredSerials(table, used, outdated, READINGS.empty_table(), frozenset())
    readings, hours = known.earlier_rows(changed)
    both = pa.concat_tables(
        with_known_names(readings, pa.table([list(names), list(names.values())], schema=GPU_NAMES))
        for names in (before, now)
    )
    return DiscoveredSerials(table, used, outdated, both, hours)


def _by_uuid(names: pa.Table) -> dict[str, str]:
    columns = (names[name].to_pylist() for name in GPU_NAMES.names)
    return dict(zip(*columns, strict=True))

"""Discovery of boards with several GPUs, and the changes to earlier hours that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.telemetry.gpu_boards import (
    BOARDS,
    detect_boards,
    merge_boards,
    plain_serials,
    with_board_keys,
)
from forewarn.features.telemetry.record_join import reading_ticks
from forewarn.features.telemetry.telemetry_tables import READINGS
from forewarn.features.time_units import HOUR
from forewarn.pipelines.ingest.known_tables import KnownTables
from forewarn.pipelines.ingest.landing_folder import LandingFolder
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.records.compaction_metadata import is_compacted_name

__all__ = ["DiscoveredBoards", "discover_boards", "remove_outdated"]


@dataclass(frozen=True, slots=True)
class DiscoveredBoards:
    """Boards with several GPUs, the new ones among them, and their earlier rows.

    Attributes
    ----------
    table : pyarrow.Table
        BOARDS.
    new : frozenset of str
        Serials that counted as one GPU before this landing.
    readings : pyarrow.Table
        All earlier readings of the new boards, with their GPUs named.
    hours : frozenset of int
        Hours since 1970 whose records treat a new board as one GPU.
    """

    table: pa.Table
    new: frozenset[str]
    readings: pa.Table
    hours: frozenset[int]

    @property
    def serials(self) -> frozenset[str]:
        """Serials of all boards."""
        return frozenset(self.table["gpu_serial"].to_pylist())

    def replace_boards(self, table: pa.Table, make: Callable[[pa.Table], pa.Table]) -> pa.Table:
        """Replace the rows of new boards in a table by GPU by rows of their GPUs.

        Parameters
        ----------
        table : pyarrow.Table
        make : callable
            Builds such a table from readings.
        """
        if not self.new:
            return table
        others = pc.invert(pc.is_in(table["gpu_serial"], pa.array(sorted(self.new), pa.string())))
        return pa.concat_tables([table.filter(others), make(self.readings)])


def discover_boards(known: KnownTables, readings: pa.Table, places: pa.Table) -> DiscoveredBoards:
    """Find boards with several GPUs in new readings and the readings of the same hours.

    Parameters
    ----------
    known : KnownTables
        Without names of GPUs of boards.
    readings : pyarrow.Table
        New readings with serials (`with_serials`).
    places : pyarrow.Table
        PLACES of all readings.
    """
    path = known.files.state_file("boards")
    before = known.files.read(path, BOARDS) if path.exists() else None
    old = known.table("boards", BOARDS) if before is None else before
    table = merge_boards(old, *_boards_in(known, _suspects(readings, places, old)))
    new = set(table["gpu_serial"].to_pylist())
    new -= set() if before is None else set(before["gpu_serial"].to_pylist())
    return _discovered(known, table, frozenset(new))


def _suspects(readings: pa.Table, places: pa.Table, boards: pa.Table) -> pa.Table:
    """Return readings whose serial was seen with several UUIDs or at several places.

    Of a known board only readings before the time at which it became known are returned.
    """
    counted = Counter(plain_serials(places))
    several = pa.array([serial for serial, n in counted.items() if n > 1], pa.string())
    rows = readings.filter(pc.is_in(readings["gpu_serial"], several, skip_nulls=True))
    which = pc.index_in(rows["gpu_serial"], boards["gpu_serial"].combine_chunks())
    known_at = boards["known_at"].combine_chunks().take(which.combine_chunks())
    earlier = pc.less(rows["timestamp"].cast(pa.int64()), known_at)
    return rows.filter(pc.fill_null(earlier, True))


def _boards_in(known: KnownTables, rows: pa.Table) -> list[pa.Table]:
    """Return BOARDS of each hour of the rows, compared with the stored readings of the hour."""
    hours = reading_ticks(rows, known.interval) // HOUR
    serials, boards = pc.unique(rows["gpu_serial"]), []
    for hour in np.unique(hours).tolist():
        path = known.files.hour_file("_readings", hour)
        readings = known.files.read(path, READINGS, move=False)
        old = known.named(READINGS.empty_table() if readings is None else readings)
        old = old.filter(pc.is_in(old["gpu_serial"], serials))
        joined = pa.concat_tables([old, rows.filter(pa.array(hours == hour))])
        boards.append(detect_boards(joined, reading_ticks(joined, known.interval)))
    return boards


def _discovered(known: KnownTables, table: pa.Table, new: frozenset[str]) -> DiscoveredBoards:
    if not new:
        return DiscoveredBoards(table, new, READINGS.empty_table(), frozenset())
    readings, hours = known.earlier_rows(new)
    return DiscoveredBoards(table, new, with_board_keys(readings, new), hours)


def remove_outdated(files: LandingFolder, names: Collection[str], hours: Collection[int]) -> None:
    """Remove the records of outdated GPU names from files that cover several hours.

    These hours were rebuilt in files of their own. The rest of a compacted file becomes an ordinary
    file until the date is compacted again.

    Parameters
    ----------
    files : LandingFolder
    names : collection of str
        Of boards with several GPUs, or of GPUs that have another name now.
    hours : collection of int
        Hours since 1970.
    """
    made_again = {files.records_file(hour) for hour in hours}
    for date in sorted({path.parent for path in made_again}):
        for path in sorted(date.glob("[!._]*.parquet")):
            if path not in made_again:
                _remove_rows(files, path, names, hours)


def _remove_rows(
    files: LandingFolder, path: Path, names: Collection[str], hours: Collection[int]
) -> None:
    table = pq.ParquetFile(arrow_path(path)).read()
    serials = table["gpu_serial"].cast(pa.string())
    of_rows = pc.divide(table["timestamp"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), HOUR)
    outdated = pc.and_(
        pc.is_in(serials, pa.array(sorted(names), pa.string())),
        pc.is_in(of_rows, pa.array(sorted(hours), pa.int64())),
    )
    if not pc.any(outdated).as_py():
        return
    rest = table.filter(pc.invert(outdated)).replace_schema_metadata(None)
    plain = path.with_name(f"before-{path.name}") if is_compacted_name(path.name) else path
    files.write(plain, rest)
    if plain != path:
        path.unlink()

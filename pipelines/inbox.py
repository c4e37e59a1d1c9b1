"""What a collector has taken and not yet landed: one file a batch, whole or not there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from forewarn.features.telemetry.tables import EVENTS, READINGS
from forewarn.pipelines.spool import write_whole

__all__ = ["Inbox", "Taken"]

_TABLES = {"readings": READINGS, "events": EVENTS}


@dataclass(frozen=True, slots=True)
class Taken:
    """All that waits, as two tables, and the files that it came from."""

    readings: pa.Table
    events: pa.Table
    files: tuple[Path, ...]


@dataclass(slots=True)
class Inbox:
    """A folder of checked batches, in the order in which they came.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    def put(self, readings: pa.Table, events: pa.Table, received: int) -> None:
        """Keep a batch: when this returns it outlives the process and a loss of power.

        Parameters
        ----------
        readings, events : pyarrow.Table
            READINGS and EVENTS.
        received : int
            Nanoseconds since 1970 UTC; events are known since then.
        """
        known = pa.array([received] * len(events), pa.int64()).cast(EVENTS.field("known_at").type)
        place = EVENTS.get_field_index("known_at")
        events = events.set_column(place, EVENTS.field(place), known)
        for name, table in (("readings", readings), ("events", events)):
            if len(table):
                data = _packed(table)
                digest = hashlib.sha256(data).hexdigest()[:16]
                write_whole(self.folder / f"{received:020d}-{digest}.{name}", data)

    def take(self, most: int) -> Taken:
        """Return what waits, at most so many files, the oldest first; it stays until `clear`."""
        files = sorted(path for name in _TABLES for path in self.folder.glob(f"[0-9]*.{name}"))
        files = sorted(files, key=lambda path: path.name)[:most]
        parts: dict[str, list[pa.Table]] = {name: [] for name in _TABLES}
        for path in files:
            parts[path.suffix[1:]].append(_unpacked(path))
        tables = {
            name: pa.concat_tables([schema.empty_table(), *parts[name]])
            for name, schema in _TABLES.items()
        }
        return Taken(tables["readings"], tables["events"], tuple(files))

    def clear(self, files: Iterable[Path]) -> None:
        """Forget batches that have landed."""
        for path in files:
            path.unlink(missing_ok=True)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _unpacked(path: Path) -> pa.Table:
    return pa.ipc.open_stream(path.read_bytes()).read_all()

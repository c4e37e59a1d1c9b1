"""Inbox: batches that the collector has accepted but not landed, one atomic file per batch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, TableError, check_table
from forewarn.pipelines.ingest.quarantine import is_corrupt
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["Inbox", "InboxContent"]

_MAX_READ_BYTES = 128 << 20  # one round of 2,500 hosts has a tenth of it
_TABLES = {"readings": READINGS, "events": EVENTS}


@dataclass(frozen=True, slots=True)
class InboxContent:
    """Waiting rows as two tables, and their files.

    Attributes
    ----------
    readings, events : pyarrow.Table
    files : tuple of Path
    broken : dict of Path to str
        Files without readable rows, with reasons.
    more : bool
        Whether further files wait.
    """

    readings: pa.Table
    events: pa.Table
    files: tuple[Path, ...]
    broken: dict[Path, str]
    more: bool = False


@dataclass(slots=True)
class Inbox:
    """Folder of validated batches in order of arrival.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    def put(self, readings: pa.Table, events: pa.Table, received: int) -> list[Path]:
        """Store a batch durably: it survives a crash and a power loss once this returns.

        Parameters
        ----------
        readings, events : pyarrow.Table
            READINGS and EVENTS.
        received : int
            Time of arrival in nanoseconds since 1970 UTC, which becomes `known_at` of events.

        Returns
        -------
        list of Path
            The files; an empty table has none.
        """
        known = pa.array([received] * len(events), pa.int64()).cast(EVENTS.field("known_at").type)
        index = EVENTS.get_field_index("known_at")
        events = events.set_column(index, EVENTS.field(index), known)
        paths = []
        for name, table in (("readings", readings), ("events", events)):
            if len(table):
                packed = _serialize(table)
                paths.append(self.folder / f"{received:020d}-{_digest(packed)}.{name}")
                write_atomic(paths[-1], packed)
        return paths

    def files(self) -> list[Path]:
        """Return the waiting files, oldest first."""
        files = (path for name in _TABLES for path in self.folder.glob(f"[0-9]*.{name}"))
        return sorted(files, key=lambda path: path.name)

    def since(self) -> int | None:
        """Return when the oldest batch arrived, in nanoseconds since 1970 UTC, or None."""
        numbers = (path.name.partition("-")[0] for path in self.files())
        return next((int(number) for number in numbers if number.isdecimal()), None)

    def read_oldest(self, most: int) -> InboxContent:
        """Return at most `most` waiting files, oldest first; they stay until `clear`.

        Fewer files are read if they are large, so that memory stays bounded.
        """
        files = self.files()
        sizes = np.cumsum([path.stat().st_size for path in files[:most]])
        fit = max(1, int(np.searchsorted(sizes, _MAX_READ_BYTES, side="right")))
        return replace(self.read(files[:fit]), more=len(files) > fit)

    def read(self, files: Iterable[Path]) -> InboxContent:
        """Return the content of some files."""
        parts: dict[str, list[pa.Table]] = {name: [] for name in _TABLES}
        whole, broken = [], {}
        for path in files:
            kind = path.suffix[1:]
            try:
                parts[kind].append(_deserialize(path, _TABLES[kind]))
                whole.append(path)
            except Exception as error:
                if not is_corrupt(error):
                    raise
                broken[path] = (str(error).splitlines() or [""])[0][:200]
        tables = {
            name: pa.concat_tables([schema.empty_table(), *parts[name]])
            for name, schema in _TABLES.items()
        }
        return InboxContent(tables["readings"], tables["events"], tuple(whole), broken)

    def clear(self, files: Iterable[Path]) -> None:
        """Remove batches that have landed."""
        for path in files:
            path.unlink(missing_ok=True)


def _serialize(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def _digest(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:16]


def _deserialize(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a file and verify the digest in its name."""
    packed = path.read_bytes()
    digest = path.stem.partition("-")[2]
    if _digest(packed) != digest:
        raise TableError(f"{len(packed)} bytes with digest {_digest(packed)}, expected {digest}")
    return check_table(pa.ipc.open_stream(packed).read_all(), schema)

"""Which GPU it was: serials by UUID from the CMDB, and by the place where a GPU sat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PLACES", "joined_places", "places_of", "with_event_serials", "with_serials"]

# From the first to the last time that a GPU was seen at an address of a host, in nanoseconds.
PLACES = pa.schema(
    [
        ("machine_id", pa.string()),
        ("pci", pa.string()),
        ("gpu_serial", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
_KEYS = ["machine_id", "pci", "gpu_serial"]


def with_serials(table: pa.Table, serial_of_uuid: Mapping[str, str]) -> pa.Table:
    """Give each row the serial of its GPU: its own, that of the CMDB for its UUID, or the UUID.

    Parameters
    ----------
    table : pyarrow.Table
        With columns `gpu_serial` and `gpu_uuid`; a serial of zeros is none (`GpuReading`).
    serial_of_uuid : mapping
    """
    uuids = pc.unique(table["gpu_uuid"]).drop_null()
    serials = pa.array([serial_of_uuid.get(u, u) for u in uuids.to_pylist()], pa.string())
    of_uuid = serials.take(pc.index_in(table["gpu_uuid"], uuids).combine_chunks())
    place = table.schema.get_field_index("gpu_serial")
    own = table["gpu_serial"]
    own = pc.if_else(pc.match_substring_regex(own, "^0*$"), None, own)
    return table.set_column(place, table.schema.field(place), pc.coalesce(own, of_uuid))


def places_of(readings: pa.Table) -> pa.Table:
    """Return where the GPUs of these readings, which have serials, sat."""
    there = readings.filter(
        pc.and_(
            pc.is_valid(readings["gpu_serial"]),
            pc.and_(pc.is_valid(readings["pci"]), pc.is_valid(readings["machine_id"])),
        )
    )
    time = there["timestamp"].cast(pa.int64())
    return _widest(there.select(_KEYS).append_column("first", time).append_column("last", time))


def joined_places(*tables: pa.Table) -> pa.Table:
    """Return the places of all, in a fixed order; a place that several have is seen longer."""
    return _widest(pa.concat_tables([table.cast(PLACES) for table in tables]))


def _widest(table: pa.Table) -> pa.Table:
    found = table.group_by(_KEYS, use_threads=False).aggregate([("first", "min"), ("last", "max")])
    renamed = found.select([*_KEYS, "first_min", "last_max"]).rename_columns(PLACES.names)
    return renamed.sort_by([(name, "ascending") for name in _KEYS]).cast(PLACES)


def with_event_serials(
    events: pa.Table, places: pa.Table, serial_of_uuid: Mapping[str, str]
) -> pa.Table:
    """Give each event the serial of the GPU that sat at its address; null where nobody knows.

    Of several GPUs it is the one that was seen there before and after, else the last one before,
    else the first one after: a GPU that fell off the bus is not seen again.
    """
    events = with_serials(events, serial_of_uuid)
    unplaced = events.filter(pc.is_null(events["gpu_serial"]))
    if not len(unplaced):
        return events
    # A fleet has tens of thousands of places; a landing asks for a few of them, hour by hour.
    hosts, addresses = (unplaced[name].combine_chunks() for name in ("machine_id", "pci"))
    places = places.filter(
        pc.and_(pc.is_in(places["machine_id"], hosts), pc.is_in(places["pci"], addresses))
    )
    at: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for row in places.to_pylist():
        at[row["machine_id"], row["pci"]].append((row["first"], row["last"], row["gpu_serial"]))
    columns = [events[name].to_pylist() for name in ("gpu_serial", "machine_id", "pci")]
    times = events["timestamp"].cast(pa.int64()).to_pylist()
    serials = [
        serial if serial is not None else _sitting(at.get((host, pci), []), time)
        for serial, host, pci, time in zip(*columns, times, strict=True)
    ]
    place = events.schema.get_field_index("gpu_serial")
    return events.set_column(place, events.schema.field(place), pa.array(serials, pa.string()))


def _sitting(seen: list[tuple[int, int, str]], time: int) -> str | None:
    """Return the serial of the GPU that sat there at a time."""

    def preference(one: tuple[int, int, str]) -> tuple[int, int]:
        first, last, _ = one
        if first <= time <= last:
            return (0, last - first)
        return (1, time - last) if last < time else (2, first - time)

    return min(seen, key=preference)[2] if seen else None

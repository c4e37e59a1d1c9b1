"""Identification of GPUs: serials by UUID from the CMDB, and by machine and PCI address."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.gpu_boards import with_board_keys, without_zeros

__all__ = [
    "HOST_CONFLICTS",
    "PLACES",
    "HostConflict",
    "gpu_at_time",
    "host_conflicts_table",
    "merge_places",
    "outdated_conflict_hours",
    "places_from_readings",
    "with_event_serials",
    "with_names_by_place",
    "with_one_host",
    "with_serials",
    "without_conflict_hours",
    "without_conflicting_events",
]

_NEVER = 2**63

# First and last time, in nanoseconds, at which a GPU was seen at an address of a host. Host and
# address are null if no reading names them.
PLACES = pa.schema(
    [
        ("machine_id", pa.string()),
        ("pci", pa.string()),
        ("gpu_serial", pa.string()),
        ("gpu_uuid", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
_KEYS = ["machine_id", "pci", "gpu_serial", "gpu_uuid"]
# Hours since 1970 in which readings of a host were dropped because another host had the GPU.
HOST_CONFLICTS = pa.schema(
    [
        ("gpu_serial", pa.string()),
        ("machine_id", pa.string()),
        ("holder", pa.string()),
        ("hour", pa.int64()),
    ]
)


def with_serials(
    table: pa.Table, serial_of_uuid: Mapping[str, str], boards: Collection[str] = ()
) -> pa.Table:
    """Set the serial of each row: its own, that of the CMDB for its UUID, or the UUID.

    Parameters
    ----------
    table : pyarrow.Table
        With columns `gpu_serial` and `gpu_uuid`; zeros count as missing (`GpuReading`).
    serial_of_uuid : mapping
    boards : collection of str
        Serials of boards with several GPUs, each of which is named `SERIAL/UUID`.
    """
    named = without_zeros(table["gpu_uuid"])
    uuids = pc.unique(named).drop_null()
    serials = pa.array([serial_of_uuid.get(u, u) for u in uuids.to_pylist()], pa.string())
    of_uuid = serials.take(pc.index_in(named, uuids).combine_chunks())
    index = table.schema.get_field_index("gpu_serial")
    own = without_zeros(table["gpu_serial"])
    serials = pc.coalesce(own, of_uuid)
    return with_board_keys(table.set_column(index, table.schema.field(index), serials), boards)


@dataclass(frozen=True, slots=True)
class HostConflict:
    """A host whose readings of a GPU were dropped because another host had the GPU.

    Attributes
    ----------
    gpu_serial, machine_id : str
    holder : str
        The host that had the GPU.
    """

    gpu_serial: str
    machine_id: str
    holder: str


def with_one_host(
    readings: pa.Table, places: pa.Table, ticks: npt.NDArray[np.int64]
) -> tuple[pa.Table, Counter[HostConflict]]:
    """Keep the readings of one host per GPU and interval: the host that had the GPU first.

    Two hosts can report one UUID after a disk or a machine image was copied. The rows of two GPUs
    would then become one record.

    Parameters
    ----------
    readings : pyarrow.Table
        With serials.
    places : pyarrow.Table
        PLACES of all hosts.
    ticks : ndarray of int64
        Ends of the intervals of `readings`.

    Returns
    -------
    pyarrow.Table
        Rows that are kept, including rows without a serial or host.
    Counter of HostConflict
        Numbers of dropped rows.
    """
    shared = _shared_serials(readings)
    if not len(shared):
        return readings, Counter()
    since = _first_seen(places, shared)
    columns = [readings[name].to_pylist() for name in ("gpu_serial", "machine_id")]
    rows = list(zip(*columns, ticks.tolist(), strict=True))
    claims: dict[tuple[str, int], set[str]] = defaultdict(set)
    for serial, host, tick in rows:
        if serial is not None and host is not None:
            claims[serial, tick].add(host)
    holder = {
        key: min(hosts, key=lambda host: _claim(since, key[0], host))
        for key, hosts in claims.items()
    }
    left_out: Counter[HostConflict] = Counter()
    keep = np.ones(len(rows), dtype=bool)
    for i, (serial, host, tick) in enumerate(rows):
        if host is not None and holder.get((serial, tick), host) != host:
            keep[i] = False
            left_out[HostConflict(serial, host, holder[serial, tick])] += 1
    return readings.filter(pa.array(keep)), left_out


def _first_seen(places: pa.Table, serials: pa.Array) -> dict[tuple[str, str], int]:
    """Return when each host first had each of the GPUs."""
    since: dict[tuple[str, str], int] = {}
    for row in places.filter(pc.is_in(places["gpu_serial"], serials)).to_pylist():
        key = row["gpu_serial"], row["machine_id"]
        since[key] = min(row["first"], since.get(key, row["first"]))
    return since


def outdated_conflict_hours(conflicts: pa.Table, places: pa.Table) -> set[int]:
    """Return hours in which a host was dropped that is now known to have had the GPU first.

    Parameters
    ----------
    conflicts : pyarrow.Table
        HOST_CONFLICTS.
    places : pyarrow.Table
        PLACES of all hosts.
    """
    since = _first_seen(places, pc.unique(conflicts["gpu_serial"]))
    return {
        row["hour"]
        for row in conflicts.filter(pc.is_valid(conflicts["holder"])).to_pylist()
        if _claim(since, row["gpu_serial"], row["machine_id"])
        < _claim(since, row["gpu_serial"], row["holder"])
    }


def _claim(since: Mapping[tuple[str, str], int], serial: str, host: str) -> tuple[int, str]:
    """Return the sort key of the hosts of a GPU; the smallest had it first."""
    return since.get((serial, host), _NEVER), host


def without_conflicting_events(events: pa.Table, conflicts: Collection[HostConflict]) -> pa.Table:
    """Drop events that a host reports about a GPU of another host."""
    if not conflicts:
        return events
    pairs = {(conflict.gpu_serial, conflict.machine_id) for conflict in conflicts}
    keys = zip(events["gpu_serial"].to_pylist(), events["machine_id"].to_pylist(), strict=True)
    return events.filter(pa.array([key not in pairs for key in keys], pa.bool_()))


def host_conflicts_table(conflicts_by_hour: Mapping[int, Collection[HostConflict]]) -> pa.Table:
    """Return HOST_CONFLICTS, sorted by hour, serial and host."""
    rows = sorted(
        (hour, conflict.gpu_serial, conflict.machine_id, conflict.holder)
        for hour, conflicts in conflicts_by_hour.items()
        for conflict in conflicts
    )
    columns = [[row[i] for row in rows] for i in (1, 2, 3, 0)]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, HOST_CONFLICTS, strict=True)]
    return pa.table(arrays, schema=HOST_CONFLICTS)


def without_conflict_hours(
    events: pa.Table, hours: npt.NDArray[np.int64], conflicts: pa.Table
) -> pa.Table:
    """Drop events of a GPU that another host had in the same hour or in the previous one.

    The previous hour counts because events arrive at once, while readings of their hour arrive
    later.

    Parameters
    ----------
    events : pyarrow.Table
        With serials.
    hours : ndarray of int64
        Hours since 1970 of the events.
    conflicts : pyarrow.Table
        HOST_CONFLICTS.
    """
    if not len(conflicts):
        return events
    left_out = {
        (row["gpu_serial"], row["machine_id"], row["hour"] + later)
        for row in conflicts.to_pylist()
        for later in (0, 1)
    }
    names = [events[name].to_pylist() for name in ("gpu_serial", "machine_id")]
    keys = zip(*names, hours.tolist(), strict=True)
    return events.filter(pa.array([key not in left_out for key in keys], pa.bool_()))


def _shared_serials(readings: pa.Table) -> pa.Array:
    """Return the serials that several hosts report."""
    hosts = readings.select(["gpu_serial", "machine_id"]).group_by("gpu_serial", use_threads=False)
    counted = hosts.aggregate([("machine_id", "count_distinct")])
    several = pc.and_(
        pc.greater(counted["machine_id_count_distinct"], 1), pc.is_valid(counted["gpu_serial"])
    )
    return counted.filter(several)["gpu_serial"].combine_chunks()


def places_from_readings(readings: pa.Table) -> pa.Table:
    """Return PLACES of the GPUs of readings with serials."""
    time = readings["timestamp"].cast(pa.int64())
    spans = readings.select(_KEYS).append_column("first", time).append_column("last", time)
    return _widest(spans.filter(pc.is_valid(spans["gpu_serial"])))


def merge_places(*tables: pa.Table) -> pa.Table:
    """Merge tables of PLACES in a fixed order; repeated places get the widest span.

    Places of unknown GPUs are dropped.
    """
    joined = pa.concat_tables([table.cast(PLACES) for table in tables])
    return _widest(joined.filter(pc.is_valid(joined["gpu_serial"])))


def _widest(table: pa.Table) -> pa.Table:
    spans = table.group_by(_KEYS, use_threads=False).aggregate([("first", "min"), ("last", "max")])
    renamed = spans.select([*_KEYS, "first_min", "last_max"]).rename_columns(PLACES.names)
    return renamed.sort_by([(name, "ascending") for name in _KEYS]).cast(PLACES)


def with_event_serials(
    events: pa.Table,
    places: pa.Table,
    serial_of_uuid: Mapping[str, str],
    boards: Collection[str] = (),
) -> pa.Table:
    """Set the serial of each event by its address; null if unknown.

    Of several GPUs at an address the order of preference is: seen there before and after the event,
    last seen before it, first seen after it. A GPU that fell off the bus is not seen again.
    """
    events = with_serials(events, serial_of_uuid, boards)
    unplaced = events.filter(pc.and_(pc.is_null(events["gpu_serial"]), pc.is_valid(events["pci"])))
    if not len(unplaced):
        return events
    # A fleet has tens of thousands of places, of which each hour of a landing needs a few.
    hosts, addresses = (unplaced[name].drop_null() for name in ("machine_id", "pci"))
    at = _stays(
        places.filter(
            pc.and_(pc.is_in(places["machine_id"], hosts), pc.is_in(places["pci"], addresses))
        )
    )
    columns = [events[name].to_pylist() for name in ("gpu_serial", "machine_id", "pci")]
    times = events["timestamp"].cast(pa.int64()).to_pylist()
    serials = [
        serial if serial is not None else gpu_at_time(at.get((host, pci), []), time)
        for serial, host, pci, time in zip(*columns, times, strict=True)
    ]
    index = events.schema.get_field_index("gpu_serial")
    return events.set_column(index, events.schema.field(index), pa.array(serials, pa.string()))


def with_names_by_place(readings: pa.Table, places: pa.Table) -> pa.Table:
    """Give each reading that has an address alone the UUID or serial of the GPU that sat there.

    Parameters
    ----------
    readings : pyarrow.Table
        READINGS.
    places : pyarrow.Table
        PLACES.
    """
    places = places.filter(pc.is_in(places["machine_id"], pc.unique(readings["machine_id"])))
    uuids = {row["gpu_serial"]: row["gpu_uuid"] for row in places.to_pylist()}
    at = _stays(places)
    rows = readings.select(["machine_id", "pci", "gpu_serial", "gpu_uuid"]).to_pylist()
    times = readings["timestamp"].cast(pa.int64()).to_pylist()
    for row, time in zip(rows, times, strict=True):
        if row["gpu_serial"] is None and row["gpu_uuid"] is None and row["pci"] is not None:
            name = gpu_at_time(at.get((row["machine_id"], row["pci"]), []), time)
            row["gpu_uuid"] = None if name is None else uuids[name]
            row["gpu_serial"] = name if row["gpu_uuid"] is None else None
    for column in ("gpu_serial", "gpu_uuid"):
        index = readings.schema.get_field_index(column)
        values = pa.array([row[column] for row in rows], pa.string())
        readings = readings.set_column(index, readings.schema.field(index), values)
    return readings


def _stays(places: pa.Table) -> dict[tuple[str, str], list[tuple[int, int, str]]]:
    """Return first time, last time and serial of the GPUs at each address of a host."""
    at: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in places.to_pylist():
        stays, serial = at[row["machine_id"], row["pci"]], row["gpu_serial"]
        first, last = stays.get(serial, (row["first"], row["last"]))
        stays[serial] = min(first, row["first"]), max(last, row["last"])
    return {
        address: [(*span, serial) for serial, span in stays.items()]
        for address, stays in at.items()
    }


def gpu_at_time(seen: Sequence[tuple[int, int, str]], time: int) -> str | None:
    """Return the serial of the GPU at an address at a time; None if none was ever seen.

    Parameters
    ----------
    seen : sequence of (int, int, str)
        First time, last time and serial of each GPU at the address.
    time : int
    """

    def preference(stay: tuple[int, int, str]) -> tuple[int, int]:
        first, last, _ = stay
        if first <= time <= last:
            return (0, last - first)
        return (1, time - last) if last < time else (2, first - time)

    return min(seen, key=preference)[2] if seen else None

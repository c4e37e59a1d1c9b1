"""Evidence of failures and of their ends: what counts, and the tables that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.telemetry_tables import EVENTS
from forewarn.features.time_units import DAY, MINUTE
from forewarn.features.xid_catalogue import FATAL_ACTIONS, FATAL_XIDS, NVLINK_XIDS

__all__ = [
    "BOOTS",
    "EVIDENCE",
    "FAILURES",
    "PRESUMED",
    "PRESUMED_AFTER",
    "TICKETS",
    "FailureEvidence",
    "FailureRules",
    "boots_from_readings",
    "failing_events",
    "merge_boots",
    "returning_events",
    "rows_of_gpus",
    "select_evidence",
    "select_restarts",
]

_TIME = pa.timestamp("ns", "UTC")
TICKETS = pa.schema(
    [
        ("gpu_serial", pa.string()),
        ("failed_at", _TIME),
        ("repaired_at", _TIME),
        ("cause", pa.string()),
        ("known_at", _TIME),
    ]
)
# `unknown_until` of a presumed end: until then the health of the GPU is unknown.
FAILURES = pa.schema(
    [
        *TICKETS,
        ("end_known_at", _TIME),
        ("end_source", pa.string()),
        ("unknown_until", _TIME),
    ]
)
PRESUMED = "presumed"
PRESUMED_AFTER = 7 * DAY
# When a GPU was first and last seen for each start that its host reported, in nanoseconds. A clock
# that is set moves the start, too.
BOOTS = pa.schema(
    [
        ("gpu_serial", pa.string()),
        *((name, pa.int64()) for name in ("boot_time", "first_seen", "last_seen")),
    ]
)
# What is kept of an event that can make or end a failure.
EVIDENCE = pa.schema(
    [
        EVENTS.field(name)
        for name in (
            *("timestamp", "gpu_serial", "machine_id", "kind", "code"),
            *("severity", "action", "pci", "gpu_uuid", "known_at", "vouched", "id"),
        )
    ]
)
# Clocks of hosts drift by a second or two against the moment that the kernel says it started.
_BOOT_DRIFT = MINUTE


@dataclass(frozen=True, slots=True)
class FailureRules:
    """What counts as a failure beside a ticket, and what ends it.

    Attributes
    ----------
    xids : frozenset of int
        Xids after which a GPU counts as failed.
    lost : bool
        A GPU that is off the bus has failed.
    restart_repairs : bool
        A failure that no ticket ends is over when the GPU is seen after a restart of its host.
    presumed_after : int
        Nanoseconds after a failure from which on a GPU whose repair is only presumed counts for
        training.
    """

    xids: frozenset[int] = frozenset(FATAL_XIDS)
    lost: bool = True
    restart_repairs: bool = True
    presumed_after: int = PRESUMED_AFTER


def select_evidence(events: pa.Table) -> pa.Table:
    """Return those of some events that can make or end a failure."""
    kinds = pa.array(["xid", "lost", "needs_reset", "back"])
    return events.filter(pc.is_in(events["kind"], kinds)).select(EVIDENCE.names).cast(EVIDENCE)


def boots_from_readings(readings: pa.Table) -> pa.Table:
    """Return BOOTS: when each GPU of these readings was seen for each start of its host."""
    # A host cannot start after it was read; such a start would end failures that still last.
    started = pc.less_equal(readings["boot_time"], readings["timestamp"].cast(pa.int64()))
    rows = readings.filter(pc.and_(pc.is_valid(readings["gpu_serial"]), started))
    start = pc.multiply(pc.divide(rows["boot_time"], _BOOT_DRIFT), _BOOT_DRIFT)
    seen = rows["timestamp"].cast(pa.int64())
    columns = [rows["gpu_serial"], start, seen, seen]
    return merge_boots(pa.table(columns, schema=BOOTS))


def merge_boots(boots: pa.Table) -> pa.Table:
    """Return one row of BOOTS for each GPU and start, in a fixed order."""
    last = pc.coalesce(boots["last_seen"], boots["first_seen"])  # versions that had no last_seen
    by_boot = boots.set_column(3, "last_seen", last).group_by(BOOTS.names[:2], use_threads=False)
    table = by_boot.aggregate([("first_seen", "min"), ("last_seen", "max")])
    named = table.rename_columns(BOOTS.names)
    return named.sort_by([(name, "ascending") for name in BOOTS.names]).cast(BOOTS)


def select_restarts(boots: pa.Table) -> pa.Table:
    """Return the rows of BOOTS, as `merge_boots` gives them, that a set clock does not explain.

    A host starts again after it was last seen, and its uptime is then less than it was. The first
    start that is known of a GPU counts.
    """
    serial, start, first, last = (boots[name].to_numpy() for name in BOOTS.names)
    same_gpu = serial[1:] == serial[:-1]
    seen_before = start[1:] <= last[:-1] - _BOOT_DRIFT
    uptime_before = last[:-1] - start[:-1]
    goes_on = first[1:] - start[1:] >= uptime_before - _BOOT_DRIFT
    moved = same_gpu & (seen_before | goes_on)
    return boots.filter(pa.array([True, *~moved][: len(boots)], pa.bool_()))


class FailureEvidence(NamedTuple):
    """An event that says of a GPU that it has failed, or that it is back.

    Attributes
    ----------
    gpu_serial : str
    time : int
        Nanoseconds since 1970 UTC.
    known : int
        When it was received, but not before it happened.
    cause : str
    """

    gpu_serial: str
    time: int
    known: int
    cause: str


def failing_events(events: pa.Table, rules: FailureRules) -> list[FailureEvidence]:
    """Return the events after which a GPU counts as failed; rows without a serial are left out."""
    return _evidence(events.filter(_are_failures(events, rules)))


def returning_events(events: pa.Table) -> list[FailureEvidence]:
    """Return the events that say that a lost GPU is back, or needs no recovery any more."""
    recovered = pc.and_(pc.equal(events["kind"], "xid"), pc.equal(events["action"], "none"))
    back = pc.equal(events["kind"], "back")
    return _evidence(events.filter(pc.or_(back, pc.fill_null(recovered, False))))


def _evidence(events: pa.Table) -> list[FailureEvidence]:
    return [
        FailureEvidence(
            row["gpu_serial"],
            row["timestamp"],
            row["timestamp"] if row["known_at"] is None else max(row["timestamp"], row["known_at"]),
            f"xid {row['code']}" if row["kind"] == "xid" else row["kind"],
        )
        for row in rows_of_gpus(events, ["timestamp", "kind", "code", "known_at"])
    ]


def _are_failures(events: pa.Table, rules: FailureRules) -> pa.ChunkedArray:
    """Tell which events say that a GPU has failed: by code, or by the driver's own word."""
    fatal = pc.is_in(events["code"], pa.array(sorted(rules.xids), pa.int32()))
    of_nvlink = pc.is_in(events["code"], pa.array(NVLINK_XIDS, pa.int32()))
    said_fatal = pc.fill_null(pc.equal(events["severity"], "fatal"), False)
    is_xid = pc.equal(events["kind"], "xid")
    counts = pc.and_(is_xid, pc.or_(fatal, pc.and_(of_nvlink, said_fatal)))
    counts = pc.or_(counts, pc.is_in(events["action"], pa.array(FATAL_ACTIONS)))
    return pc.or_(counts, pc.equal(events["kind"], "lost")) if rules.lost else counts


def rows_of_gpus(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Return the rows that name a GPU, times as whole numbers."""
    plain = table.filter(pc.is_valid(table["gpu_serial"])).select(["gpu_serial", *names])
    rows: list[dict[str, Any]] = plain.cast(_as_numbers(plain.schema)).to_pylist()
    return rows


def _as_numbers(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times as whole numbers."""
    return pa.schema(
        [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in schema]
    )

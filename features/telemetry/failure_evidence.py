"""Evidence of failures and repairs: the rules and the schemas of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
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
# `unknown_until` ends the unknown health of a GPU whose repair is presumed.
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
# First and last time, in nanoseconds, at which a GPU was seen after each boot of its host. Setting
# a clock also moves the boot time.
BOOTS = pa.schema(
    [
        ("gpu_serial", pa.string()),
        *((name, pa.int64()) for name in ("boot_time", "first_seen", "last_seen")),
    ]
)
# The columns kept of an event that can start or end a failure.
EVIDENCE = pa.schema(
    [
        EVENTS.field(name)
        for name in (
            *("timestamp", "gpu_serial", "machine_id", "kind", "code"),
            *("severity", "action", "pci", "gpu_uuid", "known_at", "vouched", "id", "check"),
        )
    ]
)
# Clocks drift by a second or two relative to the boot time of the kernel.
_BOOT_DRIFT = MINUTE


@dataclass(frozen=True, slots=True)
class FailureRules:
    """Rules for failures without a ticket and for their ends.

    Attributes
    ----------
    xids : frozenset of int
        Xids that count as failures.
    lost : bool
        A GPU that is off the bus counts as failed.
    restart_repairs : bool
        A failure without a ticket ends when the GPU is seen after a reboot of its host.
    presumed_after : int
        Nanoseconds after a failure from which a GPU with a presumed repair is used for training.
    """

    xids: frozenset[int] = frozenset(FATAL_XIDS)
    lost: bool = True
    restart_repairs: bool = True
    presumed_after: int = PRESUMED_AFTER


def select_evidence(events: pa.Table) -> pa.Table:
    """Return the events that can start or end a failure."""
    kinds = pa.array(["xid", "lost", "needs_reset", "back", GPU_ERROR])
    return events.filter(pc.is_in(events["kind"], kinds)).select(EVIDENCE.names).cast(EVIDENCE)


def boots_from_readings(readings: pa.Table) -> pa.Table:
    """Return BOOTS: when each GPU of the readings was seen after each boot of its host."""
    # A boot after the reading is invalid and would end failures that still last.
    started = pc.less_equal(readings["boot_time"], readings["timestamp"].cast(pa.int64()))
    rows = readings.filter(pc.and_(pc.is_valid(readings["gpu_serial"]), started))
    start = pc.multiply(pc.divide(rows["boot_time"], _BOOT_DRIFT), _BOOT_DRIFT)
    seen = rows["timestamp"].cast(pa.int64())
    columns = [rows["gpu_serial"], start, seen, seen]
    return merge_boots(pa.table(columns, schema=BOOTS))


def merge_boots(boots: pa.Table) -> pa.Table:
    """Return one row of BOOTS per GPU and boot, in a fixed order."""
    last = pc.coalesce(boots["last_seen"], boots["first_seen"])  # older versions had no last_seen
    by_boot = boots.set_column(3, "last_seen", last).group_by(BOOTS.names[:2], use_threads=False)
    table = by_boot.aggregate([("first_seen", "min"), ("last_seen", "max")])
    named = table.rename_columns(BOOTS.names)
    return named.sort_by([(name, "ascending") for name in BOOTS.names]).cast(BOOTS)


def select_restarts(boots: pa.Table) -> pa.Table:
    """Return the rows of merged BOOTS that a changed clock does not explain.

    A host boots after it was last seen, and its uptime is then smaller. The first known boot of a
    GPU is included.
    """
    serial, start, first, last = (boots[name].to_numpy() for name in BOOTS.names)
    same_gpu = serial[1:] == serial[:-1]
    seen_before = start[1:] <= last[:-1] - _BOOT_DRIFT
    uptime_before = last[:-1] - start[:-1]
    goes_on = first[1:] - start[1:] >= uptime_before - _BOOT_DRIFT
    moved = same_gpu & (seen_before | goes_on)
    return boots.filter(pa.array([True, *~moved][: len(boots)], pa.bool_()))


class FailureEvidence(NamedTuple):
    """An event that shows that a GPU failed or works again.

    Attributes
    ----------
    gpu_serial : str
    time : int
        Nanoseconds since 1970 UTC.
    known : int
        Time of receipt, at least `time`.
    cause : str
    """

    gpu_serial: str
    time: int
    known: int
    cause: str


def failing_events(events: pa.Table, rules: FailureRules) -> list[FailureEvidence]:
    """Return the events that start a failure; rows without a serial are skipped."""
    return _evidence(events.filter(_are_failures(events, rules)))


def returning_events(events: pa.Table) -> list[FailureEvidence]:
    """Return the events after which a lost GPU is present or needs no recovery any more."""
    recovered = pc.and_(pc.equal(events["kind"], "xid"), pc.equal(events["action"], "none"))
    back = pc.equal(events["kind"], "back")
    return _evidence(events.filter(pc.or_(back, pc.fill_null(recovered, False))))


def _evidence(events: pa.Table) -> list[FailureEvidence]:
    return [
        FailureEvidence(
            row["gpu_serial"],
            row["timestamp"],
            row["timestamp"] if row["known_at"] is None else max(row["timestamp"], row["known_at"]),
            _cause(row),
        )
        for row in rows_of_gpus(events, ["timestamp", "kind", "code", "known_at", "check"])
    ]


def _cause(row: dict[str, Any]) -> str:
    """Return the kind of an event with its Xid, or with the fault of a GPU without Xids."""
    what = row["check"] if row["kind"] == GPU_ERROR else row["code"]
    return f"{row['kind']} {what}" if what and row["kind"] in ("xid", GPU_ERROR) else row["kind"]


def _are_failures(events: pa.Table, rules: FailureRules) -> pa.ChunkedArray:
    """Tell which events start a failure, by code or by the severity that the driver reports."""
    fatal = pc.is_in(events["code"], pa.array(sorted(rules.xids), pa.int32()))
    of_nvlink = pc.is_in(events["code"], pa.array(NVLINK_XIDS, pa.int32()))
    said_fatal = pc.fill_null(pc.equal(events["severity"], "fatal"), False)
    is_xid = pc.equal(events["kind"], "xid")
    counts = pc.and_(is_xid, pc.or_(fatal, pc.and_(of_nvlink, said_fatal)))
    critical = pc.fill_null(pc.equal(events["severity"], "critical"), False)
    counts = pc.or_(counts, pc.and_(pc.equal(events["kind"], GPU_ERROR), critical))
    counts = pc.or_(counts, pc.is_in(events["action"], pa.array(FATAL_ACTIONS)))
    return pc.or_(counts, pc.equal(events["kind"], "lost")) if rules.lost else counts


def rows_of_gpus(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Return the rows that name a GPU, with times as integers."""
    plain = table.filter(pc.is_valid(table["gpu_serial"])).select(["gpu_serial", *names])
    rows: list[dict[str, Any]] = plain.cast(_as_numbers(plain.schema)).to_pylist()
    return rows


def _as_numbers(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times as integers."""
    return pa.schema(
        [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in schema]
    )

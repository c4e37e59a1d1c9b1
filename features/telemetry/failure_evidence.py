"""Failures from evidence: tickets, lost GPUs and fatal Xids; a pure function of what was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.recovery import Recovery
from forewarn.features.telemetry.tables import EVENTS
from forewarn.features.xid_catalogue import FATAL_ACTIONS, FATAL_XIDS, NVLINK_XIDS

__all__ = [
    "BOOTS",
    "EVIDENCE",
    "FAILURES",
    "PRESUMED",
    "PRESUMED_AFTER",
    "TICKETS",
    "FailureRules",
    "Unended",
    "boots_of",
    "earliest_boots",
    "evidence_of",
    "failures_of",
    "unended",
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
TICKET, BOOT, RETURNED, PRESUMED = "ticket", "boot", "returned", "presumed"
PRESUMED_AFTER = 7 * 24 * 3600 * 10**9
# When a GPU was first seen after each start of its host, in nanoseconds.
BOOTS = pa.schema(
    [("gpu_serial", pa.string()), ("boot_time", pa.int64()), ("first_seen", pa.int64())]
)
# What is kept of an event that can make or end a failure.
EVIDENCE = pa.schema(
    [
        EVENTS.field(name)
        for name in (
            *("timestamp", "gpu_serial", "machine_id", "kind", "code"),
            *("severity", "action", "pci", "gpu_uuid", "known_at", "id"),
        )
    ]
)
_VAGUE = ("lost", "needs_reset")  # causes that say less than the Xid that comes with them
# Clocks of hosts drift by a second or two against the moment that the kernel says it started.
_BOOT_DRIFT = 60 * 10**9
_NEVER = 2**63 - 1


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


def evidence_of(events: pa.Table) -> pa.Table:
    """Return those of some events that can make or end a failure."""
    kinds = pa.array(["xid", "lost", "needs_reset", "back"])
    return events.filter(pc.is_in(events["kind"], kinds)).select(EVIDENCE.names).cast(EVIDENCE)


def boots_of(readings: pa.Table) -> pa.Table:
    """Return BOOTS: when each GPU of these readings was first seen after a start of its host."""
    # A host cannot start after it was read; such a start would end failures that still last.
    started = pc.less_equal(readings["boot_time"], readings["timestamp"].cast(pa.int64()))
    rows = readings.filter(pc.and_(pc.is_valid(readings["gpu_serial"]), started))
    start = pc.multiply(pc.divide(rows["boot_time"], _BOOT_DRIFT), _BOOT_DRIFT)
    columns = [rows["gpu_serial"], start, rows["timestamp"].cast(pa.int64())]
    return earliest_boots(pa.table(columns, schema=BOOTS))


def earliest_boots(boots: pa.Table) -> pa.Table:
    """Return one row of BOOTS for each GPU and start, in a fixed order."""
    by_boot = boots.group_by(["gpu_serial", "boot_time"], use_threads=False)
    table = by_boot.aggregate([("first_seen", "min")]).rename_columns(BOOTS.names)
    return table.sort_by([(name, "ascending") for name in BOOTS.names]).cast(BOOTS)


class _End(NamedTuple):
    """An end of a failure; the first one known ends it."""

    known: int
    repaired: int
    source: str
    unknown_until: int | None = None


@dataclass(slots=True)
class _Span:
    failed: int
    end: _End | None
    cause: str
    known: int
    ticket: bool = False

    def continues_in(self, later: _Span) -> bool:
        """Tell whether a later failure is the same one.

        One that became known after an end was presumed is another row: until then the end counted.
        """
        if self.end is None:
            return True
        if self.end.source == PRESUMED and later.known > self.end.known:
            return False
        return later.failed <= self.end.repaired

    def join(self, other: _Span) -> None:
        """Take in a later failure that began before this one was over; a ticket knows why."""
        if other.ticket and not self.ticket:
            self.cause, self.ticket = other.cause, True
        if self.end is None or other.end is None:
            self.end = None
        else:
            last = max(self.end, other.end, key=lambda end: (end.repaired, end.known))
            self.end = last._replace(known=max(self.end.known, other.end.known))
        self.known = min(self.known, other.known)


def failures_of(
    events: pa.Table,
    tickets: pa.Table,
    boots: pa.Table,
    rules: FailureRules,
    recoveries: Iterable[Recovery] = (),
) -> pa.Table:
    """Return the failures, those that overlap made one, sorted by serial and time.

    Parameters
    ----------
    events : pyarrow.Table
        With `gpu_serial`, `timestamp`, `kind`, `code`, `known_at`; rows without a serial are left
        out. A row of kind `back` says that a lost GPU is there again.
    tickets : pyarrow.Table
        TICKETS.
    boots : pyarrow.Table
        BOOTS.
    rules : FailureRules
    recoveries : iterable of Recovery
        Of the failures that `unended` names.

    Returns
    -------
    pyarrow.Table
        FAILURES: the columns of the end are null while it lasts; `cause` is that of the ticket
        where there is one, else such as "xid 79" or "lost".
    """
    shown = {(recovery.gpu_serial, recovery.since): recovery for recovery in recoveries}
    spans: dict[str, list[_Span]] = defaultdict(list)
    for serial, span in _of_tickets(tickets):
        spans[serial].append(span)
    for serial, of_gpu in _ended_by_others(events, tickets, boots, rules).items():
        following: _End | None = None
        for span, cancelled_at in of_gpu:  # the latest first
            recovery = shown.get((serial, span.failed))
            ends = [] if recovery is None else _recovery_ends(recovery, rules)
            ends = [end for end in ends if end.known < cancelled_at]
            span.end = min([*ends, *([span.end] if span.end else [])], default=following)
            following = span.end
            spans[serial].append(span)
    rows = [
        (serial, *_row(episode)) for serial in sorted(spans) for episode in _episodes(spans[serial])
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(FAILURES)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, FAILURES, strict=True)]
    return pa.table(arrays, schema=FAILURES)


class Unended(NamedTuple):
    """Evidence of a failure after which only telemetry can show an end, for some time.

    Attributes
    ----------
    gpu_serial : str
    since : int
        Time of the evidence, nanoseconds since 1970 UTC.
    until : int or None
        When another end or more evidence was known; None: neither is.
    """

    gpu_serial: str
    since: int
    until: int | None


def unended(
    events: pa.Table, tickets: pa.Table, boots: pa.Table, rules: FailureRules
) -> list[Unended]:
    """Return after which evidence of a failure telemetry has to be looked at, and until when.

    Parameters
    ----------
    events, tickets, boots, rules
        As of `failures_of`.
    """
    found = set()
    for serial, of_gpu in _ended_by_others(events, tickets, boots, rules).items():
        for span, cancelled_at in of_gpu:
            until = min(cancelled_at, span.end.known if span.end else _NEVER)
            found.add(Unended(serial, span.failed, None if until == _NEVER else until))
    return sorted(found, key=lambda failure: failure[:2])


def _ended_by_others(
    events: pa.Table, tickets: pa.Table, boots: pa.Table, rules: FailureRules
) -> dict[str, list[tuple[_Span, int]]]:
    """Return the failures that events tell of, the latest first, with ends but of telemetry.

    With each comes when later evidence became known, which cancels what telemetry shows.
    """
    ends = _ends(events, boots, rules)
    for serial, span in _of_tickets(tickets):
        if span.end:
            ends[serial].append((span.end.repaired, span.end))
    spans: dict[str, list[_Span]] = defaultdict(list)
    for serial, span in _of_events(events, rules):
        later = [end for after, end in ends.get(serial, []) if after > span.failed]
        span.end = min(later, default=None)
        spans[serial].append(span)
    return {serial: _with_cancellation(of_gpu) for serial, of_gpu in spans.items()}


def _with_cancellation(spans: list[_Span]) -> list[tuple[_Span, int]]:
    """Return spans, the latest first, each with when evidence later than it became known."""
    pairs: list[tuple[_Span, int]] = []
    later = same = _NEVER  # than the span, and at or after it
    failed = None
    for span in sorted(spans, key=lambda span: span.failed, reverse=True):
        if span.failed != failed:
            later, failed = same, span.failed
        same = min(same, span.known)
        pairs.append((span, later))
    return pairs


def _recovery_ends(recovery: Recovery, rules: FailureRules) -> list[_End]:
    """Return the ends that telemetry shows."""
    ends = []
    known, restarted = recovery.boot_known, recovery.restarted
    if rules.restart_repairs and known is not None and restarted is not None:
        ends.append(_End(known, restarted, BOOT))
    known, works_from = recovery.presumed_known, recovery.works_from
    if known is not None and works_from is not None:
        until = max(known, recovery.since + rules.presumed_after)
        ends.append(_End(known, works_from, PRESUMED, until))
    return ends


def _row(span: _Span) -> tuple[int | str | None, ...]:
    """Return a failure as a row of FAILURES, without its serial."""
    known, repaired, source, unknown_until = span.end or (None, None, None, None)
    return span.failed, repaired, span.cause, span.known, known, source, unknown_until


def _of_tickets(tickets: pa.Table) -> list[tuple[str, _Span]]:
    failures = []
    for row in _rows(tickets, TICKETS.names[1:]):
        failed, repaired, cause = row["failed_at"], row["repaired_at"], row["cause"] or "ticket"
        if failed is not None:
            known = failed if row["known_at"] is None else row["known_at"]
            end = None if repaired is None else _End(max(repaired, known), repaired, TICKET)
            failures.append((row["gpu_serial"], _Span(failed, end, cause, known, ticket=True)))
    return failures


def _of_events(events: pa.Table, rules: FailureRules) -> list[tuple[str, _Span]]:
    failures = []
    for row in _rows(
        events.filter(_are_failures(events, rules)), ["timestamp", "kind", "code", "known_at"]
    ):
        cause = f"xid {row['code']}" if row["kind"] == "xid" else row["kind"]
        failures.append((row["gpu_serial"], _Span(row["timestamp"], None, cause, _known(row))))
    return failures


def _are_failures(events: pa.Table, rules: FailureRules) -> pa.ChunkedArray:
    """Tell which events say that a GPU has failed: by code, or by the driver's own word."""
    fatal = pc.is_in(events["code"], pa.array(sorted(rules.xids), pa.int32()))
    of_nvlink = pc.is_in(events["code"], pa.array(NVLINK_XIDS, pa.int32()))
    said_fatal = pc.fill_null(pc.equal(events["severity"], "fatal"), False)
    is_xid = pc.equal(events["kind"], "xid")
    counts = pc.and_(is_xid, pc.or_(fatal, pc.and_(of_nvlink, said_fatal)))
    counts = pc.or_(counts, pc.is_in(events["action"], pa.array(FATAL_ACTIONS)))
    return pc.or_(counts, pc.equal(events["kind"], "lost")) if rules.lost else counts


def _rows(table: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    """Return the rows that name a GPU, times as whole numbers."""
    plain = table.filter(pc.is_valid(table["gpu_serial"])).select(["gpu_serial", *names])
    rows: list[dict[str, Any]] = plain.cast(_as_numbers(plain.schema)).to_pylist()
    return rows


def _ends(
    events: pa.Table, boots: pa.Table, rules: FailureRules
) -> dict[str, list[tuple[int, _End]]]:
    """Return for each GPU what can end a failure: it must come after the first moment."""
    ends: dict[str, list[tuple[int, _End]]] = defaultdict(list)
    if rules.restart_repairs:
        for row in boots.to_pylist():
            seen = row["first_seen"]
            ends[row["gpu_serial"]].append((row["boot_time"], _End(seen, seen, BOOT)))
    for row in _rows(events.filter(pc.equal(events["kind"], "back")), ["timestamp", "known_at"]):
        back = row["timestamp"]
        ends[row["gpu_serial"]].append((back, _End(_known(row), back, RETURNED)))
    return ends


def _known(event: Mapping[str, Any]) -> int:
    """Return when an event was known: when it was received, but not before it happened."""
    time, received = event["timestamp"], event["known_at"]
    return int(time if received is None else max(time, received))


def _episodes(spans: list[_Span]) -> list[_Span]:
    """Return spans by time, those that overlap made one; the cause of a ticket wins.

    An Xid says more than that the GPU was lost, which the driver prints right after it.
    """
    episodes: list[_Span] = []
    for span in sorted(spans, key=lambda s: (s.failed, s.known, s.cause in _VAGUE, s.cause)):
        last = episodes[-1] if episodes else None
        if last is not None and last.continues_in(span):
            last.join(span)
        else:
            episodes.append(span)
    return episodes


def _as_numbers(schema: pa.Schema) -> pa.Schema:
    """Return the schema with times as whole numbers."""
    return pa.schema(
        [(f.name, pa.int64() if pa.types.is_timestamp(f.type) else f.type) for f in schema]
    )

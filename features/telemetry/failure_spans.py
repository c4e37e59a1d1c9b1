"""Failure spans computed from evidence, without a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from forewarn.features.telemetry.failure_evidence import (
    FAILURES,
    PRESUMED,
    TICKETS,
    FailureRules,
    failing_events,
    returning_events,
    rows_of_gpus,
    select_restarts,
)
from forewarn.features.telemetry.recovery_evidence import Recovery

__all__ = ["OpenFailure", "build_failures", "open_failures"]

_TICKET, _BOOT, _RETURNED = "ticket", "boot", "returned"
_UNSPECIFIC_CAUSES = (
    "lost",
    "needs_reset",
)  # causes that say less than the Xid that accompanies them
_NEVER = 2**63 - 1


class _End(NamedTuple):
    """A possible end of a failure; the first one known ends it."""

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
        """Tell whether a later failure continues this one.

        One that became known after a presumed end is a row of its own: until then the end was
        valid.
        """
        if self.end is None:
            return True
        if self.end.source == PRESUMED and later.known > self.end.known:
            return False
        return later.failed <= self.end.repaired

    def join(self, other: _Span) -> None:
        """Merge a later failure that started before this one ended; a ticket's cause wins."""
        if other.ticket and not self.ticket:
            self.cause, self.ticket = other.cause, True
        if self.end is None or other.end is None:
            self.end = None
        else:
            last = max(self.end, other.end, key=lambda end: (end.repaired, end.known))
            self.end = last._replace(known=max(self.end.known, other.end.known))
        self.known = min(self.known, other.known)


def build_failures(
    events: pa.Table,
    tickets: pa.Table,
    boots: pa.Table,
    rules: FailureRules,
    recoveries: Iterable[Recovery] = (),
) -> pa.Table:
    """Return the failures sorted by serial and time; overlapping ones are merged.

    Parameters
    ----------
    events : pyarrow.Table
        With `gpu_serial`, `timestamp`, `kind`, `code`, `known_at`; rows without a serial are
        skipped. Kind `back` means that a lost GPU is present again.
    tickets : pyarrow.Table
        TICKETS.
    boots : pyarrow.Table
        BOOTS, as returned by `merge_boots`.
    rules : FailureRules
    recoveries : iterable of Recovery
        Of the failures that `open_failures` returns.

    Returns
    -------
    pyarrow.Table
        FAILURES: the columns of the end are null while the failure lasts. `cause` is that of the
        ticket if there is one, else for example "xid 79" or "lost".
    """
    shown = {(recovery.gpu_serial, recovery.since): recovery for recovery in recoveries}
    spans: dict[str, list[_Span]] = defaultdict(list)
    for serial, span in _ticket_spans(tickets):
        spans[serial].append(span)
    for serial, of_gpu in _spans_ended_by_events(events, tickets, boots, rules).items():
        following: _End | None = None
        for span, cancelled_at in of_gpu:  # the latest first
            recovery = shown.get((serial, span.failed))
            ends = [] if recovery is None else _recovery_ends(recovery, rules)
            ends = [end for end in ends if end.known < cancelled_at]
            span.end = min([*ends, *([span.end] if span.end else [])], default=following)
            following = span.end and span.end._replace(known=max(span.end.known, span.known))
            spans[serial].append(span)
    rows = [
        (serial, *_row(episode)) for serial in sorted(spans) for episode in _episodes(spans[serial])
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(FAILURES)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, FAILURES, strict=True)]
    return pa.table(arrays, schema=FAILURES)


def _row(span: _Span) -> tuple[int | str | None, ...]:
    """Return a failure as a row of FAILURES without its serial."""
    known, repaired, source, unknown_until = span.end or (None, None, None, None)
    return span.failed, repaired, span.cause, span.known, known, source, unknown_until


class OpenFailure(NamedTuple):
    """Evidence of a failure that only telemetry can end, at least for some time.

    Attributes
    ----------
    gpu_serial : str
    since : int
        Time of the evidence, nanoseconds since 1970 UTC.
    until : int or None
        When another end or more evidence became known; None if neither exists.
    """

    gpu_serial: str
    since: int
    until: int | None


def open_failures(
    events: pa.Table, tickets: pa.Table, boots: pa.Table, rules: FailureRules
) -> list[OpenFailure]:
    """Return the failures whose end has to be searched in telemetry.

    Parameters
    ----------
    events, tickets, boots, rules
        As for `build_failures`.
    """
    failures = set()
    for serial, of_gpu in _spans_ended_by_events(events, tickets, boots, rules).items():
        for span, cancelled_at in of_gpu:
            until = min(cancelled_at, span.end.known if span.end else _NEVER)
            failures.add(OpenFailure(serial, span.failed, None if until == _NEVER else until))
    return sorted(failures, key=lambda failure: failure[:2])


def _spans_ended_by_events(
    events: pa.Table, tickets: pa.Table, boots: pa.Table, rules: FailureRules
) -> dict[str, list[tuple[_Span, int]]]:
    """Return the failures by GPU, the latest first, with all ends except those of telemetry.

    Each comes with the time at which later evidence became known, which cancels ends of telemetry.
    """
    ends = _ends(events, boots, rules)
    for serial, span in _ticket_spans(tickets):
        if span.end:
            ends[serial].append((span.end.repaired, span.end))
    spans: dict[str, list[_Span]] = defaultdict(list)
    for event in failing_events(events, rules):
        later = [end for after, end in ends.get(event.gpu_serial, []) if after > event.time]
        span = _Span(event.time, min(later, default=None), event.cause, event.known)
        spans[event.gpu_serial].append(span)
    return {serial: _with_cancellation(of_gpu) for serial, of_gpu in spans.items()}


def _ticket_spans(tickets: pa.Table) -> list[tuple[str, _Span]]:
    failures = []
    for row in rows_of_gpus(tickets, TICKETS.names[1:]):
        failed, repaired, cause = row["failed_at"], row["repaired_at"], row["cause"] or "ticket"
        if failed is not None:
            known = failed if row["known_at"] is None else row["known_at"]
            end = None if repaired is None else _End(max(repaired, known), repaired, _TICKET)
            failures.append((row["gpu_serial"], _Span(failed, end, cause, known, ticket=True)))
    return failures


def _ends(
    events: pa.Table, boots: pa.Table, rules: FailureRules
) -> dict[str, list[tuple[int, _End]]]:
    """Return the possible ends by GPU, each with the earliest failure time that it can end."""
    ends: dict[str, list[tuple[int, _End]]] = defaultdict(list)
    if rules.restart_repairs:
        for row in select_restarts(boots).to_pylist():
            seen = row["first_seen"]
            ends[row["gpu_serial"]].append((row["boot_time"], _End(seen, seen, _BOOT)))
    for back in returning_events(events):
        ends[back.gpu_serial].append((back.time, _End(back.known, back.time, _RETURNED)))
    return ends


def _with_cancellation(spans: list[_Span]) -> list[tuple[_Span, int]]:
    """Return the spans, the latest first, with the time at which later evidence became known."""
    pairs: list[tuple[_Span, int]] = []
    later = same = _NEVER  # times after the span, and at or after it
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
        ends.append(_End(known, restarted, _BOOT))
    known, works_from = recovery.presumed_known, recovery.works_from
    if known is not None and works_from is not None:
        until = max(known, recovery.since + rules.presumed_after)
        ends.append(_End(known, works_from, PRESUMED, until))
    return ends


def _episodes(spans: list[_Span]) -> list[_Span]:
    """Merge overlapping spans, sorted by time; the cause of a ticket wins.

    An Xid is a better cause than "lost", which the driver prints right after it.
    """
    episodes: list[_Span] = []
    for span in sorted(
        spans, key=lambda s: (s.failed, s.known, s.cause in _UNSPECIFIC_CAUSES, s.cause)
    ):
        last = episodes[-1] if episodes else None
        if last is not None and last.continues_in(span):
            last.join(span)
        else:
            episodes.append(span)
    return episodes

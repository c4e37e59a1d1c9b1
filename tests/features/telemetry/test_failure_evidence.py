from __future__ import annotations

import random
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.telemetry.failure_evidence import (
    BOOTS,
    TICKETS,
    FailureRules,
    boots_from_readings,
    merge_boots,
)
from forewarn.features.telemetry.failure_spans import build_failures, open_failures
from forewarn.features.telemetry.recovery_evidence import Recovery
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import MINUTE, SECOND

START = 1_740_787_200 * SECOND

Rows = Callable[..., pa.Table]
RULES = FailureRules()


def tickets(*rows: tuple[Any, ...]) -> pa.Table:
    """Return tickets of serial, failed, repaired, cause and known, times in minutes."""
    full = [(*row, *[None] * (5 - len(row))) for row in rows]
    columns = list(zip(*full, strict=True)) or [()] * 5
    arrays = [
        pa.array([at(v) if pa.types.is_timestamp(f.type) else v for v in column], f.type)
        for column, f in zip(columns, TICKETS, strict=True)
    ]
    return pa.table(arrays, schema=TICKETS)


def at(minute: float | None) -> int | None:
    return None if minute is None else START + round(minute * MINUTE)


def boots(*rows: tuple[str, float, float]) -> pa.Table:
    """Return BOOTS of serial, start and first seen, in minutes, each seen for ten minutes."""
    made = [(s, at(b), at(f), at(f + 10)) for s, b, f in rows]
    named = [dict(zip(BOOTS.names, row, strict=True)) for row in made]
    return pa.Table.from_pylist(named, schema=BOOTS)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return serial, failed, repaired, cause and known, times in minutes."""
    rows = []
    for row in table.to_pylist():
        times = [row[name] for name in ("failed_at", "repaired_at", "known_at")]
        failed, repaired, known = (t and (t.value - START) / MINUTE for t in times)
        rows.append((row["gpu_serial"], failed, repaired, row["cause"], known))
    return rows


def found(events: pa.Table, told: pa.Table, seen: pa.Table, rules: FailureRules = RULES) -> Any:
    return listed(build_failures(events, told, seen, rules))


def test_only_fatal_events_are_failures(events: Rows) -> None:
    table = events((5, "S2", "lost"), (1, "S1", 79), (2, "S3", 13), (3, "S4", 63), (4, None, 79))
    assert found(table, tickets(), boots()) == [
        ("S1", 1, None, "xid 79", 1),
        ("S2", 5, None, "lost", 5),
    ]


def test_the_rules_are_configuration(events: Rows) -> None:
    table = events((5, "S2", "lost"), (1, "S1", 79), (2, "S3", 13))
    rules = FailureRules(frozenset({13}), lost=False)
    assert found(table, tickets(), boots(), rules) == [("S3", 2, None, "xid 13", 2)]


def test_failure_is_known_on_receipt(events: Rows) -> None:
    known = {"known_at": at(8)}
    assert found(events((1, "S1", 79, known)), tickets(), boots()) == [("S1", 1, None, "xid 79", 8)]
    # A clock that is ahead: an event cannot be known before it happens.
    early = {"known_at": at(0.5)}
    assert found(events((1, "S1", 79, early)), tickets(), boots())[0][4] == 1


def test_reboot_ends_failure(events: Rows) -> None:
    table = events((10, "S1", 79), (10, "S2", 79))
    seen = boots(("S1", -500, 6), ("S1", 20, 30), ("S1", 45, 46), ("S2", 5, 6))
    assert [row[2] for row in found(table, tickets(), seen)] == [30, None]
    rules = FailureRules(restart_repairs=False)
    assert [row[2] for row in found(table, tickets(), seen, rules)] == [None, None]


def seen_by(*rows: tuple[float, float]) -> pa.Table:
    """Return BOOTS of readings with a time and the boot time of the host, both in minutes."""
    made = [{"gpu_serial": "S1", "timestamp": at(t), "boot_time": at(b)} for t, b in rows]
    return boots_from_readings(build_table(made, READINGS))


def test_changed_clock_is_no_reboot(events: Rows) -> None:
    """The host booted at minute 0; its clock is three hours behind until minute 70."""
    before = [(minute, 0) for minute in range(1, 70)]
    after = [(minute + 180, 180) for minute in range(70, 400)]
    table = events((60, "S1", 79))
    assert found(table, tickets(), seen_by(*before, *after))[0][2] is None
    # A later reboot is detected, with and without a clock step.
    again = [(minute + 600, 600) for minute in range(2, 10)]
    assert found(table, tickets(), seen_by(*before, *after, *again))[0][2] == 602
    assert found(table, tickets(), seen_by(*before, *again))[0][2] == 602


@given(
    st.one_of(
        st.tuples(st.integers(0, 120), st.lists(st.integers(0, 600), max_size=5)),
        st.tuples(st.integers(6000, 9000), st.lists(st.integers(-600, 600), max_size=5)),
    ),
    st.integers(1, 30),
    st.integers(0, 600),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100)
def test_clock_steps_end_no_failure(
    host: tuple[int, list[int]], apart: int, failed: int, chance: random.Random
) -> None:
    """A host with a given uptime sets its clock every two hours; the parts are shuffled."""
    uptime, steps = host
    rows, clock, moment = [], 0, 0
    for number in range(720):
        clock += steps.pop() if steps and number % 120 == 119 else 0
        moment = clock + number if number <= failed else moment
        if number % apart == 0:
            rows.append((clock + number, clock - uptime))
    chance.shuffle(rows)
    seen = merge_boots(pa.concat_tables([seen_by(*rows[part::3]) for part in range(3)]))
    assert seen.equals(seen_by(*rows))
    assert found(failed_at(moment), tickets(), seen)[0][2] is None


def failed_at(minute: float) -> pa.Table:
    row = {"timestamp": at(minute), "gpu_serial": "S1", "kind": "xid", "code": 79, "id": "1"}
    return build_table([row], EVENTS)


def test_returned_gpu_ends_failure(events: Rows) -> None:
    table = events((10, "S1", "lost"), (30, "S1", "back"), (40, "S1", "lost"))
    assert [row[1:3] for row in found(table, tickets(), boots())] == [(10, 30), (40, None)]


def test_withdrawn_recovery_request_ends_failure(events: Rows) -> None:
    table = events((10, "S1", 154, {"action": "reset"}), (30, "S1", 154, {"action": "none"}))
    assert [row[1:4] for row in found(table, tickets(), boots())] == [(10, 30, "xid 154")]
    # Events of other times and other Xids end nothing.
    table = events((10, "S1", 154, {"action": "none"}), (20, "S1", 79), (30, "S1", 13))
    assert [row[1:3] for row in found(table, tickets(), boots())] == [(20, None)]


def test_ticket_ends_failure_of_log(events: Rows) -> None:
    told = tickets(("S1", 20, 60, "board", 25))
    # Both are one failure, from the first evidence to the ticket's end, with the ticket's cause.
    assert found(events((10, "S1", 79)), told, boots()) == [("S1", 10, 60, "board", 10)]
    # A reboot before the ticket's end does not split it.
    assert found(events((10, "S1", 79)), told, boots(("S1", 30, 31))) == [
        ("S1", 10, 60, "board", 10)
    ]
    # An earlier, closed ticket is unrelated.
    assert found(events((70, "S1", 79)), told, boots()) == [
        ("S1", 20, 60, "board", 25),
        ("S1", 70, None, "xid 79", 70),
    ]


def test_a_ticket_alone(events: Rows) -> None:
    told = tickets(("S2", 20), ("S1", 20, None, None, 90), (None, 1), ("S3", None))
    assert found(events(), told, boots()) == [
        ("S1", 20, None, "ticket", 90),
        ("S2", 20, None, "ticket", 20),
    ]


def test_repeated_evidence_is_one_failure(events: Rows) -> None:
    table = events(*((minute, "S1", 79) for minute in (10, 11, 12)), (50, "S1", 48))
    seen = boots(("S1", 30, 31))
    assert [row[1:4] for row in found(table, tickets(), seen)] == [
        (10, 31, "xid 79"),
        (50, None, "xid 48"),
    ]


DAY = 24 * 60  # minutes


def shown(serial: str, since: float, **moments: float) -> Recovery:
    """Return the state of a recovery, times in minutes."""
    known: dict[str, Any] = {name: at(moment) for name, moment in moments.items()}
    return Recovery(serial, START + round(since * MINUTE), 0, **known)


def ended(
    events: pa.Table, told: pa.Table, *recoveries: Recovery, rules: FailureRules = RULES
) -> list[tuple[Any, ...]]:
    """Return failed, repaired, known time and source of the end, and end of unknown health."""
    rows = []
    for row in build_failures(events, told, boots(), rules, recoveries).to_pylist():
        names = ("failed_at", "repaired_at", "end_known_at", "unknown_until")
        times = [row[n] and (row[n].value - START) / MINUTE for n in names]
        rows.append((*times[:3], row["end_source"], times[3]))
    return rows


def test_end_has_source_and_known_time(events: Rows) -> None:
    table = events(
        *((10, "S1", 79), (10, "S2", "lost"), (10, "S3", 79), (10, "S4", 79)),
        (30, "S2", "back", {"known_at": at(33)}),
    )
    told = tickets(("S1", 20, 60, "board", 80))
    seen = boots(("S3", 20, 25))
    rows = build_failures(table, told, seen, RULES).to_pylist()
    minutes = [
        (row["gpu_serial"], row["end_known_at"] and (row["end_known_at"].value - START) / MINUTE)
        for row in rows
    ]
    assert minutes == [("S1", 80), ("S2", 33), ("S3", 25), ("S4", None)]
    assert [row["end_source"] for row in rows] == ["ticket", "returned", "boot", None]


def test_failure_without_end_is_presumed_over(events: Rows) -> None:
    worked = shown("S1", 10, works_from=30, presumed_known=DAY + 30)
    week = 10 + 7 * DAY
    assert ended(events((10, "S1", 79)), tickets(), worked) == [
        (10, 30, DAY + 30, "presumed", week)
    ]
    late = shown("S1", 10, works_from=9 * DAY, presumed_known=10 * DAY)
    assert ended(events((10, "S1", 79)), tickets(), late)[0][4] == 10 * DAY
    rules = FailureRules(presumed_after=2 * DAY * MINUTE)
    assert ended(events((10, "S1", 79)), tickets(), worked, rules=rules)[0][4] == 10 + 2 * DAY


def test_energy_counter_restart_is_a_boot(events: Rows) -> None:
    rebooted = shown("S1", 10, restarted=40, boot_known=50)
    assert ended(events((10, "S1", 79)), tickets(), rebooted) == [(10, 40, 50, "boot", None)]
    rules = FailureRules(restart_repairs=False)
    assert ended(events((10, "S1", 79)), tickets(), rebooted, rules=rules) == [(10, *[None] * 4)]


def test_first_known_end_wins(events: Rows) -> None:
    both = shown("S1", 10, restarted=40, boot_known=50, works_from=20, presumed_known=DAY + 20)
    assert ended(events((10, "S1", 79)), tickets(), both)[0][1:4] == (40, 50, "boot")
    # A ticket known before the presumed end makes it a repair.
    worked = shown("S1", 10, works_from=30, presumed_known=DAY + 30)
    told = tickets(("S1", 12, 60, "board", 12))
    assert ended(events((10, "S1", 79)), told, worked) == [(10, 60, 60, "ticket", None)]


def test_earlier_xid_cancels_presumed_end(events: Rows) -> None:
    again = events((10, "S1", 79), (DAY, "S1", 48))
    outdated = shown("S1", 10, works_from=30, presumed_known=DAY + 30)
    assert ended(again, tickets(), outdated) == [(10, *[None] * 4)]
    worked = shown("S1", DAY, works_from=DAY + 10, presumed_known=2 * DAY + 10)
    assert ended(again, tickets(), outdated, worked) == [
        (10, DAY + 10, 2 * DAY + 10, "presumed", 8 * DAY)
    ]


def test_later_evidence_keeps_known_presumed_end(events: Rows) -> None:
    worked = shown("S1", 10, works_from=30, presumed_known=DAY + 30)
    first = (10, 30, DAY + 30, "presumed", 10 + 7 * DAY)
    later = events((10, "S1", 79), (3 * DAY, "S1", 48))
    assert ended(later, tickets(), worked) == [first, (3 * DAY, *[None] * 4)]
    # Logged early and received late: until then the end was valid.
    received = events((10, "S1", 79), (20, "S1", 48, {"known_at": at(2 * DAY)}))
    assert ended(received, tickets(), worked) == [first, (20, *[None] * 4)]
    told = tickets(("S1", 12, 3 * DAY, "board", 4 * DAY))
    assert ended(events((10, "S1", 79)), told, worked) == [
        first,
        (12, 3 * DAY, 4 * DAY, "ticket", None),
    ]


def test_telemetry_does_not_end_open_ticket(events: Rows) -> None:
    worked = shown("S1", 10, works_from=30, presumed_known=DAY + 30)
    assert ended(events((10, "S1", 79)), tickets(("S1", 12)), worked) == [(10, *[None] * 4)]


def test_earliest_evidence_sets_failure_start(events: Rows) -> None:
    """A gauge may show an Xid minutes after the log; a ticket may be written earlier or later."""
    late_gauge = events((10, "S1", 43), (12, "S1", 79), (13, "S1", "lost"), (20, "S1", 79))
    told = tickets(("S1", 11, 300, "board", 200))
    assert [row[1:4] for row in found(late_gauge, told, boots())] == [(11, 300, "board")]
    told = tickets(("S1", 16, 300, "board", 200))
    assert [row[1:4] for row in found(late_gauge, told, boots())] == [(12, 300, "board")]


def test_open_failures_need_telemetry(events: Rows) -> None:
    table = events(
        *((10, "S1", 79), (10, "S2", 79), (10, "S3", 79), (70, "S3", 48, {"known_at": at(90)})),
        (10, "S4", 13),
    )
    told, seen = tickets(("S2", 10, 60)), boots(("S1", 5, 6))
    assert [
        (f.gpu_serial, (f.since - START) / MINUTE, f.until and (f.until - START) / MINUTE)
        for f in open_failures(table, told, seen, RULES)
    ] == [("S1", 10, None), ("S2", 10, 60), ("S3", 10, 90), ("S3", 70, None)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.integers(0, 8),
            st.one_of(st.none(), st.tuples(st.integers(1, 5), st.integers(1, 12))),
        ),
        max_size=6,
    ),
    st.integers(0, 60),
)
@settings(max_examples=300)
def test_later_evidence_changes_no_known_failure(chances: Any, moment: int) -> None:
    """Failures as known at a moment do not depend on what became known later."""
    rows, recoveries, known = [], [], 0
    for number, (minute, delay, recovery) in enumerate(sorted(chances, key=itemgetter(0))):
        known = max(known, minute + delay)
        rows.append((minute, known, number))
        if recovery is not None:
            works, needed = minute + recovery[0], minute + sum(recovery)
            recoveries.append(shown("S1", minute, works_from=works, presumed_known=needed))
    early = [row for row in rows if row[1] < moment]
    seen = [
        known_at(view, moment) for view in (as_table(rows, recoveries), as_table(early, recoveries))
    ]
    assert seen[0] == seen[1], (rows, recoveries, moment)


def as_table(rows: list[tuple[int, int, int]], recoveries: list[Recovery]) -> pa.Table:
    made = [
        {
            "timestamp": at(minute),
            "gpu_serial": "S1",
            "kind": "xid",
            "code": 79,
            "known_at": at(known),
            "id": str(number),
        }
        for minute, known, number in rows
    ]
    events = build_table(made, EVENTS)
    return build_failures(events, tickets(), boots(), RULES, recoveries)


def known_at(table: pa.Table, minute: float) -> set[int]:
    """Return the minutes in which the GPU counts as failed, as known at a moment."""
    failed: set[int] = set()
    moment = at(minute)
    for row in table.to_pylist():
        if row["known_at"].value < moment:
            ended = row["end_known_at"] is not None and row["end_known_at"].value < moment
            begin = (row["failed_at"].value - START) // MINUTE
            end = (row["repaired_at"].value - START) // MINUTE if ended else 10_000
            failed |= {*range(begin, end)}
    return failed

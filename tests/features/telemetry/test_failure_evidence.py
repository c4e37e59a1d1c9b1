from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from forewarn.features.telemetry.failure_evidence import BOOTS, TICKETS, FailureRules, failures_of

START = 1_740_787_200 * 10**9
MINUTE = 60 * 10**9

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
    made = [{"gpu_serial": s, "boot_time": at(b), "first_seen": at(f)} for s, b, f in rows]
    return pa.Table.from_pylist(made, schema=BOOTS)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return serial, failed, repaired, cause and known, times in minutes."""
    rows = []
    for row in table.to_pylist():
        times = [row[name] for name in ("failed_at", "repaired_at", "known_at")]
        failed, repaired, known = (t and (t.value - START) / MINUTE for t in times)
        rows.append((row["gpu_serial"], failed, repaired, row["cause"], known))
    return rows


def found(events: pa.Table, told: pa.Table, seen: pa.Table, rules: FailureRules = RULES) -> Any:
    return listed(failures_of(events, told, seen, rules))


def test_a_fatal_xid_and_a_lost_gpu_are_failures_and_others_are_not(events: Rows) -> None:
    table = events((5, "S2", "lost"), (1, "S1", 79), (2, "S3", 13), (3, "S4", 63), (4, None, 79))
    assert found(table, tickets(), boots()) == [
        ("S1", 1, None, "xid 79", 1),
        ("S2", 5, None, "lost", 5),
    ]


def test_the_rules_are_configuration(events: Rows) -> None:
    table = events((5, "S2", "lost"), (1, "S1", 79), (2, "S3", 13))
    rules = FailureRules(frozenset({13}), lost=False)
    assert found(table, tickets(), boots(), rules) == [("S3", 2, None, "xid 13", 2)]


def test_a_failure_is_known_when_it_was_received(events: Rows) -> None:
    known = {"known_at": at(8)}
    assert found(events((1, "S1", 79, known)), tickets(), boots()) == [("S1", 1, None, "xid 79", 8)]
    # A clock that is ahead: nobody knows what has not happened.
    early = {"known_at": at(0.5)}
    assert found(events((1, "S1", 79, early)), tickets(), boots())[0][4] == 1


def test_it_is_over_when_the_gpu_is_seen_after_a_restart(events: Rows) -> None:
    table = events((10, "S1", 79), (10, "S2", 79))
    seen = boots(("S1", 5, 6), ("S1", 20, 30), ("S1", 40, 41), ("S2", 5, 6))
    assert [row[2] for row in found(table, tickets(), seen)] == [30, None]
    rules = FailureRules(restart_repairs=False)
    assert [row[2] for row in found(table, tickets(), seen, rules)] == [None, None]


def test_it_is_over_when_a_lost_gpu_is_back(events: Rows) -> None:
    table = events((10, "S1", "lost"), (30, "S1", "back"), (40, "S1", "lost"))
    assert [row[1:3] for row in found(table, tickets(), boots())] == [(10, 30), (40, None)]


def test_a_ticket_ends_what_the_log_began(events: Rows) -> None:
    told = tickets(("S1", 20, 60, "board", 25))
    # Both are one failure: from the first sign to the ticket's end, with the ticket's cause.
    assert found(events((10, "S1", 79)), told, boots()) == [("S1", 10, 60, "board", 10)]
    # A restart before the ticket's end does not make two of it.
    assert found(events((10, "S1", 79)), told, boots(("S1", 30, 31))) == [
        ("S1", 10, 60, "board", 10)
    ]
    # A ticket that was closed before has nothing to do with it.
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


def test_repeats_of_a_failure_that_lasts_are_one(events: Rows) -> None:
    table = events(*((minute, "S1", 79) for minute in (10, 11, 12)), (50, "S1", 48))
    seen = boots(("S1", 30, 31))
    assert [row[1:4] for row in found(table, tickets(), seen)] == [
        (10, 31, "xid 79"),
        (50, None, "xid 48"),
    ]

"""Events of recovery in the ledger, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import recovery_events
from forewarn.pipelines.incidents.ledger.recovery_log import (
    decide_once,
    read_events,
    record_events,
)
from forewarn.response.recovery.job_crash import FaultOrigin, JobCrash
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    RungFailed,
    StepMade,
)
from forewarn.response.state.rung import Rung

AT = Nanoseconds(10)
CRASH = JobCrash(AT, FaultOrigin.EXPLICIT, "xid 79", "n1", hits_rank_zero=True, rung=Rung.PROCESS)
EVENTS: list[RecoveryEvent] = [
    CRASH,
    JobCrash(AT, FaultOrigin.NOT_ONE),
    CheckpointSaved(AT, 400),
    CheckpointSaved(AT, None),
    StepMade(AT),
    RungFailed(AT),
    RungBegun(AT, Rung.REQUEUE),
    RungBegun(AT, Rung.RESTART, is_observed=True),
]


def test_events_come_back_and_repeats_are_one(ledger: Ledger) -> None:
    for _ in range(2):
        record_events(ledger, "42", EVENTS, who="test")
    record_events(ledger, "43", EVENTS[:1], who="test")
    assert read_events(ledger, ["42"]) == EVENTS
    assert read_events(ledger, ["42", "43"]) == [*EVENTS, CRASH]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("saved", "[]"),
        ("saved", "{"),
        ("saved", '{"step": "many"}'),
        ("saved", "{}"),
        ("begun", '{"rung": "gone"}'),
        ("begun", '{"rung": []}'),
        ("crash", '{"origin": "explicit"}'),  # without a machine
        ("gone", "{}"),
    ],
)
def test_damaged_row_is_quarantined(ledger: Ledger, kind: str, value: str) -> None:
    record_events(ledger, "42", EVENTS[:1], who="test")
    with ledger.database.writing() as connection:
        row = {"job": "42", "at": 10, "kind": kind, "value": value, "who": "test"}
        connection.execute(recovery_events.insert().values(**row))
    assert read_events(ledger, ["42"]) == EVENTS[:1]
    assert len(ledger.quarantined_rows("recovery_events")) == 1


def test_of_several_callers_at_once_one_decides(ledger: Ledger) -> None:
    def begin(number: int) -> list[RecoveryEvent]:
        def decide(recorded: list[RecoveryEvent]) -> Iterator[RecoveryEvent]:
            if not recorded:
                yield RungBegun(Nanoseconds(number), Rung.REQUEUE)

        return decide_once(ledger, "42", ["42"], decide, who=f"caller {number}")

    with ThreadPoolExecutor(4) as pool:
        decided = [event for events in pool.map(begin, range(8)) for event in events]
    assert len(decided) == 1
    assert read_events(ledger, ["42"]) == decided

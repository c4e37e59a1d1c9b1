"""Which changes are told, singly or in digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select
from tests.pipelines.incidents.conftest import make_finding
from tests.pipelines.incidents.messages.conftest import Desk, MemoryReceiver, table

from forewarn.features.time_units import DAY
from forewarn.pipelines.incidents.ledger.ledger_tables import messages
from forewarn.pipelines.incidents.messages.message import Message, MessageKind
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import FindingKind, Severity

PREDICTION: dict[str, Any] = {
    "kind": FindingKind.AT_RISK,
    "cause": "at_risk",
    "evidence": {"probability": 0.3},
}


def kinds(receiver: MemoryReceiver) -> list[MessageKind]:
    return [message.kind for message in receiver.messages]


def test_each_change_of_an_incident_is_told_once(desk: Desk, receiver: MemoryReceiver) -> None:
    number = desk.open()
    desk.round()
    assert receiver.messages == []  # within the group wait
    for _ in range(3):
        desk.round()
    desk.decide(number, Severity.ERROR, Ruling.ACT)
    desk.round()
    desk.ledger.acknowledge(number, now=desk.clock.moment, who="ann")
    desk.round()
    desk.end(number)
    for _ in range(3):
        desk.round()
    assert receiver.changes == [(number, 1), (number, 2), (number, 3), (number, 4)]
    assert [message.summary for message in receiver.messages] == [
        "incident 1, m1: error, drain (propose): xid 79: GPU has fallen off the bus",
        "incident 1, m1: error, drain (act): xid 79: GPU has fallen off the bus",
        "incident 1, m1: error, drain (act), acknowledged: xid 79: GPU has fallen off the bus",
        "incident 1, m1: closed",
    ]
    names = [message.id for message in receiver.messages]
    assert names == [f"forewarn-1-69a42a40-{change}" for change in (1, 2, 3, 4)]


def test_incident_that_ends_within_group_wait_is_not_told(
    desk: Desk, receiver: MemoryReceiver
) -> None:
    desk.end(desk.open())
    desk.round(10)
    assert receiver.messages == []


def test_incident_is_told_from_its_first_change_of_min_severity(
    make_desk: Callable[..., Desk], receiver: MemoryReceiver
) -> None:
    desk = make_desk({"ops": receiver}, ops=table(min_severity="error"))
    number = desk.open(severity=Severity.WARNING)
    desk.round(5)
    assert receiver.messages == []
    for severity in (Severity.ERROR, Severity.NOTICE):
        desk.decide(number, severity)
        desk.round()
    desk.end(number)
    desk.round()
    assert receiver.changes == [(number, 2), (number, 3), (number, 4)]


def test_only_reaching_the_page_severity_wakes_someone(
    desk: Desk, receiver: MemoryReceiver
) -> None:
    number = desk.open(severity=Severity.CRITICAL)
    desk.round()  # a page does not wait
    for severity in (Severity.ERROR, Severity.CRITICAL):
        desk.decide(number, severity)
        desk.round()
    desk.end(number)
    desk.round()
    assert [message.page for message in receiver.messages] == [True, False, False, False]


def test_changes_above_hourly_limit_form_one_digest(desk: Desk, receiver: MemoryReceiver) -> None:
    numbers = [desk.open(f"m{row}") for row in range(50)]
    desk.open("lost", Severity.CRITICAL)
    desk.round(5)
    assert [m.page for m in receiver.messages].count(True) == 1
    assert [m.page for m in receiver.messages].count(False) == 20
    for number in numbers[20:25]:
        desk.decide(number, Severity.WARNING)
    desk.round()
    assert kinds(receiver) == [MessageKind.INCIDENT] * 21
    desk.round(15)
    digest = receiver.messages[-1].digest
    assert kinds(receiver)[21:] == [MessageKind.DIGEST]
    assert digest is not None
    assert digest.changes == 35
    assert digest.severities == {Severity.WARNING: 5, Severity.ERROR: 30}
    states = {summary.id: summary.change for summary in digest.incidents}
    assert len(states) == 20
    assert all(states[number] == 2 for number in numbers[20:25] if number in states)
    assert receiver.messages[-1].text().endswith("15 more changes: `forewarn incidents`")


def test_pages_are_never_digested(desk: Desk, receiver: MemoryReceiver) -> None:
    for row in range(60):
        desk.open(f"m{row}", Severity.CRITICAL)
    desk.round()
    assert [message.page for message in receiver.messages] == [True] * 60


def test_page_replaces_the_older_state_in_a_digest(desk: Desk, receiver: MemoryReceiver) -> None:
    numbers = [desk.open(f"m{row}") for row in range(21)]
    desk.round(5)
    desk.decide(numbers[-1], Severity.CRITICAL)
    desk.round()
    assert receiver.changes[-1] == (numbers[-1], 2)
    desk.round(20)
    digest = receiver.messages[-1].digest
    assert digest is not None
    assert (digest.changes, digest.incidents) == (1, ())


def test_predictions_are_one_digest_a_day_and_no_page(desk: Desk, receiver: MemoryReceiver) -> None:
    for row in range(3):
        desk.open(f"m{row}", Severity.CRITICAL, **PREDICTION)
    for _ in range(12):
        desk.round(60)
    for row in range(3, 5):
        desk.open(f"m{row}", **PREDICTION)
    for _ in range(48):
        desk.round(60)
    assert kinds(receiver) == [MessageKind.PREDICTIONS] * 2
    assert not any(message.page for message in receiver.messages)
    counts = [message.digest.changes for message in receiver.messages if message.digest]
    assert counts == [3, 2]


def test_confirmed_prediction_is_told_by_itself(desk: Desk, receiver: MemoryReceiver) -> None:
    number = desk.open(**PREDICTION)
    desk.round(30)
    desk.open(severity=Severity.CRITICAL)
    desk.round()
    assert receiver.changes == [(number, 2)]
    assert receiver.messages[-1].page


def test_pagerduty_gets_only_what_wakes_someone_and_no_digest(
    make_desk: Callable[..., Desk], receiver: MemoryReceiver
) -> None:
    desk = make_desk({"pd": receiver}, pd=table("pagerduty"))
    for row in range(30):
        desk.open(f"m{row}", Severity.CRITICAL)
        desk.open(f"n{row}", Severity.ERROR)
        desk.open(f"p{row}", Severity.CRITICAL, **PREDICTION)
    desk.round(5)
    for incident in desk.ledger.open_incidents():
        desk.end(incident.id)
    desk.round()
    assert kinds(receiver) == [MessageKind.INCIDENT] * 60
    assert all(m.incident and m.incident.machine.startswith("m") for m in receiver.messages)


def test_storm_of_findings_gives_bounded_messages(desk: Desk, receiver: MemoryReceiver) -> None:
    """Twenty messages and a digest, not a row or an object for each incident."""
    now, count = desk.clock.moment, 3_000
    desk.ledger.record_findings(
        [
            make_finding("s", f"m{row}", now, valid_until=now + DAY, severity=Severity.WARNING)
            for row in range(count)
        ],
        now=now,
    )
    desk.round(5)
    with desk.ledger.database.reading() as connection:
        rows = connection.scalar(select(func.count()).select_from(messages))
        longest = connection.scalar(select(func.max(func.length(messages.c.body))))
    assert rows == 21
    assert longest is not None
    assert longest < 16_384
    desk.round(16)
    assert len(receiver.messages) == 21
    digest = receiver.messages[-1].digest
    assert digest is not None
    assert digest.changes == count - 20


def test_alerts_above_hourly_limit_join_the_digest(desk: Desk, receiver: MemoryReceiver) -> None:
    for row in range(25):
        with desk.ledger.database.writing() as connection:
            desk.messages.add_alert(connection, f"alert {row}", desk.clock.moment)
    desk.round(20)
    assert kinds(receiver) == [MessageKind.ALERT] * 20 + [MessageKind.DIGEST]
    assert receiver.messages[-1].text().splitlines()[1:] == [f"alert {n}" for n in range(20, 25)]


def test_message_survives_json(desk: Desk, receiver: MemoryReceiver) -> None:
    desk.open("m1", Severity.CRITICAL)
    desk.round()
    (message,) = receiver.messages
    assert Message.model_validate_json(message.model_dump_json()) == message

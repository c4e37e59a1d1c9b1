"""Delivery: at least once and in order per incident, whatever fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipelines.incidents.messages.conftest import Desk, MemoryReceiver, table
from tests.pipelines.incidents.messages.receivers_for_tests import SetClock

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.incidents.messages.receiver import SendError
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import Severity

RULINGS = (Ruling.PROPOSE, Ruling.ACT)


def change(desk: Desk, number: int, times: int) -> None:
    """Change an incident; each change is written."""
    for row in range(times):
        desk.decide(number, Severity.ERROR, RULINGS[row % 2 == 0])
        desk.clock.advance(MINUTE)
        desk.write()


def test_receiver_that_was_down_gets_all_messages_in_order(
    desk: Desk, receiver: MemoryReceiver
) -> None:
    first, second = desk.open("m1"), desk.open("m2")
    receiver.error = SendError("HTTP 500")
    for _ in range(60):
        desk.round()
    assert receiver.messages == []
    assert receiver.attempts < 20  # back-off
    (state,) = desk.messages.outbox.states(desk.clock.moment)
    assert state.waiting == 2
    assert state.error == "HTTP 500"
    assert desk.messages.stuck(desk.clock.moment)["messages ops"]
    change(desk, first, 3)
    receiver.error = None
    desk.round(11)
    assert receiver.changes == [(first, 1), (second, 1), *((first, n) for n in range(2, 5))]
    assert desk.messages.stuck(desk.clock.moment) == {"messages ops": ""}
    (state,) = desk.messages.outbox.states(desk.clock.moment)
    assert (state.waiting, state.oldest, state.error) == (0, None, "")


def test_retry_after_is_respected(desk: Desk, receiver: MemoryReceiver) -> None:
    desk.open("m1", Severity.CRITICAL)
    receiver.error = SendError("HTTP 429", retry_after=1800.0)
    desk.round()
    for _ in range(29):
        desk.round()
    assert receiver.attempts == 1
    receiver.error = None
    desk.round()
    assert len(receiver.messages) == 1


def test_malformed_message_delays_only_its_incident_and_ends_after_a_day(
    desk: Desk, receiver: MemoryReceiver
) -> None:
    bad, good = desk.open("bad"), desk.open("good")
    send = receiver.send

    def refuse_bad(message: Message, now: Nanoseconds) -> None:
        if message.incident and message.incident.id == bad and message.incident.change == 1:
            raise SendError("HTTP 400", malformed=True)
        send(message, now)

    receiver.send = refuse_bad  # type: ignore[method-assign]
    desk.round(5)
    change(desk, bad, 1)
    desk.round()
    assert receiver.changes == [(good, 1)]
    for _ in range(50):
        desk.round(40)
    assert receiver.changes == [(good, 1), (bad, 2)]
    assert [n.detail for n in desk.ledger.notes() if n.act == "messages"] == [
        "forewarn-1-69a42a40-1 was refused for a day and is dropped: HTTP 400"
    ]


def test_two_senders_keep_the_order_of_an_incident(desk: Desk) -> None:
    number = desk.open()
    desk.clock.advance(HOUR)
    desk.write()
    change(desk, number, 2)
    now, outbox = desk.clock.moment, desk.messages.outbox
    first = outbox.claim("ops", now)
    assert first is not None
    assert outbox.claim("ops", now) is None  # the next one of the incident waits
    outbox.accepted("ops", first, now)
    second = outbox.claim("ops", now)
    assert second is not None
    assert second.row > first.row


def test_removed_receiver_waits_no_longer(
    make_desk: Callable[..., Desk], receiver: MemoryReceiver
) -> None:
    desk = make_desk({"old": receiver}, old=table())
    desk.open()
    desk.clock.advance(HOUR)
    desk.write()
    other = make_desk({"new": receiver}, new=table())
    other.clock.advance(HOUR)
    other.write()
    assert [state.name for state in other.messages.outbox.states(other.clock.moment)] == ["new"]
    assert other.ledger.notes()[0].detail == "receiver removed; 1 messages were not sent"


def test_sent_messages_are_forgotten_after_a_week(desk: Desk, receiver: MemoryReceiver) -> None:
    for row in range(10):
        desk.open(f"m{row}", Severity.CRITICAL)
        desk.round(24 * 60)
    with desk.ledger.database.reading() as connection:
        rows = connection.exec_driver_sql("SELECT count(*) FROM messages").scalar()
    assert rows == 8
    assert len(receiver.messages) == 10


CRASH = """
import os, signal, sys
from tests.pipelines.incidents.messages.conftest import Desk, MemoryReceiver, table
from tests.pipelines.incidents.messages.receivers_for_tests import SetClock
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.finding import Severity

class Killed(MemoryReceiver):
    def send(self, message, now):
        print(message.id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

desk = Desk(Ledger.open(sys.argv[1]), SetClock(), {"ops": Killed()}, {"ops": table()})
desk.open("m1", Severity.CRITICAL)
desk.write()
desk.deliver()
"""


def test_message_is_sent_again_after_its_sender_was_killed(
    url: str, receiver: MemoryReceiver
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", CRASH, url], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Ledger.open(url) as ledger:
        desk = Desk(ledger, SetClock(), {"ops": receiver}, {"ops": table()})
        desk.round(0)
        assert receiver.messages == []  # it may still be on its way
        desk.round(1)
        assert [message.id for message in receiver.messages] == [killed.stdout.strip()]


OUTAGE, MALFORMED = SendError("HTTP 503"), SendError("HTTP 422", malformed=True)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 3), st.sampled_from(Severity)),
        st.tuples(st.just("decide"), st.integers(0, 3), st.sampled_from(Severity)),
        st.tuples(st.just("end"), st.integers(0, 3), st.none()),
        st.tuples(st.just("write"), st.integers(1, 90), st.none()),
        st.tuples(st.just("claim and be killed"), st.just(0), st.none()),
        st.tuples(st.just("deliver"), st.sampled_from((None, OUTAGE, MALFORMED)), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=EVENTS)
def test_every_message_arrives_in_order(
    events: list[tuple[str, object, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever happens: each written message arrives, and of each incident in order."""
    path = tmp_path_factory.mktemp("outbox") / "ledger.db"
    with Ledger.open(f"sqlite:///{path}") as ledger:
        receiver = MemoryReceiver()
        desk = Desk(ledger, SetClock(), {"ops": receiver}, {"ops": table(min_severity="notice")})
        for event in events:
            _apply(desk, receiver, event)
        with ledger.database.reading() as connection:
            written = connection.exec_driver_sql("SELECT body FROM messages").scalars().all()
        receiver.error = None
        for _ in range(4):
            desk.clock.advance(HOUR)
            desk.deliver()
    assert {m.id for m in receiver.messages} == {Message.model_validate_json(b).id for b in written}
    changes = defaultdict[int, list[int]](list)
    for message in receiver.messages:
        listed = message.digest.incidents if message.digest else ()
        for summary in (*listed, *([message.incident] if message.incident else [])):
            changes[summary.id].append(summary.change)
    assert all(numbers == sorted(numbers) for numbers in changes.values())


def _apply(desk: Desk, receiver: MemoryReceiver, event: tuple[str, object, object]) -> None:
    name, value, severity = event
    is_known = isinstance(value, int) and desk.ledger.incidents(machine=f"m{value}")
    number = is_known[0].id if is_known else None
    if name == "open":
        assert isinstance(severity, Severity)
        desk.open(f"m{value}", severity)
    elif name == "decide" and number:
        assert isinstance(severity, Severity)
        desk.decide(number, severity)
    elif name == "end" and number:
        desk.end(number)
    elif name == "write":
        assert isinstance(value, int)
        desk.clock.advance(value * MINUTE)
        desk.write()
    elif name == "claim and be killed":
        desk.messages.outbox.claim("ops", desk.clock.moment)
    elif name == "deliver":
        assert value is None or isinstance(value, SendError)
        receiver.error = value
        desk.deliver()

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.incidents.conftest import make_decision, make_finding
from tests.pipelines.incidents.messages.receivers_for_tests import (
    HttpReceiver,
    SetClock,
    http_receiver,
)

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.config.message_tables import MessagesTable
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.incidents.messages.receiver import Receiver, SendError
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages, open_receivers
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.step import Step

KEY = base64.b64encode(b"k" * 32).decode()
ENVIRONMENT = {"HOOK_KEY": KEY}


@dataclass
class MemoryReceiver:
    """Keeps messages in memory; `error` is raised while it is set."""

    messages: list[Message] = field(default_factory=list)
    error: SendError | None = None
    attempts: int = 0

    def send(self, message: Message, now: Nanoseconds) -> None:
        del now
        self.attempts += 1
        if self.error is not None:
            raise self.error
        self.messages.append(message)

    def close(self) -> None:
        pass

    @property
    def changes(self) -> list[tuple[int, int]]:
        """Incident and number of the change of each message about one incident."""
        return [(m.incident.id, m.incident.change) for m in self.messages if m.incident]


@dataclass
class Desk:
    """A ledger with messages to receivers, without the loop."""

    ledger: Ledger
    clock: SetClock
    receivers: dict[str, Receiver]
    tables: dict[str, MessagesTable]
    messages: SiteMessages = field(init=False)

    def __post_init__(self) -> None:
        self.messages = SiteMessages(
            self.ledger, self.tables, self.receivers, Nanoseconds(2 * MINUTE), self.clock
        )

    def open(self, machine: str = "m1", severity: Severity = Severity.ERROR, **more: Any) -> int:
        """Record a finding and the decision about its incident; return the incident."""
        now = self.clock.moment
        values: dict[str, Any] = {"at": now, "valid_until": now + DAY, "severity": severity}
        finding = make_finding(key=f"{machine} {now}", machine=machine, **(values | more))
        self.ledger.record_findings([finding], now=now)
        number = self.ledger.incidents(machine=machine)[0].id
        self.decide(number, severity)
        return number

    def decide(
        self, number: int, severity: Severity, ruling: Ruling = Ruling.PROPOSE, **more: Any
    ) -> None:
        at = self.clock.moment
        values: dict[str, Any] = {
            "severity": severity,
            "ruling": ruling,
            "findings": (),
            "step": Step.DRAIN,
        }
        self.ledger.decide(make_decision(number, at, **(values | more)))

    def end(self, number: int) -> None:
        end = IncidentState.CLOSED
        self.ledger.end_incident(number, end, now=self.clock.moment, who="ann", why="over")

    def write(self) -> None:
        """Write messages about the state of the ledger, as at the end of a round."""
        decided = [(incident, incident.decision) for incident in self.ledger.open_incidents()]
        self.messages.write(decided, self.clock.moment)

    def deliver(self) -> None:
        for name in self.receivers:
            self.messages.deliver(name)

    def round(self, minutes: float = 1) -> None:
        """Advance the clock, write, and deliver."""
        self.clock.advance(round(minutes * MINUTE))
        self.write()
        self.deliver()


def table(kind: str = "webhook", **more: Any) -> MessagesTable:
    values = {"kind": kind, "url": "http://127.0.0.1:1"}
    if kind in ("webhook", "pagerduty"):
        values["secret_variable"] = "HOOK_KEY"
    return MessagesTable(**(values | more))


@pytest.fixture
def receiver() -> MemoryReceiver:
    return MemoryReceiver()


@pytest.fixture
def desk(ledger: Ledger, receiver: MemoryReceiver) -> Desk:
    return Desk(ledger, SetClock(), {"ops": receiver}, {"ops": table()})


@pytest.fixture
def make_desk(ledger: Ledger) -> Iterator[Callable[..., Desk]]:
    desks: list[Desk] = []

    def make(receivers: dict[str, Receiver], **tables: MessagesTable) -> Desk:
        desks.append(Desk(ledger, SetClock(), receivers, tables))
        return desks[-1]

    yield make
    for desk in desks:
        desk.messages.close()


@pytest.fixture
def server() -> Iterator[HttpReceiver]:
    with http_receiver() as server:
        yield server


@pytest.fixture
def http_desk(
    make_desk: Callable[..., Desk], tmp_path: Path, server: HttpReceiver
) -> Callable[..., Desk]:
    """Return a desk with one receiver that posts to the server."""

    def make(kind: str, **more: Any) -> Desk:
        tables = {"ops": table(kind, url="", url_variable="HOOK_URL", **more)}
        receivers = open_receivers(tables, tmp_path, ENVIRONMENT | {"HOOK_URL": server.url})
        return make_desk(receivers, **tables)

    return make

"""The messages of a site: `respond` with receivers, alerts of the loop, and slow receivers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipelines.incidents.conftest import make_finding
from tests.pipelines.incidents.messages.conftest import KEY, Desk, MemoryReceiver, table
from tests.pipelines.incidents.messages.receivers_for_tests import HttpReceiver

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.loop_alerts import LoopAlerts
from forewarn.pipelines.incidents.messages.http_receivers import AlertUrl
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.incidents.messages.receiver import SendError
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages
from forewarn.pipelines.runtime.http_post import HttpPoster
from forewarn.response.state.finding import Severity

CONFIG = """
[messages.ops]
kind = "webhook"
url = "{url}"
secret_variable = "HOOK_KEY"
page_severity = "warning"
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a ledger in SQLite: nothing here depends on the database."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_respond_sends_messages_after_the_round(
    server: HttpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("HOOK_KEY", KEY)
    monkeypatch.delenv("FOREWARN_ALERT_URL", raising=False)
    config = tmp_path / "my.toml"
    config.write_text(CONFIG.format(url=server.url))
    now = Nanoseconds(time.time_ns())
    with Ledger.open(url) as ledger:
        finding = make_finding(at=now, valid_until=now + DAY)
        ledger.record_findings([finding], now=now)
    assert main(["respond", "--once", "--config", str(config)]) == 0
    bodies = [json.loads(post.body) for post in server.accepted]
    assert [b["incident"]["machine"] for b in bodies if b["kind"] == "incident"] == ["m1"]
    count = len(bodies)
    assert main(["respond", "--once", "--config", str(config)]) == 0
    assert len(server.accepted) == count


def test_missing_secret_stops_respond_before_it_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    config = tmp_path / "my.toml"
    config.write_text(CONFIG.format(url="https://example.com"))
    assert main(["respond", "--once", "--config", str(config)]) == 2
    assert "the environment variable HOOK_KEY is not set" in capsys.readouterr().err


def test_alert_of_the_loop_reaches_receivers_and_alert_url_once(
    make_desk: Callable[..., Desk], receiver: MemoryReceiver, server: HttpReceiver
) -> None:
    url = AlertUrl(HttpPoster(server.url))
    desk = make_desk({"ops": receiver, "alert_url": url}, ops=table())
    alerts = LoopAlerts(desk.ledger, lambda *_: None, desk.messages)
    for text in ("bad clock", "bad clock", ""):
        alerts.raise_new({"clock": text}, desk.clock.moment)
    desk.open()
    desk.round(5)
    assert json.loads(server.accepted[0].body) == {"alert": "respond", "text": "bad clock"}
    assert len(server.accepted) == 1  # incidents do not go there
    assert receiver.messages[0].summary == "bad clock"
    assert len(receiver.messages) == 2


def test_slow_receiver_delays_no_other(make_desk: Callable[..., Desk]) -> None:
    answered, sent = threading.Event(), threading.Event()

    class Slow(MemoryReceiver):
        def send(self, message: Message, now: Nanoseconds) -> None:
            del message, now
            answered.wait()

    class Fast(MemoryReceiver):
        def send(self, message: Message, now: Nanoseconds) -> None:
            super().send(message, now)
            sent.set()

    fast = Fast()
    desk = make_desk({"slow": Slow(), "fast": fast}, slow=table(), fast=table())
    desk.open("m1", Severity.CRITICAL)
    desk.write()
    thread = threading.Thread(target=desk.messages.send_once)
    thread.start()
    assert sent.wait(60)
    assert thread.is_alive()
    answered.set()
    thread.join()
    assert len(fast.messages) == 1


def test_warning_does_not_need_the_ledger(
    make_desk: Callable[..., Desk], receiver: MemoryReceiver
) -> None:
    done = threading.Event()

    class Broken(MemoryReceiver):
        def send(self, message: Message, now: Nanoseconds) -> None:
            del message, now
            done.set()
            raise SendError("HTTP 500")

    desk = make_desk({"ops": receiver, "broken": Broken()}, ops=table(), broken=table())
    desk.ledger.close()
    desk.messages.warn("respond", "no successful poll")
    assert done.wait(60)
    while not receiver.messages:
        time.sleep(0.01)
    assert receiver.messages[0].summary == "no successful poll"


def test_ledger_that_does_not_answer_ends_no_thread(
    desk: Desk, receiver: MemoryReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.open("m1", Severity.CRITICAL)
    desk.write()
    deliver, calls = SiteMessages.deliver, list[str]()

    def failing(self: SiteMessages, name: str, until: Nanoseconds | None = None) -> None:
        calls.append(name)
        if len(calls) == 1:
            raise LedgerError("no answer")
        if len(calls) == 2:
            raise ZeroDivisionError
        deliver(self, name, until)

    monkeypatch.setattr(SiteMessages, "deliver", failing)
    for _ in range(3):
        desk.messages.send_once()
    assert len(receiver.messages) == 1

"""What the receivers send, and how their refusals are read."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from tests.pipelines.incidents.messages.conftest import ENVIRONMENT, KEY, Desk, table
from tests.pipelines.incidents.messages.receivers_for_tests import START, HttpReceiver

from forewarn.features.errors import InputError
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import SettingsError, parse_settings
from forewarn.pipelines.incidents.messages.http_receivers import parse_secret, sign
from forewarn.pipelines.incidents.messages.site_messages import open_receivers
from forewarn.response.state.finding import Severity


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a ledger in SQLite: nothing here depends on the database."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_webhook_is_signed_over_id_time_and_body(
    http_desk: Callable[..., Desk], server: HttpReceiver
) -> None:
    desk = http_desk("webhook")
    desk.open("node-1", Severity.CRITICAL)
    desk.round()
    (post,) = server.accepted
    name, seconds = post.headers["webhook-id"], post.headers["webhook-timestamp"]
    assert (name, seconds) == ("forewarn-1-69a42a40-1", str((START + MINUTE) // SECOND))
    key = parse_secret(KEY, "HOOK_KEY")
    assert post.headers["webhook-signature"] == sign(key, name, int(seconds), post.body)
    body = json.loads(post.body)
    assert (body["id"], body["kind"], body["page"]) == (name, "incident", True)
    assert body["incident"]["machine"] == "node-1"


def test_slack_text_cannot_mention_people(
    http_desk: Callable[..., Desk], server: HttpReceiver
) -> None:
    desk = http_desk("slack")
    number = desk.open()
    desk.decide(number, Severity.ERROR, reason="<!channel> a & b")
    desk.round(5)
    (post,) = server.accepted
    text = json.loads(post.body)["text"]
    assert text == "incident 1, m1: error, drain (propose): &lt;!channel&gt; a &amp; b"


def test_pagerduty_triggers_acknowledges_and_resolves(
    http_desk: Callable[..., Desk], server: HttpReceiver
) -> None:
    desk = http_desk("pagerduty")
    server.status = 202
    number = desk.open("node-1", Severity.CRITICAL)
    desk.round()
    desk.ledger.acknowledge(number, now=desk.clock.moment, who="ann")
    desk.round()
    desk.end(number)
    desk.round()
    events = [json.loads(post.body) for post in server.accepted]
    assert [e["event_action"] for e in events] == ["trigger", "acknowledge", "resolve"]
    assert {e["dedup_key"] for e in events} == {"forewarn-1-69a42a40"}
    assert {e["routing_key"] for e in events} == {KEY}
    assert events[0]["payload"]["severity"] == "critical"
    assert events[0]["payload"]["source"] == "node-1"


@pytest.mark.parametrize("status", [429, 500, 302])
def test_http_refusal_is_tried_again(
    status: int, http_desk: Callable[..., Desk], server: HttpReceiver
) -> None:
    """A redirect is a refusal: it could lead anywhere."""
    desk = http_desk("webhook")
    server.status, server.headers = status, {"Retry-After": "1200", "Location": server.url}
    desk.open("m1", Severity.CRITICAL)
    for _ in range(20):
        desk.round()
    assert server.attempts == 1
    server.status = 200
    desk.round(2)
    assert len(server.accepted) == 1
    assert server.attempts == 2


def test_long_answer_is_not_read(http_desk: Callable[..., Desk], server: HttpReceiver) -> None:
    desk = http_desk("webhook")
    server.answer = b"x" * 30_000_000
    desk.open("m1", Severity.CRITICAL)
    desk.round()
    assert len(server.accepted) == 1
    assert desk.messages.outbox.states(desk.clock.moment)[0].error == ""


# --- e-mail ---------------------------------------------------------------------------------------


@dataclass
class SmtpServer:
    """Enough of SMTP (RFC 5321) to take a message, or to refuse it."""

    port: int = 0
    data_code: int = 250
    mails: list[bytes] = field(default_factory=list)


@pytest.fixture
def smtp() -> Iterator[SmtpServer]:
    server, listener = SmtpServer(), socket.create_server(("127.0.0.1", 0))
    server.port = listener.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                _talk(server, stream)

    thread = threading.Thread(target=serve)
    thread.start()
    yield server
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def _talk(server: SmtpServer, stream: object) -> None:
    def say(text: str) -> None:
        stream.write(f"{text}\r\n".encode())  # type: ignore[attr-defined]
        stream.flush()  # type: ignore[attr-defined]

    say("220 test")
    for line in stream:  # type: ignore[attr-defined]
        verb = line[:4].upper()
        if verb == b"DATA":
            say("354 go on")
            lines = iter(stream.readline, b".\r\n")  # type: ignore[attr-defined]
            server.mails += [b"".join(lines)] if server.data_code == 250 else [b"".join(lines)][:0]
            say(f"{server.data_code} done")
        elif verb == b"QUIT":
            say("221 bye")
            return
        else:
            say("250 ok")


def mail_desk(make_desk: Callable[..., Desk], port: int, folder: Path) -> Desk:
    settings = {"sender": "forewarn@example.com", "recipients": ["ops@example.com"]}
    mail = table("email", url=f"smtp://127.0.0.1:{port}", **settings)
    return make_desk(open_receivers({"mail": mail}, folder, {}), mail=mail)


def test_mails_about_an_incident_form_a_thread(
    make_desk: Callable[..., Desk], smtp: SmtpServer, tmp_path: Path
) -> None:
    desk = mail_desk(make_desk, smtp.port, tmp_path)
    number = desk.open()
    desk.decide(number, Severity.ERROR, reason="a\r\nBcc: everyone@example.com")
    desk.round(5)
    desk.end(number)
    desk.round()
    first, second = (message_from_bytes(mail, policy=policy.default) for mail in smtp.mails)
    assert first["Subject"] == (
        "[forewarn] incident 1, m1: error, drain (propose): a Bcc: everyone@example.com"
    )
    assert first["Bcc"] is None
    assert first["References"] == second["References"] == "<forewarn-1-69a42a40@forewarn>"
    assert second["Message-ID"] == "<forewarn-1-69a42a40-2@forewarn>"
    assert "closed" in second.get_content()


def test_temporarily_refused_mail_is_sent_later(
    make_desk: Callable[..., Desk], smtp: SmtpServer, tmp_path: Path
) -> None:
    desk = mail_desk(make_desk, smtp.port, tmp_path)
    smtp.data_code = 451
    desk.open("m1", Severity.CRITICAL)
    desk.round()
    assert desk.messages.outbox.states(desk.clock.moment)[0].error == "SMTP 451"
    smtp.data_code = 250
    desk.round()
    assert len(smtp.mails) == 1


# --- configuration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receiver", "message"),
    [
        ({"kind": "webhook", "url": "https://a"}, "needs `secret_variable`"),
        ({"kind": "webhook", "secret_variable": "K"}, "needs `url` or `url_variable`"),
        ({"kind": "slack", "url": "https://a"}, "is a secret, expected `url_variable`"),
        ({"kind": "alertmanager", "url": "http://a:9093"}, "for this machine only"),
        ({"kind": "alertmanager", "url": "http://127.example.com"}, "for this machine only"),
        ({"kind": "alertmanager", "url": "https://u:p@a"}, "contains a user or password"),
        ({"kind": "alertmanager", "url": "file:///etc/passwd"}, "is not one of https://HOST"),
        ({"kind": "email", "url": "smtp://a"}, "expected `sender` and `recipients`"),
        ({"kind": "webhook", "url": "https://a", "secret_variable": "a b"}, "secret_variable"),
    ],
)
def test_invalid_receiver_is_one_line(receiver: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        parse_settings({"messages": {"ops": receiver}}, name="my.toml")
    assert "\n" not in str(error.value)


def test_reserved_receiver_name_is_refused() -> None:
    receiver = {"kind": "alertmanager", "url": "https://a"}
    with pytest.raises(SettingsError, match="not 'alert_url'"):
        parse_settings({"messages": {"alert_url": receiver}}, name="my.toml")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, r"messages\.ops\.secret_variable: the environment variable HOOK_KEY is not set"),
        ({"HOOK_KEY": "short"}, "HOOK_KEY: expected base64 of at least 24 bytes"),
    ],
)
def test_missing_secret_is_one_line(
    environment: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        open_receivers({"ops": table()}, tmp_path, environment)


def test_address_from_environment_is_checked_and_not_shown(tmp_path: Path) -> None:
    tables = {"ops": table("slack", url="", url_variable="HOOK_URL")}
    with pytest.raises(InputError, match=r"messages\.ops: ") as error:
        open_receivers(tables, tmp_path, {"HOOK_URL": "http://example.com/s3cret"})
    assert "s3cret" not in str(error.value)


def test_command_tests_a_receiver(
    server: HttpReceiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "my.toml"
    config.write_text(
        f'[messages.ops]\nkind = "webhook"\nurl = "{server.url}"\nsecret_variable = "HOOK_KEY"\n'
    )
    monkeypatch.setenv("HOOK_KEY", ENVIRONMENT["HOOK_KEY"])
    assert main(["messages", "test", "ops", "--config", str(config)]) == 0
    assert json.loads(server.accepted[0].body)["kind"] == "test"
    server.status, server.answer = 403, b"no such\nhook"
    assert main(["messages", "test", "ops", "--config", str(config)]) == 2
    assert "did not accept the message: HTTP 403 no such hook." in capsys.readouterr().err
    assert main(["messages", "test", "pager", "--config", str(config)]) == 2
    assert "expected one of: ops." in capsys.readouterr().err
    assert main(["messages", "list", "--config", str(config)]) == 0

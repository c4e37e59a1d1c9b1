"""Delivery of alerts, and secrecy of their address."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from forewarn.pipelines.runtime.alerts import alert


class Receiver(BaseHTTPRequestHandler):
    taken: list[dict[str, str]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.taken.append(json.loads(self.rfile.read(length)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook/s3cret"
    server.shutdown()
    thread.join()
    server.server_close()


def test_alert_address_is_not_logged(
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Applies even if a scheduler logs the messages of all libraries."""
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    monkeypatch.setenv("FOREWARN_ALERT_URL", address)
    alert("drift", "a moved", {"version": "1"})
    assert Receiver.taken == [{"alert": "drift", "text": "a moved", "version": "1"}]
    assert "s3cret" not in caplog.text + "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "address",
    ["http://[s3cret", "s3cret", "http://127.0.0.1:1/s3cret", "http://s3cret\udcff/", "http://"],
)
def test_undelivered_alert_is_noted(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.environ", {"FOREWARN_ALERT_URL": address})
    alert("drift", "a moved")
    said = capsys.readouterr().err
    assert said.startswith("note: alert (drift): a moved\nnote: the alert was not delivered: ")
    assert "s3cret" not in said

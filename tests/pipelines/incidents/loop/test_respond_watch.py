from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from tests.pipelines.incidents.api.api_client import make_api

from forewarn.features.time_units import DAY, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.ledger.database import LedgerError, MissingLedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop import respond_watch as module
from forewarn.pipelines.incidents.loop.respond_watch import ApiThread, watch_loop
from forewarn.pipelines.incidents.schedulers.driver import DriverTimeoutError
from forewarn.pipelines.serving.listener import Listener, ListenerError


@dataclass(slots=True)
class QuickClock:
    """Clock on which waiting takes no time."""

    at: int = 0

    def now(self) -> int:
        return self.at

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.at += int(seconds * SECOND)
        return until.is_set()


@dataclass(slots=True)
class Calls:
    """Loop whose calls have given outcomes and then end."""

    outcomes: list[Exception | None]
    ended: threading.Event = field(default_factory=threading.Event)
    alerts: list[str] = field(default_factory=list)

    def __call__(self) -> None:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.ended.set()
        if outcome is not None:
            raise outcome

    def run(self) -> None:
        watch_loop(
            self,
            every=MINUTE,
            longest=Nanoseconds(5 * MINUTE),
            clock=QuickClock(),
            ended=self.ended,
            warn=lambda _, text: self.alerts.append(text),
        )


@pytest.mark.parametrize(
    "error",
    [
        LedgerError("the ledger does not answer"),
        DriverTimeoutError("no answer in 15 s"),
        OSError(28, "No space left on device"),
    ],
)
def test_external_errors_are_noted_with_one_alert(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = Calls([None, *[error] * 10, None, *[error] * 3, None])
    calls.run()
    assert calls.outcomes == []
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 13
    assert all(line.startswith("note: poll failed, will retry: ") for line in lines)
    (text,) = calls.alerts  # three minutes are no outage
    assert text.startswith("no successful poll for more than 5")


def test_lost_ledger_raises_one_immediate_alert() -> None:
    calls = Calls([None, *[MissingLedgerError("it was removed")] * 10, None])
    calls.run()
    assert calls.alerts == ["it was removed"]


@pytest.mark.parametrize("error", [KeyError("cause"), ValueError("bug"), BrokenPipeError()])
def test_programming_errors_end_the_loop(error: Exception) -> None:
    with pytest.raises(type(error)):
        Calls([None, error, None]).run()


def test_loop_survives_temporarily_missing_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(f"sqlite:///{path}") as ledger:
        ledger.record_heartbeat("loop", Nanoseconds(1))
        ended, beats = threading.Event(), list[int]()

        def call() -> None:
            beats.append(len(beats))
            match len(beats):
                case 2:
                    ledger.close()
                    path.rename(tmp_path / "away")
                    path.write_text("no ledger" * 100)
                case 5:
                    ledger.close()
                    (tmp_path / "away").rename(path)
                    ended.set()
            ledger.record_heartbeat("loop", Nanoseconds(len(beats)))

        day = DAY
        watch_loop(call, every=MINUTE, longest=day, clock=QuickClock(), ended=ended)
        assert ledger.last_heartbeat("loop") == 5
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("ledger.db" in line for line in lines)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Callable[[], ApiContext]]:
    api = make_api(tmp_path)
    yield lambda: ApiContext(api.ledger, api.context.access, api.context.switch, dict)
    api.context.close()
    api.ledger.close()


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_ended_api_is_restarted_with_alert(
    context: Callable[[], ApiContext],
    free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, alerts = free_port(), list[str]()
    served = ApiThread(
        context, Listener("respond", "127.0.0.1", port), lambda _, text: alerts.append(text)
    )

    def broken(context: ApiContext, _: Listener, bound: socket.socket, app: FastAPI) -> None:
        del app
        bound.close()
        context.close()
        raise SystemExit(3)  # as Uvicorn does

    with monkeypatch.context() as patched:
        patched.setattr(module, "serve_api", broken)
        served.start()
        _wait_until(lambda: served._thread is not None and not served._thread.is_alive())
    assert "SystemExit" in capsys.readouterr().err
    served.restart_if_ended()
    assert alerts == ["the API ended (SystemExit: 3), restarting it"]
    _wait_until(lambda: _healthy(port))
    served.restart_if_ended()
    assert len(alerts) == 1


def test_address_in_use_is_reported_at_start(context: Callable[[], ApiContext]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listener = Listener("respond", "127.0.0.1", other.getsockname()[1])
        with pytest.raises(ListenerError, match="cannot listen"):
            ApiThread(context, listener).start()

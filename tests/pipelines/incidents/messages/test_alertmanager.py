"""Incidents in a real Alertmanager."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.pipelines.incidents.api.api_client import make_api
from tests.pipelines.incidents.messages.conftest import Desk, table

from forewarn.features.time_units import HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.loop.respond_watch import ApiThread
from forewarn.pipelines.incidents.messages.alertmanager_receiver import Alertmanager
from forewarn.pipelines.incidents.messages.site_messages import open_receivers
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.listener import Listener
from forewarn.response.state.finding import Finding, Severity

CONFIG = "route: {receiver: none}\nreceivers: [{name: none}]\n"
RECEIVER = """
route: {{receiver: forewarn, group_wait: 1s, group_interval: 1s}}
receivers:
  - name: forewarn
    webhook_configs:
      - url: http://127.0.0.1:{port}/v1/alertmanager
        http_config: {{authorization: {{credentials: report-token}}}}
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a ledger in SQLite: nothing here depends on the database."""
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def alertmanager(
    tmp_path: Path,
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
) -> Iterator[Callable[..., str]]:
    """Return a function that starts Alertmanager and returns its address."""
    program = require_program("prometheus-alertmanager", "prometheus-alertmanager")
    started: list[subprocess.Popen[bytes]] = []

    def start(config: str = CONFIG) -> str:
        (tmp_path / "am.yml").write_text(config)
        address = f"127.0.0.1:{free_port()}"
        options = [f"--web.listen-address={address}", "--cluster.listen-address="]
        files = [f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/am"]
        with (tmp_path / "am.log").open("wb") as log:
            server = subprocess.Popen([program, *options, *files], stdout=log, stderr=log)
        started.append(server)
        _wait_for(f"http://{address}/-/ready", server)
        return f"http://{address}"

    yield start
    for server in started:
        server.terminate()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            if httpx.get(url).is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise AssertionError("Alertmanager ended")


def alerts(address: str) -> dict[str, dict[str, Any]]:
    """Return the active alerts by machine."""
    answer = httpx.get(f"{address}/api/v2/alerts").raise_for_status().json()
    return {alert["labels"].get("machine", ""): alert for alert in answer}


def test_open_incidents_are_alerts_until_they_end(
    alertmanager: Callable[..., str], make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    address = alertmanager()
    tables = {"am": table("alertmanager", url=address)}
    desk = make_desk(open_receivers(tables, tmp_path, {}), **tables)
    desk.clock.moment = Nanoseconds(time.time_ns() - 10 * MINUTE)
    first = desk.open("node-1", Severity.CRITICAL)
    desk.open("node-2", Severity.ERROR)
    desk.open("node-3", Severity.NOTICE)
    desk.round(8)
    shown = alerts(address)
    assert shown.keys() == {"node-1", "node-2"}
    labels = {"alertname": "ForewarnIncident", "severity": "critical", "incident": str(first)}
    assert shown["node-1"]["labels"] == labels | {"machine": "node-1"}
    desk.end(first)
    desk.round()
    assert alerts(address).keys() == {"node-2"}


def test_alertmanager_that_was_down_gets_the_present_state(
    alertmanager: Callable[..., str], make_desk: Callable[..., Desk], tmp_path: Path
) -> None:
    tables = {"am": table("alertmanager", url="http://127.0.0.1:1")}
    desk = make_desk(open_receivers(tables, tmp_path, {}), **tables)
    desk.clock.moment = Nanoseconds(time.time_ns() - 30 * MINUTE)
    desk.end(desk.open("node-1", Severity.CRITICAL))
    desk.open("node-2", Severity.CRITICAL)
    desk.round(15)
    assert desk.messages.outbox.states(desk.clock.moment)[0].error == "ConnectError"
    address = alertmanager()
    receiver = open_receivers({"am": table("alertmanager", url=address)}, tmp_path, {})["am"]
    assert isinstance(receiver, Alertmanager)
    desk.messages.close()
    desk.messages.receivers = {"am": receiver}
    desk.round(14)
    assert alerts(address).keys() == {"node-2"}
    assert desk.messages.outbox.states(desk.clock.moment)[0].error == ""


def test_alerts_become_findings_until_they_are_resolved(
    alertmanager: Callable[..., str], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    api = make_api(tmp_path)
    api.clock.moment = Nanoseconds(time.time_ns())
    served = ApiThread(lambda: api.context, Listener("respond", "127.0.0.1", port, "", ""))
    served.start()
    address = alertmanager(RECEIVER.format(port=port))
    labels = {"alertname": "GpuLost", "instance": "node-1:9400", "severity": "critical"}
    firing = [{"labels": labels}, {"labels": labels | {"alertname": "ForewarnIncident"}}]
    httpx.post(f"{address}/api/v2/alerts", json=firing).raise_for_status()
    known = _until(lambda: [f for i in api.ledger.open_incidents() for f in i.findings])
    assert [(f.cause, f.machine, f.severity) for f in known] == [
        ("alert GpuLost", "node-1", Severity.WARNING)
    ]
    assert known[0].valid(api.clock.moment)
    ended = format_iso(time.time_ns() - MINUTE)
    over = [{"labels": labels, "startsAt": format_iso(time.time_ns() - HOUR), "endsAt": ended}]
    httpx.post(f"{address}/api/v2/alerts", json=over).raise_for_status()
    _until(
        lambda: [
            f
            for i in api.ledger.open_incidents()
            for f in i.findings
            if not f.valid(api.clock.moment)
        ]
    )


def _until(read: Callable[[], list[Finding]]) -> list[Finding]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if values := read():
            return values
        time.sleep(0.2)
    raise AssertionError("nothing arrived")

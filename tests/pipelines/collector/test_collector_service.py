"""The command `forewarn collect`, its watched files, and its landing."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.errors import InputError
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, build_table
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.collector import inbox
from forewarn.pipelines.collector.batch_intake import BatchIntake
from forewarn.pipelines.collector.collector_service import CollectorHealth
from forewarn.pipelines.collector.inbox import Inbox
from forewarn.pipelines.collector.publisher import Publisher, WatchedFile
from forewarn.pipelines.ingest.cmdb import read_cmdb
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.landing_counts import LandingCounts
from forewarn.pipelines.ingest.landing_folder import LandingFolder
from forewarn.pipelines.ingest.repair_tickets import read_tickets
from forewarn.pipelines.runtime.clock import SystemClock

START = 1_740_787_200 * SECOND  # 2025-03-01
SECONDS = count(1)
FOREWARN = [
    sys.executable,
    "-c",
    "from forewarn.pipelines.cli.main import main; raise SystemExit(main())",
]


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    cmdb, repairs = tmp_path / "cmdb.csv", tmp_path / "repairs.csv"
    cmdb.write_text("gpu_serial,rack\nS1,r1\n")
    repairs.write_text("gpu_serial,failed_at\n")
    landing = Landing(tmp_path / "records", 10 * MINUTE)
    inbox = Inbox(landing.folder / "_inbox")
    return Publisher(
        inbox, landing, WatchedFile(cmdb, read_cmdb), WatchedFile(repairs, read_tickets)
    )


def put(publisher: Publisher, minute: int, serial: str = "S1") -> None:
    row = {"timestamp": START + minute * MINUTE, "machine_id": "n", "gpu_serial": serial}
    publisher.inbox.put(build_table([row], READINGS), EVENTS.empty_table(), START)


def records(publisher: Publisher) -> list[dict[str, Any]]:
    files = sorted(publisher.landing.folder.glob("date=*/*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def replace(path: Path, text: str) -> None:
    """Rewrite a file with a new modification time, even within one tick of the file system."""
    path.write_text(text)
    moment = time.time_ns() + next(SECONDS) * SECOND
    os.utime(path, ns=(moment, moment))


def test_waiting_batches_land_and_are_cleared(publisher: Publisher) -> None:
    for minute in (10, 20, 30):
        put(publisher, minute)
    assert publisher.publish() == 3
    assert [row["rack"] for row in records(publisher)] == ["r1"] * 3
    assert publisher.publish() == 0
    assert not list(publisher.inbox.folder.iterdir())


def test_changed_cmdb_is_reloaded(publisher: Publisher, tmp_path: Path) -> None:
    put(publisher, 10)
    publisher.publish()
    replace(tmp_path / "cmdb.csv", "gpu_serial,rack\nS1,r2\n")
    put(publisher, 70)
    publisher.publish()
    assert [row["rack"] for row in records(publisher)] == ["r1", "r2"]


def test_broken_cmdb_keeps_last_valid_content(
    publisher: Publisher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.publish()
    replace(tmp_path / "cmdb.csv", "serial\n")
    for minute in (10, 20):
        put(publisher, minute)
        publisher.publish()
    assert [row["rack"] for row in records(publisher)] == ["r1", "r1"]
    assert caplog.text.count("using its last valid content") == 1
    (tmp_path / "cmdb.csv").unlink()
    put(publisher, 30)
    publisher.publish()
    assert records(publisher)[-1]["rack"] == "r1"


def test_later_tickets_become_failures(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish()
    replace(tmp_path / "repairs.csv", "gpu_serial,failed_at,cause\nS1,2025-03-01T00:30Z,fan\n")
    publisher.publish()
    table = pq.read_table(publisher.landing.folder / "failures.parquet")
    assert table["cause"].to_pylist() == ["fan"]


def test_unknown_serial_is_logged_once(
    publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    for minute in (10, 20):
        put(publisher, minute, "S9")
        publisher.publish()
    assert caplog.text.count("1 serials not in the CMDB: S9") == 1


def test_failed_landing_is_retried(
    publisher: Publisher, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk is not a broken file: nothing is quarantined."""
    put(publisher, 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LandingFolder, "write", full)
        publisher.stop.set()
        publisher.run(0.0)
    assert "landing failed, will retry" in caplog.text
    assert publisher.publish() == 1
    assert len(records(publisher)) == 1
    assert not set_aside(publisher)


# --- broken inputs do not block others ------------------------------------------------------------


def set_aside(publisher: Publisher) -> dict[str, str]:
    """Return the quarantined files with their reasons."""
    folder = publisher.landing.folder / "_quarantine"
    return {
        str(path.relative_to(folder)).removesuffix(".reason.txt"): path.read_text()
        for path in folder.rglob("*.reason.txt")
    }


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    spoiled = {
        "cut": data[:middle],
        "empty": b"",
        "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        "zeros": bytes(len(data)),
    }
    path.write_bytes(spoiled[how])


@pytest.mark.parametrize("how", ["cut", "empty", "flipped", "zeros"])
def test_broken_batch_does_not_block_others(publisher: Publisher, how: str) -> None:
    for minute in (10, 20, 30):
        put(publisher, minute)
    (path, *_) = publisher.inbox.files()
    spoil(path, how)
    assert publisher.publish() == 2
    assert len(records(publisher)) == 2
    (name,) = set_aside(publisher)
    assert name == f"_inbox/{path.name}"
    assert "digest" in set_aside(publisher)[name]
    assert not list(publisher.inbox.folder.iterdir())


@pytest.mark.parametrize("how", ["cut", "empty", "zeros"])
@pytest.mark.parametrize("name", ["places", "boots", "evidence"])
def test_broken_state_is_rebuilt(publisher: Publisher, name: str, how: str) -> None:
    row = {"timestamp": START + 10 * MINUTE, "machine_id": "n", "gpu_serial": "S1"}
    row |= {"pci": "0000:01:00", "boot_time": START}
    fell = {"timestamp": START + 5 * MINUTE, "machine_id": "n", "kind": "xid", "code": 79}
    fell |= {"pci": "0000:01:00", "id": "fell"}
    publisher.inbox.put(build_table([row], READINGS), build_table([fell], EVENTS), START)
    publisher.publish()
    folder = publisher.landing.folder
    state = folder / "_state" / f"{name}.parquet"
    before = pq.read_table(state), pq.read_table(folder / "failures.parquet")
    assert len(before[0]) == len(before[1]) == 1
    spoil(state, how)
    put(publisher, 70, "S2")
    publisher.publish()
    assert (folder / "_quarantine" / "_state" / f"{name}.parquet").exists()
    assert f"_state/{name}.parquet" in set_aside(publisher)
    kept = pq.read_table(state)
    assert before[0].to_pylist() == [r for r in kept.to_pylist() if r["gpu_serial"] == "S1"]
    assert pq.read_table(folder / "failures.parquet") == before[1]


def test_broken_tickets_are_read_again(publisher: Publisher, tmp_path: Path) -> None:
    replace(tmp_path / "repairs.csv", "gpu_serial,failed_at,cause\nS1,2025-03-01T00:30Z,fan\n")
    publisher.publish()
    spoil(publisher.landing.folder / "_state" / "tickets.parquet", "cut")
    put(publisher, 10)
    publisher.publish()
    publisher.publish()
    table = pq.read_table(publisher.landing.folder / "failures.parquet")
    assert table["cause"].to_pylist() == ["fan"]


@pytest.mark.parametrize("how", ["cut", "zeros"])
def test_broken_readings_hour_loses_no_record(publisher: Publisher, how: str) -> None:
    put(publisher, 10)
    publisher.publish()
    (hour,) = publisher.landing.folder.glob("_readings/*/*.parquet")
    spoil(hour, how)
    put(publisher, 20)
    publisher.publish()
    put(publisher, 30)
    publisher.publish()
    minutes = [(row["timestamp"].value - START) // MINUTE for row in records(publisher)]
    assert sorted(minutes) == [10, 20, 30]
    assert list(set_aside(publisher)) == ["_readings/date=2025-03-01/00.parquet"]


def test_broken_events_hour_loses_no_xid(publisher: Publisher) -> None:
    row = {"timestamp": START + 10 * MINUTE, "machine_id": "n", "gpu_serial": "S1"}
    fell = {"timestamp": START + 5 * MINUTE, "kind": "xid", "code": 79, "gpu_serial": "S1"}
    events = build_table([fell | {"id": "fell"}], EVENTS)
    publisher.inbox.put(build_table([row | {"log_read": True}], READINGS), events, START)
    publisher.publish()
    (hour,) = publisher.landing.folder.glob("_events/*/*.parquet")
    spoil(hour, "cut")
    put(publisher, 20)
    publisher.publish()
    assert [row["xid"] for row in records(publisher)] == [79, None]
    assert pq.read_table(hour)["code"].to_pylist() == [79]


def test_unlandable_batch_is_quarantined(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    land = Landing.land

    def picky(self: Landing, readings: pa.Table, *rest: pa.Table) -> LandingCounts:
        if "poison" in readings["gpu_serial"].to_pylist():
            raise OverflowError("a number too large")
        return land(self, readings, *rest)

    monkeypatch.setattr(Landing, "land", picky)
    for minute, serial in ((10, "S1"), (20, "poison"), (30, "S1")):
        put(publisher, minute, serial)
    publisher.publish()
    assert len(records(publisher)) == 2
    (reason,) = set_aside(publisher).values()
    assert reason == "OverflowError: a number too large\n"


def test_general_failure_quarantines_nothing(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Landing, "land", broken)
    put(publisher, 10)
    with pytest.raises(ValueError, match="ours"):
        publisher.publish()
    assert len(publisher.inbox.files()) == 1
    assert not set_aside(publisher)


@pytest.mark.parametrize(
    "text",
    [
        "gpu_serial,slot\nS1,99999999999\n",
        "gpu_serial,rack,rack\nS1,r1,r2\n",
        "gpu_serial,gpu_serial\nS1,S1\n",
        "",
    ],
)
def test_unusable_cmdb_does_not_stop_landing(
    publisher: Publisher, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    publisher.publish()
    replace(tmp_path / "cmdb.csv", text)
    with pytest.raises(InputError, match=r"cmdb\.csv"):
        read_cmdb(tmp_path / "cmdb.csv")
    put(publisher, 10)
    publisher.publish()
    assert [row["rack"] for row in records(publisher)] == ["r1"]
    assert "using its last valid content" in caplog.text


def test_future_rows_are_not_landed(publisher: Publisher) -> None:
    """A dropped file dated 2035 made every day from now on complete."""
    ahead = {"timestamp": time.time_ns() + 10 * MINUTE, "machine_id": "n", "gpu_serial": "S1"}
    landed = publisher.landing.land(build_table([ahead], READINGS), EVENTS.empty_table())
    assert (landed.readings, landed.ahead) == (0, 1)
    assert not records(publisher)


def test_health_reports_problems(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    intake = BatchIntake(publisher.inbox, SystemClock(), publisher.inbox)
    health = CollectorHealth(publisher, intake, patience=60.0)
    assert health.trouble() == "the batch intake has stopped"
    intake.start()
    try:
        assert health.trouble() is None
        put(publisher, 10)  # received on 2025-03-01
        assert "a batch has waited for" in str(health.trouble())
        publisher.publish()
        assert health.trouble() is None
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 61)
        assert "nothing has landed for" in str(health.trouble())
        publisher.publish()
        assert health.trouble() is None
    finally:
        intake.stop()


def test_landing_size_is_bounded(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    for minute in (10, 20, 30):
        put(publisher, minute)
    monkeypatch.setattr(inbox, "_MAX_READ_BYTES", publisher.inbox.files()[0].stat().st_size * 2)
    assert (publisher.publish(), publisher.more) == (2, True)
    assert (publisher.publish(), publisher.more) == (1, False)


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "options", "said"),
    [
        ("", [], "FOREWARN_TOKENS is not set"),
        ("secret", [], "expected SITE=TOKEN"),
        ("a=secret", ["--cmdb", "no.csv"], "no such file"),
        ("a=secret", ["--repairs", "no.csv"], "no such file"),
        ("a=secret", ["--config", "half.toml"], "belong together"),
        ("a=secret", ["--config", "no_key.toml"], "certificate"),
        ("a=secret", ["--port", "{taken}"], "cannot listen"),
    ],
)
def test_startup_error_is_last_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tokens: str,
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREWARN_TOKENS", tokens)
    Path("half.toml").write_text('[collector]\ncertificate = "a.pem"\n')
    Path("no_key.toml").write_text('[collector]\ncertificate = "a.pem"\nkey = "b.pem"\n')
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = [text.format(taken=server.getsockname()[1]) for text in options]
        assert main(["collect", "--out", "records", *given]) == 2
    assert said in capfd.readouterr().err.splitlines()[-1]
    assert not Path("records").exists()


@pytest.fixture
def certificate(tmp_path: Path, require_program: Callable[[str, str], Path]) -> tuple[Path, Path]:
    """Return a certificate for the loopback address of this machine, and its key."""
    made, key = tmp_path / "collector.pem", tmp_path / "collector.key"
    command = [str(require_program("openssl", "openssl")), "req", "-x509", "-newkey", "rsa:2048"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=collector"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", str(key)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


@pytest.fixture
def collector(tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[str]:
    """Start a collector with TLS and return its address."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[collector]\ncertificate = "{certificate[0]}"\nkey = "{certificate[1]}"\n'
        'port = 0\npublish_every = "50ms"\n'
    )
    command = [*FOREWARN, "collect", "--out", str(tmp_path / "records"), "--config", str(config)]
    environment = os.environ | {"FOREWARN_TOKENS": "site=secret"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "listening on https://127.0.0.1:" in line
            yield line.split()[-1]
        finally:
            process.terminate()


def test_agents_verify_tls_certificate(
    tmp_path: Path, certificate: tuple[Path, Path], collector: str
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'index, serial, temperature.gpu'; echo '0, S0, 40'\n")
    smi.chmod(0o755)
    (tmp_path / "kern.log").touch()

    def once(token: str, *lines: str) -> str:
        policy = tmp_path / "agent.toml"
        policy.write_text(
            f'collector = "{collector}"\nmachine_id = "node-1"\ngpu = "nvidia-smi"\n'
            f'state = "{tmp_path}/state"\nkernel_log = "{tmp_path}/kern.log"\n' + "\n".join(lines)
        )
        environment = {"FOREWARN_TOKEN": token, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [*FOREWARN, "agent", "--policy", str(policy), "--once"]
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, check=True
        )
        return done.stderr

    assert "CERTIFICATE_VERIFY_FAILED" in once("secret")
    trusted = f'ca = "{certificate[0]}"'
    assert "status 403" in once("wrong", trusted)
    assert once("secret", trusted) == ""
    # All three readings were kept until a collector accepted them.
    for _ in range(1200):
        found = [
            row["gpu_serial"]
            for file in tmp_path.glob("records/_readings/*/*.parquet")
            # The collector may replace the file between two openings of `read_table`.
            for row in pq.read_table(pa.BufferReader(file.read_bytes())).to_pylist()
        ]
        if len(found) == 3:
            break
        time.sleep(0.05)
    assert found == ["S0"] * 3

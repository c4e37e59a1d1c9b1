"""Kernel logs as JSON of log collectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files

SECOND = 10**9
TIME = 1_740_787_205  # 2025-03-01T00:00:05Z
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus."
ISO = "2025-03-01T00:00:05.000000Z"


def lines(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def loki(labels: dict[str, str], line: str) -> str:
    stream = {"stream": labels, "values": [[str(TIME * SECOND), line, {"a": "b"}]]}
    data = {"resultType": "streams", "result": [stream], "stats": {}}
    return json.dumps({"status": "success", "data": data})


FORMS: dict[str, Callable[[str, str], str]] = {
    "Fluent Bit, kmsg": lambda host, text: lines(
        {"date": float(TIME), "priority": 3, "sequence": 9, "sec": 5, "usec": 7, "msg": text}
        | {"hostname": host}
    ),
    "Fluent Bit, systemd": lambda host, text: lines(
        {"date": ISO, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": text}
        | {"_HOSTNAME": host, "PRIORITY": "3"}
    ),
    "Fluent Bit, arrays": lambda host, text: json.dumps(
        [{"date": TIME, "transport": "kernel", "message": text, "hostname": host}]
    ),
    "Fluentd, stdout": lambda host, text: (
        "2025-02-28 19:00:05.000000000 -0500 system.kern.err: "
        + lines({"host": host, "ident": "kernel", "message": f"[ 5.000001] {text}"})
    ),
    "Fluentd, file": lambda host, text: (
        "2025-03-01T00:00:05+00:00\tsystem.kern.err\t"
        + lines({"host": host, "ident": "kernel", "message": text})
    ),
    "Fluent Bit, syslog": lambda host, text: lines(
        {
            "date": TIME,
            "pri": "3",
            "host": host,
            "ident": "kernel",
            "message": f"[ 5.000001] {text}",
        }
    ),
    "Vector, journald": lambda host, text: lines(
        {"PRIORITY": "3", "SYSLOG_FACILITY": "0", "_TRANSPORT": "kernel", "host": host}
        | {"__REALTIME_TIMESTAMP": str(TIME * 10**6), "message": text, "timestamp": ISO}
    ),
    "Vector, syslog": lambda host, text: lines(
        {"appname": "kernel", "facility": "kern", "hostname": host, "message": text}
        | {"source_type": "syslog", "timestamp": ISO}
    ),
    "Vector, file": lambda host, text: lines(
        {"file": "/var/log/kern.log", "host": host, "source_type": "file", "timestamp": ISO}
        | {"message": f"Mar  1 00:00:05 {host} kernel: [    5.000000] {text}"}
    ),
    "Loki, labels": lambda host, text: loki({"transport": "kernel", "hostname": host}, text),
    "Loki, unit": lambda host, text: loki({"unit": "kernel", "node": host}, text),
    "Loki, journal as JSON": lambda host, text: loki(
        {"job": "systemd-journal"},
        json.dumps({"MESSAGE": text, "_TRANSPORT": "kernel", "_HOSTNAME": host}),
    ),
    "logcli": lambda host, text: lines(
        {"labels": {"syslog_identifier": "kernel", "instance": f"{host}:9080"}}
        | {"line": text, "timestamp": "2025-03-01T01:00:05+01:00"}
    ),
}


def read(*files: tuple[str, str], host: str | None = None) -> HostFileRows:
    return read_host_files(host, [HostFileText(name, text, None) for name, text in files])


@pytest.mark.parametrize("form", FORMS)
def test_collectors_json_gives_events(form: str) -> None:
    rows = read(("export.json", FORMS[form]("gpu-7", XID)))
    (event,) = rows.events
    assert (event["kind"], event["code"], event["machine_id"]) == ("xid", 79, "gpu-7")
    assert event["timestamp"] == TIME * SECOND
    assert not rows.unread


@pytest.mark.parametrize("form", FORMS)
def test_file_of_a_fleet_names_machines(form: str) -> None:
    texts = [FORMS[form](f"gpu-{number}", XID) for number in (7, 8)]
    if form.startswith("Loki"):
        first, second = (json.loads(text) for text in texts)
        first["data"]["result"] += second["data"]["result"]
        texts = [json.dumps(first)]
    rows = read(("site/export.json", "\n".join(texts)), host="site")
    assert [event["machine_id"] for event in rows.events] == ["gpu-7", "gpu-8"]


def test_folder_names_a_single_machine() -> None:
    text = FORMS["Vector, journald"]("ip-10-0-0-1", XID)
    (event,) = read(("gpu-7/export.json", text), host="gpu-7").events
    assert event["machine_id"] == "gpu-7"


@pytest.mark.parametrize(
    "fields",
    [
        {"_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "kernel"},
        {"appname": "gpud", "facility": "daemon"},
        {"facility": "kern", "appname": "gpud"},
        {"kubernetes": {"pod_name": "dmesg"}, "ident": "kernel"},
        {"stream": "stdout"},
        {"transport": "kernel", "systemd_unit": "gpud.service"},
        {"pri": "13", "ident": "kernel"},
        {},
    ],
)
def test_programs_lines_are_no_events(fields: dict[str, Any]) -> None:
    text = lines({"timestamp": ISO, "host": "gpu-7", "message": XID} | fields)
    rows = read(("export.json", text))
    assert not rows.events
    assert rows.unread


def test_selection_does_not_prove_health() -> None:
    smi = "timestamp, serial, temperature.gpu\n2025/03/01 00:00:05.000, 1234567890123, 40\n"
    log = FORMS["Loki, labels"]("gpu-7", "eth0: up")
    rows = read(("gpu-7/loki.json", log), ("gpu-7/smi.csv", smi), host="gpu-7")
    assert [row["log_read"] for row in rows.readings] == [False]


def test_line_that_is_cut_is_counted() -> None:
    text = FORMS["Fluent Bit, kmsg"]("gpu-7", XID)
    rows = read(("export.json", text + text[:40]))
    assert rows.unread.counts == {"a line that is not JSON": 1}
    assert len(rows.events) == 1


@given(st.sampled_from(["Vector, journald", "Fluent Bit, systemd"]), st.integers(1, 4))
def test_entries_that_jq_indented_are_read(form: str, number: int) -> None:
    texts = [f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=7, text" for code in range(number)]
    entries = [json.loads(FORMS[form]("gpu-7", text)) for text in texts]
    indented = "\n".join(json.dumps(entry, indent=2) for entry in entries)
    rows = read(("journal.json", indented))
    assert [row["code"] for row in rows.events] == [*range(number)]
    assert {row["machine_id"] for row in rows.events} == {"gpu-7"}
    assert not rows.unread

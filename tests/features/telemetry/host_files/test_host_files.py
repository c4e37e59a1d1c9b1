from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_forms import detect_form
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.time_units import HOUR, MINUTE, SECOND

TIME = 1_740_787_200 * SECOND  # 2025-03-01
CSV = (
    "timestamp, serial, pci.bus_id, temperature.gpu\n"
    "2025/03/01 00:10:00.250, S1, 00000000:3B:00.0, 41\n"
)
UNTIMED = "serial, temperature.gpu\nS1, 41\n"
XML = (
    "<?xml version='1.0' ?>\n<nvidia_smi_log><timestamp>Sat Mar  1 00:10:00 2025</timestamp>"
    "<gpu id='00000000:3B:00.0'><serial>S1</serial><temperature><gpu_temp>41 C</gpu_temp>"
    "</temperature></gpu></nvidia_smi_log>\n"
)
LOG = (
    "[Sat Mar  1 00:00:00 2025] eth0: up\n"
    "[Sat Mar  1 00:05:00 2025] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, text\n"
)
METRICS = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",Hostname="node-9"} 41\n'


def kind_of(text: str) -> str | None:
    form = detect_form(text)
    return form and form.kind


def file(text: str, name: str = "drop", time: int | None = None) -> HostFileText:
    return HostFileText(name, text, time)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CSV, "csv"),
        (f"Sat Mar 1\n{CSV}", "csv"),
        ("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n", "csv"),
        (XML, "xml"),
        (LOG, "kernel_log"),
        ("6,12,5000000,-;eth0: up\n", "kernel_log"),
        ("Mar  1 00:05:00 node kernel: eth0: up\n", "kernel_log"),
        (METRICS, "metrics"),
        (f"# HELP DCGM_FI_DEV_GPU_TEMP t\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n{METRICS}", "metrics"),
        ("cpu  1 2 3\nbtime 1740787200\n", "stat"),
        ('{"readings": []}', "batch"),
        ("", None),
        ("hello\n", None),
        ("a,b\n1,2\n", None),
        ("gpu_uuid, pid, process_name, used_gpu_memory [MiB]\nGPU-1, 7, python, 9 MiB\n", None),
    ],
)
def test_the_kind_of_a_text(text: str, kind: str | None) -> None:
    assert kind_of(text) == kind


def test_time_of_content_precedes_file_name() -> None:
    for text in (CSV, XML):
        (row,) = read_host_files("node-1", [file(text, time=5)]).readings
        assert row["timestamp"] // SECOND == TIME // SECOND + 600
        assert (row["machine_id"], row["gpu_serial"], row["pci"]) == ("node-1", "S1", "0000:3b:00")
    (row,) = read_host_files("node-1", [file(UNTIMED, time=TIME)]).readings
    assert row["timestamp"] == TIME
    found = read_host_files("node-1", [file(UNTIMED)])
    assert found.readings == []
    assert found.unread.counts == {"a reading without a time, in the content or the file name": 1}


def test_clocks_without_a_zone_are_shifted() -> None:
    found = read_host_files("node-1", [file(CSV), file(LOG)], offset=HOUR)
    assert found.readings[0]["timestamp"] // SECOND == TIME // SECOND + 600 - 3600
    assert found.events[0]["timestamp"] == TIME + 5 * MINUTE - HOUR


def test_log_span_shows_absence_of_xids() -> None:
    later = CSV.replace("00:10", "00:40")
    found = read_host_files("node-1", [file(CSV), file(later), file(LOG, time=TIME + 20 * MINUTE)])
    assert [row["log_read"] for row in found.readings] == [True, False]


def test_event_is_known_when_log_was_taken() -> None:
    (event,) = read_host_files("node-1", [file(LOG, time=TIME + 20 * MINUTE)]).events
    assert (event["timestamp"], event["known_at"]) == (TIME + 5 * MINUTE, TIME + 20 * MINUTE)
    assert (event["code"], event["pid"], event["pci"]) == (79, 1, "0000:3b:00")
    (event,) = read_host_files("node-1", [file(LOG)]).events
    assert event["known_at"] == event["timestamp"]


def test_log_copies_give_same_event_ids() -> None:
    line = LOG.splitlines(keepends=True)[1]
    found = read_host_files("node-1", [file(LOG + line), file(LOG + line + line)])
    names = [event["id"] for event in found.events]
    assert (len(names), len(set(names))) == (5, 3)
    assert (
        len({e["id"] for host in ("a", "b") for e in read_host_files(host, [file(LOG)]).events})
        == 2
    )


def test_boot_log_needs_boot_time() -> None:
    log = "[  300.000000] NVRM: Xid (PCI:0000:3b:00): 79, text\n"
    found = read_host_files("node-1", [file(log)])
    assert found.events == []
    assert found.unread
    stat = file(f"cpu 1\nbtime {TIME // SECOND}\n")
    (event,) = read_host_files("node-1", [file(log), stat]).events
    assert event["timestamp"] == TIME + 5 * MINUTE


def test_log_year_comes_from_file_time() -> None:
    log = "Dec 31 23:59:00 n kernel: NVRM: Xid (PCI:0000:3b:00): 79, text\n"
    (event,) = read_host_files("node-1", [file(log, time=TIME)]).events
    assert event["timestamp"] == 1_735_689_540 * SECOND  # 2024-12-31 23:59
    assert read_host_files("node-1", [file(log)]).events == []


def test_lost_gpu_of_nvidia_smi_is_event() -> None:
    text = f"Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n{UNTIMED}"
    found = read_host_files("node-1", [file(text, time=TIME)])
    assert [(e["kind"], e["pci"]) for e in found.events] == [("lost", "0000:3b:00")]
    assert len(found.readings) == 1


def test_concatenated_documents_and_repeated_headers() -> None:
    assert len(read_host_files("n", [file(XML + XML)]).readings) == 2
    found = read_host_files("n", [file(CSV + CSV)])
    assert (len(found.readings), bool(found.unread)) == (2, False)


def test_metrics_name_their_host() -> None:
    (row,) = read_host_files(None, [file(METRICS, time=TIME)]).readings
    assert (row["machine_id"], row["gpu_uuid"]) == ("node-9", "GPU-1")
    hostile = METRICS.replace("node-9", "../etc")
    (row,) = read_host_files(None, [file(hostile, time=TIME)]).readings
    assert "machine_id" not in row


def test_batches_of_an_agent() -> None:
    batch = json.dumps({"readings": [{"timestamp": TIME, "gpu_serial": "S1"}]})
    assert len(read_host_files("n", [file(batch)]).readings) == 1
    assert len(read_host_files("n", [file(f"{batch}\n{batch}\n")]).readings) == 2
    for broken in ('{"readings": [1]}', "{", '{"a": 1}', '{"readings": [{"timestamp": "x"}]}'):
        found = read_host_files("n", [file(broken)])
        assert (found.readings, bool(found.unread)) == ([], True)


def test_board_lines_of_driver_give_places(shared_data: Path) -> None:
    path = shared_data / "kernel_logs" / "accelerator_nvidia_xid__dmesg-with-xid-119.log"
    found = read_host_files("node-1", [file(path.read_text())])
    serials = {place["pci"]: place["gpu_serial"] for place in found.boards}
    assert serials["0000:9b:00"] == "1650124014249"
    assert {event["code"] for event in found.events} == {119}


def test_real_captures_are_read(shared_data: Path) -> None:
    for path in sorted((shared_data / "nvidia_smi_xml").glob("*.xml")):
        found = read_host_files("node-1", [file(path.read_text(), time=TIME)])
        assert found.files == {"xml": 1}, path.name
        assert found.readings, path.name
        assert not found.unread, path.name
    for path in sorted((shared_data / "kernel_logs").glob("*.log")):
        assert kind_of(path.read_text()) == "kernel_log", path.name


@given(st.lists(st.text(max_size=200), max_size=3), st.none() | st.integers(0, 2**62))
def test_any_text_is_read_or_counted_unread(texts: list[str], time: int | None) -> None:
    read_host_files("node-1", [file(text, time=time) for text in texts])


@given(
    st.sampled_from([CSV, XML, LOG, METRICS, UNTIMED, '{"readings": [{"timestamp": 1}]}']),
    st.integers(0, 300),
    st.text(max_size=20),
)
def test_damaged_files_are_read_or_unread(text: str, place: int, damage: str) -> None:
    read_host_files(
        "node-1", [file(text[:place] + damage + text[place + len(damage) :], time=TIME)]
    )


@pytest.mark.parametrize(
    "text",
    [
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.1\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "No devices were found\n",
    ],
)
def test_failed_nvidia_smi_reports_no_lost_gpu(text: str) -> None:
    found = read_host_files("node-1", [file(CSV, "before"), file(text, "error", TIME)])
    assert [(event["kind"], event.get("pci")) for event in found.events] == [("blind", None)]
    assert len(found.readings) == 1
    assert list(found.unread.counts) == ["a file in which nvidia-smi could read no GPU"]


@pytest.mark.parametrize("text", ["", "\0\377\n", "Segmentation fault\n", "Killed\n"])
def test_other_text_gives_no_event(text: str) -> None:
    found = read_host_files("node-1", [file(text, "error", TIME)])
    assert (found.events, list(found.unread.counts)) == ([], ["a file of unknown kind"])


def test_lost_gpu_without_address_is_noted() -> None:
    row = "3, [Unknown Error], [Unknown Error], [N/A], [Unknown Error]"
    text = f"index, serial, uuid, pci.bus_id, temperature.gpu\n{row}\n"
    dropped = read_host_files("node-1", [HostFileText("smi.csv", text, 10**18)])
    assert (dropped.events, dropped.readings) == ([], [])
    assert dropped.unread.counts == {"a lost GPU without an address": 1}


HANDLE = "Unable to determine the device handle for GPU 00000000:3B:00.0: Unknown Error\n"
OTHER = CSV.replace("S1", "S2").replace("3B:", "5E:")


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (HANDLE + CSV, False),  # the table of the same output measures it
        (HANDLE + OTHER, True),
        (CSV + HANDLE, True),  # appended to one file: the GPU was present before
        (CSV + HANDLE + OTHER, True),
        (HANDLE + XML, False),
        (HANDLE + XML.replace("3B:", "5E:"), True),
    ],
)
def test_lost_gpu_has_no_later_readings(text: str, lost: bool) -> None:
    events = read_host_files("node-1", [file(text, time=TIME)]).events
    assert [(event["kind"], event["pci"]) for event in events] == [("lost", "0000:3b:00")] * lost


@pytest.mark.parametrize("count", [10**9 + 1, 2**63, 10**30, -5])
def test_a_count_of_any_size_is_clamped(count: int) -> None:
    row = {"timestamp": TIME, "id": "1", "kind": "xid", "count": count}
    (event,) = read_host_files("node-1", [file(json.dumps({"events": [row]}))]).events
    assert event["count"] == min(max(count, 0), 10**9)


@given(st.integers(1, 2000), st.integers(0, 10**9 - 1))
def test_a_repetition_is_unwrapped_once(depth: int, count: int) -> None:
    begun = f"message repeated {count} times: [ " * depth
    line = f"2025-03-01T00:00:00+00:00 node-1 kernel: {begun}{LOG.split('] ')[-1].strip()}"
    dropped = read_host_files("node-1", [file(line + "]" * depth)])
    assert [event["count"] for event in dropped.events] == [count] * (depth == 1)
    assert bool(dropped.unread) == (depth > 1)


def test_checks_name_gpus_by_index_or_keep_it() -> None:
    diagnostic = json.dumps(
        {
            "DCGM Diagnostic": {
                "tests": [
                    {
                        "name": "pcie",
                        "results": [{"entity_id": n, "status": "Fail"} for n in (0, 1)],
                    }
                ]
            }
        }
    )
    uuid = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
    listed = file(f"GPU 1: NVIDIA H100 (UUID: {uuid})\n", "gpus")
    rows = read_host_files("node-1", [file(diagnostic, "diag", TIME), listed])
    assert [(e["check"], e.get("gpu_uuid")) for e in rows.events] == [
        ("dcgm diag pcie of GPU 0", None),
        ("dcgm diag pcie", uuid),
    ]


def test_log_with_product_names_is_no_csv() -> None:
    log = LOG + "[Sat Mar  1 00:06:00 2025] nvidia: a, NVIDIA H100 80GB HBM3, b\n"
    assert read_host_files("node-1", [file(log)]).files == {"kernel_log": 1}


def test_outputs_of_several_kinds_in_one_file() -> None:
    uuid = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
    text = (
        f"2025-03-01T00:00:00Z\nGPU 0: NVIDIA H100 (UUID: {uuid})\n"
        "2025-03-01T00:10:00Z\n# gpu    pwr  gtemp\n# Idx      W      C\n    0    512     61\n"
        f"2025-03-01T00:20:00Z\nindex, uuid, temperature.gpu\n0, {uuid}, 62\n"
    )
    rows = read_host_files("node-1", [file(text)])
    assert rows.files == {"csv": 1, "dmon": 1, "list": 1}
    readings = {row["temperature_gpu"]: row for row in rows.readings}
    assert {row["gpu_uuid"] for row in readings.values()} == {uuid}
    times = [(readings[value]["timestamp"] - TIME) // MINUTE for value in (61, 62)]
    assert times == [10, 20]
    assert not rows.unread


@given(
    st.sampled_from([("> ", ""), ("", "```"), (">> ", ""), ("> > ", ""), ("", "`")]),
    st.sampled_from([LOG, CSV, XML]),
)
def test_quoted_files_are_read_as_printed(marks: tuple[str, str], text: str) -> None:
    prefix, fence = marks
    end = "\n" if fence == "```" else ""
    quoted = "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))
    plain = read_host_files("node-1", [file(text, time=TIME + HOUR)])
    copied = read_host_files("node-1", [file(fence + end + quoted + fence, time=TIME + HOUR)])
    for rows in (plain, copied):
        assert not rows.unread
    assert [row | {"id": ""} for row in copied.events] == [row | {"id": ""} for row in plain.events]
    assert copied.readings == plain.readings


def test_messages_on_a_terminal_are_a_log() -> None:
    text = "Message from syslogd@n1 at Mar  1 00:00:00 ...\n kernel:[ 7.5] {}\n\n"
    line = "EDAC MC1: 3 CE memory read error on DIMM_A2"
    boot = file(f"btime {TIME // SECOND}\n", "stat")
    rows = read_host_files("node-1", [boot, file(text.format(line) + text.format("eth0: up"))])
    assert [(row["kind"], row["count"]) for row in rows.events] == [("memory_error", 3)]
    assert rows.events[0]["timestamp"] == TIME + 7_500_000_000


def _gpu_list(number: int) -> HostFileText:
    uuid = "GPU-0000000{}-1111-2222-3333-444444444444"
    lines = [f"GPU {n}: H100 (UUID: {uuid.format(n)})" for n in range(number)]
    return file("\n".join(lines), "gpus")


@given(st.integers(0, 9))
def test_rows_without_any_name_are_of_the_only_gpu_of_a_list(number: int) -> None:
    rows = "2025/03/01 00:10:00.250, 49 %\n2025/03/01 00:11:00.250, 50 %\n"
    query = file(f"timestamp, utilization.gpu [%]\n{rows}", "query")
    dropped = read_host_files("node-1", [query, _gpu_list(number)])
    uuids = [row["gpu_uuid"][:12] for row in dropped.readings]
    assert uuids == ["GPU-00000000"] * (2 if number == 1 else 0)
    assert bool(dropped.unread) == (number != 1)


def test_rows_of_one_moment_are_of_several_gpus() -> None:
    rows = "2025/03/01 00:10:00.250, 49 %\n2025/03/01 00:10:00.250, 50 %\n"
    query = file(f"timestamp, utilization.gpu [%]\n{rows}", "query")
    dropped = read_host_files("node-1", [query, _gpu_list(1)])
    assert not dropped.readings
    assert sum(dropped.unread.counts.values()) == 2


def test_table_of_measurements_alone_has_the_time_of_the_file() -> None:
    query = file("utilization.gpu [%], memory.used [MiB]\n49 %, 7 MiB\n", "query", TIME)
    (reading,) = read_host_files("node-1", [query, _gpu_list(1)]).readings
    assert (reading["timestamp"], reading["utilization_gpu"]) == (TIME, 49)


def test_time_in_another_form_is_counted() -> None:
    query = file("timestamp, serial, temperature.gpu\n03-11-2026 15:13:16, S1, 41\n", "query")
    dropped = read_host_files("node-1", [query])
    assert any("in another form" in what for what in dropped.unread.counts)


def test_rows_of_a_table_without_known_column_are_no_readings() -> None:
    query = file("timestamp,memory_used_mb\n2025-03-01 00:10:00,604\n", "query")
    dropped = read_host_files("node-1", [query, _gpu_list(1)])
    assert not dropped.readings
    assert list(dropped.unread.counts) == ["a table without a known column"]


@given(st.integers(1, 5), st.integers(1, 4))
def test_last_row_without_a_time_counts(rounds: int, gpus: int) -> None:
    rows = "".join(f"    {n}   {30 + k}\n" for k in range(rounds) for n in range(gpus))
    monitor = file(f"# gpu  gtemp\n# Idx  C\n{rows}", "monitor", TIME)
    dropped = read_host_files("node-1", [monitor, _gpu_list(gpus)])
    assert [row["temperature_gpu"] for row in dropped.readings] == [29 + rounds] * gpus
    counts = [
        count for what, count in dropped.unread.counts.items() if "before a later row" in what
    ]
    assert sum(counts) == (rounds - 1) * gpus

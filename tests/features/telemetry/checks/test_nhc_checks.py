from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.checks.nhc_checks import (
    is_drain_reasons,
    is_nhc_log,
    parse_drain_reasons,
    parse_nhc_log,
)
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.time_units import HOUR, SECOND

MARKS = """20250103 10:00:01 [slurm] /usr/libexec/nhc/node-mark-online n7.site
/usr/libexec/nhc/node-mark-online:  Node n7 is already online.
20250103 10:05:01 [slurm] /usr/libexec/nhc/node-mark-online n7.site
ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted
20250103 10:10:02 /usr/libexec/nhc/node-mark-offline n7.site check_fs_mount:  /scratch not mounted
/usr/libexec/nhc/node-mark-offline:  Marking idle n7 offline:  NHC: check_fs_mount
20250103 10:15:03 [slurm] /usr/libexec/nhc/node-mark-online n7.site
"""


def test_marks_name_failure_host_and_end() -> None:
    assert is_nhc_log(MARKS)
    results, unread = parse_nhc_log(MARKS, HostClock(offset=HOUR))
    assert [(r.check, r.severity, r.host) for r in results] == [
        ("nhc", "ok", "n7.site"),
        ("nhc check_fs_mount", "error", "n7.site"),
        ("nhc", "ok", "n7.site"),
    ]
    clocks = [(r.time or 0) // SECOND % 86_400 for r in results]
    assert clocks == [9 * 3600 + 1, 9 * 3600 + 602, 9 * 3600 + 903]
    assert "/scratch not mounted" in results[1].text
    assert not unread


@pytest.mark.parametrize(
    ("line", "check", "severity"),
    [
        ("nhc[71]: Health check failed:  check_hw_eth:  Device ib9 not detected.",
         "nhc check_hw_eth", "error"),
        ("ERROR:  nhc:  Health check failed:  Check check_gpu_count 8 returned 1",
         "nhc check_gpu_count", "error"),
        ('ERROR:  nhc:  Health check failed:  Script timed out while executing "check_ps x".',
         "nhc unfinished", "notice"),
        ("nhc[5]: Health check failed:  Terminated by signal SIGTERM.",
         "nhc unfinished", "notice"),
        ("ERROR : Node Health Checks failed - vm-3 - A0042 - Check check_link returned 127",
         "nhc check_link", "error"),
        ("ERROR:  nhc:  Health check failed:  dmesg check: bad word", "nhc", "error"),
    ],
)  # fmt: skip
def test_failures_name_their_check(line: str, check: str, severity: str) -> None:
    assert is_nhc_log(line)
    (result,), _ = parse_nhc_log(line, HostClock())
    assert (result.check, result.severity, result.time) == (check, severity, None)


def test_system_log_gives_xids_and_checks() -> None:
    text = (
        "Jun 11 19:12:23 g1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off\n"
        "Jun 11 19:22:24 g1 nhc[9]: Health check failed:  check_nv_gpu:  7 of 8 GPUs\n"
    )
    taken = 1_751_328_000 * SECOND  # 2025-07-01, gives the year
    rows = read_host_files("g1", [HostFileText("g1/messages", text, taken)])
    events = [(row["kind"], row.get("check"), row["machine_id"]) for row in rows.events]
    assert events == [("xid", None, "g1"), ("check", "nhc check_nv_gpu", "g1")]
    assert {row["timestamp"] // SECOND // 86_400 for row in rows.events} == {20_250}


def test_system_log_names_the_hosts() -> None:
    text = "".join(
        f"2025-06-11T19:12:2{n}.05+00:00 cpu{n} nhc[1]: Health check failed:  check_a: bad\n"
        for n in (1, 2)
    )
    rows = read_host_files("logs", [HostFileText("logs.txt", text, None)])
    assert [row["machine_id"] for row in rows.events] == ["cpu1", "cpu2"]


def test_drain_reasons_are_of_each_node() -> None:
    text = (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "NHC: check_hw_ib:  N root      2025-02-03T04:05:06 gpu[08-09],login1\n"
        "new disk             anna      2025-02-03T04:05:06 gpu12\n"
    )
    assert is_drain_reasons(text)
    results, unread = parse_drain_reasons(text)
    assert [(r.check, r.host, r.utc) for r in results] == [
        ("nhc check_hw_ib", host, False) for host in ("gpu08", "gpu09", "login1")
    ]
    assert unread.counts == {"a drain reason that Node Health Check did not set": 1}


def test_node_listing_has_reason_and_time() -> None:
    text = (
        "NodeName=a1 Arch=x86_64 CoresPerSocket=32\n   State=IDLE ThreadsPerCore=2\n\n"
        "NodeName=a2 Arch=x86_64 CoresPerSocket=32\n   State=IDLE+DRAIN ThreadsPerCore=2\n"
        "   Reason=NHC: check_fs_free:  /tmp has 1 MB [root@2025-02-03T04:05:06]\n"
    )
    (result,), _ = parse_drain_reasons(text)
    assert (result.check, result.host) == ("nhc check_fs_free", "a2")
    assert result.text == "nhc: check_fs_free: /tmp has 1 MB"
    assert (result.time or 0) // SECOND % 86_400 == 4 * 3600 + 5 * 60 + 6


@given(st.text(alphabet="nhc[]: 0Healtckfid\n-/markoe", max_size=200))
def test_any_text_is_read_without_errors(text: str) -> None:
    parse_nhc_log(text, HostClock())
    parse_drain_reasons(f"REASON USER TIMESTAMP NODELIST\n{text}")

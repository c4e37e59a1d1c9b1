"""Detection of programs that quote the kernel, in every log format and by every reader."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log
from forewarn.features.telemetry.parsers.log_line import read_line
from forewarn.features.telemetry.parsers.log_time import _LANGUAGES, HostClock, month_number
from forewarn.features.telemetry.parsers.proc_files import HostReading
from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.fault_context import FaultContext
from forewarn.pipelines.agent.gpu_inventory import GpuInventory
from forewarn.pipelines.agent.kernel_log_events import KernelLogEvents
from forewarn.pipelines.agent.kernel_log_follower import FollowedLine
from forewarn.pipelines.runtime.clock import SystemClock

BOOT = 1_795_600_000 * SECOND
CLOCKS = HostClock(BOOT, before=1_795_680_000 * SECOND)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."
# Prefixes of log daemons before the host.
STAMPS = (
    "Nov 25 10:15:47 ",
    "Nov 25 10:15:47.123456 ",
    "11月 25 10:15:47 ",
    "Mär  1 10:15:47 ",
    "déc. 25 10:15:47 ",
    "<13>Nov 25 10:15:47 ",
    "<6>Nov 25 10:15:47 ",
    "2026-11-25T10:15:47.123456+00:00 ",
    "2026-11-25T10:15:47+0000 ",
    "2026-11-25T10:15:47Z ",
    "2026-11-25 10:15:47.123456+00:00 ",
    "2026-11-25 10:15:47 ",
    "Wed 2026-11-25 10:15:47 UTC ",
    "三 2026-11-25 10:15:47 CST ",
    "1795601747.123456 ",
    "[  100.000000] ",
)
HOSTS = ("gn01", "10.0.0.7", "gpu-17.rack-3")
PROGRAMS = (
    "gpud[1234]: ",
    "sudo[77]:    root : TTY=pts/0 ; COMMAND=/usr/bin/grep ",
    "/usr/sbin/nhc[5]: ",
    "containerd[900]: time=\"2026-11-25T10:15:47Z\" level=info msg=",
    "kernel-report[3]: ",
)  # fmt: skip
# Without a pid: after a time in brackets, these may be the kernel's own messages.
TAGS = ("sudo:    root : COMMAND=/usr/bin/grep ", "logger: ", "kernelcheck: ", "audit: ", "root: ")
QUOTES = ("{}", '"{}"', '[XID found] (54 minutes ago) "{}"', "kernel: {}", "gn01 kernel: {}")


def agent_events(text: str) -> list[dict[str, Any]]:
    """Return the events that an agent following a file reads from its lines."""
    lock = threading.Lock()
    log = KernelLogEvents("gn01", HostReading, GpuInventory(), FaultContext(lock))
    lines = [FollowedLine(line, str(n)) for n, line in enumerate(text.splitlines())]
    return log.rows(lines, SystemClock())


def assert_no_event(text: str) -> None:
    log = parse_kernel_log(text, boot_time=BOOT, before=CLOCKS.before)
    assert (log.events, log.of_kernel) == ([], 0)
    assert not log.unread
    assert agent_events(text) == []


@given(
    st.sampled_from(STAMPS),
    st.sampled_from(HOSTS),
    st.sampled_from(PROGRAMS),
    st.sampled_from(QUOTES),
    st.sampled_from(["", " " * 20 + XID, XID]),
)
def test_program_quoting_the_kernel_is_ignored(
    stamp: str, host: str, program: str, quote: str, more: str
) -> None:
    assert_no_event(f"{stamp}{host} {program}{quote.format(XID)}\n{more}\n")


@given(
    st.sampled_from(STAMPS[:-1]),
    st.sampled_from(HOSTS),
    st.sampled_from(TAGS),
    st.sampled_from(QUOTES),
)
def test_program_without_pid_is_ignored(stamp: str, host: str, tag: str, quote: str) -> None:
    assert_no_event(f"{stamp}{host} {tag}{quote.format(XID)}\n")


@pytest.mark.parametrize(
    "line",
    [
        f"14,7,5000000,-;{XID}",  # written to /dev/kmsg by a program: facility 1
        f"<14>[    5.000000] {XID}",
        f"user  :notice: [    5.000000] {XID}",
        f"syslog:err   : 2026-11-25T10:15:47,089671+00:00 {XID}",
        f"10.0.0.7: user: warning: [2026-11-25T10:15:47.123456789Z]: {XID}",
        f"2026-11-25T10:15:47.123456789Z stdout F {XID}",
        f"2026-11-25T10:15:47.123456789Z {XID}",  # kubectl logs --timestamps
        f"<13>1 2026-11-25T10:15:47Z gn01 gpud 12 - - {XID}",
        f"<3>1 2026-11-25T10:15:47Z gn01 gpud 12 - [meta x=\"kernel - - - \"] {XID}",
    ],
)  # fmt: skip
def test_other_facility_or_container_is_ignored(line: str) -> None:
    assert_no_event(line + "\n")


JOURNALS = (
    {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "kernel"},
    {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "1"},
    {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "gpud", "SYSLOG_FACILITY": "3"},
    {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "1"},
    {"_TRANSPORT": "journal"},
)


@pytest.mark.parametrize("fields", JOURNALS)
def test_journal_entry_named_kernel_is_ignored(fields: dict[str, str]) -> None:
    entry = {"__REALTIME_TIMESTAMP": "1795601747123456", **fields, "MESSAGE": XID}
    assert_no_event(json.dumps(entry) + "\n")


def test_agent_reads_journal_from_file() -> None:
    entry = {"__REALTIME_TIMESTAMP": "1795601747123456", "_TRANSPORT": "kernel", "MESSAGE": XID}
    (event,) = agent_events(json.dumps(entry))
    assert (event["code"], event["timestamp"]) == (79, 1_795_601_747_123_456_000)


@given(st.sampled_from(STAMPS), st.sampled_from(HOSTS), st.booleans())
def test_kernel_lines_are_recognised(stamp: str, host: str, with_own_time: bool) -> None:
    own = "[  100.500000] " if with_own_time else ""
    line = f"{stamp}{host} kernel: {own}{XID}"
    log = parse_kernel_log(line, boot_time=BOOT, before=CLOCKS.before)
    if stamp.startswith("<13>"):  # not a facility of the kernel
        assert not log.events
        return
    (event,) = log.events
    assert (event.code, event.line.writer) == (79, "kernel")
    assert event.line.time is not None
    (row,) = agent_events(line)
    assert row["code"] == 79


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        (f"10.0.0.7: kern:     err: [2026-11-25T10:15:47.123456789Z]: {XID}", 123_456_789),
        (f"kern: warning: [2026-11-25T10:15:47.5Z]: {XID}", 500_000_000),
        (f"2026-11-25 10:15:47,25 gn01 kernel: {XID}", 250_000_000),
        (f"2026-11-25 12:15:47 +02 gn01 kernel: {XID}", 0),
        (f"Nov 25 10:15:47 gn01 kern.err kernel: {XID}", 0),
        (f"Nov 25 10:15:47 kernel: {XID}", 0),
        (f"Nov 25 2026 10:15:47 gn01 kernel: {XID}", 0),
        (f"2026 Nov 25 10:15:47.5 gn01 kernel: {XID}", 500_000_000),
        (f"2026-11-25T10:15:47Z gn01 kern warning kernel: {XID}", 0),
        (f"2026-11-25T10:15:47Z kernel: {XID}", 0),
        (f"<4>2026-11-25T10:15:47Z {XID}", 0),
        (f"[mer. nov. 25 10:15:47 2026] {XID}", 0),
        (f"[水 11月 25 10:15:47 2026] {XID}", 0),
        (f"11월 25 10:15:47 gn01 kernel: {XID}", 0),
    ],
)
def test_further_prefix_formats(line: str, moment: int) -> None:
    read = read_line(line, CLOCKS)
    assert (read.message, read.writer) == (XID, "kernel")
    assert read.time == 1_795_601_747 * SECOND + moment


BLANKS = st.text(" \t", max_size=3)


@given(
    st.sampled_from([stamp for stamp in STAMPS[:-1] if "<13>" not in stamp]),
    st.sampled_from(["gn01 ", "gn01  ", "", " "]),
    st.sampled_from(["", "kern.err ", "kern warning "]),
    st.lists(st.sampled_from(["kernel:", "kernel[0]:"]), min_size=1, max_size=3),
    st.sampled_from(["", "[  100.500000]", "[  100.500000][ T12]", "[ 100.500000] [C1]"]),
    st.sampled_from(["", "nvidia 0000:3b:00.0: ", "nvidia: "]),
    BLANKS,
)
def test_blanks_and_tags_hide_no_kernel_line(
    stamp: str, host: str, facility: str, tags: list[str], own: str, device: str, blanks: str
) -> None:
    line = f"{stamp}{host}{facility}{blanks.join(tags)}{blanks}{own}{blanks}{device}{XID}"
    (event,) = parse_kernel_log(line, boot_time=BOOT, before=CLOCKS.before).events
    assert (event.code, event.line.writer) == (79, "kernel")
    assert event.line.time is not None
    (row,) = agent_events(line)
    assert row["code"] == 79


# Text that a user chooses: the name of a process (15 characters) and of a file.
SEGFAULT = "{}[7]: segfault at 0 ip 0 sp 0 error 6 in {}[400000+1000]"
FORGED = (
    "NVRM: Xid (PCI:0000:3b:00): 79, ",
    "Xid (PCI:0000:3b:00): 79, ",
    "GPU 0000:3b:00.0 has fallen off the bus",
    "#012NVRM: Xid (PCI:0000:3b:00): 79, ",
    "x#012NVRM: GPU 0000:3b:00.0: RmInitAdapter failed",
    "x#012nvidia-nvswitch0: SXid (PCI:0000:3b:00): 20034, Fatal",
)


@given(
    st.sampled_from(
        [*(f"{stamp}gn01 kernel: " for stamp in STAMPS), "4,7,5000000,-;", "[    5.000000] ", ""]
    ),
    st.sampled_from(["a.out", "NVRM: a", "kernel: NVRM: x", "nvidia: NVRM: x", "nvidia-nvswitch"]),
    st.sampled_from(FORGED),
)
def test_file_or_process_name_is_no_fault(begun: str, process: str, file: str) -> None:
    line = begun + SEGFAULT.format(process, file)
    assert parse_kernel_log(line, boot_time=BOOT, before=CLOCKS.before).events == []
    assert agent_events(line) == []


@pytest.mark.parametrize("end", ["\n", "#012"])
def test_driver_messages_split_only_at_newlines(end: str) -> None:
    entry = {"__REALTIME_TIMESTAMP": "1795601747123456", "_TRANSPORT": "kernel"}
    for first, expected in (
        ("nvidia-nvswitch0: x", end == "\n"),
        (SEGFAULT.format("a", "b"), False),
    ):
        text = json.dumps(entry | {"MESSAGE": f"{first}{end}{XID}"})
        assert len(parse_kernel_log(text).events) == len(agent_events(text)) == expected


@given(
    st.integers(0, 8), st.sampled_from(["", "INFO kernel: ", "error: kernel: ", "Warn kernel: "])
)
def test_container_is_not_the_kernel(n_digits: int, level: str) -> None:
    fraction = f".{'1' * n_digits}" if n_digits else ""
    for stamp in (f"2026-11-25T10:15:47{fraction}Z ", f"[2026-11-25T10:15:47{fraction}Z]: "):
        log = parse_kernel_log(stamp + level + XID, before=CLOCKS.before)
        assert (log.events, log.of_kernel, log.unread.counts.total()) == ([], 0, 1)
        assert agent_events(stamp + level + XID) == []


@pytest.mark.parametrize("begun", ["Nov 25 10:15:47 gn01 kernel: ", "2026-11-25 10:15:47 ", ""])
@pytest.mark.parametrize(
    "piece",
    ["kernel: ", "[ 12.3] ", "[T1]", "message repeated 2 times: [ ", "NVRM: GPU 0000:19:00 "],
)
def test_very_long_line_is_parsed_fast(begun: str, piece: str) -> None:
    assert parse_kernel_log(begun + piece * 100_000, before=CLOCKS.before).events == []


def test_unknown_month_is_noted_without_time() -> None:
    text = f"Nov 25 10:02:47 gn01 kernel: usb 1\nФыв 25 10:15:47 gn01 kernel: {XID}\n"
    (event,) = parse_kernel_log(text, before=CLOCKS.before).events
    assert event.line.time is None


@given(st.text(st.characters(codec="ascii", exclude_characters="\n\r\0\x1b"), max_size=30))
def test_unknown_prefix_inherits_no_time(beginning: str) -> None:
    before = "Nov 25 10:02:47 gn01 kernel: usb 1-2: new device"
    log = parse_kernel_log(f"{before}\nx{beginning}{XID}\n", before=CLOCKS.before)
    assert not any(event.line.time == 1_795_600_967 * SECOND for event in log.events)
    assert log.events or log.unread or log.of_kernel == 1


def test_month_names_are_unambiguous() -> None:
    names = {(name, n) for names in _LANGUAGES for n, name in enumerate(names.split(), 1)}
    assert len(names) == len({name for name, _ in names})
    assert {month_number(name) for name, _ in names} == set(range(1, 13))


@pytest.mark.parametrize(
    "line",
    [
        f"2026-11-25T10:15:47Z gn01 kern err {XID}",  # a site's own template
        f"Nov 25 10:15:47 gn01 | kernel | {XID}",
        f"2026-11-25T10:15:47.5+00:00 level=error source=kernel {XID}",
        json.dumps({"__REALTIME_TIMESTAMP": "1795601747123456", "MESSAGE": XID}),
    ],
)
def test_line_of_unknown_writer_is_noted(line: str) -> None:
    log = parse_kernel_log(f"{line}\n{XID}\n", before=CLOCKS.before)
    assert log.events == []
    assert log.unread.counts.total() == 2
    assert agent_events(line) == []


def test_driver_message_after_time_is_kernel() -> None:
    for stamp in ("Nov 25 10:15:47 ", "2026-11-25T10:15:47+00:00 "):
        (event,) = parse_kernel_log(stamp + XID, before=CLOCKS.before).events
        assert event.line.time == 1_795_601_747 * SECOND

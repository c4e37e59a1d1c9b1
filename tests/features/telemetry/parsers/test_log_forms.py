"""Four kernel messages in every log format, written and read."""

from __future__ import annotations

import json

import pytest

from forewarn.features.telemetry.host_files.file_forms import detect_form
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.time_units import DAY, SECOND

BOOT = 1_740_787_200 * SECOND  # 2025-03-01
TAKEN = BOOT + DAY
# Seconds since boot, and the message.
FALLEN = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "NVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
MESSAGES = (
    (5, "eth0: up"),
    (7, FALLEN),
    (83_400, "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off"),
    (84_000, "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=a, DBE"),
)
EXPECTED = [
    ("lost", None, "0000:b3:00", 7),
    ("xid", 79, "0000:9b:00", 83_400),
    ("xid", 48, "0000:3b:00", 84_000),
]
JOURNAL = (
    "-- Journal begins at Sat 2025-03-01 00:00:00 UTC, ends at Sun 2025-03-02 00:00:00 UTC. --\n"
)


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def since(seconds: int) -> str:
    return f"{seconds:5}.000000"


# Line prefix of each tool; continuation lines are indented equally or have the same prefix.
PREFIXES = {
    "dmesg": lambda s: f"[{since(s)}] ",
    "dmesg -r": lambda s: f"<6>[{since(s)}] ",
    "dmesg -d": lambda s: f"[{since(s)} <    0.000000>] ",
    "dmesg -x": lambda s: f"kern  :warn  : [{since(s)}] ",
    "dmesg -T": lambda s: f"[Sat Mar  1 {clock(s)} 2025] ",
    "dmesg -T -x": lambda s: f"kern  :err   : [Sat Mar  1 {clock(s)} 2025] ",
    "dmesg --time-format=iso": lambda s: f"2025-03-01T{clock(s)},000000+00:00 ",
    "dmesg of a kernel that names callers": lambda s: f"[{since(s)}][ T1234] ",
    "dmesg --color=always": lambda s: f"\x1b[32m[{since(s)}] \x1b[0m\x1b[33m",
    "journalctl -k": lambda s: f"Mar 01 {clock(s)} node-1 kernel: ",
    "journalctl -k -o short-precise": lambda s: f"Mar 01 {clock(s)}.000000 node-1 kernel: ",
    "journalctl -k -o short-iso": lambda s: f"2025-03-01T{clock(s)}+0000 node-1 kernel: ",
    "journalctl -k -o short-iso-precise": lambda s: (
        f"2025-03-01T{clock(s)}.000000+00:00 node-1 kernel: "
    ),
    "journalctl -k -o short-full": lambda s: f"Sat 2025-03-01 {clock(s)} UTC node-1 kernel: ",
    "journalctl -k -o short-monotonic": lambda s: f"[{since(s)}] node-1 kernel: ",
    "journalctl -k -o short-delta": lambda s: f"[{since(s)} <    0.000000 >] node-1 kernel: ",
    "journalctl -k -o short-unix": lambda s: f"{BOOT // SECOND + s}.000000 node-1 kernel: ",
    "kern.log, RFC 3164": lambda s: f"Mar  1 {clock(s)} node-1 kernel: [{since(s)}] ",
    "kern.log, ISO": lambda s: f"2025-03-01T{clock(s)}.000000+00:00 node-1 kernel: [{since(s)}] ",
    "RFC 3164 with its priority": lambda s: f"<4>Mar  1 {clock(s)} node-1 kernel: ",
    "RFC 5424": lambda s: f"<4>1 2025-03-01T{clock(s)}.000000Z node-1 kernel - - - ",
}


def written(tool: str, lines: str = "indented") -> str:
    """Return the log as a tool prints it, with continuation lines indented, bare or prefixed."""
    text = JOURNAL + "-- Boot 0123456789abcdef --\n" if tool.startswith("journal") else ""
    for seconds, message in MESSAGES:
        prefix = PREFIXES[tool](seconds)
        first, *more = message.split("\n")
        before = {"indented": " " * len(prefix), "bare": "", "alike": prefix}[lines]
        text += "".join(f"{line}\n" for line in (prefix + first, *(before + m for m in more)))
    return text


def read(text: str) -> HostFileRows:
    form = detect_form(text)
    assert form is not None
    assert form.kind == "kernel_log"
    stat = HostFileText("stat", f"cpu 1\nbtime {BOOT // SECOND}\n", None)
    return read_host_files("node-1", [HostFileText("log", text, TAKEN), stat])


def events_of(found: HostFileRows) -> list[tuple[str, int | None, str, int]]:
    return [
        (e["kind"], e.get("code"), e["pci"], (e["timestamp"] - BOOT) // SECOND)
        for e in found.events
    ]


@pytest.mark.parametrize("lines", ["indented", "bare", "alike"])
@pytest.mark.parametrize("tool", PREFIXES)
def test_each_log_format_is_read(tool: str, lines: str) -> None:
    found = read(written(tool, lines))
    assert events_of(found) == EXPECTED
    assert not found.unread


def test_kmsg_records_with_lines_and_dictionary() -> None:
    text = "".join(
        f"4,{number},{seconds * 1_000_000},-;{message}\n".replace("\nNVRM", r"\x0aNVRM")
        + " SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0\n"
        for number, (seconds, message) in enumerate(MESSAGES)
    )
    assert events_of(read(text)) == EXPECTED


def test_escaped_newlines_of_rsyslog() -> None:
    text = "".join(
        f"Mar  1 {clock(seconds)} node-1 kernel: {message}\n".replace("\nNVRM", "#012NVRM")
        for seconds, message in MESSAGES
    )
    assert events_of(read(text)) == EXPECTED


def entry(seconds: int, message: str, **more: object) -> dict[str, object]:
    time = str((BOOT // SECOND + seconds) * 1_000_000)
    known = {"__REALTIME_TIMESTAMP": time, "_TRANSPORT": "kernel", "MESSAGE": message}
    return {"__CURSOR": "s=1", **known, **more}


def test_json_journal_skips_other_programs() -> None:
    entries = [entry(seconds, message) for seconds, message in MESSAGES]
    entries.insert(0, entry(1, "NVRM: Xid (PCI:0000:3b:00): 79, x", _TRANSPORT="syslog"))
    entries[3]["MESSAGE"] = list(str(entries[3]["MESSAGE"]).encode())
    entries[1]["MESSAGE"] = "eth0:\u2028up"
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in entries)
    found = read(text)
    assert events_of(found) == EXPECTED
    assert not found.unread
    assert read(text + '{"__REALTIME_TIM').unread.counts == {"an entry that is not JSON": 1}


def test_export_journal_with_multiline_messages() -> None:
    text = ""
    for one in (entry(seconds, message) for seconds, message in MESSAGES):
        message = str(one.pop("MESSAGE"))
        text += "".join(f"{name}={value}\n" for name, value in one.items())
        if "\n" in message:
            size = len(message).to_bytes(8, "little").decode(errors="replace")
            text += f"MESSAGE\n{size}{message}\n\n"
        else:
            text += f"MESSAGE={message}\n\n"
    assert events_of(read(text)) == EXPECTED


def test_journal_year_comes_from_first_line() -> None:
    log = HostFileText("journal", written("journalctl -k"), None)
    assert events_of(read_host_files("node-1", [log])) == EXPECTED


def test_other_programs_are_not_the_kernel() -> None:
    text = "".join(
        f"Mar  1 {clock(s)} node-1 sshd[{s}]: session opened\n"
        f"Mar  1 {clock(s)} node-1 logger: NVRM: Xid (PCI:0000:3b:00): 79, not of the kernel\n"
        for s in range(20)
    )
    assert events_of(read(text + written("kern.log, RFC 3164"))) == EXPECTED
    assert read(text).events == []


def test_zeros_after_power_loss_are_skipped() -> None:
    assert events_of(read("\0" * 5000 + written("journalctl -k"))) == EXPECTED


@pytest.mark.parametrize("log", [False, True])
def test_rejected_gpu_is_not_lost(log: bool) -> None:
    prefix = "[Sat Mar  1 00:00:07 2025] " if log else ""
    text = (
        f"{prefix}NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1180)\n"
        f"{prefix}NVRM: installed in this system is not supported by this driver.\n"
        f"{prefix}NVRM: something else has fallen off the bus\n"
    )
    found = read_host_files("node-1", [HostFileText("log", text, TAKEN)])
    assert found.events == []


def test_29_february_is_in_a_leap_year() -> None:
    text = "Feb 29 10:00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 48, x\n"
    (event,) = read_host_files("node-1", [HostFileText("log", text, BOOT)]).events
    assert event["timestamp"] == 1_709_200_800 * SECOND  # 2024

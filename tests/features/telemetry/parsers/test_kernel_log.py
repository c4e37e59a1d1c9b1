from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.telemetry.parsers.kernel_event import KernelEvent
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log
from forewarn.features.telemetry.parsers.log_line import read_line
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.time_units import HOUR, SECOND

BOOT = 1_700_000_000 * SECOND
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def only(text: str) -> KernelEvent:
    log = parse_kernel_log(text, boot_time=BOOT)
    assert not log.unread
    (event,) = log.events
    return event


@pytest.mark.parametrize(
    ("prefix", "time"),
    [
        ("", None),
        ("[   12.345678] ", BOOT + 12_345_678_000),
        ("[Mon Mar  3 10:11:12 2025] ", 1_740_996_672 * SECOND),
        ("2025-03-03T10:11:12,123456+00:00 ", 1_740_996_672 * SECOND + 123_456_000),
        ("2025-03-03T12:11:12.5+0200 ", 1_740_996_672 * SECOND + SECOND // 2),
        ("kern  :warn  : 2025-03-03T10:11:12,000000+00:00 ", 1_740_996_672 * SECOND),
        ("kern  :warn  : [   12.345678] ", BOOT + 12_345_678_000),
        ("Mar  3 10:11:12 node7 kernel: [   12.345678] ", BOOT + 12_345_678_000),
        ("2025-03-03T10:11:12+00:00 node7 kernel: ", 1_740_996_672 * SECOND),
        ("6,1234,12345678,-;", BOOT + 12_345_678_000),
        ("4,1234,12345678,-,caller=T99;", BOOT + 12_345_678_000),
        ("[Foo Bar  3 10:11:12 2025] ", None),
    ],
)
def test_every_form_of_a_line(prefix: str, time: int | None) -> None:
    event = only(prefix + XID)
    assert (event.kind, event.code, event.pci) == ("xid", 79, "0000:3b:00")
    assert (event.pid, event.process) == (None, None)
    assert event.text == "GPU has fallen off the bus."
    assert event.line.time == time
    assert event.line.sequence == (1234 if ";" in prefix else None)


def test_time_since_boot_needs_boot_time() -> None:
    assert read_line(f"[5.000000] {XID}", HostClock()).time is None


def test_clock_without_zone_uses_offset() -> None:
    line = read_line("[Mon Mar  3 10:11:12 2025] x", HostClock(offset=HOUR))
    assert line.time == (1_740_996_672 - 3_600) * SECOND


@pytest.mark.parametrize(
    ("message", "code", "pid", "process", "text"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, Ch 8", 31, 77, "python", "Ch 8"),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=77, Ch 8", 43, 77, None, "Ch 8"),
        (
            "NVRM: Xid (0000:3b:00): 48, An uncorrectable error",
            48,
            None,
            None,
            "An uncorrectable error",
        ),
        ("NVRM: GPU0: Xid (PCI:0000:3B:00.0): 63", 63, None, None, ""),
    ],
)
def test_every_form_of_an_xid(
    message: str, code: int, pid: int | None, process: str | None, text: str
) -> None:
    event = only(message)
    assert (event.code, event.pci, event.pid) == (code, "0000:3b:00", pid)
    assert (event.process, event.text) == (process, text)


def test_sxids_lost_gpus_and_suppressed_messages() -> None:
    switch = only("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 error")
    assert (switch.kind, switch.code, switch.pci) == ("sxid", 28006, "0000:c1:00")
    lost = only("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    assert (lost.kind, lost.code, lost.pci) == ("lost", None, "0000:3b:00")
    suppressed = only("NVRM: nvidia_ioctl: 17 callbacks suppressed")
    assert (suppressed.kind, suppressed.count) == ("suppressed", 17)


def events_of(*messages: str) -> list[tuple[str, str | None, int]]:
    text = "".join(f"[{n}.000000] {message}\n" for n, message in enumerate(messages))
    log = parse_kernel_log(text, boot_time=BOOT)
    return [(event.kind, event.pci, event.count) for event in log.events]


FAILED = "NVRM: GPU 0000:19:00.0: RmInitAdapter failed! (0x62:0x40:2142)"
FAILED_TOO = "NVRM: GPU 0000:19:00.0: rm_init_adapter failed, device minor number 0"


def test_failed_init_is_one_event() -> None:
    once = ("init_failed", "0000:19:00", 1)
    assert events_of(FAILED, "usb 1-1: new device", FAILED_TOO) == [once]
    assert events_of(FAILED, FAILED_TOO, FAILED, FAILED_TOO) == [once, once]
    assert events_of(FAILED_TOO) == [once]
    older = ("NVRM: RmInitAdapter failed! (0x26:0xffff:1097)", "NVRM: rm_init_adapter failed for x")
    assert events_of(*older) == [("init_failed", None, 1)]


@pytest.mark.parametrize(
    ("text", "severity"),
    [
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", "fatal"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x1 0x8)", "nonfatal"),
        ("74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6", "fatal"),
        ("150, MSE_LINK Link 0 (0x1)", None),
        ("31, pid=7, name=fatal, Ch 8, Fatal", None),
    ],
)
def test_severity_is_read_from_the_message(text: str, severity: str | None) -> None:
    assert only(f"NVRM: Xid (PCI:0000:3b:00): {text}").severity == severity


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
        ("from 0x1 (GPU Reset Required) to 0x0 (None)", "none"),
        ("from 0x0 (None) to 0x3 (Drain P2P)", "drain"),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", "drain_and_reset"),
        ("from (None) to (Drain and Reset)", "drain_and_reset"),
        ("from 0x0 (None) to 0x5 (Recover IMEX Domain)", None),
        ("in words that are new", None),
    ],
)
def test_recovery_action_of_xid_154(text: str, action: str | None) -> None:
    event = only(f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed {text}")
    assert event.action == action


def test_serial_line_of_lost_gpu() -> None:
    log = parse_kernel_log("NVRM: GPU 0000:5e:00.0: GPU serial number is 0324018069461.\n")
    assert log.boards == {"0000:5e:00": (None, "0324018069461")}


def test_message_repeated_by_log_daemon() -> None:
    line = f"message repeated 4 times: [ [    5.000000] {XID}]"
    assert events_of(line, f"message repeated 2 times: [ {XID}]") == [
        ("xid", "0000:3b:00", 4),
        ("xid", "0000:3b:00", 2),
    ]


def test_unreadable_xid_line_is_counted() -> None:
    log = parse_kernel_log("NVRM: Xid (PCI:nowhere): 79, x\nNVRM: Xid\nusb 1: not ours, Xid\n")
    assert log.events == []
    assert log.unread.counts == {"an Xid that cannot be read": 2}


def test_dictionary_and_empty_lines_are_skipped() -> None:
    log = parse_kernel_log(f"6,1,5,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n\n")
    assert len(log.events) == 1


def test_escapes_of_kmsg() -> None:
    assert read_line(r"6,1,5,-;a\x0ab", HostClock()).message == "a\nb"


def test_uuid_and_serial_of_a_board() -> None:
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    log = parse_kernel_log(
        f"NVRM: GPU at PCI:0000:3b:00: {uuid}\nNVRM: GPU Board Serial Number: 42\n"
        f"NVRM: GPU at PCI:0000:af:00: {uuid}\nother\nNVRM: GPU Board Serial Number: 43\n"
    )
    assert log.boards == {"0000:3b:00": (uuid, "42"), "0000:af:00": (uuid, None)}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("accelerator_nvidia_nccl__dmesg.decode.iso.log", {}),
        ("accelerator_nvidia_xid__dmesg-with-xid-119.log", {119: 5}),
        ("memory__dmesg.decode.iso.log", {13: 16, 43: 1}),
        ("pkg_kmsg__kmsg.1.log", {}),
        ("pkg_kmsg__kmsg.2.peermem.log", {}),
    ],
)
def test_real_logs(shared_data: Path, name: str, codes: dict[int, int]) -> None:
    text = (shared_data / "kernel_logs" / name).read_text(errors="replace")
    log = parse_kernel_log(text, boot_time=BOOT)
    assert Counter(event.code for event in log.events) == codes
    assert not log.unread
    lines = [read_line(raw, HostClock(BOOT)) for raw in text.splitlines() if raw.strip()]
    assert all(line.time is not None for line in lines if not line.message.startswith(" "))
    for pci, (uuid, serial) in log.boards.items():
        assert parse_pci_address(pci) == pci
        assert uuid is not None
        assert uuid.startswith("GPU-")
        assert serial is not None


PIECES = st.sampled_from(
    [XID, "NVRM: ", "Xid (", "PCI:", "0000:3b:00", "): ", "79", "[", "]", "6,1,2,-;", "\n", "\\xff",
     "kernel: ", "[Mon Mar  3 10:11:12 2025] ", "2025-13-41T99:00:00 ", "9" * 30, "pid=", "name="]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join))
def test_no_text_raises_anything(text: str) -> None:
    parse_kernel_log(text, boot_time=BOOT)
    parse_kernel_log(text)


@given(st.integers(0, 200))
def test_a_line_cut_short_raises_nothing(length: int) -> None:
    text = f"Mar  3 10:11:12 node7 kernel: [   12.345678] {XID}"
    assert len(parse_kernel_log(text[:length]).events) <= 1

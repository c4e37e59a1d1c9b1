"""Errors of PCIe, memory, processors and network cards in kernel logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.event_folding import NoticeFolder, fold_notices
from forewarn.features.telemetry.parsers.hardware_event import parse_hardware_error
from forewarn.features.telemetry.parsers.kernel_log import parse_kernel_log

CASES = {
    # PCIe, each wording of the kernel's versions
    "pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=0a(R)": (
        *("pcie_error", "notice", "0000:40:01", 1),
    ),
    "pcieport 0000:40:01.1: AER: PCIe Bus Error: severity=Correctable, type=Data Link Layer": (
        *("pcie_error", "notice", "0000:40:01", 1),
    ),
    "nvidia 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction": (
        *("pcie_error", "error", "0000:41:00", 1),
    ),
    "nvme 0000:42:00.0: PCIe Bus Error: Uncorrectable (Fatal), type=Transaction Layer": (
        *("pcie_error", "critical", "0000:42:00", 1),
    ),
    # memory
    "EDAC MC2: 17 CE memory scrubbing error on CPU_SrcID#1_Chan#0_DIMM#0 (channel:0)": (
        *("memory_error", "notice", None, 17),
    ),
    "EDAC MC0: UE page 0x3, offset 0x0, grain 128, row 1, labels DIMM_A:": (
        *("memory_error", "error", None, 1),
    ),
    "Memory failure: 0x9a1b: recovery action for dirty LRU page: Recovered": (
        *("memory_error", "error", None, 1),
    ),
    # processors
    "mce: [Hardware Error]: Machine check events logged": (*("machine_check", "notice", None, 1),),
    "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010092": (
        *("machine_check", "notice", None, 1),
    ),
    "mce: [Hardware Error]: CPU 3: Machine Check Exception: 4 Bank 5: be00000000800400": (
        *("machine_check", "critical", None, 1),
    ),
    "[Hardware Error]: Uncorrected, software restartable error.": (
        *("machine_check", "error", None, 1),
    ),
    # network cards
    "mlx5_core 0000:9a:00.0: poll_health:812:(pid 0): device's health compromised - reached": (
        *("nic_error", "critical", "0000:9a:00", 1),
    ),
    "mlx5_core 0000:9a:00.0: print_health_info:425:(pid 9): Health issue observed, firmware "
    "internal error, severity(4) WARNING:": ("nic_error", "warning", "0000:9a:00", 1),
    "mlx5_core 0000:9a:00.0: wait_func:1151:(pid 77): ACCESS_REG(0x805) timeout. Will cause a "
    "leak of a command resource": ("nic_error", "error", "0000:9a:00", 1),
    "mlx5_core 0000:9a:00.0 ens9: TX timeout detected": ("nic_error", "error", "0000:9a:00", 1),
    "mlx5_core: probe of 0000:9a:00.1 failed with error -12": (
        *("nic_error", "critical", "0000:9a:00", 1),
    ),
    "mlx5_core 0000:9a:00.0 ens9: Link down": ("nic_error", "warning", "0000:9a:00", 1),
    "mlx5_core 0000:9a:00.0 ens9: Link up": ("nic_error", "ok", "0000:9a:00", 1),
}
NO_ERRORS = (
    "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    "pcieport 0000:40:01.1: AER: enabled with IRQ 55",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0",
    "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR",
    "mce: CPU supports 22 MCE banks",
    "mlx5_core 0000:9a:00.0: mlx5_pcie_event:301:(pid 10): PCIe slot advertised sufficient power",
    "mlx5_core 0000:9a:00.0: firmware version: 20.31.1014",
    "EDAC MC0: CE a [7]: segfault at 0 ip 0",  # a user's program has this name
)


@pytest.mark.parametrize("message", CASES)
def test_hardware_errors_have_severity(message: str) -> None:
    error = parse_hardware_error(message)
    assert error is not None
    assert (error.kind, error.severity, error.pci, error.count) == CASES[message]


@pytest.mark.parametrize("message", NO_ERRORS)
def test_other_messages_are_no_errors(message: str) -> None:
    assert parse_hardware_error(message) is None


@pytest.mark.parametrize(
    ("kind", "section", "device"),
    [
        ("pcie_error", "PCIe error", ["  device_id: 0000:5e:00.0"]),
        ("memory_error", "memory error", []),
        ("machine_check", "general processor error", []),
    ],
)
@pytest.mark.parametrize(
    ("word", "severity"), [("corrected", "notice"), ("recoverable", "error"), ("fatal", "critical")]
)
def test_firmware_records_are_one_event(
    kind: str, section: str, device: list[str], word: str, severity: str
) -> None:
    lines = [
        "Hardware error from APEI Generic Hardware Error Source: 4",
        f"event severity: {word}",
        f" Error 0, type: {word}",
        f"  section_type: {section}",
        "  version: 3.0",
        *device,
        "  vendor_id: 0x10de, device_id: 0x20b0",
    ]
    log = parse_kernel_log("".join(f"[ 9.5] {{7}}[Hardware Error]: {line}\n" for line in lines))
    assert [(event.kind, event.severity) for event in log.events] == [(kind, severity)]
    assert log.events[0].pci == ("0000:5e:00" if device else None)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.sampled_from(["a", "b"])), max_size=30))
def test_folding_keeps_the_sum(errors: list[tuple[int, str]]) -> None:
    rows = [
        {"kind": "pcie_error", "severity": "notice", "pci": pci, "timestamp": time, "count": 3}
        for time, pci in errors
    ]
    folded = fold_notices(rows)
    assert sum(row["count"] for row in folded) == 3 * len(rows)
    assert len(folded) == len({(time // (60 * 10**9), pci) for time, pci in errors})


def test_uncorrected_errors_are_not_folded() -> None:
    row = {"kind": "pcie_error", "severity": "error", "timestamp": 5, "count": 1}
    assert fold_notices([row, row]) == [row, row]


BANK = "[Hardware Error]: CPU:7 (19:11:0) MC{bank}_STATUS[Over|CE|MiscV|-|SyndV]: {status:#x}"
HEADS = {
    "Corrected error, no action required.": "notice",
    "Uncorrected, software restartable error.": "error",
    "System Fatal error.": "critical",
}


@given(st.integers(0, 60), st.booleans(), st.booleans())
def test_lone_bank_register_tells_severity(bank: int, uncorrected: bool, corrupt: bool) -> None:
    status = (1 << 63) | (uncorrected << 61) | (corrupt << 57)
    line = BANK.format(bank=bank, status=status)
    (event,) = parse_kernel_log(f"[ 9.5] {line}\n[ 9.6] eth0: up\n").events
    severity = "notice" if not uncorrected else "critical" if corrupt else "error"
    assert (event.kind, event.severity) == ("machine_check", severity)


@pytest.mark.parametrize("head", HEADS)
def test_decoded_bank_is_one_event(head: str) -> None:
    lines = [f"[Hardware Error]: {head}", BANK.format(bank=3, status=1 << 61)]
    log = parse_kernel_log("".join(f"[ 9.5] {line}\n" for line in lines * 2))
    assert [event.severity for event in log.events] == [HEADS[head]] * 2


@pytest.mark.parametrize("reason", ["Fatal local machine check", "Fatal hardware error!"])
def test_panic_of_hardware_is_critical(reason: str) -> None:
    error = parse_hardware_error(f"Kernel panic - not syncing: {reason}")
    assert error is not None
    assert (error.kind, error.severity) == ("machine_check", "critical")
    assert parse_hardware_error("Kernel panic - not syncing: VFS: unable to mount") is None


@pytest.mark.parametrize("kind", ["memory_error", "machine_check"])
def test_decoded_announcement_is_not_counted(kind: str) -> None:
    said = {"kind": "machine_check", "severity": "notice", "timestamp": 5, "count": 1}
    said["raw"] = "mce: [Hardware Error]: Machine check events logged"
    decoded = {**said, "kind": kind, "raw": "decoded", "timestamp": 7}
    assert fold_notices([said, decoded]) == [decoded]
    assert fold_notices([said]) == [said]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=80))
def test_flood_over_polls_keeps_the_sum(seconds: list[int]) -> None:
    second, minute, folder = 10**9, 60 * 10**9, NoticeFolder()
    passed = []
    for at in sorted(seconds):
        row = {"kind": "pcie_error", "severity": "notice", "timestamp": at * second, "count": 3}
        passed += folder.fold([row], at * second)
    passed += folder.fold((), 400 * second)
    assert sum(row["count"] for row in passed) == 3 * len(seconds)
    assert passed[0]["timestamp"] == min(seconds) * second
    assert len(passed) <= 2 * len({at * second // minute for at in seconds})

"""Errors of PCIe, memory, processors and network cards that the kernel reports in its log.

They are no failures of a GPU: an error of a PCIe device names the GPU only if the device is one.
Errors of GPUs without Xids have the same form, but the kind GPU_ERROR.
Forms of the lines: Linux `drivers/pci/pcie/aer.c`, `drivers/edac/edac_mc.c`,
`arch/x86/kernel/cpu/mce/core.c`, `drivers/edac/mce_amd.c`, `drivers/firmware/efi/cper.c`,
`mm/memory-failure.c` and `drivers/net/ethernet/mellanox/mlx5/core`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address

__all__ = [
    "GPU_ERROR",
    "HARDWARE_KINDS",
    "DecodedBanks",
    "HardwareError",
    "HardwareKind",
    "PlatformErrors",
    "parse_hardware_error",
]

HardwareKind = Literal["pcie_error", "memory_error", "machine_check", "nic_error", "gpu_error"]
GPU_ERROR: Final = "gpu_error"
"""Error of a GPU whose vendor has no Xids, with a severity instead of a code."""
HARDWARE_KINDS: tuple[HardwareKind, ...] = (
    *("pcie_error", "memory_error"),
    *("machine_check", "nic_error", GPU_ERROR),
)

_UNCORRECTED, _CONTEXT_CORRUPT = 1 << 61, 1 << 57  # bits of an MCi_STATUS register
_ADDRESS = r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"


@dataclass(frozen=True, slots=True)
class HardwareError:
    """An error that a line reports.

    Attributes
    ----------
    kind : HardwareKind
    severity : CheckSeverity
        `notice`: corrected by the hardware, or nothing to do; `error`: not corrected; `critical`:
        fatal to what it hit; `ok`: ends what the same check of the device reported.
    pci : str or None
        Of the device, in the form of `parse_pci_address`.
    count : int
        Number of errors that the line represents.
    check : str or None
        What a later line can report as passed.
    """

    kind: HardwareKind
    severity: CheckSeverity
    pci: str | None = None
    count: int = 1
    check: str | None = None


def parse_hardware_error(message: str) -> HardwareError | None:
    """Return the error that a kernel message reports; None if it reports none.

    Parameters
    ----------
    message : str
        Without the prefix of its line. Only text from its first character counts.

    Examples
    --------
    >>> parse_hardware_error("EDAC MC1: 3 CE memory read error on DIMM_A2 (channel:0)").count
    3
    >>> parse_hardware_error("mlx5_core 0000:5e:00.0 ens1: Link down").severity
    'warning'
    """
    if _OF_PROCESS.match(message):
        return None
    for pattern, read in _FORMS:
        if match := pattern.match(message):
            return read(match)
    return None


def _address(match: re.Match[str]) -> str | None:
    return parse_pci_address(match.groupdict().get("pci") or "")


def _pcie(match: re.Match[str]) -> HardwareError:
    """Return the severity of `Corrected`, `Uncorrectable (Non-Fatal)` and the like."""
    words = match["words"].lower()
    severity: CheckSeverity = "error" if "non-fatal" in words else "critical"
    severity = "notice" if words.startswith("correct") else severity
    return HardwareError("pcie_error", severity, _address(match))


def _memory(match: re.Match[str]) -> HardwareError:
    severity: CheckSeverity = "notice" if match["class"] == "CE" else "error"
    return HardwareError("memory_error", severity, count=max(int(match["count"] or 1), 1))


def _poisoned_page(_: re.Match[str]) -> HardwareError:
    return HardwareError("memory_error", "error")


def _bank(match: re.Match[str]) -> HardwareError:
    """Return the error of a bank by its status register."""
    status = int(match["status"], 16)
    if not status & _UNCORRECTED:
        return HardwareError("machine_check", "notice")
    return HardwareError("machine_check", "critical" if status & _CONTEXT_CORRUPT else "error")


def _machine_check(severity: CheckSeverity) -> _Reader:
    return lambda _: HardwareError("machine_check", severity)


def _nic(severity: CheckSeverity) -> _Reader:
    return lambda match: HardwareError("nic_error", severity, _address(match))


def _port(severity: CheckSeverity, check: str) -> _Reader:
    """Return a reader of the state of a port, since a card has several."""
    return lambda match: HardwareError(
        "nic_error", severity, _address(match), check=f"{check} {match['port']}"
    )


def _health_issue(match: re.Match[str]) -> HardwareError:
    return HardwareError("nic_error", _SYSLOG_LEVELS[match["level"]], _address(match))


_Reader = Callable[[re.Match[str]], HardwareError]
# A message about a process starts with its name of up to 15 characters, which its user chose.
_OF_PROCESS = re.compile(r"[^\[\]]{0,15}\[\d+\]: ")
# `AER: Corrected error received: id=00e0` and `AER: Correctable error message received from
# 0000:3b:00.0`, by version, announce the line that is read here.
_PCIE = (
    rf"[\w-]+ {_ADDRESS}: (?:AER: )?PCIe Bus Error: "
    r"(?:severity=)?(?P<words>Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))"
)
_EDAC = r"EDAC (?:\w+ )?MC\d+: (?:(?P<count>\d{1,9}) )?(?P<class>[CU]E) "
_HARDWARE = r"(?:mce: )?\[Hardware Error\]: "
_BANK = (
    rf"{_HARDWARE}CPU ?\d+: Machine Check(?: Exception| Event)?:? \S+ Bank \d+: "
    r"(?P<status>[0-9a-f]{16})\b"
)
# `Machine check: ` with a reason and the panic are all that is left of some fatal errors.
_PANIC = r"Kernel panic - not syncing: (?:Fatal (?:local )?machine check|Fatal hardware error)"
_MLX5 = rf"mlx5_core(?:\.\S+)? {_ADDRESS}(?: [^\s:]+)?: "
# The driver puts `poll_health:825:(pid 0): `, or older ones the address before it, first.
_MLX5_CALL = _MLX5 + r"(?:\S+:\d+:\(pid \d+\): )?"
_LINK = rf"mlx5_core(?:\.\S+)? {_ADDRESS} (?P<port>[^\s:]+): Link "
_MODULE = r"Port module event: module (?P<port>\d+), Cable "
_DEAD_NIC = (
    r"(?:device's health compromised|Fatal error \d+ detected|unrecoverable hardware error|"
    r"health recovery f(?:low aborted|ailed)|handle_hca_cap failed|PCI slot is unavailable|"
    r"mlx5_(?:load|init)_one\w* failed)"
)
_STALLED_NIC = (
    r"(?:.*timeout\. Will cause a leak of a command resource|TX timeout detected|"
    r"NETDEV WATCHDOG: |Port module event\[error\])"
)
_STRAINED_NIC = r"(?:High temperature|Detected insufficient power|temp_warn)"
_HEALTH_ISSUE = r"Health issue observed, .*severity\(\d+\) (?P<level>[A-Z]+):"
_SYSLOG_LEVELS: dict[str, CheckSeverity] = {
    **dict.fromkeys(("EMERGENCY", "ALERT", "CRITICAL"), "critical"),
    **{"ERROR": "error", "WARNING": "warning"},
    **dict.fromkeys(("NOTICE", "INFO", "DEBUG"), "notice"),
}
# A port without a cable and a link that an administrator stops are no errors.
_FORMS: tuple[tuple[re.Pattern[str], _Reader], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (_PCIE, _pcie),
        (_EDAC, _memory),
        (r"Memory failure: 0x[0-9a-f]+: recovery action for ", _poisoned_page),
        (_BANK, _bank),
        (_HARDWARE + "Machine check events logged", _machine_check("notice")),
        (_HARDWARE + "(?:Corrected|Deferred) error", _machine_check("notice")),
        (_HARDWARE + "Uncorrected, software ", _machine_check("error")),
        (_HARDWARE + "System Fatal error", _machine_check("critical")),
        (_HARDWARE + "Machine check: ", _machine_check("critical")),
        (_PANIC, _machine_check("critical")),
        (_MLX5_CALL + _DEAD_NIC, _nic("critical")),
        (rf"mlx5_core: probe of {_ADDRESS} failed with error", _nic("critical")),
        (_MLX5_CALL + _HEALTH_ISSUE, _health_issue),
        (_MLX5_CALL + _STALLED_NIC, _nic("error")),
        (r"NETDEV WATCHDOG: \S+ \(mlx5_core\): transmit queue ", _nic("error")),
        (_MLX5_CALL + _STRAINED_NIC, _nic("warning")),
        (_MLX5_CALL + rf"{_MODULE}unplugged", _port("notice", "cable")),
        (_MLX5_CALL + rf"{_MODULE}plugged", _port("ok", "cable")),
        (_LINK + "down$", _port("warning", "link")),
        (_LINK + "up$", _port("ok", "link")),
    )
)

_RECORD = re.compile(r"\{(?P<number>\d{1,9})\}\[Hardware Error\]: +(?P<text>.*)")
_RECORD_SEVERITIES: dict[str, CheckSeverity] = {
    **{"corrected": "notice", "info": "notice"},
    **{"recoverable": "error", "fatal": "critical"},
}
_AMD_BANK = re.compile(
    r"(?:mce: )?\[Hardware Error\]: CPU:\d+ \([0-9a-f:]+\) MC\d+_STATUS\[[^\]]*\]: "
    r"0x(?P<status>[0-9a-f]{1,16})\b"
)
_DECODED = re.compile(
    r"(?:mce: )?\[Hardware Error\]: (?:Corrected|Deferred|Uncorrected|System Fatal)\b"
)
_SECTIONS: tuple[tuple[str, HardwareKind], ...] = (
    ("memory", "memory_error"),
    ("PCIe", "pcie_error"),
)


@dataclass(slots=True)
class DecodedBanks:
    """Reader of the lines in which the kernel names the registers of an AMD bank.

    The line before it tells the severity. Where that is missing, as in the output of `grep`, the
    register tells it.
    """

    _is_announced: bool = False

    def error(self, message: str) -> HardwareError | None:
        """Return the error of a register that no line before it reported."""
        if _DECODED.match(message):
            self._is_announced = True
            return None
        match = _AMD_BANK.match(message)
        if match is None:
            return None
        error = None if self._is_announced else _bank(match)
        self._is_announced = False
        return error


@dataclass(slots=True)
class PlatformErrors:
    """Reader of errors that the firmware hands to the kernel (ACPI APEI), a line at a time.

    Servers whose firmware handles errors first report them in no other form.
    """

    _severity: dict[str, CheckSeverity] = field(default_factory=dict)
    _pcie: str = ""

    def error(self, message: str) -> HardwareError | None:
        """Return the error that a line completes."""
        match = _RECORD.match(message)
        if match is None:
            return None
        number, (name, _, value) = match["number"], match["text"].partition(": ")
        if name.endswith(", type") and value in _RECORD_SEVERITIES:
            self._severity = {number: _RECORD_SEVERITIES[value]}
        severity = self._severity.get(number, "error")
        if name == "section_type":
            kinds = (kind for word, kind in _SECTIONS if value.startswith(word))
            kind: HardwareKind = next(kinds, "machine_check")
            self._pcie = number if kind == "pcie_error" else ""
            return None if self._pcie else HardwareError(kind, severity)
        if name == "device_id" and self._pcie == number:
            self._pcie = ""
            return HardwareError("pcie_error", severity, parse_pci_address(value))
        return None

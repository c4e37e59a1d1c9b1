"""Events of the kernel log: Xids, lost GPUs and related faults, and errors of other hardware."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.telemetry.parsers.gpu_reading import parse_pci_address
from forewarn.features.telemetry.parsers.hardware_event import (
    HardwareError,
    HardwareKind,
    parse_hardware_error,
)
from forewarn.features.telemetry.parsers.log_line import LogLine
from forewarn.features.telemetry.parsers.recovery_action import parse_recovery_action
from forewarn.features.xid_catalogue import NVLINK_XIDS

__all__ = ["MAX_COUNT", "KernelEvent", "Kind", "Severity", "hardware_event", "parse_event"]

Kind = Literal["xid", "sxid", "lost", "init_failed", "suppressed"] | HardwareKind
Severity = Literal["fatal", "nonfatal"] | CheckSeverity

# Larger counts are invalid, and their sums would not fit into 64 bits.
MAX_COUNT = 10**9
_MAX_MESSAGE = 4000  # characters; the patterns take quadratic time

_REPEATED = re.compile(
    r"message repeated (?P<count>\d{1,9}) times: \[ ?(?:\[ *[\d.]+\] )?(?P<message>.*?)\]?"
)
# The device name that the kernel puts before a driver's message.
_DEVICE = re.compile(r"nvidia(?: [0-9a-f:.]{7,16})?: (?=NVRM: )")
# All patterns match from the first character, since text within a line may be quoted. Users choose
# names of processes and files: the kernel prints `NVRM: a[7]: segfault ... in Xid (...)`. Therefore
# no bracket may precede a match.
_XID = re.compile(r"NVRM:[^\[\]]*?\bXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5})\b,? ?(?P<rest>.*)")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \((?P<pci>[^)]*)\): (?P<code>\d{1,5}), ?(?P<rest>.*)")
_LOST = re.compile(
    r"NVRM:[^\[\]]*?\bGPU (?:at )?(?P<pci>[0-9A-Fa-fPCI:.]{7,}).*(?:off the bus|is lost)"
)
_INIT = re.compile(  # older drivers print no address
    r"NVRM: (?:GPU (?P<pci>[0-9A-Fa-f:.]{7,}): )?(?P<caller>RmInitAdapter|rm_init_adapter) failed"
)
_SUPPRESSED = re.compile(r"(?:NVRM|nvidia)[^\[\]]*?(?P<count>\d{1,9}) callbacks suppressed")
_PROCESS = re.compile(r"pid='?(?P<pid>\d{1,10}|<unknown>)'?(?:, name=(?P<name>[^,]*))?,? ?")
# NVLink errors (74, 144 to 150) and switch errors include a word for their severity.
_SEVERITY = re.compile(r"(?:[A-Z0-9_]+ |NVLink: )?(?P<non>non-?)?fatal\b", re.IGNORECASE)
_GRADED_XIDS = (74, *NVLINK_XIDS)
_RECOVERY_XID = 154
_RECOVERY = re.compile(
    r"recovery action changed from .* to (?:0x(?P<number>\d) )?\((?P<words>.*)\)"
)


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """An event of a GPU, a switch or other hardware, as the kernel reported it.

    Attributes
    ----------
    kind : {"xid", "sxid", "lost", "init_failed", "suppressed"} or HardwareKind
        `lost`: a GPU off the bus without an Xid. `init_failed`: a GPU that the driver could not
        start. `suppressed`: messages that the kernel did not print, so that the log is incomplete.
    line : LogLine
    code : int or None
        Of the Xid or SXid.
    pci : str or None
        In the form of `parse_pci_address`.
    pid, process : int and str, or None
        If the driver knew them.
    text : str
        The rest of the message.
    count : int
        Number of messages that the event represents.
    severity : {"fatal", "nonfatal"}, CheckSeverity or None
        As reported by the driver; of other hardware a CheckSeverity.
    action : str or None
        The recovery that the driver requests from now on (Xid 154), one of EVENT_ACTIONS.
    check : str or None
        What a later event of the same device with severity `ok` ends.
    """

    kind: Kind
    line: LogLine
    code: int | None = None
    pci: str | None = None
    pid: int | None = None
    process: str | None = None
    text: str = ""
    count: int = 1
    severity: Severity | None = None
    action: str | None = None
    check: str | None = None


def hardware_event(error: HardwareError, line: LogLine) -> KernelEvent:
    """Return the event of an error of other hardware than a GPU's."""
    return KernelEvent(
        error.kind,
        line,
        pci=error.pci,
        text=line.message,
        count=error.count,
        severity=error.severity,
        check=error.check,
    )


def parse_event(line: LogLine) -> KernelEvent | None:
    """Return the event of a line; None if it has no known event."""
    message, count = line.message[:_MAX_MESSAGE], 1
    if repeated := _REPEATED.fullmatch(message):  # log daemons never nest it
        message, count = repeated["message"], int(repeated["count"])
    if device := _DEVICE.match(message):
        message = message[device.end() :]
    for pattern, read in _FORMS:
        if match := pattern.match(message):
            event = read(match, line)
            return event and replace(event, count=min(event.count * count, MAX_COUNT))
    if error := parse_hardware_error(message):
        event = hardware_event(error, line)
        return replace(event, count=min(event.count * count, MAX_COUNT))
    return None


def _xid(match: re.Match[str], line: LogLine) -> KernelEvent | None:
    pci, code, rest = parse_pci_address(match["pci"]), int(match["code"]), match["rest"]
    if pci is None:
        return None
    kind: Kind = "xid" if match.re is _XID else "sxid"
    pid = process = None
    if owner := _PROCESS.match(rest):
        pid = int(owner["pid"]) if owner["pid"].isdigit() else None
        process = None if owner["name"] in (None, "", "<unknown>") else owner["name"]
        rest = rest[owner.end() :]
    rest = rest.strip()
    return KernelEvent(
        kind, line, code, pci, pid, process, rest,
        severity=_severity(rest) if kind == "sxid" or code in _GRADED_XIDS else None,
        action=_action(rest) if kind == "xid" and code == _RECOVERY_XID else None,
    )  # fmt: skip


def _severity(text: str) -> Severity | None:
    match = _SEVERITY.match(text)
    if match is None:
        return None
    return "nonfatal" if match["non"] else "fatal"


def _action(text: str) -> str | None:
    match = _RECOVERY.search(text)
    return match and parse_recovery_action(match["number"] or match["words"])


def _lost(match: re.Match[str], line: LogLine) -> KernelEvent | None:
    pci = parse_pci_address(match["pci"])
    return (pci and KernelEvent("lost", line, pci=pci, text=line.message)) or None


def _init_failed(match: re.Match[str], line: LogLine) -> KernelEvent:
    pci = parse_pci_address(match["pci"] or "")
    return KernelEvent("init_failed", line, pci=pci, text=match["caller"])


def _suppressed(match: re.Match[str], line: LogLine) -> KernelEvent:
    return KernelEvent("suppressed", line, text=line.message, count=int(match["count"]))


_FORMS: tuple[
    tuple[re.Pattern[str], Callable[[re.Match[str], LogLine], KernelEvent | None]], ...
] = (
    (_XID, _xid),
    (_SXID, _xid),
    (_LOST, _lost),
    (_INIT, _init_failed),
    (_SUPPRESSED, _suppressed),
)

"""Rows of readings and events, as agents send them and files yield them.

Rows are plain dictionaries, built without numpy or Arrow to keep agents small. `telemetry_tables`
converts them to tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from forewarn.features.telemetry.checks.check_result import CHECK_SEVERITIES
from forewarn.features.telemetry.network.port_rates import PORT_RATES
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.parsers.hardware_event import HARDWARE_KINDS
from forewarn.features.telemetry.parsers.proc_files import HostReading

if TYPE_CHECKING:
    from forewarn.features.telemetry.checks.check_result import CheckResult
    from forewarn.features.telemetry.parsers.kernel_event import KernelEvent

__all__ = [
    "COUNTERS",
    "EVENT_KINDS",
    "EVENT_SEVERITIES",
    "GAUGES",
    "HOST_NUMBERS",
    "OPTIONAL_NUMBERS",
    "HostState",
    "check_row",
    "event_id",
    "event_row",
    "finding_row",
    "is_host_name",
    "number_repeats",
    "reading_row",
    "state_row",
]

GAUGES = (
    "temperature_gpu",
    "power_draw",
    "utilization_gpu",
    "utilization_memory",
    "memory_used",
    "clock_sm",
)
COUNTERS = ("ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays")
HOST_NUMBERS = ("host_uptime", "host_load", "host_memory_available")
# Numbers that only some sources have; records have the columns that occur in a reading.
OPTIONAL_NUMBERS = (
    "energy_consumption",
    "row_remap_failure",
    "recovery_action",
    "throttle_hardware",
    "nvlink_errors",
    "sm_active",
    "tensor_active",
    "dram_active",
    "gpu_error",
    *PORT_RATES,
)
# From the kernel log: xid, sxid, lost, init_failed, suppressed, HARDWARE_KINDS. From the driver's
# tools: lost, needs_reset. From health checks: check. Additionally from an agent: back, hang,
# blind, gap.
EVENT_KINDS = (
    *("xid", "sxid", "lost", "init_failed", "needs_reset", "check"),
    *("suppressed", "back", "hang", "blind", "gap"),
    *HARDWARE_KINDS,
)
# As reported by the driver, a health check or the kernel; other events have no severity.
EVENT_SEVERITIES = ("fatal", "nonfatal", *CHECK_SEVERITIES)

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_MIB = 1024 * 1024
_MAX_TEXT_LENGTH, _MAX_NAME_LENGTH = (
    4000,
    200,
)  # characters of a line, and of a process name
_UNKNOWN, _NO_GPU = HostReading(), GpuReading()


def is_host_name(text: str) -> bool:
    """Tell whether a text is a valid host name: no path separator or blank, at most 128 long.

    Examples
    --------
    >>> is_host_name("gpu-17.rack-3"), is_host_name("../etc"), is_host_name("a/b")
    (True, False, False)
    """
    return bool(_HOST_NAME.fullmatch(text)) and ".." not in text


@dataclass(frozen=True, slots=True)
class HostState:
    """What all GPUs of one reading share.

    Attributes
    ----------
    machine_id : str or None
    time : int
        Nanoseconds since 1970 UTC.
    proc : HostReading
    log_read : bool
        The kernel log was read up to this time, so that without an Xid in it there was none.
    """

    machine_id: str | None
    time: int
    proc: HostReading = _UNKNOWN
    log_read: bool = False


def reading_row(reading: GpuReading, host: HostState) -> dict[str, Any]:
    """Return the row of one GPU; unknown values are omitted."""
    row: dict[str, Any] = {
        "timestamp": host.time,
        "machine_id": host.machine_id,
        "gpu_serial": reading.serial,
        "gpu_uuid": reading.uuid,
        "pci": reading.pci,
        "slot": reading.slot,
        **reading.texts,
        **reading.numbers,
        "boot_time": host.proc.boot_time,
        "host_uptime": host.proc.uptime,
        "host_load": host.proc.load[0] if host.proc.load else None,
        "log_read": host.log_read,
        **host.proc.ports,
    }
    if "available" in host.proc.memory:
        row["host_memory_available"] = host.proc.memory["available"] / _MIB
    return {name: value for name, value in row.items() if value is not None}


def event_id(*parts: object) -> str:
    """Return an identifier of an event that is the same each time the event is sent.

    Examples
    --------
    >>> event_id("node-1", "boot", 7) == event_id("node-1", "boot", 7)
    True
    """
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def event_row(event: KernelEvent, machine_id: str | None, name: str) -> dict[str, Any]:
    """Return the row of a kernel log event with a time; `name` is its `event_id`."""
    row = {
        "timestamp": event.line.time,
        "machine_id": machine_id,
        "id": name,
        "kind": event.kind,
        "code": event.code,
        "pci": event.pci,
        "pid": event.pid,
        "process": event.process and event.process[:_MAX_NAME_LENGTH],
        "count": event.count,
        "check": event.check,
        "severity": event.severity,
        "action": event.action,
        "raw": event.line.message[:_MAX_TEXT_LENGTH],
    }
    return {key: value for key, value in row.items() if value is not None}


def finding_row(
    kind: str, text: str, host: HostState, gpu: GpuReading | None = None
) -> dict[str, Any]:
    """Return the row of a finding of the agent itself, about a GPU or its host.

    The text is part of the event id: another wording would duplicate events that are read again.
    """
    row: dict[str, Any] = {
        "timestamp": host.time,
        "machine_id": host.machine_id,
        "id": event_id(host.machine_id, kind, host.time, gpu and (gpu.serial, gpu.uuid), text),
        "kind": kind,
        "count": 1,
        "action": gpu.action if gpu is not None and kind == "needs_reset" else None,
        "raw": text[:_MAX_TEXT_LENGTH],
    }
    if gpu is not None:
        row |= {"gpu_serial": gpu.serial, "gpu_uuid": gpu.uuid, "pci": gpu.pci}
    return {key: value for key, value in row.items() if value is not None}


def check_row(result: CheckResult, host: HostState) -> dict[str, Any]:
    """Return the row of the result of a health check; `slot` is there for `GpuNames`."""
    gpu = result.gpu or _NO_GPU
    names = gpu.serial or gpu.uuid or gpu.pci or gpu.slot
    check = result.check[:_MAX_NAME_LENGTH]
    row: dict[str, Any] = {
        "timestamp": host.time,
        "machine_id": host.machine_id,
        "id": event_id(host.machine_id, result.kind, check, host.time, names, result.text),
        "kind": result.kind,
        "check": check,
        "severity": result.severity,
        "count": 1,
        "gpu_serial": gpu.serial,
        "gpu_uuid": gpu.uuid,
        "pci": gpu.pci,
        "slot": gpu.slot,
        "raw": result.text[:_MAX_TEXT_LENGTH],
    }
    return {key: value for key, value in row.items() if value is not None}


def state_row(reading: GpuReading, host: HostState) -> dict[str, Any] | None:
    """Return the row of a GPU state that the driver reports as text; None if there is none.

    The row has the address, since nothing else is known of a lost GPU.
    """
    gpu = reading.pci or reading.serial or reading.uuid
    if gpu is None:  # an unidentified GPU of the host
        return None
    if reading.lost:
        return finding_row("lost", f"nvidia-smi: GPU {gpu} is lost", host, reading)
    if reading.needs_recovery:
        text = f"the driver asks for a recovery of GPU {gpu}: {reading.action}"
        return finding_row("needs_reset", text, host, reading)
    if reading.numbers.get("row_remap_failure"):
        text = f"a remapping of rows of GPU {gpu} failed"
        return finding_row("needs_reset", text, host, replace(reading, action=None))
    return None


def number_repeats(events: Iterable[KernelEvent]) -> Iterator[tuple[KernelEvent, int]]:
    """Yield events with the number of earlier ones of equal time and text.

    A log can repeat itself. Two copies of one log number each event equally.
    """
    seen: dict[tuple[int | None, str], int] = {}
    for event in events:
        key = (event.line.time, event.line.message)
        number = seen.get(key, 0)
        seen[key] = number + 1
        yield event, number

"""Events of a GPU from exporter metrics: Xids, recovery actions, failed row remappings, faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forewarn.features.telemetry.ascend.fault_codes import fault_level
from forewarn.features.telemetry.gauge_events import (
    Change,
    Sample,
    detect_changes,
    detect_ends,
    detect_increases,
)
from forewarn.features.telemetry.parsers.dcgm_metrics import FAULT_CODE
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels
from forewarn.features.telemetry.parsers.recovery_action import EVENT_ACTIONS
from forewarn.features.telemetry.telemetry_rows import event_id
from forewarn.features.time_units import MINUTE

__all__ = ["XID_WINDOW", "exporter_events"]

XID_WINDOW = 5 * MINUTE  # default window of the exporter's Xid count
_RECENT_WINDOW = 10 * MINUTE
_MAX_CODE = 2**31 - 1
_MAX_FAULT_CODE = 2**32 - 1


def exporter_events(
    gpu: GpuLabels,
    host: str | None,
    states: Mapping[str, Sequence[Sample]],
    counted: Mapping[int, Sequence[Sample]],
) -> Iterator[dict[str, Any]]:
    """Yield rows of EVENTS, each at the first sample that shows the event.

    Parameters
    ----------
    gpu : GpuLabels
    host : str or None
    states : mapping of str to sequence of Sample
        Samples of `xid`, `recovery_action`, `row_remap_failure` and `fault_code`.
    counted : mapping of int to sequence of Sample
        The exporter's windowed Xid count, by code.
    """
    for code, change, count in _xids(states.get("xid", ()), counted):
        text = f"dcgm-exporter shows Xid {code}"
        more = {"kind": "xid", "code": code, "count": count}
        yield _event_row(gpu, host, f"xid {code}", change.time, text, more)
    actions = states.get("recovery_action", ())
    for change in detect_changes(actions, recent=_RECENT_WINDOW, at_start=True):
        if 0 < change.value < len(EVENT_ACTIONS):
            action = EVENT_ACTIONS[int(change.value)]
            text = f"dcgm-exporter: the driver asks for {action.replace('_', ' ')}"
            more = {"kind": "needs_reset", "action": action}
            yield _event_row(gpu, host, action, change.time, text, more)
    for change in detect_changes(
        states.get("row_remap_failure", ()), recent=_RECENT_WINDOW, at_start=True
    ):
        text = "dcgm-exporter: row remapping failed"
        yield _event_row(gpu, host, "remap", change.time, text, {"kind": "needs_reset"})
    faults = states.get(FAULT_CODE, ())
    for change in detect_changes(faults, recent=_RECENT_WINDOW, at_start=True):
        yield _fault_row(gpu, host, change)
    for change in detect_ends(faults, recent=_RECENT_WINDOW):
        yield _fault_row(gpu, host, change, is_over=True)


def _xids(
    gauge: Sequence[Sample], counted: Mapping[int, Sequence[Sample]]
) -> Iterator[tuple[int, Change, int]]:
    """Yield code, time and number of Xids; one seen by gauge and count gets the earlier time.

    The gauge shows only the last Xid and hides a repetition.
    """
    late = {
        change
        for change in detect_changes(gauge, recent=_RECENT_WINDOW)
        if 0 < change.value <= _MAX_CODE
    }
    for code, samples in counted.items():
        for rise in detect_increases(samples, window=XID_WINDOW):
            same = {
                change
                for change in late
                if change.value == code and abs(change.time - rise.time) <= XID_WINDOW
            }
            late -= same
            earliest = min({rise.time, *(change.time for change in same)})
            yield code, Change(earliest, rise.value), int(rise.value)
    for change in sorted(late):
        yield int(change.value), change, 1


def _fault_row(
    gpu: GpuLabels, host: str | None, change: Change, *, is_over: bool = False
) -> dict[str, Any]:
    """Return the row of a fault code of an NPU, which some versions write as a signed number."""
    code = f"{int(change.value) & _MAX_FAULT_CODE:08X}"
    level = fault_level(code)
    text = f"npu-exporter shows fault {code} ({level.name}: {level.remedy})"
    text = f"npu-exporter no longer shows fault {code}" if is_over else text
    severity = "ok" if is_over else level.severity
    more = {"kind": GPU_ERROR, "severity": severity, "check": f"{code} {level.name}"}
    return _event_row(gpu, host, f"fault {code} {severity}", change.time, text, more)


def _event_row(
    gpu: GpuLabels, host: str | None, what: str, time: int, text: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    row = {
        "timestamp": time,
        "machine_id": host,
        "id": event_id("dcgm", gpu.gpu or (host, gpu.slot), what, time),
        "gpu_serial": gpu.serial,
        "gpu_uuid": gpu.uuid,
        "pci": gpu.pci,
        "count": 1,
        "raw": text,
        **more,
    }
    return {name: value for name, value in row.items() if value is not None}

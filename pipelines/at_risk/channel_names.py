"""Display names of known columns; other columns are shown by their own name."""

from __future__ import annotations

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.rendering.templates import visible

__all__ = ["NOUNS", "NO_SPAN", "UNITS", "XIDS", "counted_noun", "title"]

NO_SPAN = Nanoseconds(0)
UNITS = {
    "temperature_gpu": " °C",
    "power_draw": " W",
    "utilization_gpu": " %",
    "utilization_memory": " %",
    "memory_used": " MiB",
    "clock_sm": " MHz",
    "pcie_link_width": " lanes",
}
NOUNS = {
    "temperature_gpu": "temperature",
    "power_draw": "power draw",
    "utilization_gpu": "utilization",
    "utilization_memory": "memory utilization",
    "memory_used": "memory in use",
    "clock_sm": "SM clock",
    "pcie_link_width": "PCIe link width",
    "expiration_date": "end of warranty",
    "gpu_type": "GPU type",
    "driver_version": "driver",
    "data_center": "data center",
    "xid": "Xid",
    "gpu_error": "GPU error",
    "ecc_corrected": "corrected memory errors",
    "ecc_uncorrected": "uncorrected memory errors",
    "rows_remapped": "remapped rows",
    "pcie_replays": "PCIe replays",
}
# Singular and plural of counted events.
_COUNTER_NOUNS = {
    "ecc_corrected": ("corrected memory error", "corrected memory errors"),
    "ecc_uncorrected": ("uncorrected memory error", "uncorrected memory errors"),
    "rows_remapped": ("row remapped", "rows remapped"),
    "pcie_replays": ("PCIe replay", "PCIe replays"),
}
# Short descriptions of frequent Xids, from NVIDIA's catalogue.
XIDS = {
    "13": "error of an application",
    "31": "memory fault of an application",
    "43": "an application was stopped",
    "45": "an application was ended",
    "48": "uncorrectable memory error",
    "54": "power cable or supply",
    "61": "firmware halted, with a warning",
    "62": "firmware halted",
    "63": "row remapped",
    "64": "row could not be remapped",
    "74": "NVLink error",
    "79": "fell off the bus",
    "92": "many corrected memory errors",
    "94": "contained memory error",
    "95": "uncontained memory error",
    "109": "context switch timed out",
    "119": "firmware did not answer",
    "120": "firmware error",
}


def title(column: str) -> str:
    """Return the display name of a column; unknown columns keep their name.

    Examples
    --------
    >>> title("clock_sm"), title("fan_speed")
    ('SM clock', 'fan_speed')
    """
    return NOUNS.get(column, visible(column, limit=60))


def counted_noun(column: str, n: float) -> str:
    """Return the noun for n events of a counter; empty if unknown.

    Examples
    --------
    >>> counted_noun("rows_remapped", 1), counted_noun("fan_stops", 2)
    ('row remapped', '')
    """
    singular, plural = _COUNTER_NOUNS.get(column, ("", ""))
    return singular if n == 1 else plural

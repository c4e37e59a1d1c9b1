"""Display names of known columns; other columns are shown by their own name."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.rendering.templates import visible

__all__ = ["NOUNS", "NO_SPAN", "UNITS", "counted_noun", "title", "xid_names"]

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
_UNUSED: Final = "not in use"


@functools.cache
def xid_names() -> dict[str, str]:
    """Return the name of each Xid in use, by its number: those of the default policy."""
    policy = files("forewarn.pipelines.incidents.replay") / "policy.toml"
    codes = tomllib.loads(policy.read_text(encoding="utf-8"))["xids"]
    return {code: row["name"] for code, row in codes.items() if row["name"] != _UNUSED}


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

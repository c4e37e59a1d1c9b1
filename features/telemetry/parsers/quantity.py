"""Numbers with units as nvidia-smi prints them, converted to the units of record columns."""

from __future__ import annotations

import re

__all__ = ["is_absent", "parse_quantity"]

# Unit -> factor to the unit of formats.md, section 1.
_UNITS = {
    "power_draw": {"": 1.0, "W": 1.0, "mW": 1e-3, "kW": 1e3},
    "memory_used": {"": 1.0, "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0},
    "clock_sm": {"": 1.0, "MHz": 1.0, "GHz": 1e3},
    "utilization_gpu": {"": 1.0, "%": 1.0},
    "utilization_memory": {"": 1.0, "%": 1.0},
    "temperature_gpu": {"": 1.0, "C": 1.0},
    "pcie_link_width": {"": 1.0, "x": 1.0},
}
_PLAIN = {"": 1.0}
_WORDS = {
    "row_remap_failure": {"yes": 1.0, "no": 0.0},
    "throttle_hardware": {"active": 1.0, "not active": 0.0},
}
_REASONS = re.compile(r"0x[0-9A-Fa-f]{1,16}")
# NVML's bits of hardware slowdown: any kind, thermal, power supply.
_HARDWARE_SLOWDOWN = 0x08 | 0x40 | 0x80
_VALUE = re.compile(r"(?P<number>-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?P<unit>[A-Za-z%]{0,4})")
# Texts for a value that the card or the driver does not have.
_ABSENT = re.compile(
    r"|N/A|\[N/A\]|\[?Not Supported\]?|\[?Not Available\]?|\[Requested functionality has been.*",
    re.IGNORECASE,
)


def is_absent(text: str) -> bool:
    """Tell whether a driver reports a value as absent; an error is not absence.

    Examples
    --------
    >>> is_absent("[N/A]"), is_absent("[Unknown Error]")
    (True, False)
    """
    return bool(_ABSENT.fullmatch(text))


def parse_quantity(column: str, text: str, unit: str = "") -> float | None:
    """Return a number in the unit of a record column; None if it has no known unit.

    Parameters
    ----------
    column : str
        Of formats.md, section 1.
    text : str
        Such as "69.85 W".
    unit : str
        Default unit of `text`.

    Examples
    --------
    >>> parse_quantity("memory_used", "2", "GiB"), parse_quantity("power_draw", "41 C")
    (2048.0, None)
    >>> parse_quantity("row_remap_failure", "Yes")
    1.0
    >>> parse_quantity("throttle_hardware", "0x0000000000000048")
    1.0
    """
    if column in _WORDS and (word := _WORDS[column].get(text.lower())) is not None:
        return word
    if column == "throttle_hardware" and _REASONS.fullmatch(text):
        return float(bool(int(text, 16) & _HARDWARE_SLOWDOWN))
    match = _VALUE.fullmatch(text)
    factor = match and _UNITS.get(column, _PLAIN).get(match["unit"] or unit)
    return None if not match or factor is None else float(match["number"]) * factor

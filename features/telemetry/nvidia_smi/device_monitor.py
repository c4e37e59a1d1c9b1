"""GPUs in the output of `nvidia-smi dmon`, which names them by their index alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.quantity import parse_quantity
from forewarn.features.telemetry.parsers.script_time import (
    ScriptTime,
    split_time,
    stamped_lines,
    with_script_time,
)
from forewarn.features.time_units import DAY

__all__ = ["is_device_monitor", "parse_device_monitor"]

# Heading -> record column; `pclk` is the clock of the SMs.
_COLUMNS = {
    "pwr": "power_draw",
    "gtemp": "temperature_gpu",
    "temp": "temperature_gpu",
    "sm": "utilization_gpu",
    "mem": "utilization_memory",
    "fb": "memory_used",
    "pclk": "clock_sm",
    "sbecc": "ecc_corrected",
    "dbecc": "ecc_uncorrected",
    "pci": "pcie_replays",
}
_UNITS = {"MB": "MiB"}  # as dmon calls it
_PLAIN_UNITS = ("errs", "bool", "-", "#")
_HEADING = re.compile(r"# *(?:Date[, ]+)?(?:Time[, ]+)?gpu[, ]+(?!pid\b)", re.IGNORECASE)
_PROCESSES = re.compile(r"# *(?:Date[, ]+)?(?:Time[, ]+)?gpu[, ]+pid\b", re.IGNORECASE)


def is_device_monitor(text: str) -> bool:
    """Tell whether a text has the heading of `dmon`, and not that of `pmon`.

    Examples
    --------
    >>> is_device_monitor("# gpu    pwr  gtemp"), is_device_monitor("# gpu   pid  type")
    (True, False)
    """
    return bool(_HEADING.search(text)) and not _PROCESSES.search(text)


@dataclass(slots=True)
class _Heading:
    """Names and units of the columns."""

    names: Sequence[str]
    units: Mapping[str, str]


def parse_device_monitor(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every line of the output.

    A time comes from the columns `Date` and `Time` (`-o DT`), from before the line, or from the
    last line that holds nothing but a time.

    Returns
    -------
    list of GpuReading
    Unread
        Lines that do not fit the heading, values in unknown units.
    """
    unread, readings = Unread(), []
    heading = _Heading((), {})
    for line, last in stamped_lines(text):
        own, rest = split_time(line)
        if "#" in line:
            heading = _with_heading(heading, line[line.index("#") + 1 :])
            continue
        cells = _cells(line)
        if len(cells) != len(heading.names) and own is not None:
            cells, last = _cells(rest), own
        if len(cells) != len(heading.names) or not cells:
            unread.add("a line that does not fit the heading of dmon", line)
            continue
        values = dict(zip(heading.names, cells, strict=True))
        readings.append(_reading(values, heading.units, last, unread))
    return readings, unread


def _cells(line: str) -> list[str]:
    """Split a line at commas or blanks."""
    parts = line.split(",") if "," in line else line.split()
    return [part.strip() for part in parts]


def _with_heading(before: _Heading, text: str) -> _Heading:
    """Return the heading after a line of it: names first, then units."""
    cells = [cell.lower() for cell in _cells(text)]
    if "gpu" in cells:
        return _Heading(cells, {})
    if len(cells) != len(before.names):
        return before
    return _Heading(before.names, dict(zip(before.names, _cells(text), strict=True)))


def _reading(
    values: Mapping[str, str], units: Mapping[str, str], last: ScriptTime | None, unread: Unread
) -> GpuReading:
    numbers = {}
    for name, column in _COLUMNS.items():
        text = values.get(name, "-")
        if text == "-":  # not supported
            continue
        unit = units.get(name, "")
        known = "" if unit in _PLAIN_UNITS else _UNITS.get(unit, unit)
        number = parse_quantity(column, text, known)
        if number is None:
            unread.add(f"{name} of dmon is no number in a known unit", f"{text} {unit}".strip())
        else:
            numbers[column] = number
    slot = values.get("gpu", "")
    reading = GpuReading(numbers=numbers, slot=int(slot) if slot.isdecimal() else None)
    return with_script_time(reading, _own_time(values, last))


def _own_time(values: Mapping[str, str], last: ScriptTime | None) -> ScriptTime | None:
    """Return the time of the columns `Date` and `Time`; a `Time` alone is on the last known day."""
    if "time" not in values:
        return last
    if "date" in values:
        return split_time(f"{values['date']} {values['time']}")[0]
    if last is None:
        return None
    day = ScriptTime(last.moment // DAY * DAY, last.utc)
    clock, _ = split_time(f"2000-01-01 {values['time']}")
    midnight, _ = split_time("2000-01-01 00:00:00")
    if clock is None or midnight is None:
        return None
    since = clock.moment - midnight.moment
    return ScriptTime(day.moment + since, last.utc)

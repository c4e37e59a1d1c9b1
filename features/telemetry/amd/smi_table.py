"""GPUs in the tables for people of `amd-smi`, `amd-smi monitor` and `rocm-smi`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.amd.smi_values import gpu_from_values
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.script_time import split_time, stamped_lines

__all__ = ["is_amd_table", "is_smi_monitor", "parse_amd_table", "parse_smi_monitor"]

_TITLE = re.compile(r"\| AMD-SMI ")
_DRIVER = re.compile(r"amdgpu version: *(?P<version>\d[\w.-]*)")
_FIRST = re.compile(  # address and name; memory activity, temperature, uncorrected errors, power
    r"\| *(?P<bdf>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) +(?P<name>.*?) *"
    r"\| *(?P<mem>N/A|[\d.]+ ?%) +(?P<temp>N/A|[\d.]+ ?°?C) +(?P<uec>N/A|\d+) +"
    r"(?P<power>N/A|[\d.]+)(?:/(?:N/A|[\d.]+))?(?: W)? *\|"
)
_SECOND = re.compile(  # indexes and partition mode; activity, fan, memory
    r"\| *(?P<gpu>\d{1,3}) .*?\| *(?P<gfx>N/A|[\d.]+ ?%) +\S+(?: ?%)? +"
    r"(?P<memory>N/A|[\d.]+)(?:/(?:N/A|[\d.]+))? ?(?:MB)? *\|"
)
_MONITOR = re.compile(
    r"^.{0,60}?\bGPU +(?:XCP +)?(?:\S+ +)*(?:POWER|GPU_T\w*|GFX\S+|VRAM\S+)", re.M
)
_CONCISE = re.compile(r"^.{0,60}?\b(?:GPU|Device) +.*\bTemp\b.*\bPerf\b", re.MULTILINE)
_CELL = re.compile(
    r"N/A|-?[\d.]+/ *[\d.]+ ?[GMT]B|-?[\d.]+(?: ?(?:°?[Cc]\b|W\b|MHz\b|%|[GM]B\b|Mb/s\b|J\b))?|\S+",
    re.IGNORECASE,
)
# What a row of rocm-smi has in brackets or with commas: models, IDs and partitions.
_COMPOUND = re.compile(r"\[0x\w+ : 0x\w+\]|0x\w+, +\d+|\bN/A, N/A(?:, \w+)?|\w+, [\w/]+(?:, \w+)?")
_IGNORED_NAMES = ("ids", "partitions", "[model : revision]")


def is_amd_table(text: str) -> bool:
    """Tell whether a text has the table of `amd-smi` without options."""
    return bool(_TITLE.search(text))


def is_smi_monitor(text: str) -> bool:
    """Tell whether a text has the heading of `amd-smi monitor`, or of `rocm-smi`."""
    return any(
        not re.search(r"\bPID\b", line) and bool(_MONITOR.search(line) or _CONCISE.search(line))
        for line in text.splitlines()
    )


def parse_amd_table(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of the table of `amd-smi`.

    Returns
    -------
    list of GpuReading
    Unread
        GPUs without a second line.
    """
    unread, readings = Unread(), []
    driver, first = "", None
    for line, last in stamped_lines(text):
        time = split_time(line)[0] or last
        if _TITLE.search(line):
            version = _DRIVER.search(line)
            driver = version["version"] if version else ""
        elif match := _FIRST.search(line):
            if first is not None:
                unread.add("a GPU of a table of amd-smi without its values", line)
            first = match
        elif first is not None and (second := _SECOND.search(line)):
            readings.append(gpu_from_values(_table_values(first, second, driver), unread, time))
            first = None
    return merge_gpus(readings), unread


def _table_values(first: re.Match[str], second: re.Match[str], driver: str) -> dict[str, str]:
    """Return the values of the two lines of a GPU by names that `gpu_from_values` knows."""
    values = {**first.groupdict(), **second.groupdict(), "driver_version": driver}
    return {
        **values,
        "gpu-name": values["name"],
        "mem": values["mem"],
        "used_vram": values["memory"],
    }


def parse_smi_monitor(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every row of `amd-smi monitor` and of `rocm-smi`, which name a GPU by its index alone.

    Returns
    -------
    list of GpuReading
    Unread
        Rows that do not fit the heading.
    """
    unread, readings = Unread(), []
    names: Sequence[str] = ()
    for line, last in stamped_lines(text):
        own, rest = split_time(line)
        if is_smi_monitor(line):
            names = _names(line)
            continue
        if "timestamp" in names:
            own, rest = None, line
        if not names or not re.match(r"\s*\d", rest):
            names = () if "PROCESS" in rest or "PID" in rest else names
            continue
        cells = _CELL.findall(_COMPOUND.sub(" ", rest))
        if len(cells) != len(names):
            unread.add("a row that does not fit the heading of amd-smi or rocm-smi", line)
            continue
        values = dict(zip(names, cells, strict=True))
        readings.append(gpu_from_values(values, unread, own or last))
    return merge_gpus(readings), unread


def _names(line: str) -> list[str]:
    """Return the names of the columns of a heading, in lower case."""
    text = split_time(line)[1].lower()
    for name in _IGNORED_NAMES:
        text = text.replace(name, " ")
    text = re.sub(r"\b([sm]clk) od\b", r"\1_od", text)
    return [{"device": "gpu"}.get(name, name) for name in text.split()]

"""GPUs in the table that nvidia-smi prints for people when it is called without options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread, parse_pci_address
from forewarn.features.telemetry.parsers.quantity import is_absent, parse_quantity
from forewarn.features.telemetry.parsers.recovery_action import action_number
from forewarn.features.telemetry.parsers.script_time import (
    ScriptTime,
    split_time,
    stamped_lines,
    with_script_time,
)

__all__ = ["is_smi_table", "parse_smi_table"]

_TITLE = re.compile(r"\| NVIDIA-SMI ")
_DRIVER = re.compile(r"(?:Driver|KMD) Version: *(?P<version>[\d.]+)")
_FIRST = re.compile(  # number, name and persistence mode; address; ECC errors
    r"\| *(?P<slot>\d{1,3}) +(?P<name>\S.*?) *(?: (?P<mode>\S+))? *"
    r"\| *(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\b"
)
_SECOND = re.compile(  # fan, temperature, state and power; memory; utilization
    r"\| *\S+ +(?P<temperature>\S+) +\S+ +(?P<power>\S+) */ *\S+ *"
    r"\|(?P<memory>[^|]*)\| *(?P<utilization>\S+)"
)
_CUT = "..."  # of a name that is too long for the table
_ERROR = "ERR!"
_LOST, _RESET = "GPU is lost", "GPU requires reset"
_ROWS_PER_GPU = 3


@dataclass(slots=True)
class _Gpu:
    """A GPU whose first line was read."""

    reading: GpuReading
    lines_left: int


def is_smi_table(text: str) -> bool:
    """Tell whether a text has the title of the table."""
    return bool(_TITLE.search(text))


def parse_smi_table(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of every table of a file, also with a time before each line.

    The table counts volatile ECC errors, which start again with the driver, so they are not read
    as the column `ecc_uncorrected`.

    Returns
    -------
    list of GpuReading
    Unread
        Values that the driver could not read, and GPUs without a line of values.
    """
    unread, readings = Unread(), []
    driver: str | None = None
    gpu: _Gpu | None = None
    for line, time in _lines(text):
        if _TITLE.search(line) and (match := _DRIVER.search(line)):
            driver = match["version"]
        if first := _FIRST.search(line):
            gpu = _Gpu(with_script_time(_named(first, driver), time), _ROWS_PER_GPU)
            if _LOST in line:
                readings.append(replace(gpu.reading, texts={}, lost=True))
                gpu = None
        elif gpu is not None:
            if (read := _with_values(gpu.reading, line, unread)) is not None:
                readings.append(read)
                gpu = None
            elif not _goes_on(gpu, line):
                unread.add("a GPU of a table of nvidia-smi without its values", line)
                gpu = None
    return readings, unread


def _lines(text: str) -> Iterator[tuple[str, ScriptTime | None]]:
    """Yield the lines with their times: one before the line, or one that stood alone."""
    for line, last in stamped_lines(text):
        own, rest = split_time(line)
        yield (line, last) if own is None else (rest, own)


def _named(match: re.Match[str], driver: str | None) -> GpuReading:
    """Return the GPU of a first line."""
    name, texts = match["name"].strip(), {}
    if not name.endswith(_CUT) and _ERROR not in name:
        texts["gpu_type"] = name
    if driver is not None:
        texts["driver_version"] = driver
    return GpuReading(texts=texts, pci=parse_pci_address(match["pci"]), slot=int(match["slot"]))


def _goes_on(gpu: _Gpu, line: str) -> bool:
    """Tell whether the values of a GPU can still follow."""
    gpu.lines_left -= 1
    return gpu.lines_left > 0 and "|" in line


def _with_values(gpu: GpuReading, line: str, unread: Unread) -> GpuReading | None:
    """Return a GPU with the values of its second line; None if this line is another one."""
    match = _SECOND.search(line)
    if match is None:
        return None
    if _LOST in match["memory"]:
        return replace(gpu, texts={}, lost=True)
    values = {
        "temperature_gpu": match["temperature"],
        "power_draw": match["power"],
        "memory_used": match["memory"].split("/")[0].strip(),
        "utilization_gpu": match["utilization"],
    }
    action = "reset" if _RESET in match["memory"] else None
    numbers = {}
    for column, text in values.items():
        number = parse_quantity(column, text)
        if number is not None:
            numbers[column] = number
        elif not is_absent(text) and action is None:
            unread.add(f"{column} in a table of nvidia-smi is no number", text)
    return replace(gpu, numbers=numbers | action_number(action), action=action)

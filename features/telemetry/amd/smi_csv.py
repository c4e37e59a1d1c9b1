"""GPUs in CSV of amd-smi (`metric`, `static`, `list`, `monitor`) and of rocm-smi."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.amd.smi_values import gpu_from_values
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.script_time import split_time, stamped_lines

__all__ = ["is_smi_csv", "parse_smi_csv"]

_AMD = re.compile(
    r"gfx|umc_|bdf|asic_|market_name|hotspot|socket_power|power_usage|vram|Unique ID|Device Name|"
    r"Sensor (?:edge|junction)|Graphics Package Power|GPU use|Card (?:[Ss]eries|model)"
)


def is_smi_csv(text: str) -> bool:
    """Tell whether a text has the header of a table of AMD's tools.

    Examples
    --------
    >>> is_smi_csv("gpu,bdf,uuid"), is_smi_csv("gpu,name"), is_smi_csv("device,GPU use (%)")
    (True, False, True)
    """
    return any(_is_header(line) for line in text.splitlines())


def _is_header(line: str) -> bool:
    rest = split_time(line)[1].strip()
    return rest.startswith(("gpu,", "device,", "timestamp,gpu,")) and bool(_AMD.search(rest))


def parse_smi_csv(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every row of every table of a file, also with a time before each line.

    Returns
    -------
    list of GpuReading
    Unread
        Rows that do not fit the header above them.
    """
    unread, readings = Unread(), []
    header: Sequence[str] = ()
    for line, last in stamped_lines(text):
        own, rest = split_time(line)
        if _is_header(line):
            header = [name.strip().lower() for name in next(csv.reader([rest.strip()]))]
            continue
        if header[:1] == ["timestamp"]:  # its own column
            own, rest = None, line
        cells = next(csv.reader([rest.strip()]), [])
        if not header or "," not in rest or not cells[0].removeprefix("card")[:1].isdigit():
            continue  # a warning of the tool, or another output
        if len(cells) != len(header):
            unread.add("a row of an AMD tool with another number of fields than its header", line)
            continue
        values = dict(zip(header, cells, strict=True))
        readings.append(gpu_from_values(values, unread, own or last))
    return merge_gpus(readings), unread

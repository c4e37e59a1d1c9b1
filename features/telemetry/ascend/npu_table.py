"""NPUs in the table of `npu-smi info`, which has two lines for each chip."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_pci_address,
)
from forewarn.features.telemetry.parsers.script_time import ScriptTime, split_time, stamped_lines

__all__ = ["NpuRow", "chip_slot", "is_npu_table", "npu_rows", "npu_type"]

_HEADING = re.compile(r"\| *NPU +Name *\| *Health *\|")
_TITLE = re.compile(r"\| *npu-smi +\S+ +Version: *(?P<version>[\w.-]+)")
_FIRST = re.compile(
    r"\| *(?P<npu>\d{1,3}) +(?P<name>\w[\w -]*?) *\| *(?P<health>[A-Za-z]+) *"
    r"\| *(?P<power>NA|-|[\d.]+) +(?P<temperature>NA|-|-?\d+) +[^|]*\|"
)
_SECOND = re.compile(
    r"\| *(?P<chip>\d{1,2})(?: +(?:\d+|NA|-))? *\| *(?P<bus>[\w:.-]+) *"
    r"\| *(?P<core>NA|-|[\d.]+) +(?P<memory>[^|]*)\|"
)
_PAIR = re.compile(r"(\d+) */ *(\d+)")
_CHIP_SLOTS = 100  # slot of the second chip of NPU 3: 103


@dataclass(frozen=True, slots=True)
class NpuRow:
    """One chip of the table: its reading, its health in the tool's word, and the NPU's number."""

    gpu: GpuReading
    health: str
    npu: int
    chip: int


def is_npu_table(text: str) -> bool:
    """Tell whether a text has the table of `npu-smi info`."""
    return bool(_HEADING.search(text))


def chip_slot(npu: int, chip: int) -> int:
    """Return the slot of a chip: the number of its NPU, and 100 more for each chip before it.

    Most NPUs have one chip. A text about one chip does not say how many the others have.

    Examples
    --------
    >>> chip_slot(3, 0), chip_slot(3, 1)
    (3, 103)
    """
    return npu + _CHIP_SLOTS * chip


def npu_type(name: str) -> str:
    """Return the type of an NPU with its maker's name.

    Examples
    --------
    >>> npu_type("910B3"), npu_type("Ascend910")
    ('Ascend 910B3', 'Ascend910')
    """
    return f"Ascend {name}" if name[0].isdecimal() else name


def npu_rows(text: str, unread: Unread) -> list[NpuRow]:
    """Read every chip of the tables of a text.

    The chips of some boards share one address, which then names none of them.
    """
    pairs = list(_line_pairs(text, unread))
    chips = {(first["npu"], second["chip"], second["bus"]) for first, second, _, _ in pairs}
    buses = Counter(bus for _, _, bus in chips)
    return [_row(first, second, version, time, buses) for first, second, version, time in pairs]


def _line_pairs(
    text: str, unread: Unread
) -> Iterator[tuple[re.Match[str], re.Match[str], str, ScriptTime | None]]:
    """Yield the two lines of each chip, with the version of the driver and the time."""
    version, first = "", None
    for line, last in stamped_lines(text):
        if title := _TITLE.search(line):
            version = title["version"]
        elif match := _FIRST.search(line):
            if first is not None:
                unread.add("an NPU of a table of npu-smi without its values", line)
            first = match
        elif first is not None and (second := _SECOND.search(line)):
            yield first, second, version, split_time(line)[0] or last
            first = None
    if first is not None:
        unread.add("an NPU of a table of npu-smi without its values", first[0])


def _row(
    first: re.Match[str],
    second: re.Match[str],
    version: str,
    time: ScriptTime | None,
    buses: Counter[str],
) -> NpuRow:
    # The last memory is HBM; NPUs without it have 0 / 0 there, or no such column.
    memories = [used for used, total in _PAIR.findall(second["memory"]) if int(total)]
    texts = {
        "temperature_gpu": first["temperature"],
        "power_draw": first["power"],
        "utilization_gpu": second["core"],
        "memory_used": memories[-1] if memories else "NA",
    }
    npu, chip = int(first["npu"]), int(second["chip"])
    reading = GpuReading(
        numbers={name: float(text) for name, text in texts.items() if text not in ("NA", "-")},
        texts={"gpu_type": npu_type(first["name"])}
        | ({"driver_version": version} if version else {}),
        pci=parse_pci_address(second["bus"]) if buses[second["bus"]] == 1 else None,
        slot=chip_slot(npu, chip),
        time=time.moment if time else None,
        utc=time.utc if time else False,
    )
    return NpuRow(reading, first["health"], npu, chip)

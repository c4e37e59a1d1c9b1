"""GPUs in the output of `nvidia-smi --query-gpu=... --format=csv`, with or without units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from forewarn.features.telemetry.parsers.local_clock import clock_time
from forewarn.features.telemetry.parsers.quantity import is_absent, quantity
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread, name_of_gpu, pci_address

__all__ = [
    "DAMAGED",
    "blindness",
    "lost_gpus",
    "parse_query_gpu",
    "query_fields",
    "supported_fields",
]

# Counted in `Unread` where a table is not whole: a GPU may be missing from it.
DAMAGED = "a line with another number of fields than the header"
# Record column -> names of the field over the drivers, best first. Where a column takes several
# fields they are added up, and it is known only where all of them are.
_NUMBERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "temperature_gpu": (("temperature.gpu",),),
    "power_draw": (("power.draw.average", "power.draw", "power.draw.instant"),),
    "utilization_gpu": (("utilization.gpu",),),
    "utilization_memory": (("utilization.memory",),),
    "memory_used": (("memory.used",),),
    "clock_sm": (("clocks.current.sm", "clocks.sm"),),
    "ecc_corrected": (("ecc.errors.corrected.aggregate.total",),),
    "ecc_uncorrected": (("ecc.errors.uncorrected.aggregate.total",),),
    "rows_remapped": (
        ("remapped_rows.correctable", "remapped_rows.sbe"),
        ("remapped_rows.uncorrectable", "remapped_rows.dbe"),
    ),
    "pcie_link_width": (("pcie.link.width.current",),),
}
_NAMES = {
    "serial": ("serial", "gpu_serial"),
    "uuid": ("uuid", "gpu_uuid"),
    "pci": ("pci.bus_id", "gpu_bus_id"),
    "slot": ("index",),
    "gpu_type": ("name", "gpu_name"),
    "driver_version": ("driver_version",),
    "mig": ("mig.mode.current",),
    "time": ("timestamp",),
}
_HEADER = re.compile(r"(?P<name>[A-Za-z_0-9.]+)(?: \[(?P<unit>[^\]]+)\])?")
# nvidia-smi says that a GPU is gone in more than one way, the address with and without a point.
# What the driver says (NVRM) is of the kernel log, which also tells when.
_LOST = re.compile(
    r"^(?!.*NVRM:).*?GPU *(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}).*"
    r"(?:Unknown Error|is lost|not found|fallen off)",
    re.IGNORECASE | re.MULTILINE,
)
# In a table the fields of such a GPU say it.
_LOST_ROW = re.compile(
    r"^.*?\b(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]),.*\[GPU is lost\]",
    re.MULTILINE,
)
# What it says instead of a table, of no GPU in particular.
_BLIND = re.compile(
    r"^(?:Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found).*",
    re.IGNORECASE | re.MULTILINE,
)


def query_fields() -> tuple[str, ...]:
    """Return the fields to ask for, each by the name that most drivers know."""
    numbers = [names[-1] for fields in _NUMBERS.values() for names in fields]
    numbers[numbers.index("power.draw.instant")] = "power.draw"
    numbers[numbers.index("remapped_rows.sbe")] = "remapped_rows.correctable"
    numbers[numbers.index("remapped_rows.dbe")] = "remapped_rows.uncorrectable"
    return (*(names[0] for names in _NAMES.values()), *numbers)


def supported_fields(help_text: str) -> frozenset[str]:
    r"""Return the fields that a driver knows, from the output of `nvidia-smi --help-query-gpu`.

    Examples
    --------
    >>> sorted(supported_fields('"name" or "gpu_name"\nThe official name.\n"index"\n'))
    ['gpu_name', 'index', 'name']
    """
    lines = [line for line in help_text.split("\n") if line.startswith('"')]
    return frozenset(name for line in lines for name in re.findall(r'"([a-zA-Z_0-9.]+)"', line))


def parse_query_gpu(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of the output.

    Parameters
    ----------
    text : str
        With its header line; what nvidia-smi says instead of a table is unread.

    Returns
    -------
    list of GpuReading
    Unread
        Lines and values that are neither a number nor said to be absent.
    """
    unread, readings = Unread(), []
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if _is_header(line)), len(lines))
    for line in lines[:start]:
        unread.add("a line before the table", line)
    header = _cells(lines[start]) if start < len(lines) else []
    fields = [_HEADER.fullmatch(name) for name in header]
    names = [match["name"] if match else "" for match in fields]
    units = {match["name"]: match["unit"] or "" for match in fields if match}
    for line in lines[start + 1 :]:
        if line == lines[start]:  # a job that adds to one file writes its header every time
            continue
        cells = _cells(line)
        if len(cells) != len(names):
            unread.add(DAMAGED, line)
        else:
            readings.append(_reading(dict(zip(names, cells, strict=True)), units, unread))
    return readings, unread


def _is_header(line: str) -> bool:
    known = {name for names in _NAMES.values() for name in names}
    return len(known & {name.split(" [")[0] for name in _cells(line)}) >= 1


def _cells(line: str) -> list[str]:
    """Split one line; nvidia-smi quotes nothing, and no value has a comma."""
    return [cell.strip() for cell in line.split(",")]


def _reading(cells: Mapping[str, str], units: Mapping[str, str], unread: Unread) -> GpuReading:
    """Make a reading of one row."""
    texts = {key: _text(cells, names) for key, names in _NAMES.items()}
    slot = texts["slot"]
    numbers = {}
    for column, fields in _NUMBERS.items():
        parts = [_number(column, names, cells, units, unread) for names in fields]
        present = [part for part in parts if part is not None]
        if len(present) == len(parts):
            numbers[column] = math.fsum(present)
    named = {key: texts[key] for key in ("gpu_type", "driver_version")}
    return GpuReading(
        numbers=numbers,
        texts={key: text for key, text in named.items() if text is not None},
        serial=name_of_gpu(texts["serial"]),
        uuid=name_of_gpu(texts["uuid"]),
        pci=pci_address(texts["pci"] or ""),
        slot=int(slot) if slot is not None and re.fullmatch(r"[0-9]{1,4}", slot) else None,
        mig=texts["mig"] == "Enabled",
        time=clock_time(texts["time"] or ""),
    )


def _text(cells: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return the first of several fields that has a value."""
    values = [cells[name] for name in names if name in cells]
    return next((value for value in values if not is_absent(value)), None)


def _number(
    column: str,
    names: tuple[str, ...],
    cells: Mapping[str, str],
    units: Mapping[str, str],
    unread: Unread,
) -> float | None:
    """Return the first of several fields that is a number, in the unit of the column."""
    for name in names:
        value = cells.get(name, "")
        if is_absent(value):
            continue
        number = quantity(column, value, units.get(name, ""))
        if number is not None:
            return number
        unread.add(f"{name} is no number in a known unit", value)
    return None


def lost_gpus(text: str) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that nvidia-smi calls lost, whatever else it prints.

    Examples
    --------
    >>> lost_gpus("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error")
    ('0000:3b:00',)
    """
    lines = [match for pattern in (_LOST, _LOST_ROW) for match in pattern.finditer(text)]
    addresses = (pci_address(match["pci"]) for match in lines)
    return tuple(dict.fromkeys(pci for pci in addresses if pci is not None))


def blindness(text: str) -> str:
    r"""Return what nvidia-smi says when it can read no GPU at all; empty if it says nothing alike.

    Examples
    --------
    >>> blindness("Failed to initialize NVML: Driver/library version mismatch\nversion: 550.1")
    'Failed to initialize NVML: Driver/library version mismatch'
    """
    match = _BLIND.search(text)
    return match[0].strip()[:200] if match else ""

"""Parser of `nvidia-smi --query-gpu=... --format=csv`, with or without units."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from forewarn.features.telemetry.nvidia_smi.faults import (
    is_lost_line,
    is_lost_row,
    is_state,
    requested_recovery,
)
from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_gpu_name,
    parse_pci_address,
)
from forewarn.features.telemetry.parsers.local_clock import clock_time
from forewarn.features.telemetry.parsers.quantity import is_absent, parse_quantity
from forewarn.features.telemetry.parsers.recovery_action import action_number
from forewarn.features.telemetry.parsers.script_time import (
    ScriptTime,
    split_time,
    stamped_lines,
    with_script_time,
)

__all__ = [
    "DAMAGED",
    "column_fields",
    "is_header",
    "measured_fields",
    "parse_query_gpu",
    "query_fields",
    "supported_fields",
]

# Counted in `Unread` if a table is incomplete, so that a GPU may be missing.
DAMAGED = "a line with a different number of fields than the header"
# Record column -> names of the field over the drivers, best first. Several fields of a column are
# summed; the sum is known only if all of them are.
_NUMBERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "temperature_gpu": (("temperature.gpu",),),
    "power_draw": (("power.draw.average", "power.draw", "power.draw.instant"),),
    "utilization_gpu": (("utilization.gpu",),),
    "utilization_memory": (("utilization.memory",),),
    "memory_used": (("memory.used",),),
    "clock_sm": (("clocks.current.sm", "clocks.sm"),),
    "ecc_corrected": (
        ("ecc.errors.corrected.aggregate.total", "ecc.errors.corrected.volatile.total"),
    ),
    "ecc_uncorrected": (
        ("ecc.errors.uncorrected.aggregate.total", "ecc.errors.uncorrected.volatile.total"),
    ),
    "rows_remapped": (
        ("remapped_rows.correctable", "remapped_rows.sbe"),
        ("remapped_rows.uncorrectable", "remapped_rows.dbe"),
    ),
    "pcie_link_width": (("pcie.link.width.current",),),
    "row_remap_failure": (("remapped_rows.failure",),),
    "throttle_hardware": (
        (
            "clocks_event_reasons.active",
            "clocks_throttle_reasons.active",
            "clocks_event_reasons.hw_slowdown",
            "clocks_throttle_reasons.hw_slowdown",
        ),
    ),
}
# Names to query where the last name is not the one that most drivers know.
_COMMON_NAMES = {
    "power.draw.instant": "power.draw",
    "remapped_rows.sbe": "remapped_rows.correctable",
    "remapped_rows.dbe": "remapped_rows.uncorrectable",
    "ecc.errors.corrected.volatile.total": "ecc.errors.corrected.aggregate.total",
    "ecc.errors.uncorrected.volatile.total": "ecc.errors.uncorrected.aggregate.total",
    "clocks_throttle_reasons.hw_slowdown": "clocks_throttle_reasons.active",
}
_NAMES = {
    "serial": ("serial", "gpu_serial"),
    "uuid": ("uuid", "gpu_uuid"),
    "pci": ("pci.bus_id", "gpu_bus_id"),
    "slot": ("index",),
    "gpu_type": ("name", "gpu_name"),
    "driver_version": ("driver_version",),
    "time": ("timestamp",),
}
_TIME_STARTS = ("2", "1", "[", *"ADFJMNOSTW=#-*<(")
_TIMESTAMP_CHARS = 26  # a longer first cell may have a time of a script before it
_HEADER = re.compile(r"(?P<name>[A-Za-z_0-9.]+)(?: \[(?P<unit>[^\]]+)\])?")
# Fields that say nothing about the state of a GPU, and fields that identify it.
_PLACES = ("pci.bus_id", "gpu_bus_id", "index", "timestamp")
_IDENTITY = ("serial", "gpu_serial", "uuid", "gpu_uuid", "name", "gpu_name")
_ACTION, _RESET_REQUIRED = "gpu_recovery_action", "reset_status.reset_required"
_READ_FIELDS = {_ACTION, _RESET_REQUIRED}.union(
    *(names for fields in _NUMBERS.values() for names in fields)
)
_HEADER_NAMES = frozenset(name for names in _NAMES.values() for name in names).union(
    field for field in _READ_FIELDS if "." in field
)
_HEADER_HINT = re.compile("|".join(map(re.escape, sorted(_HEADER_NAMES))))
_KNOWN_FIELDS = _READ_FIELDS.union(*_NAMES.values()) - {"timestamp"}


def column_fields(column: str) -> tuple[str, ...]:
    """Return the fields to query for a record column; empty if nvidia-smi's CSV lacks it.

    Examples
    --------
    >>> column_fields("memory_used"), column_fields("xid")
    (('memory.used',), ())
    """
    last_names = [names[-1] for names in _NUMBERS.get(column, ())]
    return tuple(_COMMON_NAMES.get(name, name) for name in last_names)


def query_fields() -> tuple[str, ...]:
    """Return the fields to query, each by the name that most drivers know."""
    numbers = [name for column in _NUMBERS for name in column_fields(column)]
    return (*(names[0] for names in _NAMES.values()), *numbers, _ACTION)


def supported_fields(help_text: str) -> frozenset[str]:
    r"""Return the fields of a driver from the output of `nvidia-smi --help-query-gpu`.

    Examples
    --------
    >>> sorted(supported_fields('"name" or "gpu_name"\nThe official name.\n"index"\n'))
    ['gpu_name', 'index', 'name']
    """
    lines = [line for line in help_text.split("\n") if line.startswith('"')]
    return frozenset(name for line in lines for name in re.findall(r'"([a-zA-Z_0-9.]+)"', line))


def measured_fields(fields: Collection[str]) -> frozenset[str]:
    """Return those of some fields that become columns of records."""
    return frozenset(_READ_FIELDS.intersection(fields))


def parse_query_gpu(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of the output.

    Parameters
    ----------
    text : str
        With its header line, also where a job appended one output after the other, with a time of
        its own before each or before each line; messages in place of a table are counted as unread.

    Returns
    -------
    list of GpuReading
    Unread
        Invalid lines, and values that are neither a number nor marked as absent.
    """
    unread, readings = Unread(), []
    names: list[str] = []
    says_nothing = False
    units: dict[str, str] = {}
    for line, last in stamped_lines(text):
        # A job that appends to a file repeats the header and other output.
        if (header := _header_of(line)) is not None:
            names, units = _header(header)
            if not _READ_FIELDS.intersection(names):
                unread.add("a table without a known column", line)
            says_nothing = _KNOWN_FIELDS.isdisjoint(names)
        elif not names and not is_lost_line(line):
            unread.add("a line before the table", line)
        elif names and not says_nothing and not is_lost_line(line):
            cells = _cells(line)
            if len(cells) != len(names) or _has_prefix(cells[0], names[0]):
                own, rest = split_time(line)
                if own is not None and len(_cells(rest)) == len(names):
                    cells, last = _cells(rest), own
            if len(cells) != len(names):
                unread.add(DAMAGED, line)
                continue
            row = _reading(dict(zip(names, cells, strict=True)), units, unread)
            readings.append(with_script_time(row, last))
    return readings, unread


def _header_of(line: str) -> str | None:
    """Return a header line without a time of a script before it; None for another line."""
    if not _HEADER_HINT.search(line):
        return None
    rest = split_time(line)[1]  # no header begins with a time
    return rest if is_header(rest) else None


def _has_prefix(cell: str, name: str) -> bool:
    """Tell whether a first cell may have a time of a script before its value."""
    is_time = name in _NAMES["time"]
    return len(cell) > _TIMESTAMP_CHARS if is_time else cell.startswith(_TIME_STARTS)


def _header(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the fields of a header line, and the units of those that have one."""
    fields = [_HEADER.fullmatch(name) for name in _cells(line)]
    names = [match["name"] if match else "" for match in fields]
    return names, {match["name"]: match["unit"] or "" for match in fields if match}


def is_header(line: str) -> bool:
    """Tell whether a line is the header of a table: it has a field that is known."""
    if not _HEADER_HINT.search(line):  # most lines are rows
        return False
    return any(name.split(" [")[0] in _HEADER_NAMES for name in _cells(line))


def _cells(line: str) -> list[str]:
    """Split a line; nvidia-smi quotes nothing, and values contain no comma."""
    return [cell.strip() for cell in line.split(",")]


def _reading(cells: Mapping[str, str], units: Mapping[str, str], unread: Unread) -> GpuReading:
    texts = {key: _text(cells, names) for key, names in _NAMES.items()}
    slot, time = texts["slot"], _moment(texts["time"] or "")
    if texts["time"] is not None and time is None:
        unread.add("a time in another form (`2025-03-01 00:10:00` would be read)", texts["time"])
    position = GpuReading(
        pci=parse_pci_address(texts["pci"] or ""),
        slot=int(slot) if slot is not None and re.fullmatch(r"[0-9]{1,4}", slot) else None,
        time=None if time is None else time.moment,
        utc=time is not None and time.utc,
    )
    not_numbers = Unread()
    numbers = _numbers(cells, units, not_numbers)
    values = [value for name, value in cells.items() if name not in _PLACES]
    names = [cells[name] for name in _IDENTITY if name in cells]
    if is_lost_row(values, names, numbers, unread):
        return replace(position, lost=True, serial=texts["serial"], uuid=texts["uuid"])
    unread.join(not_numbers)
    action = requested_recovery(cells.values(), cells.get(_ACTION), cells.get(_RESET_REQUIRED))
    named = {key: texts[key] for key in ("gpu_type", "driver_version")}
    return replace(
        position,
        numbers=numbers | action_number(action),
        texts={key: text for key, text in named.items() if text is not None},
        serial=parse_gpu_name(texts["serial"]),
        uuid=parse_gpu_name(texts["uuid"]),
        action=action,
    )


def _moment(text: str) -> ScriptTime | None:
    """Return the time of a row: as nvidia-smi writes it, or as a script replaced it."""
    moment = clock_time(text)
    return split_time(text)[0] if moment is None else ScriptTime(moment, utc=False)


def _numbers(
    cells: Mapping[str, str], units: Mapping[str, str], unread: Unread
) -> dict[str, float]:
    numbers = {}
    for column, fields in _NUMBERS.items():
        parts = [_number(column, names, cells, units, unread) for names in fields]
        present = [part for part in parts if part is not None]
        if len(present) == len(parts):
            numbers[column] = math.fsum(present)
    return numbers


def _text(cells: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """Return the first field with a value; errors are ignored."""
    values = [cells[name] for name in names if name in cells]
    return next((v for v in values if not is_absent(v) and not v.startswith("[")), None)


def _number(
    column: str,
    names: tuple[str, ...],
    cells: Mapping[str, str],
    units: Mapping[str, str],
    unread: Unread,
) -> float | None:
    """Return the first field with a number, in the unit of the column."""
    for name in names:
        value = cells.get(name, "")
        if is_absent(value) or is_state(value):
            continue
        number = parse_quantity(column, value, units.get(name, ""))
        if number is not None:
            return number
        unread.add(f"{name} is not a number in a known unit", value)
    return None

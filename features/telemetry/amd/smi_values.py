"""One GPU from the names and values of amd-smi or rocm-smi, whatever the form of the output.

`temperature_gpu` is the hotspot, which AMD also calls junction: the driver throttles by it, and
Instinct GPUs have no edge sensor. A GPU without it has its edge temperature. `ecc_corrected` and
`ecc_uncorrected` count all blocks since the driver was loaded. Retired pages are no remapped rows.

Sources: documentation of AMD SMI (`amdsmi_get_temp_metric`, `amdsmi_get_gpu_total_ecc_count`), and
`amdsmi_cli` and `rocm_smi.py` of ROCm 5 to 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_gpu_name,
    parse_pci_address,
)
from forewarn.features.telemetry.parsers.quantity import is_absent, parse_quantity
from forewarn.features.telemetry.parsers.script_time import ScriptTime, with_script_time
from forewarn.features.time_units import SECOND

__all__ = ["gpu_from_values", "has_column", "unique_id"]

# The first name with a value counts: amd-smi's JSON and text, its CSV and table, then rocm-smi's.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "temperature_gpu": (
        *("temperature/hotspot", "temperature/hotspot_temperature", "hotspot"),
        *("hotspot_temperature", "gpu_t", "gpu_temp", "temperature (sensor junction) (c)"),
        *("temperature (sensor hotspot) (c)", "temp", "temperature/edge"),
        *("temperature/edge_temperature", "edge", "edge_temperature"),
        *("temperature (sensor edge) (c)", "temperature"),
    ),
    "power_draw": (
        *("power/socket_power", "power/current_socket_power", "power/average_socket_power"),
        *("power/current_power", "power/power", "socket_power", "power_usage"),
        *("current_socket_power", "average_socket_power", "power", "avgpwr"),
        *("current socket graphics package power (w)", "average graphics package power (w)"),
        *("socket power (w)", "current socket power (w)", "power (w)"),
    ),
    "utilization_gpu": (
        *("usage/gfx_activity", "usage/gfx_usage", "gfx_activity", "gfx", "gfx_util"),
        *("gfx%", "gpu use (%)", "gpu%"),
    ),
    "utilization_memory": (
        *("usage/umc_activity", "usage/mem_activity", "usage/mem_usage", "umc_activity"),
        *("mem", "mem_util", "mem%", "gpu memory read/write activity (%)"),
        "gpu memory use (%)",  # of rocm-smi before 6, whose newer versions call it activity
    ),
    "memory_used": (
        *("mem_usage/used_vram", "fb_usage/used_vram", "vram_usage/used_vram", "vram/used"),
        *("used_vram", "vram_used", "vram_usage", "vram total used memory (b)"),
    ),
    "clock_sm": (
        *("clock/gfx_0/clk", "clock/gfx/clk", "clock/gfx_0/cur_clk", "clock/gfx/cur_clk"),
        *("gfx_0_clk", "gfx_clk", "gfx_clock", "sclk clock speed:", "sclk clock level"),
        *("sclk clock level:", "sclk"),
    ),
    "pcie_link_width": (
        *("pcie/width", "pcie/current_lanes", "pcie/current_width", "width"),
        "pcie clock level",
    ),
    "pcie_replays": ("pcie/replay_count", "replay_count", "pcie_replay", "pcie replay count"),
    "ecc_corrected": (
        *("ecc/total_correctable_count", "ecc/total_correctable", "ecc/correctable_count"),
        *("total_correctable_count", "single_bit_ecc", "single_ecc"),
    ),
    "ecc_uncorrected": (
        *("ecc/total_uncorrectable_count", "ecc/total_uncorrectable", "ecc/uncorrectable_count"),
        *("total_uncorrectable_count", "double_bit_ecc", "double_ecc", "uec"),
    ),
}
_MEASURED = tuple(name for names in _COLUMNS.values() for name in names)
_BLOCK_COUNTS = {
    "ecc_corrected": re.compile(r"ecc_blocks?/\w+/correctable(?:_count)?"),
    "ecc_uncorrected": re.compile(r"ecc_blocks?/\w+/uncorrectable(?:_count)?"),
}
_SERIALS = ("board/product_serial", "product_serial", "serial number")
_IDS = ("asic/asic_serial", "asic_serial", "unique id", "uuid", "gpu_uuid")
_ADDRESSES = ("bdf", "gpu_bdf", "bus/bdf", "pci bus")
_NAMES = (
    *("asic/market_name", "market_name", "board/product_name", "product_name"),
    *("gpu-name", "card series", "device name", "card model"),
)
_DRIVERS = ("driver/version", "driver/driver_version", "driver_version", "driver version")
_INDEXES = ("gpu", "device")
_TIME = "timestamp"

_UNITS = {"B": 1 / 1024**2, "KB": 1 / 1024, "MB": 1.0, "GB": 1024.0}  # 1024 based, to MiB
_UNITS["TB"] = 1024.0**2
_QUANTITY = re.compile(r"(?P<number>-?\d{1,18}(?:\.\d{1,9})?) ?(?P<unit>[°A-Za-z%]{0,4})")
_CLOCK = re.compile(r"(?:\d+:? )?\(?(?P<clock>\d+)Mhz\)?(?: \*)?", re.IGNORECASE)
_LANES = re.compile(r"\bx(?P<lanes>\d{1,2})\b")
_UUID = re.compile(
    r"(?P<first>[0-9a-f]{2})ff[0-9a-f]{4}-0000-1000-80(?P<second>[0-9a-f]{2})-(?P<rest>[0-9a-f]{12})"
)
_HEX = re.compile(r"(?:0x)?0*(?P<digits>[0-9a-f]{1,16})", re.IGNORECASE)
_EPOCH = re.compile(r"(?P<seconds>1[5-9]\d{8}|2[01]\d{8})(?:\.\d+)?")


def has_column(column: str) -> bool:
    """Return whether AMD's tools give a record column.

    >>> has_column("clock_sm"), has_column("rows_remapped")
    (True, False)
    """
    return column in _COLUMNS


def unique_id(text: str | None) -> str | None:
    """Return the unique ID of a GPU in one form; None if it is absent or zero.

    rocm-smi prints it, amd-smi calls it ASIC serial, and its UUIDs of whole GPUs contain it. Other
    UUIDs stay as they are.

    Examples
    --------
    >>> unique_id("0xA1B2C3D4E5F60718")
    '0xa1b2c3d4e5f60718'
    >>> unique_id("a1ff74a1-0000-1000-80b2-c3d4e5f60718")
    '0xa1b2c3d4e5f60718'
    >>> unique_id("N/A"), unique_id("0x0")
    (None, None)
    """
    text = (text or "").strip()
    if is_absent(text) or not parse_gpu_name(text):
        return None
    if whole := _UUID.fullmatch(text.lower()):
        text = whole["first"] + whole["second"] + whole["rest"]
    if number := _HEX.fullmatch(text):
        digits = number["digits"].lower()
        return f"0x{digits:>016}" if digits.strip("0") else None
    return text


def gpu_from_values(
    values: Mapping[str, str], unread: Unread, time: ScriptTime | None = None
) -> GpuReading:
    """Return a GPU.

    Parameters
    ----------
    values : mapping of str to str
        Values as printed, by names in lower case. Names of nested objects are joined by `/`.
    unread : Unread
        Counts values that are neither numbers nor marked as absent.
    time : ScriptTime, optional
        If the values have none.
    """
    numbers = {column: _number(column, names, values, unread) for column, names in _COLUMNS.items()}
    for column, pattern in _BLOCK_COUNTS.items():
        if numbers[column] is None:
            numbers[column] = _sum(text for name, text in values.items() if pattern.fullmatch(name))
    address, index = _text(values, _ADDRESSES), _text(values, _INDEXES)
    texts = {"gpu_type": _gpu_type(values), "driver_version": _text(values, _DRIVERS)}
    known = {column: number for column, number in numbers.items() if number is not None}
    measures = bool(known) or any(name in values for name in _MEASURED)
    if not measures and not any(name in values for name in (*_IDS, *_ADDRESSES, *_SERIALS)):
        unread.add("a GPU without a value, in output of amd-smi or rocm-smi", ", ".join(values))
    reading = GpuReading(
        numbers=known,
        texts={name: text for name, text in texts.items() if text is not None},
        serial=parse_gpu_name(_text(values, _SERIALS)),
        uuid=unique_id(_text(values, _IDS)),
        pci=None if address is None else parse_pci_address(address),
        slot=_index(index),
        names_only=not measures,
    )
    stamp = _EPOCH.fullmatch(values.get(_TIME, ""))
    own = ScriptTime(int(stamp["seconds"]) * SECOND, True) if stamp else time
    return with_script_time(reading, own)


def _index(text: str | None) -> int | None:
    digits = (text or "").removeprefix("card")
    return int(digits) if digits.isdecimal() and len(digits) < 4 else None


def _text(values: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the first value that is present."""
    texts = (values[name].strip() for name in names if name in values)
    return next((text for text in texts if text and not is_absent(text)), None)


def _gpu_type(values: Mapping[str, str]) -> str | None:
    """Return the first name that is none of a number or cut off."""
    names = (_text(values, [name]) for name in _NAMES)
    known = (name for name in names if name and not name.startswith(("0x", "...")))
    return next((name for name in known if not name.endswith("...")), None)


def _number(
    column: str, names: Iterable[str], values: Mapping[str, str], unread: Unread
) -> float | None:
    """Return the first present value in the unit of its column."""
    for name in names:
        text = values.get(name, "").strip()
        if not text or is_absent(text):
            continue
        number = _quantity(column, text, name)
        if number is not None:
            return number
        if "level" in name and text.isdecimal():
            continue
        unread.add(f"{name} of an AMD GPU is no number in a known unit", text)
    return None


def _quantity(column: str, text: str, name: str) -> float | None:
    if column == "clock_sm" and (clock := _CLOCK.fullmatch(text)):
        return float(clock["clock"])
    if column == "clock_sm" and "level" in name:  # a number of a level is no frequency
        return None
    if column == "pcie_link_width" and (lanes := _LANES.search(text)):
        return float(lanes["lanes"])
    if column == "memory_used":
        text = text.split("/")[0].strip() + (text[-2:] if "/" in text else "")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    unit = match["unit"].replace("°", "")
    if column == "memory_used":
        factor = _UNITS.get((unit or ("B" if name.endswith("(b)") else "MB")).upper())
        return None if factor is None else float(match["number"]) * factor
    unit = "C" if column == "temperature_gpu" and unit.lower() == "c" else unit
    return parse_quantity(column, match["number"], unit)


def _sum(texts: Iterable[str]) -> float | None:
    """Return the sum of the counts that are numbers; None if there is none."""
    counts = [float(text) for text in texts if text.isdecimal()]
    return sum(counts) if counts else None

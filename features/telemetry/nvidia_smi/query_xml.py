"""Parser of the XML of `nvidia-smi -q -x`, over the versions of its schema."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from forewarn.features.telemetry.nvidia_smi.faults import (
    is_lost_line,
    is_lost_row,
    is_state,
    lost_gpus,
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

__all__ = ["parse_nvidia_smi_documents", "parse_nvidia_smi_xml", "readings_of"]

# Record column -> alternative sets of elements over the versions, best first. The elements of a set
# are summed; a set counts only if all of them are present.
_NUMBERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "temperature_gpu": (("temperature/gpu_temp",),),
    "power_draw": (
        ("gpu_power_readings/average_power_draw",),
        ("gpu_power_readings/power_draw",),
        ("gpu_power_readings/instant_power_draw",),
        ("power_readings/power_draw",),
    ),
    "utilization_gpu": (("utilization/gpu_util",),),
    "utilization_memory": (("utilization/memory_util",),),
    "memory_used": (("fb_memory_usage/used",),),
    "clock_sm": (("clocks/sm_clock",),),
    "ecc_corrected": (
        ("ecc_errors/aggregate/single_bit/total",),
        ("ecc_errors/aggregate/sram_correctable", "ecc_errors/aggregate/dram_correctable"),
    ),
    "ecc_uncorrected": (
        ("ecc_errors/aggregate/double_bit/total",),
        ("ecc_errors/aggregate/sram_uncorrectable", "ecc_errors/aggregate/dram_uncorrectable"),
        (
            "ecc_errors/aggregate/sram_uncorrectable_parity",
            "ecc_errors/aggregate/sram_uncorrectable_secded",
            "ecc_errors/aggregate/dram_uncorrectable",
        ),
    ),
    "rows_remapped": (("remapped_rows/remapped_row_corr", "remapped_rows/remapped_row_unc"),),
    "pcie_replays": (("pci/replay_counter",),),
    "pcie_link_width": (("pci/pci_gpu_link_info/link_widths/current_link_width",),),
    "row_remap_failure": (("remapped_rows/remapped_row_failure",),),
    "throttle_hardware": (
        ("clocks_event_reasons/clocks_event_reason_hw_slowdown",),
        ("clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown",),
    ),
}
_IDENTITY = ("product_name", "serial", "uuid")
# Entities can expand without limit, and no real document declares any. The name of the schema is
# harmless because the schema is never loaded.
_DECLARES = re.compile(r"<!ENTITY|<!DOCTYPE[^>]*\[", re.IGNORECASE)


def parse_nvidia_smi_documents(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of a file to which a job appended one document after the other."""
    readings, unread = [], Unread()
    for part in filter(str.strip, re.split(r"(?<=</nvidia_smi_log>)", text)):
        gpus, left_out = parse_nvidia_smi_xml(part)
        readings += gpus
        unread.join(left_out)
    return readings, unread


def parse_nvidia_smi_xml(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of a document.

    Parameters
    ----------
    text : str
        An incomplete document, or one that declares entities, is counted as unread. So is text
        before the document, except lines about lost GPUs, which `lost_gpus` reads.

    Returns
    -------
    list of GpuReading
    Unread
        Values that are neither a number nor marked as absent.
    """
    unread = Unread()
    before, text = _parts(text)
    for line in filter(str.strip, before.splitlines()):
        if not is_lost_line(line):
            unread.add("a line before the document", line)
    if not text:
        if not unread and not lost_gpus(before):
            unread.add("no XML document", before)
        return [], unread
    if _DECLARES.search(text):
        unread.add("a document that declares entities", text)
        return [], unread
    try:
        root = ET.fromstring(text)
    except (ET.ParseError, ValueError) as error:
        unread.add(f"an incomplete XML document ({error})", text)
        return [], unread
    if root.tag != "nvidia_smi_log":
        unread.add("an XML document of another kind", text)
        return [], unread
    return readings_of(root, unread), unread


def _parts(text: str) -> tuple[str, str]:
    """Return the text before a document, and the document."""
    start = text.find("<")
    return (text, "") if start < 0 else (text[:start], text[start:])


def readings_of(root: ET.Element, unread: Unread) -> list[GpuReading]:
    """Read every GPU of a document.

    The order of the GPUs gives their indexes only if all GPUs are present. A lost GPU is missing,
    as are the others if only one was queried.
    """
    # From driver 610 on a remark follows the number.
    driver = (_text(root, "driver_version") or "").split(" [")[0] or None
    time = clock_time(_text(root, "timestamp") or "")
    gpus = root.findall("gpu")
    is_whole = _text(root, "attached_gpus") == str(len(gpus))
    readings = (
        _reading(gpu, slot if is_whole else None, driver, unread) for slot, gpu in enumerate(gpus)
    )
    return [replace(reading, time=time) for reading in readings]


def _reading(gpu: ET.Element, slot: int | None, driver: str | None, unread: Unread) -> GpuReading:
    pci = parse_pci_address(gpu.get("id", "")) or parse_pci_address(
        _text(gpu, "pci/pci_bus_id") or ""
    )
    serial, uuid = (parse_gpu_name(_text(gpu, name)) for name in ("serial", "uuid"))
    values = [text for element in gpu.iter() if (text := (element.text or "").strip())]
    names = [name for path in _IDENTITY if (name := (gpu.findtext(path) or "").strip())]
    not_numbers = Unread()
    numbers = _numbers(gpu, not_numbers)
    if is_lost_row(values, names, numbers, unread):
        return GpuReading(serial=serial, uuid=uuid, pci=pci, slot=slot, lost=True)
    unread.join(not_numbers)
    reset = gpu.findtext("gpu_reset_status/reset_required")
    action = requested_recovery(values, gpu.findtext("gpu_recovery_action"), reset)
    texts = {"gpu_type": _text(gpu, "product_name"), "driver_version": driver}
    return GpuReading(
        numbers=numbers | action_number(action),
        texts={key: text for key, text in texts.items() if text is not None},
        serial=serial,
        uuid=uuid,
        pci=pci,
        slot=slot,
        action=action,
    )


def _numbers(gpu: ET.Element, unread: Unread) -> dict[str, float]:
    numbers = {column: _number(gpu, column, ways, unread) for column, ways in _NUMBERS.items()}
    return {column: value for column, value in numbers.items() if value is not None}


def _text(element: ET.Element, path: str) -> str | None:
    """Return the text at a path; None if there is no value."""
    text = (element.findtext(path) or "").strip()
    return None if is_absent(text) or is_state(text) else text


def _number(
    gpu: ET.Element, column: str, ways: tuple[tuple[str, ...], ...], unread: Unread
) -> float | None:
    """Return the sum of the first set whose elements are all present."""
    for paths in ways:
        texts = [(path, _text(gpu, path)) for path in paths]
        present = [(path, text) for path, text in texts if text is not None]
        values = [parse_quantity(column, text) for _, text in present]
        for (path, text), value in zip(present, values, strict=True):
            if value is None:
                unread.add(f"{path} is not a number in a known unit", text)
        known = [value for value in values if value is not None]
        if len(known) == len(paths):
            return math.fsum(known)
    return None

"""Parser of the text of `nvidia-smi -q`, which has the content of the XML of `-q -x`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from forewarn.features.telemetry.nvidia_smi.query_xml import readings_of
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["is_query_text", "parse_query_text"]

_TITLE = re.compile(r"^=+ ?NVSMI LOG ?=+\s*$", re.MULTILINE)
_GPU = re.compile(r"GPU (?P<address>[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_LINE = re.compile(r"(?P<indent> *)(?P<name>[^:]*?)\s*(?: : (?P<value>.*))?")
_INDENT = 4  # blanks per level
_ECC = ("ecc errors/aggregate/", "ecc_errors/aggregate/")
# Names in the text -> names in the XML.
_PATHS = {
    "timestamp": "timestamp",
    "driver version": "driver_version",
    "attached gpus": "attached_gpus",
    "product name": "product_name",
    "serial number": "serial",
    "gpu uuid": "uuid",
    "gpu recovery action": "gpu_recovery_action",
    "gpu reset status/reset required": "gpu_reset_status/reset_required",
    "pci/replays since reset": "pci/replay_counter",
    "pci/gpu link info/link width/current": (
        "pci/pci_gpu_link_info/link_widths/current_link_width"
    ),
    "fb memory usage/used": "fb_memory_usage/used",
    "utilization/gpu": "utilization/gpu_util",
    "utilization/memory": "utilization/memory_util",
    "temperature/gpu current temp": "temperature/gpu_temp",
    "gpu power readings/average power draw": "gpu_power_readings/average_power_draw",
    "gpu power readings/power draw": "gpu_power_readings/power_draw",
    "gpu power readings/instantaneous power draw": "gpu_power_readings/instant_power_draw",
    "power readings/power draw": "power_readings/power_draw",
    "clocks/sm": "clocks/sm_clock",
    "remapped rows/correctable error": "remapped_rows/remapped_row_corr",
    "remapped rows/uncorrectable error": "remapped_rows/remapped_row_unc",
    "remapped rows/remapping failure occurred": "remapped_rows/remapped_row_failure",
    "clocks event reasons/hw slowdown": "clocks_event_reasons/clocks_event_reason_hw_slowdown",
    "clocks throttle reasons/hw slowdown": (
        "clocks_throttle_reasons/clocks_throttle_reason_hw_slowdown"
    ),
    **{
        _ECC[0] + name: _ECC[1] + name.replace(" ", "_").replace("sec-ded", "secded")
        for name in (
            *("sram correctable", "dram correctable", "sram uncorrectable", "dram uncorrectable"),
            *("sram uncorrectable parity", "sram uncorrectable sec-ded"),
        )
    },
}


def is_query_text(text: str) -> bool:
    """Tell whether a text is the output of `nvidia-smi -q`."""
    return bool(_TITLE.search(text))


def parse_query_text(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of the output, which may consist of several outputs.

    Returns
    -------
    list of GpuReading
    Unread
        Values that are neither a number nor marked as absent.
    """
    unread, readings = Unread(), []
    for part in _TITLE.split(text)[1:]:
        root = gpu = ET.Element("nvidia_smi_log")
        for path, value in _values(part):
            if match := _GPU.fullmatch(path):
                gpu = ET.SubElement(root, "gpu", id=match["address"])
            elif (known := _PATHS.get(path.lower())) and value is not None:
                _put(gpu, known, value)
        readings += readings_of(root, unread)
    return readings, unread


def _values(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the path of each value, outer levels first, and the value."""
    above: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            match = _GPU.match(line)
            if match is not None:
                above = []
                yield match[0], None
            continue
        level = max(len(match["indent"]) // _INDENT - 1, 0)
        above = [*above[:level], match["name"].strip()]
        yield "/".join(above), match["value"]


def _put(element: ET.Element, path: str, value: str) -> None:
    for tag in path.split("/"):
        below = element.find(tag)
        element = ET.SubElement(element, tag) if below is None else below
    element.text = value.strip()

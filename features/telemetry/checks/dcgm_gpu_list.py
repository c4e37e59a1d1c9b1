"""The list of GPUs that `dcgmi discovery -l` prints: which UUID each index has in DCGM."""

from __future__ import annotations

import re

from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_pci_address,
)

__all__ = ["is_dcgm_gpu_list", "parse_dcgm_gpu_list"]

_HEADING = re.compile(r"^\| GPU ID \| Device Information +\|", re.MULTILINE)
_GPU = re.compile(
    r"^\| (?P<slot>\d{1,4}) +\| Name: (?P<name>[^|\n]*?) *\|\s*?\n"
    r"\| +\| PCI Bus ID: (?P<pci>[^|\s]+) +\|\s*?\n"
    r"\| +\| Device UUID: (?P<uuid>GPU-[0-9a-fA-F-]{8,40}) +\|",
    re.MULTILINE,
)


def is_dcgm_gpu_list(text: str) -> bool:
    """Tell whether a text is the output of `dcgmi discovery -l`.

    Examples
    --------
    >>> is_dcgm_gpu_list("| GPU ID | Device Information      |")
    True
    """
    return bool(_HEADING.search(text))


def parse_dcgm_gpu_list(text: str) -> tuple[list[GpuReading], Unread]:
    """Read index, address, UUID and product of every GPU."""
    readings = []
    for match in _GPU.finditer(text.replace("\r", "")):
        named = match["name"] not in ("", "<<<NULL>>>")
        readings.append(
            GpuReading(
                texts={"gpu_type": match["name"]} if named else {},
                uuid=match["uuid"],
                pci=parse_pci_address(match["pci"]),
                slot=int(match["slot"]),
            )
        )
    return readings, Unread()

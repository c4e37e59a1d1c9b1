"""Outputs of amd-smi and rocm-smi in a file, of one form or of several that a script appended."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.amd.smi_csv import is_smi_csv, parse_smi_csv
from forewarn.features.telemetry.amd.smi_json import is_smi_json, parse_smi_json
from forewarn.features.telemetry.amd.smi_table import (
    is_amd_table,
    is_smi_monitor,
    parse_amd_table,
    parse_smi_monitor,
)
from forewarn.features.telemetry.amd.smi_text import is_smi_text, parse_smi_text
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["is_smi_output", "parse_smi_output"]

_Parser = Callable[[str], tuple[list[GpuReading], Unread]]
_FORMS: tuple[tuple[Callable[[str], bool], _Parser], ...] = (
    (is_smi_json, parse_smi_json),
    (is_amd_table, parse_amd_table),
    (is_smi_csv, parse_smi_csv),
    (is_smi_text, parse_smi_text),
    (is_smi_monitor, parse_smi_monitor),
)


def is_smi_output(text: str) -> bool:
    """Tell whether a text has output of AMD's tools.

    Examples
    --------
    >>> is_smi_output("| AMD-SMI 26.2 |"), is_smi_output("| NVIDIA-SMI 550.1 |")
    (True, False)
    """
    return any(matches(text) for matches, _ in _FORMS)


def parse_smi_output(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of every output of a file; those of one moment and index are one.

    Returns
    -------
    list of GpuReading
    Unread
    """
    unread, readings = Unread(), list[GpuReading]()
    for matches, parse in _FORMS:
        if matches(text):
            some, more = parse(text)
            readings += some
            unread.join(more)
    return merge_gpus(readings), unread

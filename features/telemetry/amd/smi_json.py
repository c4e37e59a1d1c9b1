"""GPUs in the JSON of `amd-smi metric`, `static`, `list` and `monitor`, and of `rocm-smi`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.amd.smi_values import gpu_from_values
from forewarn.features.telemetry.checks.json_documents import json_documents
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["is_smi_json", "parse_smi_json"]

# amd-smi before 26 prints a list of GPUs, rocm-smi an object for each card.
_GPU = re.compile(r'[{\[]\s*"(?:gpu_data"\s*:|card\d+"\s*:\s*\{|gpu"\s*:\s*\d+\s*[,}])')
_WATCHED = re.compile(r'\{\s*"timestamp"\s*:\s*\d+,\s*"gpu"\s*:\s*\d')
_SYSTEM = re.compile(r'\{\s*"system"\s*:\s*\{[^}]*\}\s*(?:,\s*"card\d+"|\})')
_CARD = re.compile(r"card(?P<index>\d{1,3})")
_MAX_DEPTH = 4


def is_smi_json(text: str) -> bool:
    """Tell whether a text has JSON of amd-smi or rocm-smi.

    Examples
    --------
    >>> is_smi_json('{"card0": {"GUID": "1"}}'), is_smi_json('{"readings": []}')
    (True, False)
    """
    return any(pattern.search(text) for pattern in (_GPU, _WATCHED, _SYSTEM))


def parse_smi_json(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of every document; identity and values of one moment become one reading.

    Returns
    -------
    list of GpuReading
    Unread
        Values in unknown units, and documents of another kind or cut off.
    """
    unread, readings = Unread(), []
    for document, time in json_documents(text, unread):
        gpus = list(_gpus(document))
        readings += [gpu_from_values(_flat(gpu), unread, time) for gpu in gpus]
        if not gpus:
            unread.add("a JSON document without an AMD GPU", str(document))
    return merge_gpus(readings), unread


def _gpus(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the object of each GPU with its index."""
    data = document.get("gpu_data")
    if isinstance(data, list):
        yield from (gpu for gpu in data if isinstance(gpu, dict) and "gpu" in gpu)
    elif "gpu" in document:
        yield dict(document)
    system = document.get("system")
    shared = system if isinstance(system, dict) else {}
    for name, values in document.items():
        if (card := _CARD.fullmatch(name)) and isinstance(values, dict):
            yield {**shared, **values, "gpu": int(card["index"])}


def _flat(values: Mapping[str, Any], above: str = "", depth: int = 0) -> dict[str, str]:
    """Return the values of nested objects, each as it would be printed."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        name = above + str(key).lower()
        if isinstance(value, dict) and "value" in value:
            flat[name] = f"{value['value']} {value.get('unit', '')}".strip()
        elif isinstance(value, dict) and depth < _MAX_DEPTH:
            flat |= _flat(value, f"{name}/", depth + 1)
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            flat[name] = str(value)
    return flat

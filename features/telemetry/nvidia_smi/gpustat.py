"""GPUs in the output of `gpustat --json`, which names its values as nvidia-smi does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forewarn.features.telemetry.checks.json_documents import json_documents
from forewarn.features.telemetry.nvidia_smi.query_csv import parse_query_gpu
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread

__all__ = ["is_gpustat", "parse_gpustat"]

_QUERY = re.compile(r'"query_time"\s*:')


def is_gpustat(text: str) -> bool:
    """Tell whether a text is the output of `gpustat --json`."""
    return text.lstrip().startswith("{") and bool(_QUERY.search(text))


def parse_gpustat(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU, also of outputs that were appended to one file."""
    unread, readings = Unread(), list[GpuReading]()
    for document, _ in json_documents(text, unread):
        gpus = document.get("gpus")
        host = document.get("hostname")
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, Mapping):
                rows, more = parse_query_gpu(_as_csv(document, gpu))
                unread.join(more)
                readings += [replace(r, host=host if isinstance(host, str) else None) for r in rows]
    return readings, unread


def _as_csv(document: Mapping[str, Any], gpu: Mapping[str, Any]) -> str:
    """Return the values of a GPU as nvidia-smi prints them, without units."""
    shared = {"timestamp": "query_time", "driver_version": "driver_version"}
    cells = {ours: document.get(theirs) for ours, theirs in shared.items()} | dict(gpu)
    cells = {name: value for name, value in cells.items() if isinstance(value, str | int | float)}
    values = (re.sub(r"[,\n]", " ", str(value)) for value in cells.values())
    return f"{', '.join(cells)}\n{', '.join(values)}\n"

"""The list of GPUs that `nvidia-smi -L` prints: which UUID each index has."""

from __future__ import annotations

import re

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.script_time import (
    split_time,
    stamped_lines,
    with_script_time,
)

__all__ = ["is_gpu_list", "parse_gpu_list"]

_GPU = re.compile(
    r"^.{0,40}?\bGPU (?P<slot>\d{1,4}): (?P<name>.{1,100}?)"
    r" \(UUID: (?P<uuid>GPU-[0-9a-fA-F-]{8,40})\)",
    re.MULTILINE,
)


def is_gpu_list(text: str) -> bool:
    """Tell whether a text is the output of `nvidia-smi -L`.

    Examples
    --------
    >>> is_gpu_list("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000001)")
    True
    """
    return bool(_GPU.search(text))


def parse_gpu_list(text: str) -> tuple[list[GpuReading], Unread]:
    """Read index, UUID and product of every GPU; parts of split GPUs (MIG) are left out."""
    readings = []
    for line, last in stamped_lines(text):
        own, rest = split_time(line)
        if match := _GPU.search(rest):
            texts = {"gpu_type": match["name"]}
            gpu = GpuReading(texts=texts, uuid=match["uuid"], slot=int(match["slot"]))
            readings.append(with_script_time(gpu, own or last))
    return readings, Unread()

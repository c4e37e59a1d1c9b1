"""GPUs in the text of `amd-smi metric`, `static` and `list`, and of `rocm-smi -a`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.amd.smi_values import gpu_from_values
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.script_time import ScriptTime, stamped_lines

__all__ = ["is_smi_text", "parse_smi_text"]

_AMD_GPU = re.compile(r"GPU: (?P<index>\d{1,3})\s*")
_AMD_TITLE = re.compile(r"^GPU: \d{1,3}\s*\n(?:\s*\n)*(?: {4}[A-Z_]+:)", re.MULTILINE)
_AMD_LINE = re.compile(r"(?P<indent> +)(?P<name>[A-Z][A-Z0-9_ ]*):\s?(?P<value>.*)")
_ROCM_LINE = re.compile(r"GPU\[(?P<index>\d{1,3})\]\s*: (?P<name>[^:]+?:?): (?P<value>\S.*)")
_ROCM_TITLE = re.compile(r"^GPU\[\d{1,3}\]\s*: ", re.MULTILINE)
_DRIVER = re.compile(r"Driver version: (?P<version>\S+)")
_END = re.compile(r"=*\s*End of ROCm SMI Log\s*=*")
_INDENT = 4  # blanks per level


def is_smi_text(text: str) -> bool:
    """Tell whether a text has GPUs as amd-smi or rocm-smi print them for people."""
    return bool(_AMD_TITLE.search(text) or _ROCM_TITLE.search(text))


def parse_smi_text(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every GPU of every output of a file.

    Returns
    -------
    list of GpuReading
    Unread
        Values in unknown units.
    """
    unread = Unread()
    gpus = (*_amd_gpus(text), *_rocm_gpus(text))
    return merge_gpus(gpu_from_values(gpu.values, unread, gpu.time) for gpu in gpus), unread


@dataclass(slots=True)
class _Gpu:
    time: ScriptTime | None
    values: dict[str, str] = field(default_factory=dict)


def _amd_gpus(text: str) -> Iterator[_Gpu]:
    """Yield the GPUs of amd-smi, whose blocks begin with their index."""
    gpu, above = _Gpu(None), list[str]()
    for line, time in stamped_lines(text):
        if match := _AMD_GPU.fullmatch(line):
            if gpu.values:
                yield gpu
            gpu, above = _Gpu(time, {"gpu": match["index"]}), []
        elif gpu.values and line[0] not in " \t":  # another device, such as a network card
            yield gpu
            gpu = _Gpu(None)
        elif gpu.values and (part := _AMD_LINE.fullmatch(line.rstrip())):
            level = max(len(part["indent"]) // _INDENT - 1, 0)
            above = [*above[:level], part["name"].strip().lower()]
            if part["value"].strip():
                gpu.values["/".join(above)] = part["value"].strip()
    if gpu.values:
        yield gpu


def _rocm_gpus(text: str) -> Iterator[_Gpu]:
    """Yield the GPUs of rocm-smi, whose sections list a value of each."""
    gpus, shared = dict[str, _Gpu](), dict[str, str]()
    for line, time in stamped_lines(text):
        if driver := _DRIVER.match(line.strip()):
            shared["driver version"] = driver["version"]
        elif match := _ROCM_LINE.match(line):
            gpu = gpus.setdefault(match["index"], _Gpu(time, {"gpu": match["index"]}))
            gpu.values.setdefault(match["name"].strip().lower(), match["value"].strip())
        elif _END.fullmatch(line.strip()):
            yield from _with_shared(gpus, shared)
            gpus = {}
    yield from _with_shared(gpus, shared)


def _with_shared(gpus: dict[str, _Gpu], shared: dict[str, str]) -> Iterator[_Gpu]:
    for gpu in gpus.values():
        gpu.values.update(shared)
        yield gpu

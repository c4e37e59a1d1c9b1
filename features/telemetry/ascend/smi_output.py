"""Outputs of npu-smi in a file, of one form or of several that a script appended."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forewarn.features.telemetry.amd.same_gpus import merge_gpus
from forewarn.features.telemetry.ascend.fault_codes import fault_level
from forewarn.features.telemetry.ascend.npu_table import is_npu_table, npu_rows
from forewarn.features.telemetry.ascend.npu_text import (
    NpuBlock,
    block_readings,
    is_npu_text,
    npu_blocks,
)
from forewarn.features.telemetry.checks.check_result import CheckResult, CheckSeverity
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR

__all__ = ["is_npu_output", "parse_npu_health", "parse_npu_output"]

_HEALTH_CHECK = "npu-smi health"
_SEVERITIES: dict[str, CheckSeverity] = {
    "ok": "ok",
    "warning": "warning",
    "alarm": "error",
    "critical": "critical",
}
_CODE = re.compile(r"\b(?:0x)?([0-9A-Fa-f]{8})\b")


def is_npu_output(text: str) -> bool:
    """Tell whether a text has output of `npu-smi info`.

    Examples
    --------
    >>> is_npu_output("NPU ID   : 0"), is_npu_output("| NVIDIA-SMI 550.1 |")
    (True, False)
    """
    return is_npu_table(text) or is_npu_text(text)


def parse_npu_output(text: str) -> tuple[list[GpuReading], Unread]:
    """Read every chip of every output of a file; those of one moment and chip are one reading.

    Returns
    -------
    list of GpuReading
    Unread
    """
    unread = Unread()
    readings = [row.gpu for row in npu_rows(text, unread)]
    for block in npu_blocks(text):
        readings += block_readings(block, unread)
    return merge_gpus(readings), unread


def parse_npu_health(text: str) -> tuple[list[CheckResult], Unread]:
    """Read the health and the fault codes of every chip of a file.

    Returns
    -------
    list of CheckResult
        The health in a table or a text, as a check. A fault code, as an error of the GPU with the
        severity of its level.
    Unread
        Health in unknown words.
    """
    unread, results = Unread(), list[CheckResult]()
    for row in npu_rows(text, Unread()):
        severity = _SEVERITIES.get(row.health.lower())
        if severity is None:
            unread.add("a health of npu-smi that is unknown", row.health)
            continue
        results.append(_check(severity, f"npu-smi: Health {row.health}", row.gpu))
    for block in npu_blocks(text):
        results += _block_results(block, unread)
    return results, unread


def _block_results(block: NpuBlock, unread: Unread) -> Iterator[CheckResult]:
    word = block.values.get("health") or block.values.get("health status")
    if word is None:
        return
    if not block.slots:
        unread.add("a health of npu-smi that names no NPU (print the command before it)", word)
        return
    gpu = GpuReading(
        slot=block.slots[0],
        time=block.time.moment if block.time else None,
        utc=block.time.utc if block.time else False,
    )
    severity = _SEVERITIES.get(word.lower())
    codes = _CODE.findall(block.values.get("error code", ""))
    if severity is None:
        unread.add("a health of npu-smi that is unknown", word)
    else:
        yield _check(severity, f"npu-smi: Health {word} {' '.join(codes)}".rstrip(), gpu)
    about = block.values.get("error information", "")
    for code in dict.fromkeys(code.upper() for code in codes):
        yield _fault(code, about, gpu)


def _check(severity: CheckSeverity, text: str, gpu: GpuReading) -> CheckResult:
    return CheckResult(_HEALTH_CHECK, severity, text, gpu, gpu.time, gpu.utc)


def _fault(code: str, about: str, gpu: GpuReading) -> CheckResult:
    level = fault_level(code)
    text = f"npu-smi: Error Code {code} ({level.name}: {level.remedy}) {about}".rstrip()
    check = f"{code} {level.name}"
    return CheckResult(check, level.severity, text, gpu, gpu.time, gpu.utc, kind=GPU_ERROR)

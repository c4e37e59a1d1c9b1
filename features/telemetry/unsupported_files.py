"""Descriptions of files that cannot be read: what they are, and what to provide instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["describe_json", "describe_text"]

_SMI_ADVICE = "provide `nvidia-smi --query-gpu=... --format=csv` or `nvidia-smi -q -x` instead"
_KERNEL_LOG_ADVICE = "provide `journalctl -k -o json` or the kernel log instead"
_UNSUPPORTED = "which is not supported"
_TEXT_PATTERNS = (
    (
        re.compile(r"^(?=(?:[^,|\n]*,){2})[^|\n]*\bGPU-[0-9a-f]{8}-", re.M),
        "a table of nvidia-smi without its header line, so that the columns are unknown "
        "(leave `noheader` out of `--format`)",
    ),
    (re.compile(r"^\| NVIDIA-SMI ", re.M),
     f"the human-readable table of nvidia-smi ({_SMI_ADVICE})"),
    (re.compile(r"^# *(?:Date +Time +)?gpu +(?:pwr|pid|idx)\b|^#.*\bgtemp\b", re.M | re.I),
     f"output of nvidia-smi dmon or pmon, which names no GPU ({_SMI_ADVICE})"),
    (re.compile(r"\bnpu-smi\b"), f"output of npu-smi, {_UNSUPPORTED}"),
    (re.compile(r"\bnhc\b.*Health check failed|/nhc\b"),
     f"output of Node Health Check, {_UNSUPPORTED}"),
    (re.compile(r"^(?:# (?:HELP|TYPE) )?node_\w+", re.M),
     f"metrics of the node exporter, {_UNSUPPORTED}"),
    (re.compile(r"^# (?:HELP|TYPE) \w+", re.M), "metrics without a field of DCGM"),
    (re.compile(r"\brocm-smi\b|ROCm System Management"), f"output of rocm-smi, {_UNSUPPORTED}"),
)  # fmt: skip


def describe_text(text: str) -> str:
    """Describe a file that no parser reads, and what to do about it.

    Examples
    --------
    >>> describe_text("| npu-smi 24.1 |")
    'output of npu-smi, which is not supported'
    >>> describe_text("hello")
    'a file of unknown kind'
    """
    head = text.lstrip("\ufeff \r\n\0")[:4000]
    return next(
        (what for form, what in _TEXT_PATTERNS if form.search(head)), "a file of unknown kind"
    )


def describe_json(value: Any) -> str | None:
    """Describe a JSON value that is no agent batch; None if it is unknown.

    Examples
    --------
    >>> describe_json({"card0": {"GUID": "1"}})
    'output of rocm-smi, which is not supported'
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    names = {str(name) for name in value}
    if any(re.fullmatch(r"card\d+", name) for name in names):
        return f"output of rocm-smi, {_UNSUPPORTED}"
    if "gpu" in names or "gpu_data" in names:
        return f"output of amd-smi, {_UNSUPPORTED}"
    if any(name.startswith("DCGM") for name in names):
        return f"output of `dcgmi diag`, {_UNSUPPORTED}"
    if names & {"log", "message", "msg", "MESSAGE"}:
        return f"lines of a log collector, which do not say who wrote them ({_KERNEL_LOG_ADVICE})"
    return None

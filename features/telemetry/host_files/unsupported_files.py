"""Descriptions of files that cannot be read: what they are, and what to provide instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["describe_json", "describe_text"]

_SMI = "`nvidia-smi --query-gpu=... --format=csv`"


def _looks_like(what: str, instead: str = "") -> str:
    """Return what a file is, and which output would be read instead."""
    text = f"looks like {what}, which is not read"
    return f"{text}; {instead} would be" if instead else text


_KERNEL_LOG = "`journalctl -k -o json` or the kernel log"
_TEXT_PATTERNS = (
    (re.compile(r"^# *(?:Date[ ,]+)?(?:Time[ ,]+)?gpu[ ,]+(?:pid)\b", re.M | re.I),
     _looks_like("the processes of `nvidia-smi pmon`", "`nvidia-smi dmon`")),
    (re.compile(r"^\*?\s*#Entity\b|^# *Entity\b", re.M),
     _looks_like("output of `dcgmi dmon`", f"{_SMI} or the text of dcgm-exporter")),
    (re.compile(r"^\| Diagnostic +\| Result", re.M),
     _looks_like("the table of `dcgmi diag`", "`dcgmi diag -j`")),
    (re.compile(r"^\| (?:Health Monitor Report|Overall Health)", re.M),
     _looks_like("the table of `dcgmi health`", "`dcgmi health -c -j`")),
    (re.compile(r"^.*\bpid\b.*,.*\bprocess_name\b", re.M),
     _looks_like("CSV of `nvidia-smi --query-compute-apps`", _SMI)),
    (re.compile(r"^\[\d+\] [^\s:]+: \[", re.M),
     _looks_like("Fluent Bit's `stdout`", "its `Format json_lines`")),
    (re.compile(r"\bnpu-smi\b"), _looks_like("output of npu-smi")),
    (re.compile(r"\bnhc\b.*Health check failed|/nhc\b"),
     _looks_like("output of Node Health Check")),
    (re.compile(r"^# (?:HELP|TYPE) \w+", re.M),
     _looks_like("metrics without a field of DCGM", "the text of dcgm-exporter")),
    (re.compile(r"\brocm-smi\b|ROCm System Management"), _looks_like("output of rocm-smi")),
)  # fmt: skip


def describe_text(text: str) -> str:
    """Describe a file that no parser reads, and what to do about it.

    Examples
    --------
    >>> describe_text("| npu-smi 24.1 |")
    'looks like output of npu-smi, which is not read'
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
    'looks like output of rocm-smi, which is not read'
    """
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, Mapping):
        return None
    names = {str(name) for name in value}
    if any(re.fullmatch(r"card\d+", name) for name in names):
        return _looks_like("output of rocm-smi")
    if "gpu" in names or "gpu_data" in names:
        return _looks_like("output of amd-smi")
    if names & {"log", "message", "msg", "MESSAGE"}:
        return _looks_like("lines of a log collector, which do not say who wrote them", _KERNEL_LOG)
    return None

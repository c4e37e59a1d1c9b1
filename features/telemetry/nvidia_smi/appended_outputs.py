"""Files to which a script appended outputs of several kinds: one part for each."""

from __future__ import annotations

import itertools
import re

from forewarn.features.telemetry.nvidia_smi.device_monitor import is_device_monitor
from forewarn.features.telemetry.nvidia_smi.gpu_list import is_gpu_list
from forewarn.features.telemetry.nvidia_smi.query_csv import is_header
from forewarn.features.telemetry.parsers.script_time import split_time

__all__ = ["split_outputs"]

_HINT = re.compile("NVIDIA-SMI|NVSMI LOG|<|#|UUID|uuid|serial|index|name|bus_id|timestamp|version")
_TABLE = re.compile(r"\| NVIDIA-SMI ")
_QUERY = re.compile(r"=+ ?NVSMI LOG ?=+")
_DOCUMENT = re.compile(r"<\?xml|<nvidia_smi_log")
_EDGE = re.compile(r"[^|]{0,40}\+[-+=]+\+\s*$")  # of the table, which begins with one


def split_outputs(text: str) -> list[str]:
    r"""Return the outputs of nvidia-smi in a file, each with what stood before it.

    A file of one kind stays whole.

    Examples
    --------
    >>> split_outputs("GPU 0: NVIDIA H100 (UUID: GPU-aaaaaaaa-0000)\nindex, uuid\n0, GPU-1\n")
    ['GPU 0: NVIDIA H100 (UUID: GPU-aaaaaaaa-0000)\n', 'index, uuid\n0, GPU-1\n']
    """
    lines = text.splitlines(keepends=True)
    starts: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        kind = _begins(line)
        if kind is not None and (not starts or starts[-1][1] != kind):
            starts.append((_with_time_before(lines, number), kind))
    if len(starts) < 2:
        return [text]
    begins = [0, *(start for start, _ in starts[1:]), len(lines)]
    return ["".join(lines[a:b]) for a, b in itertools.pairwise(begins)]


def _begins(line: str) -> str | None:
    """Return the kind of output that a line begins, None if it begins none."""
    line = line[:2000]
    if not _HINT.search(line):
        return None
    if _TABLE.search(line):
        return "table"
    if _QUERY.search(line):
        return "text"
    if _DOCUMENT.search(line):
        return "xml"
    if is_device_monitor(line):
        return "dmon"
    if is_gpu_list(line):
        return "list"
    return "csv" if "," in line and is_header(split_time(line)[1]) else None


def _with_time_before(lines: list[str], start: int) -> int:
    """Return where an output begins, with the edge of the table and the time before it."""
    while start > 0:
        line = lines[start - 1]
        if line.strip() and not _EDGE.match(line) and split_time(line)[0] is None:
            break
        start -= 1
    return start

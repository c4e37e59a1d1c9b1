"""What a file of a job contains, from its first bytes: dumps, stacks and reports have any name."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["HEAD_BYTES", "FileContent", "file_content"]

HEAD_BYTES = 65_536  # enough to tell
FileContent = Literal[
    "flight recorder dump",
    "py-spy stacks",
    "native stacks",
    "NCCL RAS",
    "NCCL inspector",
    "XPUTimer metrics",
]

_DUMP_KEYS = (b"collective_seq_id", b"pg_config", b"profiling_name")
_RAS_KEYS = (b'"communicators_count"', b'"missing_ranks"', b'"collective_counts"')
_INSPECTOR_KEYS = (b'"inspector_output_format_version"', b'"coll_perf"', b'"p2p_perf"')
# RAS prints a summary of the job, then a table, errors and warnings on communicators. A log that
# quotes an answer remains a log.
_RAS_TEXT = re.compile(
    rb"^(?:Job summary|Communicators\.\.\..*|Errors|Warnings)\r?\n=+\r?\n"
    rb"(?:(?!\[).*\n){0,30}?(?: *Group +Comms +Nodes|#\d+-\d+ \([0-9a-f]{1,16}\) [A-Z])",
    re.MULTILINE,
)
_PROTOCOL_LINES = re.compile(rb"(?:SERVER PROTOCOL \d+\r?\n|OK\r?\n)*\s*")
_LOG_LINE = re.compile(
    rb"^(?:\[?\d{4}-\d\d-\d\d[ T][\d:.,]+\S* +\S|\[\w*\d+\]:|\S+:\d+:\d+ \[\d*\] NCCL)",
    re.MULTILINE,
)
_XPU_TIMER = re.compile(
    rb"(?:#.*\n|[ \t\r]*\n|\w+(?:\{.*\})? [-+.\w]+\r?\n)*XPU_TIMER_[A-Z0-9_]+\{"
)
_JSON_STACKS = re.compile(rb'\[\s*\{\s*"')
_TEXT_STACKS = re.compile(rb"(?:.*\n){0,4}(?:\x1b\[[\d;]*m)*Process (?:\x1b\[[\d;]*m)*\d+")
_PY_SPY_THREAD = re.compile(rb"^(?:\x1b\[[\d;]*m)*Thread .{1,60}\((?:active|idle)", re.MULTILINE)
_NATIVE_STACKS = re.compile(
    rb"^Thread \d+ \((?:LWP|Thread 0x)|^#\d+ +0x[0-9a-f]+ in ", re.MULTILINE
)
_OBJECTS: dict[FileContent, tuple[bytes, ...]] = {
    "NCCL inspector": _INSPECTOR_KEYS,
    "NCCL RAS": _RAS_KEYS,
    "flight recorder dump": _DUMP_KEYS,
}
_RAS_HEAD_BYTES = 8192


def file_content(head: bytes) -> FileContent | None:
    r"""Return what a file contains, or None if it is something else, such as a log.

    Parameters
    ----------
    head : bytes
        First `HEAD_BYTES` of the file.

    Examples
    --------
    >>> file_content(b'Process 7: python3 train.py\nThread 7 (idle): "MainThread"\n')
    'py-spy stacks'
    >>> file_content(b"#0  0x00007f3a in __poll () from /lib/libc.so.6")
    'native stacks'
    """
    answer = _PROTOCOL_LINES.sub(b"", head, count=1)
    if answer.startswith(b'{"log":'):
        return None  # a line of Docker's log
    if answer[:1] in (b"\x80", b"{"):
        return next((c for c, keys in _OBJECTS.items() if any(k in head for k in keys)), None)
    if _JSON_STACKS.match(head):
        return "py-spy stacks" if b'"frames"' in head else None
    if _XPU_TIMER.match(head):
        return "XPUTimer metrics"
    start = head[:_RAS_HEAD_BYTES]
    if b"\n=" in start and _RAS_TEXT.search(start) and not _LOG_LINE.search(head):
        return "NCCL RAS"
    if b"#" in head and _NATIVE_STACKS.search(head):  # each stack has a frame
        return "native stacks"
    is_py_spy = _TEXT_STACKS.match(head) and _PY_SPY_THREAD.search(head)
    return "py-spy stacks" if is_py_spy else None

"""What a file of a job contains, from its first bytes: dumps and stacks may have any name."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["HEAD_BYTES", "FileContent", "file_content"]

HEAD_BYTES = 65_536  # enough to tell
FileContent = Literal["flight recorder dump", "py-spy stacks", "native stacks"]

_DUMP_KEYS = (b"collective_seq_id", b"pg_config", b"profiling_name")
_JSON_STACKS = re.compile(rb'\[\s*\{\s*"')
_TEXT_STACKS = re.compile(rb"(?:.*\n){0,4}(?:\x1b\[[\d;]*m)*Process (?:\x1b\[[\d;]*m)*\d+")
_PY_SPY_THREAD = re.compile(rb"^(?:\x1b\[[\d;]*m)*Thread .{1,60}\((?:active|idle)", re.MULTILINE)
_NATIVE_STACKS = re.compile(
    rb"^Thread \d+ \((?:LWP|Thread 0x)|^#\d+ +0x[0-9a-f]+ in ", re.MULTILINE
)


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
    if head[:1] in (b"\x80", b"{"):
        return "flight recorder dump" if any(key in head for key in _DUMP_KEYS) else None
    if _JSON_STACKS.match(head):
        return "py-spy stacks" if b'"frames"' in head else None
    if _NATIVE_STACKS.search(head):
        return "native stacks"
    is_py_spy = _TEXT_STACKS.match(head) and _PY_SPY_THREAD.search(head)
    return "py-spy stacks" if is_py_spy else None

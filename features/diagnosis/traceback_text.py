"""Stacks of a process as Python's faulthandler prints them, in the form of `py-spy dump --json`."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["threads_of_traceback"]

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[([^\]]*)\])?")
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d+|\?\?\?) in (.*)')
_MOST_FRAMES = 512


def threads_of_traceback(text: str, pid: int) -> list[dict[str, Any]]:
    r"""Return the threads of a process, the innermost call of each first.

    Parameters
    ----------
    text : str
        Threads, the newest first: the last one is the main thread.
    pid : int

    Examples
    --------
    >>> text = 'Thread 0x7f (most recent call first):\n  File "a.py", line 3 in wait\n'
    >>> threads_of_traceback(text, 9)[0]["frames"]
    [{'name': 'wait', 'filename': 'a.py', 'line': 3}]
    """
    threads: list[dict[str, Any]] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            threads.append({"pid": pid, "thread_name": match[2] or match[1], "frames": []})
        elif threads and (match := _FRAME.fullmatch(line)):
            number = int(match[2]) if match[2].isdecimal() else 0
            frames = threads[-1]["frames"]
            if len(frames) < _MOST_FRAMES:
                frames.append({"name": match[3], "filename": match[1], "line": number})
    if threads:
        threads[-1] |= {"thread_name": "MainThread", "os_thread_id": pid}
    return threads

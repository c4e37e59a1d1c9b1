"""Detection of processes that outlive a killed parent."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def all_end(argument: str, within: float = 60.0) -> bool:
    """Tell whether all processes with an argument, such as a test's path, end in time.

    A process that got SIGKILL may stay listed as running until it is scheduled. A zombie whose
    parent does not wait for it has no arguments any more. A process may end so early that a number
    it writes is still missing.
    """
    end = time.monotonic() + within
    while any(argument.encode() in arguments for arguments in _all_arguments()):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _all_arguments() -> list[list[bytes]]:
    """Return the arguments of each process of this machine."""
    lines = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            lines.append(Path("/proc", name, "cmdline").read_bytes().split(b"\0"))
    return lines

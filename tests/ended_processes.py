"""Processes that a killed parent leaves behind: they end a moment after the signal."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path


def all_end(argument: str, within: float = 60.0) -> bool:
    """Tell whether all processes end that were started with an argument, such as a test's path.

    A process that got SIGKILL may still be listed as running, until it is given a core; one that
    waits as a zombie for a parent that does not ask has no arguments any more. It need not have
    come far either: a number that it writes down might not be there yet.
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

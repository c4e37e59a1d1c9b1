"""Processes that a killed parent leaves behind: they end a moment after the signal."""

from __future__ import annotations

import time
from pathlib import Path


def ends(pid: int, within: float = 30.0) -> bool:
    """Tell whether a process ends, or waits as a zombie for a parent that does not ask.

    A process that got SIGKILL may still be listed as running, until it is given a core.
    """
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if "(zombie)" in status:
            return True
        time.sleep(0.02)
    return False

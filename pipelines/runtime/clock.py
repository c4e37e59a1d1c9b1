"""The clock of a service, which tests can replace by a faster one."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from forewarn.features.time_units import MINUTE

__all__ = ["MAX_CLOCK_SKEW", "Clock", "SystemClock"]

# Clocks drift and batches take time: a time further ahead than this comes from a wrong clock.
MAX_CLOCK_SKEW = 5 * MINUTE


class Clock(Protocol):
    """Tells the time, and waits."""

    def now(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        ...

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait for an event for at most `seconds`; return whether it was set."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Return nanoseconds since 1970 UTC."""
        return time.time_ns()

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Wait for an event for at most `seconds`; return whether it was set."""
        return until.wait(seconds)
